//! A Gaussian copula's correlations: from the ranks' to the model's, and from the model's to the
//! counts'.
//!
//! An event's counts are a function of a normal variable: the function that maps the normal's
//! quantiles to the counts'. Its Hermite coefficients a₁, a₂, … give the covariance of two such
//! functions of normal variables with the correlation ρ: Σ a_k b_k ρᵏ (F. G. Mehler, J. reine
//! angew. Math. 66, 1866). This also holds for counts with many equal values.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parallel;
use crate::scores::normal_quantile;
use nalgebra::DMatrix;

/// Coefficients that are computed. What they miss of the variance is accounted for by
/// [`Series::correlation`].
const TERMS: usize = 40;
/// Steps of the bisection: more than a double resolves.
const STEPS: usize = 50;
/// Steps of the staircase that are taken one by one at either end, and how many parts those between
/// are put together to.
const ENDS: usize = 1024;
const MIDDLE: usize = 8192;
/// The strongest correlation of the model: at 1, two of its events would be one.
const STRONGEST: f64 = 0.999_99;

/// The Hermite coefficients of a function of a normal variable, scaled to variance 1; all 0 where
/// it is constant.
#[derive(Clone, Debug)]
struct Series {
    coefficients: [f64; TERMS],
    /// The variance of what is not computed.
    rest: f64,
}

impl Series {
    /// Of the function that takes a normal variable to these values with its quantiles. They
    /// ascend.
    fn new(ascending: &[f64]) -> Self {
        let count = ascending.len() as f64;
        let mean = ascending.iter().sum::<f64>() / count;
        let variance = ascending
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / count;
        let mut coefficients = [0.0; TERMS];
        if variance <= (mean * 1e-14).powi(2) {
            return Self {
                coefficients,
                rest: 0.0,
            };
        }
        // The function is a staircase: each step at z adds its height times φ(z) h_{k−1}(z) / √k,
        // where h are the Hermite polynomials of unit norm.
        // Where there are very many, neighbors are put together: they are at nearly the same z.
        let together = (ascending.len() / MIDDLE).max(1);
        let roots: [f64; TERMS + 1] = std::array::from_fn(|order| (order as f64).sqrt());
        let mut at = 0;
        while at + 1 < ascending.len() {
            let in_the_middle = at >= ENDS && at + together + ENDS < ascending.len();
            let next = at + if in_the_middle { together } else { 1 };
            let height = (ascending[next] - ascending[at]) / variance.sqrt();
            let from = f64::midpoint(at as f64 + 1.0, next as f64);
            at = next;
            if height == 0.0 {
                continue;
            }
            let z = normal_quantile(from / count);
            let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
            let (mut before, mut polynomial) = (0.0, 1.0);
            for (order, coefficient) in coefficients.iter_mut().enumerate() {
                *coefficient += height * density * polynomial / roots[order + 1];
                (before, polynomial) = (
                    polynomial,
                    (z * polynomial - roots[order] * before) / roots[order + 1],
                );
            }
        }
        let rest = (1.0 - coefficients.iter().map(|a| a * a).sum::<f64>()).max(0.0);
        Self { coefficients, rest }
    }

    /// The correlation of two functions of normal variables that have the correlation `rho`.
    fn correlation(&self, other: &Self, rho: f64) -> f64 {
        let (mut power, mut sum) = (1.0, 0.0);
        let (mut of_both, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
        for (order, (a, b)) in self
            .coefficients
            .iter()
            .zip(&other.coefficients)
            .enumerate()
        {
            power *= rho;
            sum += a * b * power;
            if order >= TERMS / 2 {
                of_both += if rho < 0.0 && order % 2 == 0 {
                    -a * b
                } else {
                    a * b
                };
                of_one += a * a;
                of_other += b * b;
            }
        }
        // The rest agrees as much as the last half of the coefficients do.
        let alike = if of_one > 0.0 && of_other > 0.0 {
            of_both / (of_one * of_other).sqrt()
        } else {
            0.0
        };
        sum + alike * (self.rest * other.rest).sqrt() * power.abs() * rho.abs()
    }

    /// The correlation of the normal variables with which the functions have the correlation
    /// `wanted`.
    fn inverse(&self, other: &Self, wanted: f64) -> f64 {
        let (mut low, mut high) = (-STRONGEST, STRONGEST);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            if self.correlation(other, middle) < wanted {
                low = middle
            } else {
                high = middle
            }
        }
        f64::midpoint(low, high)
    }
}

/// A Gaussian copula with the marginal distributions that were observed.
#[derive(Clone, Debug)]
pub struct Copula {
    counts: Vec<Series>,
    ranks: Vec<Series>,
}

/// An event's counts and their ranks as functions of a normal variable.
#[derive(Clone, Debug)]
pub struct Marginal {
    counts: Series,
    ranks: Series,
}

