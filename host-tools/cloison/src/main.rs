//! `cloison`: cache-colored partitions for multicore Arm boards.
// SPDX-License-Identifier: MIT OR Apache-2.0
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
    /// The source of hypervisor, guests and configurations: a directory made by `cargo xtask
    /// bundle` [default: CLOISON_BUNDLE, a bundle next to the program, or the checkout]
    #[arg(
        long = "bundle",
        value_name = "DIR",
        global = true,
        display_order = 100
    )]
    _bundle: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    commands::leave_quietly_when_nobody_reads();
    // Before the command line is parsed: which boards it may name depends on the installation.
    // A job has all that it needs in its directory, and does not wait until a bundle is checked.
    if !is_job()
        && let Err(error) = installation::choose(named_bundle().as_deref())
    {
        return commands::conclude(Err(error));
    }
    let matches = Cli::command()
        .after_help(commands::examples(installation::program()))
        .get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    commands::conclude(commands::run(cli.command))
}

/// Returns whether the command is `job`.
fn is_job() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == "job")
}

/// Returns the directory after `--bundle`.
fn named_bundle() -> Option<PathBuf> {
    let mut arguments = std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--bundle" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(directory) = argument
            .to_str()
            .and_then(|text| text.strip_prefix("--bundle="))
        {
            return Some(PathBuf::from(directory));
        }
    }
    None
}
