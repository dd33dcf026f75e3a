//! The command line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Find the pages that matter to a program's function, and put them into private cache
#[derive(Debug, Parser)]
// A guest's console is a terminal that logs and programs also read.
#[command(name = "bbprof", version, arg_required_else_help = true, color = clap::ColorChoice::Never)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Verb,
}

/// The modes.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure the function once for each of its pages, treated apart from the others
    Profile(Profile),
    /// The same with blocks of pages first, of which only those that matter are measured page by
    /// page
    Group(Group),
    /// Measure the function with the k most important pages cacheable, for each k, or find the k
    /// that is enough
    Rank(Rank),
    /// Measure the function with its most important pages in the private pool
    Migrate(Migrate),
    /// Run the program to its end with its most important pages in the private pool
    Run(Run),
    /// Show a profile
    Show {
        /// The profile
        profile: PathBuf,
    },
    /// Write a profile as CSV or JSON
    Export(Export),
    /// Convert a file of BBProf's own profiler
    Import(Import),
    /// End the lease of a profiler that was killed, which makes its pages as they were, before it
    /// runs out
    Restore,
    /// Become the program that another bbprof traces
    #[command(hide = true)]
    ExecTarget(ExecTarget),
}

/// Which program and function, and how to run it.
#[derive(Debug, Args)]
pub struct Common {
    /// Number of samples of each measurement
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// The vCPU on which profiler and program run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub vcpu: usize,
    /// Show the program's output
    #[arg(long)]
    pub output: bool,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Run the program without randomized addresses
    #[arg(long)]
    pub fixed: bool,
    /// Start a new process for each run. Otherwise one process repeats the function, and is restored
    /// after each run, if the function makes no system calls: a run then changes the pages whose
    /// treatment differs from the run before, and not all
    #[arg(long)]
    pub new_processes: bool,
    /// Leave the scheduling class as it is, instead of SCHED_FIFO
    #[arg(short = 'N', long)]
    pub no_real_time: bool,
    /// Leave the board model as it is, instead of on in the segment and off outside. On hardware
    /// this makes no difference
    #[arg(long)]
    pub keep_model: bool,
}

/// What is profiled.
#[derive(Debug, Args)]
pub struct Subject {
    /// The function
    #[arg(short, long, required_unless_present = "at", conflicts_with = "at")]
    pub symbol: Option<String>,
    /// Address of the function in the program's file (0x...)
    #[arg(long, value_name = "ADDRESS", value_parser = number)]
    pub at: Option<u64>,
    /// End the segment before the instruction at this address of the function's file (0x...), the
    /// first time that it is reached, instead of where the function returns. With --at, that is a
    /// part of a function
    #[arg(long, value_name = "ADDRESS", value_parser = number)]
    pub to: Option<u64>,
    /// The function is in a shared library whose file's name contains this
    #[arg(long, value_name = "NAME", requires = "symbol")]
    pub library: Option<String>,
    /// Which pages: t text, r rodata, b data, h heap, s stack, a first anonymous, A all anonymous,
    /// c libraries, m libm, f files
    #[arg(short, long, value_name = "LETTERS", default_value = "hs")]
    pub flags: String,
    /// How a page is treated apart
    #[arg(short, long, default_value = "c")]
    pub mode: Mode,
    /// A variable of the program's environment, which otherwise has PATH and the settings of its
    /// allocator only. The profile keeps it; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<String>,
    /// Where to write the profile; without it, to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// How a page is treated apart from the others.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// It is cacheable, and all others are not
    C,
    /// It is not cacheable, and all others are
    Nc,
}

impl From<Mode> for cloison_profile::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::C => Self::Cacheable,
            Mode::Nc => Self::NonCacheable,
        }
    }
}

/// `profile`.
#[derive(Debug, Args)]
pub struct Profile {
    #[command(flatten)]
    pub common: Common,
    /// Add the samples to those in the file of --out, which is written after each round: continues
    /// what was interrupted
    #[arg(long, requires = "out")]
    pub add: bool,
    #[command(flatten)]
    pub subject: Subject,
}

/// `group`.
#[derive(Debug, Args)]
pub struct Group {
    #[command(flatten)]
    pub common: Common,
    /// Pages of a block
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub block: u32,
    /// Part of the sum of all importances that the blocks to refine make up
    #[arg(long, default_value_t = 0.9, value_parser = part)]
    pub covered: f64,
    #[command(flatten)]
    pub subject: Subject,
}

/// A profile, and what is to be run with it.
#[derive(Debug, Args)]
pub struct Profiled {
    /// The profile
    #[arg(short = 'i', long = "profile", value_name = "FILE")]
    pub profile: PathBuf,
    /// Other arguments than those that were profiled
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub arguments: Option<Vec<OsString>>,
}

/// `rank`.
#[derive(Debug, Args)]
pub struct Rank {
    #[command(flatten)]
    pub common: Common,
    /// Only find the k that is enough, by halving
    #[arg(long)]
    pub coarse: bool,
    /// Measure only every so many k, one page, and all pages
    #[arg(long, value_name = "STEP", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "coarse")]
    pub every: u32,
    /// How close to the time with all pages is enough, as a part of the difference between none
    /// and all
    #[arg(long, default_value_t = cloison_profile::knee::TOLERANCE, value_parser = part)]
    pub tolerance: f64,
    /// Where to write the curve as CSV; without it, to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub profiled: Profiled,
}

/// `migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    #[command(flatten)]
    pub common: Common,
    /// Number of pages
    #[arg(short = 'g', long)]
    pub top: usize,
    /// Move as many pages of the profile, chosen at random with this seed, instead of the most
    /// important ones
    #[arg(long, value_name = "SEED")]
    pub random: Option<u64>,
    #[command(flatten)]
    pub profiled: Profiled,
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// Number of pages; without it, all that the profile has
    #[arg(short = 'g', long)]
    pub top: Option<usize>,
    #[command(flatten)]
    pub profiled: Profiled,
}

/// `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The profile
    pub profile: PathBuf,
    /// The format
    #[arg(long, default_value = "csv")]
    pub format: Format,
    /// Where to write it; without it, to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A format for other programs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// A row for each page
    Csv,
    /// One object, with the provenance
    Json,
}

/// `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The file of BBProf's profiler
    pub file: PathBuf,
    /// In which mode it was made, which the file does not tell
    #[arg(short, long, default_value = "c")]
    pub mode: Mode,
    /// Where to write the profile; without it, to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `exec-target`.
#[derive(Debug, Args)]
pub struct ExecTarget {
    /// Without randomized addresses
    #[arg(long)]
    pub fixed: bool,
    /// With SCHED_FIFO
    #[arg(long)]
    pub real_time: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub program: Vec<OsString>,
}

/// Reads a number, decimal or hexadecimal.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

/// Reads a variable of an environment.
fn variable(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Reads a number from 0 to 1.
fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("write a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let parsed = Cli::try_parse_from([
            "bbprof", "profile", "-s", "f", "-n", "5", "./tool", "-n", "x",
        ])
        .unwrap();
        let Verb::Profile(profile) = parsed.command else {
            panic!("another verb")
        };
        assert_eq!(
            (profile.common.samples, profile.subject.program.len()),
            (5, 3)
        );
        for wrong in [
            "profile ./tool",
            "profile -s f",
            "profile -s f --at 1 ./tool",
            "group -s f --covered 2 ./tool",
            "profile -s f --env LANG ./tool",
            "profile -s f --env =C ./tool",
        ] {
            assert!(
                Cli::try_parse_from(["bbprof"].into_iter().chain(wrong.split(' '))).is_err(),
                "{wrong}"
            );
        }
    }
}
