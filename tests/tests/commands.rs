//! `cloison run` and `cloison top` as a user types them: events that count, time limits, and the
//! repetition of a kept run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::counting::Counting;
use cloison_engine::hello;
use cloison_engine::telemetry::Telemetry;
use cloison_engine::{cargo, configuration, installation, parts};
use cloison_hello::claims::Place;
use cloison_tests::jobs::{BENCHMARKS, Lab};
use cloison_tests::{Clock, VIRT, VIRT_GICV3, ZCU102, boot, namespace};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a command.
struct CommandResult {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `cloison` in the checkout, with no terminal.
fn cloison(args: &[&str]) -> CommandResult {
    let output = Command::new(cloison_tests::program())
        .args(args)
        .current_dir(installation::root())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandResult {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

#[track_caller]
fn good(args: &[&str]) -> CommandResult {
    ends_with(0, args)
}

/// Runs a command that ends with an exit code.
#[track_caller]
fn ends_with(code: i32, args: &[&str]) -> CommandResult {
    let done = cloison(args);
    assert_eq!(
        done.code,
        Some(code),
        "cloison {args:?}\n{}{}",
        done.out,
        done.err
    );
    done
}

/// A copy of the demonstration under a name that no other test uses: the name selects the directory
/// for results.
fn copy(name: &str) -> (TempDir, String) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = installation::root();
    let text = std::fs::read_to_string(root.join("configs/demo.toml")).expect("it is there");
    let text = text.replace("../profiles", &root.join("profiles").display().to_string());
    let path = scratch.path().join(name).with_extension("toml");
    std::fs::write(&path, text).expect("it can be written");
    (scratch, path.display().to_string())
}

/// The file with the telemetry of a run. Where systems of one name come from several directories,
/// each has its own.
fn log_of(done: &CommandResult) -> PathBuf {
    let after = done.err.split("hem decode ").nth(1).expect("it says where");
    let file = after.split('`').next().expect("a path");
    installation::root().join(file)
}

/// The telemetry of a run.
fn telemetry(done: &CommandResult) -> Telemetry {
    Telemetry::parse(&std::fs::read(log_of(done)).expect("the run has written it"))
}

/// Returns how many warnings about events that stay zero are in a command's output.
fn warnings(done: &CommandResult) -> usize {
    done.err
        .lines()
        .filter(|line| line.contains("does not count"))
        .count()
}

#[test]
fn budgets_that_cannot_act_are_refused() {
    let (_scratch, config) = copy("stock");
    for args in [
        &["run", &config, "--timeout", "3"][..],
        &["top", &config, "--timeout", "3"],
    ] {
        let done = cloison(args);
        assert_eq!(done.code, Some(1), "{args:?}\n{}", done.err);
        let flat = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains("a budget of INST_RETIRED cannot be trusted on stock QEMU"),
            "{flat}"
        );
        assert!(
            flat.contains("dead on stock QEMU: it counts nothing"),
            "{flat}"
        );
        assert!(
            flat.contains("0 counted; ") && flat.contains("virt-stock.toml)"),
            "{flat}"
        );
    }
    let done = good(&["check", &config]);
    let holds = "note: its quotas hold on QEMU with --icount and the board model, not on stock \
                 QEMU or the board itself";
    assert!(done.err.starts_with(holds), "{}", done.err);
    good(&["check", &config, "--machine", "icount"]);
    for args in [
        &["check", &config, "--machine", "stock"][..],
        &["image", &config, "--output", "nowhere"],
    ] {
        let done = cloison(args);
        assert!(
            done.code == Some(1) && done.err.contains("cannot be trusted on"),
            "{args:?}\n{}",
            done.err
        );
    }
    let held = |done: CommandResult| {
        assert_eq!(warnings(&done), 0, "{}", done.err);
        let totals: Vec<u64> = telemetry(&done)
            .quota_totals()
            .map(|(_, total)| total.totals.spent_periods)
            .collect();
        assert!(
            totals.len() == 3 && totals.iter().any(|&periods| periods > 0),
            "{totals:?}\n{}\n{}",
            done.out,
            done.err
        );
    };
    // What the run cost is shown at its end, with the names of workloads and events.
    let modelled = good(&["run", &config, "--model"]);
    assert!(
        modelled.out.contains("HEM records") && modelled.out.contains("| c2is (3) "),
        "{}",
        modelled.out
    );
    assert!(
        modelled.out.contains("INST_RETIRED") && modelled.out.is_ascii(),
        "{}",
        modelled.out
    );
    held(modelled);
    held(good(&["run", &config, "--icount"]));
    for args in [["top", &config, "--model"], ["top", &config, "--icount"]] {
        let done = good(&args);
        assert!(
            warnings(&done) == 0 && done.out.contains("interf-1"),
            "{}",
            done.err
        );
    }
    assert_ne!(
        cloison(&["run", &config, "--model", "--icount"]).code,
        Some(0)
    );
}

#[test]
fn a_time_that_is_up_is_no_success() {
    let (_scratch, config) = copy("endless");
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, text.replace("ends_with = \"victim\"", "")).expect("it can be written");
    let done = cloison(&["run", &config, "--icount", "--timeout", "2"]);
    assert_eq!(done.code, Some(124), "{}", done.err);
    assert!(
        done.err.contains("stopped after its time was up"),
        "{}",
        done.err
    );
    for command in ["run", "top"] {
        let done = cloison(&[command, &config, "--icount", "--timeout", "0"]);
        assert_eq!(done.code, Some(2), "{}", done.err);
    }
}

#[test]
fn a_killed_vm_and_a_command_that_is_too_slow_have_their_exit_codes() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = installation::root();
    let text =
        std::fs::read_to_string(root.join("tests/configs/hostile.toml")).expect("it is there");
    let profiles = root.join("profiles").display().to_string();
    let text = text.replace("../../profiles", &profiles);
    let kill = "[[vm]]\nname = \"hostile\"\non_fault = \"kill\"";
    let text = text.replacen("[[vm]]\nname = \"hostile\"", kill, 1);
    let path = scratch.path().join("killed.toml");
    std::fs::write(&path, text).expect("it can be written");
    let done = cloison(&["run", &path.display().to_string(), "--icount"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert!(
        done.err.contains("Error: ") && done.err.contains("the hypervisor killed hostile"),
        "{}",
        done.err
    );
    let linux = "configs/linux-cloud.toml";
    let done = cloison(&["run", linux, "--timeout", "1", "--exec", "true"]);
    assert_eq!(done.code, Some(124), "{}", done.err);
}

#[test]
fn what_qemu_reports_is_shown() {
    let plugin = "/nonexistent/plugin.so";
    let done = cloison(&[
        "run",
        "configs/linux-cloud.toml",
        "--exec",
        "true",
        "--",
        "-plugin",
        plugin,
    ]);
    assert_eq!(done.code, Some(125), "{}", done.err);
    // The message may be wrapped.
    let words: String = done
        .err
        .split_whitespace()
        .filter(|word| !"│|".contains(word))
        .collect();
    assert!(
        words.contains("QEMUreported:") && words.contains(plugin),
        "{}",
        done.err
    );
}

/// The path has what QEMU takes as separators.
#[test]
fn a_kept_run_is_run_again_with_a_console() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("a,b=c d");
    let results = out.display().to_string();
    good(&["experiment", "c2is", "--quick", "--out", &results]);
    let runs = std::fs::read_dir(out.join("runs")).expect("the runs are kept");
    let kept = runs
        .map(|entry| entry.expect("a directory entry").path())
        .min()
        .expect("there is a run");
    let directory = kept.display().to_string();
    let done = good(&["run", &directory]);
    assert!(
        done.err
            .contains("the telemetry is identical to the kept run's"),
        "{}",
        done.err
    );
    assert!(done.out.contains("[victim] c2is: run=0"), "{}", done.out);
    // A difference is noticed.
    std::fs::write(kept.join("telemetry.bin"), b"other").expect("it can be written");
    assert!(
        good(&["run", &directory])
            .err
            .contains("is different from the kept run's")
    );
    let done = cloison(&["run", &directory, "--icount"]);
    assert!(
        done.code == Some(1)
            && done
                .err
                .contains("--icount cannot be given with a kept run"),
        "{}",
        done.err
    );
    let done = cloison(&[
        "run",
        &Path::new(&directory).join("..").display().to_string(),
    ]);
    assert!(
        done.code == Some(1) && done.err.contains("is not a kept run"),
        "{}",
        done.err
    );
}

