//! Bit masks as sets of numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Iterates over the numbers of the set bits, lowest first.
pub fn ones(mask: impl Into<u64>) -> impl Iterator<Item = u32> {
    let mut rest = mask.into();
    core::iter::from_fn(move || {
        let lowest = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        lowest
    })
}
