//! `cargo xtask fuzz el2`: guests that do anything, against the hypervisor's image that ships.
//!
//! The plugin `cloison-prover` makes the programs and watches EL2 from outside. This builds the
//! systems, starts them, shows how far it is, and reports what was found.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::system::{Run, Systems, progress};
use super::{coverage, minimize};
use cloison_engine::files::write_atomic;
use cloison_engine::qemu::{Exit, Outcome};
use cloison_engine::{configuration, installation, parts};
use cloison_prover::fuzz::state::{COVERAGE, FINDING, Report};
use cloison_prover::prover::FOUND;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `cargo xtask fuzz el2`.
#[derive(Clone, Debug, clap::Args)]
pub struct El2Args {
    /// Minutes of search
    #[arg(long, default_value_t = Self::default().minutes, value_name = "NUMBER")]
    pub minutes: f64,
    /// Guest exits after which the search ends, if that is sooner
    #[arg(long, default_value_t = Self::default().exits, value_name = "NUMBER")]
    pub exits: u64,
    /// Board of the systems `tests/fuzz/BOARD.toml` and `BOARD-more.toml`, which have turns;
    /// `virt-gicv3` has the first one of `virt`
    #[arg(long, default_value_t = Self::default().board, value_name = "BOARD")]
    pub board: String,
    /// Seed of the programs and of the cores' turns
    #[arg(long, default_value_t = Self::default().seed, value_name = "NUMBER")]
    pub seed: u64,
    /// Directory of the corpus and of what is found [default: target/fuzz/BOARD]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Run the inputs of this file instead of a search
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// Returns one line about the progress.
fn line(report: &Report) -> String {
    let rate = report.exits as f64 / report.processor_seconds.max(0.001);
    format!(
        "{:.0} s: {} exits, {rate:.0} per second of processor time, {} inputs, {} boots, {} \
         blocks, {} edges, corpus {}",
        report.seconds,
        report.exits,
        report.inputs,
        report.boots,
        report.blocks,
        report.edges,
        report.corpus
    )
}

impl Default for El2Args {
    fn default() -> Self {
        Self {
            minutes: 1.0,
            exits: 0,
            board: "virt".to_owned(),
            seed: 1,
            directory: None,
            replay: None,
        }
    }
}

/// Runs `cargo xtask fuzz el2`.
///
/// # Errors
///
/// If the system cannot be built or started.
pub fn run(args: &El2Args) -> Result<ExitCode> {
    let board = configuration::board(&args.board)?;
    let elf = parts::hypervisor_for(board.board.gic.version(), &[])?;
    let systems = Systems::build(&args.board, &elf)?;
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None => installation::target_dir().join("fuzz").join(&args.board),
    };
    let run = Run {
        directory: &directory,
        seed: args.seed,
        exits: args.exits,
        seconds: (args.minutes * 60.0) as u64,
        replay: args.replay.as_deref(),
    };
    let shown = std::io::stderr().is_terminal();
    let watch = || {
        if shown && let Some(report) = progress(&directory) {
            eprint!("\r\x1b[K{}", line(&report));
            let _ = std::io::stderr().flush();
        }
    };
    let outcome = match run.replay {
        Some(inputs) => systems.run(inputs, &run, watch)?,
        None => systems.search(&run, watch)?,
    };
    if shown {
        eprintln!();
    }
    if let Some(report) = progress(&directory) {
        println!("{}", line(&report));
    }
    if directory.join(COVERAGE).exists() && args.replay.is_none() {
        coverage::write(&directory, &elf)?;
    }
    if directory.join(FINDING).exists() && args.replay.is_none() {
        minimize::minimize(&systems, &directory, args.seed)?;
    }
    conclude(&directory, &systems, &outcome)
}

/// Reports how a run ended.
fn conclude(directory: &Path, systems: &Systems, outcome: &Outcome) -> Result<ExitCode> {
    let found = directory.join(FINDING);
    if found.exists() {
        let text = std::fs::read_to_string(&found)
            .into_diagnostic()
            .wrap_err("the finding cannot be read")?;
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            println!("{line}");
        }
        let console = directory.join("console.txt");
        write_atomic(&console, outcome.console.as_bytes())?;
        println!(
            "system image {}; the last lines of {}:",
            systems.checksum(&found),
            console.display()
        );
        println!("{}", tail(&outcome.console));
        println!(
            "reproduce: cargo xtask fuzz el2 --replay {}",
            found.display()
        );
        return Ok(ExitCode::from(1));
    }
    match outcome.exit {
        Exit::Code(0) if directory.join(COVERAGE).exists() => {
            println!("nothing found");
            Ok(ExitCode::SUCCESS)
        }
        Exit::Code(FOUND) => Err(miette!("the plugin found something, but left no report")),
        exit => Err(miette!(
            help = format!("{}\n{}", tail(&outcome.console), outcome.errors),
            "the run ended early: {exit}"
        )),
    }
}

/// Returns the last lines of a console.
fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
