//! Jobs through real engines, each installed here: `cargo xtask test engines`; two of them in every
//! test run.
//!
//! Every engine runs an experiment and a campaign, once in peace and once with a fifth of the jobs
//! killed, a full disk and a machine that goes down in the middle. Each time the report is that of
//! a run without jobs, byte for byte.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::setup::programs::{PARALLEL, PYTHON, SLURM};
use cloison_lab::boards::result;
use cloison_tests::jobs::{CommandResult, Lab, Report, identical};
use cloison_tests::namespace;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The job whose machine has a full disk.
const FULL: usize = 2;
/// How long a test waits for what ends by itself.
const PATIENCE: Duration = Duration::from_secs(600);
/// In this variable, all processes of a machine that goes down have its name.
const MACHINE: &str = "CLOISON_TEST_MACHINE";

/// What is run without jobs, for comparison, and through engines.
struct Study {
    name: &'static str,
    lab: Lab,
    serial: PathBuf,
    jobs: usize,
}

impl Study {
    fn new(name: &'static str, lab: Lab, jobs: usize) -> Self {
        let started = Instant::now();
        let serial = lab.serial();
        println!(
            "{name} without jobs: {:.0} s",
            started.elapsed().as_secs_f64()
        );
        Self {
            name,
            lab,
            serial,
            jobs,
        }
    }

    /// Makes its jobs, for an engine.
    fn jobs(&self, name: &str) -> PathBuf {
        let directory = self.lab.jobs(name);
        let list = fs::read_to_string(directory.join("jobs.jsonl")).expect("the list of jobs");
        assert_eq!(list.lines().count(), self.jobs);
        directory
    }
}

static EXPERIMENT: LazyLock<Study> = LazyLock::new(|| Study::new("experiment", Lab::new(200), 200));
static CAMPAIGN: LazyLock<Study> =
    LazyLock::new(|| Study::new("campaign", Lab::campaign(100), 200));
/// For every test run: on two cores, six rounds of jobs.
static SMALL_EXPERIMENT: LazyLock<Study> =
    LazyLock::new(|| Study::new("small experiment", Lab::new(12), 12));
static SMALL_CAMPAIGN: LazyLock<Study> =
    LazyLock::new(|| Study::new("small campaign", Lab::campaign(10), 20));

/// An engine, as `cloison submit` starts it.
struct Engine<'a> {
    name: &'a str,
    /// Options of `submit`.
    options: &'a [&'a str],
    /// Arguments for the engine's command.
    arguments: &'a [&'a str],
    variables: Vec<(&'a str, String)>,
    /// Waits for the end, where the engine's command does not.
    wait: &'a dyn Fn(),
}

impl<'a> Engine<'a> {
    fn new(name: &'a str) -> Self {
        Self {
            name,
            options: &[],
            arguments: &[],
            variables: vec![],
            wait: &|| (),
        }
    }

    fn submit(
        &self,
        lab: &Lab,
        directory: &Path,
        further: &[&str],
        variables: &[(&str, &str)],
    ) -> CommandResult {
        let directory = directory.display().to_string();
        let own = ["submit", &directory, "--engine", self.name];
        let words = [&own, self.options, further, &["--"], self.arguments].concat();
        let set = self
            .variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let done = lab.cloison(
            &words,
            &set.chain(variables.iter().copied()).collect::<Vec<_>>(),
        );
        (self.wait)();
        done
    }
}

/// Returns a command that gives another its own disk, which may be small; as root where ordinary
/// users may not.
fn own_mounts() -> &'static str {
    namespace::first_allowed(&[
        "unshare --user --map-root-user --mount",
        "unshare --mount",
        "sudo -n -E unshare --mount",
    ])
    .expect("a way to mount a small disk")
}

/// Writes a program that runs jobs as `cloison` does, but kills a fifth of them at some moment, and
/// gives one a full disk, until there is a file `calm`. It notes which ones it kills. All of this
/// is in a directory.
fn disturber(place: &Path, lab: &Lab) -> PathBuf {
    let file = place.join("disturber");
    let full = place.join("full");
    fs::create_dir_all(&full).expect("a directory");
    let text = format!(
        r#"#!/bin/sh
cloison='{}'
chance=$(printf 'job %s' "$4" | cksum | cut -d' ' -f1)
if [ ! -e '{}' ]; then
    if [ "$4" = {FULL} ]; then
        exec {} sh -c \
            'mount -t tmpfs -o size=100k none "$0" && TMPDIR="$0" exec "$@"' '{}' "$cloison" "$@"
    fi
    if [ $((chance % 5)) = 0 ]; then
        "$cloison" "$@" &
        job=$!
        sleep 0.$((chance / 5 % 4))
        kill -9 $job && echo "$4" >> '{}'
        wait $job
        exit 137
    fi
fi
exec "$cloison" "$@"
"#,
        cloison_tests::program().display(),
        place.join("calm").display(),
        own_mounts(),
        full.display(),
        place.join("killed").display(),
    );
    lab.program(&file, &text);
    file
}

