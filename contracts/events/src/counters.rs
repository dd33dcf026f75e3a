//! Counters of a PMU, sets of them, and the masks by which event tables leave counters out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::CYCLE_COUNTER;
use cloison_abi::reply::write_ranges;
use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

/// A counter of a PMU, by its number: event counters have 0 to 30, and the cycle counter has 31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterIndex(u8);

impl CounterIndex {
    /// How many counters a PMU can have.
    pub const MOST: usize = 32;
    /// The cycle counter.
    pub const CYCLES: Self = Self(CYCLE_COUNTER as u8);

    /// Returns the counter with this number; `None` if no PMU has it.
    pub const fn new(number: u32) -> Option<Self> {
        if number < Self::MOST as u32 {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Returns all counters that a PMU can have, ascending.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::MOST as u8).map(Self)
    }

    /// Returns the number, as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Returns the number, as a register or a call has it.
impl From<CounterIndex> for u64 {
    fn from(counter: CounterIndex) -> Self {
        counter.0.into()
    }
}

impl fmt::Display for CounterIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of counters.
///
/// ```
/// use cloison_events::{CounterIndex, CounterSet};
///
/// let set = CounterSet::from_bits(0b111_0000_0000);
/// let counter = CounterIndex::new(8).expect("a PMU can have it");
/// assert!(set.contains(counter) && !CounterSet::lowest(8).contains(counter));
/// assert_eq!((set - counter.into()).to_string(), "9-10");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CounterSet(u32);

impl CounterSet {
    /// Every counter.
    pub const ALL: Self = Self(u32::MAX);
    /// No counter.
    pub const EMPTY: Self = Self(0);
    /// The cycle counter.
    pub const CYCLES: Self = Self(1 << CYCLE_COUNTER);

    /// Returns the set with these counters, a bit each.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the counters with the `count` lowest numbers.
    pub const fn lowest(count: u32) -> Self {
        match u32::MAX.checked_shl(count) {
            Some(others) => Self(!others),
            None => Self::ALL,
        }
    }

    /// Returns a bit for each counter.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether a counter is in the set.
    pub const fn contains(self, counter: CounterIndex) -> bool {
        self.0 >> counter.0 & 1 == 1
    }

    /// Returns how many counters the set has.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether the set has no counter.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the counters of the set, ascending.
    pub fn counters(self) -> impl DoubleEndedIterator<Item = CounterIndex> {
        CounterIndex::all().filter(move |&counter| self.contains(counter))
    }
}

impl From<CounterIndex> for CounterSet {
    fn from(counter: CounterIndex) -> Self {
        Self(1 << counter.0)
    }
}

impl FromIterator<CounterIndex> for CounterSet {
    fn from_iter<T: IntoIterator<Item = CounterIndex>>(counters: T) -> Self {
        counters
            .into_iter()
            .fold(Self::EMPTY, |set, counter| set | counter.into())
    }
}

impl BitOr for CounterSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for CounterSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Leaves out the counters of another set.
impl Sub for CounterSet {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
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
        assert_eq!(whole.able(), CounterSet::lowest(1));
        for text in ["", "255", "0x", "0x+8", "0x1ffffffff", "0x000000000", "0xg"] {
            assert_eq!(CounterMask::parse(text), None, "{text}");
        }
    }

    #[test]
    fn there_are_at_most_32_counters() {
        assert_eq!(CounterIndex::new(31), Some(CounterIndex::CYCLES));
        assert_eq!(CounterIndex::new(32), None);
        for (count, bits) in [
            (0, 0),
            (6, 0x3f),
            (31, u32::MAX >> 1),
            (32, u32::MAX),
            (99, u32::MAX),
        ] {
            assert_eq!(CounterSet::lowest(count).bits(), bits);
        }
        let all: CounterSet = CounterIndex::all().collect();
        assert_eq!((all, all.len()), (CounterSet::ALL, 32));
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
