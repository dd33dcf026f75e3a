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
