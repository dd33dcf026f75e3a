//! `cargo xtask test`: all checks and tests that a change must pass, cheapest first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::fuzz::el2::{self, El2Args};
use crate::fuzz::parsers;
use crate::tally::Tally;
use crate::{full, groups, lint, rules};
use clap::ValueEnum;
use cloison_bench::lines;
use cloison_config::guest_linux::Release;
use cloison_engine::figures::Figures;
use cloison_engine::linux::packages;
use cloison_engine::setup::consent::{self, Consent};
use cloison_engine::setup::system::Suite;
use cloison_engine::setup::{self, Firmware, debian};
use cloison_engine::{cargo, installation, oracle};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use xshell::{Shell, cmd};

/// `cargo xtask test`.
#[derive(Clone, Debug, clap::Args)]
pub struct TestArgs {
    /// Run only the tests whose name contains this (and no other step than tests)
    pub filter: Option<String>,
    /// Run only these steps
    #[arg(long, value_enum, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<Step>,
    /// A first answer in a few minutes: the rules, the unit tests, and one boot of each board
    #[arg(long, conflicts_with_all = ["filter", "only"])]
    pub quick: bool,
    /// Instead of the tests, run every experiment in its full form, or those whose name contains
    /// the filter, and keep the results for the docs; the same command continues
    #[arg(long, conflicts_with_all = ["only", "quick", "release"])]
    pub full: bool,
    /// Run the tests that boot boards, all or those of the filter, each beside the oracle: a plugin
    /// of QEMU that compares what the hypervisor does with SPECIFICATION.md
    #[arg(long, conflicts_with_all = ["only", "quick", "full", "release"])]
    pub oracle: bool,
    /// How many groups of system tests run at a time; each boots machines with four cores
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub jobs: usize,
    /// Run the demo and the tests in a minimal system of this Debian release instead (needs root;
    /// kept in target/in)
    #[arg(long = "in", value_enum, value_name = "RELEASE")]
    pub release: Option<Suite>,
    /// With --in: only print what would be done
    #[arg(long, requires = "release")]
    pub dry_run: bool,
    /// Install what is missing without a question
    #[arg(long)]
    pub yes: bool,
    /// Write the figures here too
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    pub json: Option<PathBuf>,
}

/// The steps, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// rustfmt
    Format,
    /// The house rules (`cargo xtask lint`)
    Lint,
    /// clippy over the host's crates
    ClippyHost,
    /// clippy over the crates that run on a board, or in a guest's Linux
    ClippyBoard,
    /// rustdoc, its warnings as errors
    Docs,
    /// Licenses and sources of dependencies; GitHub's files
    Rules,
    /// The amount of code that runs at EL2
    Lines,
    /// Unit and property tests
    Unit,
    /// Damaged files for the parsers of packages that have changed
    Parsers,
    /// Models of concurrent code, in all interleavings
    Loom,
    /// The pure crates under Miri
    Miri,
    /// The EL2 image and the guests
    Build,
    /// Guests that do anything, for seconds, beside the oracle
    Fuzz,
    /// Boots on QEMU
    System,
    /// All of jobs through Slurm, GNU parallel, Snakemake and HyperQueue: only on demand, also as
    /// `test engines`
    Engines,
    /// Every experiment with all its runs: only on demand, also as `test --full`
    Full,
}

impl Step {
    const fn title(self) -> &'static str {
        match self {
            Self::Format => "rustfmt",
            Self::Lint => "house rules",
            Self::ClippyHost => "clippy, host crates",
            Self::ClippyBoard => "clippy, board crates",
            Self::Docs => "rustdoc",
            Self::Rules => "dependencies, GitHub's files",
            Self::Lines => "lines at EL2",
            Self::Unit => "unit and property tests",
            Self::Parsers => "damaged files",
            Self::Loom => "models of concurrent code",
            Self::Miri => "Miri on the pure crates",
            Self::Build => "build hypervisor and guests",
            Self::Fuzz => "a short search for broken promises",
            Self::System => "system tests on QEMU",
            Self::Engines => "jobs through engines",
            Self::Full => "experiments in full",
        }
    }
}

