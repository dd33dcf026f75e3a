//! Estimates the correlations of all events from sub-experiments that each count only a few.
//!
//! There are three kinds of estimate. *Pairwise* (section 4.3, step 2): each pair from the runs that count both.
//! *Pooled*: a Gaussian model, fitted by EM, in which the events that a sub-experiment does not count are missing data,
//! so that every correlation of an event uses what all sub-experiments say about that event. *Combined*: the pooled
//! estimate, shrunk toward the pairwise one by how much the two differ beyond what the small number of runs explains.

use crate::data::Measurements;
use crate::matrix::{pairs, symmetrize};
use crate::scores;
use nalgebra::{Cholesky, DMatrix};
use rayon::prelude::*;

/// The values that are correlated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The counts themselves: Pearson's correlation.
    Counts,
    /// Their ranks: Spearman's correlation.
    Ranks,
    /// Their normal scores (equation 1).
    NormalScores,
}

/// Measurements as scores, each event scaled to mean 0 and variance 1 over all its runs.
#[derive(Clone, Debug)]
pub struct Scored {
    events: usize,
    /// Which events vary from run to run. Excludes constant events and events that only vary from one sub-experiment to
    /// another.
    pub varies: Vec<bool>,
    /// For each sub-experiment its events and, for each event, the scores of its runs.
    blocks: Vec<(Vec<usize>, Vec<Vec<f64>>)>,
}

impl Scored {
    /// Scores every event over its grouped sample.
    pub fn new(data: &Measurements, kind: Kind) -> Self {
        let of_event = |event: usize| {
            let grouped = data.grouped(event);
            let mut scores = match kind {
                Kind::Counts => grouped,
                Kind::Ranks => scores::ranks(&grouped),
                Kind::NormalScores => scores::normal_scores(&grouped),
            };
            let varies = scores::standardize(&mut scores) && !is_stepped(data, event, &scores);
            (scores, varies)
        };
        let (scores, varies): (Vec<_>, Vec<_>) = (0..data.events.len()).into_par_iter().map(of_event).unzip();
        let mut taken = vec![0; data.events.len()];
        let mut blocks = vec![];
        for sub in &data.sub_experiments {
            let mut columns = vec![];
            for &event in &sub.events {
                let from = taken[event];
                taken[event] += sub.runs();
                columns.push(scores[event][from..taken[event]].to_vec());
            }
            blocks.push((sub.events.clone(), columns));
        }
        Self { events: data.events.len(), varies, blocks }
    }
}

/// Minimum share of an event's variance within sub-experiments. If runs are comparable, the share is nearly 1.
const LEAST_WITHIN: f64 = 0.05;

/// Returns whether an event's grouped values, or scores of them, vary between sub-experiments but hardly within them. A
/// sub-experiment is then worth only one run, and correlations with other events are due to chance.
pub fn is_stepped(data: &Measurements, event: usize, grouped: &[f64]) -> bool {
    let around = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let mut rest = grouped;
    let (mut within, mut steps) = (0.0, 0);
    for sub in data.sub_experiments.iter().filter(|sub| sub.column(event).is_some()) {
        let (part, others) = rest.split_at(sub.runs());
        within += around(part);
        rest = others;
        steps += 1;
    }
    let all = around(grouped);
    steps > 1 && all > 0.0 && within < LEAST_WITHIN * all
}

/// Returns how many runs count both events of each pair; on the diagonal, how many count the event.
pub fn runs_of_pairs(data: &Measurements) -> DMatrix<f64> {
    let mut runs = DMatrix::zeros(data.events.len(), data.events.len());
    for sub in &data.sub_experiments {
        for &a in &sub.events {
            for &b in &sub.events {
                runs[(a, b)] += sub.runs() as f64;
            }
        }
    }
    runs
}

/// Returns pairwise estimates, pooled over the sub-experiments that share a pair. Ranks and normal scores are those
/// among the runs of the pair. A pair that was never counted together gets 0.
pub fn pairwise(data: &Measurements, kind: Kind) -> DMatrix<f64> {
    let events = data.events.len();
    let of_pair = |&(a, b): &(usize, usize)| {
        let (mut x, mut y) = (vec![], vec![]);
        for sub in &data.sub_experiments {
            if let (Some(of_a), Some(of_b)) = (sub.column(a), sub.column(b)) {
                x.extend_from_slice(of_a);
                y.extend_from_slice(of_b);
            }
        }
        match kind {
            _ if x.is_empty() => 0.0,
            Kind::Counts => scores::pearson(&x, &y),
            Kind::Ranks => scores::spearman(&x, &y),
            Kind::NormalScores => scores::pearson(&scores::normal_scores(&x), &scores::normal_scores(&y)),
        }
    };
    let pairs = pairs(events);
    let values: Vec<f64> = pairs.par_iter().map(of_pair).collect();
    let mut matrix = DMatrix::identity(events, events);
    for ((a, b), value) in pairs.into_iter().zip(values) {
        matrix[(a, b)] = value;
        matrix[(b, a)] = value;
    }
    matrix
}

/// Second moments of the runs that count the same events.
struct Moments {
    events: Vec<usize>,
    share: f64,
    moments: DMatrix<f64>,
}

/// Share of the unit matrix that is mixed into a sub-experiment's moments, so that two perfectly correlated events do
/// not make the likelihood unbounded.
const RIDGE: f64 = 1e-5;
/// Maximum number of EM steps, and the gain in log-likelihood per run at which EM stops.
const EM_STEPS: usize = 600;
const EM_GAIN: f64 = 1e-8;

