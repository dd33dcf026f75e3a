//! `cloison submit --engine board`: a board runs the jobs, one image after the other.
//!
//! | module | contents |
//! | --- | --- |
//! | [`served`] | the folder that the board's boot loader fetches images from |
//! | [`attempt`] | one attempt at one job |
//!
//! One image is offered at a time, and the next one only after the result of the last is on the
//! disk: an interruption loses at most a run, and the board repeats it.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod attempt;
pub mod served;

use super::manifest::{self, Job};
use crate::boards::result;
use attempt::{Attempt, Outcome, Patience};
use cloison_config::problem::count;
use cloison_engine::capture::Listener;
use cloison_engine::capture::port::{Baud, Port};
use cloison_engine::capture::session::{Role, Session, Source, listen};
use cloison_engine::files::write_atomic;
use cloison_engine::image::Image;
use cloison_engine::image::numbered::numbered;
use cloison_engine::installation;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use served::Served;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use thiserror::Error;

/// How often a job is tried.
const ATTEMPTS: u32 = 2;

/// Options of `cloison submit --engine board`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of --engine board")]
pub struct BoardOptions {
    /// The port of the board's console, as `cloison capture` has it: a serial port, a
    /// pseudo-terminal or `tcp:HOST:PORT`
    #[arg(long, value_name = "PORT", required_if_eq("engine", "board"))]
    console: Option<Port>,
    /// The port of the board's telemetry
    #[arg(long, value_name = "PORT")]
    telemetry: Option<Port>,
    /// Bits per second of both
    #[arg(long, value_name = "BAUD", default_value_t = 115_200, value_parser = clap::value_parser!(u32).range(1..))]
    baud: u32,
    /// The folder that the TFTP server offers the board: gets U-Boot's script and the next image
    #[arg(long, value_name = "DIR", required_if_eq("engine", "board"))]
    serve: Option<PathBuf>,
    /// Command that resets the board, for one that does not reset itself: of a relay, a power switch
    /// or a JTAG adapter; without it, somebody must press the button
    #[arg(long, value_name = "COMMAND")]
    reset: Option<String>,
    /// Seconds after which a run hangs, and the hypervisor resets the board [default: the jobs' own
    /// limit]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    run_limit: Option<u32>,
    /// With --reset: seconds after which a board that starts no image is reset
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..))]
    start_limit: u64,
}

/// Why a board has not run all jobs.
#[derive(Debug, Error, Diagnostic)]
pub enum BoardError {
    /// Runs failed twice.
    #[error("{} of {all} failed twice:\n{names}", failed)]
    #[diagnostic(help(
        "submit again with the same command: it tries only those that have no result"
    ))]
    Failed {
        /// How many.
        failed: usize,
        /// How many jobs were to be run.
        all: String,
        /// The first of them, one a line.
        names: String,
    },
    /// The board starts nothing.
    #[error("the board has started no image within {seconds} s, and not after a reset either")]
    #[diagnostic(help(
        "is it on, does its boot loader run boot.scr.uimg, and does the TFTP server offer {}? What \
         it has run is kept; the same command continues",
        folder.display()
    ))]
    Silent {
        /// The limit.
        seconds: u64,
        /// The folder.
        folder: PathBuf,
    },
    /// The user has ended it.
    #[error("interrupted: {done} of {all} have run")]
    #[diagnostic(help("the results are kept; the same command continues"))]
    Interrupted {
        /// How many have run.
        done: usize,
        /// How many jobs were to be run.
        all: String,
    },
    /// A port is missing.
    #[error("board `{board}` sends telemetry on a UART, whose port is not given")]
    #[diagnostic(help("give it: --telemetry PORT"))]
    NoTelemetry {
        /// The board.
        board: String,
    },
}

impl BoardOptions {
    /// Returns whether one was given that only this engine has.
    pub const fn are_given(&self) -> bool {
        self.console.is_some()
            || self.telemetry.is_some()
            || self.serve.is_some()
            || self.reset.is_some()
            || self.run_limit.is_some()
    }

