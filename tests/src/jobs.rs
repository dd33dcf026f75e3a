//! A laboratory for tests of jobs: a cheap experiment, its jobs, and the output of each command.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// What counts as now: the date is the only part of a report that differs from one command to the
/// next.
const NOW: &str = "1700000000";

/// A benchmark of events: two boots, of six events and of one.
pub const BENCHMARKS: &str = r#"title = "two boots"
cpu = "cortex-a53"
[tolerance]
percent = 0.5
events = 100
[quantities]
none = 0
[[event]]
name = "INST_RETIRED"
counts = "executed"
because = "all instructions"
[[event]]
name = "CPU_CYCLES"
counts = "micros * cpu_mhz"
because = "the time"
[[event]]
name = "EXC_TAKEN"
counts = "none"
because = "no exceptions"
[[event]]
name = "EXC_RETURN"
counts = "none"
because = "no exceptions"
[[event]]
name = "L1D_CACHE_REFILL"
counts = "none"
because = "no data"
[[event]]
name = "L1D_CACHE_WB"
counts = "none"
because = "no data"
[[event]]
name = "BUS_ACCESS"
counts = "none"
because = "no data"
[[benchmark]]
name = "matrix-copy"
source = "guest-tools/workloads/src/bin/matrix-copy.rs"
workload = "matrix-copy"
args = [16384, 1]
runs_argument = 1
segment = 0
[benchmark.quantities]
micros = 400
[[benchmark.block]]
executed = 16_384
code = { LDR = 5, STR = 2, ALU = 13, B = 1 }
"#;

/// An experiment, a campaign, benchmarks of events or a configuration in its own directory, with boots that take
/// less than a second.
#[derive(Debug)]
pub struct Lab {
    home: TempDir,
    /// The command that runs it without jobs.
    command: &'static str,
    /// Options of both that command and `jobs`.
    options: Vec<&'static str>,
}

/// The end of a command.
#[derive(Debug)]
pub struct CommandResult {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub out: String,
    /// Its messages.
    pub err: String,
}

impl CommandResult {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Returns the words of the messages, without the frame around them.
    pub fn words(&self) -> Vec<&str> {
        self.err
            .split_whitespace()
            .filter(|word| !["│", "×", "╰─▶", "├─▶"].contains(word))
            .collect()
    }

    /// Returns whether its messages say this, wherever their lines end.
    pub fn says(&self, text: &str) -> bool {
        self.words()
            .concat()
            .contains(&text.split_whitespace().collect::<String>())
    }
}

impl Lab {
    fn of(command: &'static str, options: Vec<&'static str>) -> Self {
        let home = tempfile::tempdir().expect("a scratch directory");
        Self {
            home,
            command,
            options,
        }
    }

    /// Returns an experiment with this many runs.
    pub fn new(runs: u64) -> Self {
        Self::with_sizes(&(1..=runs).map(|run| run * 1024).collect::<Vec<_>>())
    }

    /// Returns an experiment with one run for each size of the victim's buffer, in bytes.
    pub fn with_sizes(sizes: &[u64]) -> Self {
        let lab = Self::of("experiment", vec![]);
        let system = installation::root().join("configs/experiments/systems/memory.toml");
        let text = format!(
            "title = 'Many cheap boots'\nsystem = '{}'\nwarm_up = 1\n\
             guards = ['alone.cycles >= 1']\n[[variant]]\nname = 'alone'\n\
             remove = ['vm.other-1', 'vm.other-2', 'vm.other-3']\n\
             set = {{ 'vm.victim.image.workload' = 'latency', 'vm.victim.args' = ['{{bytes}}', 1, 1, 2] }}\n\
             [[variant.axis]]\nname = 'bytes'\nvalues = {sizes:?}\n",
            system.display()
        );
        fs::write(lab.file(), text).expect("an experiment");
        lab
    }

    /// Returns a campaign with this many seeds. Each seed needs two boots: for MUCH's plan and for
    /// HRM's.
    pub fn campaign(seeds: u64) -> Self {
        let lab = Self::of("campaign", vec![]);
        let root = installation::root();
        let text = format!(
            "title = 'A small campaign'\nsystem = '{}'\nboard = 'virt'\nmodel = '{}'\n\
             victim = 'victim'\n\
             events = ['INST_RETIRED', 'CPU_CYCLES', 'LD_RETIRED', 'L1D_CACHE']\ncounters = 3\n\
             anchor = 'CPU_CYCLES'\n\
             runs = 3\nvary = 1\nseed = 1\n\
             seeds = {seeds}\n[[workload]]\nname = 'chase'\n\
             remove = ['vm.interf-1', 'vm.interf-2', 'vm.interf-3']\n\
             [workload.set]\n'vm.victim.image.workload' = 'latency'\n\
                 'vm.victim.args' = ['2K', 1, 0, 1]\n",
            root.join("configs/campaigns/systems/shared.toml").display(),
            root.join("configs/models/zcu102.toml").display(),
        );
        fs::write(lab.file(), text).expect("a campaign");
        lab
    }

    /// Returns a configuration to tune: a VM with a tolerance, which may have any number of colors,
    /// beside one of best effort. Which runs there are depends on what others measured.
    pub fn tune() -> Self {
        let lab = Self::of("tune", vec![]);
        let vm = |name: &str, core: u32, rest: &str| {
            format!(
                "[[vm]]\nname = '{name}'\ncores = [{core}]\nservices = ['hem']\n{rest}\
                 [[vm.region]]\nname = 'ram'\nipa = 0x4000_0000\nsize = '16M'\npool = 'shared'\n"
            )
        };
        let text = format!(
            "name = 'many'\nends_with = 'victim'\n[hypervisor]\ncolors = '15'\n\
             [[pool]]\nname = 'shared'\nkind = 'SH'\ncolors = '0-14'\n{}{}",
            vm(
                "victim",
                0,
                "image = { workload = 'latency' }\nargs = ['64K', 1, 0, 3]\n\
                 tolerance = '1.10'\ntune = ['colors']\n"
            ),
            vm(
                "other",
                1,
                "image = { workload = 'interf' }\nargs = ['420K', 0]\n\
                 best_effort = true\n"
            ),
        );
        fs::write(lab.file(), text).expect("a configuration");
        lab
    }

