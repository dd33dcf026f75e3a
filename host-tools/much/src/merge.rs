//! Merges all sub-experiments into vectors: MUCH (sections 4.3 and 4.4), the published method, HRM
//! (section 4.1), and the blind merge as a baseline.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counts::Counts;
use crate::data::{DataError, Measurements};
use crate::draw;
use crate::estimate::{self, Kind, Scored};
use crate::matrix::{self, Repaired, mean_square_error};
use crate::parallel;
use crate::swap::{self, Exchanges, Weights};
use crate::table::{Column, Vectors, quantile_index};
use crate::target::{self, Estimate};
use nalgebra::DMatrix;
use std::sync::Arc;

/// The correlations that merged vectors should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Both Pearson's and Spearman's.
    #[default]
    Both,
    /// Pearson's: those of the counts.
    Pearson,
    /// Spearman's: those of the ranks.
    Spearman,
}

/// Options of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of vectors; by default as many as the event with the most counts has.
    pub vectors: Option<usize>,
    /// Which correlations to approach.
    pub target: Target,
    /// Number of draws from which to take the best (section 4.4, step 4).
    pub draws: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            vectors: None,
            target: Target::Both,
            draws: 1,
        }
    }
}

/// Measured and target correlations, and how they were repaired.
#[derive(Clone, Debug)]
pub struct Correlations {
    /// Pearson's correlations of each pair, as measured.
    pub pearson_measured: DMatrix<f64>,
    /// Spearman's correlations of each pair, as measured.
    pub spearman_measured: DMatrix<f64>,
    /// Pearson's correlations that the vectors should have.
    pub pearson_target: DMatrix<f64>,
    /// Spearman's correlations that the vectors should have.
    pub spearman_target: DMatrix<f64>,
    /// The repair of the estimates of Pearson's and Spearman's correlations: pairs that were
    /// estimated one by one nearly always make an indefinite matrix. `None` by the paper's method,
    /// which has only the model's matrix.
    pub repairs: Option<[Repair; 2]>,
    /// The Gaussian model's matrix after its repair.
    pub model: Repaired,
    /// The ingredients of the estimates of Pearson's and Spearman's correlations; `None` by the
    /// paper's method.
    pub estimates: Option<[Estimate; 2]>,
}

/// How a matrix was repaired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repair {
    /// The smallest eigenvalue before the repair.
    pub least_eigenvalue: f64,
    /// The Frobenius distance between the matrices before and after.
    pub distance: f64,
}

impl From<&Repaired> for Repair {
    fn from(repaired: &Repaired) -> Self {
        Self {
            least_eigenvalue: repaired.least_eigenvalue,
            distance: repaired.distance,
        }
    }
}

/// The result of MUCH.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The merged vectors.
    pub vectors: Vectors,
    /// Estimates and targets.
    pub correlations: Correlations,
    /// The exchanges; `None` by the paper's method, which makes none.
    pub exchanges: Option<Exchanges>,
}

/// Largest change of an element in the last step of a repair.
const TOLERANCE: f64 = 1e-7;

/// Returns the correlations that the vectors should have, from all sub-experiments together.
pub fn targets(data: &Measurements) -> Correlations {
    let (pearson_measured, spearman_measured) = rayon::join(
        || estimate::pairwise(data, Kind::Counts),
        || estimate::pairwise(data, Kind::Ranks),
    );
    let (estimates, copula) = target::estimates(data);
    let repaired = |at: usize| matrix::nearest_correlation(&estimates[at].matrix, TOLERANCE);
    let (pearson, spearman) = rayon::join(|| repaired(0), || repaired(1));
    let repairs = Some([Repair::from(&pearson), Repair::from(&spearman)]);
    let (pearson_target, spearman_target) = (pearson.matrix, spearman.matrix);
    let model = matrix::nearest_correlation(&copula.of_ranks(&spearman_target), TOLERANCE);
    Correlations {
        pearson_measured,
        spearman_measured,
        pearson_target,
        spearman_target,
        repairs,
        model,
        estimates: Some(estimates),
    }
}