/// What `capture` left is run in QEMU, and the ends of the VMs are compared.
#[test]
fn a_captured_image_is_run_in_qemu() {
    let (scratch, config) = copy("captured-image");
    let done = good(&["run", &config, "--icount"]);
    let telemetry = log_of(&done);
    let console = telemetry.with_file_name("console.txt");
    let sent = std::fs::read(&telemetry).expect("the run has written it");
    let folder = scratch.path().join("board").display().to_string();
    good(&[
        "capture",
        &config,
        "--console",
        &console.display().to_string(),
        "--telemetry",
        &telemetry.display().to_string(),
        "--machine",
        "icount",
        "--out",
        &folder,
    ]);
    let again = good(&["run", &folder, "--icount"]);
    assert!(
        again.err.contains("each VM has ended as on the board"),
        "{}",
        again.err
    );
    let log = log_of(&again);
    assert_eq!(std::fs::read(log).expect("it has written it"), sent);
    // A VM whose end is missing there has ended here.
    let file = Path::new(&folder).join("telemetry.bin");
    std::fs::write(&file, &sent[..sent.len() / 2]).expect("it can be written");
    let again = good(&["run", &folder, "--model"]);
    assert!(
        again.err.contains(": no end seen on the board, off here"),
        "{}",
        again.err
    );
    let refused = [
        (
            &["--exec", "true"][..],
            "--exec cannot be given with a captured run",
        ),
        (
            &["--board", "zcu102"],
            "is of board virt, and not of zcu102",
        ),
        (&["--board", "nothing"], "nothing.toml: it does not exist"),
    ];
    for (options, expected) in refused {
        let message = self::refused(&[&["run", folder.as_str()], options].concat());
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    let image = Path::new(&folder).join("Image");
    let whole = std::fs::read(&image).expect("it is there");
    std::fs::write(&image, &whole[..whole.len() / 2]).expect("it can be written");
    let message = self::refused(&["run", &folder]);
    assert!(message.contains("is no system image"), "{message}");
}

/// Returns the bytes of the files in a directory.
fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("it is there");
    entries
        .map(|entry| {
            entry
                .expect("an entry")
                .metadata()
                .expect("its length")
                .len()
        })
        .sum()
}

#[test]
fn kept_runs_share_one_image() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| scratch.path().join(name);
    let results = path("out").display().to_string();
    let experiment = || good(&["experiment", "quota", "--quick", "--out", &results]);
    let first = experiment();
    assert!(!first.out.contains("earlier command"), "{}", first.out);
    let runs: Vec<PathBuf> = std::fs::read_dir(path("out/runs"))
        .expect("runs")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(runs.len() > 2);
    for run in &runs {
        assert!(
            size(run) <= 200 << 10,
            "{}: {} bytes",
            run.display(),
            size(run)
        );
    }
    // Beside the plugin, what is shared is about one compressed image.
    let parts = || {
        let entries = std::fs::read_dir(path("out/parts"))
            .expect("parts")
            .map(|entry| entry.expect("an entry").path());
        entries
            .filter(|path| path.extension().is_some_and(|kind| kind == "gz"))
            .collect::<Vec<_>>()
    };
    let all: u64 = parts()
        .iter()
        .map(|path| std::fs::metadata(path).expect("a file").len())
        .sum();
    assert!(all < 250 << 10, "{all} bytes in {} parts", parts().len());
    // All of it works elsewhere; a run alone names what is missing.
    let copied = Command::new("cp")
        .arg("-r")
        .args([path("out"), path("copy")])
        .status();
    assert!(copied.expect("cp starts").success());
    let key = runs[0].file_name().expect("a name");
    let moved = good(&["run", &path("copy/runs").join(key).display().to_string()]);
    assert!(
        moved
            .err
            .contains("the telemetry is identical to the kept run's"),
        "{}",
        moved.err
    );
    std::fs::rename(path("copy/runs").join(key), path("alone")).expect("it can be moved");
    let alone = cloison(&["run", &path("alone").display().to_string()]);
    // A line may break anywhere.
    let words = |text: &str| {
        text.split_whitespace()
            .filter(|word| !"│|".contains(word))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(
        alone.code == Some(1)
            && words(&alone.err).contains("copy the whole directory of the results"),
        "{}",
        alone.err
    );
    // `run` refuses a damaged or missing part; the experiment makes it again, and performs no run
    // again.
    let part = parts()
        .into_iter()
        .max_by_key(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
    let part = part.expect("there are parts");
    let run = runs[0].display().to_string();
    for damage in [Some("short"), None] {
        // A new file: results of tests beside this one may be linked to the one that was there.
        std::fs::remove_file(&part).expect("it can be removed");
        if let Some(text) = damage {
            std::fs::write(&part, text).expect("it can be written");
        }
        let refused = cloison(&["run", &run]);
        let reason = if damage.is_some() {
            "is damaged"
        } else {
            "is missing"
        };
        assert!(
            refused.code == Some(1) && words(&refused.err).contains(reason),
            "{}",
            refused.err
        );
        let again = experiment().out;
        assert!(
            again.contains(&format!(
                "{0} of {0} are results of an earlier command",
                runs.len()
            )),
            "{again}"
        );
        assert!(
            good(&["run", &run])
                .err
                .contains("is identical to the kept run's")
        );
    }
}

/// What follows from the model is different on another one: one whose L2 takes data when the L1
/// misses, and not when the L1 evicts it, sees no lookups for evicted lines.
/// One of our own programs, as a file whose name and contents the experiment does not know.
#[test]
fn a_users_program_is_measured_as_a_black_box() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let built = parts::tool("bbprof-staircase").expect("the program");
    let program = scratch.path().join("black-box");
    std::fs::copy(built, &program).expect("a copy");
    let entry = |size: &str, rounds: &str| {
        format!(
            "mine.{size}={}@bbprof_staircase::access,{rounds},steps,20",
            program.display()
        )
    };
    let out = scratch.path().join("out");
    let (one, two) = (entry("one", "1"), entry("two", "2"));
    let done = good(&[
        "experiment",
        "rank-inputs",
        "--quick",
        "--program",
        &one,
        "--program",
        &two,
        "--out",
        &out.display().to_string(),
    ]);
    let said = "A program of your own: mine.one: ";
    assert!(done.out.contains(said), "{}", done.out);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let series = read("series-curves.csv");
    let curve = |input: &str| -> Vec<f64> {
        let start = format!("mine,input_{input},");
        let rows = series.lines().filter_map(|line| line.strip_prefix(&start));
        let cycles = rows.filter_map(|row| row.split(',').nth(1)?.parse().ok());
        cycles.collect()
    };
    let (one, two) = (curve("one"), curve("two"));
    assert!(one.len() >= 5 && one.len() == two.len(), "{series}");
    for curve in [&one, &two] {
        let (none, all) = (curve[0], curve[curve.len() - 1]);
        assert!(none > 2.0 * all, "cacheable pages save time: {series}");
    }
    assert!(
        two[0] > 1.5 * one[0],
        "twice the rounds, by the profile of one: {series}"
    );
    assert!(read("figures.json").contains("mine.two: "), "provenance");
}

