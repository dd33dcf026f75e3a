//! `cloison much compare`: compares methods on samples of the runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::input::{self, ProgramChoice};
use super::{merge, page};
use clap::ValueEnum;
use cloison_engine::figures::Figures;
use cloison_engine::files::{keep_apart, write_atomic};
use cloison_engine::report::Section;
use cloison_much::evaluate::{self, Comparison, FEWEST_SAMPLES, Method, Outcome, Resampling};
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, Result, miette};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Options of `cloison much compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// Measurements in which every pair is counted together
    input: PathBuf,
    /// Measurements with the anchor in every sub-experiment, for HRM (default: the sub-experiments
    /// of IN that have it)
    #[arg(long, value_name = "IN")]
    hrm: Option<PathBuf>,
    /// HRM's anchor (default: the event that most sub-experiments count)
    #[arg(long, value_name = "EVENT")]
    anchor: Option<String>,
    /// Runs of each sub-experiment (default: 50, 100, 200 and 400, as far as there are so many)
    #[arg(long, value_name = "N", value_delimiter = ',')]
    runs: Vec<usize>,
    /// Samples of each number of runs
    #[arg(long, value_name = "N", default_value_t = 50)]
    samples: usize,
    /// How runs are drawn, and what the result is compared with
    #[arg(long, value_enum, default_value_t = ResamplingArg::HeldOut)]
    resampling: ResamplingArg,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    chosen: ProgramChoice,
    /// Write one row per sample here
    #[arg(long, value_name = "OUT")]
    csv: Option<PathBuf>,
    /// Write a page with curves here
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How runs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ResamplingArg {
    /// With replacement, against all runs
    Bootstrap,
    /// Distinct runs, against all runs, including these
    Subset,
    /// Distinct runs, against the other runs
    HeldOut,
}

/// Runs `cloison much compare`.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let inputs = [Some(&args.input), args.hrm.as_ref()];
    let outputs = [&args.csv, &args.report, &args.json];
    let of = PathBuf::as_path;
    keep_apart(
        inputs.into_iter().flatten().map(of),
        outputs.into_iter().flatten().map(of),
    )?;
    let data = input::measurements(&args.input, &args.chosen)?;
    data.check_pairs()
        .map_err(|error| miette!("{}: {error}", args.input.display()))?;
    let hrm = match &args.hrm {
        Some(path) => {
            let hrm = input::measurements(path, &args.chosen)?;
            Some(hrm.reordered(&data.events).map_err(|error| {
                miette!(
                    "{} and {} do not have the same events: {error}",
                    args.input.display(),
                    path.display()
                )
            })?)
        }
        None => None,
    };
    let anchor = merge::anchor(hrm.as_ref().unwrap_or(&data), args.anchor.as_deref())?;
    if let Some(few) = args.runs.iter().find(|&&runs| runs < 2) {
        return Err(miette!(
            "--runs {few}: a correlation needs at least two runs"
        ));
    }
    if args.samples == 0 {
        return Err(miette!("--samples 0: there is nothing to compare"));
    }
    let resampling = match args.resampling {
        ResamplingArg::Bootstrap => Resampling::Bootstrap,
        ResamplingArg::Subset => Resampling::Subset,
        ResamplingArg::HeldOut => Resampling::HeldOut,
    };
    let runs = if args.runs.is_empty() {
        usual_runs(resampling.most_runs(&data))?
    } else {
        args.runs.clone()
    };
    let comparison = Comparison {
        data: &data,
        hrm: hrm.as_ref(),
        anchor,
        runs: &runs,
        samples: args.samples,
        resampling,
        seed: args.seed,
    };
    let bar = ProgressBar::new((runs.len() * args.samples) as u64);
    let outcomes = evaluate::compare(&comparison, &|| bar.inc(1));
    bar.finish_and_clear();
    let outcomes = outcomes.map_err(|error| miette!("{}: {error}", args.input.display()))?;
    let section = section(args, &data.events[anchor].name, &outcomes);
    let figures = figures(args, &data.events[anchor].name, &runs, &outcomes)?;
    let csv = if args.csv.is_some() {
        Some(table(&outcomes)?)
    } else {
        None
    };
    let page = args
        .report
        .is_some()
        .then(|| page::compared(&data, &outcomes, &section, &figures))
        .transpose()?;
    if let (Some(path), Some(csv)) = (&args.csv, &csv) {
        write_atomic(path, csv)?;
    }
    if let (Some(path), Some(page)) = (&args.report, &page) {
        write_atomic(path, page.as_bytes())?;
    }
    print!("{}", section.to_text());
    figures.write(args.json.as_deref())
}

/// Returns the errors of each method with each number of runs.
fn figures(
    args: &CompareArgs,
    anchor: &str,
    runs: &[usize],
    outcomes: &[Outcome],
) -> Result<Figures> {
    let inputs: Vec<(&str, &Path)> = std::iter::once(("input", args.input.as_path()))
        .chain(args.hrm.as_deref().map(|path| ("hrm", path)))
        .collect();
    let numbers = runs
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let mut figures = input::figures_of("much compare", &inputs, &args.chosen)?
        .parameter("anchor", anchor)
        .parameter("runs", numbers)
        .parameter("samples", args.samples)
        .parameter("resampling", args.resampling)
        .parameter("seed", args.seed);
    figures
        .count("samples", args.samples as u64)
        .count("seed", args.seed);
    for outcome in outcomes {
        // The pairwise estimates had another name once, which kept figures are still found by.
        let names = if outcome.method == Method::Pairwise {
            vec!["pairwise", "floor"]
        } else {
            vec![outcome.method.name()]
        };
        for method in names {
            let name = |kind: &str| format!("{method}_{}_{kind}", outcome.runs);
            figures
                .count(name("runs"), outcome.total_runs as u64)
                .value(name("pearson"), outcome.mean(0))
                .value(name("spearman"), outcome.mean(1));
        }
    }
    Ok(figures)
}

/// The numbers of runs that are compared where none are asked for: the usual ones, as far as the
/// measurements go.
fn usual_runs(most: usize) -> Result<Vec<usize>> {
    let usual = [50, 100, 200, 400];
    let (mut runs, others): (Vec<_>, Vec<_>) = usual.into_iter().partition(|&runs| runs <= most);
    if runs.is_empty() {
        if most < 2 {
            return Err(miette!(
                help = "measure more runs, or take --resampling subset, whose reference is not \
                        independent",
                "there are too few runs of each sub-experiment to merge some and compare with the \
                 others"
            ));
        }
        runs.push(most);
    }
    if !others.is_empty() {
        let others = others
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        eprintln!(
            "warning: samples can have up to {most} runs of each sub-experiment; none of {others} \
             is drawn"
        );
    }
    Ok(runs)
}

fn section(args: &CompareArgs, anchor: &str, outcomes: &[Outcome]) -> Section {
    let band = if args.samples < FEWEST_SAMPLES {
        "least … most"
    } else {
        "95 %"
    };
    let ratio = "× pairwise";
    let more = "more than MUCH";
    let header = [
        "runs each",
        "total",
        "method",
        "Pearson",
        band,
        ratio,
        more,
        "Spearman",
        band,
        ratio,
        more,
        "KS",
    ];
    let mut section = Section::new("Mean square error of the correlations", &header);
    for of_runs in outcomes.chunks(Method::ALL.len()) {
        let much = of_runs
            .iter()
            .find(|outcome| outcome.method == Method::MuchBoth);
        for outcome in of_runs {
            let mut row = vec![
                outcome.runs.to_string(),
                outcome.total_runs.to_string(),
                outcome.method.title().to_owned(),
            ];
            for at in 0..2 {
                let (low, high) = outcome.band(at);
                row.push(format!("{:.6}", outcome.mean(at)));
                row.push(format!("{low:.5} … {high:.5}"));
                let pairwise = of_runs[0].mean(at);
                row.push(if pairwise > 0.0 {
                    format!("{:.2}", outcome.mean(at) / pairwise)
                } else {
                    "–".to_owned()
                });
                row.push(match much.filter(|much| much.method != outcome.method) {
                    Some(much) => {
                        let (_, (low, high)) = much.difference(outcome, at);
                        format!("{low:+.5} … {high:+.5}")
                    }
                    None => String::new(),
                });
            }
            row.push(format!("{:.4}", outcome.marginal));
            section.row(row);
        }
    }
    let how = match args.resampling {
        ResamplingArg::Bootstrap => {
            "drawn with replacement, against the pairs as all runs have them"
        }
        ResamplingArg::Subset => {
            "drawn without replacement, against the pairs as all runs have them: the more of the \
             runs are in a sample, the nearer the pairwise estimates are to themselves"
        }
        ResamplingArg::HeldOut => {
            "drawn without replacement, against the pairs as the other runs have them"
        }
    };
    section.note(format!(
        "{} samples each, {how}; pairs of which both events vary. Pairwise: the estimates \
         themselves, without vectors; repaired: the correlation matrix nearest to them, never \
         farther from the truth. More than MUCH: a method's error less MUCH's in the same sample. \
         HRM's anchor: {anchor}; without its own measurements, HRM uses only the sub-experiments \
         that have it. KS: the largest Kolmogorov-Smirnov distance between an event's merged and \
         original values.",
        args.samples
    ))
}

fn table(outcomes: &[Outcome]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(vec![]);
    writer
        .write_record([
            "method",
            "runs",
            "total_runs",
            "sample",
            "pearson",
            "spearman",
        ])
        .into_diagnostic()?;
    for outcome in outcomes {
        for (sample, errors) in outcome.errors.iter().enumerate() {
            let record = [
                outcome.method.name().to_owned(),
                outcome.runs.to_string(),
                outcome.total_runs.to_string(),
                sample.to_string(),
                errors[0].to_string(),
                errors[1].to_string(),
            ];
            writer.write_record(record).into_diagnostic()?;
        }
    }
    writer.into_inner().into_diagnostic()
}
