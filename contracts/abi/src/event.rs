//! The number of a PMU event, as guests, EL2 and the host exchange it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;
use serde::{Deserialize, Serialize};

/// A PMU event number (Arm ARM DDI 0487, D13.12; 16 bits, the A53 uses 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventId(pub u16);

impl EventId {
    /// INST_RETIRED: instructions architecturally executed.
    pub const INST_RETIRED: Self = Self(0x08);
    /// CPU_CYCLES, counted in an event counter.
    pub const CPU_CYCLES: Self = Self(0x11);
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}
