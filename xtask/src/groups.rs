//! Runs tests of several programs side by side, in groups with a process each.
//!
//! `cargo test` runs one test program after the other, so that the last long test of each keeps all
//! but one core idle.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::tally::Tally;
use cargo_metadata::Message;
use cloison_engine::setup::consent;
use cloison_engine::{cargo, installation, oracle};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A test program that cargo has built.
#[derive(Clone, Debug)]
struct Program {
    name: String,
    executable: PathBuf,
    /// The directory of its package, in which cargo runs it.
    package: PathBuf,
}

/// Tests that run one after the other in one process, which builds what they boot once.
#[derive(Clone, Debug)]
struct Group {
    program: Program,
    /// The program's name, and the module's or the test's.
    name: String,
    tests: Vec<String>,
}

/// Modules of tests whose groups take a minute or more.
const LONG: [&str; 12] = [
    "audit",
    "bbprof",
    "dma",
    "engines",
    "isolation",
    "libpapi",
    "links",
    "linux",
    "perf",
    "services",
    "visits",
    "vm_life",
];

/// What all groups have in common.
#[derive(Clone, Copy, Debug)]
struct Environment<'a> {
    /// The plugin of the oracle that is beside the boards, if it is wanted.
    oracle: Option<&'a Path>,
    /// Where the groups leave what cargo has built for them.
    built: &'a Path,
}

/// Builds test programs and runs those of the package in a directory, `jobs` groups at a time.
/// `build` is a `cargo test --no-run`, which may select more packages. The boards run beside the
/// oracle, if its plugin is given. What one of them builds to boot, the others find. The time of
/// each group is added to `times`.
///
/// # Errors
///
/// Returns an error if the programs do not build or cannot list their tests. A test that fails is
/// counted.
pub fn run(
    mut build: Command,
    package: &Path,
    filter: Option<&str>,
    (jobs, oracle): (usize, Option<&Path>),
    times: &mut Vec<(String, Duration)>,
) -> Result<Tally> {
    let programs = programs(&mut build, package)?;
    let mut groups = Vec::new();
    for program in programs {
        groups.extend(grouped(&program, &list(&program)?, filter));
    }
    // A long one must not be the last, beside which all other cores are idle. A single test is
    // most often one.
    groups.sort_by_key(|group| {
        let is_long = LONG.iter().any(|module| group.name.contains(module));
        group.tests.len() > 1 && !is_long
    });
    groups.reverse();
    let (waiting, total) = (Mutex::new(groups), Mutex::new(Tally::default()));
    let times = Mutex::new(times);
    let target = installation::target_dir();
    let built = tempfile::tempdir_in(target).into_diagnostic()?;
    let environment = Environment {
        oracle,
        built: built.path(),
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(group) =
                    { waiting.lock().unwrap_or_else(PoisonError::into_inner).pop() }
                {
                    let started = Instant::now();
                    let tally = run_group(&group, environment);
                    times
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((group.name, started.elapsed()));
                    total
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .add(tally);
                }
            });
        }
    });
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Builds test programs, and returns those of the package.
fn programs(build: &mut Command, package: &Path) -> Result<Vec<Program>> {
    build
        .args(["--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = build
        .spawn()
        .into_diagnostic()
        .wrap_err("cannot start cargo")?;
    let output = child
        .stdout
        .take()
        .ok_or_else(|| miette!("cargo has no output"))?;
    let mut found = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message.into_diagnostic()?
            && artifact.profile.test
            && artifact
                .manifest_path
                .parent()
                .is_some_and(|directory| directory == package)
            && let Some(executable) = artifact.executable
        {
            found.push(Program {
                name: artifact.target.name,
                executable: executable.into_std_path_buf(),
                package: package.to_path_buf(),
            });
        }
    }
    if !child.wait().into_diagnostic()?.success() {
        return Err(miette!(
            help = "see the compiler's messages above",
            "the test programs do not build"
        ));
    }
    Ok(found)
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        // As cargo sets them. A snapshot that differs fails; it leaves no proposal in the checkout.
        command
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package)
            .env("INSTA_UPDATE", "no")
            .env(consent::VARIABLE, "yes");
        command.stdin(Stdio::null());
        command
    }
}

