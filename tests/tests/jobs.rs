//! Jobs: the same report as without them, in spite of faults of results, machines and clocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::problem::SourceFile;
use cloison_engine::installation;
use cloison_engine::setup::programs::FAKETIME;
use cloison_lab::parameters;
use cloison_tests::jobs::{Lab, Report, identical};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// The file with a job's result.
fn result(lab: &Lab, directory: &Path, number: usize) -> PathBuf {
    directory
        .join("results")
        .join(format!("{}.result", lab.key(directory, number)))
}

#[test]
fn jobs_make_the_report_of_a_run_without_them() {
    let lab = Lab::new(3);
    let serial = lab.serial();
    let directory = lab.jobs("jobs");
    assert_eq!(lab.run(&directory, 1).code, 0);
    // The index of an engine.
    let second = lab.cloison(
        &["job", "run", &directory.display().to_string()],
        &[("SLURM_ARRAY_TASK_ID", "2")],
    );
    assert_eq!(second.code, 0, "{second:?}");

    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 75, "{collected:?}");
    assert!(
        collected.err.contains("1 of 3 jobs have no result")
            && collected.err.contains("runs/alone-bytes=3072")
    );
    assert!(
        !directory.join("report/report.html").exists(),
        "there is no report of a part"
    );

    assert_eq!(lab.run(&directory, 3).code, 0);
    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 0, "{collected:?}");
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));
    // Once more, and from elsewhere: everything is in the directory except the inputs.
    let moved = lab.path("moved");
    fs::rename(&directory, &moved).expect("moved");
    assert_eq!(lab.run(&moved, 3).code, 0);
    assert_eq!(lab.collect(&moved).code, 0);
    identical(&Report::of(&serial), &Report::of(&moved.join("report")));
}

#[test]
fn what_is_not_a_result_of_these_jobs_is_named_and_nothing_is_lost() {
    let lab = Lab::new(3);
    let serial = lab.serial();
    let directory = lab.jobs("jobs");
    for number in 1..=3 {
        assert_eq!(lab.run(&directory, number).code, 0);
    }
    // Half of a result, and one without a byte: they count as missing, and running the jobs again
    // replaces them.
    let whole = fs::read(result(&lab, &directory, 1)).expect("a result");
    fs::write(result(&lab, &directory, 1), &whole[..whole.len() / 2]).expect("half of it");
    fs::write(result(&lab, &directory, 2), "").expect("none of it");
    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 75, "{collected:?}");
    assert!(
        collected.err.contains("2 of 3 jobs")
            && collected.err.contains("its result is damaged: it is empty")
    );
    for number in 1..=2 {
        assert_eq!(lab.run(&directory, number).code, 0);
    }

    // Results of other jobs, under their own name and under that of a job of these.
    let other = Lab::with_sizes(&[7168]);
    let elsewhere = other.jobs("elsewhere");
    assert_eq!(other.run(&elsewhere, 1).code, 0);
    let foreign = result(&other, &elsewhere, 1);
    let smuggled = directory
        .join("results")
        .join(foreign.file_name().expect("a name"));
    fs::copy(&foreign, &smuggled).expect("copied");
    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 1, "{collected:?}");
    assert!(
        collected
            .err
            .contains("experiment many: runs/alone-bytes=7168"),
        "{collected:?}"
    );
    fs::remove_file(&smuggled).expect("removed");
    let right = fs::read(result(&lab, &directory, 1)).expect("a result");
    fs::copy(&foreign, result(&lab, &directory, 1)).expect("copied");
    let collected = lab.collect(&directory);
    let named = "it is of experiment many: runs/alone-bytes=7168, not of runs/alone-bytes=1024";
    assert!(
        collected.code == 1 && collected.says(named),
        "{collected:?}"
    );
    fs::write(result(&lab, &directory, 1), right).expect("restored");

    // Manifest and list.
    for (file, old, new, message) in [
        (
            "manifest.json",
            "\"jobs\":3",
            "\"jobs\":2",
            "manifest.json is damaged",
        ),
        (
            "jobs.jsonl",
            "\"seed\":0",
            "\"seed\":1",
            "line 1: its key is",
        ),
        (
            "jobs.jsonl",
            "{\"job\":2",
            "{\"job\":3",
            "line 2: it is job 3",
        ),
        (
            "jobs.jsonl",
            "\"expected_seconds\":",
            "\"expected_seconds\":1",
            "is not the list that the manifest was written with",
        ),
    ] {
        let path = directory.join(file);
        let before = fs::read_to_string(&path).expect("it is there");
        assert!(before.contains(old), "{before}");
        fs::write(&path, before.replacen(old, new, 1)).expect("changed");
        let collected = lab.collect(&directory);
        assert!(
            collected.code == 1 && collected.says(message),
            "{collected:?}"
        );
        fs::write(&path, before).expect("restored");
    }

    // Clocks that differ: when a file was written decides nothing.
    for (number, seconds) in [(1, 0), (2, 4_000_000_000), (3, 86_400)] {
        let file = fs::File::options()
            .append(true)
            .open(result(&lab, &directory, number))
            .expect("a result");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .expect("a time");
    }
    // Two at once.
    let collect = || {
        let mut command = lab.command(&["collect", &directory.display().to_string()], &[]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let mut both = [collect(), collect()];
    for one in &mut both {
        assert!(one.wait().expect("it ends").success());
    }
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));

    // Another input than that of the jobs.
    let text = fs::read_to_string(lab.file()).expect("the experiment");
    fs::write(lab.file(), text.replace("1024, ", "1088, ")).expect("changed");
    let collected = lab.collect(&directory);
    assert!(
        collected.code == 1 && collected.says("many.toml has changed"),
        "{collected:?}"
    );
    let again = lab.cloison(
        &[
            "jobs",
            &lab.file().display().to_string(),
            "-o",
            &directory.display().to_string(),
        ],
        &[],
    );
    assert!(
        again.code == 1 && again.says("has results of jobs with other inputs"),
        "{again:?}"
    );
    fs::write(lab.file(), text).expect("restored");
    assert_eq!(lab.collect(&directory).code, 0);
}

