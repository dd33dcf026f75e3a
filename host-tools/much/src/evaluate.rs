//! Compares the correlations of merged vectors with the measured ones (sections 5.2 and 5.3).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{DataError, FEWEST_RUNS, Measurements, SubExperiment, is_stepped};
use crate::draw::stream;
use crate::estimate::{self, Kind};
use crate::matrix::{nearest_correlation, pairs};
use crate::merge::{self, Indefinite, Options, Target};
use crate::parallel;
use crate::scores;
use crate::table::Vectors;
use nalgebra::DMatrix;
use rand::RngExt;

/// Pearson's and Spearman's correlations of all pairs, in this order.
pub type Both = [DMatrix<f64>; 2];

/// Returns the correlations of each pair as measured: the reference (section 5.2).
pub fn reference(data: &Measurements) -> Both {
    [
        estimate::pairwise(data, Kind::Counts),
        estimate::pairwise(data, Kind::Ranks),
    ]
}

/// Returns the judged pairs: those of which both events vary from run to run. Any other pair has no
/// correlation that a merge could miss.
pub fn judged_pairs(data: &Measurements) -> Vec<(usize, usize)> {
    let varies = |event: usize| {
        let grouped = data.grouped(event);
        grouped.iter().any(|value| *value != grouped[0]) && !is_stepped(data, event, &grouped)
    };
    let varies = parallel::of_each(data.events.len(), varies);
    pairs(data.events.len())
        .into_iter()
        .filter(|&(a, b)| varies[a] && varies[b])
        .collect()
}

/// Returns the mean square of the differences of some pairs; 0 where there are none.
pub fn mean_square(one: &DMatrix<f64>, other: &DMatrix<f64>, pairs: &[(usize, usize)]) -> f64 {
    pairs
        .iter()
        .map(|&pair| (one[pair] - other[pair]).powi(2))
        .sum::<f64>()
        / pairs.len().max(1) as f64
}

/// The accuracy of one kind of correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// The error of each judged pair.
    pub errors: Vec<f64>,
    /// Mean square of the errors.
    pub mean_square: f64,
    /// The pair with the largest error.
    pub worst: (usize, usize),
}

/// Compares some pairs of two sets of correlations.
pub fn accuracy(
    merged: &DMatrix<f64>,
    reference: &DMatrix<f64>,
    pairs: &[(usize, usize)],
) -> Accuracy {
    let errors: Vec<_> = pairs
        .iter()
        .map(|&pair| (merged[pair] - reference[pair]).abs())
        .collect();
    let worst = (0..errors.len()).max_by(|&a, &b| errors[a].total_cmp(&errors[b]));
    Accuracy {
        mean_square: mean_square(merged, reference, pairs),
        worst: worst.map_or((0, 0), |at| pairs[at]),
        errors,
    }
}

/// Returns whether vectors seem to be made from these very measurements: each value occurs in them,
/// about as often. A comparison then shows the quality of the fit, and nothing about other runs.
pub fn is_in_sample(vectors: &Vectors, data: &Measurements) -> bool {
    let is_right = |event: usize| {
        let measured = data.sorted(event).to_vec();
        let known = |value: &f64| {
            measured
                .binary_search_by(|other| other.total_cmp(value))
                .is_ok()
        };
        let distribution: Vec<_> = vectors.columns[event]
            .distribution()
            .into_iter()
            .filter(|&(_, uses)| uses > 0)
            .collect();
        let weighted: Vec<_> = measured.iter().map(|&value| (value, 1)).collect();
        let distance = scores::kolmogorov_smirnov(&distribution, &weighted);
        distance <= 1.0 / vectors.len().min(measured.len()).max(1) as f64
            && distribution.iter().all(|(value, _)| known(value))
    };
    let are_right = parallel::of_each(vectors.columns.len(), is_right);
    are_right.into_iter().all(|is_right| is_right)
}

/// Returns for each event the Kolmogorov-Smirnov distance between its merged values and the
/// measured ones.
pub fn marginal_distances(vectors: &Vectors, data: &Measurements) -> Vec<f64> {
    parallel::of_each(vectors.columns.len(), |event| {
        let measured: Vec<_> = data.sorted(event).iter().map(|value| (value, 1)).collect();
        scores::kolmogorov_smirnov(&vectors.columns[event].distribution(), &measured)
    })
}

