//! `cloison new`: creates a guest or an experiment from templates.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod experiment;
pub mod guest;
pub mod header;
mod project;

use miette::Result;

/// `cloison new`.
#[derive(Clone, Debug, clap::Args)]
pub struct NewArgs {
    #[command(subcommand)]
    command: NewCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum NewCommand {
    /// Create a bare-metal guest: a directory that builds and boots with one command
    Guest(guest::GuestArgs),
    /// Create an experiment: your victim alone, next to three neighbors, with colors, with budgets
    Experiment(experiment::ExperimentArgs),
}

/// Runs `cloison new`.
pub fn new(args: &NewArgs) -> Result<()> {
    match &args.command {
        NewCommand::Guest(args) => guest::guest(args),
        NewCommand::Experiment(args) => experiment::experiment(args),
    }
}