#[test]
fn a_machine_that_cannot_run_a_job_says_so_and_asks_for_another() {
    let lab = Lab::new(1);
    let directory = lab.jobs("jobs");
    let tools = lab.path("tools");
    fs::create_dir(&tools).expect("a directory");
    let run = ["job", "run", &directory.display().to_string(), "1"];
    let none = lab.cloison(&run, &[("PATH", &tools.display().to_string())]);
    assert!(
        none.code == 75 && none.says("has no QEMU, and the jobs are for QEMU"),
        "{none:?}"
    );
    lab.program(
        &tools.join("qemu-system-aarch64"),
        "#!/bin/sh\necho QEMU emulator version 9.2.0\n",
    );
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let other = lab.cloison(&run, &[("PATH", &path)]);
    assert!(
        other.code == 75 && other.says("has QEMU emulator version 9.2.0"),
        "{other:?}"
    );
    // The report names the reason.
    let collected = lab.collect(&directory);
    assert!(
        collected.code == 75 && collected.says("QEMU emulator version 9.2.0"),
        "{collected:?}"
    );

    // Killed at any moment: there is no result or a whole one, and the next attempt removes what it
    // left.
    let scratch = lab.path("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let place = scratch.display().to_string();
    for pause_ms in [20, 100, 300] {
        let mut job = lab
            .command(&run, &[("TMPDIR", &place)])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(pause_ms));
        // It may have ended.
        let _ = job.kill();
        let _ = job.wait();
    }
    let done = lab.cloison(&run, &[("TMPDIR", &place)]);
    assert_eq!(done.code, 0, "{done:?}");
    let left: Vec<_> = fs::read_dir(&scratch)
        .expect("the directory")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let jobs = left.iter().filter(|path| {
        path.display().to_string().contains("cloison-job-") && path.join("lock").exists()
    });
    assert_eq!(jobs.count(), 0, "{left:?}");
    assert_eq!(lab.collect(&directory).code, 0);

    // A job that is none, and one that has a result.
    assert_eq!(lab.run(&directory, 2).code, 1);
    assert_eq!(lab.run(&lab.path("nowhere"), 1).code, 1);
    assert!(lab.run(&directory, 1).out.contains("has a result"));
}

/// Gives a command another clock, which follows. What measures time from a moment on is as it was.
const FAKE: [&str; 4] = ["faketime", "-m", "--exclude-monotonic", "-f"];

