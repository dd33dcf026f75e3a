//! A sample of the Gaussian model (section 4.3, equation 2), as an order of every column.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counts::sort_by_digits;
use crate::matrix;
use crate::parallel;
use crate::scores;
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Number of rows processed together.
const ROWS: usize = 1024;

/// Draws `vectors` vectors with the correlations `target`. Returns, for every column, the rank of
/// each vector.
///
/// Every column has the same normal scores in an independent random order. `whiten` removes the
/// scores' chance correlations first (R. L. Iman, W. J. Conover, "A distribution-free approach to
/// inducing rank correlation among input variables", Comm. Statist. B 11, 1982): one draw then
/// meets its target.
pub fn draw(
    target: &DMatrix<f64>,
    vectors: usize,
    whiten: bool,
    seed: u64,
    attempt: u64,
) -> Vec<Vec<u32>> {
    let events = target.nrows();
    let normal = parallel::of_each(vectors, |rank| {
        scores::normal_quantile((rank + 1) as f64 / (vectors as f64 + 1.0)) as f32
    });
    let column = |event: usize| {
        let mut rng = stream(seed, attempt << 16 | event as u64);
        let mut column = normal.clone();
        scores::shuffle(&mut column, &mut rng);
        column
    };
    let columns = parallel::of_each(events, column);
    let starts: Vec<usize> = (0..vectors).step_by(ROWS).collect();
    let part = |from: usize| {
        let rows = ROWS.min(vectors - from);
        DMatrix::<f32>::from_fn(events, rows, |event, row| columns[event][from + row])
    };
    let mut factor = matrix::factor(target);
    if whiten {
        let products = parallel::of_all(&starts, |&from| {
            let part = part(from);
            &part * part.transpose()
        });
        let sum = products
            .into_iter()
            .fold(DMatrix::<f64>::zeros(events, events), |sum, part| {
                sum + part.cast::<f64>()
            });
        let square = normal
            .iter()
            .map(|&score| f64::from(score).powi(2))
            .sum::<f64>();
        let mut by_chance = sum / square;
        by_chance.fill_diagonal(1.0);
        let chance = matrix::factor(&matrix::nearest_correlation(&by_chance, 1e-9).matrix);
        // With fewer vectors than events, chance correlations cannot be removed exactly.
        if let Some(inverse) = chance.solve_lower_triangular(&DMatrix::identity(events, events)) {
            factor *= inverse;
        }
    }
    let factor = factor.cast::<f32>();
    // Transposed: an event's values follow each other.
    let drawn = parallel::of_all(&starts, |&from| (&factor * part(from)).transpose());
    drop(columns);
    let ranks_of = |event: usize| {
        // The bits of floats ascend with their values once those of negative ones are inverted;
        // equal values keep their order.
        let key = |value: f32| {
            let bits = value.to_bits();
            u64::from(if bits >> 31 == 1 {
                !bits
            } else {
                bits | 1 << 31
            })
        };
        let values = drawn
            .iter()
            .flat_map(|part| part.column(event).iter().copied().collect::<Vec<_>>());
        let mut keys: Vec<u64> = values
            .enumerate()
            .map(|(vector, value)| key(value) << 32 | vector as u64)
            .collect();
        // Vectors ascend already.
        sort_by_digits(&mut keys, |key| (key >> 32) as u32);
        let mut ranks = vec![0; vectors];
        for (rank, key) in keys.into_iter().enumerate() {
            ranks[(key & 0xFFFF_FFFF) as usize] = rank as u32;
        }
        ranks
    };
    parallel::of_each(events, ranks_of)
}

/// Returns an independent stream of random numbers for each part of the work, so that the order of
/// the parts does not matter.
pub fn stream(seed: u64, part: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(part);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spearman(columns: &[Vec<u32>], a: usize, b: usize) -> f64 {
        let values = |at: usize| {
            columns[at]
                .iter()
                .map(|&rank| f64::from(rank))
                .collect::<Vec<_>>()
        };
        scores::pearson(&values(a), &values(b))
    }

    #[test]
    fn one_whitened_draw_meets_its_target() {
        let target =
            DMatrix::from_row_slice(3, 3, &[1.0, 0.8, -0.3, 0.8, 1.0, 0.1, -0.3, 0.1, 1.0]);
        let columns = draw(&target, 500, true, 7, 0);
        for (a, b) in matrix::pairs(3) {
            let rho = spearman(&columns, a, b);
            let expected = 6.0 / std::f64::consts::PI * (target[(a, b)] / 2.0).asin();
            assert!(
                (rho - expected).abs() < 0.02,
                "{a} and {b}: {rho}, expected {expected}"
            );
        }
    }

    #[test]
    fn whitening_beats_the_best_of_twenty_plain_draws() {
        let target = DMatrix::from_fn(6, 6, |a, b| 0.7_f64.powi((a as i32 - b as i32).abs()));
        // Compared by the normal scores of the ranks, which determine the order of the
        // observations.
        let error = |columns: &[Vec<u32>]| {
            let scores = |ranks: &Vec<u32>| {
                scores::normal_scores(&ranks.iter().map(|&r| f64::from(r)).collect::<Vec<_>>())
            };
            let scores: Vec<_> = columns.iter().map(scores).collect();
            let of_pair =
                |(a, b): (usize, usize)| scores::pearson(&scores[a], &scores[b]) - target[(a, b)];
            matrix::pairs(6)
                .into_iter()
                .map(|pair| of_pair(pair).powi(2))
                .sum::<f64>()
        };
        for seed in 0..5 {
            let plain = (0..20).map(|attempt| error(&draw(&target, 500, false, seed, attempt)));
            let plain = plain.fold(f64::INFINITY, f64::min);
            let whitened = error(&draw(&target, 500, true, seed, 0));
            assert!(whitened < plain, "seed {seed}: {whitened} and {plain}");
        }
    }

    #[test]
    fn every_column_is_a_permutation() {
        for mut column in draw(&DMatrix::identity(4, 4), 57, true, 1, 0) {
            column.sort_unstable();
            assert_eq!(column, (0..57).collect::<Vec<_>>());
        }
    }
}
