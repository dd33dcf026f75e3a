//! HRM's error over the splits of the events: what HRM loses depends on what it counts together.
//!
//! A split needs no boot: the model counts all events of every run. Each sub-experiment of a split
//! gets the runs of one of HRM's, so that no run is used for two of them, as on a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::WorkloadCounts;
use super::spec::Campaign;
use cloison_much::data::{Builder, Measurements};
use cloison_much::evaluate::Both;
use cloison_much::plan::Splits;
use cloison_much::regroup::Complete;
use miette::{Result, miette};

/// At most so many splits are judged; of more, some at equal distances.
pub const MOST_SPLITS: usize = 2000;

/// HRM with one split.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Mean square errors of Pearson's and of Spearman's correlations.
    pub errors: [f64; 2],
    /// The events that vary, by sub-experiment.
    pub together: Vec<Vec<String>>,
}

impl Split {
    /// Returns the events of each sub-experiment in words.
    pub fn events(&self) -> String {
        let parts = self.together.iter().filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(|part| part.join(" ")).collect();
        parts.join("; ")
    }
}

/// HRM over the splits of the events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitErrors {
    /// Number of splits in all, of the events that vary.
    pub all: u128,
    /// Those that were judged.
    pub judged: Vec<Split>,
    /// The splits that the campaign names.
    pub named: Vec<(String, Split)>,
}

impl SplitErrors {
    /// Returns the split with the least error of Pearson's correlations.
    pub fn best(&self) -> Option<&Split> {
        let judged = self.judged.iter();
        judged.min_by(|one, other| one.errors[0].total_cmp(&other.errors[0]))
    }

    /// Returns the split with the greatest error of Pearson's correlations.
    pub fn worst(&self) -> Option<&Split> {
        let judged = self.judged.iter();
        judged.max_by(|one, other| one.errors[0].total_cmp(&other.errors[0]))
    }

    /// Returns the mean error over the judged splits: of Pearson's (0) or Spearman's (1)
    /// correlations.
    pub fn mean(&self, kind: usize) -> f64 {
        let sum: f64 = self.judged.iter().map(|split| split.errors[kind]).sum();
        sum / self.judged.len().max(1) as f64
    }

    /// Returns the number of judged splits with which HRM is further from the truth than this error
    /// of Pearson's correlations.
    pub fn further_than(&self, error: f64) -> usize {
        let judged = self.judged.iter();
        judged.filter(|split| split.errors[0] > error).count()
    }
}

/// What the splits of one workload are judged by.
pub struct Basis<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// The workload's counts.
    pub counted: &'a WorkloadCounts,
    /// Measurements that have the events that vary, in the order of truth and pairs.
    pub data: &'a Measurements,
    /// The correlations of the truth of HRM's runs.
    pub truth: &'a Both,
    /// The pairs that are judged.
    pub pairs: &'a [(usize, usize)],
}

/// Judges HRM by the splits of the events that vary, and by those that the campaign names.
///
/// # Errors
/// If the runs do not form measurements, or the anchor is constant.
pub fn judge(basis: &Basis<'_>) -> Result<SplitErrors> {
    let Basis {
        campaign,
        counted,
        data,
        truth,
        pairs,
    } = *basis;
    let wrong = |error: &dyn std::fmt::Display| miette!("workload {}: {error}", counted.name);
    let runs = complete(basis)?;
    let anchor = &campaign.events[campaign.anchor];
    let anchor = data
        .event(anchor)
        .ok_or_else(|| wrong(&format!("the anchor {anchor} is constant")))?;
    let others: Vec<usize> = (0..data.events.len())
        .filter(|event| *event != anchor)
        .collect();
    let parts = campaign.hrm_plan.len();
    let mut splits = Splits::new(others.len(), parts, campaign.counters - 1);
    let mut chosen = splits.some(MOST_SPLITS);
    for part in chosen.iter_mut().flatten() {
        for event in part {
            *event = others[*event];
        }
    }
    let of_block = |block: &Vec<usize>| -> Vec<usize> {
        let names = block.iter().map(|event| &campaign.events[*event]);
        names.filter_map(|name| data.event(name)).collect()
    };
    let named = campaign.hrm_splits.iter();
    let named: Vec<Vec<Vec<usize>>> = named
        .map(|split| split.sub_experiments.iter().map(of_block).collect())
        .collect();
    let complete = Complete {
        runs: &runs,
        anchor,
        truth,
        pairs,
    };
    let judged = |splits: Vec<Vec<Vec<usize>>>| -> Result<Vec<Split>> {
        let errors = complete.errors_of(&splits).map_err(|error| wrong(&error))?;
        let name = |event: &usize| data.events[*event].name.clone();
        let split = |(parts, errors): (Vec<Vec<usize>>, [f64; 2])| Split {
            errors,
            together: parts
                .iter()
                .map(|part| {
                    part.iter()
                        .filter(|event| **event != anchor)
                        .map(name)
                        .collect()
                })
                .collect(),
        };
        Ok(splits.into_iter().zip(errors).map(split).collect())
    };
    let names = campaign.hrm_splits.iter().map(|split| split.name.clone());
    Ok(SplitErrors {
        all: splits.count(),
        judged: judged(chosen)?,
        named: names.zip(judged(named)?).collect(),
    })
}

