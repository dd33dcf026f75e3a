//! The frames of the hypervisor itself: computed by a formula, with its own colors only.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::vec::Vec;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::color::{Color, ColorSet};

/// The numbered frames of the hypervisor's text, data, stacks, heap and tables: frame `n` has the
/// `n % k`-th of its `k` colors.
///
/// A formula computes them. No pool may hold a color of the hypervisor, so no frame of a pool can
/// be among them.
#[derive(Debug)]
pub struct OwnFrames {
    /// First stripe (a multiple of the stripe's size).
    base: u64,
    limit: u64,
    colors: Vec<Color>,
    stripe: u64,
    next: u32,
}

impl OwnFrames {
    /// Creates the frames of `set` from the first stripe at or after `start`, inside `bank`.
    pub fn new(set: ColorSet, colors: u32, start: PhysAddr, bank: PhysRange) -> Self {
        let stripe = u64::from(colors) * PAGE_SIZE;
        Self {
            base: start.0.next_multiple_of(stripe),
            limit: bank.end().0,
            colors: set.iter().collect(),
            stripe,
            next: 0,
        }
    }

    /// Returns the frame with this number.
    pub fn frame(&self, number: u32) -> PhysAddr {
        let per_stripe = self.colors.len() as u32;
        let color = self.colors[(number % per_stripe) as usize];
        PhysAddr(
            self.base
                + u64::from(number / per_stripe) * self.stripe
                + u64::from(color.0) * PAGE_SIZE,
        )
    }

    /// Takes the next frame and returns it.
    ///
    /// # Panics
    /// At the end of the bank: at boot only, before any guest runs.
    pub fn take(&mut self) -> PhysAddr {
        let frame = self.frame(self.next);
        assert!(
            frame.page(1).0 <= self.limit,
            "frame {} of the hypervisor would be at {frame}, beyond the end of its RAM at {:#x}",
            self.next,
            self.limit
        );
        self.next += 1;
        frame
    }

    /// Returns the number of frames taken.
    pub fn taken(&self) -> u32 {
        self.next
    }

    /// Returns the memory from the first to the last frame taken, with all colors between them.
    pub fn span(&self) -> PhysRange {
        PhysRange {
            start: PhysAddr(self.base),
            len: self.frame(self.next.saturating_sub(1)).page(1).0 - self.base,
        }
    }

    /// Returns the number of the frame at `pa`; `None` if it is no frame of the hypervisor's. The
    /// inverse of [`frame`](Self::frame) (property test `frames_and_numbers_match`).
    pub fn number(&self, pa: PhysAddr) -> Option<u32> {
        let offset = pa.0.checked_sub(self.base)?;
        let color = (offset % self.stripe / PAGE_SIZE) as u8;
        let place = self.colors.iter().position(|own| own.0 == color)? as u32;
        let number = (offset / self.stripe) as u32 * self.colors.len() as u32 + place;
        (number < self.next).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::color::color_of;
    use proptest::prelude::*;

    const BANK: PhysRange = PhysRange {
        start: PhysAddr(0x4000_0000),
        len: 64 << 20,
    };

    #[test]
    fn other_frames_have_no_number() {
        let mut frames = OwnFrames::new(ColorSet(0b1010), 16, PhysAddr(0x4020_0001), BANK);
        let at: Vec<PhysAddr> = (0..3).map(|_| frames.take()).collect();
        assert_eq!(
            at,
            [
                PhysAddr(0x4021_1000),
                PhysAddr(0x4021_3000),
                PhysAddr(0x4022_1000)
            ]
        );
        assert_eq!(
            frames.number(PhysAddr(0x4021_2000)),
            None,
            "a foreign color"
        );
        assert_eq!(frames.number(PhysAddr(0x4022_3000)), None, "not taken yet");
        assert_eq!(
            frames.number(PhysAddr(0x4000_0000)),
            None,
            "before the first"
        );
        assert_eq!(
            frames.span(),
            PhysRange {
                start: PhysAddr(0x4021_0000),
                len: 0x1_2000
            }
        );
    }

    #[test]
    #[should_panic(expected = "frame 2 of the hypervisor would be at 0x40010000, beyond the end")]
    fn the_end_of_the_bank_is_reported() {
        let bank = PhysRange {
            len: 0x1_0000,
            ..BANK
        };
        let mut frames = OwnFrames::new(ColorSet(0b11), 16, bank.start, bank);
        (0..3).for_each(|_| _ = frames.take());
    }

    proptest! {
        /// Every frame has one of the set's colors, lies after the start, and its number leads back
        /// to it.
        #[test]
        fn frames_and_numbers_match(
            mask in 1u64..0xffff,
            start in 0u64..0x10_0000,
            count in 1u32..200,
        ) {
            let set = ColorSet(mask);
            let start = PhysAddr(BANK.start.0 + start);
            let mut frames = OwnFrames::new(set, 16, start, BANK);
            for expected in 0..count {
                let frame = frames.take();
                prop_assert_eq!(frame, frames.frame(expected));
                prop_assert!(frame >= start && set.contains(color_of(frame, 16)));
                prop_assert_eq!(frames.number(frame), Some(expected));
            }
            prop_assert_eq!(frames.taken(), count);
        }
    }
}
