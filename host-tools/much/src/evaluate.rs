//! Compares the correlations of merged vectors with the measured ones (sections 5.2 and 5.3).

use crate::data::{DataError, Measurements};
use crate::draw::stream;
use crate::estimate::{self, Kind};
use crate::matrix::{mean_square_error, pairs};
use crate::merge::{self, Options, Target};
use crate::scores;
use crate::table::Vectors;
use nalgebra::DMatrix;
use rand::RngExt;
use rayon::prelude::*;

/// Pearson's and Spearman's correlations of all pairs, in this order.
pub type Both = [DMatrix<f64>; 2];

/// Returns the correlations of each pair as measured: the reference (section 5.2).
pub fn reference(data: &Measurements) -> Both {
    [estimate::pairwise(data, Kind::Counts), estimate::pairwise(data, Kind::Ranks)]
}

/// Errors of one kind of correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// The error of each pair, in the order of [`pairs`].
    pub errors: Vec<f64>,
    /// Mean square of the errors.
    pub mean_square: f64,
    /// The pair with the largest error.
    pub worst: (usize, usize),
}

/// Compares two sets of correlations.
pub fn accuracy(merged: &DMatrix<f64>, reference: &DMatrix<f64>) -> Accuracy {
    let pairs = pairs(merged.nrows());
    let errors: Vec<_> = pairs.iter().map(|&pair| (merged[pair] - reference[pair]).abs()).collect();
    let worst = (0..errors.len()).max_by(|&a, &b| errors[a].total_cmp(&errors[b]));
    Accuracy { mean_square: mean_square_error(merged, reference), worst: worst.map_or((0, 0), |at| pairs[at]), errors }
}

/// Returns for each event the Kolmogorov-Smirnov distance between its merged values and the measured ones.
pub fn marginal_distances(vectors: &Vectors, data: &Measurements) -> Vec<f64> {
    let of_event = |(event, column): (usize, &crate::table::Column)| {
        let mut measured: Vec<_> = data.grouped(event).into_iter().map(|value| (value, 1)).collect();
        measured.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        scores::kolmogorov_smirnov(&column.distribution(), &measured)
    };
    vectors.columns.par_iter().enumerate().map(of_event).collect()
}

/// The effect of chance on a reference, from bootstrap samples of its runs (section 5.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// For Pearson's and Spearman's correlations: the 95 % band of each pair, in the order of [`pairs`].
    pub pairs: [Vec<(f64, f64)>; 2],
    /// Number of pairs whose merged correlation is within its band.
    pub within: [usize; 2],
    /// 95 % band of the mean square error of the merged correlations against a sample's.
    pub mean_square: [(f64, f64); 2],
    /// Mean square error of a sample's own correlations against the reference's: the error due to chance alone.
    pub chance: [f64; 2],
}

/// Draws `samples` bootstrap samples of a reference's runs, and compares each with the merged correlations.
pub fn bands(merged: &Both, data: &Measurements, samples: usize, seed: u64) -> Bands {
    let measured = reference(data);
    let pairs = pairs(data.events.len());
    let sample = |number: usize| {
        let mut rng = stream(seed, number as u64);
        reference(&data.with_runs(|all| (0..all).map(|_| rng.random_range(0..all)).collect()))
    };
    let drawn: Vec<Both> = (0..samples).into_par_iter().map(sample).collect();
    let band = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        (at(0.025), at(0.975))
    };
    let of_pairs = [0, 1].map(|which| {
        let of_pair = |&pair: &(usize, usize)| band(drawn.iter().map(|both| both[which][pair]).collect());
        pairs.par_iter().map(of_pair).collect::<Vec<_>>()
    });
    let errors = |from: &Both, which: usize| {
        drawn.iter().map(|both| mean_square_error(&both[which], &from[which])).collect::<Vec<_>>()
    };
    let inside = |which: usize| {
        let is = |(&pair, &(low, high)): (&(usize, usize), &(f64, f64))| (low..=high).contains(&merged[which][pair]);
        pairs.iter().zip(&of_pairs[which]).filter(|&it| is(it)).count()
    };
    Bands {
        within: [0, 1].map(inside),
        mean_square: [0, 1].map(|which| band(errors(merged, which))),
        chance: [0, 1].map(|which| errors(&measured, which).iter().sum::<f64>() / samples as f64),
        pairs: of_pairs,
    }
}

/// A method to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The pairwise estimates themselves, without vectors: the reference's own method, applied to fewer runs.
    Floor,
    /// MUCH with both targets.
    MuchBoth,
    /// MUCH with Pearson's correlations as its target.
    MuchPearson,
    /// MUCH with Spearman's correlations as its target.
    MuchSpearman,
    /// The method as published.
    Paper,
    /// HRM with the same total number of runs.
    Hrm,
    /// The blind merge.
    Blind,
}

impl Method {
    /// All methods, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Floor, Self::MuchBoth, Self::MuchPearson, Self::MuchSpearman, Self::Paper, Self::Hrm, Self::Blind];
    /// Returns its name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Floor => "pairwise (floor)",
            Self::MuchBoth => "MUCH, both",
            Self::MuchPearson => "MUCH, Pearson",
            Self::MuchSpearman => "MUCH, Spearman",
            Self::Paper => "MUCH as in the paper",
            Self::Hrm => "HRM, equal runs",
            Self::Blind => "blind",
        }
    }
    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::MuchBoth => "much",
            Self::MuchPearson => "much_pearson",
            Self::MuchSpearman => "much_spearman",
            Self::Paper => "paper",
            Self::Hrm => "hrm",
            Self::Blind => "blind",
        }
    }
}

