//! `cloison`: cache-colored partitions for multicore Arm boards.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches};
use cloison::cli::Cli;
use cloison::commands;
use cloison_engine::installation;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::prepare_terminal();
    // Before the command line is parsed: which boards it may name depends on the installation.
    // A job has all that it needs in its directory, and does not wait until a bundle is checked.
    if !is_job()
        && let Err(error) = installation::choose(named_bundle().as_deref())
    {
        return commands::conclude(Err(error.into()));
    }
    let matches = commands::with_long_help(Cli::command())
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
