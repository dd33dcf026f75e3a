//! `cargo xtask much evaluate`.

use super::input::{self, Chosen};
use super::page;
use crate::figures::{Figures, write_atomic};
use crate::report::Section;
use cloison_much::data::Measurements;
use cloison_much::evaluate::{Accuracy, accuracy, marginal_distances, reference};
use cloison_much::matrix::pairs;
use miette::{IntoDiagnostic, Result, miette};
use std::path::PathBuf;

/// What to evaluate, and against what.
#[derive(Clone, Debug, clap::Args)]
pub struct EvaluateArgs {
    /// Merged vectors: wide CSV
    vectors: PathBuf,
    /// Measurements in which every pair meets
    #[arg(long, value_name = "IN")]
    reference: PathBuf,
    #[command(flatten)]
    chosen: Chosen,
    /// How many of the worst pairs to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    worst: usize,
    /// Write one row a pair here
    #[arg(long, value_name = "OUT")]
    csv: Option<PathBuf>,
    /// Write a page with heatmaps and error curves here
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `cargo xtask much evaluate`.
pub fn evaluate(args: &EvaluateArgs) -> Result<()> {
    let vectors = input::vectors(&args.vectors)?;
    let data = input::measurements(&args.reference, &args.chosen)?;
    let data = data.reordered(&vectors.events).map_err(|error| {
        miette!("{} and {} do not have the same events: {error}", args.vectors.display(), args.reference.display())
    })?;
    data.check_pairs().map_err(|error| miette!("{}: {error}", args.reference.display()))?;
    let merged = vectors.correlations();
    let measured = reference(&data);
    let accuracies = [0, 1].map(|at| accuracy(&merged[at], &measured[at]));
    let distances = marginal_distances(&vectors, &data);
    let mut figures = Figures::new("much evaluate");
    figures.count("vectors", vectors.len() as u64).count("events", data.events.len() as u64);
    let mut section = Section::new("Correlations of the vectors and as measured", &["", "Pearson", "Spearman"]);
    let both = |f: &dyn Fn(&Accuracy) -> f64| [f(&accuracies[0]), f(&accuracies[1])];
    let mut row = |what: &str, name: &str, values: [f64; 2]| {
        figures.value(format!("pearson_{name}"), values[0]).value(format!("spearman_{name}"), values[1]);
        section.row([what.to_owned(), format!("{:.6}", values[0]), format!("{:.6}", values[1])]);
    };
    row("mean square error", "mse", both(&|accuracy| accuracy.mean_square));
    row(
        "mean error",
        "mean_error",
        both(&|accuracy| accuracy.errors.iter().sum::<f64>() / accuracy.errors.len() as f64),
    );
    row("worst pair", "worst", both(&|accuracy| accuracy.errors.iter().copied().fold(0.0, f64::max)));
    let farthest = (0..distances.len()).max_by(|&a, &b| distances[a].total_cmp(&distances[b])).unwrap_or(0);
    figures.value("marginal_distance", distances[farthest]);
    let section = section.note(format!(
        "The values of {} are the farthest from those measured: Kolmogorov-Smirnov distance {:.5}.",
        data.events[farthest].name, distances[farthest]
    ));
    let csv = if args.csv.is_some() { Some(table(&data, &merged, &measured)?) } else { None };
    let page = args.report.is_some().then(|| page::evaluated(&data, &merged, &measured, &section, &figures));
    if let (Some(path), Some(csv)) = (&args.csv, &csv) {
        write_atomic(path, csv)?;
    }
    if let (Some(path), Some(page)) = (&args.report, &page) {
        write_atomic(path, page.as_bytes())?;
    }
    print!("{}", section.to_text());
    print!("{}", worst(&data, &accuracies, args.worst).to_text());
    figures.write(args.json.as_deref())
}

fn worst(data: &Measurements, accuracies: &[Accuracy; 2], count: usize) -> Section {
    let mut section = Section::new("The worst pairs", &["correlation", "pair", "error"]);
    let pairs = pairs(data.events.len());
    for (kind, accuracy) in ["Pearson", "Spearman"].iter().zip(accuracies) {
        let mut order: Vec<_> = (0..pairs.len()).collect();
        order.sort_by(|&a, &b| accuracy.errors[b].total_cmp(&accuracy.errors[a]));
        for &at in order.iter().take(count) {
            let (a, b) = pairs[at];
            let names = format!("{} and {}", data.events[a].name, data.events[b].name);
            section.row([(*kind).to_owned(), names, format!("{:.4}", accuracy.errors[at])]);
        }
    }
    section
}

fn table(
    data: &Measurements,
    merged: &cloison_much::evaluate::Both,
    measured: &cloison_much::evaluate::Both,
) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(vec![]);
    let header = ["event", "other", "pearson_measured", "pearson_merged", "spearman_measured", "spearman_merged"];
    writer.write_record(header).into_diagnostic()?;
    for pair in pairs(data.events.len()) {
        let mut record = vec![data.events[pair.0].name.clone(), data.events[pair.1].name.clone()];
        for at in 0..2 {
            record.extend([measured[at][pair].to_string(), merged[at][pair].to_string()]);
        }
        writer.write_record(record).into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}
