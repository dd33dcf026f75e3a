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

    /// Returns whether the two ranges share a byte.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }
}