    /// Returns when a job's run hangs.
    fn limit_of(&self, job: &Job) -> Limit {
        let limit = self.run_limit.map(u64::from);
        Limit(u32::try_from(limit.unwrap_or(job.boot.limit_s)).unwrap_or(u32::MAX))
    }

    fn sources(&self) -> Vec<Source> {
        [
            (&self.console, Role::Console),
            (&self.telemetry, Role::Telemetry),
        ]
        .into_iter()
        .filter_map(|(port, role)| port.clone().map(|port| Source { port, role }))
        .collect()
    }
}

/// A job with its image.
struct Numbered<'a> {
    job: &'a Job,
    image: Image,
    limit: Limit,
}

/// Seconds after its start at which a run that has not ended hangs.
#[derive(Clone, Copy, Debug)]
struct Limit(u32);

/// The board, as it is reached from here.
struct Board<'a> {
    directory: &'a Path,
    work: String,
    options: &'a BoardOptions,
    served: Served,
    folder: &'a Path,
    sources: Vec<Source>,
    listener: Listener,
}

/// Has a board run these jobs.
///
/// # Errors
///
/// If a job is not for a board, a port or the folder cannot be used, the board starts nothing, runs
/// fail twice, or the user ends it.
pub fn run(directory: &Path, work: &str, jobs: &[&Job], options: &BoardOptions) -> Result<()> {
    // Before the board gets anything: all images, in the parts' own time.
    let numbered: Vec<Numbered<'_>> = jobs
        .iter()
        .map(|&job| Numbered::of(directory, job, options.limit_of(job)))
        .collect::<Result<_>>()?;
    if let Some(one) = numbered.first()
        && options.telemetry.is_none()
        && !one.image.system.board.is_mixed()
    {
        let board = one.image.system.board.name.clone();
        return Err(BoardError::NoTelemetry { board }.into());
    }
    let folder = options
        .serve
        .as_deref()
        .ok_or_else(|| miette!("--serve DIR is missing"))?;
    let sources = options.sources();
    // The ports first: what is wrong with them is known before the folder changes.
    let listener = listen(&sources, Baud(options.baud))?;
    let mut board = Board {
        directory,
        work: work.to_owned(),
        options,
        served: Served::open(folder)?,
        folder,
        sources,
        listener,
    };
    println!(
        "{} for the board; it fetches them from {}",
        count(numbered.len(), "image"),
        installation::display(folder)
    );
    if options.reset.is_none() {
        println!("Reset the board, or switch it on; with --reset COMMAND, nobody has to");
    }
    let done = board.run_all(&numbered);
    // Nobody listens any more: the board waits.
    board.served.withdraw()?;
    done
}

impl<'a> Numbered<'a> {
    fn of(directory: &Path, job: &'a Job, limit: Limit) -> Result<Self> {
        let boot = job.boot.with_parts_in(&directory.join("parts"));
        let number = NonZeroUsize::new(job.job).ok_or_else(|| miette!("there is no job 0"))?;
        let image = numbered(&boot.image()?.read()?, number, limit.0)?;
        Ok(Self { job, image, limit })
    }
}

