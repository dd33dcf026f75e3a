//! Page frames by color, and the PVT and SH pools made of them.
//!
//! There is one bitmap per color, with one bit per frame: bit `n` of color `c` is the frame of
//! color `c` in the `n`-th stripe. A stripe is as many consecutive pages as there are colors. A set
//! bit is a taken frame, so a new map is all zeros. A memory besides the RAM counts as one more
//! color, whose stripes are single pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::vec;
use alloc::vec::Vec;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::color::Color;
use cloison_formats::image::Pool;
use thiserror::Error;

/// The frames of all colors.
///
/// Invariants: a frame is given out once until it is freed, and has the color asked for
/// (`frames_have_their_color_and_are_served_once`); `hint` and `free` agree with the bitmap.
#[derive(Debug)]
pub struct FrameAllocator {
    /// The number of the cache's colors.
    pub colors: u32,
    /// In the order of the board file. Stripes are numbered across all banks of RAM, so that one
    /// bit index serves them all.
    banks: Vec<Bank>,
    /// One for each color, at the index that is the color's number.
    maps: Vec<ColorMap>,
}

/// A range of memory, divided into stripes.
#[derive(Debug)]
struct Bank {
    /// The color of the first page of a stripe.
    color: u8,
    /// Bytes of a stripe: a page of each color.
    stripe: u64,
    /// Base of the first stripe: a multiple of the stripe's size, possibly below the RAM itself.
    /// Then a frame's color is its index in the stripe (`color_of`).
    base: u64,
    /// The number of its first stripe, counted over all banks of these colors: the position of that
    /// stripe's bit in each map.
    first_stripe: u32,
    stripes: u32,
}

/// The frames of one color. It has no atomics: the lock of the whole allocator protects it
/// (`partition::memory` at EL2).
#[derive(Debug)]
struct ColorMap {
    /// Bit `n % 64` of word `n / 64` is stripe `n`. Bits beyond the last stripe stay clear and are
    /// never found: the search takes the lowest clear bit, and only while `free` is not 0.
    words: Vec<u64>,
    /// There is no free frame in the words below this one.
    hint: usize,
    /// Frames that the color has, without the excluded ones.
    total: u32,
    /// How many of them are free. Checked before each search, which would not end without a free
    /// frame.
    free: u32,
}

/// Why a frame was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// It is not a frame of the managed RAM.
    Foreign(PhysAddr),
    /// It is already free.
    NotTaken(PhysAddr),
}

impl FrameAllocator {
    /// Creates the allocator for the frames of `ram` except those that `reserved` touches.
    pub fn new(colors: u32, ram: &[PhysRange], reserved: &[PhysRange]) -> Self {
        let mut allocator = Self {
            colors,
            banks: Vec::new(),
            maps: Vec::new(),
        };
        allocator.add(colors, ram, reserved);
        allocator
    }

    /// Adds colors, with the frames of `ranges` except those that `reserved` touches. Of a memory
    /// besides the RAM it is one.
    pub fn add(&mut self, colors: u32, ranges: &[PhysRange], reserved: &[PhysRange]) {
        let stripe = u64::from(colors) * PAGE_SIZE;
        // Pages that a bank's first and last stripe have, but the memory has not.
        let mut edges = Vec::new();
        let mut stripes = 0;
        for range in ranges {
            // Rounded down, so that a frame's place in its stripe is its color in every bank. The
            // frames below the memory are excluded as an edge.
            let base = range.start.0 / stripe * stripe;
            // Up to the last stripe that the memory touches; what that has beyond the memory is the
            // second edge.
            let count = range.end().0.saturating_sub(base).div_ceil(stripe) as u32;
            // A page that is memory only in part is no frame.
            let end = range.end().page_base();
            edges.push(PhysRange {
                start: PhysAddr(base),
                len: range.start.0.next_multiple_of(PAGE_SIZE) - base,
            });
            edges.push(PhysRange {
                start: end,
                len: base + u64::from(count) * stripe - end.0,
            });
            self.banks.push(Bank {
                color: self.maps.len() as u8,
                stripe,
                base,
                first_stripe: stripes,
                stripes: count,
            });
            stripes += count;
        }
        let words = (stripes as usize).div_ceil(64);
        // Each color has one frame in each stripe, so that all maps have the same length.
        let map = |_| ColorMap {
            words: vec![0; words],
            hint: 0,
            total: stripes,
            free: stripes,
        };
        self.maps.extend((0..colors).map(map));
        // Ranges may overlap: `exclude` counts a frame once.
        for range in edges.iter().chain(reserved) {
            self.exclude(*range);
        }
    }

