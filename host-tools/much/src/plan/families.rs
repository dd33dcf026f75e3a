//! Designs from difference families: a few base blocks, moved by all elements of a small abelian group, are all blocks, and every pair
//! of points is in exactly one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;

/// A difference family. Its points are copies of the group, one after the other, then points that the group leaves alone.
pub struct Family {
    /// The group: residues by these moduli.
    moduli: &'static [usize],
    /// Copies of the group.
    copies: usize,
    /// Points that stay.
    fixed: usize,
    /// Base blocks, as points.
    base: &'static [&'static [usize]],
}

/// Those that neither planes nor the cyclic search give.
pub const FAMILIES: [Family; 4] = [
    // (25,4,1) over Z5²: 00 01 10 22, 00 02 20 44.
    Family { moduli: &[5, 5], copies: 1, fixed: 0, base: &[&[0, 1, 5, 12], &[0, 2, 10, 24]] },
    // (61,5,1), cyclic.
    Family { moduli: &[61], copies: 1, fixed: 0, base: &[&[0, 1, 3, 13, 34], &[0, 4, 9, 23, 45], &[0, 6, 17, 24, 32]] },
    // (45,5,1) over Z3² × Z5: 010 020 102 202 001, 210 120 222 112 001, and the copies of Z5.
    Family {
        moduli: &[3, 3, 5],
        copies: 1,
        fixed: 0,
        base: &[&[5, 10, 17, 32, 1], &[35, 25, 42, 22, 1], &[0, 1, 2, 3, 4]],
    },
    // (66,6,1): five copies of Z13 and one point more. Such a system is due to R. H. F. Denniston (Ars Combinatoria 9, 1980); this one was
    // found by going through all that have a multiplier of order 3 which permutes three of the copies.
    Family {
        moduli: &[13],
        copies: 5,
        fixed: 1,
        base: &[
            &[0, 1, 5, 24, 46, 49],
            &[13, 15, 16, 33, 43, 47],
            &[8, 26, 32, 35, 50, 51],
            &[0, 2, 16, 20, 40, 56],
            &[13, 19, 34, 35, 42, 64],
            &[1, 11, 26, 31, 48, 62],
            &[0, 6, 21, 35, 55, 63],
            &[1, 13, 18, 37, 59, 61],
            &[7, 16, 26, 28, 53, 60],
            &[40, 42, 48, 59, 60, 63],
            &[0, 13, 26, 39, 52, 65],
        ],
    },
];

impl Family {
    fn order(&self) -> usize {
        self.moduli.iter().product()
    }
    /// How many points the design has.
    pub fn points(&self) -> usize {
        self.order() * self.copies + self.fixed
    }
    /// How large its blocks are.
    pub fn size(&self) -> usize {
        self.base[0].len()
    }
    /// The sum of two elements of the group.
    fn add(&self, one: usize, other: usize) -> usize {
        let (mut sum, mut place, mut rest) = (0, 1, (one, other));
        for modulus in self.moduli.iter().rev() {
            sum += (rest.0 % modulus + rest.1 % modulus) % modulus * place;
            place *= modulus;
            rest = (rest.0 / modulus, rest.1 / modulus);
        }
        sum
    }
    /// All blocks.
    pub fn blocks(&self) -> Blocks {
        let moved = |point: usize, by: usize| {
            let copy = point / self.order();
            if copy < self.copies { copy * self.order() + self.add(point % self.order(), by) } else { point }
        };
        let mut blocks: Blocks = vec![];
        for base in self.base {
            for by in 0..self.order() {
                let mut block: Vec<_> = base.iter().map(|&point| moved(point, by)).collect();
                block.sort_unstable();
                blocks.push(block);
            }
        }
        // A base block that comes back to itself early gives fewer blocks.
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_covers_each_pair_once() {
        for family in &FAMILIES {
            let (points, size, blocks) = (family.points(), family.size(), family.blocks());
            assert_eq!(super::super::verify(points, size, &blocks), Ok(()));
            assert_eq!(blocks.len() * size * (size - 1), points * (points - 1), "{points} points");
        }
    }
}
