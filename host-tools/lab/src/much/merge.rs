//! `cloison much merge`: merges the counts of all sub-experiments into vectors.

use super::input::{self, Chosen};
use super::page;
use clap::ValueEnum;
use cloison_engine::figures::Figures;
use cloison_engine::files::write_atomic;
use cloison_engine::installation;
use cloison_engine::report::Section;
use cloison_much::data::Measurements;
use cloison_much::evaluate::{accuracy, marginal_distances, reference};
use cloison_much::merge::{self, Merged, Options, Target};
use cloison_much::table::Vectors;
use cloison_much::write;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `cloison much merge`.
#[derive(Clone, Debug, clap::Args)]
pub struct MergeArgs {
    /// The measurements: long CSV (plain or gzip), Parquet or the HEM log
    input: PathBuf,
    /// Write the vectors here: Parquet if the name ends in .parquet, otherwise CSV (default: CSV to standard output)
    #[arg(short, long, value_name = "OUT")]
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
    chosen: Chosen,
    /// Write a page with heatmaps and error curves here
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodArg {
    /// Every pair's correlation, from all sub-experiments together
    Much,
    /// MUCH as published: pairwise estimates, one plain draw
    Paper,
    /// By the rank of an anchor that every sub-experiment counts
    Hrm,
    /// Run by run, regardless of what they have in common
    Blind,
}

/// The correlations to approach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
            let names = data.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ");
            miette!(help = format!("the events are {names}"), "unknown event {name}")
        });
    }
    let counted = |event: usize| data.sub_experiments.iter().filter(|sub| sub.column(event).is_some()).count();
    (0..data.events.len()).rev().max_by_key(|&event| counted(event)).ok_or_else(|| miette!("there are no events"))
}

/// Runs `cloison much merge`.
pub fn merge(args: &MergeArgs) -> Result<()> {
    if let Some(count) = args.vectors.filter(|count| !(2..=MOST_VECTORS).contains(count)) {
        return Err(miette!("--vectors {count}: must be from 2 to {MOST_VECTORS}"));
    }
    let data = input::measurements(&args.input, &args.chosen)?;
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
    let place = |error: cloison_much::data::DataError| {
        miette!(
            help = format!(
                "`{} much plan` makes sub-experiments in which every pair is counted together",
                installation::program()
            ),
            "{}: {error}",
            args.input.display()
        )
    };
    let bar = input::working(format!("merging {} runs of {} events", data.runs(), data.events.len()));
    let merged: Result<Merged, Vectors> = match args.method {
        MethodArg::Much => Ok(merge::much(&data, &options).map_err(place)?),
        MethodArg::Paper => Ok(merge::paper(&data, &options).map_err(place)?),
        MethodArg::Hrm => {
            let anchor = anchor(&data, args.anchor.as_deref())?;
            Err(merge::hrm(&data, anchor, args.vectors).map_err(place)?)
        }
        MethodArg::Blind => Err(merge::blind(&data).map_err(place)?),
    };
    let vectors = match &merged {
        Ok(merged) => &merged.vectors,
        Err(vectors) => vectors,
    };
    let (section, figures) = summary(args, &data, vectors, merged.as_ref().ok());
    bar.finish_and_clear();
    // All outputs are complete in memory before the first file is written.
    let page = args.report.as_ref().map(|_| page::merged(&data, vectors, merged.as_ref().ok(), &section, &figures));
    output(args.output.as_deref(), vectors)?;
    if let (Some(path), Some(page)) = (&args.report, &page) {
        write_atomic(path, page.as_bytes())?;
    }
    eprint!("{}", section.to_text());
    figures.write(args.json.as_deref())
}

fn output(path: Option<&Path>, vectors: &Vectors) -> Result<()> {
    let Some(path) = path else {
        let written = std::io::stdout().write_all(&write::to_csv(vectors));
        return written.into_diagnostic().wrap_err("cannot write to standard output");
    };
    let bytes = if path.extension().is_some_and(|extension| extension == "parquet") {
        let created_by = concat!("cloison ", env!("CARGO_PKG_VERSION"));
        write::to_parquet(vectors, created_by).into_diagnostic().wrap_err("cannot lay out the Parquet file")?
    } else {
        write::to_csv(vectors)
    };
    write_atomic(path, &bytes)
}

fn summary(args: &MergeArgs, data: &Measurements, vectors: &Vectors, merged: Option<&Merged>) -> (Section, Figures) {
    let mut figures = Figures::new("much merge");
    figures
        .count("events", data.events.len() as u64)
        .count("sub_experiments", data.sub_experiments.len() as u64)
        .count("runs", data.runs() as u64)
        .count("vectors", vectors.len() as u64)
        .count("seed", args.seed);
    let mut section = Section::new("Merged", &["", "Pearson", "Spearman"]);
    let correlations = vectors.correlations();
    let mut row = |what: &str, name: &str, values: [f64; 2]| {
        for (kind, value) in ["pearson", "spearman"].iter().zip(values) {
            figures.value(format!("{kind}_{name}"), value);
        }
        section.row([what.to_owned(), format!("{:.6}", values[0]), format!("{:.6}", values[1])]);
    };
    let missing = data.missing_pairs().len();
    let mut note = String::new();
    if let Some(merged) = merged {
        let of = &merged.correlations;
        let targets = [&of.pearson_target, &of.spearman_target];
        let measured = [&of.pearson_measured, &of.spearman_measured];
        let both = |f: &dyn Fn(usize) -> f64| [f(0), f(1)];
        row(
            "mean square error from the target",
            "mse_target",
            both(&|at| accuracy(&correlations[at], targets[at]).mean_square),
        );
        row(
            "… from the pairs as measured",
            "mse_measured",
            both(&|at| accuracy(&correlations[at], measured[at]).mean_square),
        );
        row(
            "the target from the pairs as measured",
            "mse_between",
            both(&|at| accuracy(targets[at], measured[at]).mean_square),
        );
        row("least eigenvalue of the estimates", "least_eigenvalue", of.repairs.map(|repair| repair.least_eigenvalue));
        row(
            "their distance from the nearest correlations",
            "repair_distance",
            of.repairs.map(|repair| repair.distance),
        );
        if of.model.distance > 0.0 {
            note = format!(
                "The Gaussian model's own matrix had the smallest eigenvalue {:.4}; its repair moved it by {:.4}. ",
                of.model.least_eigenvalue, of.model.distance
            );
        }
    } else if missing == 0 {
        let measured = reference(data);
        let errors = [0, 1].map(|at| accuracy(&correlations[at], &measured[at]).mean_square);
        row("mean square error from the pairs as measured", "mse_measured", errors);
    }
    let distances = marginal_distances(vectors, data);
    let largest = distances.iter().copied().fold(0.0, f64::max);
    figures.value("marginal_distance", largest);
    note += &format!(
        "{} vectors of {} events; the largest Kolmogorov-Smirnov distance between an event's values and the measured \
         ones is {largest:.5}.",
        vectors.len(),
        data.events.len()
    );
    (section.note(note), figures)
}
