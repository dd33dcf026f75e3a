//! The correlation matrix of the Gaussian model, by EM. The events that a sub-experiment does not
//! count are missing data.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::matrix::symmetrize;
use nalgebra::{Cholesky, DMatrix};

/// Second moments of runs that count the same events, about the events' means and in units of their
/// deviations.
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
    /// Whether the optimum was reached; otherwise the fit ended at its maximum number of steps.
    pub converged: bool,
}

/// Steps at most. With a prior, some tens are made.
const MOST_STEPS: usize = 2000;
/// The gain in log-likelihood per run below which the optimum is reached.
const LEAST_GAIN: f64 = 1e-9;
/// The same of so many runs that this is less than a thousandth of what chance makes of it.
const LEAST_GAIN_OF_MANY: f64 = 1e-8;
const MANY_RUNS: f64 = 1e5;

/// Fits the model to blocks of runs.
///
/// Nearly every pair is seen by one block only, so that the likelihood alone is greatest at a
/// singular matrix: the more one climbs it, the worse the estimate becomes. A prior of `prior` runs
/// in which the events vary independently (the unit matrix as their moments) gives it a proper
/// optimum.
///
/// With Σ the current estimate, and S_b the moments of a block's events b, EM's step is Σ + Σ M Σ,
/// where M is the sum over blocks of their share of runs times Σ_bb⁻¹ (S_bb − Σ_bb) Σ_bb⁻¹, put at
/// the places of b. So much is missing that plain steps would creep. M is the likelihood's
/// gradient, so they are made conjugate (M. Jamshidian, R. I. Jennrich, "Conjugate gradient
/// acceleration of the EM algorithm", JASA 88, 1993), as long as the likelihood allows.
pub fn fit(blocks: &[Moments], prior: f64, start: &DMatrix<f64>) -> Fit {
    let size = start.nrows();
    let mut varies = vec![false; size];
    blocks
        .iter()
        .flat_map(|block| &block.events)
        .for_each(|&event| varies[event] = true);
    let varying: Vec<_> = (0..size).filter(|&event| varies[event]).collect();
    let runs = blocks.iter().map(|block| block.runs).sum::<f64>() + prior;
    let least_gain = if runs < MANY_RUNS {
        LEAST_GAIN
    } else {
        LEAST_GAIN_OF_MANY
    };
    let all = Blocks {
        measured: blocks,
        prior: &varying,
        prior_runs: prior,
        runs,
    };
    let mut sigma = start.clone();
    let Some((mut likelihood, mut gradient)) = likelihood(&sigma, &all) else {
        return Fit {
            matrix: DMatrix::identity(size, size),
            steps: 0,
            converged: false,
        };
    };
    let (mut length, mut converged, mut steps) = (1.0_f64, false, 0);
    // The step before: EM's own with its slope, and the conjugate one.
    let mut before: Option<(DMatrix<f64>, f64, DMatrix<f64>)> = None;
    while steps < MOST_STEPS && !converged {
        steps += 1;
        let own = &sigma * &gradient * &sigma;
        let slope = gradient.dot(&own);
        let mut step = own.clone();
        if let Some((own_before, slope_before, step_before)) = &before {
            step += step_before * ((slope - gradient.dot(own_before)) / slope_before).max(0.0);
        }
        let mut steepness = gradient.dot(&step);
        let mut is_own = before.is_none() || steepness <= 0.0;
        if steepness <= 0.0 {
            (step, steepness) = (own.clone(), slope);
        }
        let mut gain = 0.0;
        loop {
            let mut next = &sigma + &step * length;
            symmetrize(&mut next);
            if let Some((grown, of_next)) = self::likelihood(&next, &all)
                && grown >= likelihood
            {
                gain = grown - likelihood;
                (sigma, likelihood, gradient) = (next, grown, of_next);
                // Where the slope along the step would be none: about as far as the next one should
                // go.
                let flatter = steepness - gradient.dot(&step);
                length *= if flatter > 0.0 {
                    (steepness / flatter).clamp(0.5, 2.0)
                } else {
                    2.0
                };
                break;
            }
            length /= 2.0;
            if length < 1e-3 && !is_own {
                (step, steepness, length, is_own) = (own.clone(), slope, 1.0, true);
            }
            // EM's own step never lowers the likelihood by more than rounding does.
            if length < 1e-6 {
                break;
            }
        }
        // A step that gains nothing may have been a bad one: EM's own decides.
        converged = gain <= least_gain && is_own;
        before = (gain > least_gain).then_some((own, slope, step));
    }
    Fit {
        matrix: to_correlation(&sigma),
        steps,
        converged,
    }
}

/// What the likelihood is of.
struct Blocks<'a> {
    measured: &'a [Moments],
    /// The events of the prior, and how many runs it is worth.
    prior: &'a [usize],
    prior_runs: f64,
    /// Runs in all, with the prior's.
    runs: f64,
}

/// The log-likelihood per run, less a constant and twice over, and M; `None` where the matrix is
/// not positive definite.
fn likelihood(sigma: &DMatrix<f64>, blocks: &Blocks<'_>) -> Option<(f64, DMatrix<f64>)> {
    let mut total = 0.0;
    let mut gradient = DMatrix::zeros(sigma.nrows(), sigma.nrows());
    let mut add = |events: &[usize], runs: f64, moments: Option<&DMatrix<f64>>| {
        let share = runs / blocks.runs;
        let factor = Cholesky::new(DMatrix::from_fn(events.len(), events.len(), |i, j| {
            sigma[(events[i], events[j])]
        }))?;
        let log_determinant = 2.0
            * factor
                .l_dirty()
                .diagonal()
                .iter()
                .map(|v| v.ln())
                .sum::<f64>();
        let lower = factor
            .l()
            .solve_lower_triangular(&DMatrix::identity(events.len(), events.len()))?;
        let inverse = lower.tr_mul(&lower);
        // The prior's moments are the unit matrix.
        let trace = moments.map_or_else(|| inverse.trace(), |moments| inverse.dot(moments));
        total -= share * (log_determinant + trace);
        let square = match moments {
            Some(moments) => &inverse * moments * &inverse,
            None => &inverse * &inverse,
        };
        let term = (square - inverse) * share;
        for (i, &a) in events.iter().enumerate() {
            for (j, &b) in events.iter().enumerate() {
                gradient[(a, b)] += term[(i, j)];
            }
        }
        Some(())
    };
    for block in blocks.measured {
        add(&block.events, block.runs, Some(&block.moments))?;
    }
    add(blocks.prior, blocks.prior_runs, None)?;
    Some((total, gradient))
}

fn to_correlation(covariance: &DMatrix<f64>) -> DMatrix<f64> {
    let size = covariance.nrows();
    let deviation: Vec<_> = (0..size).map(|at| covariance[(at, at)].sqrt()).collect();
    let mut matrix = DMatrix::from_fn(size, size, |a, b| {
        covariance[(a, b)] / (deviation[a] * deviation[b])
    });
    matrix.fill_diagonal(1.0);
    matrix
}
