//! Ranks and normal scores (section 4.3, equation 1), correlations, and the distance between two
//! distributions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rand::RngExt;
use statrs::distribution::{ContinuousCDF, Normal};

/// Returns the quantile of the standard normal distribution.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// Returns the indices of values in ascending order; equal values keep their order.
pub fn ascending(values: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| {
        values[a as usize]
            .total_cmp(&values[b as usize])
            .then(a.cmp(&b))
    });
    order
}

/// Returns ranks from 1; equal values share the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let order = ascending(values);
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for same in order.chunk_by(|&a, &b| values[a as usize] == values[b as usize]) {
        let rank = before as f64 + (same.len() as f64 + 1.0) / 2.0;
        for &at in same {
            ranks[at as usize] = rank;
        }
        before += same.len();
    }
    ranks
}

/// Returns normal scores: Φ⁻¹(rank / (n + 1)), equation 1 with the paper's footnote 1.
pub fn normal_scores(values: &[f64]) -> Vec<f64> {
    let parts = values.len() as f64 + 1.0;
    ranks(values)
        .into_iter()
        .map(|rank| normal_quantile(rank / parts))
        .collect()
}

/// Scales values to mean 0 and variance 1. If all are equal, returns false and sets them to zero.
pub fn standardize(values: &mut [f64]) -> bool {
    let (mean, deviation) = moments(values);
    let varies = deviation > 0.0;
    for value in values.iter_mut() {
        *value = if varies {
            (*value - mean) / deviation
        } else {
            0.0
        };
    }
    varies
}

/// Returns the mean and the standard deviation, which is 0 if all values are equal.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    let deviation = variance.sqrt();
    // A variance that consists of rounding errors counts as zero.
    let varies = values.iter().any(|value| *value != values[0]) && deviation > mean.abs() * 1e-14;
    (mean, if varies { deviation } else { 0.0 })
}

/// Returns Pearson's correlation; 0 if one side does not vary.
pub fn pearson(x: &[f64], y: &[f64]) -> f64 {
    let count = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / count, y.iter().sum::<f64>() / count);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xy += dx * dy;
        xx += dx * dx;
        yy += dy * dy;
    }
    if xx > 0.0 && yy > 0.0 {
        (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0)
    } else {
        0.0
    }
}

/// Returns Spearman's correlation: Pearson's correlation of the ranks.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    pearson(&ranks(x), &ranks(y))
}

/// Returns the Kolmogorov-Smirnov distance between two samples: the largest difference of their
/// distribution functions. Both are ascending lists of values with weights.
pub fn kolmogorov_smirnov(one: &[(f64, u32)], other: &[(f64, u32)]) -> f64 {
    let total = |sample: &[(f64, u32)]| {
        sample
            .iter()
            .map(|&(_, weight)| f64::from(weight))
            .sum::<f64>()
    };
    let (all_one, all_other) = (total(one), total(other));
    let (mut i, mut j, mut below_one, mut below_other, mut largest) = (0, 0, 0.0, 0.0, 0.0_f64);
    while i < one.len() && j < other.len() {
        let value = one[i].0.min(other[j].0);
        while i < one.len() && one[i].0 == value {
            below_one += f64::from(one[i].1);
            i += 1;
        }
        while j < other.len() && other[j].0 == value {
            below_other += f64::from(other[j].1);
            j += 1;
        }
        largest = largest.max((below_one / all_one - below_other / all_other).abs());
    }
    largest
}

/// Shuffles `values` in place (Fisher and Yates).
pub fn shuffle<T>(values: &mut [T], rng: &mut rand_chacha::ChaCha8Rng) {
    for at in (1..values.len()).rev() {
        values.swap(at, rng.random_range(0..=at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_scores_are_those_of_the_paper() {
        let scores = normal_scores(&[1.0, 2.0, 5.0, 8.0]);
        for (score, expected) in scores
            .iter()
            .zip([-0.841_621, -0.253_347, 0.253_347, 0.841_621])
        {
            assert!((score - expected).abs() < 1e-6, "{scores:?}");
        }
    }

    #[test]
    fn ties_share_their_rank() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 0.0, 5.0]), [4.0, 2.0, 4.0, 1.0, 4.0]);
    }

    #[test]
    fn constants_have_no_correlation() {
        assert_eq!(pearson(&[3.0, 3.0, 3.0], &[1.0, 2.0, 4.0]), 0.0);
        assert!(!standardize(&mut [0.1, 0.1, 0.1]));
    }

    #[test]
    fn distances_of_distributions() {
        assert_eq!(
            kolmogorov_smirnov(&[(1.0, 2), (2.0, 2)], &[(1.0, 1), (2.0, 1)]),
            0.0
        );
        assert_eq!(
            kolmogorov_smirnov(&[(1.0, 1), (2.0, 1)], &[(3.0, 1), (4.0, 1)]),
            1.0
        );
        assert_eq!(
            kolmogorov_smirnov(&[(1.0, 1), (1.0, 1), (2.0, 2)], &[(1.0, 1), (2.0, 3)]),
            0.25
        );
    }
}
