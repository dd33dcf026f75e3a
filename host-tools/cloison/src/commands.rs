//! All commands, for `cloison` itself and for `cargo xtask`, which offers the same ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::{self, BoardArgs};
use crate::capture::{self, CaptureArgs};
use crate::check::{self, CheckArgs};
use crate::demo::{self, DemoArgs};
use crate::events::{self, EventsArgs};
use crate::exit::{self, Failure};
use crate::hem::{self, HemArgs};
use crate::image::{self, ImageArgs};
use crate::import::{self, ImportArgs};
use crate::inspect::{self, InspectArgs};
use crate::linux::{self, LinuxArgs};
use crate::new::{self, NewArgs};
use crate::run::{self, RunArgs};
use crate::setup::{self, SetupArgs};
use crate::top::{self, TopArgs};
use crate::{color_map, tune};
use cloison_bench::bench::{self, BenchArgs};
use cloison_engine::setup::Missing;
use cloison_engine::text;
use cloison_lab::bbprof::{self, BbprofArgs};
use cloison_lab::campaign::{self, CampaignArgs};
use cloison_lab::experiment::{self, ExperimentArgs};
use cloison_lab::jobs::{self, CollectArgs, JobArgs, JobsArgs, SubmitArgs};
use cloison_lab::model::{self, ModelArgs};
use cloison_lab::tune::TuneArgs;
use cloison_much_command::{MuchArgs, much};
use cloison_profiler::{ProfileArgs, profile};
use miette::{MietteHandlerOpts, Result, miette};
use std::process::ExitCode;

/// A command, with its arguments.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Build and boot the demo, and report its results
    Demo(DemoArgs),
    /// Boot a configuration in QEMU, with its console on this terminal
    Run(RunArgs),
    /// Read a board's serial ports while it runs a configuration, and report it as `run` does
    Capture(CaptureArgs),
    /// Boot a configuration in QEMU, and show live how each core uses its budgets
    Top(TopArgs),
    /// Validate configurations; report every error with file, line and fix
    Check(CheckArgs),
    /// Draw the color map: who holds which colors and pages; with --live, verify it on the booted
    /// system
    Inspect(InspectArgs),
    /// Make a configuration of those of Bao, Jailhouse, Xen or hvisor; list what has no counterpart
    Import(ImportArgs),
    /// Create a guest or an experiment of your own
    New(NewArgs),
    /// Run an interference experiment on the board model, or list them
    Experiment(ExperimentArgs),
    /// Decide colors, private pages and budgets, so that each VM reaches what its configuration says,
    /// and run the decision
    Tune(TuneArgs),
    /// Find the pages of a bare-metal guest that matter to its segments, and write them as the VM's
    /// profile
    Bbprof(BbprofArgs),
    /// Profile a guest on the board model: cycles, cache refills and bus accesses by function and
    /// line, alone and beside its neighbors
    Profile(ProfileArgs),
    /// Compare the board model with measurements on boards
    Model(ModelArgs),
    /// Count the instructions on the hypervisor's own paths
    Bench(BenchArgs),
    /// List the events of a CPU, show one, list what is computed from them, or validate which can
    /// be trusted
    Events(EventsArgs),
    /// Decode the telemetry of a run
    Hem(HemArgs),
    /// Plan which events to count together, and merge their counts
    Much(MuchArgs),
    /// Count many events of workloads, a few at a time, and merge them into complete vectors
    Campaign(CampaignArgs),
    /// Split an experiment, a campaign, a validation (of the model or of events) or `tune` into jobs
    /// for other machines
    Jobs(JobsArgs),
    /// Run one of these jobs
    Job(JobArgs),
    /// Hand jobs that have no result to an engine: Slurm, GNU parallel, Snakemake, HyperQueue, a board
    Submit(SubmitArgs),
    /// Check the results of all jobs, and make the report that a run on this machine makes
    Collect(CollectArgs),
    /// Write what a board boots, from a card, a network or JTAG, with instructions
    Image(ImageArgs),
    /// Compare a new board with its board file: an image to boot first, and what its log says
    Board(BoardArgs),
    /// Download kernels and programs for Linux guests, and measure what booting them costs
    Linux(LinuxArgs),
    /// Find out what is missing on this machine, and install it
    Setup(SetupArgs),
}