/// Merges by MUCH: estimates from all sub-experiments, a Gaussian draw, the observations in its
/// order, and exchanges of values toward the target.
///
/// Three events, two counters: each pair was counted together in 20 runs, and the merge puts all
/// three in one table.
///
/// ```
/// use cloison_much::data::Builder;
/// use cloison_much::merge::{Options, much};
///
/// let mut rows = Builder::default();
/// let pairs = [["cycles", "loads"], ["cycles", "refills"], ["loads", "refills"]];
/// for (number, pair) in pairs.iter().enumerate() {
///     for run in 0..20 {
///         for (index, event) in pair.iter().enumerate() {
///             let count = 1_000 + 10 * run + (run + index as u64) % 3;
///             rows.add(number as u64, run, None, event.as_bytes(), count as f64)?;
///         }
///     }
/// }
/// let merged = much(&rows.finish()?, &Options::default())?;
/// // All counts grow from run to run, so they do so together in the merged vectors.
/// assert!(merged.correlations.pearson_target[(1, 2)] > 0.99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn much(data: &Measurements, options: &Options) -> Result<Merged, DataError> {
    data.check_pairs()?;
    let correlations = targets(data);
    let goals = [&correlations.pearson_target, &correlations.spearman_target];
    let mut vectors = ordered(data, &correlations.model.matrix, options, true, goals);
    let weights = Weights {
        pearson: options.target != Target::Spearman,
        spearman: options.target != Target::Pearson,
    };
    let exchanges = swap::swap(&mut vectors, goals[0], goals[1], weights, options.seed);
    Ok(Merged {
        vectors,
        correlations,
        exchanges: Some(exchanges),
    })
}

/// The treatment of an indefinite matrix, which pairwise estimates nearly always make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indefinite {
    /// Take the nearest correlation matrix, unlike the paper.
    Repair,
    /// Refuse, since the paper's model is not defined then.
    Refuse,
}

/// Merges by the published method: pairwise correlations of the normal scores of the grouped sample
/// (section 4.3, equation 1), one plain draw or the best of several, the observations in its order.
pub fn paper(
    data: &Measurements,
    options: &Options,
    indefinite: Indefinite,
) -> Result<Merged, DataError> {
    data.check_pairs()?;
    let pearson_measured = estimate::pairwise(data, Kind::Counts);
    let spearman_measured = estimate::pairwise(data, Kind::Ranks);
    let scored = Scored::new(data, Kind::NormalScores);
    let model = matrix::nearest_correlation(&estimate::pairwise_of_scores(&scored), TOLERANCE);
    if indefinite == Indefinite::Refuse && model.distance > 0.0 {
        return Err(DataError::Indefinite(format!(
            "{:.4}",
            model.least_eigenvalue
        )));
    }
    let vectors = ordered(
        data,
        &model.matrix,
        options,
        false,
        [&pearson_measured, &spearman_measured],
    );
    let correlations = Correlations {
        pearson_target: pearson_measured.clone(),
        spearman_target: spearman_measured.clone(),
        pearson_measured,
        spearman_measured,
        repairs: None,
        model,
        estimates: None,
    };
    Ok(Merged {
        vectors,
        correlations,
        exchanges: None,
    })
}

