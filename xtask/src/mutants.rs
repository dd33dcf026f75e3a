//! `cargo xtask mutants`: changes the code of pure crates and sees whether their tests notice.
//!
//! cargo-mutants changes one place at a time, in a copy of the checkout, and runs the crate's own
//! unit and property tests. The mutants of a crate are in shards, whose results are kept below
//! `target/mutants`: the same command continues. `.cargo/mutants.toml` has the settings.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// `cargo xtask mutants`.
#[derive(Clone, Debug, clap::Args)]
pub struct MutantsArgs {
    /// The crates; all of them if there is none
    #[arg(value_enum)]
    pub crates: Vec<Subject>,
    /// Run at most so many shards of each crate, of about a hundred mutants each
    #[arg(long, value_name = "N")]
    pub shards: Option<u32>,
    /// Only print what is kept
    #[arg(long)]
    pub list: bool,
}

/// A crate whose tests need nothing but the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// contracts/formats
    Formats,
    /// hypervisor/logic
    Logic,
    /// host-tools/config
    Config,
}

impl Subject {
    const ALL: [Self; 3] = [Self::Formats, Self::Logic, Self::Config];

    const fn package(self) -> &'static str {
        match self {
            Self::Formats => "cloison-formats",
            Self::Logic => "cloison-logic",
            Self::Config => "cloison-config",
        }
    }

    /// Returns the number of shards, of about a hundred mutants each.
    const fn shards(self) -> u32 {
        match self {
            Self::Formats => 4,
            Self::Logic => 23,
            Self::Config => 21,
        }
    }
}

/// The share of mutants that tests must notice, in percent.
const WANTED: u64 = 90;

/// What cargo-mutants leaves.
#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<OutcomeOfMutant>,
    /// Missing until all of them have run.
    end_time: Option<String>,
}

#[derive(Deserialize)]
struct OutcomeOfMutant {
    scenario: Scenario,
    summary: String,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

#[derive(Deserialize)]
struct Mutant {
    name: String,
}

/// The results of a crate's shards.
#[derive(Default)]
struct Total {
    shards: u32,
    caught: u64,
    timeout: u64,
    unviable: u64,
    missed: Vec<String>,
}

impl Total {
    fn add(&mut self, outcomes: Outcomes) {
        self.shards += 1;
        for outcome in outcomes.outcomes {
            let Scenario::Mutant(Mutant { name }) = outcome.scenario else {
                continue;
            };
            match outcome.summary.as_str() {
                "CaughtMutant" => self.caught += 1,
                "Timeout" => self.timeout += 1,
                "MissedMutant" => self.missed.push(name),
                _ => self.unviable += 1,
            }
        }
    }

    /// Returns the share that was noticed, by a test or because a loop did not end, in percent.
    fn percent(&self) -> u64 {
        let noticed = self.caught + self.timeout;
        noticed * 100 / (noticed + self.missed.len() as u64).max(1)
    }
}

/// Runs `cargo xtask mutants`. It fails if tests notice too few.
///
/// # Errors
///
/// Returns an error if cargo-mutants is missing or does not run.
pub fn mutants(args: &MutantsArgs) -> Result<ExitCode> {
    let chosen = if args.crates.is_empty() {
        &Subject::ALL[..]
    } else {
        &args.crates
    };
    let mut is_good = true;
    for &subject in chosen {
        let kept = installation::target_dir()
            .join("mutants")
            .join(subject.package());
        let mut total = Total::default();
        let mut left = args.shards.unwrap_or(u32::MAX);
        for shard in 0..subject.shards() {
            let directory = kept.join(shard.to_string());
            let mut outcomes = finished(&directory);
            if outcomes.is_none() && !args.list && left > 0 {
                left -= 1;
                run(subject, shard, &directory)?;
                outcomes = finished(&directory);
            }
            if let Some(outcomes) = outcomes {
                total.add(outcomes);
            }
        }
        print(subject, &total);
        is_good &= total.percent() >= WANTED;
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print(subject: Subject, total: &Total) {
    println!(
        "{}: {} of {} shards; {} caught, {} by time, {} missed, {} do not compile: {} % of {WANTED} %",
        subject.package(),
        total.shards,
        subject.shards(),
        total.caught,
        total.timeout,
        total.missed.len(),
        total.unviable,
        total.percent()
    );
    for name in &total.missed {
        println!("  missed: {name}");
    }
}

/// Returns the results of a shard that has run to its end.
fn finished(directory: &Path) -> Option<Outcomes> {
    let file: PathBuf = directory.join("mutants.out/outcomes.json");
    let outcomes: Outcomes = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    outcomes.end_time.is_some().then_some(outcomes)
}

/// Runs a shard, with a target directory that the shards of a crate share.
fn run(subject: Subject, shard: u32, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).into_diagnostic()?;
    let target = installation::target_dir().join("mutants/target");
    let part = format!("{shard}/{}", subject.shards());
    println!("{}: shard {part}", subject.package());
    let mut command = Command::new("cargo");
    command
        .current_dir(installation::root())
        .args(["mutants", "-p", subject.package(), "--shard", &part])
        .args(["--sharding", "round-robin", "--output"])
        .arg(directory)
        .env("CARGO_TARGET_DIR", target)
        // Thousands of small builds of one crate: what they keep makes each a second instead of
        // several.
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null());
    let status = command
        .status()
        .into_diagnostic()
        .wrap_err("cannot start cargo")?;
    // 2: mutants were missed; 3: some took too long. Both are results.
    match status.code() {
        Some(0 | 2 | 3) => Ok(()),
        _ => Err(miette!(
            help = "install it: cargo install cargo-mutants --locked",
            "cargo mutants ended with {status}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_summed() {
        let text = r#"{
            "outcomes": [
                {"scenario": "Baseline", "summary": "Success", "phase_results": []},
                {"scenario": {"Mutant": {"name": "a"}}, "summary": "CaughtMutant"},
                {"scenario": {"Mutant": {"name": "b"}}, "summary": "MissedMutant"},
                {"scenario": {"Mutant": {"name": "c"}}, "summary": "Timeout"},
                {"scenario": {"Mutant": {"name": "d"}}, "summary": "Unviable"}
            ],
            "total_mutants": 4, "start_time": "x", "end_time": "y"
        }"#;
        let mut total = Total::default();
        total.add(serde_json::from_str(text).expect("its form"));
        assert_eq!(
            (total.caught, total.timeout, total.unviable, total.shards),
            (1, 1, 1, 1)
        );
        assert_eq!(total.missed, ["b"]);
        assert_eq!(total.percent(), 66);
    }
}
