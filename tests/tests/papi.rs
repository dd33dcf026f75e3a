//! PAPI for guests in C: the programs of `tests/papi`, built by `cloison new guest --c --papi` and
//! booted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use cloison_much_command::input::{ProgramChoice, measurements};
use cloison_tests::{Clock, VIRT, load, run};
use miette::Result;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Creates a guest with this program.
fn create(guest: &Path, program: &str, change: impl Fn(&str) -> String) {
    let path = guest.to_str().expect("a plain path");
    let mut new = Command::new(cloison_tests::program());
    let made = new
        .args(["new", "guest", path, "--c", "--papi"])
        .current_dir(installation::root())
        .output();
    let made = made.expect("it starts");
    assert!(made.status.success(), "{}", text(&made));
    let sources = installation::root().join("tests/papi");
    let copy = |from: &str, to: &str| {
        std::fs::copy(sources.join(from), guest.join(to)).expect("it can be copied")
    };
    copy("known.h", "known.h");
    copy(program, "main.c");
    edit(&guest.join("system.toml"), change);
}

/// Creates a guest with this program and boots it. Returns the numbers that it says, in order.
fn numbers(
    program: &str,
    flags: &str,
    options: &str,
    change: impl Fn(&str) -> String,
) -> Vec<(String, i64)> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = scratch.path().join("known");
    create(&guest, program, change);
    let mut make = Command::new("make");
    make.args([
        "run",
        &format!("OPTIONS={options}"),
        &format!("CC=aarch64-linux-gnu-gcc -Werror {flags}"),
    ]);
    let run = make
        .current_dir(&guest)
        .stdin(Stdio::null())
        .output()
        .expect("make starts");
    assert!(run.status.success(), "{}", text(&run));
    let console = text(&run);
    assert!(!console.contains("exception"), "{console}");
    let line = |line: &str| {
        let (what, number) = line.split_once("known: ")?.1.trim().split_once('=')?;
        Some((what.to_owned(), number.parse().expect("a number")))
    };
    console.lines().filter_map(line).collect()
}

fn edit(file: &Path, change: impl Fn(&str) -> String) {
    let before = std::fs::read_to_string(file).expect("it was made");
    std::fs::write(file, change(&before)).expect("it can be written");
}

/// Known counts of a piece of code, and a few instructions around it: the compiler's for its
/// operands and for the arguments of the call, and the call's until the counters stop.
fn near(counted: i64, known: i64) {
    assert!(
        (known..=known + 20).contains(&counted),
        "{counted}, not {known}"
    );
}

#[test]
fn figure_2_of_the_paper_runs_as_it_is() {
    // It is also what the page and a new guest show.
    let read =
        |path: &str| std::fs::read_to_string(installation::root().join(path)).expect("it is there");
    let calls = |text: &str| -> Vec<String> {
        let starts = [
            "int Events[",
            "long long values[",
            "PAPI_start_counters(E",
            "PAPI_read_",
            "PAPI_accum_",
            "PAPI_stop_",
        ];
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| starts.iter().any(|start| line.starts_with(start)));
        lines.map(str::to_owned).collect()
    };
    let figure = calls(&read("tests/papi/figure2.c"));
    assert_eq!(figure.len(), 6, "{figure:?}");
    assert_eq!(calls(&read("docs/papi.md")), figure);
    let found = numbers("figure2.c", "", "--icount", str::to_owned);
    let [(both, sum), (last, rest)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((both.as_str(), last.as_str()), ("both", "last"));
    // Cycles, which are instructions here; the sum has two calls in it.
    assert!((102_000..102_040).contains(sum), "{sum}");
    near(*rest, 6_000);
}

#[test]
fn high_level_functions_count_instructions_and_only_those_of_the_program() {
    let found = numbers(
        "counts.c",
        "-DEVENTS=PAPI_TOT_INS -DNUM_EVENTS=1",
        "--icount",
        str::to_owned,
    );
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, late] = counts[..] else {
        panic!("{found:?}")
    };
    near(first, 2_000 + 300);
    assert!((112_288..112_328).contains(&sum), "{found:?}");
    near(last, 3);
    assert_eq!(late, -1);
}

#[test]
fn high_level_functions_add_no_access_to_a_cache() {
    let found = numbers(
        "counts.c",
        "-DEVENTS=PAPI_LD_INS,PAPI_L1_DCA,PAPI_SR_INS -DNUM_EVENTS=3",
        "--model",
        str::to_owned,
    );
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    // Loads, accesses and stores: of the program, and none of the library's.
    assert_eq!(
        counts,
        [100, 4_096, 1, 100, 4_096, 1, 0, 0, 0, -1],
        "{found:?}"
    );
}