impl Board<'_> {
    fn run_all(&mut self, jobs: &[Numbered<'_>]) -> Result<()> {
        let all = count(jobs.len(), "job");
        let mut failed: Vec<String> = vec![];
        for (done, numbered) in jobs.iter().enumerate() {
            if let Some(why) = self.run_one(numbered, done, &all)? {
                failed.push(format!("  {}: {why}", numbered.job.run));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(BoardError::Failed {
            failed: failed.len(),
            all,
            names: failed.join("\n"),
        }
        .into())
    }

    /// Runs a job. Returns why it has no result, if it has none.
    fn run_one(
        &mut self,
        numbered: &Numbered<'_>,
        done: usize,
        all: &str,
    ) -> Result<Option<String>> {
        let Numbered { job, image, .. } = numbered;
        let name = format!("job {} ({})", job.job, job.run);
        let note = self
            .directory
            .join("failed")
            .join(format!("{}.txt", job.key));
        let mut why = String::new();
        for attempt in 1..=ATTEMPTS {
            self.served.offer(&image.bytes)?;
            match self.attempt(numbered)? {
                Outcome::Whole(output) => {
                    let file = result::path(&manifest::results(self.directory), &job.key);
                    let what = format!("{}: {}", self.work, job.run);
                    result::write(&file, &job.key, &what, &output)
                        .into_diagnostic()
                        .wrap_err_with(|| miette!("cannot write {}", file.display()))?;
                    // Nobody needs the note of an earlier attempt any more.
                    let _ = std::fs::remove_file(&note);
                    println!("{name} done: {:.1} s on the board", output.seconds);
                    return Ok(None);
                }
                Outcome::Lost(reason) => why = reason,
                Outcome::Hangs(reason) => {
                    why = reason;
                    self.reset()?;
                }
                Outcome::Interrupted => {
                    let all = all.to_owned();
                    return Err(BoardError::Interrupted { done, all }.into());
                }
                // Both are answered while the attempt lasts.
                Outcome::Silent | Outcome::Other(_) => {}
            }
            let next = match attempt {
                ATTEMPTS => "it has no result, and the next one follows",
                _ => "once more",
            };
            eprintln!("board: {name}: {why}; {next}");
        }
        write_atomic(&note, format!("{}: {why}\n", result::machine()).as_bytes())?;
        Ok(Some(why))
    }

    /// Waits for a run of an image that is offered, whatever else the board does before.
    fn attempt(&mut self, numbered: &Numbered<'_>) -> Result<Outcome> {
        let options = self.options;
        let patience = Patience {
            start: options
                .reset
                .as_ref()
                .map(|_| Duration::from_secs(options.start_limit)),
            run: Duration::from_secs(numbered.limit.0.into()),
        };
        let system = &numbered.image.system;
        let mut silent = 0;
        loop {
            let mut attempt = Attempt::new(system, &self.served, patience);
            let session = Session::new(system, &self.sources, Baud(options.baud));
            let captured = session.run(&self.listener, None, &mut attempt);
            if attempt.exchanged {
                exchange(&mut self.sources);
            }
            match attempt.outcome(captured) {
                Outcome::Other(what) => {
                    eprintln!("board: not taken: {what}");
                    // Another image may have been there in its place.
                    self.served.offer(&numbered.image.bytes)?;
                }
                Outcome::Silent => {
                    silent += 1;
                    if silent == ATTEMPTS {
                        return Err(BoardError::Silent {
                            seconds: options.start_limit,
                            folder: self.folder.to_path_buf(),
                        }
                        .into());
                    }
                    self.reset()?;
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Resets the board, or says who must.
    fn reset(&self) -> Result<()> {
        let Some(reset) = &self.options.reset else {
            eprintln!("board: it is stuck: press its reset button, or switch it off and on");
            return Ok(());
        };
        let status = Command::new("sh")
            .args(["-c", reset])
            .stdin(Stdio::null())
            .status()
            .into_diagnostic()?;
        if !status.success() {
            return Err(miette!(
                help = "run it by hand; what the board has run is kept, and the same command \
                        continues",
                "the reset command failed ({status}): {reset}"
            ));
        }
        eprintln!("board: reset");
        // What the board had sent before would be taken for the start of the next run.
        self.listener.discard();
        Ok(())
    }
}

/// Gives each port the role of the other.
fn exchange(sources: &mut [Source]) {
    for source in sources {
        source.role = match source.role {
            Role::Console => Role::Telemetry,
            Role::Telemetry => Role::Console,
        };
    }
}
