//! `cloison hem`: converts the HEM log of a run to CSV and Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::events::EventNames;
use cloison_engine::configuration;
use cloison_engine::figures::Figures;
use cloison_engine::files::{keep_apart, write_atomic};
use cloison_engine::hem::{Damage, Table, read};
use miette::{IntoDiagnostic, Result, WrapErr};
use std::io::Write;
use std::path::PathBuf;

/// `cloison hem`.
#[derive(Clone, Debug, clap::Args)]
pub struct HemArgs {
    #[command(subcommand)]
    command: HemCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum HemCommand {
    /// Convert a captured telemetry stream to CSV and Parquet: one row per counted event
    Decode(DecodeArgs),
}

/// Options of `cloison hem decode`.
#[derive(Clone, Debug, clap::Args)]
pub struct DecodeArgs {
    /// The capture of the second UART, or the directory of a capture or run
    #[arg(value_name = "FILE|DIR")]
    pub file: PathBuf,
    /// Write CSV here (without --csv and --parquet: to standard output)
    #[arg(long, value_name = "OUT")]
    pub csv: Option<PathBuf>,
    /// Write Parquet here
    #[arg(long, value_name = "OUT")]
    pub parquet: Option<PathBuf>,
    /// Write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Skip what cannot be decoded, and report how much that was
    #[arg(long)]
    pub lenient: bool,
}

/// Runs `cloison hem`.
pub fn hem(args: HemArgs) -> Result<()> {
    match args.command {
        HemCommand::Decode(args) => decode(&args),
    }
}

/// Runs `cloison hem decode`.
pub fn decode(args: &DecodeArgs) -> Result<()> {
    let file = if args.file.is_dir() {
        args.file.join("telemetry.bin")
    } else {
        args.file.clone()
    };
    let outputs = [&args.csv, &args.parquet, &args.json];
    keep_apart(
        [file.as_path()],
        outputs.into_iter().flatten().map(PathBuf::as_path),
    )?;
    let damage = if args.lenient {
        Damage::Skip
    } else {
        Damage::Refuse
    };
    let telemetry = read(&file, damage)?;
    let names = telemetry
        .boot
        .as_ref()
        .map_or_else(EventNames::default, |boot| {
            configuration::event_names(&boot.board)
        });
    let table = Table::new(&telemetry, &names);
    // Both outputs are complete in memory before the first file is written.
    let csv = table.to_csv()?;
    let parquet = args
        .parquet
        .is_some()
        .then(|| table.to_parquet())
        .transpose()?;
    if let Some(path) = &args.csv {
        write_atomic(path, &csv)?;
    }
    if let (Some(path), Some(bytes)) = (&args.parquet, &parquet) {
        write_atomic(path, bytes)?;
    }
    if args.csv.is_none() && args.parquet.is_none() {
        std::io::stdout()
            .write_all(&csv)
            .into_diagnostic()
            .wrap_err("cannot write to standard output")?;
    }
    let runs = telemetry.hem_runs().count();
    for (offset, problem) in &telemetry.problems {
        eprintln!("skipped: byte {offset}: {problem}");
    }
    let skipped = telemetry.problems.len();
    eprintln!(
        "{}: {runs} HEM records, {} rows, {} skipped, {} dropped by the hypervisor",
        file.display(),
        table.rows.len(),
        skipped,
        telemetry.dropped()
    );
    let mut figures = Figures::new("hem decode");
    if let Some(boot) = &telemetry.boot {
        figures = figures.board(&boot.board);
    }
    figures
        .count("hem_records", runs as u64)
        .count("hem_rows", table.rows.len() as u64)
        .count(
            "hem_overflowed",
            table
                .rows
                .iter()
                .filter(|row| row.count.as_ref().is_some_and(|c| c.overflowed))
                .count() as u64,
        )
        .count("frames", telemetry.frames as u64)
        .count("frames_skipped", skipped as u64)
        .count("records_dropped", telemetry.dropped());
    figures.write(args.json.as_deref())
}
