//! `cloison model`: the board model beside published measurements, and fitted to measurements.
//!
//! | module | contents |
//! | --- | --- |
//! | [`points`] | the file of measurements |
//! | [`runs`] | the benchmarks on the model |
//! | [`compare`] | errors, verdicts, and the table |
//! | [`calibrate`] | parameters of a model, fitted to measurements |
//! | [`survey`] | a board's log, read and written as a file of measurements |
//! | [`fit`] | the search for the best parameters |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod calibrate;
pub mod compare;
pub mod fit;
#[cfg(test)]
mod kept;
pub mod points;
pub mod runs;
pub mod survey;

use crate::boards::{Boards, seconds};
use cloison_board_model::Board;
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, Claim, keep_apart, write_atomic};
use cloison_engine::text::Style;
use cloison_engine::{installation, parts, setup};
use compare::{Comparison, Family, FamilySummary};
use miette::{IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};
use survey::{Survey, SurveyError};

/// The shipped model, and the measurements that it is compared with.
pub(crate) const MODEL: &str = "configs/models/zcu102.toml";
const POINTS: &str = "configs/models/zcu102-public.toml";

/// `cloison model`.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ModelCommand {
    /// Run benchmarks on the model, and print its results beside published measurements
    Validate(ValidateArgs),
    /// Fit parameters of the model to measurements, and write the fitted model
    Calibrate(CalibrateArgs),
    /// Turn the console log of a board that ran configs/kit/kit.toml into a file of measurements
    Points(PointsArgs),
}

/// Options of `cloison model validate`.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidateArgs {
    /// The model's file [default: configs/models/zcu102.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// The file of measurements (docs/validation.md) [default: configs/models/zcu102-public.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub points: Option<PathBuf>,
    /// Directory for the runs [default: validation in target/cloison, without a checkout in
    /// cloison-output]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of `cloison model calibrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateArgs {
    /// The file of measurements (docs/validation.md)
    #[arg(long, value_name = "FILE.toml")]
    pub points: PathBuf,
    /// A parameter of the model to fit, such as latency.dram; may be given repeatedly
    #[arg(long, required = true, value_name = "TABLE.NAME")]
    pub fit: Vec<String>,
    /// The model to start from [default: configs/models/zcu102.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub model: Option<PathBuf>,
    /// Where the fitted model goes
    #[arg(short, long = "out", alias = "output", value_name = "FILE.toml")]
    pub output: PathBuf,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of `cloison model points`.
#[derive(Clone, Debug, clap::Args)]
pub struct PointsArgs {
    /// The log: what the board's console showed, or the directory of a capture or run
    #[arg(value_name = "LOG|DIR")]
    pub log: PathBuf,
    /// The board, as the file is to name it
    #[arg(long, value_name = "NAME")]
    pub board: String,
    /// Clock of the board's cores [default: from the cycles and ticks in the log]
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u64).range(100..=10_000))]
    pub clock_mhz: Option<u64>,
    /// Where the file of measurements goes
    #[arg(short, long = "out", alias = "output", value_name = "FILE.toml")]
    pub output: PathBuf,
}

/// Runs `cloison model`.
///
/// # Errors
///
/// Returns the error that stopped it; of `validate` also if a point is far off and not explained.
pub fn model(args: &ModelArgs) -> Result<()> {
    match &args.command {
        ModelCommand::Validate(args) => validate_on(&Boards::here(), args),
        ModelCommand::Calibrate(args) => calibrate(args),
        ModelCommand::Points(args) => points_of(args),
    }
}

/// Returns the file that was given, or a shipped one.
fn file(given: Option<&PathBuf>, shipped: &str) -> PathBuf {
    given.map_or_else(
        || installation::root().join(shipped),
        |given| installation::find(given),
    )
}

fn calibrate(args: &CalibrateArgs) -> Result<()> {
    let (model, path) = (
        file(args.model.as_ref(), MODEL),
        installation::find(&args.points),
    );
    keep_apart([model.as_path(), &path], args.json.as_deref())?;
    keep_apart([model.as_path(), &path], Some(args.output.as_path()))?;
    let points = points::load(&path)?;
    let start = calibrate::Start::read(&model, &args.fit)?;
    parts::prepare()?;
    setup::qemu()?;
    let fitted = calibrate::fit(&points, &start)?;
    write_atomic(&args.output, fitted.text.as_bytes())?;
    let mut figures = Figures::new("model calibrate")
        .config(&path)
        .parameter("modelled", true)
        .parameter("model", installation::display(&model));
    figures
        .count("points", points.points.len() as u64)
        .count("models_tried", fitted.tried as u64)
        .value("rms_error_before", fitted.before)
        .value("rms_error_after", fitted.after)
        .series("parameters", fitted.json());
    figures.write(args.json.as_deref())?;
    print!("{}", fitted.table().to_text());
    println!("Model:   {}", installation::display(&args.output));
    Ok(())
}

