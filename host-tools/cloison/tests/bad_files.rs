//! Every command with unsuitable files: its message, and no file is overwritten.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No command may take longer over a bad file: five seconds on a machine that is otherwise idle,
/// four of which a silent pipe is waited for. The rest is for machines that are not.
const LONGEST: Duration = Duration::from_secs(15);
/// No message may be longer.
const MOST_OUTPUT: usize = 30_000;

/// The result of a command.
struct CommandResult {
    ok: bool,
    text: String,
    took: Duration,
}

fn cloison(directory: &Path, arguments: &[&str]) -> CommandResult {
    let started = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloison"));
    command
        .args(arguments)
        .current_dir(directory)
        .env("NO_COLOR", "1")
        .env_remove("CARGO_TARGET_DIR");
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = [output.stdout, output.stderr].concat();
    CommandResult {
        ok: output.status.success(),
        text: String::from_utf8_lossy(&text).into_owned(),
        took: started.elapsed(),
    }
}

/// Makes the bad files, and returns their names with a part of the message that each deserves, or
/// nothing if that depends on the command.
fn bad_files(directory: &Path) -> Vec<(&'static str, &'static str)> {
    let path = |name: &str| directory.join(name);
    let sparse = |name: &str, length: u64| {
        File::create(path(name))
            .and_then(|file| file.set_len(length))
            .expect("a sparse file");
    };
    sparse("zeros.toml", 200 << 20);
    sparse("disk.toml", 20 << 30);
    fs::write(path("latin.toml"), b"name = \"caf\xe9\"\n").expect("a file");
    let keys: String = (0..80_000)
        .map(|number| format!("k{number} = 1\n"))
        .collect();
    fs::write(path("keys.toml"), keys).expect("a file");
    fs::write(path("empty.toml"), "").expect("a file");
    fs::create_dir(path("folder.toml")).expect("a directory");
    assert!(
        Command::new("mkfifo")
            .arg(path("pipe.toml"))
            .status()
            .expect("mkfifo")
            .success()
    );
    std::os::unix::fs::symlink("/dev/zero", path("zero.toml")).expect("a link");
    std::os::unix::fs::symlink("loop.toml", path("loop.toml")).expect("a link");
    vec![
        ("zeros.toml", ""),
        ("disk.toml", "and this is longer"),
        ("latin.toml", ""),
        ("keys.toml", ""),
        ("empty.toml", ""),
        ("folder.toml", "folder.toml"),
        ("pipe.toml", "nothing has been written to this pipe for 4 s"),
        ("zero.toml", "it is a device, not a file"),
        ("loop.toml", ""),
        ("missing.toml", ""),
    ]
}

#[test]
fn every_bad_file_is_refused_soon_and_briefly() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let files = bad_files(scratch.path());
    let commands: [&[&str]; 10] = [
        &["check"],
        &["inspect"],
        &["run"],
        &["experiment"],
        &["campaign"],
        &["model", "validate", "--points"],
        &["hem", "decode"],
        &["much", "merge"],
        &["much", "compare"],
        &["much", "evaluate", "--truth", "empty.toml"],
    ];
    let tried = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for command in commands {
            let (files, scratch, tried) = (&files, scratch.path(), &tried);
            scope.spawn(move || {
                for (file, message) in files {
                    let done = cloison(scratch, &[command, &[*file]].concat());
                    let what = format!("{command:?} {file} ({:?}): {}", done.took, done.text);
                    assert!(!done.ok, "accepted: {what}");
                    assert!(
                        done.took < LONGEST && done.text.len() < MOST_OUTPUT,
                        "{what}"
                    );
                    let flat = done
                        .text
                        .split_whitespace()
                        .filter(|word| *word != "│")
                        .collect::<Vec<_>>()
                        .join(" ");
                    assert!(
                        flat.contains(message) && !flat.contains("panicked"),
                        "{what}"
                    );
                    tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(tried.into_inner(), 100);
}

#[test]
fn a_thousand_errors_are_counted_and_the_first_shown() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    bad_files(scratch.path());
    let done = cloison(scratch.path(), &["check", "keys.toml"]);
    assert!(
        done.text.contains("keys.toml: 80004 errors"),
        "{}",
        done.text
    );
    assert!(
        done.text.contains("unknown field `k3`") && done.text.contains(" more errors not shown"),
        "{}",
        done.text
    );
}

#[test]
fn a_guest_a_kernel_and_a_program_have_limits_too() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    bad_files(scratch.path());
    let mut x86 = b"\x7fELF\x02\x01\x01".to_vec();
    x86.resize(64, 0);
    x86[18] = 62;
    fs::write(scratch.path().join("x86"), x86).expect("a file");
    let kernel = installation::root()
        .join("tests/bad-configs/kernels/small.bin")
        .display()
        .to_string();
    let cases = [
        (
            "file = \"disk.toml\"".to_owned(),
            "an image has at most 1 GiB",
        ),
        (
            "file = \"zero.toml\", load = 0x4000_0000".to_owned(),
            "it is a device",
        ),
        (
            "kernel = \"disk.toml\"".to_owned(),
            "an image has at most 1 GiB",
        ),
        (
            format!("kernel = \"{kernel}\", initrd = \"pipe.toml\""),
            "nothing has been written to this pipe",
        ),
        (
            format!("kernel = \"{kernel}\", programs = [\"x86\"]"),
            "the program x86 is not for AArch64",
        ),
    ];
    let demo =
        fs::read_to_string(installation::root().join("tests/bad-configs/linux-programs.toml"))
            .expect("a system");
    let line = demo
        .lines()
        .find(|line| line.starts_with("image = "))
        .expect("an image");
    for (image, message) in cases {
        fs::write(
            scratch.path().join("system.toml"),
            demo.replace(line, &format!("image = {{ {image} }}")),
        )
        .expect("a file");
        let done = cloison(scratch.path(), &["check", "system.toml"]);
        assert!(
            !done.ok && done.text.contains(message) && done.took < LONGEST,
            "{image} ({:?}): {}",
            done.took,
            done.text
        );
    }
}

/// A scratch directory with a name, and a table of counts that can be merged.
fn with_counts() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut text = "sub_experiment,run,event,value\n".to_owned();
    for (number, events) in [["A", "B"], ["B", "C"], ["A", "C"]].iter().enumerate() {
        for run in 0..40_u32 {
            for (at, event) in events.iter().enumerate() {
                text += &format!(
                    "{number},{run},{event},{}\n",
                    1000 + run * run % (37 + at as u32)
                );
            }
        }
    }
    let counts = scratch.path().join("counts.csv");
    fs::write(&counts, text).expect("a file");
    (scratch, counts)
}

