//! `cloison submit`: hands the jobs that have no result to an engine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::board::{self, BoardOptions};
use super::collect;
use super::engine::{Engine, Filling};
use super::manifest::{self, Job};
use cloison_config::problem::count;
use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::installation;
use indicatif::HumanDuration;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How many tasks an array of Slurm has at most, unless its administrator says otherwise
/// (MaxArraySize is 1001).
const ARRAY: usize = 1000;

/// The parameters of a submission to an engine.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    /// The directory of the jobs.
    pub directory: &'a Path,
    /// The engine.
    pub engine: Engine,
    /// The program that runs a job, on the machines of the engine.
    pub program: &'a Path,
    /// Number of jobs that each task of the engine runs, one after the other.
    pub chunk: usize,
    /// Only write the engine's file.
    pub only_write: bool,
    /// Further arguments for the engine's command.
    pub arguments: &'a [OsString],
    /// The board, if that is the engine.
    pub board: &'a BoardOptions,
}

/// Writes the engine's file, and hands it the jobs that have no result. Waits for them where the
/// engine's command does.
///
/// # Errors
///
/// If there are results of other inputs, a file cannot be written, or the engine's command is
/// missing or fails.
pub fn submit(submission: &Submission<'_>) -> Result<()> {
    let Submission {
        directory,
        engine,
        program,
        chunk,
        only_write,
        ..
    } = *submission;
    if chunk > 1 && !engine.takes_chunks() {
        let help = "it starts tasks quickly, or has its own way: --chunk is for slurm and sge";
        return Err(miette!(
            help = help,
            "--chunk {chunk}: tasks of this engine run one job each"
        ));
    }
    if engine != Engine::Board && submission.board.are_given() {
        let help = "leave them out, or give --engine board";
        return Err(miette!(
            help = help,
            "--console, --telemetry, --serve, --reset and --run-limit are for a board"
        ));
    }
    let (manifest, jobs) = manifest::read(directory)?;
    for job in &jobs {
        match engine {
            Engine::Board => _ = job.boot.image()?,
            _ => _ = job.boot.emulation()?,
        }
    }
    let to = directory.join("submit");
    // Two at once would run the same jobs; the second finds them done.
    let _claim = Claim::wait(&to, &collect::owner(&manifest.work.to_string()))?;
    collect::refuse_foreign(directory, &jobs)?;
    let missing = collect::missing(directory, &jobs);
    if missing.is_empty() {
        println!(
            "all {} have a result: collect {}",
            count(jobs.len(), "job"),
            directory.display()
        );
        return Ok(());
    }
    let numbers: Vec<usize> = missing.iter().map(|(job, _)| job.job).collect();
    set_aside(directory, missing.iter().map(|(job, _)| job.key.as_str()))?;
    if engine == Engine::Board {
        let missing: Vec<&Job> = missing.iter().map(|(job, _)| *job).collect();
        board::run(
            directory,
            &manifest.work.to_string(),
            &missing,
            submission.board,
        )?;
        println!("Then:    {}", collecting(directory));
        return Ok(());
    }
    let limit_s = jobs
        .iter()
        .map(|job| job.boot.limit_s)
        .max()
        .unwrap_or_default();
    let filling = Filling {
        program,
        directory,
        jobs: jobs.len(),
        chunk,
        limit_s,
    };
    let Some((name, text)) = engine.file(&filling) else {
        return Ok(());
    };
    let file = to.join(name);
    write_atomic(&file, text.as_bytes())?;
    if name.ends_with(".sh") {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).into_diagnostic()?;
    }
    // GNU parallel numbers its log by the lines of its input, so that is always the whole list.
    let listed: Vec<usize> = if engine == Engine::Parallel {
        (1..=jobs.len()).collect()
    } else {
        numbers.clone()
    };
    let lines: String = listed.iter().map(|number| format!("{number}\n")).collect();
    write_atomic(&to.join("numbers.txt"), lines.as_bytes())?;
    if engine == Engine::Parallel {
        forget(&to.join("parallel.log"), &numbers)?;
    }
    let seconds: f64 = missing.iter().map(|(job, _)| job.expected_seconds).sum();
    println!(
        "{} of {} have no result; about {} on one core",
        numbers.len(),
        count(jobs.len(), "job"),
        HumanDuration(Duration::from_secs_f64(seconds))
    );
    let Some((command, origin)) = engine.command().filter(|_| !only_write) else {
        println!("Written: {}", installation::display(&file));
        return Ok(());
    };
    let is_there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| directory.join(command).is_file());
    if !is_there {
        let help = format!("install it: {origin}; or only write its file with --write");
        return Err(miette!(help = help, "`{command}` is not installed"));
    }
    hand_over(submission, command, &file, &numbers)?;
    println!("Then:    {}", collecting(directory));
    Ok(())
}

