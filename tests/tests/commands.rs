//! `cloison run` and `cloison top` as a user types them: what counts, how long they take, and a kept run again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_engine::telemetry::Telemetry;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a command.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `cloison` in the checkout, with no terminal.
fn cloison(args: &[&str]) -> Done {
    let output = Command::new(cloison_tests::program())
        .args(args)
        .current_dir(installation::root())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[track_caller]
fn good(args: &[&str]) -> Done {
    let done = cloison(args);
    assert_eq!(done.code, Some(0), "cloison {args:?}\n{}{}", done.out, done.err);
    done
}

/// A copy of the demonstration under a name that no other test uses: the name selects the directory for results.
fn copy(name: &str) -> (TempDir, String) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = installation::root();
    let text = std::fs::read_to_string(root.join("configs/demo.toml")).expect("it is there");
    let text = text.replace("../profiles", &root.join("profiles").display().to_string());
    let path = scratch.path().join(name).with_extension("toml");
    std::fs::write(&path, text).expect("it can be written");
    (scratch, path.display().to_string())
}

/// The telemetry of the last run of a configuration.
fn telemetry(name: &str) -> Telemetry {
    let file = installation::output_dir().join("run").join(format!("{name}-virt/telemetry.bin"));
    Telemetry::parse(&std::fs::read(file).expect("the run has written it"))
}

/// Returns how many warnings about events that stay zero are in a command's output.
fn warnings(done: &Done) -> usize {
    done.err.lines().filter(|line| line.contains("does not count")).count()
}

#[test]
fn budgets_that_cannot_act_are_reported_once() {
    let (_scratch, config) = copy("stock");
    for args in [&["run", &config, "--timeout", "3"][..], &["top", &config, "--timeout", "3"]] {
        let done = cloison(args);
        assert_eq!(warnings(&done), 1, "{args:?}\n{}", done.err);
        assert!(
            done.err.contains("warning: QEMU by itself does not count INST_RETIRED, so the budgets of"),
            "{}",
            done.err
        );
        assert!(done.err.contains("add --model or --icount"), "{}", done.err);
    }
    let done = good(&["check", &config]);
    assert!(warnings(&done) == 1 && done.err.starts_with("note: "), "{}", done.err);
    let held = |done: Done| {
        assert_eq!(warnings(&done), 0, "{}", done.err);
        let totals: Vec<u64> =
            telemetry("stock").quota_totals().map(|(_, total)| total.totals.throttled_periods.into()).collect();
        assert!(totals.len() == 3 && totals.iter().any(|&periods| periods > 0), "{totals:?}");
    };
    // What the run cost is shown at its end, with the names of workloads and events.
    let modelled = good(&["run", &config, "--model"]);
    assert!(modelled.err.contains("HEM records") && modelled.err.contains("| c2is (3) "), "{}", modelled.err);
    assert!(modelled.err.contains("INST_RETIRED") && modelled.err.is_ascii(), "{}", modelled.err);
    held(modelled);
    held(good(&["run", &config, "--icount"]));
    for args in [["top", &config, "--model"], ["top", &config, "--icount"]] {
        let done = good(&args);
        assert!(warnings(&done) == 0 && done.out.contains("interf-1"), "{}", done.err);
    }
    assert_ne!(cloison(&["run", &config, "--model", "--icount"]).code, Some(0));
}

#[test]
fn a_time_that_is_up_is_no_success() {
    let (_scratch, config) = copy("endless");
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, text.replace("ends_with = \"victim\"", "")).expect("it can be written");
    let done = cloison(&["run", &config, "--timeout", "2"]);
    assert_eq!(done.code, Some(124), "{}", done.err);
    assert!(done.err.contains("stopped after its time was up"), "{}", done.err);
    for command in ["run", "top"] {
        let done = cloison(&[command, &config, "--timeout", "0"]);
        assert_eq!(done.code, Some(2), "{}", done.err);
    }
}

#[test]
fn what_qemu_reports_is_shown() {
    let plugin = "/nonexistent/plugin.so";
    let done = cloison(&["run", "configs/linux-cloud.toml", "--exec", "true", "--", "-plugin", plugin]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    // The message may be wrapped.
    let words: String = done.err.split_whitespace().filter(|word| !"│|".contains(word)).collect();
    assert!(words.contains("QEMUreported:") && words.contains(plugin), "{}", done.err);
}

/// The path has what QEMU takes as separators.
#[test]
fn a_kept_run_is_run_again_with_a_console() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("a,b=c d");
    let results = out.display().to_string();
    good(&["experiment", "c2is", "--quick", "--out", &results]);
    let runs = std::fs::read_dir(out.join("runs")).expect("the runs are kept");
    let kept = runs.map(|entry| entry.expect("a directory entry").path()).min().expect("there is a run");
    let directory = kept.display().to_string();
    let done = good(&["run", &directory]);
    assert!(done.err.contains("the telemetry is identical to the kept run's"), "{}", done.err);
    assert!(done.out.contains("[victim] c2is: run=0"), "{}", done.out);
    // A difference is noticed.
    std::fs::write(kept.join("telemetry.bin"), b"other").expect("it can be written");
    assert!(good(&["run", &directory]).err.contains("is different from the kept run's"));
    let done = cloison(&["run", &directory, "--icount"]);
    assert!(done.code == Some(1) && done.err.contains("--icount cannot be given with a kept run"), "{}", done.err);
    let done = cloison(&["run", &Path::new(&directory).join("..").display().to_string()]);
    assert!(done.code == Some(1) && done.err.contains("is not a kept run"), "{}", done.err);
}

/// `run … -- -gdb tcp::PORT -S`, as docs/guests.md has it: the debugger's stub answers before the first instruction.
#[test]
fn a_debugger_reaches_the_board() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
    let (_scratch, config) = copy("debugged");
    let mut command = Command::new(cloison_tests::program());
    command.args(["run", &config, "--timeout", "300", "--", "-gdb", &format!("tcp:127.0.0.1:{port}"), "-S"]);
    command.current_dir(installation::root()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(240);
    let mut stub = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stub) => break stub,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    // Why has the machine stopped? (GDB remote protocol, packet `?`.) SIGTRAP, on some thread; then the machine is killed.
    stub.write_all(b"+$?#3f").expect("the stub listens");
    let mut answer = [0; 5];
    stub.read_exact(&mut answer).expect("the stub answers");
    assert_eq!(&answer, b"+$T05");
    stub.write_all(b"+$k#6b").expect("the stub listens");
    running.wait().expect("the board ends");
}

#[test]
fn a_scratch_directory_that_is_not_there_is_named() {
    let mut command = Command::new(cloison_tests::program());
    command.args(["check", "configs/demo.toml"]).current_dir(installation::root()).env("TMPDIR", "/nonexistent/here");
    let output = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("TMPDIR names /nonexistent/here"), "{error}");
}
