//! The counters at the start and the end of regions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::events::Counts;
use crate::statistics::Region;

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
    /// Number of regions that were begun again before their end.
    pub abandoned: u64,
    /// The ended regions, in order.
    pub ended: Vec<Region>,
    /// From the first start to the last end. What cores do after that, until QEMU ends, depends on
    /// the host.
    pub whole: Option<Region>,
}
