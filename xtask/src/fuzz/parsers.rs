//! `cargo xtask fuzz parsers`: the targets of `tests/parsers`, with libFuzzer on stable Rust.
//!
//! Stable Rust has what libFuzzer needs: LLVM's pass for coverage. It has no address sanitizer; what
//! is searched is safe Rust with checks for overflow.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::SystemTime;
use std::{fs, iter, thread};

/// `cargo xtask fuzz parsers`.
#[derive(Clone, Debug, clap::Args)]
pub struct ParsersArgs {
    /// The targets; all of them if there is none
    pub names: Vec<String>,
    /// How long to search for each target
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub minutes: u64,
    /// Print the targets with their packages and rules
    #[arg(long, conflicts_with_all = ["names", "replay"])]
    pub list: bool,
    /// Without libFuzzer: only the targets whose packages have changed since the main branch, for
    /// less than a minute in all
    #[arg(long, conflicts_with_all = ["names", "replay", "list"])]
    pub changed: bool,
    /// Only run the target on this file, which a search kept
    #[arg(long, value_name = "FILE", requires = "names")]
    pub replay: Option<PathBuf>,
}

/// Flags of LLVM's pass for coverage, as libFuzzer reads it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// The machine for which it builds: with a name, cargo leaves build scripts and macros alone.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// Limits for one input: seconds, and MiB of memory.
const SECONDS: u32 = 10;
const MEBIBYTES: u32 = 1024;
/// The longest input that libFuzzer makes.
const LONGEST: usize = 16 << 10;

/// Runs `cargo xtask fuzz parsers`.
///
/// # Errors
///
/// Returns an error if the targets cannot be built, or one has not this name.
pub fn run(args: &ParsersArgs) -> Result<ExitCode> {
    let program = plain()?;
    let all = targets(&program)?;
    if args.list {
        for target in &all {
            println!("{:<16} {:<22} {}", target.name, target.package, target.rule);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.changed {
        return hunt_changed(&program, &all).map(exit_code);
    }
    for name in &args.names {
        if !all.iter().any(|target| &target.name == name) {
            let names: Vec<_> = all.iter().map(|target| target.name.as_str()).collect();
            return Err(miette!(
                help = format!("the targets are {}", names.join(", ")),
                "there is no target `{name}`"
            ));
        }
    }
    if let Some(file) = &args.replay {
        let mut replay = Command::new(&program);
        replay.arg("replay").arg(&args.names[0]).arg(file);
        return succeeds(&mut replay).map(exit_code);
    }
    let libfuzzer = instrumented()?;
    let mut failed = Vec::new();
    for target in &all {
        if args.names.is_empty() || args.names.contains(&target.name) {
            println!("\n{}: {} min", target.name, args.minutes);
            if !search(&libfuzzer, &program, &target.name, args.minutes)? {
                failed.push(target.name.clone());
            }
        }
    }
    if !failed.is_empty() {
        println!("\nan input breaks a rule of: {}", failed.join(", "));
    }
    Ok(exit_code(failed.is_empty()))
}

fn exit_code(success: bool) -> ExitCode {
    if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Seconds of all targets whose packages have changed, and of each at most.
const CHANGED_SECONDS: u64 = 36;
const MOST_SECONDS: u64 = 12;

/// Runs the targets whose packages have changed on damaged files. Returns whether no input breaks a
/// rule.
///
/// # Errors
///
/// Returns an error if a program cannot be started.
pub fn changed() -> Result<bool> {
    let program = plain()?;
    let all = targets(&program)?;
    hunt_changed(&program, &all)
}

fn hunt_changed(program: &Path, all: &[Target]) -> Result<bool> {
    let packages = changed_packages()?;
    let chosen: Vec<_> = all
        .iter()
        .filter(|target| packages.contains(&target.package))
        .collect();
    if chosen.is_empty() {
        println!("no package with a parser of foreign bytes has changed");
        return Ok(true);
    }
    let seconds = (CHANGED_SECONDS / chosen.len() as u64).clamp(1, MOST_SECONDS);
    // Another damage in each run.
    let number = SystemTime::UNIX_EPOCH
        .elapsed()
        .into_diagnostic()?
        .as_secs();
    let out = installation::target_dir().join("fuzz/failed");
    let hunt = |target: &Target| {
        let mut run = Command::new(program);
        run.args(["run", &target.name, "--seconds", &seconds.to_string()])
            .args(["--seed", &number.to_string(), "--out"])
            .arg(&out);
        succeeds(&mut run)
    };
    // A target uses one core of the host.
    let next = Mutex::new(chosen.into_iter());
    let lane = || {
        let take = || next.lock().expect("no lane panics with it").next();
        let hunts = iter::from_fn(take).map(hunt);
        hunts.collect::<Result<Vec<_>>>()
    };
    let lanes = thread::available_parallelism().map_or(1, NonZero::get);
    let results: Vec<_> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| lane.join().expect("a lane"));
        ended.collect::<Result<_>>()
    })?;
    Ok(results.into_iter().flatten().all(|is_good: bool| is_good))
}

