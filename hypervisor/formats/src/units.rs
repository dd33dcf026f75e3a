//! Quantities with their unit in the type.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$meta:meta])* $name:ident, $suffix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{} ", $suffix), self.0)
            }
        }
    };
}

unit! {
    /// A count of PMU events.
    Events, "events"
}
unit! {
    /// A count of CPU cycles (PMCCNTR_EL0).
    Cycles, "cycles"
}
unit! {
    /// A length of time in nanoseconds.
    Nanos, "ns"
}

/// Length of a quota's period.
pub type Period = Nanos;

/// A PMU event number (Arm ARM DDI 0487, D13.12; 16 bits, the A53 uses 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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