/// Runs all jobs in peace.
fn in_peace(engine: &Engine<'_>, study: &Study) {
    let Study {
        name,
        lab,
        serial,
        jobs,
    } = study;
    let started = Instant::now();
    let directory = study.jobs(engine.name);
    let submitted = engine.submit(lab, &directory, &[], &[]);
    println!(
        "{}, {name}: {jobs} jobs in {:.0} s",
        engine.name,
        started.elapsed().as_secs_f64()
    );
    let collected = lab.collect(&directory);
    assert_eq!(
        (submitted.code, collected.code),
        (0, 0),
        "{submitted:?}\n{collected:?}"
    );
    identical(&Report::of(serial), &Report::of(&directory.join("report")));
    let again = engine.submit(lab, &directory, &[], &[]);
    assert!(
        again.code == 0
            && again
                .out
                .contains(&format!("all {jobs} jobs have a result")),
        "{again:?}"
    );
}

/// Runs all jobs with disturbances, of which the last is done when so many tenths of them have a
/// result; then without.
fn disturbed(engine: &Engine<'_>, study: &Study, tenths: usize, strike: impl FnOnce(&str) + Send) {
    let Study {
        name,
        lab,
        serial,
        jobs,
    } = study;
    let directory = study.jobs(&format!("{}-disturbed", engine.name));
    let place = lab.path(&format!("{}-disturbance", engine.name));
    let program = disturber(&place, lab).display().to_string();
    let results = directory.join("results");
    let done = || {
        fs::read_dir(&results)
            .into_iter()
            .flatten()
            .flatten()
            .count()
    };
    let note = directory
        .join("failed")
        .join(format!("{}.txt", lab.key(&directory, FULL)));
    let machine = directory.display().to_string();
    let submitted = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            // An engine takes jobs in any order.
            while done() < jobs * tenths / 10 || !note.exists() {
                assert!(started.elapsed() < PATIENCE, "{} of {jobs} jobs", done());
                std::thread::sleep(Duration::from_millis(20));
            }
            strike(&machine);
        });
        engine.submit(
            lab,
            &directory,
            &["--program", &program],
            &[(MACHINE, &machine)],
        )
    });
    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 75, "{submitted:?}\n{collected:?}");
    // Progress may have been reported before it.
    let of_all = ["of".to_owned(), jobs.to_string()];
    let missing: usize = collected
        .words()
        .windows(3)
        .find(|words| words[1..] == of_all)
        .and_then(|words| words[0].parse().ok())
        .unwrap_or_default();
    let killed = fs::read_to_string(place.join("killed")).unwrap_or_default();
    let mut killed: Vec<&str> = killed.lines().collect();
    killed.sort_unstable();
    killed.dedup();
    println!(
        "{}, {name}: {} jobs killed; {missing} of {jobs} have no result",
        engine.name,
        killed.len()
    );
    assert!(
        killed.len() >= jobs / 20 && missing > killed.len() / 2 && missing < *jobs,
        "{submitted:?}\n{collected:?}"
    );
    let note = fs::read_to_string(note).expect("the reason");
    assert!(
        note.contains("No space left on device") || note.contains("cannot be written to"),
        "{note}"
    );

    // A result of another experiment is refused by name, by collect and by submit.
    let other = Lab::with_sizes(&[1 << 20]);
    let elsewhere = other.jobs("elsewhere");
    assert_eq!(other.run(&elsewhere, 1).code, 0);
    let foreign = format!("{}.result", other.key(&elsewhere, 1));
    let smuggled = results.join(&foreign);
    fs::copy(elsewhere.join("results").join(&foreign), &smuggled).expect("copied");
    for refused in [
        lab.collect(&directory),
        engine.submit(lab, &directory, &["--program", &program], &[]),
    ] {
        assert!(refused.code == 1 && refused.says(&foreign), "{refused:?}");
    }
    fs::remove_file(&smuggled).expect("removed");

    fs::write(place.join("calm"), "").expect("a file");
    let submitted = engine.submit(lab, &directory, &["--program", &program], &[]);
    let collected = lab.collect(&directory);
    assert_eq!(
        (submitted.code, collected.code),
        (0, 0),
        "{submitted:?}\n{collected:?}"
    );
    identical(&Report::of(serial), &Report::of(&directory.join("report")));
    println!("{}, {name}: identical after a second submit", engine.name);
}

