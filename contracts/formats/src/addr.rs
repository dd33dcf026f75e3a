//! Addresses as types: physical and intermediate physical addresses cannot be confused with each
//! other or with numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;
use serde::{Deserialize, Serialize};

/// Bytes in a page: the 4 KiB granule, the only one that Cloison uses.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

macro_rules! address {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the first byte of the page that contains this address.
            pub const fn page_base(self) -> Self {
                Self(self.0 & !(PAGE_SIZE - 1))
            }

            /// Returns whether this is the first byte of a page.
            pub const fn is_page_aligned(self) -> bool {
                self.0.is_multiple_of(PAGE_SIZE)
            }

            /// Returns the page's number: the address divided by the page size.
            pub const fn page_number(self) -> u64 {
                self.0 >> PAGE_SHIFT
            }

            /// Returns the first byte of the `pages`-th page after the one that contains this
            /// address.
            pub const fn page(self, pages: u64) -> Self {
                Self(self.page_base().0 + pages * PAGE_SIZE)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

address! {
    /// A real physical address, as the memory system and the cache index see it.
    PhysAddr
}
address! {
    /// An intermediate physical address: what a guest takes for a physical address, before stage 2.
    ///
    /// An `Ipa` does not imply that a VM may access the address: only stage 2 decides that.
    Ipa
}

/// A half-open range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhysRange {
    /// First byte.
    pub start: PhysAddr,
    /// Length in bytes.
    pub len: u64,
}

impl PhysRange {
    /// Returns the first byte after the range (saturating, so that a range up to the top of the
    /// address space remains valid).
    pub const fn end(&self) -> PhysAddr {
        PhysAddr(self.start.0.saturating_add(self.len))
    }

    /// Returns whether `pa` is in the range.
    pub const fn contains(&self, pa: PhysAddr) -> bool {
        pa.0 >= self.start.0 && pa.0 < self.end().0
    }

    /// Returns whether the whole of `other` is in the range.
    pub const fn covers(&self, other: &Self) -> bool {
        self.contains(other.start) && other.end().0 <= self.end().0
    }

    /// Returns whether the two ranges share a byte.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_range_has_its_first_byte_and_not_its_end() {
        let range = |start, len| PhysRange {
            start: PhysAddr(start),
            len,
        };
        let one = range(0x1000, 0x1000);
        assert_eq!(one.end(), PhysAddr(0x2000));
        assert_eq!(range(1, u64::MAX).end(), PhysAddr(u64::MAX));
        for (pa, inside) in [
            (0xfff, false),
            (0x1000, true),
            (0x1fff, true),
            (0x2000, false),
        ] {
            assert_eq!(one.contains(PhysAddr(pa)), inside, "{pa:#x}");
        }
        for (other, shares) in [
            (range(0, 0x1000), false),
            (range(0, 0x1001), true),
            (range(0x1fff, 1), true),
            (range(0x2000, 1), false),
            (range(0x1800, 1), true),
            (range(0, 0x10_0000), true),
        ] {
            assert_eq!(one.overlaps(&other), shares, "{other:?}");
            assert_eq!(other.overlaps(&one), shares, "{other:?}");
        }
    }

    #[test]
    fn a_page_has_its_number_and_its_start() {
        let ipa = Ipa(0x4000_1fff);
        assert_eq!(ipa.page_number(), 0x40001);
        assert!(!ipa.is_page_aligned() && Ipa(0x4000_1000).is_page_aligned());
        assert_eq!(ipa.to_string(), "0x40001fff");
        assert_eq!(std::format!("{ipa:?}"), "Ipa(0x40001fff)");
    }

    #[test]
    fn a_range_covers_what_is_wholly_in_it() {
        let range = |start, len| PhysRange {
            start: PhysAddr(start),
            len,
        };
        let bank = range(0x1000, 0x3000);
        for (start, len) in [(0x1000, 0x3000), (0x1000, 1), (0x3fff, 1)] {
            assert!(bank.covers(&range(start, len)), "{start:#x}");
        }
        for (start, len) in [(0xfff, 2), (0x3fff, 2), (0x4000, 1), (0x1000, u64::MAX)] {
            assert!(!bank.covers(&range(start, len)), "{start:#x}");
        }
    }
}