#[test]
fn an_experiment_runs_on_another_model() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let shipped = std::fs::read_to_string(
        installation::root().join("configs/models/zcu102-no-prefetch.toml"),
    );
    let shipped = shipped.expect("it is there");
    let changed = shipped.replace("data = \"on-eviction\"", "data = \"on-miss\"");
    assert_ne!(shipped, changed);
    std::fs::write(path("on-miss.toml"), changed).expect("it can be written");
    let figures = |more: &[&str], to: &str| -> (serde_json::Value, CommandResult) {
        let (out, json) = (path(to), path(&format!("{to}.json")));
        let done = cloison(
            &[
                &["experiment", "matrix-copy", "--out", &out, "--json", &json],
                more,
            ]
            .concat(),
        );
        (
            serde_json::from_slice(&std::fs::read(json).expect("the figures")).expect("JSON"),
            done,
        )
    };
    let other = path("on-miss.toml");
    let [(one, good), (two, bad)] = [
        figures(&[], "one"),
        figures(&["--strict", "--model", &other], "two"),
    ];
    assert_eq!(good.code, Some(0), "{}", good.err);
    // One of the paper's counts is about where lines go.
    assert!(
        bad.code == Some(1) && bad.err.contains("L2D_CACHE is 130,772."),
        "{}",
        bad.err
    );
    let count =
        |from: &serde_json::Value, name: &str| from["figures"][name].as_u64().expect("a count");
    assert_eq!(
        count(&one, "l1d_cache_refill"),
        count(&two, "l1d_cache_refill")
    );
    assert!(
        count(&one, "l2d_cache") > count(&two, "l2d_cache") + 10_000,
        "{one}\n{two}"
    );
    assert!(
        two["provenance"].to_string().contains("on-miss.toml"),
        "{two}"
    );
    let missing = cloison(&[
        "experiment",
        "matrix-copy",
        "--model",
        &path("none.toml"),
        "--out",
        &path("three"),
    ]);
    assert!(
        missing.code == Some(1) && missing.err.contains("none.toml"),
        "{}",
        missing.err
    );
}

/// Returns what a terminal with this many columns shows in the end.
fn screen(output: &str, columns: usize) -> String {
    let (mut rows, mut row, mut column) = (vec![vec![]], 0_usize, 0_usize);
    let mut letters = output.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.next_if_eq(&'[').is_some() => {
                let mut number = String::new();
                while let Some(digit) =
                    letters.next_if(|letter| letter.is_ascii_digit() || ";?".contains(*letter))
                {
                    number.push(digit);
                }
                match letters.next() {
                    Some('K') if number == "2" => rows[row].clear(),
                    Some('K') => rows[row].truncate(column),
                    Some('A') => row = row.saturating_sub(number.parse().unwrap_or(1)),
                    Some('B') => row += number.parse().unwrap_or(1),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => (row, column) = (row + 1, 0),
            letter => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                rows.resize(rows.len().max(row + 1), vec![]);
                let length = rows[row].len().max(column + 1);
                rows[row].resize(length, ' ');
                rows[row][column] = letter;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), vec![]);
    }
    rows.into_iter()
        .map(|row| row.into_iter().collect::<String>() + "\n")
        .collect()
}

/// The bar of the runs, and the spinner of the build that the first run starts.
#[test]
fn progress_leaves_nothing_on_the_terminal() {
    assert_eq!(
        screen("ab\rc\nlonger\x1b[1A\r\x1b[2Kx", 4),
        "x\nlong\ner\n".replace("x\nlong", "cb\nx")
    );
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = cloison_tests::program().display();
    let command = format!(
        "stty cols 80 rows 24; {program} experiment c2is --quick --out {}",
        scratch.path().display()
    );
    let mut terminal = Command::new("script");
    terminal
        .args(["-qec", &command, "/dev/null"])
        .current_dir(installation::root())
        .env("TERM", "xterm");
    let output = terminal
        .stdin(Stdio::null())
        .output()
        .expect("script is part of every Debian");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("0/6"),
        "the bar was drawn\n{text}"
    );
    let shown = screen(&text, 80);
    assert!(shown.contains("Report:"), "{shown}");
    for stale in ["/6 ", "building", "s left"] {
        assert!(!shown.contains(stale), "{stale}\n{shown}");
    }
}

/// Some terminals, as of containers, say that they have no columns: tables and errors take 80.
#[test]
fn a_terminal_of_no_size_has_80_columns() {
    let (_scratch, config) = copy("narrow");
    let text = std::fs::read_to_string(&config).expect("it was copied");
    let wrong =
        format!("{text}\n[[vm]]\nname = \"a name that is much too long for the name of a VM\"\n");
    std::fs::write(&config, wrong).expect("it can be written");
    let program = cloison_tests::program().display();
    for command in ["events show BUS_ACCESS", &format!("check {config}")] {
        let typed = format!("stty rows 0 cols 0; {program} {command}; true");
        let output = Command::new("script")
            .args(["-qec", &typed, "/dev/null"])
            .current_dir(installation::root())
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("script is part of every Debian");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let widest = said
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max();
        assert!(
            widest.is_some_and(|widest| (60..=80).contains(&widest)),
            "{command}: {widest:?}\n{said}"
        );
    }
}