/// Returns the correlation matrix of the Gaussian model in which a sub-experiment's other events are missing at random,
/// by EM.
///
/// With Σ the current estimate and S_b the moments of a sub-experiment's events b, EM's step is Σ + Σ M Σ. M is the sum
/// over sub-experiments of their share of runs times Σ_bb⁻¹ (S_bb − Σ_bb) Σ_bb⁻¹, placed at the indices b. So much data
/// is missing that plain steps would converge very slowly, so they are lengthened as long as the likelihood grows.
pub fn pooled(scored: &Scored) -> DMatrix<f64> {
    let size = scored.events;
    let blocks = moments(scored);
    let mut sigma = DMatrix::identity(size, size);
    let Some((mut likelihood, mut gradient)) = likelihood(&sigma, &blocks) else { return sigma };
    let mut length = 1.0;
    for _ in 0..EM_STEPS {
        let step = &sigma * &gradient * &sigma;
        let mut gain = None;
        while length > 1e-6 {
            let mut next = &sigma + &step * length;
            symmetrize(&mut next);
            if let Some((grown, slope)) = self::likelihood(&next, &blocks)
                && grown >= likelihood
            {
                gain = Some(grown - likelihood);
                (sigma, likelihood, gradient) = (next, grown, slope);
                break;
            }
            // EM's plain step never lowers the likelihood, except by rounding.
            length = if length > 1.0 { (length / 2.0).max(1.0) } else { length / 2.0 };
        }
        match gain {
            Some(gain) if gain > EM_GAIN => length *= 1.3,
            _ => break,
        }
    }
    to_correlation(&sigma)
}

fn moments(scored: &Scored) -> Vec<Moments> {
    let all: usize = scored.blocks.iter().map(|(_, columns)| columns.first().map_or(0, Vec::len)).sum();
    let of_block = |(events, columns): &(Vec<usize>, Vec<Vec<f64>>)| {
        let chosen: Vec<_> = (0..events.len()).filter(|&at| scored.varies[events[at]]).collect();
        let runs = columns.first().map_or(0, Vec::len);
        let mut moments = DMatrix::zeros(chosen.len(), chosen.len());
        for (i, &a) in chosen.iter().enumerate() {
            for (j, &b) in chosen.iter().enumerate().take(i + 1) {
                let product: f64 = columns[a].iter().zip(&columns[b]).map(|(x, y)| x * y).sum();
                moments[(i, j)] = product / runs as f64 * (1.0 - RIDGE) + if i == j { RIDGE } else { 0.0 };
                moments[(j, i)] = moments[(i, j)];
            }
        }
        let events = chosen.iter().map(|&at| events[at]).collect();
        Moments { events, share: runs as f64 / all as f64, moments }
    };
    scored.blocks.par_iter().map(of_block).filter(|block| !block.events.is_empty()).collect()
}

/// Returns twice the log-likelihood per run without its constant, and M; `None` if the matrix is not positive definite.
fn likelihood(sigma: &DMatrix<f64>, blocks: &[Moments]) -> Option<(f64, DMatrix<f64>)> {
    Cholesky::new(sigma.clone())?;
    let mut total = 0.0;
    let mut gradient = DMatrix::zeros(sigma.nrows(), sigma.nrows());
    for block in blocks {
        let part =
            DMatrix::from_fn(block.events.len(), block.events.len(), |i, j| sigma[(block.events[i], block.events[j])]);
        let factor = Cholesky::new(part)?;
        let log_determinant = 2.0 * factor.l_dirty().diagonal().iter().map(|v| v.ln()).sum::<f64>();
        let inverse = factor.inverse();
        let half = &inverse * &block.moments;
        total -= block.share * (log_determinant + half.trace());
        let term = (half * &inverse - inverse) * block.share;
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

/// A combined estimate.
#[derive(Clone, Debug)]
pub struct Combined {
    /// The estimated correlations.
    pub matrix: DMatrix<f64>,
    /// Estimated mean square difference between the truth and the pooled estimate, beyond chance.
    pub misfit: f64,
}

/// Shrinks the pooled estimate toward the pairwise one (empirical Bayes). The sampling variance of a pair is (1 − ρ²)²
/// / n. Any mean difference between the two beyond that is attributed to misfit of the model, and each pair moves by
/// misfit / (misfit + variance). Pairs with an event that does not vary stay uncorrelated.
pub fn combined(pairwise: &DMatrix<f64>, pooled: &DMatrix<f64>, runs: &DMatrix<f64>, varies: &[bool]) -> Combined {
    let pairs = pairs(pairwise.nrows());
    let variance = |a: usize, b: usize| (1.0 - pooled[(a, b)].powi(2)).powi(2) / runs[(a, b)].max(1.0);
    let excess = |&(a, b): &(usize, usize)| (pairwise[(a, b)] - pooled[(a, b)]).powi(2) - variance(a, b);
    let known: Vec<_> = pairs.into_iter().filter(|&(a, b)| runs[(a, b)] > 0.0 && varies[a] && varies[b]).collect();
    let misfit = (known.iter().map(excess).sum::<f64>() / known.len().max(1) as f64).max(0.0);
    let mut matrix = pooled.clone();
    for (a, b) in known {
        let total = misfit + variance(a, b);
        let weight = if total > 0.0 { misfit / total } else { 0.0 };
        let value = pooled[(a, b)] + weight * (pairwise[(a, b)] - pooled[(a, b)]);
        matrix[(a, b)] = value;
        matrix[(b, a)] = value;
    }
    Combined { matrix, misfit }
}