    /// Excludes every frame that `range` touches.
    ///
    /// A frame of which a single byte is in the range is excluded, so that no guest gets a part of
    /// what is reserved.
    pub fn exclude(&mut self, range: PhysRange) {
        // The index of a page in its bank: 0 below the bank, and possibly past its end.
        let page = |bank: &Bank, pa: u64| pa.saturating_sub(bank.base) / PAGE_SIZE;
        for bank in &self.banks {
            let colors = bank.stripe / PAGE_SIZE;
            let last = u64::from(bank.stripes) * colors;
            // Rounded up, and saturating: a reserved range may end with the address space.
            let end = page(bank, range.end().0.saturating_add(PAGE_SIZE - 1)).min(last);
            let start = page(bank, range.start.0);
            // One division for all pages: the next page has the next color, or the first one of the
            // next stripe.
            let mut stripe = bank.first_stripe as usize + (start / colors) as usize;
            let mut color = (start % colors) as usize;
            for _ in start..end {
                let map = &mut self.maps[usize::from(bank.color) + color];
                let word = &mut map.words[stripe / 64];
                let bit = 1 << (stripe % 64);
                if *word & bit == 0 {
                    *word |= bit;
                    map.total -= 1;
                    map.free -= 1;
                }
                color += 1;
                if color as u64 == colors {
                    color = 0;
                    stripe += 1;
                }
            }
        }
    }

    /// Returns the color and the stripe of a frame, or `None` outside all banks. Frames that were
    /// excluded are found too.
    pub fn locate(&self, pa: PhysAddr) -> Option<(Color, u32)> {
        self.banks.iter().find_map(|bank| {
            let offset = pa.0.checked_sub(bank.base)?;
            let stripe = offset / bank.stripe;
            let color = bank.color + (offset % bank.stripe / PAGE_SIZE) as u8;
            (stripe < u64::from(bank.stripes))
                .then(|| (Color(color), bank.first_stripe + stripe as u32))
        })
    }

    /// Takes the lowest free frame of this color.
    ///
    /// Lowest first, so that the same configuration gets the same frames at each boot.
    pub fn allocate(&mut self, color: Color) -> Option<PhysAddr> {
        let mut frame = [PhysAddr(0)];
        (self.allocate_strided(color, &mut frame, 0, 1) == 1).then_some(frame[0])
    }

    /// Takes free frames of this color, lowest first, into every `step`-th of `slots` from `first`
    /// on. Returns how many.
    fn allocate_strided(
        &mut self,
        color: Color,
        slots: &mut [PhysAddr],
        first: usize,
        step: usize,
    ) -> u32 {
        let map = &mut self.maps[usize::from(color.0)];
        // The count falls by one for each frame taken, so the difference at the end is the result.
        let before = map.free;
        let mut at = first;
        while at < slots.len() && map.free > 0 {
            // Ends: `free` is not 0, so a word from the hint on has a free bit.
            while map.words[map.hint] == u64::MAX {
                map.hint += 1;
            }
            // Takes a run of free frames from the lowest word that has one, limited by its bank and
            // the slots.
            let free = !map.words[map.hint];
            let start = free.trailing_zeros();
            let stripe = map.hint as u32 * 64 + start;
            let Some(bank) = self
                .banks
                .iter()
                // The last bank of the color that begins at or below the stripe has it: banks are
                // numbered in ascending order, and the first one begins at stripe 0.
                .rev()
                .find(|bank| bank.color <= color.0 && bank.first_stripe <= stripe)
            else {
                break;
            };
            let wanted = (slots.len() - at).div_ceil(step) as u32;
            // Within a bank, the frames of a run are a stripe apart. Across its end they are not.
            let in_bank = bank.first_stripe + bank.stripes - stripe;
            let run = (free >> start).trailing_ones().min(in_bank).min(wanted);
            let color_base = bank.base + u64::from(color.0 - bank.color) * PAGE_SIZE;
            let mut pa = color_base + u64::from(stripe - bank.first_stripe) * bank.stripe;
            for slot in slots[at..].iter_mut().step_by(step).take(run as usize) {
                *slot = PhysAddr(pa);
                pa += bank.stripe;
            }
            at += run as usize * step;
            // `run` is 1 to 64, so the shift is less than 64.
            map.words[map.hint] |= (u64::MAX >> (64 - run)) << start;
            map.free -= run;
        }
        before - map.free
    }