/// Returns the command that makes the report.
fn collecting(directory: &Path) -> String {
    format!(
        "{} collect {}",
        installation::program(),
        directory.display()
    )
}

/// Puts results that cannot be used aside, so that an engine that looks for files does not take
/// them for done.
fn set_aside<'a>(directory: &Path, keys: impl Iterator<Item = &'a str>) -> Result<()> {
    let refused = directory.join("refused");
    for key in keys {
        let file = crate::boards::result::path(&manifest::results(directory), key);
        if file.exists() {
            fs::create_dir_all(&refused).into_diagnostic()?;
            fs::rename(&file, refused.join(file.file_name().unwrap_or_default()))
                .into_diagnostic()?;
            eprintln!(
                "warning: {} is damaged: it is now in {}",
                file.display(),
                refused.display()
            );
        }
    }
    Ok(())
}

/// Removes jobs from the log of GNU parallel, which would not run them again: their results are
/// gone or damaged.
fn forget(log: &Path, numbers: &[usize]) -> Result<()> {
    let Ok(text) = fs::read_to_string(log) else {
        return Ok(());
    };
    let is_forgotten = |line: &&str| {
        let number = line
            .split('\t')
            .next()
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: usize| numbers.contains(&number))
    };
    let kept: String = text
        .lines()
        .filter(|line| !is_forgotten(line))
        .map(|line| format!("{line}\n"))
        .collect();
    write_atomic(log, kept.as_bytes())
}

/// Returns numbers as ranges: `1-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = vec![];
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(start, end): &(usize, usize)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Returns the numbers of the tasks, from 1, that run these jobs.
fn tasks(numbers: &[usize], chunk: usize) -> Vec<usize> {
    let mut tasks: Vec<usize> = numbers
        .iter()
        .map(|number| (number - 1) / chunk + 1)
        .collect();
    tasks.dedup();
    tasks
}

/// Returns the arrays of Slurm that are needed: what is added to each index, and the indices.
fn arrays(numbers: &[usize]) -> Vec<(usize, String)> {
    let mut arrays: Vec<(usize, Vec<usize>)> = vec![];
    for &number in numbers {
        let offset = (number - 1) / ARRAY * ARRAY;
        match arrays.last_mut() {
            Some((of, indices)) if *of == offset => indices.push(number - offset),
            _ => arrays.push((offset, vec![number - offset])),
        }
    }
    arrays
        .into_iter()
        .map(|(offset, indices)| (offset, ranges(&indices)))
        .collect()
}

