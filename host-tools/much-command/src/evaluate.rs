//! `cloison much evaluate`: compares merged vectors with measurements or with the truth.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::input::{self, ProgramChoice};
use super::page;
use cloison_engine::figures::Figures;
use cloison_engine::files::{Conflict, keep_apart, write_atomic};
use cloison_engine::report::Section;
use cloison_much::data::{Event, Measurements};
use cloison_much::evaluate::{
    self, Accuracy, Bands, Both, FEWEST_SAMPLES, accuracy, marginal_distances, reference,
};
use cloison_much::matrix::pairs;
use cloison_much::table::Vectors;
use miette::{IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};

/// Options of `cloison much evaluate`.
#[derive(Clone, Debug, clap::Args)]
pub struct EvaluateArgs {
    /// Merged vectors: CSV (plain or gzip) or Parquet, one column per event
    vectors: PathBuf,
    /// Measurements in which every pair is counted together
    #[arg(long, value_name = "IN", required_unless_present = "truth")]
    reference: Option<PathBuf>,
    /// Complete vectors to compare with instead: CSV or Parquet, one column per event, such as a
    /// campaign's truth.csv
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    truth: Option<PathBuf>,
    /// Bootstrap samples of the reference, for the 95 % bands (0: none)
    #[arg(long, value_name = "N", default_value_t = 200)]
    samples: usize,
    /// Seed of the samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    chosen: ProgramChoice,
    /// Number of worst pairs to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    worst: usize,
    /// Write one row per pair here
    #[arg(long, value_name = "OUT")]
    csv: Option<PathBuf>,
    /// Write a page with heatmaps and error curves here
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Reads what the vectors are compared with.
fn measured(args: &EvaluateArgs, path: &Path, vectors: &Vectors) -> Result<Measurements> {
    if args.truth.is_some() {
        // A truth may have more events: constant ones were left out of the merge.
        let mut truth = input::vectors(path)?;
        let wanted = |event: &Event| vectors.events.iter().any(|known| known.name == event.name);
        let (events, columns) = truth
            .events
            .into_iter()
            .zip(truth.columns)
            .filter(|(event, _)| wanted(event))
            .unzip();
        (truth.events, truth.columns) = (events, columns);
        Ok(truth.measurements())
    } else {
        input::measurements(path, &args.chosen)
    }
}

impl EvaluateArgs {
    /// Refuses to write one of the files that are read.
    fn keep_apart(&self) -> Result<(), Conflict> {
        let inputs = [
            Some(&self.vectors),
            self.truth.as_ref(),
            self.reference.as_ref(),
        ];
        let outputs = [&self.csv, &self.report, &self.json];
        let of = PathBuf::as_path;
        keep_apart(
            inputs.into_iter().flatten().map(of),
            outputs.into_iter().flatten().map(of),
        )
    }
}

/// Runs `cloison much evaluate`.
pub fn evaluate(args: &EvaluateArgs) -> Result<()> {
    args.keep_apart()?;
    let vectors = input::vectors(&args.vectors)?;
    let path = args
        .truth
        .as_ref()
        .or(args.reference.as_ref())
        .ok_or_else(|| miette!("there is no reference"))?;
    if args.truth.is_some() && args.chosen.some_runs() {
        return Err(miette!(
            help = "complete vectors have no runs of sub-experiments to choose from",
            "--skip-runs and --first-runs say nothing of --truth"
        ));
    }
    let data = measured(args, path, &vectors)?;
    let data = data.reordered(&vectors.events).map_err(|error| {
        miette!(
            "{} and {} do not have the same events: {error}",
            args.vectors.display(),
            path.display()
        )
    })?;
    data.check_pairs()
        .map_err(|error| miette!("{}: {error}", path.display()))?;
    let merged = vectors.correlations();
    let measured = reference(&data);
    let judged = evaluate::judged_pairs(&data);
    let accuracies = [0, 1].map(|at| accuracy(&merged[at], &measured[at], &judged));
    let distances = marginal_distances(&vectors, &data);
    let bar = input::working(format!("drawing {} samples", args.samples));
    let bands =
        (args.samples > 0).then(|| evaluate::bands(&merged, &data, args.samples, args.seed));
    bar.finish_and_clear();
    let inputs = [
        ("vectors", args.vectors.as_path()),
        (
            if args.truth.is_some() {
                "truth"
            } else {
                "reference"
            },
            path,
        ),
    ];
    let mut figures = input::figures_of("much evaluate", &inputs, &args.chosen)?
        .parameter("samples", args.samples)
        .parameter("seed", args.seed);
    let in_sample = args.truth.is_none() && evaluate::is_in_sample(&vectors, &data);
    figures
        .count("vectors", vectors.len() as u64)
        .count("events", data.events.len() as u64)
        .count("pairs", judged.len() as u64)
        .count("in_sample", in_sample.into());
    let section = Comparison {
        args,
        data: &data,
        pairs: judged.len(),
        accuracies: &accuracies,
        bands: bands.as_ref(),
        in_sample,
        distances: &distances,
    }
    .section(&mut figures);
    let csv = if args.csv.is_some() {
        Some(table(&data, &merged, &measured, bands.as_ref())?)
    } else {
        None
    };
    let page = args.report.is_some().then(|| {
        page::evaluated(
            &data,
            &merged,
            &measured,
            bands.as_ref(),
            &section,
            &figures,
        )
    });
    let page = page.transpose()?;
    if let (Some(path), Some(csv)) = (&args.csv, &csv) {
        write_atomic(path, csv)?;
    }
    if let (Some(path), Some(page)) = (&args.report, &page) {
        write_atomic(path, page.as_bytes())?;
    }
    print!("{}", section.to_text());
    print!(
        "{}",
        worst(&data, &judged, &accuracies, args.worst).to_text()
    );
    figures.write(args.json.as_deref())
}

/// How near the vectors' correlations are to those measured.
struct Comparison<'a> {
    args: &'a EvaluateArgs,
    data: &'a Measurements,
    /// How many pairs of events are compared.
    pairs: usize,
    /// By Pearson's and by Spearman's coefficient.
    accuracies: &'a [Accuracy; 2],
    bands: Option<&'a Bands>,
    /// The vectors were made from the data.
    in_sample: bool,
    /// How far each event's values are from those measured.
    distances: &'a [f64],
}