/// Minimum number of samples for a band of the middle 95 %; with fewer, minimum and maximum say
/// more.
pub const FEWEST_SAMPLES: usize = 40;

/// The middle 95 % of some values; with fewer than [`FEWEST_SAMPLES`], from the least to the most
/// of them.
fn band(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    if values.len() < FEWEST_SAMPLES {
        return (values[0], values[last]);
    }
    let at = |share: f64| values[(last as f64 * share).round() as usize];
    (at(0.025), at(0.975))
}

/// The effect of chance on a reference, by bootstrap samples of its runs (section 5.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// For Pearson's and Spearman's correlations: the 95 % band of each pair, in the order of
    /// [`pairs`].
    pub pairs: [Vec<(f64, f64)>; 2],
    /// Number of judged pairs whose merged correlation is within its band.
    pub within: [usize; 2],
    /// The band of 95 % of the merged correlations' mean square error.
    pub mean_square: [(f64, f64); 2],
    /// Mean square error of a sample's own correlations against the reference's: the error due to
    /// chance alone.
    pub chance: [f64; 2],
}

/// Draws `samples` bootstrap samples of the runs of a reference, and compares each with merged
/// correlations.
///
/// Chance makes a sample's distance from the merge larger than the reference's own. This part is
/// subtracted sample by sample, so that the band is one of the error itself.
pub fn bands(merged: &Both, data: &Measurements, samples: usize, seed: u64) -> Bands {
    let measured = reference(data);
    let pairs = pairs(data.events.len());
    let judged = judged_pairs(data);
    let sample = |number: usize| {
        let mut rng = stream(seed, number as u64);
        reference(&data.with_runs(|all| (0..all).map(|_| rng.random_range(0..all)).collect()))
    };
    let drawn = parallel::of_each(samples, sample);
    let of_pairs = [0, 1].map(|which| {
        let of_pair =
            |&pair: &(usize, usize)| band(drawn.iter().map(|both| both[which][pair]).collect());
        parallel::of_all(&pairs, of_pair)
    });
    let inside = |which: usize| {
        let is = |(&pair, &(low, high)): (&(usize, usize), &(f64, f64))| {
            judged.binary_search(&pair).is_ok() && (low..=high).contains(&merged[which][pair])
        };
        pairs
            .iter()
            .zip(&of_pairs[which])
            .filter(|&it| is(it))
            .count()
    };
    let chance = [0, 1].map(|which| {
        drawn
            .iter()
            .map(|both| mean_square(&both[which], &measured[which], &judged))
            .collect::<Vec<_>>()
    });
    let errors = |which: usize| {
        let of_sample = |(both, chance): (&Both, &f64)| {
            mean_square(&both[which], &merged[which], &judged) - chance
        };
        let (low, high) = band(drawn.iter().zip(&chance[which]).map(of_sample).collect());
        (low.max(0.0), high.max(0.0))
    };
    Bands {
        within: [0, 1].map(inside),
        mean_square: [0, 1].map(errors),
        chance: [0, 1].map(|which| chance[which].iter().sum::<f64>() / samples as f64),
        pairs: of_pairs,
    }
}

/// A method to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The pairwise estimates themselves, without any vectors: the result of the reference's own
    /// method from so few runs.
    Pairwise,
    /// The correlation matrix nearest to them (Higham), which is at least as near to the true one.
    Repaired,
    /// MUCH with both targets.
    MuchBoth,
    /// MUCH with Pearson's correlations as its target.
    MuchPearson,
    /// MUCH with Spearman's correlations as its target.
    MuchSpearman,
    /// The published method, its matrix repaired.
    Paper,
    /// HRM, on the same total number of runs where it has its own measurements.
    Hrm,
    /// The blind merge.
    Blind,
}

