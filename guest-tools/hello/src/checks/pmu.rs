//! The PMU: its counters, its overflow interrupt, the events that it announces, and what they count.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::interrupt::Gic;
use crate::checks::memory::buffer_problem;
use crate::machine::access::{barrier, clean_range};
use crate::machine::benchmarks::{self, Benchmark};
use crate::machine::loaded::{BLOCK, BUFFER_BLOCKS, map_buffer};
use crate::machine::registers::{
    MDCR_EL2, PMCEID0_EL0, PMCEID1_EL0, PMCNTENCLR_EL0, PMCNTENSET_EL0, PMCR, PMCR_EL0,
    PMINTENCLR_EL1, PMINTENSET_EL1, PMOVSCLR_EL0, PMOVSSET_EL0, PMSELR_EL0, PMXEVCNTR_EL0,
    PMXEVTYPER_EL0, Readable, Writeable,
};
use crate::report::Report;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cloison_formats::units::EventId;
use cloison_hello::claims::Claims;
use cloison_hello::line::Verdict;

/// PMEVTYPER.NSH: counts at EL2, where this image runs.
const AT_EL2: u64 = 1 << 27;

/// How often each benchmark is run with each event, so that their spread shows.
const RUNS: u32 = 3;

/// Returns the number of this core's event counters.
pub fn counters() -> u32 {
    PMCR_EL0.read(PMCR::N) as u32
}

/// Stops and clears this core's PMU, all counters of which are EL2's.
pub fn init() {
    MDCR_EL2.set(u64::from(counters()));
    PMCNTENCLR_EL0.set(0xffff_ffff);
    PMINTENCLR_EL1.set(0xffff_ffff);
    PMOVSCLR_EL0.set(0xffff_ffff);
    PMCR_EL0.write(PMCR::E::SET + PMCR::P::SET + PMCR::C::SET + PMCR::LC::SET);
    barrier();
}

/// Returns the interrupt that an overflow of this core's first counter raises.
pub fn overflow_interrupt(gic: &Gic) -> Option<u32> {
    if counters() == 0 {
        return None;
    }
    gic.raised_by(
        || {
            PMINTENSET_EL1.set(1);
            PMOVSSET_EL0.set(1);
            barrier();
        },
        || {
            PMOVSCLR_EL0.set(1);
            PMINTENCLR_EL1.set(1);
            barrier();
        },
    )
}

/// Checks this core's PMU. `core` is its number in the board file.
pub fn check(report: &mut Report, claims: &Claims, gic: &Gic, core: usize) {
    init();
    report.compare(
        "pmu.counters",
        claims.counters,
        Some(counters()),
        "PMCR_EL0.N",
    );
    interrupt(report, claims, core, overflow_interrupt(gic));
    if !claims.board.pmu_irqs.is_empty() {
        let why = "whether it is needed shows under a load only";
        report.untested("pmu.shadow", claims.board.pmu_shadow, why);
    }
    let why = "whether a guest is kept from counters shows in a guest only";
    report.untested("pmu.splits", claims.board.pmu_splits, why);
    let announced = format!("{:#x},{:#x}", PMCEID0_EL0.get(), PMCEID1_EL0.get());
    report.note("pmu.announced", announced, "PMCEID0_EL0 and PMCEID1_EL0");
    let problem = buffer_problem(&claims.board, BUFFER_BLOCKS * BLOCK);
    match problem {
        Some(problem) => report.note("events", "-", problem),
        None => events(report, claims),
    }
}

/// Prints the line on a core's overflow interrupt.
pub fn interrupt(report: &mut Report, claims: &Claims, core: usize, found: Option<u32>) {
    let claimed = claims.board.pmu_irqs.get(core).map(|irq| irq.0);
    let shared = format!("pmu.irqs[{core}]");
    let key = match claimed.or(found) {
        Some(irq) if irq >= 32 => shared,
        _ if core > 0 => return,
        _ => "pmu.irq".into(),
    };
    let remark = if found.is_some() {
        "pending at the GICD after an overflow"
    } else {
        "no interrupt became pending after an overflow"
    };
    match (claimed, found) {
        (Some(claimed), found) => report.compare(key, claimed, found, remark),
        (None, Some(found)) => report.note(key, found, remark),
        (None, None) => report.line(key, "-", "-", Verdict::Right, remark),
    }
}

/// Whether the PMU announces a common event.
fn is_announced(event: EventId) -> Option<bool> {
    let register = match event.0 {
        0..32 => PMCEID0_EL0.get(),
        32..64 => PMCEID1_EL0.get(),
        _ => return None,
    };
    Some(register >> (event.0 % 32) & 1 != 0)
}

/// Prints what each event counts of each benchmark in each run: `load-stream:65536+65540+65536`.
fn events(report: &mut Report, claims: &Claims) {
    let buffer = map_buffer();
    let step = counters().max(1) as usize;
    for group in claims.events.chunks(step) {
        let mut found = alloc::vec![String::new(); group.len()];
        for benchmark in &benchmarks::ALL {
            for run in 0..RUNS {
                let counts = count(group, benchmark, buffer);
                for (text, count) in found.iter_mut().zip(counts) {
                    let comma = if text.is_empty() { "" } else { "," };
                    *text += &match run {
                        0 => format!("{comma}{}:{count}", benchmark.name),
                        _ => format!("+{count}"),
                    };
                }
            }
        }
        for (event, found) in group.iter().zip(found) {
            let remark = match is_announced(*event) {
                Some(true) => "announced",
                Some(false) => "not announced",
                None => "",
            };
            report.note(format!("event.{event}"), found, remark);
        }
    }
}

/// Counts events, one on each counter, while a benchmark runs with a buffer that no cache holds.
fn count(events: &[EventId], benchmark: &Benchmark, buffer: u64) -> Vec<u64> {
    let mask = (1 << events.len()) - 1;
    for (counter, event) in (0..).zip(events) {
        PMSELR_EL0.set(counter);
        barrier();
        PMXEVTYPER_EL0.set(u64::from(event.0) | AT_EL2);
        PMXEVCNTR_EL0.set(0);
    }
    clean_range(buffer, benchmark.bytes);
    PMCNTENSET_EL0.set(mask);
    barrier();
    (benchmark.run)(buffer);
    barrier();
    PMCNTENCLR_EL0.set(mask);
    barrier();
    let value = |counter| {
        PMSELR_EL0.set(counter);
        barrier();
        PMXEVCNTR_EL0.get() & 0xffff_ffff
    };
    (0..events.len() as u64).map(value).collect()
}
