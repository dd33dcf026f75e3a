//! Seeded pseudo-random numbers: the same seed gives the same sequence.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// xorshift64* (Vigna, 2016).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator; any seed is valid, including zero.
    pub const fn new(seed: u64) -> Self {
        // The state must not be zero; the odd constant also spreads small seeds.
        let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            state: if state == 0 { 1 } else { state },
        }
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, which must not be zero. The bias is below 2⁻³² for the
    /// bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_the_bound_and_reach_all_of_it() {
        let mut random = Random::new(0);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(
            seen.iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let bits = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits()]
        };
        assert_eq!(bits(5), bits(5));
        // A seed whose state would be zero, where the generator would be stuck, must work like any
        // other.
        assert!(bits(u64::MAX).iter().all(|bits| *bits != 0));
        assert_ne!(bits(0), bits(1));
    }
}