impl Method {
    /// All, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Pairwise,
        Self::Repaired,
        Self::MuchBoth,
        Self::MuchPearson,
        Self::MuchSpearman,
        Self::Paper,
        Self::Hrm,
        Self::Blind,
    ];
    /// Its name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pairwise => "pairwise",
            Self::Repaired => "pairwise, repaired",
            Self::MuchBoth => "MUCH, both",
            Self::MuchPearson => "MUCH, Pearson",
            Self::MuchSpearman => "MUCH, Spearman",
            Self::Paper => "MUCH, plain",
            Self::Hrm => "HRM",
            Self::Blind => "blind",
        }
    }
    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pairwise => "pairwise",
            Self::Repaired => "repaired",
            Self::MuchBoth => "much",
            Self::MuchPearson => "much_pearson",
            Self::MuchSpearman => "much_spearman",
            Self::Paper => "paper",
            Self::Hrm => "hrm",
            Self::Blind => "blind",
        }
    }
}

/// How the runs of each sample are drawn, and the reference of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resampling {
    /// Runs drawn with replacement, against the reference from all runs.
    Bootstrap,
    /// Distinct runs; compared with the reference from all runs, including the sample's.
    Subset,
    /// Different runs, against the reference from the other runs: the two have nothing in common.
    #[default]
    HeldOut,
}

impl Resampling {
    /// Returns the maximum number of runs of each sub-experiment in a sample of these measurements.
    /// It is the fewest runs of a sub-experiment; with [`Self::HeldOut`], less the minimum for a
    /// reference.
    pub fn most_runs(self, data: &Measurements) -> usize {
        let fewest = data
            .sub_experiments
            .iter()
            .map(SubExperiment::runs)
            .min()
            .unwrap_or(0);
        if self == Self::HeldOut {
            fewest.saturating_sub(FEWEST_RUNS)
        } else {
            fewest
        }
    }
}

/// The inputs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Measurements in which every pair is counted together.
    pub data: &'a Measurements,
    /// Measurements for HRM with the same events; by default the sub-experiments of `data` that
    /// count the anchor.
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

/// Mean square errors of one method with one number of runs: Pearson's and Spearman's, sample by
/// sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The method.
    pub method: Method,
    /// Runs per sub-experiment of MUCH.
    pub runs: usize,
    /// Total number of runs that the method used.
    pub total_runs: usize,
    /// The two errors of each sample.
    pub errors: Vec<[f64; 2]>,
    /// Largest Kolmogorov-Smirnov distance between any event's merged and original values, over
    /// all samples.
    pub marginal: f64,
}

impl Outcome {
    /// Returns the mean over samples; `which` is 0 for Pearson's, 1 for Spearman's correlations.
    pub fn mean(&self, which: usize) -> f64 {
        self.errors.iter().map(|error| error[which]).sum::<f64>() / self.errors.len() as f64
    }
    /// Returns the band that contains 95 % of the samples.
    pub fn band(&self, which: usize) -> (f64, f64) {
        band(self.errors.iter().map(|error| error[which]).collect())
    }
    /// Returns how much larger another method's error is, sample by sample: the mean, and the band
    /// that holds 95 % of the samples.
    pub fn difference(&self, other: &Self, which: usize) -> (f64, (f64, f64)) {
        let of_sample = |(own, other): (&[f64; 2], &[f64; 2])| other[which] - own[which];
        let differences: Vec<_> = self
            .errors
            .iter()
            .zip(&other.errors)
            .map(of_sample)
            .collect();
        (
            differences.iter().sum::<f64>() / differences.len() as f64,
            band(differences),
        )
    }
}

/// One method's errors, the runs that it used, and the largest distance of an event's values.
type Judged = ([f64; 2], usize, f64);

/// One sample: what is merged, and what it is compared with.
struct Sample {
    data: Measurements,
    /// HRM's own measurements, as many runs in all.
    hrm: Option<Measurements>,
    reference: Both,
    pairs: Vec<(usize, usize)>,
    seed: u64,
    anchor: usize,
}