impl Comparison<'_> {
    /// Returns the table, and adds its numbers to the figures.
    fn section(&self, figures: &mut Figures) -> Section {
        let mut section = Section::new(
            "Correlations of the vectors and as measured",
            &["", "Pearson", "Spearman"],
        );
        for row in self.errors().into_iter().chain(self.chances()) {
            let [pearson, spearman] = row.values;
            figures
                .value(format!("pearson_{}", row.name), pearson)
                .value(format!("spearman_{}", row.name), spearman);
            section.row([row.title, format!("{pearson:.6}"), format!("{spearman:.6}")]);
        }
        let farthest = (0..self.distances.len())
            .max_by(|&a, &b| self.distances[a].total_cmp(&self.distances[b]))
            .unwrap_or(0);
        figures.value("marginal_distance", self.distances[farthest]);
        section.note(format!(
            "{} pairs of which both events vary. The values of {} are the farthest from those \
             measured: Kolmogorov-Smirnov distance {:.5}.{}",
            self.pairs,
            self.data.events[farthest].name,
            self.distances[farthest],
            self.remarks()
        ))
    }

    fn errors(&self) -> [ComparisonRow; 3] {
        let both = |of: fn(&Accuracy) -> f64| [of(&self.accuracies[0]), of(&self.accuracies[1])];
        [
            ComparisonRow::new("mean square error", "mse", both(|it| it.mean_square)),
            ComparisonRow::new(
                "mean error",
                "mean_error",
                both(|it| it.errors.iter().sum::<f64>() / it.errors.len().max(1) as f64),
            ),
            ComparisonRow::new(
                "worst pair",
                "worst",
                both(|it| it.errors.iter().copied().fold(0.0, f64::max)),
            ),
        ]
    }

    /// Rows from samples of the reference, if there are any.
    fn chances(&self) -> Vec<ComparisonRow> {
        let Some(bands) = self.bands else {
            return vec![];
        };
        let [low, high] = if self.args.samples < FEWEST_SAMPLES {
            ["… its band: least of few samples", "… most"]
        } else {
            ["… its band: low end of 95 %", "… high end of 95 %"]
        };
        let share = |count: usize| count as f64 / self.pairs.max(1) as f64;
        vec![
            ComparisonRow::new(low, "mse_low", bands.mean_square.map(|band| band.0)),
            ComparisonRow::new(high, "mse_high", bands.mean_square.map(|band| band.1)),
            ComparisonRow::new(
                "mean square error that chance alone makes",
                "mse_chance",
                bands.chance,
            ),
            ComparisonRow::new(
                "share of pairs within their 95 % band",
                "within",
                bands.within.map(share),
            ),
        ]
    }

    fn remarks(&self) -> String {
        let mut remarks = String::new();
        if self.bands.is_some() {
            remarks += &format!(
                " The bands are those of {} bootstrap samples of the reference, less what chance \
                 adds to each; chance alone: the error of a sample's own pairs.",
                self.args.samples
            );
        }
        if self.in_sample {
            remarks += " In-sample: the vectors were made from these very runs, so this says how \
                        well they were fitted and not how near they are to other runs. Merge some \
                        runs (--first-runs) and compare with the others (--skip-runs) for that.";
        }
        remarks
    }
}

