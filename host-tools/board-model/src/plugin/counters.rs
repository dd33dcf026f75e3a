//! The model's copy of a core's event counters, and the names of their registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::decode::Special;
use crate::events::Counts;
use crate::pmu::{COUNTERS, Pmu};

/// Not an exception level: makes the next block update the counters.
pub const NO_LEVEL: u8 = u8::MAX;

/// An access to the performance monitors that has started and may still trap.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Which access.
    pub what: Special,
    /// The value being written.
    pub value: u64,
    /// Offset in its page at which the guest continues if the access does not trap.
    pub next: u64,
    /// Exception level of the access.
    pub level: u8,
}

/// A core's event counters.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The model of the counters.
    pub pmu: Pmu,
    /// The exception level of the most recent blocks.
    pub level: u8,
    /// The same, or [`NO_LEVEL`].
    pub watched: u8,
    /// The registers must be read again.
    pub stale: bool,
    /// The access that started last, if it may still trap.
    pub pending: Option<Pending>,
    /// The overflow interrupt of some counter is enabled.
    pub armed: bool,
    /// An event counter currently raises the interrupt.
    pub raised: bool,
    /// Number of interrupts raised.
    pub interrupts: u64,
    /// Counts and cycles at EL1 and EL0, where a guest's counters count.
    pub guest: (Counts, u64),
    /// Counts and cycles of the core at the last update.
    pub seen: (Counts, u64),
}

impl Counters {
    /// Returns the state of a core before its first block.
    pub fn new() -> Self {
        Self {
            pmu: Pmu::default(),
            level: NO_LEVEL,
            watched: NO_LEVEL,
            stale: true,
            pending: None,
            armed: false,
            raised: false,
            interrupts: 0,
            guest: (Counts::default(), 0),
            seen: (Counts::default(), 0),
        }
    }
    /// Forgets the counts and the registers' contents, which may have been written while the model
    /// was off. `now` are the core's counts so far.
    pub fn forget(&mut self, now: Counts) {
        self.pmu = Pmu::starting_at(now);
        self.watched = NO_LEVEL;
        self.pending = None;
        self.stale = true;
    }
}

/// The registers of the performance monitors and of exceptions by QEMU's names.
pub const NAMES: [&[u8]; 25] = [
    b"PMEVTYPER0_EL0",
    b"PMEVTYPER1_EL0",
    b"PMEVTYPER2_EL0",
    b"PMEVTYPER3_EL0",
    b"PMEVTYPER4_EL0",
    b"PMEVTYPER5_EL0",
    b"PMEVCNTR0_EL0",
    b"PMEVCNTR1_EL0",
    b"PMEVCNTR2_EL0",
    b"PMEVCNTR3_EL0",
    b"PMEVCNTR4_EL0",
    b"PMEVCNTR5_EL0",
    b"PMCNTENSET_EL0",
    b"PMCR_EL0",
    b"MDCR_EL2",
    b"PMSELR_EL0",
    b"PMINTENSET_EL1",
    b"PMOVSSET_EL0",
    b"VBAR_EL1",
    b"VBAR_EL2",
    b"ELR_EL1",
    b"ELR_EL2",
    b"ESR_EL1",
    b"ESR_EL2",
    b"PMCCNTR_EL0",
];

/// Indices into [`NAMES`].
pub mod at {
    use super::COUNTERS;
    pub const TYPES: usize = 0;
    pub const VALUES: usize = COUNTERS;
    pub const ENABLED: usize = 2 * COUNTERS;
    pub const CONTROL: usize = ENABLED + 1;
    pub const RESERVED: usize = ENABLED + 2;
    pub const SELECTED: usize = ENABLED + 3;
    pub const INTERRUPTS: usize = ENABLED + 4;
    pub const OVERFLOWS: usize = ENABLED + 5;
    /// Vector table of EL1; that of EL2 follows.
    pub const VECTORS: usize = ENABLED + 6;
    /// Address to which an exception to EL1 returns; that of EL2 follows.
    pub const RETURNS: usize = ENABLED + 8;
    /// Cause of the last exception to EL1; that of EL2 follows.
    pub const CAUSES: usize = ENABLED + 10;
    /// The cycle counter when it was last written or the PMU set up: QEMU does not advance it
    /// otherwise.
    pub const CYCLES: usize = ENABLED + 12;
}
