//! The statistics of a run: what each core counted in each region.

use crate::events::Counts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters of one core at some point in time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stand {
    /// Events at all exception levels.
    pub counts: Counts,
    /// Cycles of its clock.
    pub cycles: u64,
    /// Overflow interrupts.
    pub interrupts: u64,
    /// Events and cycles at EL1 and EL0.
    pub guest: (Counts, u64),
}

/// The regions of a run.
#[derive(Debug, Default)]
pub struct Regions {
    /// State at the start of the first region, unless the model is always on.
    pub first: Option<Vec<Stand>>,
    /// State at the start of the open region.
    pub open: Option<Vec<Stand>>,
    /// Those that have ended, in order.
    pub ended: Vec<Region>,
    /// From the first start to the last end. What cores do after that, until QEMU ends, depends on the host.
    pub whole: Option<Region>,
}

/// The statistics of a run.
#[derive(Serialize)]
pub struct Report<'a> {
    /// Always true: the numbers are the model's.
    pub modelled: bool,
    /// Name of the board.
    pub board: &'a str,
    /// Seed of the random replacement.
    pub seed: u64,
    /// The regions that have ended.
    pub regions: &'a [Region],
    /// The whole run.
    pub whole: Region,
}

/// A region that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// By core.
    pub cores: Vec<CoreReport>,
}

/// One core in a region.
#[derive(Clone, Debug, Serialize)]
pub struct CoreReport {
    /// Cycles between start and end by the core's own clock.
    pub cycles: u64,
    /// Interrupts by overflows of event counters.
    pub overflow_interrupts: u64,
    /// Event counts at all exception levels.
    pub events: BTreeMap<&'static str, u64>,
    /// Event counts at EL1 and EL0: what a guest would count if it could count all events at once.
    pub guest_events: BTreeMap<&'static str, u64>,
    /// Raw counts at all exception levels.
    pub counts: Counts,
}

impl Report<'_> {
    /// Prints one line per core for a human reader.
    pub fn print(&self) {
        for (index, core) in self.whole.cores.iter().enumerate() {
            let counts = &core.counts;
            eprintln!(
                "board-model (modelled): core {index}: {} cycles, {} instructions, {} loads, {} stores, refills L1I {} \
                 L1D {} L2 {}",
                core.cycles,
                counts.instructions,
                counts.loads,
                counts.stores,
                counts.l1i_refills,
                counts.l1d_refills,
                counts.l2_refills
            );
        }
    }

    /// Writes the statistics.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        std::fs::write(path, text + "\n")
    }
}
