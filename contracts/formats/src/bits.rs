//! Bit masks as sets of numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Sets the bits of `mask` in `word`, or clears them.
pub const fn assign(word: &mut u32, mask: u32, on: bool) {
    *word = if on { *word | mask } else { *word & !mask };
}

/// Iterates over the numbers of the set bits, lowest first.
pub fn ones(mask: impl Into<u64>) -> impl Iterator<Item = u32> {
    let mut rest = mask.into();
    core::iter::from_fn(move || {
        let lowest = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        lowest
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn bits_are_set_and_cleared_and_no_others() {
        let after = |mut word, mask, on| {
            assign(&mut word, mask, on);
            word
        };
        assert_eq!(after(0b1010, 0b0110, true), 0b1110);
        assert_eq!(after(0b1010, 0b0110, false), 0b1000);
    }

    #[test]
    fn the_numbers_of_bits_are_those_that_are_set() {
        assert_eq!(ones(0u64).count(), 0);
        let found: Vec<u32> = ones(1u64 << 63 | 0b1001).collect();
        assert_eq!(found, [0, 3, 63]);
        assert!(ones(u64::MAX).eq(0..64));
    }
}
