//! `cargo xtask run`: boots a system in QEMU with its console on this terminal.

use crate::config;
use crate::figures::write_atomic;
use crate::qemu::{Board, Exit, Machine};
use crate::{demo, setup, workspace};
use miette::{Result, miette};
use std::path::PathBuf;
use std::time::Duration;

/// `cargo xtask run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The system's configuration
    pub config: PathBuf,
    /// The board, if not the one that the configuration names
    #[arg(long, value_enum)]
    pub board: Option<Board>,
    /// One instruction takes 2^SHIFT ns of guest time, and runs repeat exactly
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "0")]
    pub icount: Option<u8>,
    /// Stop the board after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Print QEMU's command line too
    #[arg(short, long)]
    pub verbose: bool,
    /// More arguments for QEMU
    #[arg(last = true, value_name = "QEMU ARGUMENT")]
    pub extra: Vec<String>,
}

/// Runs `cargo xtask run`.
pub fn run(args: &RunArgs) -> Result<()> {
    let checked = config::load(&args.config, args.board.map(Board::name))?;
    setup::core_library()?;
    setup::qemu()?;
    let image = demo::build_image(&checked, &[])?;
    let name = &image.system.board.name;
    let board = Board::from_name(name).ok_or_else(|| {
        miette!(help = "`cargo xtask image` writes what real hardware boots", "QEMU does not emulate board `{name}`")
    })?;
    let stem = args.config.file_stem().unwrap_or_default().to_string_lossy();
    let directory = workspace::output_dir().join("run").join(format!("{stem}-{name}"));
    let file = directory.join("Image");
    image.write(&file)?;
    let machine = Machine::new(board, &file).icount(args.icount).args(args.extra.iter().cloned());
    if args.verbose {
        eprintln!("{}", machine.command_line());
    }
    eprintln!("{stem} on {board}; Ctrl-A x quits, Ctrl-A c opens QEMU's monitor");
    let (exit, telemetry) = machine.run_on_terminal(args.timeout.map(Duration::from_secs))?;
    let log = directory.join("telemetry.bin");
    write_atomic(&log, &telemetry)?;
    eprintln!(
        "\n{board}: {exit}; {} bytes of telemetry (`cargo xtask hem decode {}` reads them)",
        telemetry.len(),
        workspace::display(&log)
    );
    match exit {
        Exit::Code(0) | Exit::TimedOut => Ok(()),
        other => Err(miette!("QEMU ended otherwise than by turning the board off: {other}")),
    }
}