#[test]
fn an_output_is_never_an_input() {
    let (scratch, counts) = with_counts();
    let before = fs::read(&counts).expect("the counts");
    std::os::unix::fs::symlink("counts.csv", scratch.path().join("link.csv")).expect("a link");
    let config = fs::read(installation::root().join("configs/demo.toml")).expect("a system");
    fs::write(scratch.path().join("own.toml"), config).expect("a file");
    for arguments in [
        "much merge counts.csv -o counts.csv",
        "much merge counts.csv -o link.csv",
        "much merge counts.csv -o new.csv --json ./counts.csv",
        "much merge counts.csv -o new.csv --report new.csv",
        "much compare counts.csv --csv counts.csv",
        "much evaluate counts.csv --reference link.csv --report counts.csv",
        "hem decode counts.csv --csv counts.csv",
        "hem decode counts.csv --csv new.csv --parquet new.csv",
    ] {
        let done = cloison(scratch.path(), &arguments.split(' ').collect::<Vec<_>>());
        assert!(
            !done.ok && done.text.contains("choose another name")
                || done.text.contains("its own name"),
            "{}",
            done.text
        );
        assert_eq!(
            fs::read(&counts).expect("the counts"),
            before,
            "{arguments}"
        );
        assert!(!scratch.path().join("new.csv").exists(), "{arguments}");
    }
}

#[test]
fn outputs_go_to_pipes_and_descriptors() {
    let (scratch, _) = with_counts();
    let program = env!("CARGO_BIN_EXE_cloison");
    let script = format!(
        "'{program}' much merge counts.csv -o /dev/fd/3 3>vectors.csv --json >(cat \
         >figures.json); wait"
    );
    let done = Command::new("bash")
        .args(["-c", &script])
        .current_dir(scratch.path())
        .output()
        .expect("bash");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(
        fs::read_to_string(scratch.path().join("vectors.csv"))
            .expect("vectors")
            .starts_with("A,")
    );
    // The shell does not wait for what it puts in place of a file.
    let until = Instant::now() + LONGEST;
    let figures = scratch.path().join("figures.json");
    while Instant::now() < until
        && !fs::read_to_string(&figures).is_ok_and(|text| text.ends_with("}\n"))
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        fs::read_to_string(&figures)
            .expect("figures")
            .contains("\"command\": \"much merge\"")
    );
}

#[test]
fn results_of_one_are_not_written_over_those_of_another() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let owned = |owner: &str| {
        let directory = scratch.path().join("results");
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(".owner"), owner).expect("a file");
    };
    owned("experiment configs/experiments/quota.toml");
    for arguments in [
        "experiment c2is --quick",
        "experiment quota --quick",
        "campaign configs/campaigns/kernels.toml --runs 3",
    ] {
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        arguments.extend(["--out", "results"]);
        let done = cloison(scratch.path(), &arguments);
        let flat = done
            .text
            .split_whitespace()
            .filter(|word| *word != "│")
            .collect::<Vec<_>>()
            .join(" ");
        assert!(!done.ok, "{}", done.text);
        assert!(
            flat.contains("results has the results of experiment configs/experiments/quota.toml"),
            "{}",
            done.text
        );
    }
    for runs in ["0", "1"] {
        let done = cloison(
            scratch.path(),
            &["campaign", "configs/campaigns/kernels.toml", "--runs", runs],
        );
        assert!(!done.ok && done.text.contains("--runs"), "{}", done.text);
    }
}

#[test]
fn a_program_of_another_checkout_works_with_the_one_that_runs_it() {
    let checkout = tempfile::tempdir().expect("a scratch directory");
    let (from, to) = (installation::root(), checkout.path().display().to_string());
    for part in ["configs", "profiles"] {
        assert!(
            Command::new("cp")
                .arg("-r")
                .arg(from.join(part))
                .arg(&to)
                .status()
                .expect("cp")
                .success()
        );
    }
    fs::create_dir(checkout.path().join("hypervisor")).expect("a directory");
    fs::copy(
        from.join("hypervisor/link.ld"),
        checkout.path().join("hypervisor/link.ld"),
    )
    .expect("a file");
    fs::remove_file(checkout.path().join("configs/experiments/quota.toml")).expect("an experiment");
    let list = |package: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloison"));
        // cargo sets this for what it runs, whichever checkout it was built in.
        command
            .args(["experiment", "list"])
            .current_dir("/")
            .env("CARGO_MANIFEST_DIR", package);
        String::from_utf8_lossy(&command.output().expect("the command starts").stdout).into_owned()
    };
    let (here, there) = (
        list(&from.join("xtask")),
        list(&checkout.path().join("xtask")),
    );
    assert!(
        here.contains("\nquota ") && here.contains("c2is "),
        "{here}"
    );
    assert!(
        !there.contains("\nquota ") && there.contains("c2is "),
        "{there}"
    );
}