/// A row of the comparison.
struct ComparisonRow {
    title: String,
    /// Of its figures, after `pearson_` and `spearman_`.
    name: &'static str,
    values: [f64; 2],
}

impl ComparisonRow {
    fn new(title: &str, name: &'static str, values: [f64; 2]) -> Self {
        Self {
            title: title.to_owned(),
            name,
            values,
        }
    }
}

fn worst(
    data: &Measurements,
    pairs: &[(usize, usize)],
    accuracies: &[Accuracy; 2],
    count: usize,
) -> Section {
    let mut section = Section::new("The worst pairs", &["correlation", "pair", "error"]);
    for (kind, accuracy) in ["Pearson", "Spearman"].iter().zip(accuracies) {
        let mut order: Vec<_> = (0..pairs.len()).collect();
        order.sort_by(|&a, &b| accuracy.errors[b].total_cmp(&accuracy.errors[a]));
        for &at in order.iter().take(count) {
            let (a, b) = pairs[at];
            let names = format!("{} and {}", data.events[a].name, data.events[b].name);
            section.row([
                (*kind).to_owned(),
                names,
                format!("{:.4}", accuracy.errors[at]),
            ]);
        }
    }
    section
}

fn table(
    data: &Measurements,
    merged: &Both,
    measured: &Both,
    bands: Option<&Bands>,
) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(vec![]);
    let mut header = vec!["event".to_owned(), "other".to_owned()];
    for kind in ["pearson", "spearman"] {
        header.extend([format!("{kind}_measured"), format!("{kind}_merged")]);
        if bands.is_some() {
            header.extend([format!("{kind}_low"), format!("{kind}_high")]);
        }
    }
    writer.write_record(header).into_diagnostic()?;
    for (number, pair) in pairs(data.events.len()).into_iter().enumerate() {
        let mut record = vec![
            data.events[pair.0].name.clone(),
            data.events[pair.1].name.clone(),
        ];
        for at in 0..2 {
            record.extend([measured[at][pair].to_string(), merged[at][pair].to_string()]);
            if let Some(bands) = bands {
                let (low, high) = bands.pairs[at][number];
                record.extend([low.to_string(), high.to_string()]);
            }
        }
        writer.write_record(record).into_diagnostic()?;
    }
    writer.into_inner().into_diagnostic()
}
