//! The correlation matrix of the Gaussian model in which what a sub-experiment does not count is missing, by EM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::matrix::symmetrize;
use nalgebra::{Cholesky, DMatrix};

/// Second moments of runs that count the same events, about the events' means and in units of their deviations.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Which events.
    pub events: Vec<usize>,
    /// How many runs.
    pub runs: f64,
    /// Means of products.
    pub moments: DMatrix<f64>,
}

/// A fit of the model.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Its correlations.
    pub matrix: DMatrix<f64>,
    /// Steps that were made.
    pub steps: usize,
    /// Whether the optimum was reached; otherwise the fit ended at the most steps that it makes.
    pub converged: bool,
}

/// Steps at most. With a prior, some tens are made.
const MOST_STEPS: usize = 2000;
/// The gain in log-likelihood per run below which the optimum is reached.
const LEAST_GAIN: f64 = 1e-9;

/// Fits the model to blocks of runs.
///
/// Nearly every pair is seen by one block only, so that the likelihood alone is greatest at a singular matrix: the more one
/// climbs it, the worse the estimate becomes. A prior of `prior` runs in which the events vary independently (the unit matrix as
/// their moments) gives it a proper optimum.
///
/// With Σ the current estimate, and S_b the moments of a block's events b, EM's step is Σ + Σ M Σ, where M is the sum over blocks
/// of their share of runs times Σ_bb⁻¹ (S_bb − Σ_bb) Σ_bb⁻¹, put at the places of b. So much is missing that plain steps would
/// creep: they are lengthened as long as the likelihood grows.
pub fn fit(blocks: &[Moments], prior: f64, start: &DMatrix<f64>) -> Fit {
    let size = start.nrows();
    let mut varies = vec![false; size];
    blocks.iter().flat_map(|block| &block.events).for_each(|&event| varies[event] = true);
    let varying: Vec<_> = (0..size).filter(|&event| varies[event]).collect();
    let mut all = blocks.to_vec();
    all.push(Moments { moments: DMatrix::identity(varying.len(), varying.len()), events: varying, runs: prior });
    let runs: f64 = all.iter().map(|block| block.runs).sum();
    let mut sigma = start.clone();
    let Some((mut likelihood, mut gradient)) = likelihood(&sigma, &all, runs) else {
        return Fit { matrix: DMatrix::identity(size, size), steps: 0, converged: false };
    };
    let (mut length, mut converged, mut steps) = (1.0_f64, false, 0);
    while steps < MOST_STEPS && !converged {
        steps += 1;
        let step = &sigma * &gradient * &sigma;
        let mut gain = 0.0;
        while length > 1e-6 {
            let mut next = &sigma + &step * length;
            symmetrize(&mut next);
            if let Some((grown, slope)) = self::likelihood(&next, &all, runs)
                && grown >= likelihood
            {
                gain = grown - likelihood;
                (sigma, likelihood, gradient) = (next, grown, slope);
                break;
            }
            // EM's own step never lowers the likelihood, but for rounding.
            length = if length > 1.0 { (length / 2.0).max(1.0) } else { length / 2.0 };
        }
        converged = gain <= LEAST_GAIN;
        length *= 1.3;
    }
    Fit { matrix: to_correlation(&sigma), steps, converged }
}

/// The log-likelihood per run, less a constant and twice over, and M; `None` where the matrix is not positive definite.
fn likelihood(sigma: &DMatrix<f64>, blocks: &[Moments], runs: f64) -> Option<(f64, DMatrix<f64>)> {
    let mut total = 0.0;
    let mut gradient = DMatrix::zeros(sigma.nrows(), sigma.nrows());
    for block in blocks {
        let share = block.runs / runs;
        let part =
            DMatrix::from_fn(block.events.len(), block.events.len(), |i, j| sigma[(block.events[i], block.events[j])]);
        let factor = Cholesky::new(part)?;
        let log_determinant = 2.0 * factor.l_dirty().diagonal().iter().map(|v| v.ln()).sum::<f64>();
        let inverse = factor.inverse();
        let half = &inverse * &block.moments;
        total -= share * (log_determinant + half.trace());
        let term = (half * &inverse - inverse) * share;
        for (i, &a) in block.events.iter().enumerate() {
            for (j, &b) in block.events.iter().enumerate() {
                gradient[(a, b)] += term[(i, j)];
            }
        }
    }
    Some((total, gradient))
}

fn to_correlation(covariance: &DMatrix<f64>) -> DMatrix<f64> {
    let size = covariance.nrows();
    let deviation: Vec<_> = (0..size).map(|at| covariance[(at, at)].sqrt()).collect();
    let mut matrix = DMatrix::from_fn(size, size, |a, b| covariance[(a, b)] / (deviation[a] * deviation[b]));
    matrix.fill_diagonal(1.0);
    matrix
}