/// The name that selects the step that runs only on demand.
const ENGINES: &str = "engines";

/// The steps of `--quick`, and the test that boots each board.
const QUICK: [Step; 5] = [
    Step::Format,
    Step::Lint,
    Step::Lines,
    Step::Unit,
    Step::System,
];
const QUICK_BOOT: &str = "boards::every_core_of_every_board_runs_a_guest";

/// How many of the slowest groups of tests the summary lists.
const SLOWEST: usize = 10;

/// Property tests under Miri run this many cases each: it is several hundred times slower than the
/// processor.
const MIRI_CASES: &str = "4";

/// Runs `cargo xtask test`. The last line on standard output is `N passed, N failed, N skipped`.
pub fn test(args: &TestArgs) -> Result<ExitCode> {
    consent::give(Consent::of(args.yes));
    let shell = Shell::new().into_diagnostic()?;
    shell.change_dir(installation::root());
    let chosen = |step: &Step| match (&args.filter, args.only.is_empty()) {
        _ if args.quick => QUICK.contains(step),
        _ if args.oracle => *step == Step::System,
        _ if args.full => *step == Step::Full,
        (_, false) => args.only.contains(step),
        (Some(filter), true) if filter == ENGINES => *step == Step::Engines,
        (Some(_), true) => matches!(step, Step::Unit | Step::System),
        (None, true) => !matches!(step, Step::Engines | Step::Full),
    };
    let filter = args.filter.clone().filter(|filter| filter != ENGINES);
    let steps: Vec<Step> = Step::value_variants()
        .iter()
        .copied()
        .filter(chosen)
        .collect();
    let runner = Runner {
        shell,
        boots: filter
            .clone()
            .or_else(|| args.quick.then(|| QUICK_BOOT.to_owned())),
        slowest: RefCell::default(),
        filter,
        jobs: args.jobs,
        oracle: args.oracle.then(cargo::prover_plugin).transpose()?,
    };
    if args.oracle {
        oracle::forget()?;
    }
    let whole = Stopwatch::start()?;
    let mut total = Tally::default();
    let mut figures = Figures::new("test");
    let mut summary = Vec::new();
    for (index, &step) in steps.iter().enumerate() {
        println!("\n[{}/{}] {}", index + 1, steps.len(), step.title());
        let watch = Stopwatch::start()?;
        let tally = runner.run(step, &mut figures).unwrap_or_else(|error| {
            eprintln!("{error:?}");
            Tally::FAILED
        });
        let used = watch.read()?;
        total.add(tally);
        let name = step
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().replace('-', "_"));
        figures.value(
            format!("{name}_seconds"),
            (used.time.as_secs_f64() * 10.0).round() / 10.0,
        );
        let verdict = match tally {
            Tally { failed: 1.., .. } => "FAILED",
            Tally {
                passed: 0,
                failed: 0,
                ..
            } => "skipped",
            _ => "ok",
        };
        println!(
            "[{}/{}] {}: {verdict} in {}",
            index + 1,
            steps.len(),
            step.title(),
            seconds(used.time)
        );
        summary.push(StepResult {
            step,
            tally,
            used,
            verdict,
        });
    }
    if let (Some(filter), true) = (&args.filter, total.passed + total.failed == 0) {
        return Err(miette!(
            help = "the filter is a part of the name of a test, or with --full of an experiment",
            "nothing has `{filter}` in its name"
        ));
    }
    print_summary(&summary, whole.read()?);
    print_slowest(runner.slowest.take());
    if args.oracle {
        println!("{}", oracle::sum()?);
    }
    figures
        .count("passed", total.passed)
        .count("failed", total.failed)
        .count("skipped", total.skipped);
    figures.write(args.json.as_deref())?;
    println!(
        "\n{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The result of a step.
struct StepResult {
    step: Step,
    tally: Tally,
    used: Use,
    verdict: &'static str,
}

/// What a part of the tests has taken.
#[derive(Clone, Copy, Debug)]
struct Use {
    time: Duration,
    /// Processor time: of this program, and of those that it has run to their end.
    busy: Duration,
}

impl Use {
    /// Returns the cells of a table: the time, and how many cores were busy, as a mean.
    fn cells(self) -> [String; 2] {
        let cores = self.busy.as_secs_f64() / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        [seconds(self.time), format!("{cores:.2}")]
    }
}

/// Measures what a part takes.
struct Stopwatch {
    started: Instant,
    /// Processor time before it.
    before: Duration,
}

impl Stopwatch {
    fn start() -> Result<Self> {
        Ok(Self {
            started: Instant::now(),
            before: processor_time()?,
        })
    }

    fn read(&self) -> Result<Use> {
        Ok(Use {
            time: self.started.elapsed(),
            busy: processor_time()?.saturating_sub(self.before),
        })
    }
}

/// Returns the processor time so far: of this program, and of those that it has run to their end.
fn processor_time() -> Result<Duration> {
    let mut all = Duration::ZERO;
    for whose in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let used = getrusage(whose)
            .into_diagnostic()
            .wrap_err("the system does not say how long its processors were used")?;
        let micros = (used.user_time() + used.system_time()).num_microseconds();
        all += Duration::from_micros(micros.unsigned_abs());
    }
    Ok(all)
}