/// Ends all processes that have one of these texts in their variables, as a machine does that goes
/// down.
fn go_down(texts: &[&str]) {
    let is_of_it = |process: &Path| {
        let variables = fs::read(process.join("environ")).unwrap_or_default();
        variables
            .split(|&byte| byte == 0)
            .any(|variable| texts.iter().any(|text| variable == text.as_bytes()))
    };
    let mut ended = 0;
    // A process may start another while they are listed.
    for _ in 0..5 {
        let processes = fs::read_dir("/proc")
            .expect("processes")
            .flatten()
            .map(|entry| entry.path());
        let numbers = processes.filter(|process| is_of_it(process));
        let numbers: Vec<_> = numbers
            .filter_map(|process| process.file_name().map(ToOwned::to_owned))
            .collect();
        ended += numbers.len();
        if !numbers.is_empty() {
            // One that has ended meanwhile is no error.
            let _ = Command::new("sh")
                .args(["-c", "kill -9 \"$@\"", "kill"])
                .args(numbers)
                .stderr(Stdio::null())
                .status();
        }
    }
    assert!(ended > 0, "nothing ran");
}

/// The machine on which `submit` and all jobs run goes down.
fn this_machine(name: &str) {
    go_down(&[&format!("{MACHINE}={name}")]);
}

/// Everything, for an engine whose jobs run on the machine of `submit`.
fn through(engine: &Engine<'_>) {
    for study in [&*EXPERIMENT, &*CAMPAIGN] {
        in_peace(engine, study);
        disturbed(engine, study, 6, this_machine);
    }
}

/// As [`through`], in less time.
fn quickly_through(engine: &Engine<'_>) {
    in_peace(engine, &SMALL_EXPERIMENT);
    disturbed(engine, &SMALL_CAMPAIGN, 5, this_machine);
}

/// Returns the PATH with Python's packages of these names, which are installed below `target`.
fn python(packages: &[&str]) -> String {
    let environment = installation::target_dir().join("engines");
    let run = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).status().expect("it starts");
        assert!(status.success(), "{command:?}: {status}");
    };
    let bin = environment.join("bin");
    PYTHON.ensure().expect("Python");
    if !bin.join("pip").is_file() {
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment));
    }
    run(Command::new(bin.join("python"))
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(packages));
    format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").expect("a PATH")
    )
}

/// In less time, for every test run. The runs without jobs are made once, because a module's tests
/// share a process.
mod quickly {
    use super::{Engine, PARALLEL, hyperqueue_here, quickly_through};

    #[test]
    fn parallel() {
        PARALLEL.ensure().expect("GNU parallel");
        quickly_through(&Engine::new("parallel"));
    }

    #[test]
    fn hyperqueue() {
        quickly_through(&hyperqueue_here());
    }
}

#[test]
#[ignore = "takes minutes: run it on demand"]
fn parallel() {
    PARALLEL.ensure().expect("GNU parallel");
    through(&Engine::new("parallel"));
}

#[test]
#[ignore = "installs Snakemake: run it on demand"]
fn snakemake() {
    let variables = vec![("PATH", python(&["snakemake"]))];
    through(&Engine {
        arguments: &["--quiet", "all"],
        variables,
        ..Engine::new("snakemake")
    });
}

#[test]
#[ignore = "takes minutes: run it on demand"]
fn hyperqueue() {
    through(&hyperqueue_here());
}

/// Each round of runs is submitted, and the answer is that of `tune` alone.
#[test]
#[ignore = "starts a server for each round: run it on demand"]
fn a_configuration_is_tuned_through_hyperqueue() {
    let (lab, engine) = (Lab::tune(), hyperqueue_here());
    let serial = lab.serial();
    let directory = lab.jobs("hyperqueue");
    for round in 1.. {
        let submitted = engine.submit(&lab, &directory, &[], &[]);
        assert_eq!(submitted.code, 0, "{submitted:?}");
        let collected = lab.collect(&directory);
        if collected.code == 0 {
            println!("{round} rounds");
            break;
        }
        assert!(collected.code == 75 && round < 20, "{collected:?}");
    }
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));
}

fn hyperqueue_here() -> Engine<'static> {
    Engine {
        variables: vec![("PATH", python(&["hyperqueue"]))],
        ..Engine::new("hyperqueue")
    }
}

