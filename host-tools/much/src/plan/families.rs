//! Designs from difference families: a few base blocks, moved by all elements of a small group, are
//! all blocks. Every pair of points is in exactly one; or, where the number of points does not
//! allow that, a few pairs are in more.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use std::collections::BTreeSet;
use std::ops::Range;

/// A group that moves the points. They come one orbit after the other.
enum Group {
    /// Residues by these moduli: `copies` of the group itself, then cycles of these lengths, which
    /// only a cyclic group has. Points in cycles of length 1 do not move.
    Abelian {
        moduli: &'static [usize],
        copies: usize,
        cycles: &'static [usize],
    },
    /// The even permutations of four things, on orbits of these lengths (see [`alternating`]).
    Alternating { orbits: &'static [usize] },
    /// The group that these elements generate. An element lists the image of each point.
    Listed { to: &'static [&'static [usize]] },
}

/// A difference family.
pub struct Family {
    /// The group that moves its points.
    group: Group,
    /// So many of the last points have no blocks among themselves: a smaller plan covers them.
    hole: usize,
    /// Base blocks, as points.
    base: &'static [&'static [usize]],
}

/// Returns where two elements that generate the alternating group of four things, of orders 3 and
/// 2, move the points of an orbit with so many: those of 12 are the group's elements, the others
/// the cosets of its subgroup with 12 divided by as many elements.
fn alternating(orbit: usize) -> [&'static [usize]; 2] {
    match orbit {
        12 => [
            &[4, 3, 5, 7, 6, 8, 0, 1, 2, 10, 11, 9],
            &[3, 5, 4, 0, 2, 1, 10, 9, 11, 7, 6, 8],
        ],
        6 => [&[3, 0, 4, 1, 5, 2], &[0, 4, 3, 2, 1, 5]],
        4 => [&[0, 2, 3, 1], &[2, 3, 0, 1]],
        3 => [&[2, 0, 1], &[0, 1, 2]],
        _ => [&[0], &[0]],
    }
}