/// Each machine has another clock: one that is years behind, one that is years ahead, one that is
/// set back all the time, and one that runs at three times the speed.
#[test]
fn clocks_that_differ_between_machines_change_nothing() {
    FAKETIME.ensure().expect("faketime");
    let lab = Lab::new(4);
    let serial = lab.serial();
    // The compiler, which is asked for its version, does not start with another clock.
    let tools = lab.path("tools");
    fs::create_dir(&tools).expect("a directory");
    let path = std::env::var("PATH").expect("a PATH");
    for name in ["rustc", "cargo"] {
        let real = std::env::split_paths(&path)
            .map(|place| place.join(name))
            .find(|file| file.is_file());
        let text = format!(
            "#!/bin/sh\nunset LD_PRELOAD\nexec '{}' \"$@\"\n",
            real.expect("it is installed").display()
        );
        lab.program(&tools.join(name), &text);
    }
    let path = format!("{}:{path}", tools.display());
    let with_clock =
        |clock: &str, words: &[&str]| lab.behind(&FAKE, clock, words, &[("PATH", &path)]);
    let year = |clock: &str| {
        let mut date = Command::new(FAKE[0]);
        let output = date
            .args(&FAKE[1..])
            .args([clock, "date", "+%Y"])
            .output()
            .expect("a date");
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse::<u32>()
            .expect("a year")
    };
    let clocks = ["@2009-02-13 23:31:30", "+9y", "-3d i-10", "+1y x3"];
    assert!(
        year(clocks[0]) < year("+0") && year("+0") < year(clocks[1]),
        "the clocks are all the same"
    );

    let directory = lab.path("jobs");
    let (file, place) = (word(&lab.file()), word(&directory));
    let made = with_clock("+2y", &["jobs", &file, "-o", &place]);
    assert_eq!(made.code, 0, "{made:?}");
    for (number, clock) in (1..).zip(clocks) {
        let done = with_clock(clock, &["job", "run", &place, &number.to_string()]);
        assert_eq!(done.code, 0, "{clock}: {done:?}");
    }
    // A result that was damaged in the future is run again in the past.
    fs::write(result(&lab, &directory, 2), "half").expect("a damaged result");
    let done = with_clock(clocks[0], &["job", "run", &place, "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    for clock in ["-20y", "+30y"] {
        let collected = with_clock(clock, &["collect", &place]);
        assert_eq!(collected.code, 0, "{clock}: {collected:?}");
        identical(&Report::of(&serial), &Report::of(&directory.join("report")));
    }
}

/// A directory as an argument.
fn word(path: &Path) -> String {
    path.display().to_string()
}

/// Runs all jobs of a directory and collects them.
fn finish(lab: &Lab, directory: &Path, jobs: usize) {
    let list = fs::read_to_string(directory.join("jobs.jsonl")).expect("the list of jobs");
    assert_eq!(list.lines().count(), jobs);
    for number in 1..=jobs {
        let done = lab.run(directory, number);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let collected = lab.collect(directory);
    assert_eq!(collected.code, 0, "{collected:?}");
}

#[test]
fn a_study_of_the_models_values_is_jobs_too() {
    let lab = Lab::with_sizes(&[4096]);
    let shipped = fs::read_to_string(installation::root().join("configs/models/zcu102.toml"))
        .expect("a model");
    let (values, _) = shipped.split_once("[sensitivity]").expect("its table");
    let all = parameters::all(&SourceFile::new(Path::new("model.toml"), values.to_owned()))
        .expect("its values");
    let names = all
        .into_iter()
        .map(|one| one.name)
        .filter(|name| name != "memory.latency_ns");
    let known: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    let model = lab.path("model.toml");
    fs::write(
        &model,
        format!("{values}[sensitivity]\nknown = [{}]\n", known.join(", ")),
    )
    .expect("a model");

    let (file, model) = (word(&lab.file()), word(&model));
    let options = [file.as_str(), "--model", &model, "--sensitivity"];
    let [serial, directory] = ["serial", "jobs"].map(|name| lab.path(name));
    lab.good(&[&["experiment"], &options[..], &["--out", &word(&serial)]].concat());
    lab.good(&[&["jobs"], &options[..], &["-o", &word(&directory)]].concat());
    // The model as it is, and one value at half and at double.
    finish(&lab, &directory, 3);
    let report = Report::of(&directory.join("report"));
    assert!(
        directory.join("report/sensitivity.toml").is_file()
            && directory.join("report/report.html").is_file()
    );
    identical(&Report::of(&serial), &report);
}

#[test]
fn a_validation_is_jobs_too() {
    let lab = Lab::new(1);
    let points = lab.path("points.toml");
    let chain = |name: &str, kib: u64| {
        format!(
            "[[point]]\nname = '{name}'\nboard = 'a board'\nvalue = 10\nunit = 'ns'\n\
             clock_mhz = 1500\ntolerance = 0.2\n\
             use = 'predicted'\nsource = 'note'\nplace = 'line 1'\nwhy = 'an invented value'\n\
             benchmark.chase = {{ kib = {kib} }}\n"
        )
    };
    let text = format!(
        "[source.note]\ntitle = 'A note'\n\n{}\n{}",
        chain("small", 4),
        chain("medium", 64)
    );
    fs::write(&points, text).expect("measurements");
    let [serial, directory] = ["serial", "jobs"].map(|name| lab.path(name));
    let json = word(&serial.join("figures.json"));
    lab.good(&[
        "model",
        "validate",
        "--points",
        &word(&points),
        "--out",
        &word(&serial),
        "--json",
        &json,
    ]);
    lab.good(&["jobs", &word(&points), "-o", &word(&directory)]);
    finish(&lab, &directory, 2);
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));
}

