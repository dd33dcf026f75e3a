//! Page colors: which last-level-cache sets a page can occupy.
//!
//! The color of a page is the part of the cache's set index that lies above the page offset
//! (BBProf, section 3, "Cache Coloring"). On the ZCU102 (1 MiB, 16 ways, 64 B lines) these are the
//! address bits \[15:12\]: 16 colors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::{PAGE_SHIFT, PAGE_SIZE, PhysAddr};
use crate::bits::ones;
use core::fmt;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum number of colors in a [`ColorSet`].
pub const MAX_COLORS: u32 = 64;

/// One page color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Color(pub u8);

/// A set of colors, as a bit mask.
///
/// ```
/// use cloison_formats::color::{Color, ColorSet};
///
/// let victim = ColorSet::EMPTY.with(Color(0)).with(Color(1));
/// let rivals = ColorSet::first(16).without(victim);
/// assert!(victim.and(rivals).is_empty());
/// assert_eq!(rivals.len(), 14);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColorSet(pub u64);

impl ColorSet {
    /// No color.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of the colors `0..count`.
    pub const fn first(count: u32) -> Self {
        Self(!u64::MAX.unbounded_shl(count))
    }

    /// Returns the set with one more color.
    #[must_use]
    pub const fn with(self, color: Color) -> Self {
        Self(self.0 | 1 << color.0)
    }

    /// Returns whether `color` is in the set.
    pub const fn contains(self, color: Color) -> bool {
        color.0 < 64 && self.0 >> color.0 & 1 == 1
    }

    /// Returns the colors in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the colors of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the number of colors in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the colors, lowest first.
    pub fn iter(self) -> impl Iterator<Item = Color> {
        ones(self.0).map(|color| Color(color as u8))
    }
}

impl fmt::Display for ColorSet {
    /// Formats the set as ranges, as configurations do: `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cloison_abi::reply::write_ranges(self.0, f)
    }
}

/// The last-level cache, as CCSIDR_EL1 or a board file describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// Total size in bytes.
    pub size: u64,
    /// Associativity.
    pub ways: u32,
    /// Bytes per line.
    pub line: u32,
}

/// Why a cache geometry does not give usable colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// A field is zero, or the number of sets is not a power of two.
    #[error("size / (ways × line) is not a power of two")]
    NotPowerOfTwo,
    /// There are more colors than [`MAX_COLORS`].
    #[error("{0} colors; Cloison handles up to {MAX_COLORS}")]
    TooManyColors(u64),
}

impl CacheGeometry {
    /// Returns the geometry that CCSIDR_EL1's fields of the 32-bit format encode (Arm ARM DDI 0487,
    /// D23.2.27, without FEAT_CCIDX).
    pub const fn from_ccsidr(line_size: u64, associativity: u64, num_sets: u64) -> Self {
        let line = 16u32 << line_size;
        let ways = associativity as u32 + 1;
        Self {
            size: (num_sets + 1) * ways as u64 * line as u64,
            ways,
            line,
        }
    }

    /// Returns the last level that has a cache, numbered from 0 as in CSSELR_EL1.Level, from
    /// CLIDR_EL1's `Ctype` fields.
    pub fn last_level(kinds: [u64; 7]) -> u64 {
        kinds.iter().rposition(|kind| *kind != 0).unwrap_or(0) as u64
    }

    /// Returns the number of colors: bytes per way over bytes per page, at least 1.
    pub const fn colors(&self) -> Result<u32, GeometryError> {
        let row = self.ways as u64 * self.line as u64;
        if row == 0
            || !self.size.is_multiple_of(row)
            || !(self.size / row * self.line as u64).is_power_of_two()
        {
            return Err(GeometryError::NotPowerOfTwo);
        }
        let colors = self.size / self.ways as u64 / PAGE_SIZE;
        if colors > MAX_COLORS as u64 {
            return Err(GeometryError::TooManyColors(colors));
        }
        Ok(if colors == 0 { 1 } else { colors as u32 })
    }
}