/// The families that neither planes nor the cyclic search give.
pub const FAMILIES: [Family; 17] = [
    // (25,4,1) over Z5²: 00 01 10 22, 00 02 20 44.
    Family {
        group: Group::Abelian {
            moduli: &[5, 5],
            copies: 1,
            cycles: &[],
        },
        hole: 0,
        base: &[&[0, 1, 5, 12], &[0, 2, 10, 24]],
    },
    // (61,5,1), cyclic.
    Family {
        group: Group::Abelian {
            moduli: &[61],
            copies: 1,
            cycles: &[],
        },
        hole: 0,
        base: &[&[0, 1, 3, 13, 34], &[0, 4, 9, 23, 45], &[0, 6, 17, 24, 32]],
    },
    // (45,5,1) over Z3² × Z5: 010 020 102 202 001, 210 120 222 112 001, and the copies of Z5.
    Family {
        group: Group::Abelian {
            moduli: &[3, 3, 5],
            copies: 1,
            cycles: &[],
        },
        hole: 0,
        base: &[&[5, 10, 17, 32, 1], &[35, 25, 42, 22, 1], &[0, 1, 2, 3, 4]],
    },
    // (66,6,1): five copies of Z13 and one point more. Such a system is due to R. H. F. Denniston
    // (Ars Combinatoria 9, 1980); this one was found by going through all that have a
    // multiplier of order 3 which permutes three of the copies.
    Family {
        group: Group::Abelian {
            moduli: &[13],
            copies: 5,
            cycles: &[1],
        },
        hole: 0,
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
    // Covers by fours that have the sizes of W. H. Mills ("On the covering of pairs by
    // quadruples", Journal of Combinatorial Theory A 13, 1972, and 15, 1973), each found by
    // going through what its group allows. 24: a matching meets twice.
    Family {
        group: Group::Alternating {
            orbits: &[12, 6, 6],
        },
        hole: 0,
        base: &[
            &[0, 8, 13, 22],
            &[0, 1, 3, 5],
            &[0, 3, 12, 18],
            &[12, 13, 16, 17],
            &[18, 19, 22, 23],
            &[0, 4, 14, 19],
            &[0, 7, 16, 20],
        ],
    },
    // 27: one point meets the next four twice, and a matching of the others meets twice. 31: the
    // first two points meet four times.
    Family {
        group: Group::Abelian {
            moduli: &[4],
            copies: 0,
            cycles: &[1, 4, 4, 2, 4, 4, 4, 4],
        },
        hole: 0,
        base: &[
            &[9, 10, 23, 25],
            &[0, 9, 12, 14],
            &[1, 3, 5, 7],
            &[15, 17, 20, 22],
            &[15, 16, 17, 18],
            &[1, 8, 9, 17],
            &[1, 10, 15, 19],
            &[5, 9, 13, 21],
            &[0, 5, 17, 25],
            &[0, 1, 2, 21],
            &[1, 11, 18, 24],
            &[1, 14, 16, 25],
            &[1, 12, 13, 22],
            &[5, 6, 12, 16],
            &[11, 16, 22, 23],
            &[1, 6, 23, 26],
            &[5, 14, 22, 24],
            &[5, 19, 20, 23],
        ],
    },
    Family {
        group: Group::Abelian {
            moduli: &[6],
            copies: 0,
            cycles: &[2, 6, 2, 6, 6, 3, 6],
        },
        hole: 0,
        base: &[
            &[0, 1, 8, 9],
            &[0, 1, 25, 28],
            &[10, 13, 22, 24],
            &[2, 5, 16, 19],
            &[0, 3, 13, 23],
            &[0, 2, 10, 21],
            &[0, 16, 18, 20],
            &[2, 4, 13, 26],
            &[2, 3, 9, 15],
            &[2, 20, 25, 27],
            &[2, 17, 18, 24],
            &[2, 23, 28, 29],
            &[8, 17, 22, 29],
            &[8, 11, 20, 28],
            &[10, 11, 17, 26],
            &[10, 12, 20, 30],
        ],
    },
    // 33: the symmetries of a square; one point meets the next four twice, and a matching of the
    // others meets twice.
    Family {
        group: Group::Listed {
            to: &[
                &[
                    0, 2, 3, 4, 1, 7, 5, 8, 6, 12, 11, 13, 14, 16, 15, 9, 10, 20, 19, 21, 22, 24,
                    23, 17, 18, 28, 27, 29, 30, 32, 31, 25, 26,
                ],
                &[
                    0, 3, 2, 1, 4, 7, 8, 5, 6, 13, 14, 12, 11, 9, 10, 16, 15, 21, 22, 20, 19, 17,
                    18, 24, 23, 29, 30, 28, 27, 25, 26, 32, 31,
                ],
            ],
        },
        hole: 0,
        base: &[
            &[1, 2, 3, 4],
            &[0, 5, 18, 20],
            &[9, 11, 22, 24],
            &[5, 8, 26, 31],
            &[9, 16, 25, 32],
            &[9, 14, 26, 29],
            &[17, 18, 21, 22],
            &[5, 6, 11, 15],
            &[17, 18, 27, 31],
            &[9, 10, 29, 30],
            &[0, 1, 11, 26],
            &[1, 21, 27, 29],
            &[5, 14, 23, 32],
            &[1, 7, 23, 28],
            &[9, 19, 21, 31],
            &[1, 5, 10, 17],
            &[1, 12, 14, 20],
        ],
    },
    // 22: two commuting elements of order 2; the first two points meet four times.
    Family {
        group: Group::Listed {
            to: &[
                &[
                    1, 0, 4, 5, 2, 3, 7, 6, 9, 8, 11, 10, 13, 12, 16, 17, 14, 15, 20, 21, 18, 19,
                ],
                &[
                    0, 1, 3, 2, 5, 4, 7, 6, 8, 9, 10, 11, 13, 12, 15, 14, 17, 16, 19, 18, 21, 20,
                ],
            ],
        },
        hole: 0,
        base: &[
            &[10, 11, 12, 13],
            &[6, 7, 8, 9],
            &[2, 4, 18, 20],
            &[14, 15, 16, 17],
            &[6, 12, 18, 21],
            &[2, 5, 7, 12],
            &[2, 3, 8, 10],
            &[0, 1, 8, 11],
            &[0, 1, 18, 19],
            &[0, 4, 7, 17],
            &[0, 2, 13, 14],
            &[8, 12, 17, 20],
            &[2, 9, 17, 21],
            &[2, 11, 16, 19],
            &[6, 10, 17, 19],
        ],
    },
    // 34: the symmetries of a square; the first two points meet four times.
    Family {
        group: Group::Listed {
            to: &[
                &[
                    0, 1, 5, 4, 6, 7, 9, 8, 2, 3, 13, 12, 14, 15, 17, 16, 10, 11, 20, 18, 21, 19,
                    25, 24, 26, 27, 29, 28, 22, 23, 32, 30, 33, 31,
                ],
                &[
                    0, 1, 6, 7, 5, 4, 2, 3, 9, 8, 14, 15, 13, 12, 10, 11, 17, 16, 20, 21, 18, 19,
                    26, 27, 25, 24, 22, 23, 29, 28, 32, 33, 30, 31,
                ],
            ],
        },
        hole: 0,
        base: &[
            &[30, 31, 32, 33],
            &[18, 19, 20, 21],
            &[10, 14, 28, 29],
            &[2, 3, 10, 11],
            &[2, 6, 22, 26],
            &[10, 15, 23, 26],
            &[0, 1, 2, 7],
            &[0, 22, 29, 31],
            &[1, 22, 24, 33],
            &[0, 10, 12, 18],
            &[1, 10, 17, 19],
            &[2, 4, 21, 30],
            &[2, 9, 20, 32],
            &[2, 16, 18, 25],
            &[2, 19, 23, 24],
            &[10, 21, 24, 31],
            &[2, 17, 29, 33],
            &[2, 5, 15, 28],
            &[2, 12, 14, 31],
        ],
    },
    // 39: the symmetries of a square; one point meets the next four twice, and a matching of the
    // others meets twice.
    Family {
        group: Group::Listed {
            to: &[
                &[
                    0, 3, 1, 4, 2, 8, 7, 9, 10, 12, 11, 5, 6, 16, 15, 17, 18, 20, 19, 13, 14, 23,
                    21, 24, 22, 28, 27, 29, 30, 32, 31, 25, 26, 36, 35, 34, 33, 38, 37,
                ],
                &[
                    0, 3, 4, 1, 2, 9, 10, 8, 7, 5, 6, 12, 11, 17, 18, 16, 15, 13, 14, 20, 19, 23,
                    24, 21, 22, 29, 30, 28, 27, 25, 26, 32, 31, 34, 33, 36, 35, 37, 38,
                ],
            ],
        },
        hole: 0,
        base: &[
            &[33, 34, 35, 36],
            &[0, 33, 34, 37],
            &[1, 4, 37, 38],
            &[1, 13, 15, 21],
            &[0, 13, 20, 22],
            &[1, 6, 8, 24],
            &[0, 1, 10, 12],
            &[0, 1, 26, 28],
            &[21, 24, 25, 27],
            &[5, 9, 22, 24],
            &[1, 2, 16, 20],
            &[5, 9, 19, 20],
            &[5, 6, 28, 32],
            &[5, 10, 35, 37],
            &[13, 18, 26, 29],
            &[13, 16, 18, 19],
            &[13, 23, 25, 37],
            &[5, 13, 30, 38],
            &[5, 8, 15, 29],
            &[5, 16, 26, 34],
            &[1, 5, 17, 33],
            &[5, 18, 21, 36],
            &[13, 27, 28, 33],
            &[1, 22, 25, 34],
            &[1, 9, 29, 32],
        ],
    },
    // 36: each point meets the one opposite in its copy twice.
    Family {
        group: Group::Abelian {
            moduli: &[18],
            copies: 2,
            cycles: &[],
        },
        hole: 0,
        base: &[
            &[0, 1, 9, 32],
            &[0, 4, 28, 29],
            &[0, 6, 18, 21],
            &[0, 7, 26, 34],
            &[0, 2, 5, 22],
            &[18, 20, 24, 29],
        ],
    },
    // 51: of 36 points a matching meets twice, and a hole of 15.
    Family {
        group: Group::Alternating {
            orbits: &[12, 12, 12, 12, 1, 1, 1],
        },
        hole: 15,
        base: &[
            &[0, 8, 26, 31],
            &[2, 7, 12, 20],
            &[14, 19, 24, 32],
            &[0, 14, 35, 49],
            &[11, 12, 26, 50],
            &[2, 23, 24, 48],
            &[0, 3, 24, 47],
            &[0, 12, 15, 45],
            &[12, 24, 27, 46],
            &[0, 4, 10, 43],
            &[12, 16, 22, 42],
            &[24, 28, 34, 44],
            &[0, 16, 34, 41],
            &[10, 12, 28, 39],
            &[4, 22, 24, 40],
            &[0, 1, 32, 38],
            &[8, 12, 13, 37],
            &[20, 24, 25, 36],
        ],
    },
    // 54, cyclic; opposite points meet twice.
    Family {
        group: Group::Abelian {
            moduli: &[54],
            copies: 1,
            cycles: &[],
        },
        hole: 0,
        base: &[
            &[0, 1, 27, 28],
            &[0, 4, 20, 44],
            &[0, 3, 11, 32],
            &[0, 2, 41, 47],
            &[0, 5, 17, 36],
        ],
    },
    // 43: the first two points meet four times, in blocks with the next eight.
    Family {
        group: Group::Alternating {
            orbits: &[1, 1, 4, 4, 12, 12, 6, 3],
        },
        hole: 0,
        base: &[
            &[0, 1, 2, 6],
            &[1, 34, 39, 41],
            &[0, 40, 41, 42],
            &[1, 22, 27, 31],
            &[1, 10, 14, 16],
            &[0, 10, 18, 35],
            &[0, 22, 26, 28],
            &[22, 25, 39, 42],
            &[6, 7, 24, 29],
            &[10, 21, 36, 42],
            &[10, 13, 24, 26],
            &[2, 3, 4, 5],
            &[2, 12, 28, 42],
            &[6, 12, 33, 40],
            &[6, 10, 11, 28],
            &[6, 36, 38, 39],
            &[2, 7, 13, 36],
            &[10, 15, 30, 38],
            &[2, 23, 24, 34],
            &[10, 23, 33, 39],
            &[2, 10, 20, 32],
        ],
    },
    // 57 and 63: Z42 and Z48, whose opposite points meet twice, and a hole of 15.
    Family {
        group: Group::Abelian {
            moduli: &[42],
            copies: 1,
            cycles: &[6, 6, 3],
        },
        hole: 15,
        base: &[
            &[0, 4, 20, 54],
            &[0, 6, 18, 31],
            &[0, 7, 21, 48],
            &[0, 2, 39, 52],
            &[0, 8, 27, 46],
            &[0, 1, 33, 42],
        ],
    },
    Family {
        group: Group::Abelian {
            moduli: &[48],
            copies: 1,
            cycles: &[6, 6, 3],
        },
        hole: 15,
        base: &[
            &[0, 1, 35, 62],
            &[0, 3, 24, 27],
            &[0, 4, 30, 36],
            &[0, 2, 7, 58],
            &[0, 11, 28, 59],
            &[0, 9, 19, 51],
            &[0, 8, 33, 49],
        ],
    },
];

impl Group {
    /// Where each of a few elements moves each point. They generate the group.
    fn generators(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Abelian {
                moduli,
                copies,
                cycles,
            } => {
                let order: usize = moduli.iter().product();
                // An element is a number whose digits are its residues, the last modulus first.
                let mut place = order;
                let mut one_of = |modulus: &usize| {
                    place /= modulus;
                    let more = |element: usize| {
                        let digit = element / place % modulus;
                        element - digit * place + (digit + 1) % modulus * place
                    };
                    let mut to: Vec<_> = (0..copies * order)
                        .map(|point| point - point % order + more(point % order))
                        .collect();
                    for &length in *cycles {
                        let first = to.len();
                        to.extend((0..length).map(|at| first + (at + 1) % length));
                    }
                    to
                };
                moduli.iter().map(&mut one_of).collect()
            }
            Self::Alternating { orbits } => {
                let of = |element: usize| {
                    let mut to: Vec<usize> = vec![];
                    for &orbit in *orbits {
                        let first = to.len();
                        to.extend(alternating(orbit)[element].iter().map(|at| first + at));
                    }
                    to
                };
                (0..2).map(of).collect()
            }
            Self::Listed { to } => to.iter().map(|to| to.to_vec()).collect(),
        }
    }
}

