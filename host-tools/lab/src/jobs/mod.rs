//! `cloison jobs`, `job run`, `collect` and `submit`: boards that other machines start, and their
//! common report.
//!
//! | module | contents |
//! | --- | --- |
//! | [`work`] | the work that is split into jobs: an experiment, a campaign, a validation of the model or of events, a configuration to tune |
//! | [`manifest`] | the files that describe the jobs |
//! | [`run`] | one job |
//! | [`collect`](mod@collect) | checks the results, and makes the report |
//! | [`engine`] | the files of engines |
//! | [`submit`](mod@submit) | hands jobs to an engine |
//! | [`board`] | the engine that is a board |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod board;
pub mod collect;
pub mod engine;
pub mod manifest;
pub mod run;
pub mod submit;
pub mod work;

use crate::boards::{Absent, Boards, seconds};
use crate::tune::Map;
use board::BoardOptions;
use cloison_config::problem::count;
use cloison_engine::files::Claim;
use cloison_engine::installation;
use collect::CollectError;
use engine::Engine;
use indicatif::HumanDuration;
use miette::{IntoDiagnostic, Report, Result, miette};
use run::Failure;
pub use run::TRY_AGAIN;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use submit::Submission;
use work::{Options, Work};

/// How long a boot is expected to take where none was made, in seconds.
const GUESS_S: f64 = 20.0;

/// Options of `cloison jobs`.
#[derive(Clone, Debug, clap::Args)]
pub struct JobsArgs {
    /// An experiment (its name or file), a campaign, a file of measurements to validate the model
    /// with, benchmarks to validate events with, or a configuration to tune
    #[arg(value_name = "NAME | FILE.toml")]
    file: String,
    /// Directory for the jobs, their results and the report
    #[arg(short, long = "out", alias = "output", value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Options of `cloison job`.
#[derive(Clone, Debug, clap::Args)]
pub struct JobArgs {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum JobCommand {
    /// Run one job. Exit code: 0 it has a result, 75 try again, others are final
    Run(JobRunArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct JobRunArgs {
    /// The directory of the jobs
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Number of the job, from 1 [default: from the engine's variable, such as
    /// SLURM_ARRAY_TASK_ID]
    #[arg(value_name = "NUMBER")]
    number: Option<usize>,
}

/// Options of `cloison collect`.
#[derive(Clone, Debug, clap::Args)]
pub struct CollectArgs {
    /// The directory of the jobs; the report goes to its `report`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of `cloison submit`.
#[derive(Clone, Debug, clap::Args)]
pub struct SubmitArgs {
    /// The directory of the jobs
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// What runs the jobs
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Engine,
    /// Path of `cloison` on the machines that run the jobs [default: this program's]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// For slurm and sge: how many jobs each task runs, one after the other; useful where jobs
    /// take seconds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chunk: u32,
    /// Only write the engine's file, into DIR/submit
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    board: BoardOptions,
    /// Arguments for the engine's command, such as --partition=lab or --sshlogin a,b
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Runs `cloison jobs`. `map` draws the color map of a configuration.
///
/// # Errors
///
/// If a file is not valid, a part cannot be built, or the directory has results of other inputs.
pub fn jobs(args: &JobsArgs, map: Map) -> Result<()> {
    let work = Work::of(&args.file, args.options.clone())?;
    let directory = std::path::absolute(&args.output).into_diagnostic()?;
    let _claim = Claim::wait(&directory, &collect::owner(&work.to_string()))?;
    let report = manifest::report(&directory);
    let parts = directory.join("parts");
    let boards = match work.has_rounds() {
        true => Boards::continued(&report, &parts, &manifest::results(&directory)),
        false => Boards::planned(&report, &parts),
    };
    match work.perform(&boards, &report, None, map) {
        Err(error) if error.is::<Absent>() => {}
        Ok(()) if work.has_rounds() => {}
        Ok(()) => return Err(miette!("{work} runs no boards")),
        Err(error) => return Err(error),
    }
    let expected = seconds::expected(&work.to_string());
    let each = expected.unwrap_or(GUESS_S);
    let jobs = manifest::write(&directory, work, boards.into_planned(), each)?;
    let time = HumanDuration(Duration::from_secs_f64(
        jobs.iter().map(|job| job.expected_seconds).sum(),
    ));
    let origin = if expected.is_some() {
        "by the last runs here"
    } else {
        "a guess: none was run here"
    };
    println!(
        "{} in {}: about {time} on one core, {origin}",
        count(jobs.len(), "job"),
        installation::display(&directory)
    );
    println!(
        "Next:    {} submit {} --engine ENGINE",
        installation::program(),
        args.output.display()
    );
    Ok(())
}

/// Runs `cloison job`. Returns its exit code.
///
/// # Errors
///
/// The reason why the job fails on any machine.
pub fn job(args: &JobArgs) -> Result<ExitCode> {
    let JobCommand::Run(args) = &args.command;
    let number = run::number(args.number, |name| std::env::var(name).ok())?;
    let directory = std::path::absolute(&args.directory).into_diagnostic()?;
    match run::run(&directory, number) {
        Ok(line) => {
            println!("{line}");
            Ok(ExitCode::SUCCESS)
        }
        Err(Failure::TryAgain(report)) => {
            eprintln!("Error: {report:?}\nExit code {TRY_AGAIN}: try it again");
            Ok(ExitCode::from(TRY_AGAIN))
        }
        Err(Failure::Final(report)) => Err(report),
    }
}

/// Runs `cloison collect`. `map` draws the color map of a configuration. Returns its exit code.
///
/// # Errors
///
/// If results are of other inputs; otherwise as the jobs' command.
pub fn collect(args: &CollectArgs, map: Map) -> Result<ExitCode> {
    let directory = std::path::absolute(&args.directory).into_diagnostic()?;
    let wants_more = |report: &Report| {
        let error = report.downcast_ref();
        matches!(
            error,
            Some(CollectError::Missing { .. } | CollectError::More { .. })
        )
    };
    match collect::collect(&directory, args.json.clone(), map) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(report) if wants_more(&report) => {
            eprintln!("Error: {report:?}");
            Ok(ExitCode::from(TRY_AGAIN))
        }
        Err(report) => Err(report),
    }
}

/// Runs `cloison submit`.
///
/// # Errors
///
/// If results are of other inputs, or the engine is missing or fails.
pub fn submit(args: &SubmitArgs) -> Result<()> {
    let directory = std::path::absolute(&args.directory).into_diagnostic()?;
    let program = submit::program(args.program.as_ref())?;
    submit::submit(&Submission {
        directory: &directory,
        engine: args.engine,
        program: &program,
        chunk: args.chunk as usize,
        only_write: args.write,
        arguments: &args.arguments,
        board: &args.board,
    })
}