/// How the runs of each sample are drawn, and what the result is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resampling {
    /// Runs drawn with replacement; compared with the reference from all runs.
    #[default]
    Bootstrap,
    /// Distinct runs; compared with the reference from all runs, including the sample's.
    Subset,
    /// Distinct runs; compared with the reference from the other runs.
    HeldOut,
}

/// Input of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Measurements in which every pair is counted together.
    pub data: &'a Measurements,
    /// Measurements for HRM with the same events; by default the sub-experiments of `data` that count the anchor.
    pub hrm: Option<&'a Measurements>,
    /// HRM's anchor, as an index of an event.
    pub anchor: usize,
    /// Numbers of runs per sub-experiment to compare.
    pub runs: &'a [usize],
    /// Number of samples for each number of runs.
    pub samples: usize,
    /// How the samples are drawn.
    pub resampling: Resampling,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Mean square errors of one method with one number of runs: Pearson's and Spearman's, sample by sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The method.
    pub method: Method,
    /// Runs per sub-experiment of MUCH.
    pub runs: usize,
    /// Total number of runs.
    pub total_runs: usize,
    /// The two errors of each sample.
    pub errors: Vec<[f64; 2]>,
    /// Largest Kolmogorov-Smirnov distance between any event's merged and original values, over all samples.
    pub marginal: f64,
}

impl Outcome {
    /// Returns the mean over samples; `which` is 0 for Pearson's, 1 for Spearman's correlations.
    pub fn mean(&self, which: usize) -> f64 {
        self.errors.iter().map(|error| error[which]).sum::<f64>() / self.errors.len() as f64
    }
    /// Returns the band that contains 95 % of the samples.
    pub fn band(&self, which: usize) -> (f64, f64) {
        let mut sorted: Vec<_> = self.errors.iter().map(|error| error[which]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        (at(0.025), at(0.975))
    }
}

/// Merges samples of the runs by every method. Calls `progress` after every sample.
pub fn compare(comparison: &Comparison<'_>, progress: &(dyn Fn() + Sync)) -> Result<Vec<Outcome>, DataError> {
    let data = comparison.data;
    data.check_pairs()?;
    let full = reference(data);
    let mut outcomes = vec![];
    for (step, &runs) in comparison.runs.iter().enumerate() {
        let sample = |number: usize| {
            let part = (step as u64) << 32 | number as u64;
            let mut rng = stream(comparison.seed, part);
            let (sample, reference) = match comparison.resampling {
                Resampling::Bootstrap => (data.bootstrap(runs, &mut rng), full.clone()),
                Resampling::Subset => (data.split(runs, &mut rng).0, full.clone()),
                Resampling::HeldOut => {
                    let (sample, rest) = data.split(runs, &mut rng);
                    rest.check_pairs()?;
                    (sample, self::reference(&rest))
                }
            };
            let total = sample.runs();
            let of_hrm = comparison.hrm.map(|hrm| {
                let each = total / hrm.sub_experiments.len().max(1);
                match comparison.resampling {
                    Resampling::Bootstrap => hrm.bootstrap(each, &mut rng),
                    _ => hrm.split(each, &mut rng).0,
                }
            });
            let errors = |vectors: &Vectors| -> [f64; 2] {
                let correlations = vectors.correlations();
                [0, 1].map(|which| mean_square_error(&correlations[which], &reference[which]))
            };
            let options = |target| Options { seed: comparison.seed ^ part, target, ..Options::default() };
            let of_method = |method: Method| -> Result<([f64; 2], usize, f64), DataError> {
                let with = |vectors: &Vectors, data: &Measurements| {
                    let distances = marginal_distances(vectors, data);
                    (errors(vectors), data.runs(), distances.into_iter().fold(0.0, f64::max))
                };
                let much = |target| merge::much(&sample, &options(target)).map(|merged| with(&merged.vectors, &sample));
                match method {
                    Method::Floor => {
                        let own = self::reference(&sample);
                        Ok(([0, 1].map(|which| mean_square_error(&own[which], &reference[which])), total, 0.0))
                    }
                    Method::MuchBoth => much(Target::Both),
                    Method::MuchPearson => much(Target::Pearson),
                    Method::MuchSpearman => much(Target::Spearman),
                    Method::Paper => {
                        merge::paper(&sample, &options(Target::Both)).map(|merged| with(&merged.vectors, &sample))
                    }
                    Method::Hrm => {
                        let measured = of_hrm.as_ref().unwrap_or(&sample);
                        Ok(with(&merge::hrm(measured, comparison.anchor, None)?, measured))
                    }
                    Method::Blind => Ok(with(&merge::blind(&sample)?, &sample)),
                }
            };
            let all = Method::ALL.into_iter().map(of_method).collect::<Result<Vec<_>, DataError>>();
            progress();
            all
        };
        let samples = (0..comparison.samples).into_par_iter().map(sample).collect::<Result<Vec<_>, DataError>>()?;
        for (at, method) in Method::ALL.into_iter().enumerate() {
            outcomes.push(Outcome {
                method,
                runs,
                total_runs: samples.first().map_or(0, |sample| sample[at].1),
                errors: samples.iter().map(|sample| sample[at].0).collect(),
                marginal: samples.iter().map(|sample| sample[at].2).fold(0.0, f64::max),
            });
        }
    }
    Ok(outcomes)
}