/// Slurm on this machine: a controller and two nodes with a core each, with their own key and
/// files, which end with this.
struct Slurm {
    home: tempfile::TempDir,
    daemons: Mutex<Vec<Child>>,
}

/// The nodes; the second one goes down.
const NODES: [&str; 2] = ["cloison-1", "cloison-2"];

impl Slurm {
    fn new() -> Self {
        SLURM.ensure().expect("Slurm");
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().display().to_string();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host.trim();
        let listeners = [(), (), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [control, first, second] =
            listeners.map(|one| one.local_addr().expect("its address").port());
        let node = |name: &str, port: u16| {
            format!("NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n")
        };
        let configuration = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\n\
             SlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={place}/munge,cred_expire=5\n\
             StateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool-%n\n\
             SlurmctldPidFile={place}/slurmctld.pid\n\
             SlurmdPidFile={place}/slurmd-%n.pid\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\n\
             SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1\n\
             KillWait=1\nReturnToService=2\nMpiDefault=none\n{}{}\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            node(NODES[0], first),
            node(NODES[1], second),
        );
        fs::write(home.path().join("slurm.conf"), configuration).expect("a configuration");
        fs::write(home.path().join("key"), (0..128).collect::<Vec<u8>>()).expect("a key");
        let slurm = Self {
            home,
            daemons: Mutex::default(),
        };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(slurm.home.path().join("key"), mode).expect("its rights");
        let own = |name: &str| format!("--{name}={place}/{name}");
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={place}/key"),
        ];
        let files = [
            format!("--socket={place}/munge"),
            own("pid-file"),
            own("log-file"),
            own("seed-file"),
        ];
        slurm.start("munged", &[&munge[..], &files].concat());
        slurm.start("slurmctld", &["-D".to_owned(), "-i".to_owned()]);
        for node in NODES {
            slurm.keep(start_node(slurm.home.path(), node, &[]));
        }
        let until = Instant::now() + Duration::from_secs(60);
        while slurm
            .command("sinfo", &["-h", "-N", "-o", "%T"])
            .matches("idle")
            .count()
            < NODES.len()
        {
            assert!(Instant::now() < until, "the nodes do not come up");
            std::thread::sleep(Duration::from_millis(500));
        }
        slurm
    }

    /// Ends a daemon with this.
    fn keep(&self, daemon: Child) {
        self.daemons
            .lock()
            .expect("no test has failed meanwhile")
            .push(daemon);
    }

    fn start(&self, program: &str, arguments: &[String]) {
        let command = daemon(self.home.path(), program, program);
        self.keep(spawn(command, arguments));
        // Each needs the one before it.
        std::thread::sleep(Duration::from_secs(2));
    }

    fn command(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", conf(self.home.path()))
            .output();
        String::from_utf8_lossy(&output.expect("it starts").stdout).into_owned()
    }

    /// Waits until no job is queued or runs.
    fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let queued = self.command("squeue", &["-h", "-r", "-o", "%i %T %r"]);
            if queued.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "still queued: {queued}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

fn conf(home: &Path) -> PathBuf {
    home.join("slurm.conf")
}

fn daemon(home: &Path, program: &str, name: &str) -> Command {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(home.join(format!("{name}.out")))
        .expect("a log");
    let mut command = Command::new(program);
    command.env("SLURM_CONF", conf(home)).stdin(Stdio::null());
    command
        .stdout(log.try_clone().expect("the log"))
        .stderr(log);
    command
}

