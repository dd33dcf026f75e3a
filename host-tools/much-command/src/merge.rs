//! `cloison much merge`: merges the counts of all sub-experiments into vectors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::implausible::Inspected;
use super::input::{self, ProgramChoice};
use super::page;
use clap::ValueEnum;
use cloison_engine::figures::Figures;
use cloison_engine::files::{is_regular, keep_apart, stream_atomic, write_atomic};
use cloison_engine::installation;
use cloison_engine::report::Section;
use cloison_much::data::{DataError, Measurements};
use cloison_much::estimate::runs_of_pairs;
use cloison_much::evaluate::{Both, accuracy, judged_pairs, marginal_distances, reference};
use cloison_much::merge::{self, Indefinite, Merged, Options, Target};
use cloison_much::swap::End;
use cloison_much::table::Vectors;
use cloison_much::write;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Options of `cloison much merge`.
#[derive(Clone, Debug, clap::Args)]
pub struct MergeArgs {
    /// The measurements: CSV or Parquet (long or wide), what perf stat (-x, -j) or PAPI wrote, the
    /// HEM log, compressed or not; or a folder of such files
    input: PathBuf,
    /// Write the vectors here: Parquet if the name ends in .parquet, otherwise CSV (default: CSV
    /// to standard output)
    #[arg(short, long = "out", alias = "output", value_name = "OUT")]
    output: Option<PathBuf>,
    /// The method
    #[arg(long, value_enum, default_value_t = MethodArg::Much)]
    method: MethodArg,
    /// The correlations that the vectors should have
    #[arg(long, value_enum, default_value_t = TargetArg::Both)]
    target: TargetArg,
    /// HRM's anchor (default: the event that most sub-experiments count)
    #[arg(long, value_name = "EVENT")]
    anchor: Option<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of vectors (default: as many as the event with the most counts has)
    #[arg(long, value_name = "N")]
    vectors: Option<usize>,
    /// Number of draws from which to take the best
    #[arg(long, value_name = "N", default_value_t = 1)]
    draws: u64,
    #[command(flatten)]
    chosen: ProgramChoice,
    /// Write a page with heatmaps and error curves here
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl MergeArgs {
    /// Returns the arguments that merge counts by MUCH into this file of vectors, and write this page.
    pub fn by_much(input: &Path, vectors: &Path, report: &Path, seed: u64) -> Self {
        Self {
            input: input.to_path_buf(),
            output: Some(vectors.to_path_buf()),
            method: MethodArg::Much,
            target: TargetArg::Both,
            anchor: None,
            seed,
            vectors: None,
            draws: 1,
            chosen: ProgramChoice::default(),
            report: Some(report.to_path_buf()),
            json: None,
        }
    }
}

/// How to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MethodArg {
    /// Every pair's correlation, from all sub-experiments together
    Much,
    /// MUCH exactly as published: pairwise estimates of normal scores, one plain draw; refused
    /// where their matrix is indefinite
    Paper,
    /// The same with the nearest correlation matrix
    Plain,
    /// By the rank of an anchor that every sub-experiment counts
    Hrm,
    /// Run by run, regardless of what they have in common
    Blind,
}

/// The correlations to approach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TargetArg {
    /// Pearson's and Spearman's
    Both,
    /// Pearson's: those of the counts
    Pearson,
    /// Spearman's: those of the ranks
    Spearman,
}

/// Maximum number of vectors of a merge.
const MOST_VECTORS: usize = 1 << 24;

