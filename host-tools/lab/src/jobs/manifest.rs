//! The files that describe jobs: `manifest.json` and `jobs.jsonl`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::work::Work;
use crate::boards::boot::Boot;
use crate::boards::{NamedBoot, result};
use cloison_config::problem::count;
use cloison_engine::figures::Figures;
use cloison_engine::files::{self, Kind, sha256, write_atomic};
use miette::{Diagnostic, IntoDiagnostic, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of both files.
const VERSION: u32 = 2;
/// Name of the file that describes the jobs as a whole.
const MANIFEST: &str = "manifest.json";
/// Name of the file with one line for each job.
const JOBS: &str = "jobs.jsonl";
/// The list of jobs: a kilobyte for each of a hundred thousand.
const LIST: Kind = Kind {
    what: "a list of jobs",
    most: 256 << 20,
};

/// A mistake in a directory of jobs.
#[derive(Debug, Error, Diagnostic)]
pub enum ManifestError {
    /// It has no manifest.
    #[error("{} has no jobs: {MANIFEST} is missing", directory.display())]
    #[diagnostic(help("make them: cloison jobs FILE -o DIR; or copy the whole directory"))]
    None {
        /// The directory.
        directory: PathBuf,
    },
    /// A file is not as it was written.
    #[error("{} is damaged: {why}", file.display())]
    #[diagnostic(help(
        "copy it again from where the jobs were made, or make them again: results of the same \
         inputs count"
    ))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The mistake in it.
        why: String,
    },
    /// There is no job of this number.
    #[error("there is no job {number}: {} has jobs 1 to {jobs}", directory.display())]
    #[diagnostic(help("the number of a job is that of its line in {JOBS}"))]
    NoJob {
        /// The number.
        number: usize,
        /// How many there are.
        jobs: usize,
        /// The directory.
        directory: PathBuf,
    },
    /// The directory has jobs of other inputs, with results.
    #[error("{} has results of jobs with other inputs ({one} is none of the new jobs)", directory.display())]
    #[diagnostic(help("give another directory with -o, or remove this one"))]
    OtherInputs {
        /// The directory.
        directory: PathBuf,
        /// A run of the old jobs.
        one: String,
    },
}

/// The common part of all jobs of a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// The report's subject when all jobs are done.
    pub work: Work,
    /// The directory in which relative paths of `work` begin.
    pub directory: PathBuf,
    /// How many jobs there are.
    pub jobs: usize,
    /// SHA-256 of the list of jobs.
    jobs_sha256: String,
    /// SHA-256 of the files from which the jobs were made, by path.
    pub inputs: BTreeMap<PathBuf, String>,
    /// The jobs' origin: date, commit and tools.
    pub provenance: Map<String, Value>,
}

/// A job: one line of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its number, from 1: that of its line.
    pub job: usize,
    /// SHA-256 of all inputs.
    pub key: String,
    /// Directory of the run in the report's.
    pub run: String,
    /// Expected run time of QEMU, in seconds.
    pub expected_seconds: f64,
    /// The boot that it starts.
    pub boot: Boot,
}

impl Job {
    /// Reads a line of the list and checks it against its number and key.
    fn read(number: usize, line: &str) -> Result<Self, String> {
        let of_line = |why: String| format!("line {number}: {why}");
        let job: Self = serde_json::from_str(line).map_err(|error| of_line(error.to_string()))?;
        if job.job != number {
            return Err(of_line(format!("it is job {}", job.job)));
        }
        let key = job.boot.key();
        if job.key != key {
            return Err(of_line(format!(
                "its key is {}, but its inputs have {key}",
                job.key
            )));
        }
        Ok(job)
    }
}

