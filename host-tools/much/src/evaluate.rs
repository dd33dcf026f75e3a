//! How near the correlations of merged vectors are to those that were measured (sections 5.2 and 5.3).

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

/// Pearson's and Spearman's correlations of all pairs.
pub type Both = [DMatrix<f64>; 2];

/// The correlations pair by pair as measured: the reference (section 5.2).
pub fn reference(data: &Measurements) -> Both {
    [estimate::pairwise(data, Kind::Counts), estimate::pairwise(data, Kind::Ranks)]
}

/// How near one kind of correlation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// For each pair, in the order of [`pairs`], by how much it is off.
    pub errors: Vec<f64>,
    /// Their mean square.
    pub mean_square: f64,
    /// The pair that is farthest off.
    pub worst: (usize, usize),
}

/// Compares two sets of correlations.
pub fn accuracy(merged: &DMatrix<f64>, reference: &DMatrix<f64>) -> Accuracy {
    let pairs = pairs(merged.nrows());
    let errors: Vec<_> = pairs.iter().map(|&pair| (merged[pair] - reference[pair]).abs()).collect();
    let worst = (0..errors.len()).max_by(|&a, &b| errors[a].total_cmp(&errors[b]));
    Accuracy { mean_square: mean_square_error(merged, reference), worst: worst.map_or((0, 0), |at| pairs[at]), errors }
}

/// For each event, the Kolmogorov-Smirnov distance of its merged values from those measured.
pub fn marginal_distances(vectors: &Vectors, data: &Measurements) -> Vec<f64> {
    let of_event = |(event, column): (usize, &crate::table::Column)| {
        let mut measured: Vec<_> = data.grouped(event).into_iter().map(|value| (value, 1)).collect();
        measured.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        scores::kolmogorov_smirnov(&column.distribution(), &measured)
    };
    vectors.columns.par_iter().enumerate().map(of_event).collect()
}

/// What chance does to a reference, by bootstrap samples of its runs (section 5.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// For Pearson's and Spearman's, and each pair in the order of [`pairs`], the band of 95 % of its correlation.
    pub pairs: [Vec<(f64, f64)>; 2],
    /// How many pairs' merged correlations are within theirs.
    pub within: [usize; 2],
    /// The band of 95 % of the mean square error of the merged correlations from a sample's.
    pub mean_square: [(f64, f64); 2],
    /// The mean square error of a sample's own correlations from the reference's: what chance alone makes.
    pub chance: [f64; 2],
}

/// Draws `samples` bootstrap samples of the runs of a reference, and compares each with merged correlations.
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

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The pairwise estimates themselves, without any vectors: what the reference's own method makes of so few runs.
    Floor,
    /// MUCH with both targets.
    MuchBoth,
    /// MUCH with Pearson's correlations as its target.
    MuchPearson,
    /// MUCH with Spearman's.
    MuchSpearman,
    /// The method as the paper has it.
    Paper,
    /// HRM on as many runs in all.
    Hrm,
    /// The blind merge.
    Blind,
}

impl Method {
    /// All, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Floor, Self::MuchBoth, Self::MuchPearson, Self::MuchSpearman, Self::Paper, Self::Hrm, Self::Blind];
    /// Its name in tables.
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
    /// Its name in files.
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

/// How runs are drawn for each sample, and what the result is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resampling {
    /// Runs drawn with replacement, against the reference from all runs.
    #[default]
    Bootstrap,
    /// Different runs, against the reference from all runs, those among them.
    Subset,
    /// Different runs, against the reference from the other runs.
    HeldOut,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Measurements in which every pair meets.
    pub data: &'a Measurements,
    /// Measurements for HRM, with the same events; by default made from `data`'s own sub-experiments that have the anchor.
    pub hrm: Option<&'a Measurements>,
    /// HRM's anchor.
    pub anchor: usize,
    /// Runs of each sub-experiment.
    pub runs: &'a [usize],
    /// Samples of each number of runs.
    pub samples: usize,
    /// How they are drawn.
    pub resampling: Resampling,
    /// Every random choice follows from this.
    pub seed: u64,
}

/// Mean square errors of one method at one number of runs: Pearson's and Spearman's, sample by sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The method.
    pub method: Method,
    /// Runs of each of MUCH's sub-experiments.
    pub runs: usize,
    /// Runs in all.
    pub total_runs: usize,
    /// For each sample the two errors.
    pub errors: Vec<[f64; 2]>,
    /// The largest Kolmogorov-Smirnov distance of any event's values from those that went in, over all samples.
    pub marginal: f64,
}

impl Outcome {
    /// The mean over samples.
    pub fn mean(&self, which: usize) -> f64 {
        self.errors.iter().map(|error| error[which]).sum::<f64>() / self.errors.len() as f64
    }
    /// The band that holds 95 % of the samples.
    pub fn band(&self, which: usize) -> (f64, f64) {
        let mut sorted: Vec<_> = self.errors.iter().map(|error| error[which]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        (at(0.025), at(0.975))
    }
}

/// Merges samples of the runs by every method. `progress` is told of every sample that is done.
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