    /// Frees a frame.
    ///
    /// Only for frames that [`allocate`](Self::allocate) and its like have provided: in the bitmap,
    /// an excluded frame looks like a taken one.
    pub fn free(&mut self, pa: PhysAddr) -> Result<(), FreeError> {
        let (color, stripe) = self.locate(pa).ok_or(FreeError::Foreign(pa))?;
        let map = &mut self.maps[usize::from(color.0)];
        let index = stripe as usize / 64;
        let bit = 1 << (stripe % 64);
        if map.words[index] & bit == 0 {
            // A frame that is freed twice could be given to two VMs.
            return Err(FreeError::NotTaken(pa));
        }
        map.words[index] &= !bit;
        map.free += 1;
        map.hint = map.hint.min(index);
        Ok(())
    }

    /// Returns the number of frames of this color, taken or not.
    pub fn total(&self, color: Color) -> u32 {
        self.maps[usize::from(color.0)].total
    }

    /// Returns the number of free frames of this color.
    pub fn available(&self, color: Color) -> u32 {
        self.maps[usize::from(color.0)].free
    }
}

/// A pool in use: its description, and the position of its round over the colors.
///
/// A pool has no memory itself, only colors of the [`FrameAllocator`] that all pools share. SH
/// pools with a common color therefore compete for its frames.
#[derive(Debug)]
pub struct PoolState {
    /// Its description.
    pub spec: Pool,
    /// Bit of the color that was used last.
    cursor: u8,
    /// The number of pages taken.
    ///
    /// Those of regions and those that have moved here count alike: the limit is one for both.
    pub taken: u32,
}

/// Why a pool provided no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// The pool has reached its own limit.
    #[error("its limit of {0} pages is reached")]
    Limit(u32),
    /// None of its colors has a free frame.
    #[error("its colors have no free frame left")]
    Exhausted,
}

impl PoolState {
    /// Creates a pool from which nothing has been taken.
    pub fn new(spec: Pool) -> Self {
        Self {
            spec,
            // `advance` takes the color above it: there is none, so the lowest one is first.
            cursor: 63,
            taken: 0,
        }
    }

    /// Takes a page. Colors are used in turn, so that neighboring pages spread over all sets of the
    /// pool.
    pub fn allocate(&mut self, frames: &mut FrameAllocator) -> Result<PhysAddr, PoolError> {
        // The limit comes first: a pool at its limit does not advance its round.
        if let Some(limit) = self.spec.limit.filter(|&limit| self.taken >= limit) {
            return Err(PoolError::Limit(limit));
        }
        // One round: after it, every color has been tried.
        for _ in 0..self.spec.colors.len() {
            self.advance();
            // What the audit must find: now and then a frame of another color.
            let wrong = cfg!(feature = "fault-injection") && self.taken % 97 == 96;
            let color = if wrong {
                (self.cursor + 1) % frames.colors as u8
            } else {
                self.cursor
            };
            if let Some(pa) = frames.allocate(Color(color)) {
                self.taken += 1;
                return Ok(pa);
            }
        }
        Err(PoolError::Exhausted)
    }

    /// Takes as many pages as there are `slots`, spread over the colors as by
    /// [`allocate`](Self::allocate), but color by color, which makes building a large VM cheap. On
    /// an error, some of the pages have been taken. Property test:
    /// `many_are_as_good_as_one_by_one`.
    pub fn allocate_many(
        &mut self,
        frames: &mut FrameAllocator,
        slots: &mut [PhysAddr],
    ) -> Result<(), PoolError> {
        let wanted = slots.len() as u32;
        let within_limit = self
            .spec
            .limit
            .is_none_or(|limit| self.taken + wanted <= limit);
        let colors = self.spec.colors.len() as usize;
        // Uneven colors or a limit: take page by page, which finds the exact end.
        if !cfg!(feature = "fault-injection")
            && within_limit
            && self
                .spec
                .colors
                .iter()
                .all(|color| frames.available(color) as usize >= slots.len().div_ceil(colors))
        {
            // The color of the `n`-th turn gets every slot whose number is `n` modulo the number of
            // colors.
            for first in 0..colors.min(slots.len()) {
                self.advance();
                self.taken += frames.allocate_strided(Color(self.cursor), slots, first, colors);
            }
            // The round ends where single pages would have ended.
            for _ in 0..slots.len().saturating_sub(colors) % colors {
                self.advance();
            }
            return Ok(());
        }
        for slot in slots {
            *slot = self.allocate(frames)?;
        }
        Ok(())
    }