/// Returns a command without network, if this user may have one; tests run as root in CI.
fn without_network(program: &Path) -> Command {
    let ways = ["unshare --net", "unshare --net --map-root-user"];
    match namespace::first_allowed(&ways) {
        Some(way) => {
            let mut command = namespace::command(way);
            command.arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// As root, without network, with an old QEMU first on the PATH and without any cache: what is
/// missing is named, and nothing is written outside the working folder.
#[test]
fn only_commands_that_install_do() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = |name: &str| {
        let path = scratch.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    let (old, work, cache, home) = (
        folder("old"),
        folder("work"),
        folder("cache"),
        folder("home"),
    );
    let program = old.join("qemu-system-aarch64");
    std::fs::write(
        &program,
        "#!/bin/sh\necho 'QEMU emulator version 7.2.0 (Debian)'\n",
    )
    .expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it can be executed");
    let path = std::env::var("PATH").expect("a PATH");
    let run = |path: &str, args: &[&str]| {
        let output = without_network(cloison_tests::program())
            .args(args)
            .current_dir(&work)
            .env_remove("CLOISON_MAY_INSTALL")
            .env("XDG_CACHE_HOME", &cache)
            .env("HOME", &home)
            // Where cargo and Rust are, if they are found by the home directory alone.
            .envs(rust_homes())
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        let words = words.split_whitespace().filter(|word| *word != "│");
        (output.status.code(), words.collect::<String>())
    };
    let config = |name: &str| {
        let path = installation::root().join("configs").join(name);
        path.display().to_string()
    };
    let hidden = format!("{}:{path}", old.display());
    for args in [
        &["run", &config("pvt-sh.toml")][..],
        &["experiment", "quota", "--quick", "--out", "results"],
        &["setup", "--check"],
    ] {
        let (code, said) = run(&hidden, args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        for part in ["hasversion7.2", "tooold", "hides"] {
            assert!(said.contains(part), "{args:?}: {said}");
        }
    }
    let (code, said) = run(&path, &["run", &config("linux-rt.toml"), "--exec", "true"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("isnotinthecache") && said.contains("linuxfetch--releasebookworm"),
        "{said}"
    );
    for folder in [cache, home] {
        let left: Vec<_> = std::fs::read_dir(&folder).expect("it is there").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Returns the variables with the directories of cargo and rustup.
fn rust_homes() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let rustup = rustup.or_else(|| Some(std::env::home_dir()?.join(".rustup")));
    [("CARGO_HOME", cargo::home()), ("RUSTUP_HOME", rustup)]
        .into_iter()
        .filter_map(|(variable, home)| Some((variable, home?)))
}

/// `run … -- -gdb tcp::PORT -S`, as docs/guests.md has it: the debugger's stub answers before the
/// first instruction.
#[test]
fn a_debugger_reaches_the_board() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port")
        .port();
    let (_scratch, config) = copy("debugged");
    let mut command = Command::new(cloison_tests::program());
    command.args([
        "run",
        &config,
        "--icount",
        "--timeout",
        "300",
        "--",
        "-gdb",
        &format!("tcp:127.0.0.1:{port}"),
        "-S",
    ]);
    command
        .current_dir(installation::root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = command.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(240);
    let mut stub = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stub) => break stub,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    // Why has the machine stopped? (GDB remote protocol, packet `?`.) SIGTRAP, on some thread; then
    // the machine is killed.
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
    command
        .args(["check", "configs/demo.toml"])
        .current_dir(installation::root())
        .env("TMPDIR", "/nonexistent/here");
    let output = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("TMPDIR names /nonexistent/here"),
        "{error}"
    );
}

/// Runs `events validate` with these options. Returns the verdicts, and what each was counted as.
fn verdicts(options: &[&str]) -> (Vec<(String, String)>, serde_json::Value) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [json, out] = ["it.json", "it.toml"].map(|name| scratch.path().join(name));
    let files = [
        "--json",
        &json.display().to_string(),
        "--out",
        &out.display().to_string(),
    ]
    .map(str::to_owned);
    let all: Vec<&str> = ["events", "validate"]
        .iter()
        .chain(options)
        .copied()
        .chain(files.iter().map(String::as_str))
        .collect();
    good(&all);
    let record =
        cloison_config::validation::Record::load(&out).expect("what was written can be read");
    let found: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("it was written")).expect("it is JSON");
    let verdicts = found["verdicts"].as_object().expect("verdicts by name");
    assert_eq!(record.verdicts.len(), verdicts.len());
    for recorded in &record.verdicts {
        assert_eq!(
            verdicts[&recorded.event],
            recorded.verdict.to_string(),
            "{}",
            recorded.event
        );
    }
    let pairs = verdicts.iter().map(|(event, verdict)| {
        (
            event.clone(),
            verdict.as_str().unwrap_or_default().to_owned(),
        )
    });
    (pairs.collect(), found)
}

/// The shipped verdicts on a machine are those that are found today.
#[track_caller]
fn as_shipped(machine: &str, found: &[(String, String)]) {
    let path =
        installation::root().join(format!("configs/validation/verdicts/virt-{machine}.toml"));
    let shipped =
        cloison_config::validation::Record::load(&path).expect("the shipped verdicts can be read");
    for (event, verdict) in found {
        let before = shipped
            .of(event)
            .map(|recorded| recorded.verdict.to_string());
        assert_eq!(
            before.as_ref(),
            Some(verdict),
            "{event} on {machine}: run `cloison events validate` again"
        );
    }
    assert_eq!(shipped.verdicts.len(), found.len());
}

#[test]
fn each_machine_gets_the_verdicts_that_it_deserves() {
    let (stock, _) = verdicts(&["--runs", "2"]);
    assert!(
        stock.len() > 15 && stock.iter().all(|(_, verdict)| verdict == "dead"),
        "{stock:?}"
    );
    as_shipped("stock", &stock);
    let (icount, _) = verdicts(&["--runs", "2", "--icount"]);
    as_shipped("icount", &icount);
    let alive: Vec<_> = icount
        .iter()
        .filter(|(_, verdict)| verdict != "dead")
        .collect();
    let trusted =
        ["CPU_CYCLES", "INST_RETIRED"].map(|event| (event.to_owned(), "trusted".to_owned()));
    assert_eq!(alive, trusted.iter().collect::<Vec<_>>());
    let board = cloison_engine::configuration::board("virt").expect("it is there");
    let (model, found) = verdicts(&["--runs", "2", "--model"]);
    as_shipped("model", &model);
    let prefetches = found["provenance"]["parameters"]["prefetcher"]
        .as_str()
        .expect("its state")
        .starts_with("on");
    for (event, verdict) in &model {
        let counted = board
            .events
            .by_name(event)
            .is_some_and(|known| Counting::Model.counts(&board, known.id));
        let wanted = match event.as_str() {
            // Walks of the tables bring lines, which push out others: how many is not known in
            // advance.
            "L2D_CACHE" => "quarantined",
            // A line that was prefetched is no miss: another event counts it.
            "L1D_CACHE_REFILL" if prefetches => "corrected",
            _ if counted => "trusted",
            _ => "not modelled",
        };
        assert_eq!(verdict, wanted, "{event}: {}", found["evidence"][event]);
    }
    // Without prefetcher and walks, every line is known.
    let virt = std::fs::read_to_string(installation::root().join("configs/boards/virt.toml"))
        .expect("the board");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let quiet = scratch.path().join("virt.toml");
    std::fs::write(
        &quiet,
        virt.replacen("model = \"zcu102\"", "model = \"zcu102-no-prefetch\"", 1),
    )
    .expect("a board");
    let (quiet, found) = verdicts(&[
        "--runs",
        "2",
        "--model",
        "--board",
        &quiet.display().to_string(),
    ]);
    let of = |event: &str| {
        quiet
            .iter()
            .find(|(known, _)| known == event)
            .map(|(_, verdict)| verdict.as_str())
    };
    assert_eq!(
        (of("L2D_CACHE"), of("L1D_CACHE_REFILL")),
        (Some("corrected"), Some("trusted")),
        "{quiet:?}"
    );
    let tried = &found["evidence"]["L2D_CACHE"]["tried"];
    assert_eq!(tried[0]["outcome"], "explains every benchmark", "{tried}");
    // The long function tells the mechanism from a counter that counts twice.
    assert!(
        tried[1]["outcome"]
            .as_str()
            .unwrap_or_default()
            .contains("long-function"),
        "{tried}"
    );
    let (model, _) = verdicts(&["--runs", "1", "--model", "--no-hypotheses"]);
    for event in ["L2D_CACHE", "L1D_CACHE_REFILL"] {
        assert!(
            model.contains(&(event.into(), "quarantined".into())),
            "{model:?}"
        );
    }
}

#[test]
fn an_event_is_shown_with_its_verdicts() {
    let shown = good(&["events", "show", "INST_RETIRED"]).out;
    let of_virt = "| verdicts on virt | dead on stock QEMU, trusted on QEMU with --icount, \
                   trusted on the board model |";
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(of_virt), "{shown}");
    assert!(
        good(&["events", "show", "L2D_CACHE"])
            .out
            .contains("quarantined on the board model")
    );
    assert!(
        good(&["events", "show", "BUS_CYCLES"])
            .out
            .contains("none: a quota on it is refused")
    );
}

#[test]
fn counts_from_elsewhere_are_judged_without_a_board() {
    let file = |part: &str| format!("host-tools/config/tests/hem-paper/xavier{part}.toml");
    let [manifest, hypotheses, counts] = ["", "-hypotheses", "-counts"].map(file);
    let (paper, _) = verdicts(&[
        "--manifest",
        &manifest,
        "--hypotheses",
        &hypotheses,
        "--counts",
        &counts,
    ]);
    assert!(
        paper.contains(&("inst_misc".into(), "corrected".into())),
        "{paper:?}"
    );
    let done = cloison(&[
        "events",
        "validate",
        "--counts",
        &hypotheses,
        "--manifest",
        &manifest,
    ]);
    assert!(
        done.code == Some(1) && done.err.contains("`machine` is missing"),
        "{}",
        done.err
    );
}

/// The staircase's two steps, in blocks of a step.
const BLOCKS: [&str; 7] = [
    "--pages",
    "ram:256-295",
    "-b",
    "20",
    "--covered",
    "0",
    "--coarse",
];

/// Runs `cloison bbprof` on the staircase. Returns the result, and the rows of pages.csv: number,
/// importance.
fn profiled(arguments: &[&str], out: &Path) -> (CommandResult, Vec<(u64, f64)>) {
    let (config, directory) = (
        "tests/configs/bbprof/staircase.toml",
        out.display().to_string(),
    );
    let all = [
        &[
            "bbprof",
            config,
            "--vm",
            "staircase",
            "-f",
            "h",
            "--out",
            &directory,
        ],
        arguments,
    ]
    .concat();
    let done = good(&all);
    let text = std::fs::read_to_string(out.join("pages.csv")).expect("pages.csv");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (
            cells[1].parse().expect("a page"),
            cells[5].parse().expect("an importance"),
        )
    };
    let rows = text.lines().skip(1).map(row).collect();
    (done, rows)
}

