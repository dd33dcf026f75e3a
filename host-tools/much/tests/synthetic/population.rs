//! Populations of counts with every shape that a merge must cope with.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::data::{Builder, Event, Measurements};
use cloison_much::draw::stream;
use cloison_much::plan::{Catalogue, plan};
use cloison_much::table::{Column, Vectors};
use nalgebra::DMatrix;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Events and counters: ten sub-experiments.
const EVENTS: usize = 16;
const COUNTERS: usize = 6;
/// Vectors from which the population's correlations are taken.
const TRUTH: usize = 60_000;

/// How counts are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Normal, with as many common causes.
    Gaussian(usize),
    /// Lognormal, σ in tenths, with a Gaussian copula.
    Lognormal(u32),
    /// Every other event is lognormal with σ = 1.5.
    HalfLognormal,
    /// 70 % of the counts are 0.
    ZeroInflated,
    /// Runs of two kinds.
    Bimodal,
    /// Student's t with three degrees of freedom.
    HeavyTails,
    /// In one run of a hundred all events are 20 standard deviations higher.
    Outliers,
    /// A handful of different counts.
    Ties,
    /// Three events are exact functions of one another.
    Collinear,
    /// Sub-experiments have from half as many to three times as many runs.
    Unequal,
    /// Every event drifts with time; sub-experiments run one after the other.
    Drift,
    /// The same, with the runs of all sub-experiments interleaved.
    DriftInterleaved,
    /// Every other event is the square of the one before.
    Squares,
}

impl Case {
    pub const ALL: [Self; 16] = [
        Self::Gaussian(3),
        Self::Gaussian(1),
        Self::Gaussian(8),
        Self::Lognormal(10),
        Self::Lognormal(20),
        Self::HalfLognormal,
        Self::ZeroInflated,
        Self::Bimodal,
        Self::HeavyTails,
        Self::Outliers,
        Self::Ties,
        Self::Collinear,
        Self::Unequal,
        Self::Drift,
        Self::DriftInterleaved,
        Self::Squares,
    ];
    pub fn name(self) -> &'static str {
        match self {
            Self::Gaussian(1) => "gaussian-1",
            Self::Gaussian(3) => "gaussian-3",
            Self::Gaussian(_) => "gaussian-8",
            Self::Lognormal(10) => "lognormal-1",
            Self::Lognormal(_) => "lognormal-2",
            Self::HalfLognormal => "half-lognormal",
            Self::ZeroInflated => "zero-inflated",
            Self::Bimodal => "bimodal",
            Self::HeavyTails => "heavy-tails",
            Self::Outliers => "outliers",
            Self::Ties => "ties",
            Self::Collinear => "collinear",
            Self::Unequal => "unequal",
            Self::Drift => "drift",
            Self::DriftInterleaved => "drift-interleaved",
            Self::Squares => "squares",
        }
    }
}

/// A population: events as functions of common causes.
pub struct Population {
    case: Case,
    weights: Vec<Vec<f64>>,
    /// For each event, what a kind of run or the time adds.
    shift: Vec<f64>,
}

/// By the method of G. E. P. Box and M. E. Muller.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (one, other) = (
        rng.random_range(f64::MIN_POSITIVE..1.0),
        rng.random_range(0.0..std::f64::consts::TAU),
    );
    (-2.0 * one.ln()).sqrt() * other.cos()
}

impl Population {
    /// One population of a case.
    pub fn new(case: Case, seed: u64) -> Self {
        let causes = if let Case::Gaussian(causes) = case {
            causes
        } else {
            3
        };
        let mut rng = stream(seed, 0);
        let weights = (0..EVENTS)
            .map(|_| (0..causes).map(|_| normal(&mut rng)).collect())
            .collect();
        let shift = (0..EVENTS).map(|_| normal(&mut rng)).collect();
        Self {
            case,
            weights,
            shift,
        }
    }

    /// Returns the share of each cause in each event, whose variance is 1.
    pub fn of_causes(&self) -> DMatrix<f64> {
        let scale = (self.weights[0].len() as f64).sqrt();
        let spread = |weights: &[f64]| {
            (weights
                .iter()
                .map(|weight| (weight / scale).powi(2))
                .sum::<f64>()
                + 0.5)
                .sqrt()
        };
        DMatrix::from_fn(EVENTS, self.weights[0].len(), |event, cause| {
            self.weights[event][cause] / scale / spread(&self.weights[event])
        })
    }

    /// Returns the sub-experiments, as numbers of events.
    pub fn blocks() -> Vec<Vec<usize>> {
        plan(&mut Catalogue::default(), EVENTS, COUNTERS)
            .expect("there is a plan")
            .sub_experiments
    }

