//! Sets of event counters, and the masks by which event tables leave counters out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::reply::write_ranges;
use core::fmt;

/// A set of counters, numbers 0 to 31.
///
/// ```
/// use cloison_events::CounterSet;
///
/// let set = CounterSet::from_bits(0b111_0000_0000);
/// assert!(set.contains(8) && !set.contains(7) && !set.contains(32));
/// assert_eq!(set.to_string(), "8-10");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterSet(u32);

impl CounterSet {
    /// Every counter.
    pub const ALL: Self = Self(u32::MAX);
    /// No counter.
    pub const EMPTY: Self = Self(0);

    /// Returns the set with these counters, a bit each.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns a bit for each counter.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether a counter is in the set.
    pub const fn contains(self, counter: u32) -> bool {
        counter < u32::BITS && self.0 >> counter & 1 == 1
    }

    /// Returns whether the set has no counter.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the counters of the set, ascending.
    pub fn counters(self) -> impl Iterator<Item = u32> {
        (0..u32::BITS).filter(move |&counter| self.contains(counter))
    }
}

/// Formats the counters: `any`, `8-10`, `none`.
impl fmt::Display for CounterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            f.write_str("any")
        } else {
            write_ranges(self.0.into(), f)
        }
    }
}

/// Returns what follows `0x`, unless it has a sign, which parsers of numbers accept.
pub(crate) fn hex_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .filter(|digits| !digits.starts_with('+'))
}

/// `CounterMask` of an event table: a bit that is set means that its counter cannot count the event
/// (RISC-V paper, figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterMask {
    /// The mask with 32 bits. A counter of which the table says nothing cannot count the event.
    pub bits: u32,
    /// The table's mask has fewer bits than that.
    pub is_widened: bool,
}

impl CounterMask {
    /// Parses `0xF8FF`. Returns `None` for what is not 1 to 8 hexadecimal digits after `0x`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = hex_digits(text)?;
        let length = 4 * u32::try_from(digits.len()).ok()?;
        let given = u32::from_str_radix(digits, 16).ok()?;
        if length > u32::BITS {
            return None;
        }
        let rest = u32::MAX.checked_shl(length).unwrap_or(0);
        Some(Self {
            bits: given | rest,
            is_widened: rest != 0,
        })
    }

    /// Returns the counters that can count the event.
    pub const fn able(self) -> CounterSet {
        CounterSet(!self.bits)
    }
}

/// Formats the mask as tables write it.
impl fmt::Display for CounterMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_mask_leaves_the_other_counters_out() {
        let mask = CounterMask::parse("0xF8FF").expect("a mask");
        assert!(mask.is_widened);
        assert_eq!(mask.to_string(), "0xfffff8ff");
        assert_eq!(mask.able(), CounterSet::from_bits(0x700));
        let whole = CounterMask::parse("0Xfffffffe").expect("a mask");
        assert!(!whole.is_widened);
        assert_eq!(whole.able().counters().collect::<Vec<_>>(), [0]);
        for text in ["", "255", "0x", "0x+8", "0x1ffffffff", "0x000000000", "0xg"] {
            assert_eq!(CounterMask::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sets_are_written_in_ranges() {
        for (bits, written) in [
            (0, "none"),
            (u32::MAX, "any"),
            (1 << 31, "31"),
            (0x8000_0003, "0-1,31"),
            (!1, "1-31"),
        ] {
            assert_eq!(CounterSet::from_bits(bits).to_string(), written);
        }
    }
}
