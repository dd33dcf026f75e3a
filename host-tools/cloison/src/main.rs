//! `cloison`: cache-colored partitions for multicore Arm boards.
#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches, Parser};
use cloison::commands::{self, Command};
use cloison_engine::installation;
use std::path::PathBuf;
use std::process::ExitCode;

/// Cloison: real-time partitions for multicore Arm that do not share cache colors
#[derive(Parser)]
#[command(name = "cloison", version, max_term_width = 110)]
struct Cli {
    /// The source of hypervisor, guests and configurations: a directory made by `cargo xtask bundle` [default:
    /// CLOISON_BUNDLE, a bundle next to the program, or the checkout]
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