/// Puts the observations into the order of the best draw (steps 3 to 5 of section 4.4).
fn ordered(
    data: &Measurements,
    model: &DMatrix<f64>,
    options: &Options,
    whiten: bool,
    goals: [&DMatrix<f64>; 2],
) -> Vectors {
    let counted = |event: usize| {
        data.sub_experiments
            .iter()
            .filter_map(|sub| sub.column(event))
            .map(Counts::len)
            .sum()
    };
    let most: usize = (0..data.events.len()).map(counted).max().unwrap_or(0);
    let vectors = options.vectors.unwrap_or(most).max(1);
    // Where there are fewer vectors than counts, only those that they get are kept.
    let of_event = |event: usize| {
        let all = data.sorted(event);
        if vectors >= all.len() {
            return Arc::new(all);
        }
        Arc::new(
            (0..vectors)
                .map(|rank| all.get(quantile_index(rank, vectors, all.len())))
                .collect(),
        )
    };
    let observed = parallel::of_each(data.events.len(), of_event);
    let order = |attempt: u64| {
        let ranks = draw::draw(model, vectors, whiten, options.seed, attempt);
        let columns = parallel::of_owned(ranks, |event, mut ranks| {
            let observed = &observed[event];
            for rank in &mut ranks {
                *rank = quantile_index(*rank as usize, vectors, observed.len()) as u32;
            }
            Column::new(Arc::clone(observed), ranks)
        });
        Vectors {
            events: data.events.clone(),
            columns,
        }
    };
    let mut best = order(0);
    let error = |vectors: &Vectors| {
        let [pearson, spearman] = vectors.correlations();
        mean_square_error(&pearson, goals[0]) + mean_square_error(&spearman, goals[1])
    };
    if options.draws > 1 {
        let mut least = error(&best);
        for attempt in 1..options.draws {
            let next = order(attempt);
            let of_next = error(&next);
            if of_next < least {
                (best, least) = (next, of_next);
            }
        }
    }
    best
}

/// Merges by HRM: sorts each sub-experiment's runs by the anchor and joins the runs of equal rank.
/// An event counted by several sub-experiments is taken from the first; the anchor's value is that
/// of its rank among all runs.
pub fn hrm(
    data: &Measurements,
    anchor: usize,
    vectors: Option<usize>,
) -> Result<Vectors, DataError> {
    data.check()?;
    let anchor_name = || data.events[anchor].name.clone();
    let mut columns: Vec<Option<Column>> = vec![None; data.events.len()];
    let used: Vec<_> = data
        .sub_experiments
        .iter()
        .filter(|sub| sub.column(anchor).is_some())
        .collect();
    let vectors = vectors
        .unwrap_or_else(|| used.iter().map(|sub| sub.runs()).max().unwrap_or(0))
        .max(1);
    for sub in &used {
        let order = sub.column(anchor).map_or_else(Vec::new, Counts::ascending);
        for (&event, values) in sub.events.iter().zip(&sub.columns) {
            if event == anchor || columns[event].is_some() {
                continue;
            }
            let of_rank =
                |rank| values.get(order[quantile_index(rank, vectors, order.len())] as usize);
            columns[event] = Some(Column::of_values(
                &(0..vectors).map(of_rank).collect::<Vec<_>>(),
            ));
        }
    }
    let all = data.sorted(anchor);
    if !all.is_empty() {
        let chosen = (0..vectors)
            .map(|rank| quantile_index(rank, vectors, all.len()) as u32)
            .collect();
        columns[anchor] = Some(Column::new(Arc::new(all), chosen));
    }
    let named = |(column, event): (Option<Column>, &crate::data::Event)| {
        column.ok_or_else(|| DataError::NotWithAnchor {
            event: event.name.clone(),
            anchor: anchor_name(),
        })
    };
    let columns = columns
        .into_iter()
        .zip(&data.events)
        .map(named)
        .collect::<Result<_, _>>()?;
    Ok(Vectors {
        events: data.events.clone(),
        columns,
    })
}

/// Merges blindly: joins the n-th runs of all sub-experiments. An event is taken from the first
/// sub-experiment that counts it.
pub fn blind(data: &Measurements) -> Result<Vectors, DataError> {
    data.check()?;
    let vectors = data
        .sub_experiments
        .iter()
        .map(|sub| sub.runs())
        .min()
        .unwrap_or(0);
    let first = |event: usize| {
        data.sub_experiments
            .iter()
            .find_map(|sub| sub.column(event))
    };
    let values = |event| {
        first(event).map_or_else(Vec::new, |column| {
            column.iter().take(vectors).collect::<Vec<_>>()
        })
    };
    let columns = (0..data.events.len())
        .map(|event| Column::of_values(&values(event)))
        .collect();
    Ok(Vectors {
        events: data.events.clone(),
        columns,
    })
}
