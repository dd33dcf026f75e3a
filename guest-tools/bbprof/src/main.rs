//! `bbprof`: finds the pages that matter to a Linux program, and puts them into private cache.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]

mod command;
mod error;
mod files;
mod held;
mod lock;
#[allow(unsafe_code)]
mod machine;
mod memory;
mod modes;
mod program;
mod progress;
mod registers;
mod sampler;
mod session;
mod signals;
mod snapshot;
mod stack;
mod target;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match modes::run(command::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(help) = error.help() {
                eprintln!("help: {help}");
            }
            ExitCode::FAILURE
        }
    }
}
