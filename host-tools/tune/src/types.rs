//! Quantities of a partition: colors, pages, budgets, traffic and time, each with its unit.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of a VM, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmName(pub String);

/// Number of colors.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Colors(pub u32);

/// Number of pages of 4 KiB.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Pages(pub u64);

/// Refills of the last-level cache per regulation period.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Traffic(pub u64);

/// Refills of the last-level cache during a whole observation segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Refills(pub u64);

/// Time in nanoseconds: a run time, a deadline, a regulation period.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A ratio in thousandths: a tolerance of 1.10 is 1100.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Permille(pub u32);

/// Where a VM's memory is.
///
/// The order of this type breaks ties between equal answers: colors of the VM's own come first, the
/// fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All memory is in a private pool of so many colors.
    Own {
        /// Colors of the VM's main pool, at least 1.
        colors: Colors,
    },
    /// The memory is in the shared pool, except the most important pages.
    Shared {
        /// Pages in the VM's private pool, the first of its profile; 0 if it has no private pool.
        private: Pages,
    },
}

/// Refills that each vCPU of a VM may make per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Budget {
    /// A quota of so many refills, at least 1. A smaller budget is less than a larger one.
    PerPeriod(Traffic),
    /// No quota.
    Unlimited,
}

/// All that `tune` decides for one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Where its memory is.
    pub placement: Placement,
    /// What each of its vCPUs may refill.
    pub budget: Budget,
}

impl Placement {
    /// The shared pool without private pages.
    pub const SHARED: Self = Self::Shared { private: Pages(0) };

    /// Returns whether the VM's memory is in the shared pool.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl Time {
    /// Returns the longest time that a tolerance allows for a program that takes this time alone.
    pub fn allowed_by(self, tolerance: Permille) -> Self {
        let product = u128::from(self.0) * u128::from(tolerance.0) / 1000;
        Self(u64::try_from(product).unwrap_or(u64::MAX))
    }

    /// Returns the smallest tolerance that allows this time for a program that takes `alone` alone.
    pub fn tolerance_over(self, alone: Self) -> Permille {
        let ratio = (u128::from(self.0) * 1000).div_ceil(u128::from(alone.0.max(1)));
        Permille(u32::try_from(ratio).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Permille {
    /// Prints the ratio as a configuration has it: `1.10`, with a third decimal if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest % 10 == 0 {
            write!(f, "{whole}.{:02}", rest / 10)
        } else {
            write!(f, "{whole}.{rest:03}")
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { colors } => write!(f, "{} own colors", colors.0),
            Self::Shared { private } if private.0 == 0 => f.write_str("the shared pool"),
            Self::Shared { private } => {
                write!(f, "the shared pool, {} private pages", private.0)
            }
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerPeriod(traffic) => write!(f, "{} refills per period", traffic.0),
            Self::Unlimited => f.write_str("no budget"),
        }
    }
}