impl Family {
    /// Returns the number of points of the design.
    pub fn points(&self) -> usize {
        match &self.group {
            Group::Abelian {
                moduli,
                copies,
                cycles,
            } => moduli.iter().product::<usize>() * copies + cycles.iter().sum::<usize>(),
            Group::Alternating { orbits } => orbits.iter().sum(),
            Group::Listed { to } => to[0].len(),
        }
    }
    /// Returns the hole: the last points, of which no block contains two.
    pub fn hole(&self) -> Range<usize> {
        self.points() - self.hole..self.points()
    }
    /// How large its blocks are.
    pub fn size(&self) -> usize {
        self.base[0].len()
    }
    /// Returns all blocks outside the hole.
    pub fn blocks(&self) -> Blocks {
        let generators = self.group.generators();
        let sorted = |block: &[usize]| {
            let mut block = block.to_vec();
            block.sort_unstable();
            block
        };
        let mut found: BTreeSet<Vec<usize>> = self.base.iter().map(|base| sorted(base)).collect();
        let mut new: Blocks = found.iter().cloned().collect();
        while let Some(block) = new.pop() {
            for to in &generators {
                let moved = sorted(&block.iter().map(|&point| to[point]).collect::<Vec<_>>());
                if found.insert(moved.clone()) {
                    new.push(moved);
                }
            }
        }
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the pairs of each point meet more than once, in all.
    fn excess(family: &Family) -> Vec<usize> {
        let blocks = family.blocks();
        let mut excess = vec![0; family.points()];
        for a in 0..family.points() {
            for b in 0..a {
                let meet = blocks
                    .iter()
                    .filter(|block| block.contains(&a) && block.contains(&b))
                    .count();
                let more = meet - usize::from(!family.hole().contains(&b));
                excess[a] += more;
                excess[b] += more;
            }
        }
        excess
    }

    #[test]
    fn families_cover_each_pair_once_but_for_what_the_number_of_points_enforces() {
        for family in &FAMILIES {
            let (points, size) = (family.points(), family.size());
            assert!(
                family.blocks().iter().all(|block| block.len() == size),
                "{points} points"
            );
            let expected = |point: usize| match (size, points % 12) {
                // The first point with four others; the rest is a matching.
                (4, 3 | 9) if family.hole().is_empty() && point == 0 => 4,
                // A matching alone, of which the points of a hole are not.
                (4, 0 | 3 | 6 | 9) => usize::from(!family.hole().contains(&point)),
                // One pair, four times.
                (4, 7 | 10) if family.hole().is_empty() && point < 2 => 3,
                _ => 0,
            };
            assert_eq!(
                excess(family),
                (0..points).map(expected).collect::<Vec<_>>(),
                "{points} points"
            );
        }
    }
}
