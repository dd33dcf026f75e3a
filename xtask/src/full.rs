//! `cargo xtask test --full`: every experiment in its full form, and what its conclusions depend on.
//!
//! Runs are kept by what they are of, so the same command continues one that was interrupted. The
//! results are collected beside the runs, and at the end written to [`KEPT`] and to
//! `configs/experiments/sensitivity`: earlier, they would change the commit of the runs that follow.
//! `cargo xtask results` makes pages of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::tally::Tally;
use cloison_engine::files::{write_atomic, write_json};
use cloison_engine::installation;
use cloison_engine::setup::consent;
use cloison_lab::experiment::shows::{self, Form};
use cloison_lab::experiment::{file_of, sensitivity, spec};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the results are kept.
pub const KEPT: &str = "docs/results/experiments.json";

/// The result of an experiment's full form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullResult {
    /// The exit status of the command.
    pub status: i32,
    /// Seconds of wall time that the runs took, those of earlier commands of the same inputs too.
    pub seconds: u64,
    /// Figures by name: how many runs, guards and statements of a paper there are.
    pub counts: BTreeMap<String, u64>,
    /// The paper's statements from which the results differ: the statement, the paper, and what is
    /// here.
    pub differences: Vec<Difference>,
    /// The inputs and the tools.
    pub provenance: Provenance,
}

/// A statement of a paper from which a result differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The statement.
    pub says: String,
    /// What the paper has.
    pub paper: String,
    /// What is here.
    pub here: String,
}

/// What results are of. Equal inputs give equal results, whatever the date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Cloison's commit.
    pub commit: String,
    /// The day, in UTC.
    pub date: String,
    /// QEMU's version.
    pub qemu: String,
    /// The CRC-32 of the experiment's file.
    pub config_crc32: String,
    /// The hash of the images.
    pub image_sha256: String,
    /// The model's file.
    pub model: String,
    /// The CRC-32 of that file.
    pub model_crc32: String,
    /// The CRC-32 of the system's file.
    pub system_crc32: String,
}

impl Provenance {
    fn of(figures: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = &figures["provenance"];
        let parameters = &all["parameters"];
        let date = text(&all["date"]);
        Self {
            commit: text(&all["commit"]),
            date: date.split('T').next().unwrap_or_default().to_owned(),
            qemu: text(&all["qemu"]),
            config_crc32: text(&all["config_crc32"]),
            image_sha256: text(&all["image_sha256"]),
            model: text(&parameters["model"]),
            model_crc32: text(&parameters["model_crc32"]),
            system_crc32: text(&parameters["system_crc32"]),
        }
    }

    /// Whether results of these are results of the others.
    fn has_inputs_of(&self, other: &Self) -> bool {
        let undated = |of: &Self| Self {
            commit: String::new(),
            date: String::new(),
            ..of.clone()
        };
        undated(self) == undated(other)
    }
}

/// Results by the names of their experiments.
pub type Results = BTreeMap<String, FullResult>;

/// Returns the kept results by the names of their experiments.
///
/// # Errors
///
/// If the file cannot be read, or has another form.
pub fn kept() -> Result<Results> {
    read(&installation::root().join(KEPT))
}

fn read(path: &Path) -> Result<Results> {
    if !path.is_file() {
        return Ok(Results::new());
    }
    let name = path.display();
    let text = std::fs::read_to_string(path).into_diagnostic();
    let text = text.wrap_err_with(|| name.to_string())?;
    serde_json::from_str(&text)
        .into_diagnostic()
        .wrap_err_with(|| miette!("{name}: remove it, and run `cargo xtask test --full`"))
}