fn spawn(mut command: Command, arguments: &[String]) -> Child {
    command
        .args(arguments)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The variable that the node's processes have.
fn of_node(home: &Path, node: &str) -> String {
    format!("{}-{node}", home.display())
}

fn start_node(home: &Path, node: &str, further: &[&str]) -> Child {
    let mut command = daemon(home, "slurmd", &format!("slurmd-{node}"));
    command.env(MACHINE, of_node(home, node));
    let arguments: Vec<String> = ["-D", "-N", node]
        .iter()
        .chain(further)
        .map(|&word| word.to_owned())
        .collect();
    spawn(command, &arguments)
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let daemons = self
            .daemons
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for daemon in daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
#[ignore = "installs Slurm, and starts it as root: run it on demand"]
fn slurm() {
    let slurm = Slurm::new();
    let home = slurm.home.path().to_path_buf();
    let variables = vec![("SLURM_CONF", conf(&home).display().to_string())];
    let wait = || slurm.wait();
    let engine = Engine {
        options: &["--chunk", "10"],
        variables,
        wait: &wait,
        ..Engine::new("slurm")
    };
    for study in [&*EXPERIMENT, &*CAMPAIGN] {
        in_peace(&engine, study);
        // Daemon, its steps and its jobs end at once; when the node is back, it says that it was
        // started again.
        let restart = |_: &str| {
            go_down(&[
                &format!("{MACHINE}={}", of_node(&home, NODES[1])),
                &format!("SLURMD_NODENAME={}", NODES[1]),
            ]);
            std::thread::sleep(Duration::from_secs(3));
            slurm.keep(start_node(&home, NODES[1], &["-b"]));
        };
        disturbed(&engine, study, 2, restart);
    }
}

/// Reads a manifest for Kubernetes against its schema, and a submit file with the library of
/// HTCondor.
const READER: &str = r#"
import json, sys
import classad2, htcondor2, kubernetes_validate, yaml
submit, jobs, directory = sys.argv[1:]
with open(f"{submit}/kubernetes.yaml") as text:
    [job] = yaml.safe_load_all(text)
kubernetes_validate.validate(job, "1.33", strict=True)
assert (job["spec"]["completions"], job["spec"]["backoffLimitPerIndex"]) == (int(jobs), 3)
job["spec"]["completion"] = "Indexed"
try:
    kubernetes_validate.validate(job, "1.33", strict=True)
    sys.exit("the schema takes anything")
except kubernetes_validate.ValidationError:
    pass
with open(f"{submit}/htcondor.sub") as text:
    task = htcondor2.Submit(text.read())
assert task.getQArgs() == jobs, task.getQArgs()
assert task.expand("arguments") == f"\"job run '{directory}' 1\"", task.expand("arguments")
again = classad2.ExprTree(task["retry_until"])
ends = [again.eval(classad2.ClassAd({"ExitCode": code})) for code in (0, 1, 75)]
assert ends == [True, True, False], ends
print("kubernetes.yaml and htcondor.sub are as Kubernetes 1.33 and HTCondor read them")
"#;

#[test]
#[ignore = "installs the readers of other engines: run it on demand"]
fn templates() {
    let lab = Lab::new(3);
    let directory = lab.jobs("jobs");
    python(&["kubernetes-validate", "htcondor"]);
    for name in ["sge", "htcondor", "kubernetes"] {
        let done = Engine::new(name).submit(&lab, &directory, &["--write"], &[]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let submit = directory.join("submit");
    let mut shell = Command::new("sh");
    assert!(
        shell
            .arg("-n")
            .arg(submit.join("sge.sh"))
            .status()
            .expect("a shell")
            .success()
    );
    let mut python = Command::new(installation::target_dir().join("engines/bin/python"));
    python
        .args(["-c", READER])
        .arg(submit)
        .arg("3")
        .arg(&directory);
    assert!(python.status().expect("Python").success());
}

/// Prints what a job costs beside its QEMU, and how much faster two cores are than one. Only
/// figures of an idle machine mean anything, so nothing is expected of them.
#[test]
#[ignore = "measures time: run it alone on an idle machine"]
fn costs() {
    let lab = Lab::new(24);
    let directory = lab.jobs("jobs");
    let mut beside: Vec<f64> = (1..=24)
        .map(|number| {
            let started = Instant::now();
            assert_eq!(lab.run(&directory, number).code, 0);
            let wall = started.elapsed().as_secs_f64();
            let file = directory
                .join("results")
                .join(format!("{}.result", lab.key(&directory, number)));
            wall - result::head(&file).expect("a result").seconds
        })
        .collect();
    beside.sort_by(f64::total_cmp);
    let ms = |seconds: f64| (seconds * 1000.0).round();
    let (median, most) = (ms((beside[11] + beside[12]) / 2.0), ms(beside[23]));
    println!("a job beside its QEMU: median {median} ms, at most {most} ms, of 24 jobs");

    // Many, beside which what both do once is little.
    let lab = Lab::new(100);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut seconds = vec![];
    for (name, prefix) in [
        ("one", vec!["taskset", "-c", "0"]),
        ("two", vec!["taskset", "-c", "0,1"]),
    ] {
        let out = lab.path(name).display().to_string();
        let file = lab.file().display().to_string();
        let started = Instant::now();
        let done = lab.behind(
            &prefix[..2],
            prefix[2],
            &["experiment", &file, "--out", &out],
            &[],
        );
        assert_eq!(done.code, 0, "{done:?}");
        seconds.push(started.elapsed().as_secs_f64());
    }
    println!(
        "100 runs: {:.1} s on one core, {:.1} s on two of {cores}: {:.2} times as fast",
        seconds[0],
        seconds[1],
        seconds[0] / seconds[1]
    );
}
