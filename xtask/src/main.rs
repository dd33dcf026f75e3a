//! `cargo xtask`: Cloison's command line.

use clap::{Parser, Subcommand};
use miette::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::bench::{self, BenchArgs};
use xtask::boot_media::{self, ImageArgs};
use xtask::build::{self, BuildArgs};
use xtask::campaign::{self, CampaignArgs};
use xtask::config;
use xtask::demo::{self, DemoArgs};
use xtask::experiment::{self, ExperimentArgs};
use xtask::hem::{self, HemArgs};
use xtask::inspect_command::{self, InspectArgs};
use xtask::lint::{self, LintArgs};
use xtask::linux::{self, LinuxArgs};
use xtask::much::{self, MuchArgs};
use xtask::qemu::Board;
use xtask::run::{self, RunArgs};
use xtask::setup::{self, SetupArgs};
use xtask::test::{self, TestArgs};
use xtask::top::{self, TopArgs};

const EXAMPLES: &str = "\
Examples:
  cargo xtask demo                             see what Cloison does, on QEMU's virt
  cargo xtask demo --board zcu102              the same on the ZCU102
  cargo xtask check configs/*.toml             find mistakes before a board does
  cargo xtask inspect configs/demo.toml        who holds which colors and pages
  cargo xtask inspect --live configs/demo.toml boot it and prove it, page by page
  cargo xtask experiment c2is --quick          see interference come and go, modelled
  cargo xtask run configs/pvt-sh.toml          boot it, console on this terminal
  cargo xtask image configs/demo.toml --board zcu102 -o /media/card

What a command needs and this machine lacks is named and installed first; `cargo xtask setup --check` only names it.";

/// Cloison: real-time partitions on multicore Arm that do not share a cache color.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build and boot the demo, and report what it came to
    Demo(DemoArgs),
    /// Boot a configuration in QEMU, with its console on this terminal
    Run(RunArgs),
    /// Boot a configuration in QEMU, and show what each core uses of its budgets, live
    Top(TopArgs),
    /// Check configurations: every mistake with its place, and how to mend it
    Check {
        /// The configurations
        #[arg(required = true, value_name = "CONFIG")]
        files: Vec<PathBuf>,
        /// The board, if not the one that the configurations name
        #[arg(long, value_enum)]
        board: Option<Board>,
    },
    /// Draw the color map: who holds which colors and pages; with --live, prove it on the booted system
    Inspect(InspectArgs),
    /// Run an interference experiment on the board model, or list them
    Experiment(ExperimentArgs),
    /// Count the instructions that the hypervisor's own paths take
    Bench(BenchArgs),
    /// Read the HEM log of a run
    Hem(HemArgs),
    /// Plan which events to count together, and merge their counts
    Much(MuchArgs),
    /// Count many events of workloads, a few at a time, and merge them into complete vectors
    Campaign(CampaignArgs),
    /// Build the hypervisor and the guests
    Build(BuildArgs),
    /// Write what goes on an SD card: a bootable image and U-Boot's script
    Image(ImageArgs),
    /// Fetch the kernels that Linux VMs run
    Linux(LinuxArgs),
    /// Find out what is missing on this machine, and install it
    Setup(SetupArgs),
    /// Check the house rules: circles, registers, unsafe code, sizes, words
    Lint(LintArgs),
    /// Run every check and test
    Test(TestArgs),
}

fn main() -> ExitCode {
    leave_quietly_when_nobody_reads();
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(report) => {
            match report.downcast_ref::<setup::Missing>() {
                // Commands that are to be copied must not be wrapped.
                Some(missing) => eprintln!("Error: {missing}\n\n{}", missing.instructions()),
                None => eprintln!("Error: {report:?}"),
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Run(args) => return run::run(&args),
        Command::Top(args) => top::top(&args),
        Command::Check { files, board } => config::check_command(&files, board.map(Board::name)),
        Command::Inspect(args) => inspect_command::inspect(&args),
        Command::Experiment(args) => experiment::experiment(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Hem(args) => hem::hem(args),
        Command::Much(args) => much::much(&args),
        Command::Campaign(args) => campaign::campaign(&args),
        Command::Build(args) => build::build(&args),
        Command::Image(args) => boot_media::image(&args),
        Command::Linux(args) => linux::linux(&args),
        Command::Setup(args) => setup::setup(&args),
        Command::Lint(args) => return lint::lint(&args),
        Command::Test(args) => return test::test(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// `cargo xtask inspect … | head` is no reason for a panic's message.
fn leave_quietly_when_nobody_reads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") && message.contains("Broken pipe") {
            std::process::exit(1);
        }
        report(info);
    }));
}
