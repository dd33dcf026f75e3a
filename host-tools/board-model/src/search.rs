//! Searches short lists of numbers. All are compared, four at a time: the host's CPU cannot predict
//! which one matches, and a wrong prediction costs more than all comparisons.
// SPDX-License-Identifier: MIT OR Apache-2.0

use wide::u32x4;

/// Returns the places in a list of at most 64 numbers that match `wanted`, a bit each. Bits in
/// `ignored` do not matter; `wanted` has none of them.
#[inline]
pub fn places_of(list: &[u32], wanted: u32, ignored: u32) -> u64 {
    let (fours, rest) = list.as_chunks::<4>();
    let (wanted_by_four, kept) = (u32x4::splat(wanted), u32x4::splat(!ignored));
    let mut places = 0;
    for (number, four) in fours.iter().enumerate() {
        places |= u64::from(
            (u32x4::new(*four) & kept)
                .simd_eq(wanted_by_four)
                .to_bitmask(),
        ) << (4 * number);
    }
    for (number, known) in rest.iter().enumerate() {
        places |= u64::from(known & !ignored == wanted) << (4 * fours.len() + number);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_is_found(list in prop::collection::vec(0_u32..8, 0..=64), wanted in 0_u32..4) {
            let bits = |ignored: u32| (0..).zip(&list).filter(|(_, known)| **known & !ignored == wanted * 2)
                .fold(0, |places, (at, _)| places | 1_u64 << at);
            prop_assert_eq!(places_of(&list, wanted * 2, 0), bits(0));
            prop_assert_eq!(places_of(&list, wanted * 2, 1), bits(1));
        }
    }
}