#[test]
fn a_campaign_is_jobs_too() {
    let lab = Lab::campaign(2);
    let serial = lab.serial();
    let directory = lab.jobs("jobs");
    // MUCH's plan and HRM's, for each seed.
    finish(&lab, &directory, 4);
    let report = directory.join("report");
    let first = report.join("chase/seed-1");
    assert!(first.join("vectors.csv").is_file() && first.join("much/telemetry.bin").is_file());
    identical(&Report::of(&serial), &Report::of(&report));

    // A part of it, as the options of `campaign` choose it.
    let options = ["--seeds", "1", "--workload", "chase", "--runs", "2"];
    let [serial, directory] = ["chosen", "chosen-jobs"].map(|name| lab.path(name));
    let file = word(&lab.file());
    lab.good(
        &[
            &["campaign", &file],
            &options[..],
            &["--out", &word(&serial)],
        ]
        .concat(),
    );
    lab.good(&[&["jobs", &file], &options[..], &["-o", &word(&directory)]].concat());
    finish(&lab, &directory, 2);
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));
    let refused = lab.cloison(
        &[
            "jobs",
            &file,
            "--workload",
            "none",
            "-o",
            &word(&lab.path("none")),
        ],
        &[],
    );
    assert!(
        refused.code == 1 && refused.says("--workload none: the campaign has none"),
        "{refused:?}"
    );
}

/// Runs the jobs of a directory that have no result. Returns how many there are now.
fn run_all(lab: &Lab, directory: &Path) -> usize {
    let list = fs::read_to_string(directory.join("jobs.jsonl")).expect("the list of jobs");
    let jobs = list.lines().count();
    for number in (1..=jobs).filter(|number| !result(lab, directory, *number).exists()) {
        let done = lab.run(directory, number);
        assert_eq!(done.code, 0, "{done:?}");
    }
    jobs
}

#[test]
fn a_vm_is_profiled_in_rounds_of_jobs() {
    let lab = Lab::profile(&["--coarse"]);
    let serial = lab.serial();
    let directory = lab.jobs("jobs");
    // All pages, none, and two blocks.
    let mut rounds = vec![run_all(&lab, &directory)];
    assert_eq!(rounds, [4]);
    while lab.collect(&directory).code == 75 {
        rounds.push(run_all(&lab, &directory));
    }
    assert!(rounds.len() > 2, "{rounds:?}");
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));
    let other = ["jobs", &word(&lab.file()), "--coarse", "-o", "/nowhere"];
    let refused = lab.cloison(&other, &[]);
    assert!(
        refused.code == 2 && refused.says("--vm <NAME>"),
        "{refused:?}"
    );
    let experiment = ["jobs", "c2is", "--vm", "victim", "-o", "/nowhere"];
    let refused = lab.cloison(&experiment, &[]);
    assert!(
        refused.says("--vm does not belong to an experiment"),
        "{refused:?}"
    );
}