impl Marginal {
    /// Creates it from observed counts, ascending, and their ranks in any unit.
    pub fn new(counts: &[f64], ranks: &[f64]) -> Self {
        Self {
            counts: Series::new(counts),
            ranks: Series::new(ranks),
        }
    }
}

impl Copula {
    /// Creates a copula from the marginal distribution of each event.
    pub fn new(marginals: Vec<Marginal>) -> Self {
        let (counts, ranks) = marginals
            .into_iter()
            .map(|marginal| (marginal.counts, marginal.ranks))
            .unzip();
        Self { counts, ranks }
    }
    /// Returns the model's correlations for which the ranks have the correlations `spearman`.
    pub fn of_ranks(&self, spearman: &DMatrix<f64>) -> DMatrix<f64> {
        map(spearman, |a, b, value| {
            self.ranks[a].inverse(&self.ranks[b], value)
        })
    }
    /// Returns the counts' correlations for the model's correlations `gaussian`.
    pub fn of_counts(&self, gaussian: &DMatrix<f64>) -> DMatrix<f64> {
        map(gaussian, |a, b, value| {
            self.counts[a].correlation(&self.counts[b], value)
        })
    }
}

fn map(matrix: &DMatrix<f64>, of: impl Fn(usize, usize, f64) -> f64 + Sync) -> DMatrix<f64> {
    let pairs = crate::matrix::pairs(matrix.nrows());
    let values = parallel::of_all(&pairs, |&(a, b)| of(a, b, matrix[(a, b)]));
    let mut mapped = DMatrix::identity(matrix.nrows(), matrix.nrows());
    for ((a, b), value) in pairs.into_iter().zip(values) {
        (mapped[(a, b)], mapped[(b, a)]) = (value, value);
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::ranks;

    fn copula(columns: [fn(f64) -> f64; 2]) -> Copula {
        let observed = columns.map(|of| {
            let counts: Vec<f64> = (0..20_000)
                .map(|at| of(normal_quantile((f64::from(at) + 0.5) / 20_000.0)))
                .collect();
            let ranks = ranks(&counts);
            Marginal::new(&counts, &ranks)
        });
        Copula::new(observed.to_vec())
    }

    #[test]
    fn lognormal_counts_have_the_correlations_of_the_textbook() {
        let copula = copula([f64::exp, |z| (0.5 * z).exp()]);
        for rho in [-0.9, -0.3, 0.0, 0.5, 0.95] {
            let given = DMatrix::from_row_slice(2, 2, &[1.0, rho, rho, 1.0]);
            let of_counts = copula.of_counts(&given)[(0, 1)];
            let expected =
                ((0.5 * rho).exp() - 1.0) / ((1.0_f64.exp() - 1.0) * (0.25_f64.exp() - 1.0)).sqrt();
            assert!(
                (of_counts - expected).abs() < 0.01,
                "{rho}: {of_counts}, expected {expected}"
            );
        }
    }

    /// Returns the correlation of two normal variables whose ranks have the correlation `rho`: 2 sin(π
    /// ρ / 6).
    fn gaussian_of_spearman(rho: f64) -> f64 {
        2.0 * (std::f64::consts::PI * rho / 6.0).sin()
    }

    #[test]
    fn spearman_to_gaussian() {
        assert!((gaussian_of_spearman(0.5) - 0.517_638_090_205).abs() < 1e-12);
        assert_eq!(
            (gaussian_of_spearman(0.0), gaussian_of_spearman(1.0).round()),
            (0.0, 1.0)
        );
    }

    #[test]
    fn ranks_of_continuous_counts_follow_the_sine() {
        let copula = copula([f64::exp, |z| z]);
        for spearman in [-0.8, 0.1, 0.7] {
            let given = DMatrix::from_row_slice(2, 2, &[1.0, spearman, spearman, 1.0]);
            let expected = gaussian_of_spearman(spearman);
            assert!((copula.of_ranks(&given)[(0, 1)] - expected).abs() < 1e-3);
        }
    }

    #[test]
    fn many_equal_counts_need_a_stronger_model() {
        // 70 % zeros: the ranks' correlation is weaker than the sine's formula says.
        let copula = copula([|z| (z - 0.524_4).max(0.0), |z| (z - 0.524_4).max(0.0)]);
        let given = DMatrix::from_row_slice(2, 2, &[1.0, 0.4, 0.4, 1.0]);
        let model = copula.of_ranks(&given);
        assert!(model[(0, 1)] > gaussian_of_spearman(0.4) + 0.05, "{model}");
        // The same counts go together entirely where the model does.
        let whole = copula.of_counts(&DMatrix::from_element(2, 2, 1.0));
        assert!((whole[(0, 1)] - 1.0).abs() < 1e-6, "{whole}");
    }
}
