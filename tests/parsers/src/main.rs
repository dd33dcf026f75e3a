//! `parsers`: lists the targets, searches without coverage, and repeats what was found.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use cloison_parsers::hunt::{self, Length};
use cloison_parsers::target::Form;
use cloison_parsers::{Target, damage, targets};
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Parsers of foreign bytes, and damaged files for them.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print each target: its name, its package and its rule
    List,
    /// Run a target on damaged files, in a process with limits
    Run {
        #[command(flatten)]
        search: Search,
        /// Keep what fails here
        #[arg(long, default_value = "target/fuzz/failed")]
        out: PathBuf,
    },
    /// The process of `run`
    #[command(hide = true)]
    Work {
        #[command(flatten)]
        search: Search,
        #[arg(long)]
        current: PathBuf,
    },
    /// A process that fails in one way, for the tests of the limits
    #[command(hide = true)]
    Bad { how: String, current: PathBuf },
    /// Run a target on one file
    Replay {
        #[arg(value_parser = find)]
        target: Target,
        /// The input
        file: PathBuf,
    },
    /// Write a target's seeds into a folder, and the words of its texts into a dictionary for
    /// libFuzzer
    Seeds {
        #[arg(value_parser = find)]
        target: Target,
        /// The folder of the seeds
        folder: PathBuf,
        /// The file of the words
        dictionary: PathBuf,
    },
}

#[derive(Args)]
struct Search {
    #[arg(value_parser = find)]
    target: Target,
    /// How many damaged files
    #[arg(long, default_value_t = 1000, conflicts_with = "seconds")]
    cases: u64,
    /// Or for how many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// What the damage depends on
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Search {
    fn length(&self) -> Length {
        self.seconds.map_or(Length::Cases(self.cases), |seconds| {
            Length::Time(Duration::from_secs(seconds))
        })
    }
}

fn find(name: &str) -> Result<Target, String> {
    targets::find(name).copied().ok_or_else(|| {
        let names: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
        format!("the targets are {}", names.join(", "))
    })
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match Cli::parse().command {
        Command::List => {
            for target in targets::ALL {
                println!("{}\t{}\t{}", target.name, target.package, target.rule);
            }
        }
        Command::Run { search, out } => return run(&search, &out),
        Command::Work { search, current } => {
            hunt::work(&search.target, search.length(), search.seed, &current)?;
        }
        Command::Bad { how, current } => hunt::fail(&how, &current)?,
        Command::Replay { target, file } => {
            let outcome = hunt::replay(&target, &fs::read(file)?)?;
            println!("{}: {outcome:?}, and no rule is broken", target.name);
        }
        Command::Seeds {
            target,
            folder,
            dictionary,
        } => seeds(&target, &folder, &dictionary)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run(search: &Search, out: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let target = &search.target;
    let outcome = hunt::hunt(
        &env::current_exe()?,
        target,
        search.length(),
        search.seed,
        &out.join(target.name),
    )?;
    match outcome {
        Ok(report) => {
            println!(
                "{}: {} inputs, {} accepted; {} seeds, {} accepted",
                target.name, report.inputs, report.accepted, report.seeds, report.accepted_seeds
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(finding) => {
            let input = fs::canonicalize(&finding.input)?;
            eprintln!("{}: an input {}", target.name, finding.what);
            eprintln!("input: {}", input.display());
            eprintln!(
                "repeat it: cargo xtask fuzz parsers {} --replay {}",
                target.name,
                input.display()
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

fn seeds(target: &Target, folder: &Path, dictionary: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let seeds = target.seeds()?;
    for seed in &seeds {
        fs::write(
            folder.join(format!("seed-{:08x}", crc32fast::hash(seed))),
            seed,
        )?;
    }
    let words = match target.form {
        Form::Text => damage::words(&seeds),
        Form::Bytes => Default::default(),
    };
    let lines: String = words
        .iter()
        .filter_map(|word| std::str::from_utf8(word).ok())
        .map(|word| format!("\"{word}\"\n"))
        .collect();
    fs::write(dictionary, lines)?;
    Ok(())
}