/// Whether a result is of the experiment, the system and the model that the checkout has.
///
/// # Errors
///
/// If one of these files cannot be read.
pub fn is_of_this_commit(name: &str, result: &FullResult) -> Result<bool> {
    let path = file_of(name);
    if !path.is_file() {
        return Ok(false);
    }
    let experiment = spec::load(&path, Form::Full)?;
    let of = &result.provenance;
    let files = [
        (&path, &of.config_crc32),
        (&experiment.model, &of.model_crc32),
        (&experiment.system, &of.system_crc32),
    ];
    for (file, kept) in files {
        if sensitivity::crc32(file)? != **kept {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the experiments whose names contain the filter. Each is a check, and so is what its
/// conclusions depend on where such a result is kept.
///
/// # Errors
///
/// If experiments cannot be listed, or a result cannot be written.
pub fn run(filter: Option<&str>) -> Result<Tally> {
    let names = spec::names().into_diagnostic()?;
    let chosen = |name: &&String| filter.is_none_or(|part| name.contains(part));
    let chosen: Vec<&String> = names.iter().filter(chosen).collect();
    let collected = installation::output_dir().join("experiments/full.json");
    let mut tally = Tally::default();
    let mut sensitivities = vec![];
    let mut ended = vec![];
    for (at, name) in chosen.iter().enumerate() {
        println!("\nexperiment {name} ({} of {})", at + 1, chosen.len());
        let path = file_of(name);
        let [full, quick] = [Form::Full, Form::Quick].map(|form| sensitivity::kept_at(&path, form));
        let extra: &[&str] = match full.is_file() {
            true => &["--sensitivity"],
            false => &[],
        };
        let outcome = perform(name, extra)?;
        tally.add(Tally::of(outcome.status == 0));
        ended.push(line_of(name, &outcome));
        collect(name, &outcome, &collected)?;
        if full.is_file() {
            sensitivities.push((outcome.directory, full));
        }
        if quick.is_file() {
            let outcome = perform(name, &["--quick", "--sensitivity"])?;
            tally.add(Tally::of(outcome.status == 0));
            ended.push(line_of(
                &format!("{name}, sensitivity of --quick"),
                &outcome,
            ));
            sensitivities.push((outcome.directory, quick));
        }
    }
    let mut results = kept()?;
    let new = read(&collected)?.into_iter();
    results.extend(new.filter(|(name, _)| chosen.contains(&name)));
    write_json(&installation::root().join(KEPT), &results)?;
    for (directory, to) in sensitivities {
        copy(&directory, &to)?;
    }
    println!();
    ended.iter().for_each(|line| println!("{line}"));
    Ok(tally)
}

/// Returns a line of how an experiment ended, also of one that made no report.
fn line_of(name: &str, outcome: &Outcome) -> String {
    let report = match outcome.figures.is_file() {
        true => "",
        false => ", no report",
    };
    format!(
        "{name}: exit status {}, {} s{report}",
        outcome.status,
        outcome.took.as_secs()
    )
}

/// How a command ended.
struct Outcome {
    status: i32,
    took: Duration,
    /// The directory of its results.
    directory: PathBuf,
    /// Its figures, if it has made any.
    figures: PathBuf,
}

/// Runs an experiment by this program, so that what goes wrong in one is apart from the others.
fn perform(name: &str, options: &[&str]) -> Result<Outcome> {
    let program = std::env::current_exe().into_diagnostic()?;
    let form = if options.contains(&"--quick") {
        "-quick"
    } else {
        ""
    };
    let directory = installation::output_dir().join(format!("experiments/{name}{form}"));
    // Not those in the directory, which may be an earlier command's.
    let figures = directory.with_extension("json");
    if figures.exists() {
        std::fs::remove_file(&figures).into_diagnostic()?;
    }
    let started = Instant::now();
    let status = Command::new(program)
        .args(["experiment", name])
        .args(options)
        .arg("--out")
        .arg(&directory)
        .arg("--json")
        .arg(&figures)
        // As other tests, it may fetch what its system needs.
        .env(consent::VARIABLE, "yes")
        .status()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot start experiment {name}"))?;
    Ok(Outcome {
        status: status.code().unwrap_or(-1),
        took: started.elapsed(),
        directory,
        figures,
    })
}

/// Adds a result to those that were collected. An experiment that made no report has none.
fn collect(name: &str, outcome: &Outcome, collected: &Path) -> Result<()> {
    let path = &outcome.figures;
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("warning: {name} made no {}", path.display());
        return Ok(());
    };
    let figures: Value = serde_json::from_str(&text)
        .into_diagnostic()
        .wrap_err_with(|| path.display().to_string())?;
    let mut all = read(collected)?;
    let result = result_of(&figures, outcome, all.get(name));
    all.insert(name.to_owned(), result);
    write_json(collected, &all)
}

fn result_of(figures: &Value, outcome: &Outcome, before: Option<&FullResult>) -> FullResult {
    const COUNTS: [&str; 5] = [
        "runs",
        "guards_held",
        "guards_failed",
        "shows_agreeing",
        "shows_differing",
    ];
    let counts = COUNTS.iter().filter_map(|&name| {
        let count = figures["figures"][name].as_u64()?;
        Some((name.to_owned(), count))
    });
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows = figures["series"][shows::DIFFERENCES].as_array();
    let differences = rows.into_iter().flatten().map(|row| Difference {
        says: text(&row["statement"]),
        paper: text(&row["paper"]),
        here: text(&row["here"]),
    });
    let provenance = Provenance::of(figures);
    let same = before.filter(|before| before.provenance.has_inputs_of(&provenance));
    let earlier = same.map_or(0, |before| before.seconds);
    FullResult {
        status: outcome.status,
        seconds: outcome.took.as_secs().max(earlier),
        counts: counts.collect(),
        differences: differences.collect(),
        provenance: same.map_or(provenance, |before| before.provenance.clone()),
    }
}

/// Keeps what an experiment's conclusions depend on, if it was found.
fn copy(directory: &Path, to: &Path) -> Result<()> {
    let from = directory.join(sensitivity::FILE);
    if !from.is_file() {
        return Ok(());
    }
    let bytes = std::fs::read(&from)
        .into_diagnostic()
        .wrap_err_with(|| from.display().to_string())?;
    write_atomic(to, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(date: &str, model: &str) -> Value {
        json!({
            "figures": { "runs": 4, "guards_held": 3, "guards_failed": 1, "solo_cycles": 5 },
            "series": { "differences_from_paper": [
                { "statement": "It falls.", "paper": "6.5", "here": "1.2" },
            ] },
            "provenance": {
                "commit": "abc", "date": date, "qemu": "10", "config_crc32": "1",
                "image_sha256": "2",
                "parameters": { "model": "m.toml", "model_crc32": model, "system_crc32": "3" },
            },
        })
    }

    #[test]
    fn an_experiment_without_a_report_is_listed_too() {
        assert_eq!(
            line_of("c2is", &outcome(7)),
            "c2is: exit status 1, 7 s, no report"
        );
    }

    fn outcome(seconds: u64) -> Outcome {
        Outcome {
            status: 1,
            took: Duration::from_secs(seconds),
            directory: PathBuf::new(),
            figures: PathBuf::new(),
        }
    }

    #[test]
    fn a_command_that_continues_keeps_the_date_and_the_time_of_the_runs() {
        let first = result_of(&figures("2026-01-01T10:00:00Z", "4"), &outcome(500), None);
        assert_eq!((first.status, first.seconds), (1, 500));
        assert_eq!(first.counts.keys().count(), 3, "{:?}", first.counts);
        assert_eq!(first.differences[0].here, "1.2");
        let again = figures("2026-01-02T10:00:00Z", "4");
        assert_eq!(result_of(&again, &outcome(3), Some(&first)), first);
        let other = figures("2026-01-02T10:00:00Z", "5");
        let other = result_of(&other, &outcome(30), Some(&first));
        assert_eq!(other.seconds, 30);
        assert_eq!(other.provenance.date, "2026-01-02");
    }
}