/// The mean importance of each step's pages, relative to the first step's.
fn steps(rows: &[(u64, f64)]) -> Vec<f64> {
    let of = |step: u64| {
        let pages = 256 + 20 * step..256 + 20 * (step + 1);
        let own: Vec<f64> = rows
            .iter()
            .filter(|(page, _)| pages.contains(page))
            .map(|(_, it)| *it)
            .collect();
        assert_eq!(own.len(), 20, "step {step}");
        own.iter().sum::<f64>() / 20.0
    };
    (0..5).map(|step| of(step) / of(0)).collect()
}

/// The pages of the staircase's profile in a configuration, the most important first, as addresses.
fn ranked(config: &Path) -> Vec<u64> {
    let checked = configuration::load(config, None).unwrap_or_else(|errors| panic!("{errors:?}"));
    let profile = checked.system.vms[0].profile.as_ref().expect("a profile");
    profile.pages.iter().map(|ipa| ipa.0).collect()
}

/// Images that a command puts together itself have the hypervisor for the board's interrupt
/// controller.
#[test]
fn guests_are_profiled_on_a_board_with_a_gicv3() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let options = [&BLOCKS[..], &["--board", VIRT_GICV3]].concat();
    let (_, rows) = profiled(&options, &scratch.path().join("pages"));
    assert_eq!(rows.len(), 40);
    let out = scratch.path().join("functions");
    good(&[
        "profile",
        "tests/configs/kernels.toml",
        "--board",
        VIRT_GICV3,
        "--vm",
        "disparity",
        "--only",
        "alone",
        "--out",
        &out.display().to_string(),
    ]);
    let costs = std::fs::read_to_string(out.join("alone/callgrind.hypervisor.out"));
    let costs = costs.expect("the costs of EL2's functions");
    assert!(costs.contains("cloison_el2::vm::life::"), "{costs}");
}

/// The steps of the staircase are read 1 to 5 times, by blocks of a step each.
#[test]
fn the_steps_of_a_bare_metal_staircase_are_found_and_kept() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (out, file) = (
        scratch.path().join("out"),
        scratch.path().join("not-made-yet.toml"),
    );
    let path = file.display().to_string();
    let blocks = [
        "--pages",
        "ram:256-355",
        "-b",
        "20",
        "--covered",
        "0",
        "--coarse",
        "-o",
        &path,
    ];
    let (done, rows) = profiled(&blocks, &out);
    let found = steps(&rows);
    for (step, wanted) in found.iter().zip(1..) {
        assert!(
            (step - f64::from(wanted)).abs() <= 0.15 * f64::from(wanted),
            "{found:?}"
        );
    }
    assert!(done.out.contains("k* is "), "{}", done.out);
    // The configuration, whose profile did not exist, takes it, and has the same pages on top as
    // with that written by hand.
    let text =
        std::fs::read_to_string(installation::root().join("tests/configs/bbprof/staircase.toml"))
            .expect("it is there");
    let (config, other) = (
        scratch.path().join("own.toml"),
        scratch.path().join("by-hand.toml"),
    );
    std::fs::write(&config, text.replace("[\"420K\", 0]", "[\"8K\", 1]"))
        .expect("it can be written");
    let shipped = installation::root()
        .join("profiles/staircase.toml")
        .display()
        .to_string();
    std::fs::write(&other, text.replace("not-made-yet.toml", &shipped)).expect("it can be written");
    let (own, by_hand) = (ranked(&config), ranked(&other));
    assert_eq!(own.len(), 100);
    for part in (20..=100).step_by(20) {
        let top = |pages: &[u64]| pages[..part].iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(top(&own), top(&by_hand), "the first {part}");
    }
    // What was measured is there.
    let (again, same) = profiled(&blocks, &out);
    assert_eq!(same, rows);
    let runs = again
        .err
        .lines()
        .find(|line| line.starts_with("bbprof: "))
        .expect("a summary");
    let numbers: Vec<u32> = runs
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers.first(), numbers.get(1), "all runs are kept: {runs}");
    let repeated = good(&["run", &out.join("runs/all").display().to_string()]);
    assert!(
        repeated.out.contains("staircase: run=0"),
        "{}",
        repeated.out
    );
    // A guest that has no segment.
    let out = scratch.path().join("none").display().to_string();
    let none = cloison(&[
        "bbprof",
        &config.display().to_string(),
        "--vm",
        "interf",
        "-f",
        "t",
        "--out",
        &out,
    ]);
    assert!(
        none.code == Some(1)
            && none
                .err
                .contains("`interf` has marked 0 regions of interest"),
        "{}",
        none.err
    );
}

/// Makes a folder as `capture` does of the logs of a run, with the image that `--images` wrote.
fn captured(images: &Path, name: &str, logs: [&Path; 2], runs: &Path) {
    let of = |file: &str| images.join(name).join(file).display().to_string();
    let [console, telemetry] = logs.map(|log| log.display().to_string());
    let out = runs.join(name).display().to_string();
    good(&[
        "capture",
        &of("system.toml"),
        "--board",
        VIRT,
        "--image",
        &of("Image"),
        "--console",
        &console,
        "--telemetry",
        &telemetry,
        "--out",
        &out,
    ]);
}

/// Returns the names of the folders in a folder, in order.
fn folders(of: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(of).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("text"))
        .collect()
}

/// Runs a command that fails. Returns what it prints, on one line.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let done = ends_with(1, arguments);
    let words = done.err.replace('│', " ");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The runs of a profile on the model, captured from their logs as those of a board, give the same
