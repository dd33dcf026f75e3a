//! The statistics of a run, as the plugin writes them and other programs read them: each core's
//! counts in each region.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::events::Counts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The statistics of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Statistics {
    /// Always true: the numbers are the model's.
    pub modelled: bool,
    /// Name of the board.
    pub board: String,
    /// Seed of the random replacement.
    pub seed: u64,
    /// The regions of interest that have ended, in order.
    pub regions: Vec<Region>,
    /// Number of regions that were begun again before their end. Their counts until then are in no
    /// region.
    #[serde(default)]
    pub abandoned: u64,
    /// Number of blocks of code whose physical address could not be found. Their lines are taken
    /// by virtual address.
    #[serde(default)]
    pub untranslated: u64,
    /// The whole run.
    pub whole: Region,
}

/// A region of interest that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// By core.
    pub cores: Vec<CoreCounts>,
}

/// The counts of one core in a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreCounts {
    /// Cycles between start and end by the core's own clock.
    pub cycles: u64,
    /// Number of overflow interrupts raised by its counters.
    pub overflow_interrupts: u64,
    /// Counts of all events by name at all exception levels, whether a counter was programmed or
    /// not.
    pub events: BTreeMap<String, u64>,
    /// The same at EL1 and EL0 only: the counts of a guest that could count all events at once.
    pub guest_events: BTreeMap<String, u64>,
    /// Raw counts at all exception levels.
    #[serde(default)]
    pub counts: Counts,
}

impl CoreCounts {
    /// Returns the count of a modelled event.
    pub fn event(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

impl Statistics {
    /// Prints one line per core for a human reader.
    pub fn print(&self) {
        if self.abandoned > 0 {
            let regions = if self.abandoned == 1 {
                "region of interest was"
            } else {
                "regions of interest were"
            };
            eprintln!(
                "board-model: {} {regions} begun again before its end",
                self.abandoned
            );
        }
        if self.untranslated > 0 {
            eprintln!(
                "board-model: the code of {} blocks has no physical address to be found",
                self.untranslated
            );
        }
        for (index, core) in self.whole.cores.iter().enumerate() {
            let counts = &core.counts;
            eprintln!(
                "board-model (modelled): core {index}: {} cycles, {} instructions, {} loads, {} \
                 stores, refills L1I {} L1D {} L2 {}",
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
}

/// The plugin's output when it only counts instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// Instructions executed at EL0 to EL3, summed over all cores.
    pub instructions: [u64; 4],
}

impl Instructions {
    /// Returns the sum over all exception levels.
    pub fn all(&self) -> u64 {
        self.instructions.iter().sum()
    }
}

/// The plugin's output when it follows visits to EL2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visits {
    /// Stretches in all.
    pub stretches: u64,
    /// The longest stretch of each cause.
    pub longest: BTreeMap<String, Stretch>,
}

/// The instructions of a core at EL2 between two points at which it serves pending interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Instructions.
    pub instructions: u64,
    /// Instructions among them in loops that wait for another core or for a device.
    pub waiting: u64,
    /// ESR_EL2 at the visit's begin.
    pub esr: u64,
    /// ELR_EL2 at the visit's begin: the guest's next instruction.
    pub elr: u64,
    /// The guest's X0 at the visit's begin.
    pub x0: u64,
    /// Address at EL2 at which the stretch began.
    pub from: u64,
    /// Address at EL2 of its last instruction.
    pub to: u64,
}

/// Writes statistics as JSON.
///
/// # Errors
/// The file cannot be written.
pub fn write(statistics: &impl Serialize, path: &Path) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(statistics).map_err(std::io::Error::other)?;
    std::fs::write(path, text + "\n")
}

/// Writes a profile as JSON without line ends, which is long.
///
/// # Errors
/// The file cannot be written.
pub fn write_compact(profile: &impl Serialize, path: &Path) -> std::io::Result<()> {
    let text = serde_json::to_string(profile).map_err(std::io::Error::other)?;
    std::fs::write(path, text + "\n")
}