/// Returns the names of a program's tests.
fn list(program: &Program) -> Result<Vec<String>> {
    let output = program
        .command()
        .args(["--list", "--format", "terse"])
        .output()
        .into_diagnostic()?;
    if !output.status.success() {
        return Err(miette!("{} does not list its tests", program.name));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// Tests of a module that are in one group, at most. The fewer there are, the less is left for one
/// core alone at the end.
const MOST: usize = 4;

/// Returns the groups of a program's tests whose name contains the filter: one for each [`MOST`] of
/// a module, and one for each test that is in none.
fn grouped(program: &Program, tests: &[String], filter: Option<&str>) -> Vec<Group> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in tests
        .iter()
        .filter(|test| filter.is_none_or(|filter| test.contains(filter)))
    {
        let part = test
            .split_once("::")
            .map_or(test.as_str(), |(module, _)| module);
        found.entry(part).or_default().push(test.clone());
    }
    let group = |part: &str, tests: &[String], number: usize, all: usize| {
        let which = if all > 1 {
            format!(", {number} of {all}")
        } else {
            String::new()
        };
        Group {
            program: program.clone(),
            name: format!("{} {part}{which}", program.name),
            tests: tests.to_vec(),
        }
    };
    let of_module = |(part, tests): (&str, Vec<String>)| {
        let all = tests.len().div_ceil(MOST);
        (1..)
            .zip(tests.chunks(MOST))
            .map(|(number, tests)| group(part, tests, number, all))
            .collect::<Vec<_>>()
    };
    found.into_iter().flat_map(of_module).collect()
}

/// Runs a group, and prints what it says when it has ended: of one that passes, only the tests'
/// lines.
fn run_group(group: &Group, environment: Environment<'_>) -> Tally {
    let started = Instant::now();
    let (text, success) = match output(group, environment) {
        Ok(done) => done,
        Err(error) => (format!("{error:?}\n"), false),
    };
    let mut tally = text.lines().find_map(Tally::parse).unwrap_or_default();
    // A test that took its process down has no result line.
    if !success && tally.failed == 0 {
        tally.failed = 1;
    }
    let wanted = |line: &&str| {
        tally.failed > 0 || line.starts_with("test ") && !line.starts_with("test result")
    };
    let mut shown: String = text
        .lines()
        .filter(wanted)
        .map(|line| format!("{line}\n"))
        .collect();
    let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
    shown += &format!(
        "{}: {verdict} in {:.1} s",
        group.name,
        started.elapsed().as_secs_f64()
    );
    // In one piece, whatever other groups print.
    println!("{shown}");
    tally
}

/// Runs a group and returns what it printed, with its errors where they came, and whether it
/// succeeded.
fn output(group: &Group, environment: Environment<'_>) -> Result<(String, bool)> {
    let (mut reader, writer) = std::io::pipe().into_diagnostic()?;
    let mut command = group.program.command();
    command
        .args(["--exact", "--test-threads=1"])
        .args(&group.tests);
    command.env(cargo::BUILT, environment.built);
    if let Some(plugin) = environment.oracle {
        command.env(oracle::VARIABLE, plugin);
    }
    command
        .stdout(writer.try_clone().into_diagnostic()?)
        .stderr(writer);
    let mut child = command.spawn().into_diagnostic()?;
    // It holds the pipe's other end, without which reading ends.
    drop(command);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).into_diagnostic()?;
    let status = child.wait().into_diagnostic()?;
    Ok((
        String::from_utf8_lossy(&bytes).into_owned(),
        status.success(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: Option<&str>) -> Vec<(String, usize)> {
        let program = Program {
            name: "system".into(),
            executable: PathBuf::new(),
            package: PathBuf::new(),
        };
        let mut tests = [
            "one",
            "linux::boots",
            "linux::ends",
            "papi::one",
            "papi::deep::two",
        ]
        .map(str::to_owned)
        .to_vec();
        tests.extend((1..=5).map(|number| format!("quota::{number}")));
        let groups = grouped(&program, &tests, filter);
        groups
            .into_iter()
            .map(|group| (group.name, group.tests.len()))
            .collect()
    }

    #[test]
    fn a_module_is_a_group_or_several_and_so_is_a_test_without_one() {
        let quota = [("system quota, 1 of 2", 4), ("system quota, 2 of 2", 1)];
        let expected = [
            ("system linux", 2),
            ("system one", 1),
            ("system papi", 2),
            quota[0],
            quota[1],
        ];
        assert_eq!(
            names(None),
            expected.map(|(name, tests)| (name.to_owned(), tests))
        );
        assert_eq!(
            names(Some("one")),
            [("system one".to_owned(), 1), ("system papi".to_owned(), 1)]
        );
        assert_eq!(names(Some("nothing")), []);
    }

    #[test]
    fn a_process_that_ends_without_a_result_has_failed() {
        let program = Program {
            name: "false".into(),
            executable: "/bin/false".into(),
            package: "/".into(),
        };
        let group = Group {
            program,
            name: "false".into(),
            tests: vec!["one".into()],
        };
        let environment = Environment {
            oracle: None,
            built: Path::new("/"),
        };
        assert_eq!(
            run_group(&group, environment),
            Tally {
                passed: 0,
                failed: 1,
                skipped: 0
            }
        );
    }
}
