//! `cloison job run`: performs one job in a scratch directory and puts its result in place with one
//! rename.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::manifest::{self, Job};
use crate::boards::boot::{self, Output};
use crate::boards::result;
use cloison_engine::figures::qemu_version;
use cloison_engine::files::write_atomic;
use cloison_engine::model::Statistics;
use cloison_engine::qemu::Exit;
use cloison_engine::store::StoreError;
use cloison_engine::telemetry::Telemetry;
use miette::{Context, IntoDiagnostic, Report, Result, miette};
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The exit code that asks an engine to try a job again: `EX_TEMPFAIL` of sysexits.h.
pub const TRY_AGAIN: u8 = 75;

/// Variables in which engines give a task its index, and what to add to it for a number from 1.
const VARIABLES: [(&str, usize); 8] = [
    ("SLURM_ARRAY_TASK_ID", 0),
    ("SGE_TASK_ID", 0),
    ("PBS_ARRAY_INDEX", 0),
    ("LSB_JOBINDEX", 0),
    ("PARALLEL_SEQ", 0),
    ("HQ_TASK_ID", 0),
    ("FLUX_JOB_CC", 1),
    // Kubernetes counts from 0.
    ("JOB_COMPLETION_INDEX", 1),
];

/// Prefix of the scratch directories.
const SCRATCH: &str = "cloison-job-";
/// The file in a scratch directory that is locked while its job runs.
const LOCK: &str = "lock";

/// Why a job has no result.
#[derive(Debug)]
pub enum Failure {
    /// It may succeed later or on another machine.
    TryAgain(Report),
    /// It fails wherever it is run.
    Final(Report),
}

impl Failure {
    fn again(error: impl Into<Report>) -> Self {
        Self::TryAgain(error.into())
    }

    fn last(error: impl Into<Report>) -> Self {
        Self::Final(error.into())
    }

    /// Returns the error, whatever is to be done about it.
    const fn report(&self) -> &Report {
        let (Self::TryAgain(report) | Self::Final(report)) = self;
        report
    }
}

/// Returns the number of the job: `given`, or the index in the engine's variable.
///
/// # Errors
///
/// If no variable has a number, or two have different ones.
pub fn number(given: Option<usize>, variable: impl Fn(&str) -> Option<String>) -> Result<usize> {
    if let Some(number) = given {
        return Ok(number);
    }
    let mut found: Option<(&str, usize)> = None;
    for (name, add) in VARIABLES {
        // An engine sets its variable to a word, or LSF to 0, where a job is not one of an array.
        let value = variable(name)
            .and_then(|value| value.parse::<usize>().ok())
            .map(|index| index + add);
        let Some(number) = value.filter(|number| *number > 0) else {
            continue;
        };
        match found {
            Some((other, before)) if before != number => {
                return Err(miette!(
                    help = "name the job: cloison job run DIR NUMBER",
                    "{other} names job {before}, and {name} names job {number}"
                ));
            }
            _ => found = Some((name, number)),
        }
    }
    let names = VARIABLES.map(|(name, _)| name).join(", ");
    let help = format!("give its number, or run it from an engine that sets one of {names}");
    found
        .map(|(_, number)| number)
        .ok_or_else(|| miette!(help = help, "which job is to be run?"))
}

/// Performs a job, unless it has a result. Returns the outcome in one line.
///
/// # Errors
///
/// The reason why it has no result, and whether it is worth trying again.
pub fn run(directory: &Path, number: usize) -> Result<String, Failure> {
    let (manifest, job) = manifest::job(directory, number).map_err(Failure::last)?;
    let file = result::path(&manifest::results(directory), &job.key);
    if result::head(&file).is_ok_and(|head| head.key == job.key) {
        return Ok(format!("job {number} ({}) has a result", job.run));
    }
    let note = directory.join("failed").join(format!("{}.txt", job.key));
    let done = perform(directory, &job).and_then(|output| {
        let what = format!("{}: {}", manifest.work, job.run);
        let written = result::write(&file, &job.key, &what, &output).into_diagnostic();
        written
            .wrap_err_with(|| miette!("cannot write {}", file.display()))
            .map_err(Failure::again)?;
        Ok(output)
    });
    match done {
        Ok(output) => {
            // Nobody needs the note of an earlier attempt any more.
            let _ = fs::remove_file(&note);
            Ok(format!(
                "job {number} ({}) done: {:.1} s in QEMU",
                job.run, output.seconds
            ))
        }
        Err(failure) => {
            let of = failure
                .report()
                .chain()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(": ");
            // What is written there only explains; a full disk may keep it from being written.
            let _ = write_atomic(&note, format!("{}: {of}\n", result::machine()).as_bytes());
            Err(failure)
        }
    }
}

fn perform(directory: &Path, job: &Job) -> Result<Output, Failure> {
    // QEMU takes as long to tell its version as all else does.
    let version = std::thread::spawn(qemu_version);
    let (scratch, _lock) = scratch(&env::temp_dir()).map_err(Failure::again)?;
    job.boot.emulation().map_err(Failure::last)?;
    let prepared = job.boot.with_parts_in(&directory.join("parts"));
    let machine = prepared.machine(scratch.path()).map_err(|error| {
        match error.downcast_ref::<StoreError>() {
            Some(_) => Failure::Final(error),
            None => Failure::TryAgain(error),
        }
    })?;
    let found = version.join().unwrap_or_else(|_| "unknown".to_owned());
    if let Some(wanted) = job.boot.qemu.as_ref().filter(|wanted| **wanted != found) {
        let help =
            "run it on a machine that has the same QEMU, or make the jobs again with this one";
        let here = if found == "not installed" {
            "has no QEMU".to_owned()
        } else {
            format!("has {found}")
        };
        return Err(Failure::again(miette!(
            help = help,
            "machine {} {here}, and the jobs are for {wanted}",
            result::machine()
        )));
    }
    let output = boot::run(&machine, scratch.path(), |_| {}).map_err(Failure::TryAgain)?;
    judge(job, output, scratch.path())
}