    /// The levels of all events in one run: normal, mean 0, variance 1.
    fn levels(&self, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let scale = (self.weights[0].len() as f64).sqrt();
        let causes: Vec<f64> = self.weights[0].iter().map(|_| normal(rng)).collect();
        let level = |weights: &Vec<f64>| {
            let common: f64 = weights
                .iter()
                .zip(&causes)
                .map(|(weight, cause)| weight * cause / scale)
                .sum();
            let spread = weights
                .iter()
                .map(|weight| (weight / scale).powi(2))
                .sum::<f64>()
                + 0.5;
            (common + 0.5_f64.sqrt() * normal(rng)) / spread.sqrt()
        };
        self.weights.iter().map(level).collect()
    }

    /// The counts of one run at a time between 0 and 1.
    fn run(&self, time: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let mut levels = self.levels(rng);
        let count = |level: f64| (1e6 + 1e4 * level).round();
        match self.case {
            Case::Lognormal(tenths) => {
                levels.iter_mut().for_each(|level| {
                    *level = (1e4 * (f64::from(tenths) / 10.0 * *level).exp()).round()
                });
                return levels;
            }
            Case::ZeroInflated => {
                levels
                    .iter_mut()
                    .for_each(|level| *level = (1e4 * (*level - 0.524_4)).max(0.0).round());
                return levels;
            }
            Case::Ties => {
                levels
                    .iter_mut()
                    .for_each(|level| *level = (2.0 + *level).max(0.0).round());
                return levels;
            }
            Case::HalfLognormal => {
                for (event, level) in levels.iter_mut().enumerate() {
                    *level = if event % 2 == 0 {
                        (1e4 * (1.5 * *level).exp()).round()
                    } else {
                        count(*level)
                    };
                }
                return levels;
            }
            Case::Bimodal => {
                let kind = f64::from(u8::from(rng.random_range(0.0..1.0) < 0.4));
                levels
                    .iter_mut()
                    .zip(&self.shift)
                    .for_each(|(level, shift)| *level += 3.0 * kind * shift);
            }
            Case::HeavyTails => {
                let square: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
                levels
                    .iter_mut()
                    .for_each(|level| *level *= (3.0 / square).sqrt());
            }
            Case::Outliers => {
                let more = if rng.random_range(0.0..1.0) < 0.01 {
                    20.0
                } else {
                    0.0
                };
                levels.iter_mut().for_each(|level| *level += more);
            }
            Case::Collinear => {
                levels[1] = 3.0 * levels[0] + 7.0;
                levels[2] = -levels[0];
            }
            Case::Drift | Case::DriftInterleaved => {
                levels
                    .iter_mut()
                    .zip(&self.shift)
                    .for_each(|(level, shift)| *level += 2.0 * (time - 0.5) * shift);
            }
            Case::Squares => {
                for event in (1..EVENTS).step_by(2) {
                    levels[event] = levels[event - 1].powi(2);
                }
            }
            Case::Gaussian(_) | Case::Unequal => {}
        }
        levels
            .into_iter()
            .map(count)
            .map(|count| count.max(0.0))
            .collect()
    }

    /// Returns measurements in sub-experiments in which every pair meets.
    pub fn measured(&self, runs: usize, rng: &mut ChaCha8Rng) -> Measurements {
        let plan = Self::blocks();
        let mut builder = Builder::default();
        let blocks = plan.len();
        for (number, block) in plan.iter().enumerate() {
            let runs = if self.case == Case::Unequal {
                [(runs / 2).max(4), runs, 3 * runs][number % 3]
            } else {
                runs
            };
            for run in 0..runs {
                let within = (run as f64 + 0.5) / runs as f64;
                let time = if self.case == Case::Drift {
                    (number as f64 + within) / blocks as f64
                } else {
                    within
                };
                let counts = self.run(time, rng);
                for &event in block {
                    let name = format!("E{event}");
                    builder
                        .add(
                            number as u64,
                            run as u64,
                            None,
                            name.as_bytes(),
                            counts[event],
                        )
                        .expect("each count comes once");
                }
            }
        }
        let data = builder.finish().expect("every run is complete");
        let events: Vec<_> = (0..EVENTS)
            .map(|event| Event {
                name: format!("E{event}"),
                code: None,
            })
            .collect();
        data.reordered(&events).expect("all events are there")
    }

    /// Returns the population's correlations: Pearson's and Spearman's.
    pub fn truth(&self, rng: &mut ChaCha8Rng) -> [DMatrix<f64>; 2] {
        let runs: Vec<Vec<f64>> = (0..TRUTH)
            .map(|run| self.run(run as f64 / TRUTH as f64, rng))
            .collect();
        let column = |event: usize| {
            Column::of_values(&runs.iter().map(|run| run[event]).collect::<Vec<_>>())
        };
        let events = (0..EVENTS)
            .map(|event| Event {
                name: format!("E{event}"),
                code: None,
            })
            .collect();
        Vectors {
            events,
            columns: (0..EVENTS).map(column).collect(),
        }
        .correlations()
    }
}