    /// Moves the cursor to the next color above the one used last, or to the lowest.
    fn advance(&mut self) {
        let colors = self.spec.colors;
        // `!1 << cursor` has the bits above the cursor, and none at 63.
        let above = colors.0 & !1 << self.cursor;
        let next = if above == 0 { colors.0 } else { above };
        self.cursor = next.trailing_zeros() as u8;
    }

    /// Frees a page.
    pub fn free(&mut self, pa: PhysAddr, frames: &mut FrameAllocator) -> Result<(), FreeError> {
        // A frame that could not be freed stays counted.
        frames.free(pa)?;
        self.taken -= 1;
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(feature = "fault-injection"))]
mod tests {
    use super::*;
    use alloc::string::String;
    use cloison_formats::color::{ColorSet, color_of};
    use cloison_formats::image::PoolKind;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const MIB: u64 = 1 << 20;

    fn ram(start: u64, len: u64) -> PhysRange {
        PhysRange {
            start: PhysAddr(start),
            len,
        }
    }

    fn pool(colors: u64, limit: Option<u32>) -> PoolState {
        PoolState::new(Pool {
            name: String::from("p"),
            kind: PoolKind::Pvt,
            colors: ColorSet(colors),
            limit,
        })
    }

    #[test]
    fn frames_have_their_color_and_are_served_once() {
        let mut frames =
            FrameAllocator::new(16, &[ram(0x4000_0000, MIB), ram(0x8_0000_0000, MIB)], &[]);
        let mut seen = HashSet::new();
        for color in (0..16).map(Color) {
            assert_eq!(frames.total(color), 32);
            while let Some(pa) = frames.allocate(color) {
                assert_eq!(color_of(pa, 16), color);
                assert!(seen.insert(pa), "{pa} was served twice");
            }
        }
        assert_eq!(seen.len(), 512);
    }

    #[test]
    fn reserved_and_ragged_ranges_are_left_alone() {
        let reserved = ram(0x4000_3800, 0x1000);
        let mut frames = FrameAllocator::new(16, &[ram(0x4000_1800, 0x2_0000)], &[reserved]);
        let mut seen = HashSet::new();
        for color in (0..16).map(Color) {
            while let Some(pa) = frames.allocate(color) {
                seen.insert(pa.0);
            }
        }
        assert!(
            !seen.contains(&0x4000_1000) && seen.contains(&0x4000_2000),
            "a page that begins before the RAM is not RAM"
        );
        assert!(
            !seen.contains(&0x4000_3000) && !seen.contains(&0x4000_4000),
            "reserved"
        );
        assert!(
            seen.contains(&0x4002_0000) && !seen.contains(&0x4002_1000),
            "a page that ends after the RAM is not RAM"
        );
        assert_eq!(
            frames.free(PhysAddr(0x9000_0000)),
            Err(FreeError::Foreign(PhysAddr(0x9000_0000)))
        );
    }

    #[test]
    fn another_memory_is_one_more_color_whose_frames_are_in_no_other_pool() {
        let chip = ram(0xfffc_0000, 0x4_0000);
        let firmware = ram(0xfffe_a000, 0x1_6000);
        let ranges = [ram(0x10_3000, MIB), ram(0x80_0000, MIB / 2)];
        let mut frames = FrameAllocator::new(16, &ranges, &[firmware]);
        frames.add(1, &[chip], &[firmware]);
        assert_eq!((frames.total(Color(16)), frames.total(Color(0))), (42, 24));
        let mut chips = pool(1 << 16, None);
        let mut slots = [PhysAddr(0); 42];
        assert_eq!(chips.allocate_many(&mut frames, &mut slots), Ok(()));
        let all: Vec<_> = (0..42).map(|page| chip.start.page(page)).collect();
        assert_eq!(slots.to_vec(), all, "all that is not the firmware's");
        assert_eq!(chips.allocate(&mut frames), Err(PoolError::Exhausted));
        assert_eq!(frames.locate(slots[5]), Some((Color(16), 5)));
        assert_eq!(frames.locate(PhysAddr(0x10_5000)), Some((Color(5), 0)));
        assert_eq!(frames.locate(PhysAddr(0x1_0000_0000)), None);
        assert_eq!(chips.free(slots[5], &mut frames), Ok(()));
        assert_eq!(chips.allocate(&mut frames), Ok(slots[5]));
        let mut others = pool(0xffff, None);
        while let Ok(frame) = others.allocate(&mut frames) {
            assert!(!chip.contains(frame), "{frame}");
        }
    }

