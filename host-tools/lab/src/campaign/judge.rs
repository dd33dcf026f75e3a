//! Compares MUCH, HRM and the blind merge with the truth (MUCH, section 5.3, table 4).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::{Run, WorkloadCounts};
use super::spec::Campaign;
use super::splits::{self, SplitErrors};
use cloison_engine::report::Section;
use cloison_much::data::is_stepped;
use cloison_much::data::{Builder, Measurements};
use cloison_much::evaluate::{Both, accuracy, judged_pairs, reference};
use cloison_much::matrix::nearest_correlation;
use cloison_much::merge::{self, Indefinite, Options};
use cloison_much::table::Vectors;
use miette::{Result, miette};
use nalgebra::DMatrix;

/// The results of one workload.
#[derive(Debug)]
pub struct WorkloadResult {
    /// Name of the workload.
    pub workload: String,
    /// Name of the variant; empty where there is only one.
    pub variant: String,
    /// The number of the campaign's seed, from 1.
    pub repetition: u32,
    /// The variability of each of the campaign's events over the runs of MUCH's plan: the
    /// difference between its largest and smallest count, as a part of the largest.
    pub variability: Vec<f64>,
    /// The merged vectors, by MUCH.
    pub vectors: Vectors,
    /// Names of the events that vary.
    pub events: Vec<String>,
    /// Events that are constant over all runs, and so have no correlations.
    pub constant: Vec<String>,
    /// Number of runs of MUCH's plan, and of HRM's.
    pub runs: (usize, usize),
    /// The errors of each method.
    pub rows: Vec<Row>,
    /// Pearson's correlations of the truth, and of the merge.
    pub matrices: [DMatrix<f64>; 2],
    /// Events that vary between sub-experiments, but hardly within one.
    pub stepped: Vec<String>,
    /// HRM's errors over the splits of the events.
    pub splits: SplitErrors,
}

/// Mean square errors of one method's correlations.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the method in figures.
    pub method: &'static str,
    /// Name of the method in tables.
    pub title: &'static str,
    /// Error of Pearson's correlations.
    pub pearson: f64,
    /// Error of Spearman's correlations.
    pub spearman: f64,
    /// The pair with the largest error of Pearson's correlation, and that error.
    pub worst: (String, f64),
    /// Errors of each pair: Pearson's and Spearman's.
    pub errors: [Vec<f64>; 2],
}