/// profile. Which runs the curve needs depends on those before it.
#[test]
fn captured_runs_give_the_profile_of_the_runs_themselves() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let of = |name: &str| scratch.path().join(name);
    let (_, rows) = profiled(&BLOCKS, &of("direct"));
    assert_eq!(rows.len(), 40);
    let [images, runs, own] = ["images", "runs", "own"].map(|name| of(name).display().to_string());
    let again = |options: &[&str]| {
        let config = "tests/configs/bbprof/staircase.toml";
        let fixed = [
            "bbprof",
            config,
            "--vm",
            "staircase",
            "-f",
            "h",
            "--out",
            &own,
        ];
        let all = [&fixed[..], &BLOCKS, options].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let run = |options: &[&str]| {
        let all = again(options);
        good(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fails = |options: &[&str]| {
        let all = again(options);
        refused(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let first = run(&["--images", &images]);
    assert!(
        first.out.contains("4 images for board virt"),
        "{}",
        first.out
    );
    let mut known = BTreeSet::new();
    while !of("own").join("profile.toml").is_file() {
        let made = folders(&of("images"));
        let new: Vec<&String> = made.difference(&known).collect();
        assert!(!new.is_empty(), "the last command wrote no image");
        for name in new {
            let direct = of("direct").join("runs").join(name);
            let logs = [direct.join("console.txt"), direct.join("telemetry.bin")];
            captured(&of("images"), name, [&logs[0], &logs[1]], &of("runs"));
        }
        known = made;
        run(&["--captured", &runs, "--images", &images]);
    }
    let read = |folder: &str, file: &str| {
        std::fs::read_to_string(of(folder).join(file)).expect("it was written")
    };
    assert_eq!(read("own", "pages.csv"), read("direct", "pages.csv"));
    let (profile, direct) = (read("own", "profile.toml"), read("direct", "profile.toml"));
    let (origin, rest) = profile.split_once('\n').expect("lines");
    assert_eq!(
        origin,
        "# Made by `cloison bbprof` on board virt, by its captured runs."
    );
    assert_eq!(Some(rest), direct.split_once('\n').map(|(_, rest)| rest));
    assert!(read("own", "figures.json").contains("\"modelled\": \"false\""));

    // What is missing, of another image, cut or damaged.
    let file = |run: &str, name: &str| of("runs").join(run).join(name);
    std::fs::rename(of("runs").join("all"), of("away")).expect("it can be moved");
    let error = fails(&["--captured", &runs]);
    assert!(
        error.contains("1 of 4 runs were not captured: all"),
        "{error}"
    );
    assert!(error.contains("--images DIR"), "{error}");
    std::fs::rename(of("away"), of("runs").join("all")).expect("it can be moved");
    let whole = std::fs::read(file("all", "telemetry.bin")).expect("a file");
    let other = std::fs::read(file("none", "telemetry.bin")).expect("a file");
    for (bytes, words) in [
        (&other[..], "the board ran another image"),
        (&whole[..whole.len() - 9], "bad telemetry"),
        (&[], "does not begin with the boot"),
    ] {
        std::fs::write(file("all", "telemetry.bin"), bytes).expect("it can be written");
        let error = fails(&["--captured", &runs]);
        assert!(
            error.contains(words) && error.contains("runs/all"),
            "{error}"
        );
    }
    std::fs::write(file("all", "telemetry.bin"), &whole).expect("it can be written");
    std::fs::write(file("all", "damage.csv"), "byte").expect("it can be written");
    let error = fails(&["--captured", &runs]);
    assert!(error.contains("records were damaged"), "{error}");
    std::fs::remove_file(file("all", "damage.csv")).expect("it is there");
    let error = fails(&["--captured", &own]);
    assert!(error.contains("has no captured run"), "{error}");
    // The image of one run, and the log of another.
    let error = refused(&[
        "capture",
        &of("images").join("all/system.toml").display().to_string(),
        "--board",
        VIRT,
        "--image",
        &of("images").join("all/Image").display().to_string(),
        "--telemetry",
        &file("none", "telemetry.bin").display().to_string(),
        "--out",
        &of("wrong").display().to_string(),
    ]);
    assert!(error.contains("this is a run of bbprof."), "{error}");
    let error = refused(&[
        "capture",
        "configs/pvt-sh.toml",
        "--image",
        &of("images").join("all/Image").display().to_string(),
        "--telemetry",
        &file("none", "telemetry.bin").display().to_string(),
    ]);
    assert!(error.contains("and not of pvt-sh on virt"), "{error}");
}

/// The benchmarks of a validation, captured as from a board, get the verdicts of the direct command.
#[test]
fn captured_counts_get_the_verdicts_of_the_direct_command() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let of = |name: &str| scratch.path().join(name);
    let words = |name: &str| of(name).display().to_string();
    std::fs::write(of("two.toml"), BENCHMARKS).expect("it can be written");
    let manifest = words("two.toml");
    let fixed = ["events", "validate", "--manifest", &manifest];
    let with = |options: &[&str]| [&fixed[..], options].concat().join("\n");
    let run = |options: &[&str]| good(&with(options).split('\n').collect::<Vec<_>>());
    let fails = |options: &[&str]| refused(&with(options).split('\n').collect::<Vec<_>>());
    run(&["--icount", "--out", &words("direct.toml")]);
    let made = run(&["--images", &words("images")]);
    assert!(made.out.contains("2 images for board virt"), "{}", made.out);
    for name in folders(&of("images")) {
        let image = std::fs::read(of("images").join(&name).join("Image")).expect("an image");
        let outcome = boot(&image, VIRT, Clock::Counted).expect("it boots");
        let logs = [of("console"), of("telemetry")];
        std::fs::write(&logs[0], &outcome.console).expect("it can be written");
        std::fs::write(&logs[1], &outcome.telemetry).expect("it can be written");
        captured(&of("images"), &name, [&logs[0], &logs[1]], &of("runs"));
    }
    let runs = words("runs");
    let own = words("own.toml");
    run(&["--captured", &runs, "--cpu-mhz", "1000", "--out", &own]);
    let read = |name: &str| std::fs::read_to_string(of(name)).expect("it was written");
    let (own, direct) = (read("own.toml"), read("direct.toml"));
    let (head, verdicts) = own.split_once("[[verdict]]").expect("verdicts");
    assert!(head.contains("machine = \"hardware\""), "{head}");
    assert!(head.contains("counts of virt"), "{head}");
    assert_eq!(
        Some(verdicts),
        direct.split_once("[[verdict]]").map(|(_, rest)| rest)
    );
    assert!(verdicts.contains("verdict = \"trusted\""), "{verdicts}");

    // Another image of the same system, which counts another event; one that is missing; and one
    // of another number of runs.
    let file = |run: &str| of("runs").join(run).join("telemetry.bin");
    let [first, second] = ["1-matrix-copy-events-1", "1-matrix-copy-events-2"];
    let whole = std::fs::read(file(second)).expect("a file");
    std::fs::copy(file(first), file(second)).expect("it can be copied");
    let error = fails(&["--captured", &runs]);
    assert!(
        error.contains("the board ran another image: it counted"),
        "{error}"
    );
    std::fs::write(file(second), whole).expect("it can be written");
    let error = fails(&["--captured", &of("runs").join(first).display().to_string()]);
    assert!(error.contains("1 run of 2 not captured"), "{error}");
    let error = fails(&["--captured", &runs, "--runs", "2"]);
    assert!(error.contains("is a run of another image"), "{error}");
}

/// `capture` keeps the log of the hello image, as `board compare` takes it.
#[test]
fn the_log_of_the_hello_image_is_captured_and_compared() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let words = |name: &str| scratch.path().join(name).display().to_string();
    let board = configuration::board(VIRT).expect("it is shipped");
    let image = hello::build(&board, Place::Emulator).expect("it builds");
    let outcome = boot(&image, VIRT, Clock::Real).expect("it boots");
    let [console, telemetry, out] = ["console", "telemetry", "out"].map(words);
    std::fs::write(&console, &outcome.console).expect("it can be written");
    std::fs::write(&telemetry, &outcome.telemetry).expect("it can be written");
    // The ports are exchanged.
    let done = good(&[
        "capture",
        "--hello",
        "--console",
        &telemetry,
        "--telemetry",
        &console,
        "--out",
        &out,
    ]);
    assert!(done.err.contains("the ports are exchanged"), "{}", done.err);
    assert!(done.out.contains("checks of board virt"), "{}", done.out);
    assert!(done.out.contains("port sends its line"), "{}", done.out);
    assert!(done.out.contains("hello.log: turned off"), "{}", done.out);
    let log = format!("{out}/hello.log");
    let compared = good(&["board", "compare", &log]);
    let right = "the board is what its file says";
    assert!(compared.out.contains(right), "{}", compared.out);
    // With a configuration, the log is named.
    let config = "configs/pvt-sh.toml";
    let error = refused(&["capture", config, "--console", &console, "--out", &out]);
    assert!(
        error.contains("this is the log of the hello image"),
        "{error}"
    );
}

/// Page by page, both ways.
#[test]
#[ignore = "on demand: some 400 boots on the model"]
fn every_page_of_a_bare_metal_staircase_is_found() {
    // In the first segment, which is the only one here, mode nc finds 1 : 2.3 : 3.4 : 4.7 : 6.0; in
    // four, 1 : 2.0 to 5.1.
    for (mode, within) in [("c", 0.05), ("nc", 0.25)] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (done, rows) = profiled(
            &["--pages", "ram:256-355", "-m", mode, "--rank"],
            scratch.path(),
        );
        println!("{}", done.out);
        let found = steps(&rows);
        for (step, wanted) in found.iter().zip(1..) {
            assert!(
                (step - f64::from(wanted)).abs() <= within * f64::from(wanted),
                "{mode}: {found:?}"
            );
        }
    }
}

/// Tunes the shipped example without its last VM, and with half of its runs, in a directory. The VMs
/// with goals have this tolerance. Returns the new configuration, the surfaces and the figures.
fn example_tuned(scratch: &Path, tolerance: &str) -> [Vec<u8>; 3] {
    let text = std::fs::read_to_string(installation::root().join("configs/tune.toml"));
    let mut text = text.expect("it is there");
    text.truncate(text.rfind("[[vm]]\n").expect("the last VM"));
    let profiles = installation::root().join("profiles");
    for (old, new) in [
        ("\"1.15\"", format!("\"{tolerance}\"").as_str()),
        ("\"1.20\"", &format!("\"{tolerance}\"")),
        ("[4, 5]", "[2, 5]"),
        ("[\"128K\", 2, 0, 4]", "[\"128K\", 2, 0, 2]"),
        ("../profiles", &profiles.display().to_string()),
    ] {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let config = scratch.join("tune.toml");
    std::fs::write(&config, &text).expect("it can be written");
    let config = config.display().to_string();
    let names = ["t.toml", "s.csv", "f.json"];
    let [tuned, surfaces, json] = names.map(|name| scratch.join(name).display().to_string());
    let out = scratch.join("out").display().to_string();
    let done = good(&[
        "tune",
        &config,
        "--out",
        &out,
        "-o",
        &tuned,
        "--surfaces",
        &surfaces,
        "--json",
        &json,
    ]);
    assert!(done.out.contains("Who gets what"), "{}", done.out);
    let checked = configuration::load(Path::new(&tuned), None);
    assert!(checked.is_ok(), "{:?}", checked.err());
    let files = names.map(|name| std::fs::read(scratch.join(name)).expect("it was written"));
    let figures: serde_json::Value = serde_json::from_slice(&files[2]).expect("JSON");
    let vms = figures["series"]["vms"].as_array().expect("a series");
    assert_eq!(vms.len(), 3);
    for vm in vms {
        let time = vm["run_ns"].as_u64().expect("it was run");
        assert!(vm["predicted_ns"].as_u64().is_some(), "{vm}");
        if let Some(limit) = vm["limit_ns"].as_u64() {
            assert!(time <= limit, "{vm}");
        }
    }
    files
}

/// From goals to a partition that was run. No neighbor needs a budget, and so no second period of
/// budgets is tried: a private pool for the most important pages is enough.
#[test]
fn a_system_is_tuned_by_private_pages() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [tuned, ..] = example_tuned(scratch.path(), "1.50");
    let tuned = String::from_utf8_lossy(&tuned).into_owned();
    assert!(!tuned.contains("[[vm.quota]]"), "{tuned}");
    let report = std::fs::read_to_string(scratch.path().join("out/report.html"));
    let report = report.expect("it was written");
    for part in [
        "All goals held when the partition was run. Private: ",
        "  PVT control-pvt ",
        "Predicted against run again",
        "control with ",
        "Periods of budgets",
        "not tried: a whole budget can fall into a segment of ",
    ] {
        assert!(report.contains(part), "{part}");
    }
}

/// Tighter goals, which hold only if the neighbor has a budget; the same input gives the same files.
#[test]
fn a_system_is_tuned_by_a_budget_and_its_files_repeat() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a scratch directory"));
    let [tuned, surfaces, _] = example_tuned(first.path(), "1.10");
    let text = String::from_utf8_lossy(&tuned).into_owned();
    assert!(text.contains("[[vm.quota]]"), "{text}");
    let [again, same, _] = example_tuned(second.path(), "1.10");
    assert!(again == tuned && same == surfaces, "the files differ");
}