    #[test]
    fn a_pool_serves_its_colors_in_turn() {
        let mut frames = FrameAllocator::new(16, &[ram(0, MIB)], &[]);
        let mut pool = pool(0b1000_0000_0010_0100, None);
        let colors: Vec<u8> = (0..6)
            .map(|_| color_of(pool.allocate(&mut frames).expect("free"), 16).0)
            .collect();
        assert_eq!(colors, [2, 5, 15, 2, 5, 15]);
    }

    #[test]
    fn limits_and_exhaustion_are_told_apart() {
        let mut frames = FrameAllocator::new(16, &[ram(0, MIB)], &[]);
        let mut small = pool(1, Some(2));
        let first = small.allocate(&mut frames).expect("free");
        small.allocate(&mut frames).expect("free");
        assert_eq!(small.allocate(&mut frames), Err(PoolError::Limit(2)));
        small.free(first, &mut frames).expect("was taken");
        assert_eq!(
            small.free(first, &mut frames),
            Err(FreeError::NotTaken(first))
        );
        assert_eq!(
            small.allocate(&mut frames),
            Ok(first),
            "the lowest free frame again"
        );
        let mut large = pool(1, None);
        for _ in 0..14 {
            large.allocate(&mut frames).expect("free");
        }
        assert_eq!(large.allocate(&mut frames), Err(PoolError::Exhausted));
    }

    /// Exclusive upper bound of the random steps; Miri, several hundred times slower, takes fewer.
    const STEPS: usize = if cfg!(miri) { 60 } else { 300 };

    proptest! {
        /// Allocating many pages at once gives the same pages in the same order as single calls.
        #[test]
        fn many_are_as_good_as_one_by_one(
            colors in 1u64..0x1_0000,
            limit in prop::option::of(1u32..200),
            batches in prop::collection::vec(1usize..120, 1..6),
        ) {
            let ranges = [ram(0x10_3000, MIB), ram(0x80_0000, MIB / 2)];
            let mut frames = (
                FrameAllocator::new(16, &ranges, &[]),
                FrameAllocator::new(16, &ranges, &[]),
            );
            let mut pools = (pool(colors, limit), pool(colors, limit));
            for batch in batches {
                let mut slots = std::vec![PhysAddr(0); batch];
                let many = pools.0.allocate_many(&mut frames.0, &mut slots);
                let single: Result<Vec<PhysAddr>, PoolError> = (0..batch)
                    .map(|_| pools.1.allocate(&mut frames.1))
                    .collect();
                match single {
                    Ok(expected) => prop_assert_eq!((many, slots), (Ok(()), expected)),
                    Err(error) => {
                        prop_assert_eq!(many, Err(error));
                        break;
                    }
                }
                prop_assert_eq!(pools.0.taken, pools.1.taken);
            }
        }

        /// Whatever is taken and freed, the counts stay correct, and no frame is handed out twice.
        #[test]
        fn the_account_holds(
            colors in 1u64..0x1_0000,
            steps in prop::collection::vec(any::<(bool, prop::sample::Index)>(), 1..STEPS),
        ) {
            let mut frames = FrameAllocator::new(16, &[ram(0x10_0000, MIB)], &[]);
            let mut pool = pool(colors, None);
            let mut out: Vec<PhysAddr> = Vec::new();
            for (take, which) in steps {
                if take {
                    match pool.allocate(&mut frames) {
                        Ok(pa) => {
                            prop_assert!(!out.contains(&pa));
                            prop_assert!(pool.spec.colors.contains(color_of(pa, 16)));
                            out.push(pa);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, PoolError::Exhausted);
                            prop_assert_eq!(out.len() as u32, pool.spec.colors.len() * 16);
                        }
                    }
                } else if !out.is_empty() {
                    let pa = out.swap_remove(which.index(out.len()));
                    prop_assert_eq!(pool.free(pa, &mut frames), Ok(()));
                }
                prop_assert_eq!(pool.taken as usize, out.len());
            }
        }
    }
}