/// Returns the packages with a changed file: since the main branch, or on it since the commit
/// before. All packages, if git does not know.
fn changed_packages() -> Result<Vec<String>> {
    let root = installation::root();
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(&root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"]);
    let base = ["origin/main", "main"]
        .iter()
        .find_map(|main| git(&["merge-base", "HEAD", main]))
        .filter(|base| Some(base) != head.as_ref())
        .or_else(|| git(&["rev-parse", "HEAD~1"]));
    let files = base.and_then(|base| git(&["diff", "--name-only", &base]));
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(&root)
        .no_deps()
        .exec()
        .into_diagnostic()?;
    let is_changed = |package: &&cargo_metadata::Package| {
        let folder = package.manifest_path.parent();
        let folder = folder.and_then(|folder| folder.strip_prefix(&metadata.workspace_root).ok());
        let (Some(folder), Some(files)) = (folder, &files) else {
            return true;
        };
        let inside = |file: &str| Path::new(file).starts_with(folder);
        files.lines().any(inside)
    };
    let packages = metadata.packages.iter().filter(is_changed);
    Ok(packages.map(|package| package.name.to_string()).collect())
}

/// A target, as its crate lists it.
struct Target {
    name: String,
    package: String,
    rule: String,
}

fn targets(program: &Path) -> Result<Vec<Target>> {
    let output = Command::new(program)
        .arg("list")
        .output()
        .into_diagnostic()?;
    let text = String::from_utf8(output.stdout).into_diagnostic()?;
    let target = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        Some(Target {
            name: words.next()?,
            package: words.next()?,
            rule: words.next()?,
        })
    };
    Ok(text.lines().filter_map(target).collect())
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command
        .status()
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status.success())
}

/// Builds the program without instrumentation, and returns its path.
fn plain() -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build
        .current_dir(installation::root())
        .args(["build", "--quiet", "--bin", "parsers"]);
    if !succeeds(&mut build)? {
        return Err(miette!("the targets cannot be built"));
    }
    Ok(installation::target_dir().join("debug/parsers"))
}

/// Builds the program with libFuzzer, and returns its path.
fn instrumented() -> Result<PathBuf> {
    let directory = installation::target_dir().join("fuzz");
    let mut build = Command::new("cargo");
    build
        .current_dir(installation::root().join("tests/parsers/libfuzzer"))
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", &directory)
        .args(["build", "--release", "--target", MACHINE]);
    if !succeeds(&mut build)? {
        return Err(miette!(
            help = "libFuzzer needs a C++ compiler: sudo apt-get install g++",
            "the targets cannot be built with libFuzzer"
        ));
    }
    Ok(directory.join(MACHINE).join("release/libfuzzer"))
}

/// Searches for some minutes, from the seeds and from what earlier searches have found. Returns
/// whether no input breaks a rule.
fn search(libfuzzer: &Path, program: &Path, name: &str, minutes: u64) -> Result<bool> {
    let folder = installation::target_dir().join("fuzz/parsers").join(name);
    let (corpus, seeds) = (folder.join("corpus"), folder.join("seeds"));
    let (words, found) = (folder.join("words"), folder.join("found"));
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).into_diagnostic()?;
    }
    let mut extract = Command::new(program);
    extract.args(["seeds", name]).arg(&seeds).arg(&words);
    if !succeeds(&mut extract)? {
        return Err(miette!("the seeds of {name} cannot be written"));
    }
    let mut command = Command::new(libfuzzer);
    command
        .env("CLOISON_TARGET", name)
        .arg(format!("-max_total_time={}", minutes * 60))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-timeout={SECONDS}"))
        .arg(format!("-rss_limit_mb={MEBIBYTES}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-verbosity=1"]);
    if fs::metadata(&words).is_ok_and(|words| words.len() > 0) {
        command.arg(format!("-dict={}", words.display()));
    }
    let is_good = succeeds(command.arg(&corpus).arg(&seeds))?;
    if !is_good {
        println!(
            "{name}: an input breaks a rule; repeat it: cargo xtask fuzz parsers {name} --replay \
             {}/FILE",
            found.display()
        );
    }
    Ok(is_good)
}