/// Runs `bench epapi` on a board and returns its figures. No aim is missed: no access of data more,
/// at most 12 instructions.
fn bench(board: &str) -> serde_json::Value {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let json = scratch.path().join("figures.json");
    let mut bench = Command::new(cloison_tests::program());
    bench
        .args(["bench", "epapi", "--board", board, "--json"])
        .arg(&json);
    let output = bench
        .current_dir(installation::root())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
    let figures: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("it was written"))
            .expect("JSON");
    let figures = figures["figures"].clone();
    assert_eq!(
        (&figures["aims_missed"], &figures["repeats_exactly"]),
        (&0.into(), &1.into()),
        "{}",
        text(&output)
    );
    figures
}

/// The paper's table 4.
#[test]
fn the_bench_shows_what_the_library_adds() {
    let figures = bench(VIRT);
    let figure = |name: &str| {
        figures[name]
            .as_i64()
            .unwrap_or_else(|| panic!("no {name}"))
    };
    for way in ["bare", "read", "accum"] {
        // 256 lines are loaded, and the L2 has none of them.
        assert_eq!(figure(&format!("model_papi_l1_dca_{way}_event")), 256);
        assert!(figure(&format!("model_papi_l2_tcm_{way}_event")) >= 256);
    }
    for call in ["read_1", "accum_3"] {
        assert!(
            figure(&format!("{call}_el1_instructions")) > 100
                && figure(&format!("{call}_el2_instructions")) > 100
        );
    }
}

/// The presets of a Cortex-A72, on a board whose caches nothing models.
#[test]
fn the_bench_counts_the_presets_of_a_cortex_a72() {
    let figures = bench("virt-a72");
    let figure = |name: &str| {
        figures[name]
            .as_i64()
            .unwrap_or_else(|| panic!("no {name}"))
    };
    assert!((35_000..35_020).contains(&figure("icount_papi_tot_ins_bare_event")));
    // A Cortex-A53 has no event for reads alone.
    assert_eq!(
        figure("icount_papi_l1_dcr_read_instructions")
            - figure("icount_papi_l1_dcr_bare_instructions"),
        5
    );
    assert!(figures.get("model_papi_tot_ins_bare_event").is_none());
}

#[test]
fn low_level_functions_work_in_c() {
    let found = numbers("low.c", "", "--icount", str::to_owned);
    let of = |name: &str| {
        found
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, number)| *number)
            .expect(name)
    };
    for (name, number) in [
        ("early", -16),
        ("init", 1),
        ("native", 1),
        ("name", 1),
        ("listed", 1),
        ("again", -10),
    ] {
        assert_eq!(of(name), number, "{name}: {found:?}");
    }
    for name in [
        "create",
        "by_name",
        "add",
        "add_named",
        "list",
        "results",
        "start",
        "stop",
        "overflow",
        "cleanup",
    ] {
        assert_eq!(of(name), 0, "{name}: {found:?}");
    }
    near(of("instructions"), 2_000);
    assert!((3_000..3_040).contains(&of("sum")), "{found:?}");
    assert_eq!(
        (of("in_memory"), of("state"), of("stopped"), of("gone")),
        (1, 2, -9, -1)
    );
    assert_eq!(of("text"), i64::from(b'E'));
    // A million instructions, and a handler after each hundred thousand.
    assert!((9..=10).contains(&of("handled")), "{found:?}");
    assert_eq!(of("destroy"), 0);
}

/// The same program over the counter service: no PMU, and what the library does itself is not
/// counted either.
#[test]
fn without_a_pmu_the_counter_service_counts() {
    let service =
        |system: &str| system.replace("pmu = \"emulated\" ", "services = [\"counters\"] ");
    let found = numbers(
        "counts.c",
        "-DEVENTS=PAPI_TOT_INS,PAPI_TOT_CYC -DNUM_EVENTS=2",
        "--icount",
        service,
    );
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, _, cycles, ..] = counts[..] else {
        panic!("{found:?}")
    };
    // What counts besides are the instructions from a function's beginning to its first call, and
    // after its last.
    let beside = first - 2_300;
    assert!(
        (0..400).contains(&beside) && (0..400).contains(&(last - 3)),
        "{found:?}"
    );
    assert!(
        (112_288..112_288 + 800).contains(&sum) && cycles >= sum,
        "{found:?}"
    );
    let low = numbers("low.c", "", "--icount", service);
    let of = |name: &str| {
        low.iter()
            .find(|(found, _)| found == name)
            .map(|(_, number)| *number)
            .expect(name)
    };
    assert_eq!(
        (
            of("init"),
            of("add"),
            of("listed"),
            of("start"),
            of("again"),
            of("stopped")
        ),
        (1, 0, 1, 0, -10, -9)
    );
    assert!(
        (2_000..2_400).contains(&of("instructions")) && (3_000..3_800).contains(&of("sum")),
        "{low:?}"
    );
    // No counter of the service interrupts.
    assert_eq!((of("overflow"), of("handled")), (0, 0));
}

