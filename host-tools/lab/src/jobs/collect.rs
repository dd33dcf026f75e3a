//! `cloison collect`: checks every result against the manifest, and makes the report.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::manifest::{self, Job, Manifest};
use crate::boards::result::{self, EXTENSION, ResultError};
use crate::boards::{Absent, Boards, Gaps, NamedBoot};
use crate::tune::Map;
use cloison_config::problem::count;
use cloison_engine::files::{self, Claim, sha256};
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How many runs a message names.
const NAMED: usize = 20;

/// Why there is no report.
#[derive(Debug, Error, Diagnostic)]
pub enum CollectError {
    /// Results are missing; more jobs are to be run.
    #[error("{} of {all} jobs have no result:\n{names}", missing)]
    #[diagnostic(help("run them, for example: cloison submit {} --engine parallel; then collect again", directory.display()))]
    Missing {
        /// How many.
        missing: usize,
        /// How many jobs there are.
        all: usize,
        /// The first of them, one a line, and why.
        names: String,
        /// The directory of the jobs.
        directory: PathBuf,
    },
    /// All jobs have a result, and what they say asks for more.
    #[error("{} to run now, of {all}; the others have a result", count(*more, "more job"))]
    #[diagnostic(help("submit again, for example: cloison submit {} --engine parallel; then collect again", directory.display()))]
    More {
        /// How many more.
        more: usize,
        /// How many jobs there are.
        all: usize,
        /// The directory of the jobs.
        directory: PathBuf,
    },
    /// There are results of something else.
    #[error("{} of other inputs among the results, which would be mixed:\n\
        {names}", count(*foreign, "file"))]
    #[diagnostic(help("remove them from {}", results.display()))]
    Foreign {
        /// How many.
        foreign: usize,
        /// The first of them, one a line.
        names: String,
        /// The directory of the results.
        results: PathBuf,
    },
    /// The jobs were made from other files than there are now.
    #[error(
        "the jobs were made from other inputs than these, so their results are not of these:\n\
         {changed}"
    )]
    #[diagnostic(help("restore the inputs, or make the jobs again in another directory"))]
    Changed {
        /// The changes, one a line.
        changed: String,
    },
}

/// Returns the first lines of a list, and how many more there are.
fn some(lines: impl ExactSizeIterator<Item = String>) -> String {
    let more = lines.len().saturating_sub(NAMED);
    let mut shown: Vec<String> = lines.take(NAMED).map(|line| format!("  {line}")).collect();
    if more > 0 {
        shown.push(format!("  and {more} more"));
    }
    shown.join("\n")
}

/// Returns an error that names every file among the results that belongs to no job, or to another
/// job than its name.
///
/// # Errors
///
/// If there is such a file.
pub fn refuse_foreign(directory: &Path, jobs: &[Job]) -> Result<(), CollectError> {
    let results = manifest::results(directory);
    let known: BTreeMap<&str, &Job> = jobs.iter().map(|job| (job.key.as_str(), job)).collect();
    let mut foreign = vec![];
    let entries = std::fs::read_dir(&results)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for path in entries.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == EXTENSION)
    }) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let key = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let expected = known.get(key.as_str());
        match (result::head(&path), expected) {
            (Ok(head), Some(job)) if head.key != key => {
                foreign.push(format!("{name}: it is of {}, not of {}", head.run, job.run));
            }
            (Ok(head), None) => {
                foreign.push(format!("{name}: it is of {} on {}", head.run, head.machine))
            }
            // One that is damaged counts as missing, where it is that of a job.
            (Err(error), None) => {
                foreign.push(format!("{name}: {error}, and it is that of no job"))
            }
            (Ok(_) | Err(_), Some(_)) => {}
        }
    }
    foreign.sort();
    if foreign.is_empty() {
        return Ok(());
    }
    Err(CollectError::Foreign {
        foreign: foreign.len(),
        names: some(foreign.into_iter()),
        results,
    })
}

/// Returns the jobs that have no result, with the reason.
pub fn missing<'a>(directory: &Path, jobs: &'a [Job]) -> Vec<(&'a Job, ResultError)> {
    let results = manifest::results(directory);
    let reason = |job: &Job| match result::head(&result::path(&results, &job.key)) {
        Ok(head) if head.key == job.key => None,
        Ok(head) => Some(ResultError::Foreign {
            run: head.run,
            key: head.key,
        }),
        Err(error) => Some(error),
    };
    jobs.iter()
        .filter_map(|job| Some((job, reason(job)?)))
        .collect()
}

