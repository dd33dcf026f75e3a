//! Lower bounds on the number of sub-experiments. Each comes with its proof, because a plan is
//! called optimal only where it meets one.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Schönheim's bound for covers of pairs: ⌈v/k ⌈(v−1)/(k−1)⌉⌉. Every point is in at least r =
/// ⌈(v−1)/(k−1)⌉ blocks.
pub fn schoenheim(points: usize, size: usize) -> usize {
    if points <= size {
        return 1;
    }
    (points * (points - 1).div_ceil(size - 1)).div_ceil(size)
}

/// Returns the best lower bound known here: the maximum of Schönheim's, Hanani's, Horsley's, the
/// one by sunflowers, and the one for few blocks.
pub fn lower_bound(points: usize, size: usize) -> usize {
    let schoenheim = schoenheim(points, size);
    if points <= size || size < 3 {
        return schoenheim;
    }
    [
        hanani(points, size),
        horsley(points, size),
        few_blocks(points, size),
    ]
    .into_iter()
    .fold(schoenheim, usize::max)
    .max(sunflowers(points, size))
}

/// Hanani's bound: if Schönheim's number of blocks would have room for exactly one point too many,
/// one more block is needed.
///
/// Here (v−1) = r (k−1), so a point in r blocks meets every other exactly once. All points except
/// one would be of this kind. That one would be in r + 1 blocks and meet other points k−1 times
/// more than needed, but those meet each point only once.
fn hanani(points: usize, size: usize) -> usize {
    let incidences = points * (points - 1) / (size - 1);
    if (points - 1).is_multiple_of(size - 1) && incidences % size == size - 1 {
        incidences / size + 2
    } else {
        0
    }
}

/// Horsley's bound: ⌈v (r+1) / (k+1)⌉ if d = r (k−1) − (v−1) is less than r − 1. D. Horsley,
/// "Generalising Fisher's inequality to coverings and packings", Combinatorica 37 (2017),
/// arXiv:1409.0485.
///
/// Of n blocks, at least m = v (r+1) − n k points are in exactly r. Take their rows of the
/// incidence matrix. The products of these rows are r on the diagonal and at least 1 elsewhere,
/// with an excess of at most d per row: J + (r−1) I + A, where A's eigenvalues are at least −d.
/// That matrix is positive definite, so the m rows are independent, and m ≤ n.
fn horsley(points: usize, size: usize) -> usize {
    let least = (points - 1).div_ceil(size - 1);
    let spare = least * (size - 1) - (points - 1);
    if spare + 1 < least {
        (points * (least + 1)).div_ceil(size + 1)
    } else {
        0
    }
}

/// The bound by sunflowers: if (v−1) = r (k−1), the m points that are in exactly r blocks meet each
/// other once: as sets of blocks, any two have one block in common. If m > r² − r + 1, then all
/// share one block (M. Deza 1974), which has room for only k:
///
/// every other set meets a given one in one of its r blocks, so one block B of these is in at least
/// r + 1 sets. Apart from B, no two of these have anything in common, so a set without B would need
/// a block from each: more than r.
fn sunflowers(points: usize, size: usize) -> usize {
    if !(points - 1).is_multiple_of(size - 1) {
        return 0;
    }
    let least = (points - 1) / (size - 1);
    let exact = |blocks: usize| (points * (least + 1)).saturating_sub(blocks * size);
    let possible = |blocks: &usize| exact(*blocks) <= (least * least - least + 1).max(size);
    (1..).find(possible).unwrap_or(0)
}

/// The largest quotients v/k, as numerator and denominator, of covers with 3, 4 and 5 blocks.
///
/// Any two points have a block in common: as sets of blocks, they meet. For any family of sets that
/// meet pairwise, the blocks can be given weights with this sum so that no set weighs less than
/// one. Then v ≤ the sum over points of their sets' weight ≤ k times the sum of weights. The test
/// below enumerates all families of sets that meet pairwise.
const FEW: [(usize, usize); 3] = [(3, 2), (5, 3), (9, 5)];

/// Returns the bound for covers with few blocks; at most 6.
fn few_blocks(points: usize, size: usize) -> usize {
    FEW.iter()
        .position(|&(top, bottom)| points * bottom <= top * size)
        .unwrap_or(FEW.len())
        + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_literature() {
        let of = |points, size| lower_bound(points, size);
        assert_eq!(
            [7, 8, 9, 10, 11, 12, 13, 14].map(|v| of(v, 6)),
            [3, 3, 3, 4, 6, 6, 7, 7]
        );
        assert_eq!([16, 17, 18, 22].map(|v| of(v, 6)), [10, 12, 12, 19]);
        assert_eq!([7, 9, 10].map(|v| of(v, 4)), [5, 8, 9]);
        assert_eq!(schoenheim(16, 6), 8);
        assert_eq!((schoenheim(7, 3), schoenheim(31, 6)), (7, 31));
        assert_eq!((of(6, 6), of(5, 2), of(7, 3)), (1, 10, 7));
    }

    /// Returns all maximal families of subsets of `blocks` blocks that meet pairwise. Such a family
    /// contains exactly one of each set and its complement.
    fn families(blocks: u32) -> Vec<Vec<u32>> {
        let all = (1_u32 << blocks) - 1;
        let mut found = vec![vec![]];
        for set in 1..1 << (blocks - 1) {
            let grown = |family: &Vec<u32>| {
                [set, all - set]
                    .into_iter()
                    .filter(|one| family.iter().all(|other| one & other != 0))
                    .map(|one| family.iter().copied().chain([one]).collect())
                    .collect::<Vec<_>>()
            };
            found = found.iter().flat_map(grown).collect();
        }
        found
    }

    /// Returns whether weights in multiples of 1/`parts` with the sum `sum`/`parts` give every set
    /// of the family at least 1.
    fn weighted(
        family: &[u32],
        blocks: usize,
        parts: usize,
        sum: usize,
        given: &mut Vec<usize>,
    ) -> bool {
        if given.len() == blocks {
            let weight = |set: u32| {
                (0..blocks)
                    .filter(|&at| set >> at & 1 == 1)
                    .map(|at| given[at])
                    .sum::<usize>()
            };
            return family.iter().all(|&set| weight(set) >= parts);
        }
        let left = sum - given.iter().sum::<usize>();
        (0..=left.min(parts)).any(|weight| {
            given.push(weight);
            let found = weighted(family, blocks, parts, sum, given);
            given.pop();
            found
        })
    }

    #[test]
    fn few_blocks_cover_no_more_by_every_family_of_sets() {
        for (blocks, (top, bottom), count) in [(3, FEW[0], 4), (4, FEW[1], 12), (5, FEW[2], 81)] {
            let families = families(blocks);
            assert_eq!(families.len(), count);
            for family in &families {
                let covered = (1..=5).any(|parts| {
                    weighted(
                        family,
                        blocks as usize,
                        parts,
                        parts * top / bottom,
                        &mut Vec::new(),
                    )
                });
                assert!(covered, "{blocks} blocks: {family:?}");
            }
            // The quotient is the smallest possible: one family needs it.
            let less = |family: &Vec<u32>| {
                (1..=6).any(|parts| {
                    weighted(
                        family,
                        blocks as usize,
                        parts,
                        (parts * top - 1) / bottom,
                        &mut Vec::new(),
                    )
                })
            };
            assert!(!families.iter().all(less), "{blocks} blocks");
        }
    }
}
