//! Triples that cover every pair as often as required, by hill climbing (D. R. Stinson,
//! "Hill-climbing algorithms for the construction of combinatorial designs", Annals of Discrete
//! Mathematics 26, 1985).
//!
//! The minimum number of triples that cover all pairs is known for every number of points (M. K.
//! Fort, G. A. Hedlund, "Minimal coverings of pairs by triples", Pacific J. Math. 8, 1958). Where
//! no Steiner triple system exists, some pairs meet more often: with 6t + 5 points those of one
//! block of five; with 6t points one more each of a perfect matching.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Steps of the climb: many times what it usually takes.
const STEPS: usize = 2_000_000;

/// Returns the smallest cover of `points` points by triples for 6t and 6t + 5 points, if hill
/// climbing finds it.
pub fn cover(points: usize, rng: &mut ChaCha8Rng) -> Option<Blocks> {
    match points % 6 {
        5 => {
            let within_five = |a: usize, b: usize| a < 5 && b < 5;
            let mut blocks = climb(points, |a, b| u8::from(!within_five(a, b)), rng)?;
            // Five points need four triples.
            blocks.extend([vec![0, 1, 2], vec![0, 3, 4], vec![1, 2, 3], vec![1, 2, 4]]);
            Some(blocks)
        }
        0 if points > 0 => climb(points, |a, b| 1 + u8::from(a / 2 == b / 2), rng),
        _ => None,
    }
}

/// Triples in which every two points meet exactly as often as is wanted.
fn climb(
    points: usize,
    wanted: impl Fn(usize, usize) -> u8,
    rng: &mut ChaCha8Rng,
) -> Option<Blocks> {
    let mut missing: Vec<Vec<u8>> = (0..points)
        .map(|a| {
            (0..points)
                .map(|b| if a == b { 0 } else { wanted(a, b) })
                .collect()
        })
        .collect();
    let mut left: usize = missing
        .iter()
        .flatten()
        .map(|&times| usize::from(times))
        .sum();
    if !left.is_multiple_of(6) {
        return None;
    }
    let mut triples: Blocks = vec![];
    for _ in 0..STEPS {
        if left == 0 {
            return Some(triples);
        }
        // A point that misses two others: it forms a triple with them, and a triple that holds
        // these two already gives way.
        let a = rng.random_range(0..points);
        let open: Vec<usize> = (0..points).filter(|&other| missing[a][other] > 0).collect();
        if open.len() < 2 {
            continue;
        }
        let b = open[rng.random_range(0..open.len())];
        let c = open[rng.random_range(0..open.len())];
        if b == c {
            continue;
        }
        if missing[b][c] == 0 {
            let holds = |triple: &Vec<usize>| triple.contains(&b) && triple.contains(&c);
            let Some(at) = triples.iter().position(holds) else {
                continue;
            };
            let gone = triples.swap_remove(at);
            left += change(&mut missing, &gone, 1);
        }
        let triple = vec![a, b, c];
        change(&mut missing, &triple, -1);
        left -= 6;
        triples.push(triple);
    }
    None
}

/// Takes a triple's pairs away or back. Returns how many ordered pairs these are.
fn change(missing: &mut [Vec<u8>], triple: &[usize], by: i8) -> usize {
    for &a in triple {
        for &b in triple {
            if a != b {
                missing[a][b] = missing[a][b].saturating_add_signed(by);
            }
        }
    }
    6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{schoenheim, verify};
    use rand::SeedableRng;

    #[test]
    fn covers_by_triples_are_as_small_as_can_be() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for points in [6, 11, 12, 29, 47, 60] {
            let blocks = cover(points, &mut rng).unwrap_or_else(|| panic!("{points} points"));
            assert_eq!(verify(points, 3, &blocks), Ok(()));
            assert_eq!(blocks.len(), schoenheim(points, 3), "{points} points");
        }
        assert!(cover(7, &mut rng).is_none());
    }
}