/// Boots the images that `tune` writes for a board, round by round, as a board would: it decides as
/// it does by its own runs on the model. The accesses of a VM without segments are counted by a quota
/// here.
#[test]
fn captured_runs_are_tuned_as_the_runs_themselves() {
    let lab = Lab::tune();
    let direct = lab.serial();
    let config = lab.file().display().to_string();
    let text = |name: &str| lab.path(name).display().to_string();
    let (out, images, runs) = (text("own"), text("images"), text("runs"));
    let fixed = ["tune", &config, "--out", &out, "--cpu-mhz", "1500"];
    let captured_too = [&fixed[..], &["--measured", &runs, "--images", &images]].concat();
    let mut known = BTreeSet::new();
    let mut rounds = 0;
    let mut done = good(&[&fixed[..], &["--images", &images]].concat());
    while !done.out.contains("Who gets what") {
        rounds += 1;
        let made = folders(&lab.path("images"));
        let new: Vec<&String> = made.difference(&known).collect();
        assert!(!new.is_empty(), "no image was written: {}", done.out);
        for name in new {
            let of = |file: &str| lab.path("images").join(name).join(file);
            assert!(done.out.contains(&format!("{name}/Image")), "{}", done.out);
            let image = std::fs::read(of("Image")).expect("an image");
            let outcome = boot(&image, VIRT, Clock::Modelled).expect("a boot");
            let logs = [of("console.txt"), of("telemetry.bin")];
            std::fs::write(&logs[0], &outcome.console).expect("it can be written");
            std::fs::write(&logs[1], &outcome.telemetry).expect("it can be written");
            let (images, runs) = (lab.path("images"), lab.path("runs"));
            captured(&images, name, [&logs[0], &logs[1]], &runs);
        }
        known = made;
        done = good(&captured_too);
    }
    assert!(rounds > 2, "{rounds}");
    let figures = |directory: &Path| -> serde_json::Value {
        let bytes = std::fs::read(directory.join("figures.json")).expect("figures");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    let (own, model) = (figures(&lab.path("own")), figures(&direct));
    assert_eq!(own["provenance"]["parameters"]["modelled"], "false");
    // Only the model knows how many instructions of a VM of best effort were its own.
    let times = ["alone_ns", "predicted_ns", "run_ns"];
    for (vm, times) in [&times[..], &times[..2]].into_iter().enumerate() {
        let [own, model] = [&own, &model].map(|figures| &figures["series"]["vms"][vm]);
        assert_eq!(own["placement"], model["placement"]);
        for time in times {
            let [own, model] = [own, model].map(|vm| vm[time].as_f64().expect("a time"));
            let ratio = own / model;
            assert!((0.95..1.05).contains(&ratio), "{time}: {own} and {model}");
        }
    }
    let flood = |figures: &serde_json::Value| figures["figures"]["flood_accesses"].as_f64();
    let ratio = flood(&own).expect("a count") / flood(&model).expect("a count");
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
    let report = std::fs::read_to_string(lab.path("own/report.html")).expect("a report");
    assert!(report.contains("From runs that `cloison capture` has left, on board virt."));

    // What is missing, of another configuration, or lacks its clock.
    let run = |name: &str| lab.path("runs").join(name);
    let only_captured = [&fixed[..], &["--measured", &runs]].concat();
    let other = std::fs::read(run("flood-both").join("Image")).expect("an image");
    std::fs::write(run("flood-both").join("Image"), [&other[..], &[0]].concat())
        .expect("it can be written");
    let error = refused(&only_captured);
    let words = "1 of 5 runs were not captured: flood-both";
    assert!(error.contains(words), "{error}");
    assert!(
        error.contains("runs/flood-both: its image is none"),
        "{error}"
    );
    let without = ["tune", &config, "--out", &out, "--measured", &runs];
    let done = ends_with(2, &without);
    assert!(done.err.contains("--cpu-mhz"), "{}", done.err);
    let done = ends_with(2, &[&only_captured[..], &["--seed", "3"]].concat());
    assert!(done.err.contains("cannot be used with"), "{}", done.err);
}

/// A copy of the first and third VM of the shipped example: a VM with a tolerance, whose profile is
/// the file `profile` beside the copy, and one of best effort, of which `logger` says what may
/// change.
fn two_vms_to_tune(scratch: &Path, profile: &str, tolerance: &str, logger: &str) -> String {
    let text = std::fs::read_to_string(installation::root().join("configs/tune.toml"));
    let text = text.expect("it is there");
    let parts: Vec<&str> = text.split("[[vm]]\n").collect();
    let [head, control, _, other, _] = parts.as_slice() else {
        panic!("the example has four VMs");
    };
    let control = control.replace("../profiles/c2is.toml", profile).replace(
        "tolerance = \"1.15\"",
        &format!("tolerance = \"{tolerance}\""),
    );
    let other = other.replace("tune = [\"budgets\"]\n", logger);
    let text = format!("{head}[[vm]]\n{control}[[vm]]\n{other}");
    let file = scratch.join("two.toml");
    std::fs::write(&file, text).expect("it can be written");
    file.display().to_string()
}

/// Goals that no partition keeps: the binding VM, the nearest goals that held when they were run,
/// and a report of both.
#[test]
fn an_impossible_goal_gets_a_report_and_the_nearest_one_that_holds() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let profile = installation::root().join("profiles/c2is.toml");
    let profile = profile.display().to_string();
    let config = two_vms_to_tune(scratch.path(), &profile, "1.001", "");
    let file = |name: &str| scratch.path().join(name).display().to_string();
    let (out, json, shared) = (file("out"), file("f.json"), file("shared"));
    let with = ["tune", &config, "--shared", &shared, "--out"];
    let done = ends_with(1, &[&with[..], &[&out, "--json", &json]].concat());
    assert!(done.err.contains("VM `control` lacks"), "{}", done.err);
    // Another configuration with the same VMs does not run them again.
    let again = ends_with(1, &[&with[..], &[&file("again")]].concat());
    let (_, runs) = done.err.split_once("tune: ").expect("the runs");
    let (runs, _) = runs.split_once(" runs in ").expect("their number");
    let kept = format!("s, {runs} of them kept from earlier");
    assert!(again.err.contains(&kept), "{}", again.err);
    let figures = std::fs::read(json).expect("it was written");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    let control = &figures["series"]["goals"][0];
    assert_eq!(control["is_binding"], true, "{control}");
    let limit = control["limit_ns"].as_u64().expect("a goal that holds");
    let run = control["run_ns"].as_u64().expect("it was run");
    assert!(run <= limit, "{control}");
    let report = std::fs::read_to_string(scratch.path().join("out/report.html"));
    let report = report.expect("it was written");
    for part in [
        "Impossible: ",
        "The nearest goals",
        "What was measured of control",
    ] {
        assert!(report.contains(part), "{part}");
    }
    assert!(!scratch.path().join("out/tuned.toml").exists());
}

