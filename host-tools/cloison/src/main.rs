//! `cloison`: partitions of multicore Arm boards that share no cache color.
#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches, Parser};
use cloison::commands::{self, Command};
use cloison_engine::installation;
use std::path::PathBuf;
use std::process::ExitCode;

/// Cloison: real-time partitions on multicore Arm that do not share a cache color.
#[derive(Parser)]
#[command(name = "cloison", version, max_term_width = 110)]
struct Cli {
    /// Where hypervisor, guests and configurations are taken from: a directory that `cargo xtask bundle` made
    /// [default: CLOISON_BUNDLE, a bundle beside the program, or the checkout]
    #[arg(long, value_name = "DIR", global = true, display_order = 100)]
    bundle: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    commands::leave_quietly_when_nobody_reads();
    let matches = Cli::command().after_help(commands::examples("cloison")).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    commands::conclude(installation::choose(cli.bundle.as_deref()).and_then(|()| commands::run(cli.command)))
}
