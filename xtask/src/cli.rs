//! The command line of `cargo xtask`: all commands of users, and those of developers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::build::BuildArgs;
use crate::bundle::BundleArgs;
use crate::fuzz::FuzzArgs;
use crate::lint::LintArgs;
use crate::mutants::MutantsArgs;
use crate::pages::DocsArgs;
use crate::size::SizeArgs;
use crate::test::TestArgs;
use clap::{Parser, Subcommand};
use cloison::commands;
use cloison_lab::tune::mixes::MixesArgs;

/// Cloison: real-time partitions on multicore Arm that do not share a cache color.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 110
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A command, with its arguments.
#[derive(Subcommand)]
pub enum Command {
    /// What `cloison` offers, with this checkout.
    #[command(flatten)]
    User(Box<commands::Command>),
    /// Build the hypervisor and the guests
    Build(BuildArgs),
    /// Put all that `cloison` needs without a checkout into one directory
    Bundle(BundleArgs),
    /// Make the pages of docs/ that come from the sources
    Docs(DocsArgs),
    /// Search for inputs that break a rule
    Fuzz(FuzzArgs),
    /// Check the house rules: circles, registers, unsafe code, sizes, words
    Lint(LintArgs),
    /// Tune mixes of shipped workloads: do the answers hold, and what do fewer knobs reach?
    Mixes(MixesArgs),
    /// Change the code of pure crates and see whether their tests notice
    Mutants(MutantsArgs),
    /// Write the pages of docs/results/ that come from kept data
    Results(DocsArgs),
    /// Count code in tokens and lines, and its comments
    Size(SizeArgs),
    /// Run every check and test
    Test(TestArgs),
}
