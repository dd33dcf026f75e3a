//! Correlations of events pair by pair, and the scores that they are taken of.
//!
//! The pairwise estimates of section 4.3, and the scores from which all estimates are made.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{Measurements, is_stepped};
use crate::matrix::pairs;
use crate::scores;
use nalgebra::DMatrix;
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
    /// Which events vary from run to run: not those that are always the same, nor those that differ from one
    /// sub-experiment to another only.
    pub varies: Vec<bool>,
    /// For each sub-experiment its events and, event by event, the scores of its runs.
    pub blocks: Vec<(Vec<usize>, Vec<Vec<f64>>)>,
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
        Self { varies, blocks }
    }
}

/// How many runs count both events of a pair; on the diagonal, how many count the event.
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
    symmetric(events, of_pair)
}

/// Pairwise estimates from scores of the grouped samples: each pair's correlation over the runs that count both.
pub fn pairwise_of_scores(scored: &Scored) -> DMatrix<f64> {
    let events = scored.varies.len();
    let of_pair = |&(a, b): &(usize, usize)| {
        let (mut x, mut y) = (vec![], vec![]);
        for (events, columns) in &scored.blocks {
            if let (Ok(of_a), Ok(of_b)) = (events.binary_search(&a), events.binary_search(&b)) {
                x.extend_from_slice(&columns[of_a]);
                y.extend_from_slice(&columns[of_b]);
            }
        }
        if x.is_empty() { 0.0 } else { scores::pearson(&x, &y) }
    };
    symmetric(events, of_pair)
}

/// A matrix with ones on the diagonal, from a function of its pairs.
fn symmetric(events: usize, of_pair: impl Fn(&(usize, usize)) -> f64 + Sync + Send) -> DMatrix<f64> {
    let pairs = pairs(events);
    let values: Vec<f64> = pairs.par_iter().map(of_pair).collect();
    let mut matrix = DMatrix::identity(events, events);
    for ((a, b), value) in pairs.into_iter().zip(values) {
        matrix[(a, b)] = value;
        matrix[(b, a)] = value;
    }
    matrix
}
