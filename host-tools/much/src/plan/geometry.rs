//! Designs that are known to exist: planes, transversal designs, triple systems.
//!
//! Each is a list of blocks that covers every pair of points, or every pair across groups, exactly
//! once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::field::Field;

/// A list of sets of points.
pub type Blocks = Vec<Vec<usize>>;

/// Returns the affine plane of order q: q² points, q² + q lines of q points.
pub fn affine_plane(field: &Field) -> Blocks {
    let q = field.order();
    let mut lines = transversal_design(field, q);
    // The transversal design provides the lines that cross all groups; the groups are the last
    // parallel class.
    lines.extend((0..q).map(|group| (0..q).map(|b| group * q + b).collect()));
    lines
}

/// Returns the projective plane of order q: q² + q + 1 points, as many lines of q + 1 points.
pub fn projective_plane(field: &Field) -> Blocks {
    let q = field.order();
    let mut lines = transversal_design(field, q + 1);
    let last = q * q + q;
    lines.extend((0..=q).map(|group| (0..q).map(|b| group * q + b).chain([last]).collect()));
    lines
}

/// Returns the transversal design TD(groups, q), groups ≤ q + 1, with points `group * q + b`. Each
/// of the q² blocks meets each group once, and two points of different groups meet in one block.
pub fn transversal_design(field: &Field, groups: usize) -> Blocks {
    let q = field.order();
    assert!(groups <= q + 1, "there are at most q + 1 groups");
    let mut blocks = vec![];
    for slope in 0..q {
        for offset in 0..q {
            let point = |group: usize| {
                let b = if group == q {
                    slope
                } else {
                    field.add(field.multiply(slope, group), offset)
                };
                group * q + b
            };
            blocks.push((0..groups).map(point).collect());
        }
    }
    blocks
}

/// Quasi-difference matrices of four rows (R. C. Bose, S. S. Shrikhande, E. T. Parker, "Further
/// results on the construction of mutually orthogonal Latin squares", Canadian J. Math. 12, 1960):
/// the modulus, then columns. Numbers from the modulus on are three points that addition leaves
/// alone.
const QUASI_DIFFERENCES: [(usize, &[[usize; 4]]); 2] = [
    (7, &[[0, 1, 9, 4], [0, 4, 2, 7], [0, 2, 8, 1]]),
    (
        11,
        &[[0, 1, 8, 2], [0, 8, 7, 13], [0, 2, 6, 12], [0, 3, 9, 11]],
    ),
];

/// Returns the transversal design of four groups and an order that is no power of a prime, where
/// one is kept: 10 and 14.
pub fn four_groups(order: usize) -> Option<Blocks> {
    let (modulus, columns) = QUASI_DIFFERENCES
        .into_iter()
        .find(|(modulus, _)| modulus + 3 == order)?;
    let all_zero: &[[usize; 4]] = &[[0; 4]];
    let mut blocks: Blocks = vec![];
    // Every column, each of its rotations, and all that addition makes of them; the column of zeros
    // has one rotation.
    for (columns, rotations) in [(all_zero, 1), (columns, 4)] {
        for column in columns {
            for rotation in 0..rotations {
                for by in 0..modulus {
                    let entry = |group: usize| column[(group + 4 - rotation) % 4];
                    let moved = |entry: usize| {
                        if entry < modulus {
                            (entry + by) % modulus
                        } else {
                            entry
                        }
                    };
                    blocks.push(
                        (0..4)
                            .map(|group| group * order + moved(entry(group)))
                            .collect(),
                    );
                }
            }
        }
    }
    // The three points of each group meet those of the others in a design of order 3.
    for x in 0..3 {
        for y in 0..3 {
            let within = [x, y, (x + y) % 3, (x + 2 * y) % 3];
            blocks.push(
                (0..4)
                    .map(|group| group * order + modulus + within[group])
                    .collect(),
            );
        }
    }
    Some(blocks)
}

/// Returns the number of a point: one of `n`, on one of three levels, the first of which follows the
/// last.
const fn point(n: usize, x: usize, level: usize) -> usize {
    level % 3 * n + x
}

/// Returns the first `columns` points, each with those of the other levels; and all pairs of a level
/// with their product on the next one, in a commutative quasigroup on `n` points.
fn triples(n: usize, columns: usize, product: impl Fn(usize, usize) -> usize) -> Blocks {
    let column = |x| (0..3).map(|level| point(n, x, level)).collect();
    let mut blocks: Blocks = (0..columns).map(column).collect();
    for x in 0..n {
        for y in 0..x {
            blocks.extend((0..3).map(|level| {
                vec![
                    point(n, x, level),
                    point(n, y, level),
                    point(n, product(x, y), level + 1),
                ]
            }));
        }
    }
    blocks
}

/// Returns Bose's Steiner triple system on 6t + 3 points.
pub fn bose_triples(t: usize) -> Blocks {
    let n = 2 * t + 1;
    // The idempotent commutative quasigroup of the integers modulo an odd number: (x + y) / 2.
    triples(n, n, |x, y| (x + y) * (n + 1) / 2 % n)
}

/// Returns Skolem's Steiner triple system on 6t + 1 points.
pub fn skolem_triples(t: usize) -> Blocks {
    let n = 2 * t;
    let infinity = 3 * n;
    // The half-idempotent commutative quasigroup of the integers modulo an even number.
    let mut blocks = triples(n, t, |x, y| {
        let sum = (x + y) % n;
        if sum.is_multiple_of(2) {
            sum / 2
        } else {
            (sum + n - 1) / 2
        }
    });
    let others = (0..t).flat_map(|x| {
        (0..3).map(move |level| vec![infinity, point(n, x + t, level), point(n, x, level + 1)])
    });
    blocks.splice(t..t, others);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn each_pair_once(blocks: &Blocks, points: usize) {
        let mut met = vec![0; points * points];
        for block in blocks {
            for (at, &a) in block.iter().enumerate() {
                for &b in &block[..at] {
                    met[a.max(b) * points + a.min(b)] += 1;
                }
            }
        }
        for a in 0..points {
            for b in 0..a {
                assert_eq!(met[a * points + b], 1, "{points} points: {a} and {b}");
            }
        }
    }

    #[test]
    fn points_of_different_groups_meet_once() {
        for order in [10, 14] {
            let mut blocks = four_groups(order).unwrap();
            blocks.extend((0..4).map(|group| (group * order..(group + 1) * order).collect()));
            each_pair_once(&blocks, 4 * order);
        }
        assert!(four_groups(6).is_none());
    }

    #[test]
    fn the_planes_and_triple_systems_cover_each_pair_once() {
        for q in [2, 3, 4, 5, 7, 8, 9] {
            let field = Field::new(q).unwrap();
            each_pair_once(&affine_plane(&field), q * q);
            each_pair_once(&projective_plane(&field), q * q + q + 1);
        }
        for t in 1..8 {
            each_pair_once(&bose_triples(t), 6 * t + 3);
            each_pair_once(&skolem_triples(t), 6 * t + 1);
        }
    }
}
