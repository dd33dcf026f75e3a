//! `cloison new`: starts a guest of one's own, in Rust or C.
// SPDX-License-Identifier: MIT OR Apache-2.0

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
}

/// Runs `cloison new`.
pub fn new(args: &NewArgs) -> Result<()> {
    match &args.command {
        NewCommand::Guest(args) => guest::guest(args),
    }
}