/// Prints the steps as a table, with the time and the cores' use of all.
fn print_summary(steps: &[StepResult], all: Use) {
    let row = |cells: [&str; 7]| {
        let [step, verdict, passed, failed, skipped, time, cores] = cells;
        println!(
            "{step:<36} {verdict:<8} {passed:>6} {failed:>6} {skipped:>7} {time:>9} {cores:>5}"
        );
    };
    println!();
    row(["step", "", "passed", "failed", "skipped", "time", "cores"]);
    for outcome in steps {
        let tally = &outcome.tally;
        let [passed, failed, skipped] =
            [tally.passed, tally.failed, tally.skipped].map(|count| count.to_string());
        let [time, cores] = outcome.used.cells();
        row([
            outcome.step.title(),
            outcome.verdict,
            &passed,
            &failed,
            &skipped,
            &time,
            &cores,
        ]);
    }
    let [time, cores] = all.cells();
    row(["all", "", "", "", "", &time, &cores]);
}

/// Prints the groups of tests that took longest.
fn print_slowest(mut groups: Vec<(String, Duration)>) {
    groups.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    groups.truncate(SLOWEST);
    if !groups.is_empty() {
        println!("\nslowest groups of tests that boot boards");
    }
    for (name, time) in groups {
        println!("{name:<70} {:>9}", seconds(time));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The crates that need no hardware.
const PURE: [&str; 3] = ["cloison-formats", "cloison-logic", "cloison-abi"];

/// Selects what builds for the host: the default members and the system tests. Steps that select
/// the same crates share what is built for them, because cargo unites the features of a selection.
const HOST: [&str; 11] = [
    "--workspace",
    "--exclude",
    "cloison-el2",
    "--exclude",
    "cloison-hello-image",
    "--exclude",
    "cloison-guest",
    "--exclude",
    "cloison-workloads",
    "--exclude",
    "cloison-test-guests",
];

struct Runner {
    shell: Shell,
    filter: Option<String>,
    /// The filter of the tests that boot boards.
    boots: Option<String>,
    /// Groups of tests that boot boards, with their times.
    slowest: RefCell<Vec<(String, Duration)>>,
    jobs: usize,
    /// The plugin of the oracle that is beside the boards, if it is wanted.
    oracle: Option<PathBuf>,
}

impl Runner {
    fn run(&self, step: Step, figures: &mut Figures) -> Result<Tally> {
        let shell = &self.shell;
        match step {
            Step::Format => check(cmd!(shell, "cargo fmt --all -- --check -l").into()),
            Step::Lint => lint_rules(),
            Step::ClippyHost => check(
                cmd!(
                    shell,
                    "cargo clippy --quiet --all-targets {HOST...} -- -D warnings"
                )
                .into(),
            ),
            Step::ClippyBoard => self.clippy_board(),
            Step::Docs => self.docs(),
            Step::Rules => repository_rules(),
            Step::Lines => lines_at_el2(figures),
            // The default members: what plain `cargo test` runs, without QEMU, root or network.
            Step::Unit => self.libtest(cmd!(shell, "cargo test --no-fail-fast").into(), &[]),
            Step::Parsers => Ok(Tally::of(parsers::changed()?)),
            Step::Loom => self.loom(),
            Step::Miri => self.miri(),
            Step::Build => build(),
            Step::Engines => self.engines(),
            Step::Fuzz => search(),
            Step::System => self.system(),
            Step::Full => full::run(self.filter.as_deref()),
        }
    }

    /// Runs clippy over the hypervisor, with and without planted faults, over guests, and over
    /// programs of Linux guests.
    fn clippy_board(&self) -> Result<Tally> {
        let board = |packages: &[&str]| -> Result<_> {
            let clippy = cargo::cargo(&self.shell, "clippy")?.args(["--quiet", "--release"]);
            Ok(packages
                .iter()
                .fold(clippy, |clippy, package| clippy.args(["-p", package])))
        };
        let hypervisor = [cargo::HYPERVISOR.0];
        let plain = board(&hypervisor)?;
        let hello = board(&[cargo::HELLO.0])?;
        let faulty = board(&hypervisor)?.args(["--features", cargo::FAULT_INJECTION]);
        let third = board(&hypervisor)?.args(["--features", cargo::GICV3]);
        // Apart, as they are built: a guest has no heap, and what they share with the hypervisor
        // would be built for one that has.
        let guests = board(&[
            "cloison-guest",
            cargo::WORKLOADS,
            cargo::PUPPET.0,
            cargo::TEST_FIRMWARE.0,
            "cloison-epapi-c",
        ])?;
        let linux = cargo::linux_cargo(&self.shell, "clippy")?.args([
            "--quiet",
            "--release",
            "-p",
            cargo::CLIENT.0,
            "-p",
            cargo::PROFILER,
            "-p",
            cargo::LINUX_TOOLS,
        ]);
        let mut tally = Tally::default();
        for clippy in [plain, faulty, third, hello, guests, linux] {
            tally.add(check(clippy.args(["--", "-D", "warnings"]).into())?);
        }
        Ok(tally)
    }

    /// Builds the documentation of what runs on the host, and of what runs on a board.
    fn docs(&self) -> Result<Tally> {
        let shell = &self.shell;
        let host =
            cmd!(shell, "cargo doc --quiet --no-deps {HOST...}").env("RUSTDOCFLAGS", "-D warnings");
        let mut tally = check(host.into())?;
        let board = cargo::cargo(shell, "doc")?.args([
            "--quiet",
            "--no-deps",
            "-p",
            cargo::HYPERVISOR.0,
            "-p",
            cargo::HELLO.0,
            "-p",
            "cloison-guest",
            "-p",
            cargo::WORKLOADS,
        ]);
        tally.add(check(board.into())?);
        Ok(tally)
    }

    fn loom(&self) -> Result<Tally> {
        let shell = &self.shell;
        // A separate target directory: with the flag every crate is a different one. What explores
        // is optimized in every profile; the rest is compiled faster than it would run.
        let directory = installation::target_dir().join("loom");
        let models = cmd!(
            shell,
            "cargo test -p cloison-logic -p cloison-channel --lib loom_"
        )
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", directory);
        self.libtest(models.into(), &[])
    }

    /// Runs the tests that boot boards.
    fn system(&self) -> Result<Tally> {
        let shell = &self.shell;
        prepare_boots()?;
        let boots = cmd!(shell, "cargo test --no-run {HOST...}");
        groups::run(
            boots.into(),
            &installation::root().join("tests"),
            self.boots.as_deref(),
            (self.jobs, self.oracle.as_deref()),
            &mut self.slowest.borrow_mut(),
        )
    }

    /// Installs engines and runs jobs through them, one engine at a time.
    fn engines(&self) -> Result<Tally> {
        prepare_boots()?;
        let engines = cmd!(
            self.shell,
            "cargo test --no-fail-fast {HOST...} --test engines"
        );
        self.libtest(
            engines.into(),
            &["--ignored", "--test-threads=1", "--nocapture"],
        )
    }

    /// Runs tests, shows what they say, and counts them.
    fn libtest(&self, mut command: Command, arguments: &[&str]) -> Result<Tally> {
        command.arg("--").args(arguments).args(&self.filter);
        // A snapshot that differs fails; it does not leave a proposal beside itself in the
        // checkout.
        command.env("INSTA_UPDATE", "no").stdout(Stdio::piped());
        command.env(consent::VARIABLE, "yes");
        let mut child = command
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start cargo")?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| miette!("cargo has no output"))?;
        let mut tally = Tally::default();
        for line in BufReader::new(output).lines() {
            let line = line.into_diagnostic()?;
            println!("{line}");
            if let Some(more) = Tally::parse(&line) {
                tally.add(more);
            }
        }
        let success = child.wait().into_diagnostic()?.success();
        if !success && tally.failed == 0 {
            // A crate that does not compile, or a test that took its process down, has no result
            // line.
            tally.failed = 1;
        }
        if success && tally.passed == 0 && self.filter.is_none() {
            return Err(miette!("no test ran"));
        }
        Ok(tally)
    }

    fn miri(&self) -> Result<Tally> {
        let Some(toolchain) = self.miri_toolchain() else {
            println!(
                "skipped: no installed toolchain has Miri (`rustup toolchain install nightly \
                 --component miri,rust-src` gets one)"
            );
            return Ok(Tally::SKIPPED);
        };
        println!("with toolchain {toolchain}, {MIRI_CASES} cases per property");
        let prepare = self
            .rustup_cargo(&toolchain, &["miri", "setup"])
            .output()
            .into_diagnostic()?;
        if !prepare.status.success() {
            let why = String::from_utf8_lossy(&prepare.stderr).into_owned();
            println!(
                "skipped: Miri cannot be prepared: {}",
                why.lines().last().unwrap_or("no message")
            );
            return Ok(Tally::SKIPPED);
        }
        let mut command = self.rustup_cargo(&toolchain, &["miri", "test", "--no-fail-fast"]);
        command
            .args(PURE.iter().flat_map(|package| ["-p", package]))
            .arg("--lib");
        command
            .env("PROPTEST_CASES", MIRI_CASES)
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        self.libtest(command, &[])
    }

    /// A toolchain that has Miri; the one in use first.
    fn miri_toolchain(&self) -> Option<String> {
        let list = cmd!(self.shell, "rustup toolchain list")
            .quiet()
            .ignore_stderr()
            .read()
            .ok()?;
        let mut names: Vec<&str> = list
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        names.sort_by_key(|name| !name.starts_with("nightly"));
        let has_miri = |name: &&str| {
            let output = self.rustup_cargo(name, &["miri", "--version"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        names.into_iter().find(has_miri).map(str::to_owned)
    }

    /// A cargo of another toolchain than the one that runs this program.
    fn rustup_cargo(&self, toolchain: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command
            .current_dir(installation::root())
            .arg(format!("+{toolchain}"))
            .args(arguments)
            .stdin(Stdio::null());
        for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
            command.env_remove(variable);
        }
        command
    }
}

/// Attacks EL2 with guests that do anything, from an empty corpus and beside the oracle.
fn search() -> Result<Tally> {
    setup::qemu()?;
    // The two versions of the interrupt controller.
    let mut tally = Tally::default();
    for board in ["virt", "virt-gicv3"] {
        let corpus = tempfile::tempdir().into_diagnostic()?;
        let ended = el2::run(&El2Args {
            minutes: 1.0,
            exits: 3000,
            board: board.to_owned(),
            directory: Some(corpus.path().to_path_buf()),
            ..El2Args::default()
        })?;
        tally.add(Tally::of(ended == ExitCode::SUCCESS));
    }
    Ok(tally)
}

/// Gets what the tests that boot boards need. They have the user's consent for what they download
/// themselves: the packages of Linux guests.
fn prepare_boots() -> Result<()> {
    setup::qemu()?;
    setup::LINKER.ensure()?;
    setup::MAKE.ensure()?;
    setup::standard_library()?;
    for release in Release::ALL {
        // The test that needs it fails without it, and says why.
        for firmware in Firmware::ALL {
            _ = firmware.obtain(release);
        }
        if !packages::is_kept(release) {
            debian::obtain(release, "kernels and programs of guests")?;
        }
    }
    Ok(())
}

fn lint_rules() -> Result<Tally> {
    let outcomes = lint::check(&installation::root(), &[])?;
    let failed = lint::print(&outcomes);
    Ok(Tally {
        passed: (outcomes.len() - failed) as u64,
        failed: failed as u64,
        skipped: 0,
    })
}

/// Checks dependencies and GitHub's files.
fn repository_rules() -> Result<Tally> {
    let mut tally = Tally::default();
    for (what, outcome) in [
        ("dependencies", rules::dependencies()?),
        ("GitHub's files", rules::github_files()?),
    ] {
        tally.add(match outcome {
            rules::Outcome::Checked(good) => Tally::of(good),
            rules::Outcome::Skipped(why) => {
                println!("{what}: skipped: {why}");
                Tally::SKIPPED
            }
        });
    }
    Ok(tally)
}

fn lines_at_el2(figures: &mut Figures) -> Result<Tally> {
    let counted = lines::el2()?;
    figures.count("el2_lines", counted.lines);
    figures.count("el2_tokens", counted.tokens);
    println!(
        "{} of at most {} tokens, in {} lines",
        counted.tokens,
        lines::LIMIT,
        counted.lines
    );
    Ok(Tally::of(counted.tokens <= lines::LIMIT))
}

/// Builds the EL2 image, also with planted faults and for a GICv3, and the guests.
fn build() -> Result<Tally> {
    let started = Instant::now();
    cargo::hypervisor(&[])?;
    cargo::hypervisor(&[cargo::FAULT_INJECTION])?;
    cargo::hypervisor(&[cargo::GICV3])?;
    let guests = cargo::guests()?;
    println!(
        "the hypervisor and {} guests, in {}",
        guests.len(),
        seconds(started.elapsed())
    );
    Ok(Tally::PASSED)
}

/// Runs a command that passes or fails as a whole; what it says goes to the terminal.
fn check(mut command: Command) -> Result<Tally> {
    let name = command
        .get_args()
        .next()
        .map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    let status = command
        .stdin(Stdio::null())
        .status()
        .into_diagnostic()
        .wrap_err("cannot start cargo")?;
    let is_installed = || {
        Command::new("cargo")
            .args([&name, "--version"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    match name.as_str() {
        "fmt" | "clippy" if !status.success() && !is_installed() => {
            println!(
                "cargo {name} is missing; this installs it: rustup component add rustfmt clippy"
            );
        }
        "fmt" if !status.success() => println!("`cargo fmt --all` formats these files"),
        _ => {}
    }
    Ok(Tally::of(status.success()))
}