/// A profile that the configuration names and that does not exist is made: the function of 65 pages
/// is found among all pages of the guest.
#[test]
#[ignore = "boots a board more than a hundred times: a minute"]
fn a_profile_that_does_not_exist_is_made_first() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let config = two_vms_to_tune(scratch.path(), "own.toml", "1.10", "tune = [\"budgets\"]\n");
    let out = scratch.path().join("out").display().to_string();
    let done = good(&["tune", &config, "--out", &out]);
    assert!(done.err.contains("own.toml does not exist"), "{}", done.err);
    assert!(done.out.contains("65 pages of version 1"), "{}", done.out);
    assert!(scratch.path().join("own.toml").exists());
    assert!(scratch.path().join("out/tuned.toml").exists());
}

/// Linux moves pages as it likes: its profile cannot be made, and the error says by what it can.
#[test]
fn a_profile_of_linux_is_not_made() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let text = std::fs::read_to_string(installation::root().join("configs/tune-linux.toml"));
    let own = "[[pool]]\nname = \"own\"\nkind = \"PVT\"\ncolors = \"14\"\n";
    let profile = "\"pages\"]\nprofile = { file = \"own.toml\", pool = \"own\" }";
    let text = text
        .expect("it is there")
        .replace("0-14", "0-13")
        .replacen("[[vm]]", &format!("{own}[[vm]]"), 1)
        .replacen("\"colors\"]", profile, 1);
    let file = scratch.path().join("linux.toml");
    std::fs::write(&file, text).expect("it can be written");
    let done = ends_with(1, &["tune", &file.display().to_string()]);
    for part in ["own.toml of VM", "runs Linux", "tools = [\"bbprof\"]"] {
        assert!(done.err.contains(part), "{}", done.err);
    }
}

/// A real-time Linux, a program in another Linux and a bare-metal VM get a partition that holds when it
/// is run, and it boots on both machines.
#[test]
#[ignore = "boots Linux a hundred times: many minutes"]
fn programs_in_linux_are_tuned() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = |name: &str| scratch.path().join(name).display().to_string();
    let (tuned, out) = (file("t.toml"), file("out"));
    let config = "configs/tune-linux.toml";
    let done = good(&["tune", config, "--out", &out, "-o", &tuned]);
    println!("{}", done.out);
    assert!(done.out.contains("Who gets what"), "{}", done.out);
    let figures = std::fs::read(scratch.path().join("out/figures.json")).expect("it was written");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    let vms = figures["series"]["vms"].as_array().expect("a series");
    for vm in vms.iter().take(3) {
        let margin = vm["margin"].as_f64();
        assert!(margin.is_some_and(|margin| margin >= 0.0), "{vm}");
    }
    for board in [VIRT, ZCU102] {
        let run = good(&["run", &tuned, "--board", board]);
        assert!(run.out.contains("VM linux is off"), "{board}: {}", run.out);
    }
}
