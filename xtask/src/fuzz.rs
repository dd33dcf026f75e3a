//! `cargo xtask fuzz`: machines that search for inputs that break a rule.
//!
//! | module | what is searched |
//! | --- | --- |
//! | [`coverage`] | – what of EL2 guests reached, for viewers |
//! | [`el2`] | the hypervisor, with guests that do anything |
//! | [`minimize`] | – the fewest operations that reproduce a finding |
//! | [`parsers`] | all that reads bytes from others |
//! | [`planted`] | the hypervisor with a known bug, to test the search |
//! | [`system`] | – the systems that are attacked |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod coverage;
pub mod el2;
pub mod minimize;
pub mod parsers;
pub mod planted;
pub mod system;

use clap::Subcommand;
use miette::Result;
use std::process::ExitCode;

/// `cargo xtask fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub struct FuzzArgs {
    /// What to search.
    #[command(subcommand)]
    pub what: Searched,
}

/// What is searched.
#[derive(Clone, Debug, Subcommand)]
pub enum Searched {
    /// The hypervisor's image that ships, with guests that do anything
    El2(el2::El2Args),
    /// The hypervisor with a bug planted in it: does the search find it?
    Planted(planted::PlantedArgs),
    /// Parsers of files and messages from others, with libFuzzer
    Parsers(parsers::ParsersArgs),
}

/// Runs `cargo xtask fuzz`.
///
/// # Errors
///
/// Returns an error if a tool is missing, or what is searched cannot be built.
pub fn fuzz(args: &FuzzArgs) -> Result<ExitCode> {
    match &args.what {
        Searched::El2(args) => el2::run(args),
        Searched::Planted(args) => planted::run(args),
        Searched::Parsers(args) => parsers::run(args),
    }
}