/// Gives each command's `--help` the same layout, the long one, whether or not one of its options
/// needs a second paragraph. `-h` is short.
pub fn with_long_help(mut command: clap::Command) -> clap::Command {
    if let (None, Some(about)) = (command.get_long_about(), command.get_about().cloned()) {
        command = command.long_about(about);
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_long_help)
    })
}

/// Runs a command and returns its exit code.
///
/// # Errors
///
/// Returns the error that stopped the command.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    // Most commands need scratch directories; without this each would fail in words that do not
    // name the variable.
    let scratch = std::env::temp_dir();
    if !scratch.is_dir() {
        return Err(miette!(
            help = "set TMPDIR to a directory that you can write to, or unset it",
            "TMPDIR names {}, which is not a directory",
            scratch.display()
        )
        .into());
    }
    let done = match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => return run::run(&args),
        Command::Capture(args) => return capture::capture(&args),
        Command::Top(args) => top::top(&args),
        Command::Check(args) => check::check(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Import(args) => import::import(&args),
        Command::New(args) => new::new(&args),
        Command::Experiment(args) => experiment::experiment(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Bbprof(args) => bbprof::bbprof(&args),
        Command::Profile(args) => profile(&args),
        Command::Model(args) => model::model(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Events(args) => events::events(&args),
        Command::Hem(args) => hem::hem(args),
        Command::Much(args) => much(&args),
        Command::Campaign(args) => campaign::campaign(&args),
        Command::Jobs(args) => jobs::jobs(&args, color_map::color_map),
        Command::Job(args) => return Ok(jobs::job(&args)?),
        Command::Submit(args) => jobs::submit(&args),
        Command::Collect(args) => return Ok(jobs::collect(&args, color_map::color_map)?),
        Command::Image(args) => image::image(&args),
        Command::Board(args) => board::board(&args),
        Command::Linux(args) => linux::linux(&args),
        Command::Setup(args) => setup::setup(&args),
    };
    done?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the examples at the end of `--help`, for a program called `program`.
pub fn examples(program: &str) -> String {
    let examples = [
        ("demo", "see what Cloison does, on QEMU's virt"),
        ("demo --board zcu102", "the same on the ZCU102"),
        ("check configs/*.toml", "find errors before a board does"),
        (
            "inspect configs/demo.toml",
            "who holds which colors and pages",
        ),
        (
            "inspect --live configs/demo.toml",
            "boot it and verify every page",
        ),
        (
            "experiment c2is --quick",
            "interference and its remedies, modelled",
        ),
        (
            "bbprof configs/pvt-sh.toml --vm staircase -f h -b 16",
            "which pages matter: a profile for the VM",
        ),
        (
            "run configs/pvt-sh.toml",
            "boot it, console on this terminal",
        ),
        ("new guest hello --c", "a guest of your own, ready to run"),
        ("image configs/kit/kit.toml --board zcu102 -o card", ""),
    ];
    let width = program.len() + 34;
    let line = |(command, what): &(&str, &str)| {
        let command = format!("{program} {command}");
        if command.len() < width || what.is_empty() {
            return format!("  {command:<width$}{what}").trim_end().to_owned();
        }
        format!("  {command}\n  {:<width$}{what}", "")
    };
    let lines: Vec<String> = examples.iter().map(line).collect();
    let codes: Vec<String> = exit::CODES
        .iter()
        .map(|(code, meaning)| format!("  {code:<5}{meaning}").replace('`', "'"))
        .collect();
    format!(
        "Examples:\n{}\n\n\
         Exit codes:\n{}\n\n\
         `{program} setup` installs what this machine lacks; other commands only name it.",
        lines.join("\n"),
        codes.join("\n")
    )
}

/// Ends a program with the exit code of its result, or prints its error.
pub fn conclude(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|Failure { code, error }| {
        match error.downcast_ref::<Missing>() {
            // Commands for copying must not be wrapped.
            Some(missing) => eprintln!("Error: {missing}\n\n{}", missing.instructions()),
            None => eprintln!("Error: {error:?}"),
        }
        ExitCode::from(code)
    })
}

/// Prepares the terminal: errors are as wide as it is, and the program ends silently when its output
/// is closed (`… inspect … | head` must not print a panic message).
pub fn prepare_terminal() {
    // A terminal may not know its width.
    let opts = || MietteHandlerOpts::new().width(text::columns()).build();
    _ = miette::set_hook(Box::new(move |_| Box::new(opts())));
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") && message.contains("Broken pipe") {
            std::process::exit(1);
        }
        report(info);
    }));
}
