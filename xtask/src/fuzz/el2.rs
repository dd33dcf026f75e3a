//! `cargo xtask fuzz el2`: guests that do anything, against the hypervisor's image that ships.
//!
//! The plugin `cloison-prover` makes the programs and watches EL2 from outside. This builds the
//! system, starts it, shows how far it is, and reports what was found.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{coverage, minimize};
use cloison_config::sources::ImageSource;
use cloison_engine::counting::{self, Counting};
use cloison_engine::qemu::{Exit, Machine, Outcome};
use cloison_engine::{cargo, configuration, image, installation, parts};
use cloison_prover::fuzz::state::{COVERAGE, FINDING, PROGRESS, Report};
use cloison_prover::prover::FOUND;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// One tick of the generic timer per instruction.
const CNTFRQ: u64 = 1_000_000_000;

/// The oracle's report, in the directory of what is found.
const DIFFERENCE: &str = "difference.json";

/// `cargo xtask fuzz el2`.
#[derive(Clone, Debug, clap::Args)]
pub struct El2Args {
    /// Minutes of search
    #[arg(long, default_value_t = 1.0, value_name = "NUMBER")]
    pub minutes: f64,
    /// Guest exits after which the search ends, if that is sooner
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub exits: u64,
    /// Board of the system `tests/configs/fuzz-BOARD.toml`
    #[arg(long, default_value = "virt", value_name = "BOARD")]
    pub board: String,
    /// Seed of the programs and of the cores' turns
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Directory of the corpus and of what is found [default: target/fuzz/BOARD]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Run the inputs of this file instead of a search
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// A system with puppets that is ready to boot.
pub struct System {
    machine: Machine,
    plugin: String,
    /// SHA-256 of the system image.
    pub checksum: String,
    _scratch: tempfile::TempDir,
}

/// What a run of the plugin does.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Directory of the corpus and of what is found.
    pub directory: &'a Path,
    /// Seed of the programs and of the cores' turns.
    pub seed: u64,
    /// Guest exits after which it ends; 0 if none.
    pub exits: u64,
    /// Seconds after which it ends.
    pub seconds: u64,
    /// Inputs to give instead of generated ones.
    pub replay: Option<&'a Path>,
}

impl System {
    /// Builds the system of a board with this hypervisor, an ELF file.
    ///
    /// # Errors
    ///
    /// If a part does not build, or the configuration is wrong.
    pub fn build(board: &str, elf: &Path) -> Result<Self> {
        let config = format!("tests/configs/fuzz-{board}.toml");
        let mut checked = configuration::load(&installation::root().join(config), Some(board))?;
        counting::prepare_for(&mut checked, Counting::Icount.machine())?;
        let puppet = cargo::puppet()?;
        for source in &mut checked.images {
            *source = ImageSource::File(puppet.clone());
        }
        let image = image::assemble(&checked, &image::flatten(elf)?)?;
        let scratch = tempfile::tempdir().into_diagnostic()?;
        let file = scratch.path().join("Image");
        image.write(&file)?;
        let machine = Machine::new(&configuration::emulation(board)?, &file)
            .icount(Some(0))
            .cntfrq(CNTFRQ);
        let plugin = format!(
            "{},elf={},vms={},image={}",
            cargo::prover_plugin()?.display(),
            elf.display(),
            checked.system.vms.len(),
            file.display()
        );
        Ok(Self {
            machine,
            plugin,
            checksum: image.sha256(),
            _scratch: scratch,
        })
    }

    /// Runs the system. Calls `watch` now and then until it ends.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started.
    pub fn run(&self, run: &Run<'_>, watch: impl Fn() + Sync) -> Result<Outcome> {
        std::fs::create_dir_all(run.directory).into_diagnostic()?;
        // What a former run found is not this one's.
        let _ = std::fs::remove_file(run.directory.join(FINDING));
        let mut plugin = format!(
            "{},oracle={},fuzz={},seed={},exits={},seconds={}",
            self.plugin,
            run.directory.join(DIFFERENCE).display(),
            run.directory.display(),
            run.seed,
            run.exits,
            run.seconds
        );
        if let Some(file) = run.replay {
            plugin.push_str(&format!(",replay={}", file.display()));
        }
        let machine = self
            .machine
            .clone()
            .limit(Duration::from_secs(run.seconds + 60))
            .arg("-plugin")
            .arg(plugin);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| machine.run());
            while !running.is_finished() {
                watch();
                std::thread::sleep(Duration::from_millis(200));
            }
            match running.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Returns the progress that the plugin wrote last.
pub fn progress(directory: &Path) -> Option<Report> {
    let text = std::fs::read_to_string(directory.join(PROGRESS)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns one line about the progress.
fn line(report: &Report) -> String {
    let rate = report.exits as f64 / report.processor_seconds.max(0.001);
    format!(
        "{:.0} s: {} exits, {rate:.0} per second of processor time, {} inputs, {} blocks, {} \
         edges, corpus {}",
        report.seconds, report.exits, report.inputs, report.blocks, report.edges, report.corpus
    )
}

/// Runs `cargo xtask fuzz el2`.
///
/// # Errors
///
/// If the system cannot be built or started.
pub fn run(args: &El2Args) -> Result<ExitCode> {
    let elf = parts::hypervisor(&[])?;
    let system = System::build(&args.board, &elf)?;
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
    let outcome = system.run(&run, || {
        if shown && let Some(report) = progress(&directory) {
            eprint!("\r\x1b[K{}", line(&report));
            let _ = std::io::stderr().flush();
        }
    })?;
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
        minimize::minimize(&system, &directory, args.seed)?;
    }
    conclude(&directory, &system, &outcome)
}

/// Reports how a run ended.
fn conclude(directory: &Path, system: &System, outcome: &Outcome) -> Result<ExitCode> {
    let found = directory.join(FINDING);
    if found.exists() {
        let text = std::fs::read_to_string(&found)
            .into_diagnostic()
            .wrap_err("the finding cannot be read")?;
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            println!("{line}");
        }
        println!(
            "system image {}; the console's last lines:",
            system.checksum
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