fn points_of(args: &PointsArgs) -> Result<()> {
    let file = if args.log.is_dir() {
        args.log.join("console.txt")
    } else {
        args.log.clone()
    };
    keep_apart([file.as_path()], Some(args.output.as_path()))?;
    // A terminal program keeps what it received, which need not be text.
    let log = String::from_utf8_lossy(&files::read(&file, files::CONFIGURATION)?).into_owned();
    let explained = |error: SurveyError| {
        let help = match error {
            SurveyError::NoClock => "give it: --clock-mhz 1200",
            _ => {
                "boot configs/kit/kit.toml again and keep all that the console shows \
                 (docs/validation.md)"
            }
        };
        miette!(help = help, "{}: {error}", installation::display(&file))
    };
    let survey = Survey::read(&log).map_err(explained)?;
    let clock_mhz = args
        .clock_mhz
        .map_or_else(|| survey.clock_mhz(), Ok)
        .map_err(explained)?;
    let text = survey.to_toml(&args.board, &args.log.display().to_string(), clock_mhz);
    write_atomic(&args.output, text.as_bytes())?;
    println!(
        "{} measurements of {}, at {clock_mhz} MHz",
        survey.measurements(),
        args.board
    );
    println!("Points:  {}", installation::display(&args.output));
    Ok(())
}

/// Performs and reports a comparison on these boards.
///
/// # Errors
///
/// As [`perform`]; also if a point is far off and not explained.
pub fn validate_on(boards: &Boards, args: &ValidateArgs) -> Result<()> {
    let (model, path) = (
        file(args.model.as_ref(), MODEL),
        file(args.points.as_ref(), POINTS),
    );
    keep_apart([model.as_path(), &path], args.json.as_deref())?;
    let points = points::load(&path)?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| installation::output_dir().join("validation"));
    let done = perform(boards, &points, &path, &model, &out)?;
    seconds::remember("model validate", &boards.seconds());
    done.figures.write(args.json.as_deref())?;
    print!("{}", done.text);
    compare::conclude(&points, &done.compared)?;
    Ok(())
}

/// A comparison of all points.
#[derive(Debug)]
pub struct Validated<'a> {
    /// The points with the model's results, in the file's order.
    pub compared: Vec<Comparison<'a>>,
    /// Figures with provenance.
    pub figures: Figures,
    /// The output of the command.
    pub text: String,
}

/// Runs the benchmarks of all points on a model and compares the results; runs and reports are kept
/// in `out`.
///
/// # Errors
///
/// If the model's file is not valid, or a run fails or is absent.
pub fn perform<'a>(
    boards: &Boards,
    points: &'a points::Points,
    path: &Path,
    model: &Path,
    out: &Path,
) -> Result<Validated<'a>> {
    let _claim = Claim::wait(out, "model validate")?;
    parts::prepare()?;
    setup::qemu()?;
    let results = runs::perform(boards, points, model, out)?;
    let board = Board::load(model).into_diagnostic()?;
    let mut compared = vec![];
    for point in &points.points {
        compared.push(Comparison {
            point,
            ours: results.of(points, point)?,
        });
    }
    let summary = compare::summarize(&compared);
    let families = compare::families(&compared, &board);
    let rows = |one: &Comparison<'_>| one.json(Family::of(one.point, &board));
    let points = compared.iter().map(rows).collect();
    let mut figures = Figures::new("model validate")
        .config(path)
        .images(results.images())
        .parameter("modelled", true)
        .parameter("model", installation::display(model));
    figures
        .count("points", summary.points as u64)
        .count("points_predicted", summary.predicted as u64)
        .count("points_within", summary.agreeing as u64)
        .count("points_predicted_within", summary.predicted_agreeing as u64)
        .count("points_above_half", summary.above_half as u64)
        .value("mean_abs_error_predicted", summary.mean_abs_error_predicted)
        .value(
            "mean_abs_error_predicted_timing",
            summary.mean_abs_error_predicted_timing,
        )
        .value(
            "mean_abs_error_families",
            compare::mean_of_families(&families),
        )
        .series("points", points)
        .series(
            "families",
            families.iter().map(FamilySummary::json).collect(),
        );
    let style = Style::of_output();
    let mut text = compare::table(&compared).to_text_in(style);
    for (names, why) in compare::explanations(&compared) {
        text.push_str(&format!(
            "\n{}\n{}\n",
            style.wrap(&names, ""),
            style.wrap(&why, "  ")
        ));
    }
    text.push_str(&format!(
        "\n{}",
        compare::family_table(&families).to_text_in(style)
    ));
    text.push_str(&format!("\n{}\n", style.wrap(&summary.text(), "")));
    Ok(Validated {
        compared,
        figures,
        text,
    })
}
