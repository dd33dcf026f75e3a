//! What the oracle reports: the first difference, and the visits that led there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_spec::Difference;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::Path;

/// Visits that are kept.
const KEPT: usize = 64;

/// A visit to EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Visit {
    /// Its number.
    pub number: u64,
    /// The core.
    pub core: usize,
    /// Offset of the vector.
    pub vector: u16,
    /// ESR_EL2.
    pub esr: u64,
    /// Where the guest was.
    pub pc: u64,
    /// w0 to x3, if it made a call.
    pub call: Option<[u64; 4]>,
}

/// The visits so far, the last ones in full.
#[derive(Debug, Default)]
pub struct Ring {
    last: VecDeque<Visit>,
    /// Number of visits.
    pub count: u64,
}

impl Ring {
    /// Adds a visit, and numbers it.
    pub fn add(&mut self, visit: Visit) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        let number = self.count;
        self.last.push_back(Visit { number, ..visit });
        self.count += 1;
    }
}

/// A report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Differences.
    pub differences: u64,
    /// Visits to EL2.
    pub visits: u64,
    /// Visits whose registers were compared.
    pub compared: u64,
    /// First instructions of vCPUs.
    pub starts: u64,
    /// Changes of entries of stage 2.
    pub entries: u64,
    /// Instructions at EL1 and EL0.
    pub instructions: u64,
    /// The first difference.
    pub first: Option<First>,
}

/// The first difference.
#[derive(Clone, Debug, Serialize)]
pub struct First {
    /// The rule's identity.
    pub rule: &'static str,
    /// What holds.
    pub sentence: &'static str,
    /// The promise in SPECIFICATION.md.
    pub promise: &'static str,
    /// What was observed.
    pub place: String,
    /// What must hold there.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// The core.
    pub core: usize,
    /// Guest time in nanoseconds.
    pub time: u64,
    /// Instructions of guests so far.
    pub instructions: u64,
    /// The last visits, the last one last.
    pub visits: Vec<Visit>,
}

impl First {
    /// Describes a difference.
    pub fn of(
        difference: &Difference,
        core: usize,
        time: u64,
        instructions: u64,
        ring: &Ring,
    ) -> Self {
        let Difference {
            rule,
            place,
            expected,
            found,
        } = difference.clone();
        Self {
            rule: rule.id(),
            sentence: rule.sentence(),
            promise: rule.promise(),
            place,
            expected,
            found,
            core,
            time,
            instructions,
            visits: ring.last.iter().copied().collect(),
        }
    }
}

/// Writes a report as JSON.
pub fn write(report: &Report, file: &Path) {
    let written = serde_json::to_string_pretty(report)
        .map_err(|error| error.to_string())
        .and_then(|text| std::fs::write(file, text + "\n").map_err(|error| error.to_string()));
    if let Err(error) = written {
        eprintln!("prover: cannot write {}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_visits_are_kept_and_all_are_counted() {
        let mut ring = Ring::default();
        for pc in 0..100 {
            ring.add(Visit {
                number: 0,
                core: 0,
                vector: 0x400,
                esr: 0,
                pc,
                call: None,
            });
        }
        assert_eq!((ring.count, ring.last.len()), (100, KEPT));
        assert_eq!(
            ring.last.back().map(|last| (last.number, last.pc)),
            Some((99, 99))
        );
    }
}