/// Returns the color of the page that contains `pa`, for a cache with `colors` colors (a power of
/// two).
pub const fn color_of(pa: PhysAddr, colors: u32) -> Color {
    Color((pa.0 >> PAGE_SHIFT & (colors as u64 - 1)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn zcu102_has_sixteen_colors() {
        let l2 = CacheGeometry {
            size: 1 << 20,
            ways: 16,
            line: 64,
        };
        assert_eq!(l2.colors(), Ok(16));
        // The fields of 0x707f_e07a, which CCSIDR_EL1 of QEMU and of the real Cortex-A53 gives for
        // a 1 MiB L2.
        assert_eq!(CacheGeometry::from_ccsidr(2, 15, 1023), l2);
        assert_eq!(color_of(PhysAddr(0x1234_5000), 16), Color(5));
    }

    #[test]
    fn the_last_level_is_the_highest_with_a_cache() {
        // Cortex-A53: separate L1 caches, a unified L2.
        assert_eq!(CacheGeometry::last_level([0b011, 0b100, 0, 0, 0, 0, 0]), 1);
        assert_eq!(CacheGeometry::last_level([0; 7]), 0);
        for level in 0..7 {
            let mut kinds = [0b011, 0, 0, 0, 0, 0, 0];
            kinds[level] = 0b100;
            assert_eq!(CacheGeometry::last_level(kinds), level as u64);
        }
    }

    #[test]
    fn geometry_errors() {
        assert_eq!(
            CacheGeometry {
                size: 0,
                ways: 0,
                line: 64
            }
            .colors(),
            Err(GeometryError::NotPowerOfTwo)
        );
        assert_eq!(
            CacheGeometry {
                size: 3 << 20,
                ways: 16,
                line: 64
            }
            .colors(),
            Err(GeometryError::NotPowerOfTwo)
        );
        assert_eq!(
            CacheGeometry {
                size: 1 << 26,
                ways: 16,
                line: 64
            }
            .colors(),
            Err(GeometryError::TooManyColors(1024))
        );
        assert_eq!(
            CacheGeometry {
                size: 1 << 15,
                ways: 16,
                line: 64
            }
            .colors(),
            Ok(1)
        );
    }

    #[test]
    fn as_many_colors_are_usable_as_a_set_has_and_ways_need_no_power_of_two() {
        let colors = |size, ways| {
            let line = 64;
            CacheGeometry { size, ways, line }.colors()
        };
        assert_eq!(colors(64 << 16, 16), Ok(64));
        assert_eq!(colors(12 << 16, 12), Ok(16));
        assert_eq!(colors(12 << 16, 16), Err(GeometryError::NotPowerOfTwo));
    }

    #[test]
    fn a_set_has_what_was_added_once_or_twice_and_nothing_else() {
        let set = ColorSet::EMPTY
            .with(Color(3))
            .with(Color(63))
            .with(Color(3));
        for color in 0..=u8::MAX {
            assert_eq!(set.contains(Color(color)), [3, 63].contains(&color));
        }
        assert_eq!(set.without(ColorSet(1 << 3)), ColorSet(1 << 63));
        assert_eq!(set.and(ColorSet(0xff)), ColorSet(1 << 3));
        assert!(!set.is_empty() && ColorSet::EMPTY.is_empty());
    }

    #[test]
    fn display_as_ranges() {
        assert_eq!(ColorSet(0b1_0000_1111).to_string(), "0-3,8");
        assert_eq!(ColorSet::EMPTY.to_string(), "none");
        assert_eq!(ColorSet(u64::MAX).to_string(), "0-63");
    }

    proptest! {
        #[test]
        fn iter_and_contains_agree(mask: u64) {
            let set = ColorSet(mask);
            let mut rebuilt = ColorSet::EMPTY;
            for color in set.iter() {
                prop_assert!(set.contains(color));
                rebuilt = rebuilt.with(color);
            }
            prop_assert_eq!(rebuilt, set);
            prop_assert_eq!(set.iter().count() as u32, set.len());
        }

        #[test]
        fn pages_of_a_stripe_have_all_colors(base in 0u64..1 << 28) {
            let mut seen = ColorSet::EMPTY;
            for page in 0..16 {
                seen = seen.with(color_of(PhysAddr((base + page) << PAGE_SHIFT), 16));
            }
            prop_assert_eq!(seen, ColorSet::first(16));
        }
    }
}