/// Later runs depend on what earlier ones measured: collecting plans the next round, until there is
/// an answer. What interrupts it loses nothing.
#[test]
fn a_configuration_is_tuned_in_rounds_of_jobs() {
    let lab = Lab::tune();
    let serial = lab.serial();
    let directory = lab.jobs("jobs");
    let list = directory.join("jobs.jsonl");
    let mut rounds = vec![run_all(&lab, &directory)];
    let first = fs::read(result(&lab, &directory, 1)).expect("a result");
    let collected = loop {
        let collected = lab.collect(&directory);
        if collected.code == 0 {
            break collected;
        }
        let says = "more jobs to run now, of";
        let known = rounds.last().copied().unwrap_or_default();
        assert!(
            collected.code == 75 && (collected.says(says) || collected.says("1 more job")),
            "{collected:?}"
        );
        // Jobs of earlier rounds keep their numbers.
        let text = fs::read_to_string(&list).expect("the list of jobs");
        assert!(text.lines().count() > known, "{collected:?}");
        if rounds.len() == 1 {
            assert!(!directory.join("report/report.html").exists());
            // A round that is not finished is not taken for one, also where the planning of a
            // further one was killed between its list and its manifest.
            let further = text.lines().last().expect("a job");
            fs::write(&list, format!("{text}{further}\n")).expect("a longer list");
            let again = lab.collect(&directory);
            let missing = format!("of {} jobs have no result", text.lines().count());
            assert!(again.code == 75 && again.says(&missing), "{again:?}");
            fs::write(&list, text).expect("the list");
            // A result of the first round is lost.
            fs::write(result(&lab, &directory, 1), "").expect("a damaged result");
            let lost = lab.collect(&directory);
            assert!(lost.code == 75 && lost.says("1 of "), "{lost:?}");
            fs::write(result(&lab, &directory, 1), &first).expect("the result");
        }
        rounds.push(run_all(&lab, &directory));
    };
    assert!(rounds.len() > 2, "{rounds:?}");
    assert!(collected.out.contains("Who gets what"), "{collected:?}");
    identical(&Report::of(&serial), &Report::of(&directory.join("report")));

    // Goals are an input.
    let text = fs::read_to_string(lab.file()).expect("the configuration");
    fs::write(lab.file(), text.replace("'1.10'", "'1.11'")).expect("changed");
    let changed = lab.collect(&directory);
    assert!(
        changed.code == 1 && changed.says("many.toml has changed"),
        "{changed:?}"
    );
    fs::write(lab.file(), text).expect("restored");
    let other = lab.cloison(
        &[
            "jobs",
            &word(&lab.file()),
            "--runs",
            "2",
            "-o",
            &word(&lab.path("other")),
        ],
        &[],
    );
    assert!(
        other.code == 1 && other.says("--runs does not belong to a system"),
        "{other:?}"
    );
}

#[test]
fn a_validation_of_events_is_jobs_too() {
    let lab = Lab::new(1);
    let manifest = lab.path("events.toml");
    let shipped =
        fs::read_to_string(installation::root().join("configs/validation/cortex-a53.toml"))
            .expect("a manifest");
    // Its first benchmarks and events: one boot.
    let event = |name: &str| {
        format!("[[event]]\nname = '{name}'\ncounts = 'executed'\nbecause = 'each of them'\n")
    };
    let (head, _) = shipped.split_once("[[event]]").expect("its events");
    let benchmark = shipped.find("[[benchmark]]").expect("its benchmarks");
    let benchmarks: Vec<&str> = shipped[benchmark..]
        .split("[[benchmark]]")
        .skip(1)
        .take(1)
        .collect();
    let text = format!(
        "{head}{}\n[[benchmark]]{}",
        event("INST_RETIRED"),
        benchmarks.concat()
    );
    fs::write(&manifest, text).expect("a manifest");
    for machine in ["model", "icount"] {
        let [serial, directory] =
            ["serial", "jobs"].map(|name| lab.path(&format!("{name}-{machine}")));
        let [out, json] = ["verdicts.toml", "figures.json"].map(|name| word(&serial.join(name)));
        let file = word(&manifest);
        let option = format!("--{machine}");
        let command = [
            "events",
            "validate",
            "--manifest",
            &file,
            &option,
            "--runs",
            "2",
            "--out",
            &out,
            "--json",
            &json,
        ];
        lab.good(&command);
        lab.good(&[
            "jobs",
            &file,
            "--machine",
            machine,
            "--runs",
            "2",
            "-o",
            &word(&directory),
        ]);
        finish(&lab, &directory, 1);
        identical(&Report::of(&serial), &Report::of(&directory.join("report")));
    }
    let hardware = lab.cloison(
        &[
            "jobs",
            &word(&manifest),
            "--machine",
            "hardware",
            "-o",
            &word(&lab.path("h")),
        ],
        &[],
    );
    // For a board, which runs them by `submit --engine board`.
    assert!(
        hardware.code == 0 && hardware.out.starts_with("1 job in"),
        "{hardware:?}"
    );
}
