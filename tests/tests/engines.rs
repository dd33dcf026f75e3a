//! Jobs through real engines, each installed here: `cargo xtask test engines`.
//!
//! Every engine runs the jobs once in peace and once with a fifth of them killed, a full disk and, where there are nodes, one
//! that goes down. Each time the report is that of a run without jobs, byte for byte.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::setup::programs::{PARALLEL, SLURM};
use cloison_tests::jobs::{Done, Lab, Report, identical};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How many jobs each engine runs.
const JOBS: u64 = 200;
/// The job whose machine has a full disk.
const FULL: usize = 7;

/// The experiment and its report without jobs.
static SERIAL: LazyLock<(Lab, PathBuf)> = LazyLock::new(|| {
    let lab = Lab::new(JOBS);
    let started = Instant::now();
    let report = lab.serial();
    println!("without jobs: {:.0} s", started.elapsed().as_secs_f64());
    (lab, report)
});

/// An engine, as `cloison submit` starts it.
struct Engine<'a> {
    name: &'a str,
    arguments: &'a [&'a str],
    variables: Vec<(&'a str, String)>,
}

impl Engine<'_> {
    fn submit(&self, lab: &Lab, directory: &Path, program: Option<&Path>) -> Done {
        let directory = directory.display().to_string();
        let mut words = vec!["submit".to_owned(), directory, "--engine".to_owned(), self.name.to_owned()];
        if let Some(program) = program {
            words.extend(["--program".to_owned(), program.display().to_string()]);
        }
        words.push("--".to_owned());
        words.extend(self.arguments.iter().map(|argument| (*argument).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        lab.cloison(&words, &variables)
    }
}

/// Writes a program that runs jobs as `cloison` does, but kills a fifth of them at some moment, and gives one a full disk,
/// until the laboratory has a file `calm`.
fn disturber(lab: &Lab) -> PathBuf {
    let file = lab.path("disturber");
    let full = lab.path("full");
    fs::create_dir_all(&full).expect("a directory");
    let text = format!(
        r#"#!/bin/sh
cloison='{}'
chance=$(printf 'job %s' "$4" | cksum | cut -d' ' -f1)
if [ ! -e '{}' ]; then
    if [ "$4" = {FULL} ]; then
        exec unshare --user --map-root-user --mount sh -c \
            'mount -t tmpfs -o size=100k none "$0" && TMPDIR="$0" exec "$@"' '{}' "$cloison" "$@"
    fi
    if [ $((chance % 5)) = 0 ]; then
        "$cloison" "$@" &
        job=$!
        sleep 0.$((chance / 5 % 4))
        kill -9 $job
        wait $job
        exit 137
    fi
fi
exec "$cloison" "$@"
"#,
        cloison_tests::program().display(),
        lab.path("calm").display(),
        full.display(),
    );
    lab.program(&file, &text);
    file
}

/// Runs all jobs in peace, and then with disturbances; `meanwhile` is done while the disturbed ones run.
fn through(engine: &Engine<'_>, meanwhile: impl FnOnce() + Send + 'static) {
    let (lab, serial) = &*SERIAL;
    let serial = Report::of(serial);
    let started = Instant::now();
    let directory = lab.jobs(engine.name);
    let submitted = engine.submit(lab, &directory, None);
    println!("{}: {JOBS} jobs in {:.0} s", engine.name, started.elapsed().as_secs_f64());
    let collected = lab.collect(&directory);
    assert_eq!((submitted.code, collected.code), (0, 0), "{submitted:?}\n{collected:?}");
    identical(&serial, &Report::of(&directory.join("report")));
    let again = engine.submit(lab, &directory, None);
    assert!(again.code == 0 && again.out.contains("all 200 jobs have a result"), "{again:?}");

    let directory = lab.jobs(&format!("{}-disturbed", engine.name));
    let (program, calm) = (disturber(lab), lab.path("calm"));
    let _ = fs::remove_file(&calm);
    let disturbance = std::thread::spawn(meanwhile);
    let submitted = engine.submit(lab, &directory, Some(&program));
    disturbance.join().expect("it ends");
    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 75, "{submitted:?}\n{collected:?}");
    let missing: u64 = collected.words().get(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    println!("{}: {missing} of {JOBS} jobs have no result after the disturbance", engine.name);
    assert!((10..=60).contains(&missing), "{collected:?}");
    let note = directory.join("failed").join(format!("{}.txt", lab.key(&directory, FULL)));
    let note = fs::read_to_string(note).expect("the reason");
    assert!(note.contains("No space left on device") || note.contains("cannot be written to"), "{note}");

    // A result of another experiment is refused by name, by collect and by submit.
    let other = Lab::with_sizes(&[1 << 20]);
    let elsewhere = other.jobs("elsewhere");
    assert_eq!(other.run(&elsewhere, 1).code, 0);
    let name = format!("{}.result", other.key(&elsewhere, 1));
    let smuggled = directory.join("results").join(&name);
    fs::copy(elsewhere.join("results").join(&name), &smuggled).expect("copied");
    for refused in [lab.collect(&directory), engine.submit(lab, &directory, Some(&program))] {
        assert!(refused.code == 1 && refused.says(&name), "{refused:?}");
    }
    fs::remove_file(&smuggled).expect("removed");

    fs::write(&calm, "").expect("a file");
    let submitted = engine.submit(lab, &directory, Some(&program));
    let collected = lab.collect(&directory);
    assert_eq!((submitted.code, collected.code), (0, 0), "{submitted:?}\n{collected:?}");
    identical(&serial, &Report::of(&directory.join("report")));
    println!("{}: identical after a second submit", engine.name);
}

/// Returns the PATH with Python's packages of these names, which are installed below `target`.
fn python(packages: &[&str]) -> String {
    let environment = installation::target_dir().join("engines");
    let run = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).status().expect("it starts");
        assert!(status.success(), "{command:?}: {status}");
    };
    let bin = environment.join("bin");
    if !bin.join("pip").is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    }
    run(Command::new(bin.join("pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(packages));
    format!("{}:{}", bin.display(), std::env::var("PATH").expect("a PATH"))
}

#[test]
#[ignore = "installs GNU parallel: run it on demand"]
fn parallel() {
    PARALLEL.ensure().expect("GNU parallel");
    through(&Engine { name: "parallel", arguments: &[], variables: vec![] }, || ());
}

#[test]
#[ignore = "installs Snakemake: run it on demand"]
fn snakemake() {
    let variables = vec![("PATH", python(&["snakemake"]))];
    through(&Engine { name: "snakemake", arguments: &["--quiet", "all"], variables }, || ());
}

#[test]
#[ignore = "installs HyperQueue: run it on demand"]
fn hyperqueue() {
    let variables = vec![("PATH", python(&["hyperqueue"]))];
    through(&Engine { name: "hyperqueue", arguments: &[], variables }, || ());
}

/// Slurm on this machine: its daemons with their own key and files, which end with this.
struct Slurm {
    home: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    fn new() -> Self {
        SLURM.ensure().expect("Slurm");
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().display().to_string();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host.trim();
        let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [control, node] = listeners.map(|one| one.local_addr().expect("its address").port());
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let configuration = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\nSlurmdPort={node}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={place}/munge,cred_expire=5\n\
             StateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool\nSlurmctldPidFile={place}/slurmctld.pid\n\
             SlurmdPidFile={place}/slurmd.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             ReturnToService=2\nMpiDefault=none\nNodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cores}\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(home.path().join("slurm.conf"), configuration).expect("a configuration");
        fs::write(home.path().join("key"), (0..128).collect::<Vec<u8>>()).expect("a key");
        let mut slurm = Self { home, daemons: vec![] };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(slurm.home.path().join("key"), mode).expect("its rights");
        let own = |name: &str| format!("--{name}={place}/{name}");
        let munge = ["--foreground".to_owned(), "--force".to_owned(), format!("--key-file={place}/key")];
        let files = [format!("--socket={place}/munge"), own("pid-file"), own("log-file"), own("seed-file")];
        slurm.start("munged", &[&munge[..], &files].concat());
        slurm.start("slurmctld", &["-D".to_owned(), "-i".to_owned()]);
        slurm.start("slurmd", &["-D".to_owned(), "-N".to_owned(), "node".to_owned()]);
        let until = Instant::now() + Duration::from_secs(60);
        while !slurm.command("sinfo", &["-h", "-o", "%T"]).contains("idle") {
            assert!(Instant::now() < until, "the node does not come up");
            std::thread::sleep(Duration::from_millis(500));
        }
        slurm
    }

    fn configuration(&self) -> String {
        self.home.path().join("slurm.conf").display().to_string()
    }

    fn start(&mut self, program: &str, arguments: &[String]) {
        let log = fs::File::create(self.home.path().join(format!("{program}.out"))).expect("a log");
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.configuration()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("the log")).stderr(log);
        self.daemons.push(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")));
        // Each needs the one before it.
        std::thread::sleep(Duration::from_secs(2));
    }

    fn command(&self, program: &str, arguments: &[&str]) -> String {
        command(&self.configuration(), program, arguments)
    }
}

fn command(configuration: &str, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("SLURM_CONF", configuration).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
#[ignore = "installs Slurm, and starts it as root: run it on demand"]
fn slurm() {
    let slurm = Slurm::new();
    let configuration = slurm.configuration();
    let variables = vec![("SLURM_CONF", configuration.clone())];
    let restart = move || {
        std::thread::sleep(Duration::from_secs(15));
        let set = |state: &str| {
            let state = format!("State={state}");
            command(&configuration, "scontrol", &["update", "NodeName=node", &state, "Reason=restart"]);
        };
        set("DOWN");
        std::thread::sleep(Duration::from_secs(5));
        set("RESUME");
    };
    through(&Engine { name: "slurm", arguments: &["--wait"], variables }, restart);
}