    /// Returns a configuration of whose VM pages are profiled, with more options: which runs there are
    /// depends on what others measured.
    pub fn profile(more: &[&'static str]) -> Self {
        let fixed = [
            "--vm",
            "staircase",
            "--flags",
            "h",
            "--pages",
            "ram:256-295",
            "--block",
            "20",
            "--covered",
            "0",
        ];
        let lab = Self::of("bbprof", [&fixed, more].concat());
        let system = installation::root().join("tests/configs/bbprof/staircase.toml");
        fs::copy(system, lab.file()).expect("a configuration");
        lab
    }

    /// Returns benchmarks whose counts give verdicts on events.
    pub fn benchmarks() -> Self {
        let lab = Self::of("events", vec![]);
        fs::write(lab.file(), BENCHMARKS).expect("benchmarks");
        lab
    }

    /// Returns a path in the laboratory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns the file of the experiment, the campaign or the configuration.
    pub fn file(&self) -> PathBuf {
        self.path("many.toml")
    }

    /// Writes a program.
    pub fn program(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("a program");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its rights");
    }

    /// Returns a command of `cloison`, in the checkout, with these variables.
    pub fn command(&self, args: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(crate::program());
        command
            .args(args)
            .current_dir(installation::root())
            .env("NO_COLOR", "1")
            .env("SOURCE_DATE_EPOCH", NOW);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        command
    }

    /// Runs a command of `cloison` as the argument of another command, after this word.
    pub fn behind(
        &self,
        before: &[&str],
        word: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> CommandResult {
        let inner = self.command(args, variables);
        let mut command = Command::new(before[0]);
        command
            .args(&before[1..])
            .arg(word)
            .arg(inner.get_program())
            .args(inner.get_args());
        command
            .current_dir(installation::root())
            .stdin(Stdio::null());
        command.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        CommandResult::of(&command.output().expect("the command starts"))
    }

    /// Runs a command of `cloison`.
    pub fn cloison(&self, args: &[&str], variables: &[(&str, &str)]) -> CommandResult {
        CommandResult::of(
            &self
                .command(args, variables)
                .output()
                .expect("the command starts"),
        )
    }

    /// Runs a command of `cloison` that must succeed.
    #[track_caller]
    pub fn good(&self, args: &[&str]) -> CommandResult {
        let done = self.cloison(args, &[]);
        assert_eq!(done.code, 0, "cloison {args:?}: {done:?}");
        done
    }

    /// Runs it without jobs. Returns the directory of its report.
    #[track_caller]
    pub fn serial(&self) -> PathBuf {
        let out = self.path("serial");
        let (file, to) = (self.file().display().to_string(), out.display().to_string());
        self.good(&[&[self.command, &file, "--out", &to], &self.options[..]].concat());
        out
    }

    /// Makes the jobs. Returns their directory.
    #[track_caller]
    pub fn jobs(&self, name: &str) -> PathBuf {
        self.jobs_with(name, &[])
    }

    /// Makes the jobs, with these options too. Returns their directory.
    #[track_caller]
    pub fn jobs_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let directory = self.path(name);
        let (file, to) = (
            self.file().display().to_string(),
            directory.display().to_string(),
        );
        self.good(&[&["jobs", &file, "-o", &to], &self.options[..], options].concat());
        directory
    }

    /// Runs a job.
    pub fn run(&self, directory: &Path, number: usize) -> CommandResult {
        self.cloison(
            &[
                "job",
                "run",
                &directory.display().to_string(),
                &number.to_string(),
            ],
            &[],
        )
    }

    /// Collects the results of jobs.
    pub fn collect(&self, directory: &Path) -> CommandResult {
        self.cloison(&["collect", &directory.display().to_string()], &[])
    }

    /// Returns the key of a job.
    pub fn key(&self, directory: &Path, number: usize) -> String {
        let list = fs::read_to_string(directory.join("jobs.jsonl")).expect("the list of jobs");
        let line = list.lines().nth(number - 1).expect("the job's line");
        let after = line.split("\"key\":\"").nth(1).expect("its key");
        after.split('"').next().expect("its key").to_owned()
    }
}

/// All files of a report, with their contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Report(BTreeMap<PathBuf, Vec<u8>>);

impl Report {
    /// Reads the files of a directory, except those that claim it.
    pub fn of(directory: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut directories = vec![directory.to_path_buf()];
        while let Some(next) = directories.pop() {
            for entry in fs::read_dir(&next).expect("a report").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                } else if entry.file_name() != ".owner" {
                    let name = path
                        .strip_prefix(directory)
                        .expect("it is inside")
                        .to_path_buf();
                    files.insert(name, fs::read(&path).expect("a file"));
                }
            }
        }
        Self(files)
    }
}

/// Compares two reports byte for byte: pages, figures, tables, and each run's result and logs.
#[track_caller]
pub fn identical(one: &Report, other: &Report) {
    assert!(
        one.0.contains_key(Path::new("figures.json")),
        "there is no report"
    );
    let names = |report: &Report| report.0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(other));
    for (name, bytes) in &one.0 {
        assert!(other.0[name] == *bytes, "{} differs", name.display());
    }
}
