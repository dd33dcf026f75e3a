//! `cargo xtask`: the tasks of Cloison's developers, and all commands of its users.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches};
use cloison::color_map::color_map;
use cloison::commands;
use cloison::exit::Failure;
use cloison_engine::installation;
use cloison_lab::tune::mixes;
use miette::Result;
use std::process::ExitCode;
use xtask::cli::{Cli, Command};
use xtask::{build, bundle, docs, elsewhere, fuzz, lint, mutants, results, size, test};

fn main() -> ExitCode {
    commands::prepare_terminal();
    installation::use_checkout();
    let matches = commands::with_long_help(Cli::command())
        .after_help(commands::examples(installation::program()))
        .get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    commands::conclude(run(cli.command))
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::User(command) => return commands::run(*command),
        Command::Build(args) => build::build(&args),
        Command::Bundle(args) => bundle::bundle(&args),
        Command::Docs(args) => docs::docs(&args),
        Command::Results(args) => results::results(&args),
        Command::Size(args) => size::size(&args),
        Command::Mixes(args) => mixes::mixes(&args, color_map).map(|all| {
            println!("{}", all.table().to_text());
        }),
        Command::Fuzz(args) => return Ok(fuzz::fuzz(&args)?),
        Command::Lint(args) => return Ok(lint::lint(&args)?),
        Command::Mutants(args) => return Ok(mutants::mutants(&args)?),
        Command::Test(args) => {
            return Ok(match args.release {
                Some(release) => elsewhere::test(release, &args),
                None => test::test(&args),
            }?);
        }
    };
    done?;
    Ok(ExitCode::SUCCESS)
}
