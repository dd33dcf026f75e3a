//! Quantities with their unit in the type.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub use cloison_abi::event::EventId;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Defines a number with a meaning, and how it is shown.
macro_rules! number {
    ($(#[$meta:meta])* $name:ident($number:ty), $format:literal) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[repr(transparent)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}
pub(crate) use number;

number! {
    /// A count of PMU events.
    Events(u64), "{} events"
}
number! {
    /// A count of CPU cycles (PMCCNTR_EL0).
    Cycles(u64), "{} cycles"
}
number! {
    /// A length of time in nanoseconds.
    Nanos(u64), "{} ns"
}

/// Length of a quota's period.
pub type Period = Nanos;