fn hand_over(
    submission: &Submission<'_>,
    command: &str,
    file: &Path,
    numbers: &[usize],
) -> Result<()> {
    let Submission {
        directory,
        engine,
        chunk,
        arguments,
        ..
    } = *submission;
    let with = |own: Vec<OsString>| {
        let mut command = Command::new(command);
        command.args(own).args(arguments);
        command
    };
    let commands: Vec<Command> = match engine {
        Engine::Slurm => arrays(&tasks(numbers, chunk))
            .into_iter()
            .map(|(offset, indices)| {
                let mut output = OsString::from("--output=");
                output.push(directory.join("submit/slurm-%A_%a.log"));
                let mut command = with(vec![
                    format!("--array={indices}").into(),
                    format!("--export=ALL,CLOISON_OFFSET={offset}").into(),
                    output,
                ]);
                command.arg(file);
                command
            })
            .collect(),
        Engine::Parallel => {
            let mut command = Command::new("sh");
            command.arg(file).args(arguments);
            vec![command]
        }
        Engine::Snakemake => {
            let mut own: Vec<OsString> =
                vec!["--snakefile".into(), file.into(), "--directory".into()];
            own.push(directory.join("submit").into());
            let fixed = [
                "--keep-going",
                "--rerun-incomplete",
                "--rerun-triggers",
                "mtime",
                "--retries",
                "3",
            ];
            own.extend(fixed.map(OsString::from));
            // Its lock outlives a machine that goes down; the claim does not.
            own.push("--nolock".into());
            let chosen = |argument: &OsString| {
                argument.to_str().is_some_and(|text| {
                    ["-c", "--cores", "-j", "--jobs"]
                        .iter()
                        .any(|option| text.starts_with(option))
                })
            };
            if !arguments.iter().any(chosen) {
                own.extend(["--cores", "all"].map(OsString::from));
            }
            vec![with(own)]
        }
        Engine::Hyperqueue => vec![with(vec![file.into()])],
        Engine::Sge | Engine::Htcondor | Engine::Kubernetes | Engine::Board => vec![],
    };
    let mut failed = 0;
    for mut command in commands {
        let status = command
            .status()
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot start {command:?}"))?;
        failed += usize::from(!status.success());
    }
    if failed > 0 {
        return Err(miette!(
            help = "its messages are above, and logs of jobs in DIR/submit; what is missing is \
                    named by: cloison collect DIR; a second submit runs only that",
            "`{command}` reports that jobs failed"
        ));
    }
    Ok(())
}

/// Returns the program that runs jobs: the one given, or this one.
///
/// # Errors
///
/// If this program's file is unknown.
pub fn program(given: Option<&PathBuf>) -> Result<PathBuf> {
    given
        .cloned()
        .map_or_else(|| std::env::current_exe().into_diagnostic(), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_submitted_in_arrays_that_slurm_accepts() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3,7,9-10");
        let all: Vec<usize> = (1..=2500).filter(|number| *number != 1001).collect();
        let expected = [
            (0, "1-1000".to_owned()),
            (1000, "2-1000".to_owned()),
            (2000, "1-500".to_owned()),
        ];
        assert_eq!(arrays(&all), expected);
        assert_eq!(
            arrays(&[1000, 1001]),
            [(0, "1000".to_owned()), (1000, "1".to_owned())]
        );
        assert_eq!(tasks(&[1, 9, 10, 11, 31], 10), [1, 2, 4]);
        assert_eq!(tasks(&all, 1), all);
    }

    #[test]
    fn the_log_of_parallel_forgets_jobs_whose_result_is_gone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let log = scratch.path().join("parallel.log");
        forget(&log, &[1]).expect("there is none yet");
        let line = |number| format!("{number}\t:\t1.0\t0.1\t0\t0\t0\t0\tjob run {number}\n");
        let head = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";
        fs::write(&log, format!("{head}{}{}{}", line(2), line(1), line(12))).expect("a log");
        forget(&log, &[1, 3]).expect("written");
        assert_eq!(
            fs::read_to_string(&log).expect("the log"),
            format!("{head}{}{}", line(2), line(12))
        );
    }

    #[test]
    fn a_damaged_result_is_put_aside() {
        let scratch = tempfile::tempdir().expect("a directory");
        let results = manifest::results(scratch.path());
        fs::create_dir(&results).expect("a directory");
        fs::write(results.join("0123.result"), "half").expect("a file");
        set_aside(scratch.path(), ["0123", "4567"].into_iter()).expect("moved");
        assert_eq!(
            fs::read_to_string(scratch.path().join("refused/0123.result")).expect("there"),
            "half"
        );
        assert!(!results.join("0123.result").exists());
    }
}
