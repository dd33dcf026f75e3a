//! `cloison much import`: writes measurements of any form as long CSV.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::input::{self, ProgramChoice};
use cloison_engine::files::{keep_apart, stream_atomic};
use cloison_much::write;
use miette::{IntoDiagnostic, Result, WrapErr};
use std::path::PathBuf;

/// Options of `cloison much import`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    /// What was counted: CSV or Parquet (long or wide), what perf stat (-x, -j) or PAPI wrote, a
    /// HEM log, compressed or not; or a folder of such files
    input: PathBuf,
    /// Write the counts here, a row for each (default: to standard output)
    #[arg(short, long = "out", alias = "output", value_name = "OUT")]
    output: Option<PathBuf>,
    #[command(flatten)]
    chosen: ProgramChoice,
}

/// Runs `cloison much import`.
///
/// # Errors
///
/// The errors of the input, or that the output cannot be written.
pub fn import(args: &ImportArgs) -> Result<()> {
    let output = args.output.as_deref();
    keep_apart([args.input.as_path()], output)?;
    let data = input::measurements(&args.input, &args.chosen)?;
    match output {
        Some(path) => stream_atomic(path, |file| write::write_long_csv(&data, file)),
        None => write::write_long_csv(&data, &mut std::io::stdout())
            .into_diagnostic()
            .wrap_err("cannot write to standard output"),
    }
}
