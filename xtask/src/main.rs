//! `cargo xtask`: what developers of Cloison do, and all that its users do.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cloison::commands;
use cloison_engine::installation;
use miette::Result;
use std::process::ExitCode;
use xtask::build::{self, BuildArgs};
use xtask::bundle::{self, BundleArgs};
use xtask::docs::{self, DocsArgs};
use xtask::elsewhere;
use xtask::lint::{self, LintArgs};
use xtask::test::{self, TestArgs};

/// Cloison: real-time partitions on multicore Arm that do not share a cache color.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What `cloison` offers, with this checkout.
    #[command(flatten)]
    User(Box<commands::Command>),
    /// Build the hypervisor and the guests
    Build(BuildArgs),
    /// Put all that `cloison` needs without a checkout into one directory
    Bundle(BundleArgs),
    /// Make the pages of docs/ that come from the sources
    Docs(DocsArgs),
    /// Check the house rules: circles, registers, unsafe code, sizes, words
    Lint(LintArgs),
    /// Run every check and test
    Test(TestArgs),
}

fn main() -> ExitCode {
    commands::leave_quietly_when_nobody_reads();
    installation::use_checkout();
    let matches = Cli::command()
        .after_help(commands::examples(installation::program()))
        .get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    commands::conclude(run(cli.command))
}

fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::User(command) => return commands::run(*command),
        Command::Build(args) => build::build(&args),
        Command::Bundle(args) => bundle::bundle(&args),
        Command::Docs(args) => docs::docs(&args),
        Command::Lint(args) => return lint::lint(&args),
        Command::Test(args) => {
            return match args.release {
                Some(release) => elsewhere::test(release, &args),
                None => test::test(&args),
            };
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}
