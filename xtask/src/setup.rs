//! What this machine lacks for building and running Cloison, and how to get it.
//!
//! Every command asks for what it needs and nothing more. What is there costs no network access and prints nothing;
//! what is missing is named first, together with what will be done about it.

mod apt;
mod core_library;
mod cross_linker;
pub mod debian;
mod emulator;

pub use core_library::{CoreLibrary, Source as CoreLibrarySource, core_library, core_library_from, standard_library};
pub use cross_linker::cross_linker;
pub use emulator::{QEMU_HELP, qemu, u_boot};

use crate::qemu::PROGRAM;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// `cargo xtask setup`.
#[derive(Clone, Debug, clap::Args)]
pub struct SetupArgs {
    /// Say what is missing and what would be done, and change nothing
    #[arg(long)]
    pub check: bool,
    /// Where Rust's libraries for aarch64 come from (default: wherever they are found first)
    #[arg(long, value_enum, value_name = "SOURCE", hide_short_help = true)]
    pub core_library: Option<CoreLibrarySource>,
}

/// Runs `cargo xtask setup`.
pub fn setup(args: &SetupArgs) -> Result<()> {
    let core = match (args.check, args.core_library) {
        (true, _) => core_library::find()?,
        (false, None) => Some(core_library()?),
        (false, Some(source)) => Some(core_library_from(source)?),
    };
    let describe = |library: CoreLibrary| match library {
        CoreLibrary::Toolchain => "in the Rust toolchain".to_owned(),
        CoreLibrary::Private(sysroot) => sysroot.display().to_string(),
    };
    let would = "missing; `cargo xtask setup` gets it".to_owned();
    println!("{:<24} {}", "aarch64 core library", core.map_or(would.clone(), describe));
    if !args.check {
        qemu()?;
    }
    let (wanted, found) = (emulator::OLDEST, emulator::version());
    let emulator = match found {
        Some(version) if version >= wanted => format!("{}.{}", version.0, version.1),
        Some(version) => format!("{}.{} is too old, {}.{} is needed", version.0, version.1, wanted.0, wanted.1),
        None => would,
    };
    println!("{PROGRAM:<24} {emulator}");
    let firmware = if args.check { emulator::find_u_boot() } else { u_boot().ok() };
    let firmware =
        firmware.map_or("missing (only the `booti` test needs it)".to_owned(), |path| path.display().to_string());
    println!("{:<24} {firmware}", "U-Boot for the test");
    let linker = if args.check { cross_linker::find() } else { Some(cross_linker()?) };
    let for_linux = "missing (only Linux guests need it)".to_owned();
    let linker = linker.map_or(for_linux.clone(), |path| path.display().to_string());
    println!("{:<24} {linker}", cross_linker::PROGRAM);
    let library = if args.check { core_library::find_std()? } else { Some(standard_library()?) };
    println!("{:<24} {}", "aarch64 Linux library", library.map_or(for_linux, describe));
    Ok(())
}

/// Something that this machine lacks and that could not be installed.
#[derive(Debug, Error, Diagnostic)]
#[error("{what} is missing: {why}")]
#[diagnostic(help("{}", self.instructions()))]
pub struct Missing {
    what: String,
    why: String,
    commands: String,
}

impl Missing {
    /// What the user can do about it.
    pub fn instructions(&self) -> String {
        format!("run this, then try again:\n{}", self.commands)
    }
}

/// Says on the terminal what is about to be done.
fn announce(text: &str) {
    eprintln!("set-up: {text}");
}

/// What a program did within its time.
struct Done {
    success: bool,
    text: String,
}

impl Done {
    /// The last line that says something, for an error message.
    fn reason(&self) -> String {
        let telling = |line: &&str| !line.trim().is_empty();
        let error = self.text.lines().rev().find(|line| line.starts_with("E:") || line.starts_with("error"));
        error.or_else(|| self.text.lines().rev().find(telling)).unwrap_or("no message").trim().to_owned()
    }
}

/// Runs a program that may take long or hang on a network, with a spinner, for at most `limit`.
fn run_limited(mut command: Command, what: &str, limit: Duration) -> Result<Done> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut reader, writer) = std::io::pipe().into_diagnostic()?;
    let errors = writer.try_clone().into_diagnostic()?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command.spawn().into_diagnostic().wrap_err_with(|| miette!("cannot start `{name}`"))?;
    // The command holds the pipe's writing end; without this the reader would never see its end.
    drop(command);
    let collector = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let spinner = spinner(what);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().into_diagnostic()? {
            break Some(status);
        }
        if started.elapsed() > limit {
            // It may have ended in this very moment; then there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    spinner.finish_and_clear();
    let Some(status) = status else {
        // A grandchild may hold the pipe open, so what it said is not waited for.
        return Ok(Done { success: false, text: format!("error: no result within {} s", limit.as_secs()) });
    };
    let text = collector.join().unwrap_or_default();
    Ok(Done { success: status.success(), text })
}

/// A spinner for something whose length is unknown; prints nothing where there is no terminal.
pub fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}