/// Returns the anchor by its name, or the event that most sub-experiments count.
pub fn anchor(data: &Measurements, name: Option<&str>) -> Result<usize> {
    if let Some(name) = name {
        return data.event(name).ok_or_else(|| {
            let names = data
                .events
                .iter()
                .map(|event| event.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            miette!(
                help = format!("the events are {names}"),
                "unknown event {name}"
            )
        });
    }
    let counted = |event: usize| {
        data.sub_experiments
            .iter()
            .filter(|sub| sub.column(event).is_some())
            .count()
    };
    (0..data.events.len())
        .rev()
        .max_by_key(|&event| counted(event))
        .ok_or_else(|| miette!("there are no events"))
}

/// Runs `cloison much merge`. Returns the vectors.
///
/// # Errors
///
/// If the counts cannot be read or merged, or a file not be written.
pub fn merge(args: &MergeArgs) -> Result<Vectors> {
    if let Some(count) = args
        .vectors
        .filter(|count| !(2..=MOST_VECTORS).contains(count))
    {
        return Err(miette!(
            "--vectors {count}: must be from 2 to {MOST_VECTORS}"
        ));
    }
    // There is nothing beside a device or a pipe.
    let named = args.output.as_ref().filter(|path| is_regular(path));
    let pairs_file = named.map(|path| path.with_extension("pairs.csv"));
    let quality_file = named.map(|path| path.with_extension("quality.csv"));
    let outputs = [
        &args.output,
        &pairs_file,
        &quality_file,
        &args.report,
        &args.json,
    ];
    keep_apart(
        [args.input.as_path()],
        outputs.into_iter().flatten().map(PathBuf::as_path),
    )?;
    let inspected = input::inspected(&args.input, &args.chosen)?;
    let data = &inspected.data;
    let options = Options {
        seed: args.seed,
        vectors: args.vectors,
        target: match args.target {
            TargetArg::Both => Target::Both,
            TargetArg::Pearson => Target::Pearson,
            TargetArg::Spearman => Target::Spearman,
        },
        draws: args.draws,
    };
    let place = |error: DataError| {
        let help = match error {
            DataError::Indefinite(_) => {
                "--method plain repairs it first; --method much does not start from it".into()
            }
            _ => format!(
                "`{} much plan` makes sub-experiments in which every pair is counted together",
                installation::program()
            ),
        };
        miette!(help = help, "{}: {error}", args.input.display())
    };
    let bar = input::working(format!(
        "merging {} runs of {} events",
        data.runs(),
        data.events.len()
    ));
    let merged: Result<Merged, Vectors> = match args.method {
        MethodArg::Much => Ok(merge::much(data, &options).map_err(place)?),
        MethodArg::Paper => Ok(merge::paper(data, &options, Indefinite::Refuse).map_err(place)?),
        MethodArg::Plain => Ok(merge::paper(data, &options, Indefinite::Repair).map_err(place)?),
        MethodArg::Hrm => {
            let anchor = anchor(data, args.anchor.as_deref())?;
            Err(merge::hrm(data, anchor, args.vectors).map_err(place)?)
        }
        MethodArg::Blind => Err(merge::blind(data).map_err(place)?),
    };
    let vectors = match &merged {
        Ok(merged) => &merged.vectors,
        Err(vectors) => vectors,
    };
    let (section, figures) = summary(args, &inspected, vectors, merged.as_ref().ok())?;
    bar.finish_and_clear();
    // Everything is computed before the first file is written.
    let page = args
        .report
        .as_ref()
        .map(|_| page::merged(data, vectors, merged.as_ref().ok(), &section, &figures))
        .transpose()?;
    let pairs = match (pairs_file, &merged) {
        (Some(path), Ok(merged)) => Some((path, pairs(data, merged)?)),
        _ => None,
    };
    output(args.output.as_deref(), vectors)?;
    if let Some((path, pairs)) = &pairs {
        write_atomic(path, pairs)?;
    }
    if let Some(path) = &quality_file {
        write_atomic(path, &inspected.csv()?)?;
    }
    if let (Some(path), Some(page)) = (&args.report, &page) {
        write_atomic(path, page.as_bytes())?;
    }
    eprint!("{}", section.to_text());
    figures.write(args.json.as_deref())?;
    Ok(match merged {
        Ok(merged) => merged.vectors,
        Err(vectors) => vectors,
    })
}

fn output(path: Option<&Path>, vectors: &Vectors) -> Result<()> {
    let Some(path) = path else {
        let written = write::write_csv(vectors, &mut std::io::stdout());
        return written
            .into_diagnostic()
            .wrap_err("cannot write to standard output");
    };
    if path
        .extension()
        .is_some_and(|extension| extension == "parquet")
    {
        let created_by = concat!("cloison ", env!("CARGO_PKG_VERSION"));
        return stream_atomic(path, |file| {
            write::write_parquet(vectors, created_by, file).map_err(std::io::Error::other)
        });
    }
    stream_atomic(path, |file| write::write_csv(vectors, file))
}

/// Every pair: how many runs its correlations rest on, whatever the number of vectors, and what
/// they were and became.
fn pairs(data: &Measurements, merged: &Merged) -> Result<Vec<u8>> {
    let (of, runs) = (&merged.correlations, runs_of_pairs(data));
    let made = merged.vectors.correlations();
    let mut writer = csv::Writer::from_writer(vec![]);
    let header = [
        "event",
        "other",
        "effective_runs",
        "pearson_measured",
        "pearson_target",
        "pearson_merged",
    ];
    let spearman = ["spearman_measured", "spearman_target", "spearman_merged"];
    writer
        .write_record(header.iter().chain(&spearman))
        .into_diagnostic()?;
    for pair in cloison_much::matrix::pairs(data.events.len()) {
        let values = [
            of.pearson_measured[pair],
            of.pearson_target[pair],
            made[0][pair],
            of.spearman_measured[pair],
            of.spearman_target[pair],
            made[1][pair],
        ];
        let mut record = vec![
            data.events[pair.0].name.clone(),
            data.events[pair.1].name.clone(),
            runs[pair].to_string(),
        ];
        record.extend(values.map(|value| value.to_string()));
        writer.write_record(record).into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}

/// Which events have larger counts than any vector, for with fewer vectors than counts the extremes
/// are the first to go.
fn lost_extremes(data: &Measurements, vectors: &Vectors) -> Option<String> {
    let is_lost = |event: &usize| {
        // Observations ascend, so the largest is the last one.
        let column = &vectors.columns[*event];
        let used = column
            .chosen()
            .iter()
            .max()
            .map_or(f64::NEG_INFINITY, |&at| column.observed().get(at as usize));
        data.sub_experiments
            .iter()
            .filter_map(|sub| sub.column(*event))
            .any(|part| part.iter().any(|count| count > used))
    };
    let lost: Vec<&str> = (0..data.events.len())
        .filter(is_lost)
        .map(|event| data.events[event].name.as_str())
        .collect();
    let named = lost.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if lost.len() > 5 {
        format!(" and {} more", lost.len() - 5)
    } else {
        String::new()
    };
    (!lost.is_empty()).then(|| {
        format!(
            "The largest counts of {named}{more} are in no vector: do not take maxima from so few \
             vectors."
        )
    })
}

/// What the estimates were made of and how exchanges ended, where that should be known.
fn remarks(merged: &Merged) -> String {
    let mut text = String::new();
    if let Some(estimates) = &merged.correlations.estimates {
        for (kind, estimate) in ["Pearson", "Spearman"].iter().zip(estimates) {
            let used = estimate
                .weights
                .iter()
                .filter(|(_, weight)| *weight >= 0.005);
            let parts = used
                .map(|(name, weight)| format!("{:.0} % {name}", weight * 100.0))
                .collect::<Vec<_>>();
            text += &format!("{kind}'s estimates: {}. ", parts.join(", "));
            if !estimate.converged {
                text += &format!(
                    "The fit of the Gaussian model ended after {} steps without reaching its \
                     optimum. ",
                    estimate.steps
                );
            }
        }
    }
    if let Some(exchanges) = merged.exchanges
        && exchanges.end == End::Work
    {
        text += &format!(
            "With so many vectors, exchanges ended after {} rounds. ",
            exchanges.rounds
        );
    }
    text
}

/// The correlations of the vectors beside others, for the report and as figures.
struct Comparison<'a> {
    section: Section,
    figures: &'a mut Figures,
}

impl Comparison<'_> {
    /// Adds a value of Pearson's and of Spearman's correlations.
    fn row(&mut self, what: &str, name: &str, values: [f64; 2]) {
        for (kind, value) in ["pearson", "spearman"].iter().zip(values) {
            self.figures.value(format!("{kind}_{name}"), value);
        }
        let [pearson, spearman] = values.map(|value| format!("{value:.6}"));
        self.section.row([what.to_owned(), pearson, spearman]);
    }

    /// Adds what merging aimed at, and how far the vectors are from it. Returns the remarks.
    fn with_target(
        &mut self,
        merged: &Merged,
        correlations: &Both,
        judged: &[(usize, usize)],
    ) -> String {
        let of = &merged.correlations;
        let targets = [&of.pearson_target, &of.spearman_target];
        let measured = [&of.pearson_measured, &of.spearman_measured];
        let both = |f: &dyn Fn(usize) -> f64| [f(0), f(1)];
        self.row(
            "mean square error from the target",
            "mse_target",
            both(&|at| accuracy(&correlations[at], targets[at], judged).mean_square),
        );
        self.row(
            "… from the measured pairs, which vary by chance",
            "mse_measured",
            both(&|at| accuracy(&correlations[at], measured[at], judged).mean_square),
        );
        self.row(
            "the target from them: that chance",
            "mse_between",
            both(&|at| accuracy(targets[at], measured[at], judged).mean_square),
        );
        if let Some(repairs) = of.repairs {
            self.row(
                "least eigenvalue of the estimates",
                "least_eigenvalue",
                repairs.map(|repair| repair.least_eigenvalue),
            );
            self.row(
                "their distance from the nearest correlations",
                "repair_distance",
                repairs.map(|repair| repair.distance),
            );
        }
        let mut note = remarks(merged);
        if of.model.distance > 0.0 {
            note += &format!(
                "The Gaussian model's own matrix had the least eigenvalue {:.4}; its repair moved \
                 it by {:.4}. ",
                of.model.least_eigenvalue, of.model.distance
            );
        }
        note
    }
}

