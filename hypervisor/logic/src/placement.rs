//! Memory at boot: the room for contiguous regions, and the number of stage-2 tables that a VM
//! needs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::collections::BTreeSet;
use cloison_formats::addr::{PhysAddr, PhysRange};

/// Finds room for `bytes` of contiguous memory as high in the RAM as possible, outside the `taken`
/// ranges; `None` if there is none, or `bytes` is 0. The start is aligned as the buddy allocator
/// needs it: its blocks are aligned to their size.
pub fn set_aside(ram: &[PhysRange], taken: &[PhysRange], bytes: u64) -> Option<PhysRange> {
    if bytes == 0 {
        return None;
    }
    let unit = bytes.checked_next_power_of_two()?;
    ram.iter().rev().find_map(|bank| {
        let mut end = bank.end().page_base().0;
        loop {
            let start = end.checked_sub(bytes)? & !(unit - 1);
            let range = PhysRange {
                start: PhysAddr(start),
                len: bytes,
            };
            if range.start < bank.start {
                return None;
            }
            match taken.iter().find(|taken| taken.overlaps(&range)) {
                None => return Some(range),
                // Below the obstacle: `end` falls in each round, so the loop ends.
                Some(taken) => end = taken.start.page_base().0,
            }
        }
    })
}

/// Returns the number of tables that a set of page ranges `(first page number, pages)` needs, with
/// the root.
pub fn tables_needed(ranges: impl Iterator<Item = (u64, u64)> + Clone) -> u32 {
    let spanned = |shift: u32| {
        let spans = ranges
            .clone()
            .flat_map(|(first, pages)| first >> shift..=(first + pages - 1) >> shift);
        spans.collect::<BTreeSet<u64>>().len() as u32
    };
    // A table of level 3 maps 2^9 pages, one of level 2 2^18; the one of level 1 is the root (4 KiB
    // granule, 39 bits, Arm ARM D8).
    1 + spanned(18) + spanned(9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn range(start: u64, len: u64) -> PhysRange {
        PhysRange {
            start: PhysAddr(start),
            len,
        }
    }

    #[test]
    fn room_is_at_the_top_and_away_from_what_is_taken() {
        let ram = [
            range(0x4000_0000, 0x1000_0000),
            range(0x8000_0000, 0x100_0000),
        ];
        assert_eq!(set_aside(&ram, &[], 0), None);
        assert_eq!(
            set_aside(&ram, &[], 0x40_0000),
            Some(range(0x80c0_0000, 0x40_0000))
        );
        let top = range(0x80f0_0000, 0x10_0000);
        assert_eq!(
            set_aside(&ram, &[top], 0x40_0000),
            Some(range(0x8080_0000, 0x40_0000))
        );
        let bank = range(0x8000_0000, 0x100_0000);
        assert_eq!(
            set_aside(&ram, &[bank], 0x40_0000),
            Some(range(0x4fc0_0000, 0x40_0000))
        );
        assert_eq!(set_aside(&ram, &[], 0x2000_0000), None);
    }

    #[test]
    fn tables_of_neighbors_are_shared() {
        assert_eq!(tables_needed([(0x4_0000, 1)].into_iter()), 3);
        assert_eq!(tables_needed([(0x4_0000, 1), (0x4_01ff, 1)].into_iter()), 3);
        assert_eq!(tables_needed([(0x4_01ff, 2)].into_iter()), 4);
        assert_eq!(tables_needed([(0x3_ffff, 2)].into_iter()), 5);
    }

    proptest! {
        #[test]
        fn room_is_free_ram(
            taken in prop::collection::vec((0u64..4096, 1u64..600), 0..8),
            pages in 1u64..1024,
        ) {
            let ram = [range(0x4000_0000, 8 << 20), range(0x8000_0000, 4 << 20)];
            let at = |page: u64| {
                if page < 2048 {
                    0x4000_0000 + (page << 12)
                } else {
                    0x8000_0000 + ((page - 2048) << 12)
                }
            };
            let taken: Vec<_> = taken
                .into_iter()
                .map(|(page, pages)| range(at(page), pages << 12))
                .collect();
            if let Some(found) = set_aside(&ram, &taken, pages << 12) {
                prop_assert_eq!(found.len, pages << 12);
                prop_assert_eq!(found.start.0 % (pages << 12).next_power_of_two(), 0);
                prop_assert!(
                    ram.iter()
                        .any(|bank| bank.start <= found.start && found.end() <= bank.end())
                );
                prop_assert!(!taken.iter().any(|taken| taken.overlaps(&found)));
            }
        }

        /// As many as there are different index prefixes among the pages.
        #[test]
        fn every_page_has_its_tables(
            ranges in prop::collection::vec((0u64..1 << 20, 1u64..2000), 1..6),
        ) {
            let pages: BTreeSet<u64> = ranges
                .iter()
                .flat_map(|&(first, pages)| first..first + pages)
                .collect();
            let spans = |shift: u32| {
                pages
                    .iter()
                    .map(|page| page >> shift)
                    .collect::<BTreeSet<_>>()
                    .len() as u32
            };
            prop_assert_eq!(
                tables_needed(ranges.iter().copied()),
                1 + spans(18) + spans(9)
            );
        }
    }
}