/// Returns the output if it is that of a board that turned itself off, and complete.
fn judge(job: &Job, output: Output, scratch: &Path) -> Result<Output, Failure> {
    let failed = |why: &str| {
        miette!(
            "{}: {why}; its console's last lines:\n{}",
            job.run,
            output.tail()
        )
    };
    let lacks_resources = [
        "Cannot allocate memory",
        "No space left on device",
        "Resource temporarily unavailable",
    ];
    match output.exit {
        Exit::Code(0) => {}
        Exit::Code(_)
            if lacks_resources
                .iter()
                .any(|text| output.errors.contains(text)) =>
        {
            return Err(Failure::again(failed("this machine lacks memory or disk")));
        }
        Exit::Code(code) => {
            return Err(Failure::last(failed(&format!(
                "the board did not turn itself off: exit code {code}"
            ))));
        }
        Exit::Signal | Exit::Stopped => return Err(Failure::again(failed("QEMU was killed"))),
        Exit::TimedOut => {
            let why = format!(
                "not done after {} s: it hangs, or this machine is too busy",
                job.boot.limit_s
            );
            return Err(Failure::again(failed(&why)));
        }
    }
    // QEMU does not say so where the disk is full and what the board sent is lost.
    let space = (|| {
        let mut file = File::create(scratch.join("space"))?;
        file.write_all(&[1; 1 << 16])?;
        file.sync_all()
    })();
    if let Err(error) = space {
        return Err(Failure::again(miette!(
            "{} cannot be written to: {error}",
            scratch.display()
        )));
    }
    let statistics = output.statistics.as_deref().unwrap_or_default();
    let counted = job
        .boot
        .is_modelled()
        .then(|| serde_json::from_slice::<Statistics>(statistics));
    if let Some(Err(error)) = counted {
        return Err(Failure::again(failed(&format!(
            "the model's statistics are not complete: {error}"
        ))));
    }
    if let Some((offset, problem)) = Telemetry::parse(&output.telemetry).problems.first() {
        return Err(Failure::last(failed(&format!(
            "bad telemetry at byte {offset}: {problem}"
        ))));
    }
    Ok(output)
}

/// Makes a scratch directory, which is locked while its job runs. Those of jobs that were killed
/// are removed.
fn scratch(parent: &Path) -> Result<(TempDir, File)> {
    sweep(parent);
    let make = || {
        let scratch = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(parent)?;
        // It has its name only when it is locked, so that no other job takes it for that of a dead
        // one.
        let new = scratch.path().join("lock.new");
        let lock = File::create(&new)?;
        lock.lock()?;
        fs::rename(&new, scratch.path().join(LOCK))?;
        Ok::<_, std::io::Error>((scratch, lock))
    };
    make()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot make a scratch directory in {}", parent.display()))
}

fn sweep(parent: &Path) {
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(SCRATCH))
    };
    let entries = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for path in entries.filter(is_ours) {
        let is_dead = File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_dead {
            // It may be another user's, or another job removes it at the same time.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engines_index_names_a_job() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect();
            number(None, |name| {
                set.iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, value)| value.clone())
            })
        };
        for (name, _) in VARIABLES.iter().filter(|(_, add)| *add == 0) {
            assert_eq!(with(&[(name, "7")]).expect("a number"), 7, "{name}");
        }
        assert_eq!(with(&[("JOB_COMPLETION_INDEX", "0")]).expect("a number"), 1);
        assert_eq!(
            number(Some(3), |_| Some("7".to_owned())).expect("the one that is given"),
            3
        );
        // Not in an array.
        assert_eq!(
            with(&[("SGE_TASK_ID", "undefined"), ("PARALLEL_SEQ", "2")]).expect("a number"),
            2
        );
        assert!(with(&[("LSB_JOBINDEX", "0")]).is_err() && with(&[]).is_err());
        assert_eq!(
            with(&[("SLURM_ARRAY_TASK_ID", "4"), ("PARALLEL_SEQ", "4")]).expect("they agree"),
            4
        );
        let error = with(&[("SLURM_ARRAY_TASK_ID", "4"), ("PARALLEL_SEQ", "5")])
            .expect_err("which one?")
            .to_string();
        assert_eq!(
            error,
            "SLURM_ARRAY_TASK_ID names job 4, and PARALLEL_SEQ names job 5"
        );
    }

    #[test]
    fn only_dead_jobs_lose_their_scratch_directories() {
        let parent = tempfile::tempdir().expect("a directory");
        let (alive, lock) = scratch(parent.path()).expect("a scratch directory");
        let dead = parent.path().join("cloison-job-dead");
        let young = parent.path().join("cloison-job-young");
        for (directory, file) in [(&dead, LOCK), (&young, "lock.new")] {
            fs::create_dir(directory).expect("a directory");
            fs::write(directory.join(file), "").expect("a file");
        }
        let (second, _second) = scratch(parent.path()).expect("a scratch directory");
        assert!(
            alive.path().exists() && second.path().exists() && young.exists() && !dead.exists()
        );
        drop(lock);
        sweep(parent.path());
        assert!(!alive.path().exists() && second.path().exists());
    }
}
