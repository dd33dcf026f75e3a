//! A visit to EL2 (`vm::cpu::Visit`), with the permission to wait, begins where a core enters EL2
//! and nowhere else.
//!
//! A handler of interrupts could begin one, too: the compiler cannot tell. It would then wait
//! inside another wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::Finding;
use super::source::Sources;

/// Where visits begin: the vectors' handlers, and the loop of a parked core, once.
const PLACES: [(&str, usize); 4] = [
    ("exits/exceptions.rs", usize::MAX),
    ("exits/hypercall.rs", 1),
    ("exits/traps.rs", 1),
    ("vm/life.rs", 1),
];

/// Visits that begin elsewhere.
pub fn find(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in sources.hypervisor() {
        let allowed = PLACES
            .iter()
            .find(|(place, _)| module.file.ends_with(place))
            .map_or(0, |(_, count)| *count);
        let lines = module
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("Visit::begin("));
        for (at, _) in lines.skip(allowed) {
            let what = "a visit to EL2 begins here";
            let fix = "take a `Visit`, or leave what may wait to `Cpu::due`";
            findings.push(Finding::new(&module.file, at + 1, what, fix));
        }
    }
    findings
}