/// Returns HRM's runs with all events that vary, by sub-experiment.
fn complete(basis: &Basis<'_>) -> Result<Measurements> {
    let counted = basis.counted;
    let wrong = |error: &dyn std::fmt::Display| miette!("workload {}: {error}", counted.name);
    let mut builder = Builder::default();
    for run in &counted.hrm {
        for (name, value) in counted.events.iter().zip(run.truth.iter().flatten()) {
            if basis.data.event(name).is_none() {
                continue;
            }
            builder
                .add(
                    run.sub_experiment.into(),
                    run.run.into(),
                    None,
                    name.as_bytes(),
                    *value as f64,
                )
                .map_err(|error| wrong(&error))?;
        }
    }
    let complete = builder.finish().map_err(|error| wrong(&error))?;
    let reordered = complete.reordered(&basis.data.events);
    reordered.map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::runs::Run;
    use super::super::spec::{self, HrmSplit};
    use super::*;
    use cloison_engine::installation;
    use std::path::PathBuf;

    /// Runs of a plan in which the first events are constant, and the others follow two causes.
    fn runs(plan: &[Vec<usize>], each: u32, events: usize, mut state: u64) -> Vec<Run> {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) % 1000
        };
        let mut all = vec![];
        let rounds = (0..each).flat_map(|run| (0..).zip(plan).map(move |part| (part, run)));
        for ((sub_experiment, counted), run) in rounds {
            let causes = [next(), next()];
            let truth: Vec<u64> = (0..events)
                .map(|event| match event {
                    1..8 => 5,
                    _ => 1000 + causes[event % 2] + next() / 4,
                })
                .collect();
            let count = |event: &usize| (*event, truth[*event]);
            all.push(Run {
                sub_experiment,
                run,
                counted: counted.iter().map(count).collect(),
                truth: Some(truth),
            });
        }
        all
    }

    #[test]
    fn the_split_that_was_run_has_the_error_of_its_runs() {
        let file = installation::root().join("configs/campaigns/much.toml");
        let mut campaign = spec::load(&file).expect("the shipped campaign");
        let anchor = campaign.anchor;
        let without = |block: &Vec<usize>| -> Vec<usize> {
            let block = block.iter().copied();
            block.filter(|event| *event != anchor).collect()
        };
        campaign.hrm_splits.push(HrmSplit {
            name: "as-run".to_owned(),
            sub_experiments: campaign.hrm_plan.iter().map(without).collect(),
        });
        let events = campaign.events.len();
        let counted = WorkloadCounts {
            name: "w".to_owned(),
            variant: String::new(),
            repetition: 1,
            directory: PathBuf::new(),
            events: campaign.events.clone(),
            much: runs(&campaign.plan, 30, events, 1),
            hrm: runs(&campaign.hrm_plan, 70, events, 2),
            images: vec![],
        };
        let judged = judge::judge(&campaign, &counted).expect("a result");
        let splits = &judged.splits;
        let as_run = judged.rows.iter().find(|row| row.method == "hrm");
        let as_run = as_run.expect("HRM");
        let [(_, paper), (_, again)] = splits.named.as_slice() else {
            panic!("{:?}", splits.named)
        };
        assert!(
            (again.errors[0] - as_run.pearson).abs() < 1e-12,
            "{again:?}"
        );
        assert!(
            (again.errors[1] - as_run.spearman).abs() < 1e-12,
            "{again:?}"
        );
        assert_eq!(paper.together.concat().len(), events - 8);
        // Eight events besides the anchor vary: all splits of them are judged.
        assert_eq!((splits.all, splits.judged.len()), (1029, 1029));
        let (best, worst) = (splits.best().expect("one"), splits.worst().expect("one"));
        assert!(
            best.errors[0] < splits.mean(0) && splits.mean(0) < worst.errors[0],
            "{} {} {}",
            best.errors[0],
            splits.mean(0),
            worst.errors[0]
        );
        // The best keeps the events of each cause together.
        assert!(worst.errors[0] > 3.0 * best.errors[0], "{}", best.events());
        assert_eq!(splits.further_than(worst.errors[0]), 0);
        assert_eq!(splits.further_than(0.0), 1029);
    }
}