impl Sample {
    fn draw(
        comparison: &Comparison<'_>,
        full: &Both,
        pairs: &[(usize, usize)],
        runs: usize,
        part: u64,
    ) -> Self {
        let data = comparison.data;
        let mut rng = stream(comparison.seed, part);
        let (sample, reference) = match comparison.resampling {
            Resampling::Bootstrap => (data.bootstrap(runs, &mut rng), full.clone()),
            Resampling::Subset => (data.split(runs, &mut rng).0, full.clone()),
            Resampling::HeldOut => {
                let (sample, rest) = data.split(runs, &mut rng);
                (sample, self::reference(&rest))
            }
        };
        let hrm = comparison.hrm.map(|hrm| {
            let each = sample.runs() / hrm.sub_experiments.len().max(1);
            match comparison.resampling {
                Resampling::Bootstrap => hrm.bootstrap(each, &mut rng),
                _ => hrm.split(each, &mut rng).0,
            }
        });
        let (pairs, seed) = (pairs.to_vec(), comparison.seed ^ part);
        Self {
            data: sample,
            hrm,
            reference,
            pairs,
            seed,
            anchor: comparison.anchor,
        }
    }
    fn errors(&self, correlations: &Both) -> [f64; 2] {
        [0, 1].map(|which| mean_square(&correlations[which], &self.reference[which], &self.pairs))
    }
    fn of_vectors(&self, vectors: &Vectors, data: &Measurements, runs: usize) -> Judged {
        let distances = marginal_distances(vectors, data);
        (
            self.errors(&vectors.correlations()),
            runs,
            distances.into_iter().fold(0.0, f64::max),
        )
    }
    fn of_method(&self, method: Method) -> Result<Judged, DataError> {
        let total = self.data.runs();
        let options = |target| Options {
            seed: self.seed,
            target,
            ..Options::default()
        };
        let much = |target| {
            let merged = merge::much(&self.data, &options(target))?;
            Ok(self.of_vectors(&merged.vectors, &self.data, total))
        };
        match method {
            Method::Pairwise => Ok((self.errors(&self::reference(&self.data)), total, 0.0)),
            Method::Repaired => {
                let repaired = self::reference(&self.data)
                    .map(|matrix| nearest_correlation(&matrix, 1e-7).matrix);
                Ok((self.errors(&repaired), total, 0.0))
            }
            Method::MuchBoth => much(Target::Both),
            Method::MuchPearson => much(Target::Pearson),
            Method::MuchSpearman => much(Target::Spearman),
            Method::Paper => {
                let merged = merge::paper(&self.data, &options(Target::Both), Indefinite::Repair)?;
                Ok(self.of_vectors(&merged.vectors, &self.data, total))
            }
            Method::Hrm => {
                let measured = self.hrm.as_ref().unwrap_or(&self.data);
                // Sub-experiments without the anchor are of no use to HRM.
                let used = measured
                    .sub_experiments
                    .iter()
                    .filter(|sub| sub.column(self.anchor).is_some());
                let used = used.map(SubExperiment::runs).sum();
                Ok(self.of_vectors(&merge::hrm(measured, self.anchor, None)?, measured, used))
            }
            Method::Blind => Ok(self.of_vectors(&merge::blind(&self.data)?, &self.data, total)),
        }
    }
}

/// Merges samples of the runs by every method. Calls `progress` after every sample.
pub fn compare(
    comparison: &Comparison<'_>,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<Outcome>, DataError> {
    let data = comparison.data;
    data.check_pairs()?;
    let most = comparison.resampling.most_runs(data);
    if let Some(&asked) = comparison
        .runs
        .iter()
        .find(|&&runs| runs > most || runs < 2)
    {
        let left = if comparison.resampling == Resampling::HeldOut {
            FEWEST_RUNS
        } else {
            0
        };
        return Err(DataError::Runs { asked, most, left });
    }
    let full = reference(data);
    let pairs = judged_pairs(data);
    let mut outcomes = vec![];
    for (step, &runs) in comparison.runs.iter().enumerate() {
        let sample = |number: usize| {
            let sample = Sample::draw(
                comparison,
                &full,
                &pairs,
                runs,
                (step as u64) << 32 | number as u64,
            );
            let all = Method::ALL
                .into_iter()
                .map(|method| sample.of_method(method));
            let all = all.collect::<Result<Vec<_>, DataError>>();
            progress();
            all
        };
        let samples = parallel::of_each(comparison.samples, sample)
            .into_iter()
            .collect::<Result<Vec<_>, DataError>>()?;
        for (at, method) in Method::ALL.into_iter().enumerate() {
            outcomes.push(Outcome {
                method,
                runs,
                total_runs: samples.first().map_or(0, |sample| sample[at].1),
                errors: samples.iter().map(|sample| sample[at].0).collect(),
                marginal: samples
                    .iter()
                    .map(|sample| sample[at].2)
                    .fold(0.0, f64::max),
            });
        }
    }
    Ok(outcomes)
}