/// Says how many runs each correlation rests on.
fn effective_runs(data: &Measurements, judged: &[(usize, usize)], figures: &mut Figures) -> String {
    let runs = runs_of_pairs(data);
    let effective = judged.iter().map(|&pair| runs[pair] as u64);
    let (Some(fewest), Some(most)) = (effective.clone().min(), effective.max()) else {
        return String::new();
    };
    figures
        .count("effective_runs_least", fewest)
        .count("effective_runs_most", most);
    let runs = if fewest == most {
        fewest.to_string()
    } else {
        format!("{fewest} to {most}")
    };
    format!("Each correlation rests on {runs} runs, not on as many as there are vectors. ")
}

fn summary(
    args: &MergeArgs,
    inspected: &Inspected,
    vectors: &Vectors,
    merged: Option<&Merged>,
) -> Result<(Section, Figures)> {
    let data = &inspected.data;
    let mut figures = input::figures_of("much merge", &[("input", &args.input)], &args.chosen)?
        .parameter("method", args.method)
        .parameter("target", args.target)
        .parameter("anchor", args.anchor.as_deref().unwrap_or("by default"))
        .parameter("draws", args.draws)
        .parameter("seed", args.seed);
    figures
        .count("events", data.events.len() as u64)
        .count("sub_experiments", data.sub_experiments.len() as u64)
        .count("runs", data.runs() as u64)
        .count("implausible", inspected.suspects.len() as u64)
        .count("runs_excluded", inspected.excluded() as u64)
        .count("vectors", vectors.len() as u64)
        .count("seed", args.seed);
    let correlations = vectors.correlations();
    let judged = judged_pairs(data);
    let mut comparison = Comparison {
        section: Section::new("Merged", &["", "Pearson", "Spearman"]),
        figures: &mut figures,
    };
    let mut note = String::new();
    if let Some(merged) = merged {
        note = comparison.with_target(merged, &correlations, &judged);
    } else if data.missing_pairs().is_empty() {
        let measured = reference(data);
        let errors =
            [0, 1].map(|at| accuracy(&correlations[at], &measured[at], &judged).mean_square);
        comparison.row(
            "mean square error from the pairs as measured",
            "mse_measured",
            errors,
        );
    }
    let section = comparison.section;
    let distances = marginal_distances(vectors, data);
    let largest = distances.iter().copied().fold(0.0, f64::max);
    figures.value("marginal_distance", largest);
    note += &effective_runs(data, &judged, &mut figures);
    note += &format!(
        "{} vectors of {} events; the largest Kolmogorov-Smirnov distance between an event's \
         values and the measured ones is {largest:.5}.",
        vectors.len(),
        data.events.len()
    );
    if let Some(lost) = lost_extremes(data, vectors) {
        note += &format!(" {lost}");
    }
    Ok((section.note(note), figures))
}
