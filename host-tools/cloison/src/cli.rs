//! The command line of `cloison`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::commands::Command;
use clap::Parser;
use std::path::PathBuf;

/// Cloison: real-time partitions for multicore Arm that do not share cache colors
#[derive(Parser)]
#[command(name = "cloison", version, max_term_width = 110)]
pub struct Cli {
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
    /// What to do.
    pub command: Command,
}
