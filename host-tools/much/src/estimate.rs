//! Correlations of events pair by pair (section 4.3), and the scores from which all estimates are
//! made.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counts::Counts;
use crate::data::{Measurements, is_stepped};
use crate::matrix::pairs;
use crate::parallel;
use crate::scores;
use nalgebra::DMatrix;

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

/// Measurements as scores, each event scaled to mean 0 and variance 1 over all its runs. The scores
/// are computed from the counts; only the ranks are kept.
#[derive(Clone, Debug)]
pub struct Scored<'a> {
    data: &'a Measurements,
    /// Whether each event varies from run to run. An event that is always the same, or that differs
    /// only between sub-experiments, does not.
    pub varies: Vec<bool>,
    /// For each event what its scores are made of.
    made_of: Vec<Scoring>,
    /// For each sub-experiment and each of its events, where its runs begin in the event's grouped
    /// sample.
    starts: Vec<Vec<usize>>,
    kind: Kind,
}

/// How an event's scores are made.
#[derive(Clone, Debug)]
struct Scoring {
    /// Twice the ranks of the grouped sample, unless counts are scored; where the counts are in a
    /// file, they are too.
    ranks: Counts,
    mean: f64,
    deviation: f64,
}

impl<'a> Scored<'a> {
    /// Scores every event over its grouped sample.
    pub fn new(data: &'a Measurements, kind: Kind) -> Self {
        let of_event = |event: usize| {
            let grouped = data.grouped_counts(event);
            let ranks = if kind == Kind::Counts {
                vec![]
            } else {
                grouped.doubled_ranks()
            };
            let mut scores: Vec<f64> = match kind {
                Kind::Counts => grouped.to_vec(),
                Kind::Ranks => ranks.iter().map(|&rank| f64::from(rank) / 2.0).collect(),
                Kind::NormalScores => ranks
                    .iter()
                    .map(|&rank| normal_score(rank, ranks.len()))
                    .collect(),
            };
            let (mean, deviation) = scores::moments(&scores);
            let varies = scores::standardize(&mut scores) && !is_stepped(data, event, &scores);
            let ranks = ranks
                .into_iter()
                .map(f64::from)
                .collect::<Counts>()
                .stored(data.store());
            (
                Scoring {
                    ranks,
                    mean,
                    deviation,
                },
                varies,
            )
        };
        let (made_of, varies): (Vec<_>, Vec<_>) = parallel::of_each(data.events.len(), of_event)
            .into_iter()
            .unzip();
        let mut taken = vec![0; data.events.len()];
        let mut starts = vec![];
        for sub in &data.sub_experiments {
            let start = |&event: &usize| {
                taken[event] += sub.runs();
                taken[event] - sub.runs()
            };
            starts.push(sub.events.iter().map(start).collect());
        }
        Self {
            data,
            varies,
            made_of,
            starts,
            kind,
        }
    }

    /// The sub-experiments' events.
    pub fn blocks(&self) -> impl Iterator<Item = &'a [usize]> + use<'a> {
        self.data
            .sub_experiments
            .iter()
            .map(|sub| sub.events.as_slice())
    }

    /// Returns the scores of one event in the runs of a sub-experiment; `at` is the event's place
    /// among its events.
    pub fn column(&self, block: usize, at: usize) -> Vec<f64> {
        let sub = &self.data.sub_experiments[block];
        let event = sub.events[at];
        let made = &self.made_of[event];
        if made.deviation == 0.0 {
            return vec![0.0; sub.runs()];
        }
        let scaled = |score: f64| (score - made.mean) / made.deviation;
        let ranks = || made.ranks.range(self.starts[block][at], sub.runs());
        match self.kind {
            Kind::Counts => sub.columns[at].iter().map(scaled).collect(),
            Kind::Ranks => ranks().map(|rank| scaled(rank / 2.0)).collect(),
            Kind::NormalScores => ranks()
                .map(|rank| scaled(normal_score(rank as u32, made.ranks.len())))
                .collect(),
        }
    }
}