/// Returns a system whose guest counts in observation segments.
fn hems(system: &str) -> String {
    system.replace(
        "pmu = \"emulated\" ",
        "services = [\"hem\"]\nhems = [\"INST_RETIRED\", \"LD_RETIRED\"] ",
    )
}

/// The same over observation segments: the configuration says what is counted, and other events are
/// conflicts.
#[test]
fn without_either_observation_segments_count() {
    let found = numbers(
        "counts.c",
        "-DEVENTS=PAPI_TOT_INS -DNUM_EVENTS=1",
        "--icount",
        hems,
    );
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, late] = counts[..] else {
        panic!("{found:?}")
    };
    // What the library does is counted, too.
    assert!(
        (2_300..4_000).contains(&first) && (112_288..115_000).contains(&sum),
        "{found:?}"
    );
    assert!((3..1_500).contains(&last) && late == -1, "{found:?}");
    let conflict = numbers(
        "counts.c",
        "-DEVENTS=PAPI_L1_DCA -DNUM_EVENTS=1",
        "--icount",
        hems,
    );
    assert!(
        conflict
            .iter()
            .all(|(name, count)| name == "late" || *count == 0),
        "{conflict:?}"
    );
}

#[test]
fn without_a_pmu_there_are_error_codes_and_no_fault() {
    let found = numbers("without.c", "", "--icount", |system| {
        system.replace("pmu = \"emulated\" ", "pmu = \"none\" ")
    });
    let expected = [
        ("start_counters", -13),
        ("read_counters", -13),
        ("accum_counters", -13),
        ("stop_counters", -13),
        ("ipc", -13),
        ("epc", -13),
        ("num_counters", -13),
        ("library_init", -13),
        ("create_eventset", -16),
        ("start", -11),
        ("read", -11),
        ("accum", -11),
        ("stop", -11),
        ("reset", -11),
        ("state", -11),
        ("interrupt", 0),
        ("tick", 0),
    ];
    assert_eq!(
        found,
        expected.map(|(name, number)| (name.to_owned(), number))
    );
}

/// What is counted in observation segments is in the log, as a workload apart, from which MUCH
/// takes it.
#[test]
fn segments_of_the_library_are_in_the_log() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = scratch.path().join("known");
    create(&guest, "counts.c", hems);
    let mut make = Command::new("make");
    make.arg("CC=aarch64-linux-gnu-gcc -Werror -DEVENTS=PAPI_TOT_INS -DNUM_EVENTS=1")
        .current_dir(&guest);
    let made = make.stdin(Stdio::null()).output().expect("make starts");
    assert!(made.status.success(), "{}", text(&made));
    let run = run(
        &load(&guest.join("system.toml"), VIRT)?,
        VIRT,
        Clock::Counted,
    )?
    .whole();
    let said: Vec<&str> = run
        .outcome
        .console
        .lines()
        .filter(|line| line.contains("known: "))
        .collect();
    // The first start of all finds out what can be counted.
    let logged: Vec<_> = run.telemetry.hem_runs().map(|run| *run.record).collect();
    let numbers: Vec<_> = logged
        .iter()
        .map(|record| (record.workload, record.sub_experiment, record.run))
        .collect();
    assert_eq!(numbers, [(99, 0, 0), (99, 0, 1)], "{run}");
    // Reads set the library's counts back to zero, and the log has all of the segment.
    let all: u64 = said[..3]
        .iter()
        .map(|line| {
            line.rsplit('=')
                .next()
                .expect("a number")
                .parse::<u64>()
                .expect("one")
        })
        .sum();
    let counted = u64::from(logged[1].counts[0]);
    assert!(
        (112_000..all + 5_000).contains(&counted),
        "{counted} of {all}: {run}"
    );
    let log = scratch.path().join("log.bin");
    std::fs::write(&log, &run.outcome.telemetry).expect("a log");
    let read = measurements(&log, &ProgramChoice::default())?;
    let instructions = read.event("INST_RETIRED").expect("what the system counts");
    assert_eq!(
        read.grouped(instructions),
        [f64::from(logged[0].counts[0]), counted as f64]
    );
    Ok(())
}