/// Merges by each method, and compares the results with the truth.
pub fn judge(campaign: &Campaign, counted: &WorkloadCounts) -> Result<WorkloadResult> {
    let varies = |event: &usize| {
        let mut values = counted
            .much
            .iter()
            .chain(&counted.hrm)
            .filter_map(|run| run.truth_of(*event));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let (varying, constant): (Vec<usize>, Vec<usize>) = (0..counted.events.len()).partition(varies);
    let name = |event: &usize| counted.events[*event].clone();
    let wrong = |error: &dyn std::fmt::Display| miette!("workload {}: {error}", counted.name);
    let data = measurements(counted, &counted.much, &varying, false)?;
    let truth_of = |runs: &[Run]| -> Result<Both> {
        let truth = measurements(counted, runs, &varying, true)?
            .reordered(&data.events)
            .map_err(|e| wrong(&e))?;
        Ok(reference(&truth))
    };
    // HRM's runs are others, and so is their truth.
    let (truth, truth_of_hrm) = (truth_of(&counted.much)?, truth_of(&counted.hrm)?);
    let pairs = judged_pairs(&data);
    let hrm = measurements(counted, &counted.hrm, &varying, false)?
        .reordered(&data.events)
        .map_err(|e| wrong(&e))?;
    let options = Options {
        seed: campaign.seed + 1,
        ..Options::default()
    };
    let merged = merge::much(&data, &options).map_err(|e| wrong(&e))?;
    let paper = merge::paper(&data, &options, Indefinite::Repair).map_err(|e| wrong(&e))?;
    let anchor = &counted.events[campaign.anchor];
    let anchor = data
        .event(anchor)
        .ok_or_else(|| miette!("workload {}: the anchor {anchor} is constant", counted.name))?;
    let by_hrm = merge::hrm(&hrm, anchor, None).map_err(|e| wrong(&e))?;
    let blind = merge::blind(&data).map_err(|e| wrong(&e))?;
    let merged_correlations = merged.vectors.correlations();
    let row = |method, title, [pearson, spearman]: &Both| {
        let truth = if method == "hrm" {
            &truth_of_hrm
        } else {
            &truth
        };
        let (of_pearson, of_spearman) = (
            accuracy(pearson, &truth[0], &pairs),
            accuracy(spearman, &truth[1], &pairs),
        );
        let (one, other) = of_pearson.worst;
        let off = of_pearson.errors.iter().copied().fold(0.0, f64::max);
        let pair = format!("{} / {}", data.events[one].name, data.events[other].name);
        Row {
            method,
            title,
            pearson: of_pearson.mean_square,
            spearman: of_spearman.mean_square,
            worst: (pair, off),
            errors: [of_pearson.errors, of_spearman.errors],
        }
    };
    let pairwise = reference(&data);
    let repaired = pairwise
        .clone()
        .map(|matrix| nearest_correlation(&matrix, 1e-7).matrix);
    let rows = vec![
        row("pairwise", "pairwise", &pairwise),
        row("repaired", "pairwise, repaired", &repaired),
        row("much", "MUCH", &merged_correlations),
        row("paper", "MUCH, plain", &paper.vectors.correlations()),
        row("hrm", "HRM", &by_hrm.correlations()),
        row("blind", "blind", &blind.correlations()),
    ];
    let stepped = |event: &usize| is_stepped(&data, *event, &data.grouped(*event));
    let stepped = (0..data.events.len())
        .filter(stepped)
        .map(|event| data.events[event].name.clone())
        .collect();
    let splits = splits::judge(&splits::Basis {
        campaign,
        counted,
        data: &data,
        truth: &truth_of_hrm,
        pairs: &pairs,
    })?;
    let [pearson_truth, _] = truth;
    let [pearson_merged, _] = merged_correlations;
    Ok(WorkloadResult {
        workload: counted.name.clone(),
        variant: counted.variant.clone(),
        repetition: counted.repetition,
        variability: variability(counted),
        events: data.events.iter().map(|event| event.name.clone()).collect(),
        vectors: merged.vectors,
        constant: constant.iter().map(name).collect(),
        runs: (counted.much.len(), counted.hrm.len()),
        rows,
        matrices: [pearson_truth, pearson_merged],
        stepped,
        splits,
    })
}

/// Returns the runs of several seeds of one workload as one set of measurements: those that
/// `runs_of` selects, by MUCH's plan or by HRM's. Events that are the same in every run are left out.
pub fn pooled(
    seeds: &[&WorkloadCounts],
    runs_of: fn(&WorkloadCounts) -> &[Run],
) -> Result<Measurements> {
    let Some(first) = seeds.first() else {
        return Err(miette!("there are no runs"));
    };
    let mut all = vec![];
    for one in seeds {
        let before = all.iter().map(|run: &Run| run.run + 1).max().unwrap_or(0);
        all.extend(runs_of(one).iter().map(|run| Run {
            run: run.run + before,
            ..run.clone()
        }));
    }
    let varies = |event: &usize| {
        let mut values = seeds
            .iter()
            .flat_map(|one| one.much.iter().chain(&one.hrm))
            .filter_map(|run| run.truth_of(*event));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let varying: Vec<usize> = (0..first.events.len()).filter(varies).collect();
    measurements(first, &all, &varying, false)
}

fn variability(counted: &WorkloadCounts) -> Vec<f64> {
    let of_event = |event: usize| {
        let (least, most) = counted
            .much
            .iter()
            .filter_map(|run| run.truth_of(event))
            .fold((u64::MAX, 0), |(least, most), count| {
                (least.min(count), most.max(count))
            });
        most.saturating_sub(least) as f64 / most.max(1) as f64
    };
    (0..counted.events.len()).map(of_event).collect()
}

fn measurements(
    counted: &WorkloadCounts,
    runs: &[Run],
    wanted: &[usize],
    truth: bool,
) -> Result<Measurements> {
    let mut builder = Builder::default();
    for (number, run) in runs.iter().enumerate() {
        let all: Vec<(usize, u64)> = if truth {
            run.truth.iter().flatten().copied().enumerate().collect()
        } else {
            run.counted.clone()
        };
        let (sub_experiment, number) = if truth {
            (0, number as u64)
        } else {
            (u64::from(run.sub_experiment), u64::from(run.run))
        };
        for (event, value) in all.into_iter().filter(|(event, _)| wanted.contains(event)) {
            let added = builder.add(
                sub_experiment,
                number,
                None,
                counted.events[event].as_bytes(),
                value as f64,
            );
            added.map_err(|error| miette!("workload {}: {error}", counted.name))?;
        }
    }
    builder
        .finish()
        .map_err(|error| miette!("workload {}: {error}", counted.name))
}

/// Returns the tables for terminal and report.
pub fn tables(judged: &[WorkloadResult]) -> Vec<Section> {
    let header = [
        "workload",
        "method",
        "runs",
        "Pearson",
        "Spearman",
        "worst pair",
        "off by",
    ];
    let mut section = Section::new(
        "Mean square error of the correlations against the truth",
        &header,
    );
    for one in judged {
        for row in &one.rows {
            let runs = if row.method == "hrm" {
                one.runs.1
            } else {
                one.runs.0
            };
            section.row([
                one.workload.clone(),
                row.title.to_owned(),
                runs.to_string(),
                format!("{:.6}", row.pearson),
                format!("{:.6}", row.spearman),
                row.worst.0.clone(),
                format!("{:.3}", row.worst.1),
            ]);
        }
    }
    let best = judged.iter().filter(|one| is_best(one)).count();
    section = section.note(format!(
        "Truth: all events of every run of the method's own plan, which the model counts at once \
         and no board can. Pairwise: the estimates from the runs that count both events, without \
         vectors; repaired: the correlation matrix nearest to them. In {best} of {} workloads \
         MUCH is closer to the truth than HRM and the blind merge, for both kinds of correlation.",
        judged.len()
    ));
    let mut left_out = Section::new(
        "Events without correlations",
        &["workload", "the same in every run", "stepped"],
    );
    for one in judged
        .iter()
        .filter(|one| !one.constant.is_empty() || !one.stepped.is_empty())
    {
        left_out.row([
            one.workload.clone(),
            one.constant.join(", "),
            one.stepped.join(", "),
        ]);
    }
    if left_out.rows.is_empty() {
        return vec![section];
    }
    let left_out = left_out.note(
        "Constant events have no correlations and are left out. Stepped events vary from one \
         sub-experiment to another but hardly within one. They are in the vectors, but their \
         correlations from run to run are unknown: MUCH takes them as zero.",
    );
    vec![section, left_out]
}

/// Returns whether MUCH is closer to the truth than HRM and the blind merge, for both kinds of
/// correlation.
pub fn is_best(one: &WorkloadResult) -> bool {
    let of = |method: &str| one.rows.iter().find(|row| row.method == method);
    let Some(much) = of("much") else { return false };
    [of("hrm"), of("blind")]
        .iter()
        .flatten()
        .all(|other| much.pearson <= other.pearson && much.spearman <= other.spearman)
}