/// Writes the files of a directory of jobs, and replaces older ones unless there are results of
/// other inputs. A job that work with rounds had before keeps its number, under which an engine may
/// know it. Returns the jobs.
///
/// # Errors
///
/// If a file cannot be read or written, or there are results of other jobs.
pub fn write(
    directory: &Path,
    work: Work,
    boots: BTreeMap<String, NamedBoot>,
    expected_seconds: f64,
) -> Result<Vec<Job>> {
    let before = read(directory).map_or_else(|_| vec![], |(_, before)| before);
    let is_lost = |old: &&Job| {
        !boots.contains_key(&old.key) && result::path(&results(directory), &old.key).exists()
    };
    if let Some(old) = before.iter().find(is_lost) {
        let (directory, one) = (directory.to_path_buf(), old.run.clone());
        return Err(ManifestError::OtherInputs { directory, one }.into());
    }
    let known: HashSet<&str> = before.iter().map(|job| job.key.as_str()).collect();
    let is_new = |key: &str| !work.has_rounds() || !known.contains(key);
    let old = before
        .iter()
        .filter(|job| work.has_rounds() && boots.contains_key(&job.key));
    let mut jobs: Vec<Job> = old.cloned().collect();
    let mut named: Vec<(&String, &NamedBoot)> =
        boots.iter().filter(|(key, _)| is_new(key)).collect();
    named.sort_by(|one, other| one.1.run.cmp(&other.1.run));
    let parts = Path::new("parts");
    jobs.extend(named.into_iter().map(|(key, NamedBoot { run, boot })| Job {
        job: 0,
        key: key.clone(),
        run: run.clone(),
        expected_seconds,
        boot: boot.with_parts_in(parts),
    }));
    for (number, job) in (1..).zip(&mut jobs) {
        job.job = number;
    }
    let mut list = String::new();
    for job in &jobs {
        list += &serde_json::to_string(job).into_diagnostic()?;
        list.push('\n');
    }
    let mut inputs = BTreeMap::new();
    for path in work.inputs()? {
        let hash = sha256(&files::read(&path, files::IMAGE)?);
        inputs.insert(std::path::absolute(&path).into_diagnostic()?, hash);
    }
    let manifest = Manifest {
        version: VERSION,
        directory: std::env::current_dir().into_diagnostic()?,
        jobs: jobs.len(),
        jobs_sha256: sha256(list.as_bytes()),
        inputs,
        provenance: Figures::new(&work.to_string()).provenance(),
        work,
    };
    // A manifest without its list would be damaged; a list without its manifest is nothing yet.
    write_atomic(&directory.join(JOBS), list.as_bytes())?;
    files::keep(&directory.join(MANIFEST), &manifest)?;
    Ok(jobs)
}

/// Reads and checks the manifest.
///
/// # Errors
///
/// If there is none, or it is not as it was written.
pub fn manifest(directory: &Path) -> Result<Manifest, ManifestError> {
    let file = directory.join(MANIFEST);
    if !file.exists() {
        return Err(ManifestError::None {
            directory: directory.to_path_buf(),
        });
    }
    let damaged = |why: String| ManifestError::Damaged {
        file: file.clone(),
        why,
    };
    let found: Manifest = files::kept(&file).ok_or_else(|| {
        damaged(
            "its contents are not those that were written, or another version of Cloison wrote it"
                .to_owned(),
        )
    })?;
    match found.version {
        VERSION => Ok(found),
        version => Err(damaged(format!(
            "it has version {version}, and this program reads {VERSION}"
        ))),
    }
}

fn list(directory: &Path) -> Result<String, ManifestError> {
    let file = directory.join(JOBS);
    cloison_config::files::read_text(&file, LIST).map_err(|error| ManifestError::Damaged {
        file,
        why: error.to_string(),
    })
}

/// Reads both files, and checks every job.
///
/// # Errors
///
/// If one is missing or has changed since it was written; the first bad line is named.
pub fn read(directory: &Path) -> Result<(Manifest, Vec<Job>), ManifestError> {
    let manifest = manifest(directory)?;
    let mut text = list(directory)?;
    if manifest.work.has_rounds() {
        // A round whose planning was interrupted has its jobs at the end, and not yet a manifest.
        let own = text.split_inclusive('\n').take(manifest.jobs);
        text.truncate(own.map(str::len).sum());
    }
    let damaged = |why: String| ManifestError::Damaged {
        file: directory.join(JOBS),
        why,
    };
    let jobs: Vec<Job> = (1..)
        .zip(text.lines())
        .map(|(number, line)| Job::read(number, line))
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    if jobs.len() != manifest.jobs {
        return Err(damaged(format!(
            "it has {}, and the manifest names {}",
            count(jobs.len(), "job"),
            manifest.jobs
        )));
    }
    if sha256(text.as_bytes()) != manifest.jobs_sha256 {
        return Err(damaged(
            "it is not the list that the manifest was written with".to_owned(),
        ));
    }
    Ok((manifest, jobs))
}

/// Reads one job, without reading the others.
///
/// # Errors
///
/// If there is no such job, or its line has changed since it was written.
pub fn job(directory: &Path, number: usize) -> Result<(Manifest, Job), ManifestError> {
    let manifest = manifest(directory)?;
    if number == 0 || number > manifest.jobs {
        return Err(ManifestError::NoJob {
            number,
            jobs: manifest.jobs,
            directory: directory.to_path_buf(),
        });
    }
    let text = list(directory)?;
    let damaged = |why: String| ManifestError::Damaged {
        file: directory.join(JOBS),
        why,
    };
    let line = text
        .lines()
        .nth(number - 1)
        .ok_or_else(|| damaged(format!("line {number} is missing")))?;
    let job = Job::read(number, line).map_err(damaged)?;
    Ok((manifest, job))
}

/// Returns the directory of the results.
pub fn results(directory: &Path) -> PathBuf {
    directory.join("results")
}

/// Returns the directory of the report.
pub fn report(directory: &Path) -> PathBuf {
    directory.join("report")
}