/// The normal score of a rank that is given twice.
fn normal_score(doubled: u32, count: usize) -> f64 {
    scores::normal_quantile(f64::from(doubled) / 2.0 / (count as f64 + 1.0))
}

/// Returns the number of runs that count both events of a pair; on the diagonal, the number that
/// count the event.
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

/// Returns pairwise estimates, pooled over the sub-experiments that share a pair. Ranks and normal
/// scores are those among the runs of the pair. A pair that was never counted together gets 0.
pub fn pairwise(data: &Measurements, kind: Kind) -> DMatrix<f64> {
    let scored = |values: Vec<f64>| match kind {
        Kind::Counts => values,
        Kind::Ranks => Counts::from(values)
            .doubled_ranks()
            .into_iter()
            .map(|doubled| f64::from(doubled) / 2.0)
            .collect(),
        Kind::NormalScores => scores::normal_scores(&values),
    };
    let blocks: Vec<&[usize]> = data
        .sub_experiments
        .iter()
        .map(|sub| sub.events.as_slice())
        .collect();
    of_pairs(
        data.events.len(),
        &blocks,
        &|block, at| data.sub_experiments[block].columns[at].to_vec(),
        &scored,
    )
}

/// Returns pairwise estimates from scores of the grouped samples: each pair's correlation over the
/// runs that count both.
pub fn pairwise_of_scores(scored: &Scored<'_>) -> DMatrix<f64> {
    let blocks: Vec<&[usize]> = scored.blocks().collect();
    of_pairs(
        scored.varies.len(),
        &blocks,
        &|block, at| scored.column(block, at),
        &|scores| scores,
    )
}

/// The correlation of each pair over all runs of the blocks that have both: of `column(block, place
/// of the event)`, put together and scored. Nearly every pair is in one block only, whose columns
/// are then scored once for all its pairs.
fn of_pairs(
    events: usize,
    blocks: &[&[usize]],
    column: &(dyn Fn(usize, usize) -> Vec<f64> + Sync),
    scored: &(dyn Fn(Vec<f64>) -> Vec<f64> + Sync),
) -> DMatrix<f64> {
    let mut homes = vec![vec![]; events * events];
    for (block, of_block) in blocks.iter().enumerate() {
        for (i, &a) in of_block.iter().enumerate() {
            for (j, &b) in of_block.iter().enumerate().skip(i + 1) {
                homes[a * events + b].push((block as u32, i as u32, j as u32));
            }
        }
    }
    let only_here = |block: usize| {
        let mut found = vec![];
        let mut columns: Vec<Option<Vec<f64>>> = vec![None; blocks[block].len()];
        for (i, &a) in blocks[block].iter().enumerate() {
            for (j, &b) in blocks[block].iter().enumerate().skip(i + 1) {
                if homes[a * events + b].len() == 1 {
                    for at in [i, j] {
                        columns[at].get_or_insert_with(|| scored(column(block, at)));
                    }
                    if let (Some(x), Some(y)) = (&columns[i], &columns[j]) {
                        found.push(((a, b), scores::pearson(x, y)));
                    }
                }
            }
        }
        found
    };
    let in_several = |&(a, b): &(usize, usize)| {
        let (mut x, mut y) = (vec![], vec![]);
        for &(block, i, j) in &homes[a * events + b] {
            x.append(&mut column(block as usize, i as usize));
            y.append(&mut column(block as usize, j as usize));
        }
        ((a, b), scores::pearson(&scored(x), &scored(y)))
    };
    let shared: Vec<_> = pairs(events)
        .into_iter()
        .filter(|&(a, b)| homes[a * events + b].len() > 1)
        .collect();
    let mut found = parallel::of_each(blocks.len(), only_here).concat();
    found.extend(parallel::of_all(&shared, in_several));
    let mut matrix = DMatrix::identity(events, events);
    for ((a, b), value) in found {
        matrix[(a, b)] = value;
        matrix[(b, a)] = value;
    }
    matrix
}
