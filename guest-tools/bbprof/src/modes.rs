//! The modes: which runs are measured, in which order, and how they are reported.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod profiling;
mod reading;
mod using;

use crate::command::{Cli, Verb};
use crate::error::Error;
use crate::held;
use crate::target::{self, Launch};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the mode that the command line names.
pub fn run(cli: Cli) -> Result<ExitCode, Error> {
    match cli.command {
        Verb::Show { profile } => reading::show(&profile),
        Verb::Export(wanted) => reading::export(&wanted),
        Verb::Import(wanted) => reading::import(&wanted),
        Verb::Restore => restore(),
        Verb::ExecTarget(wanted) => {
            let mut program = wanted.program.into_iter();
            let launch = Launch {
                program: program.next().map(PathBuf::from).unwrap_or_default(),
                arguments: program.collect(),
                environment: Vec::new(),
                fixed: wanted.fixed,
                real_time: wanted.real_time,
                quiet: false,
            };
            Err(target::become_target(&launch))
        }
        Verb::Profile(wanted) => profiling::profile(&wanted),
        Verb::Group(wanted) => profiling::group(&wanted),
        Verb::Rank(wanted) => using::rank(&wanted),
        Verb::Migrate(wanted) => using::migrate(&wanted),
        Verb::Run(wanted) => using::run(&wanted),
    }
}

fn restore() -> Result<ExitCode, Error> {
    let what = if held::restore()? {
        "all pages are as before"
    } else {
        "no profiler has left anything"
    };
    println!("{what}");
    Ok(ExitCode::SUCCESS)
}