/// Makes the report of a directory of jobs. `map` draws the color map of a configuration.
///
/// # Errors
///
/// If a result is missing or of other inputs, or there is a further round of jobs, which it has
/// planned; otherwise as the jobs' command.
pub fn collect(directory: &Path, json: Option<PathBuf>, map: Map) -> Result<()> {
    let (manifest, jobs) = manifest::read(directory)?;
    let _claim = Claim::wait(directory, &owner(&manifest.work.to_string()))?;
    refuse_foreign(directory, &jobs)?;
    let json = json
        .map(std::path::absolute)
        .transpose()
        .into_diagnostic()?;
    // Relative paths are named in the report as the user gave them.
    let start = &manifest.directory;
    std::env::set_current_dir(start)
        .into_diagnostic()
        .wrap_err_with(|| {
            miette!(
                "the jobs were made in {}, where the paths of their files begin",
                start.display()
            )
        })?;
    let known = jobs
        .iter()
        .map(|job| (job.key.clone(), job.run.clone()))
        .collect();
    let (report, results) = (manifest::report(directory), manifest::results(directory));
    if manifest.work.has_rounds() {
        let changed = changed_inputs(&manifest, &jobs);
        if !changed.is_empty() {
            let changed = some(changed.into_iter());
            return Err(CollectError::Changed { changed }.into());
        }
        let boards = Boards::continued(&report, &directory.join("parts"), &results);
        return match manifest.work.perform(&boards, &report, json, map) {
            Err(error) if error.is::<Absent>() => {
                Err(next_round(directory, &manifest, &jobs, boards.into_planned())?.into())
            }
            done => done,
        };
    }
    let boards = Boards::elsewhere(&report, &results, known);
    let done = manifest.work.perform(&boards, &report, json, map);
    let lacking = boards.into_lacking();
    match done {
        Err(error) if error.is::<Absent>() => {
            Err(explain(directory, &manifest, &jobs, &lacking).into())
        }
        done => done,
    }
}

/// Returns the name under which a directory of jobs is claimed.
pub fn owner(what: &str) -> String {
    format!("the jobs of {what}")
}

/// Returns why there is no report of work whose boots are planned round by round: jobs that were
/// planned have no result, or there are more of them now, which are written.
fn next_round(
    directory: &Path,
    manifest: &Manifest,
    jobs: &[Job],
    planned: BTreeMap<String, NamedBoot>,
) -> Result<CollectError> {
    let mut lacking = Gaps::default();
    for (job, why) in missing(directory, jobs) {
        if planned.contains_key(&job.key) {
            lacking.missing.insert(job.run.clone(), why.to_string());
        }
    }
    if lacking.missing.is_empty() {
        // All results are there, so that each job would have been asked for again.
        let gone = jobs.iter().filter(|job| !planned.contains_key(&job.key));
        lacking.changed = gone.map(|job| job.run.clone()).collect();
    }
    if lacking != Gaps::default() {
        return Ok(explain(directory, manifest, jobs, &lacking));
    }
    let seconds = jobs.last().map_or(0.0, |job| job.expected_seconds);
    let all = manifest::write(directory, manifest.work.clone(), planned, seconds)?.len();
    Ok(CollectError::More {
        more: all - jobs.len(),
        all,
        directory: directory.to_path_buf(),
    })
}

/// Returns which inputs are not those from which the jobs were made.
fn changed_inputs(manifest: &Manifest, jobs: &[Job]) -> Vec<String> {
    let is_as_before = |(path, before): &(&PathBuf, &String)| {
        files::read(path, files::IMAGE).is_ok_and(|bytes| sha256(&bytes) == **before)
    };
    let mut changed: Vec<String> = manifest
        .inputs
        .iter()
        .filter(|input| !is_as_before(input))
        .map(|(path, _)| format!("{} has changed", path.display()))
        .collect();
    let qemu = cloison_engine::figures::qemu_version();
    let mut wanted = jobs.iter().filter_map(|job| job.boot.qemu.as_ref());
    if let Some(wanted) = wanted.find(|wanted| **wanted != qemu) {
        changed.push(format!(
            "the jobs are for {wanted}, and this machine has {qemu}"
        ));
    }
    changed
}

fn explain(directory: &Path, manifest: &Manifest, jobs: &[Job], lacking: &Gaps) -> CollectError {
    if !lacking.changed.is_empty() {
        let mut changed = changed_inputs(manifest, jobs);
        if changed.is_empty() {
            let runs = lacking.changed.join(", ");
            changed.push(format!(
                "a guest, a kernel or another file that one of these runs has: {runs}"
            ));
        }
        return CollectError::Changed {
            changed: some(changed.into_iter()),
        };
    }
    let names = lacking.missing.iter().map(|(run, why)| {
        let note = jobs.iter().find(|job| job.run == *run).and_then(|job| {
            let file = directory.join("failed").join(format!("{}.txt", job.key));
            files::read_text(&file, files::CONFIGURATION).ok()
        });
        let note =
            note.and_then(|text| Some(format!("; the last attempt, on {}", text.lines().next()?)));
        format!("{run}: {why}{}", note.unwrap_or_default())
    });
    let names = some(names);
    CollectError::Missing {
        missing: lacking.missing.len(),
        all: jobs.len(),
        names,
        directory: directory.to_path_buf(),
    }
}
