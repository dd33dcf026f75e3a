//! PAPI for guests in C: the programs of `tests/papi`, built by `cloison new guest --c --papi` and booted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Creates a guest with this program and boots it. Returns the numbers that it says, in order.
fn numbers(program: &str, flags: &str, options: &str, change: impl Fn(&str) -> String) -> Vec<(String, i64)> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = scratch.path().join("known");
    let path = guest.to_str().expect("a plain path");
    let mut new = Command::new(cloison_tests::program());
    let made = new.args(["new", "guest", path, "--c", "--papi"]).current_dir(installation::root()).output();
    let made = made.expect("it starts");
    assert!(made.status.success(), "{}", text(&made));
    let sources = installation::root().join("tests/papi");
    let copy = |from: &str, to: &str| std::fs::copy(sources.join(from), guest.join(to)).expect("it can be copied");
    copy("known.h", "known.h");
    copy(program, "main.c");
    edit(&guest.join("system.toml"), change);
    let mut make = Command::new("make");
    make.args(["run", &format!("OPTIONS={options}"), &format!("CC=aarch64-linux-gnu-gcc -Werror {flags}")]);
    let run = make.current_dir(&guest).stdin(Stdio::null()).output().expect("make starts");
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

/// Known counts of a piece of code, and a few instructions around it: the compiler's for its operands and for the
/// arguments of the call, and the call's until the counters stop.
fn near(counted: i64, known: i64) {
    assert!((known..=known + 20).contains(&counted), "{counted}, not {known}");
}

#[test]
fn figure_2_of_the_paper_runs_as_it_is() {
    // It is also what the page and a new guest show.
    let read = |path: &str| std::fs::read_to_string(installation::root().join(path)).expect("it is there");
    let calls = |text: &str| -> Vec<String> {
        let starts =
            ["int Events[", "long long values[", "PAPI_start_counters(E", "PAPI_read_", "PAPI_accum_", "PAPI_stop_"];
        let lines = text.lines().map(str::trim).filter(|line| starts.iter().any(|start| line.starts_with(start)));
        lines.map(str::to_owned).collect()
    };
    let figure = calls(&read("tests/papi/figure2.c"));
    assert_eq!(figure.len(), 6, "{figure:?}");
    assert_eq!(calls(&read("docs/papi.md")), figure);
    let found = numbers("figure2.c", "", "--icount", str::to_owned);
    let [(both, sum), (last, rest)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((both.as_str(), last.as_str()), ("both", "last"));
    // Cycles, which are instructions here; the sum has two calls in it.
    assert!((102_000..102_040).contains(sum), "{sum}");
    near(*rest, 6_000);
}

#[test]
fn high_level_functions_count_instructions_and_only_those_of_the_program() {
    let found = numbers("counts.c", "-DEVENTS=PAPI_TOT_INS -DNUM_EVENTS=1", "--icount", str::to_owned);
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, late] = counts[..] else { panic!("{found:?}") };
    near(first, 2_000 + 300);
    assert!((112_288..112_328).contains(&sum), "{found:?}");
    near(last, 3);
    assert_eq!(late, -1);
}

#[test]
fn high_level_functions_add_no_access_to_a_cache() {
    let found =
        numbers("counts.c", "-DEVENTS=PAPI_LD_INS,PAPI_L1_DCA,PAPI_SR_INS -DNUM_EVENTS=3", "--model", str::to_owned);
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    // Loads, accesses and stores: of the program, and none of the library's.
    assert_eq!(counts, [100, 4_096, 1, 100, 4_096, 1, 0, 0, 0, -1], "{found:?}");
}

/// The paper's table 4: no access of data more, and at most 12 instructions.
#[test]
fn the_bench_shows_what_the_library_adds() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let json = scratch.path().join("figures.json");
    let mut bench = Command::new(cloison_tests::program());
    let output = bench.args(["bench", "epapi", "--json"]).arg(&json).current_dir(installation::root()).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
    let figures: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("it was written")).expect("JSON");
    let figure = |name: &str| figures["figures"][name].as_i64().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((figure("aims_missed"), figure("repeats_exactly")), (0, 1), "{}", text(&output));
    for way in ["bare", "read", "accum"] {
        // 256 lines are loaded, and the L2 has none of them.
        assert_eq!(figure(&format!("model_papi_l1_dca_{way}_event")), 256);
        assert!(figure(&format!("model_papi_l2_tcm_{way}_event")) >= 256);
    }
    for call in ["read_1", "accum_3"] {
        assert!(figure(&format!("{call}_el1_instructions")) > 100 && figure(&format!("{call}_el2_instructions")) > 100);
    }
}

#[test]
fn low_level_functions_work_in_c() {
    let found = numbers("low.c", "", "--icount", str::to_owned);
    let of = |name: &str| found.iter().find(|(found, _)| found == name).map(|(_, number)| *number).expect(name);
    for (name, number) in [("early", -16), ("init", 1), ("native", 1), ("name", 1), ("listed", 1), ("again", -10)] {
        assert_eq!(of(name), number, "{name}: {found:?}");
    }
    for name in ["create", "by_name", "add", "add_named", "list", "results", "start", "stop", "overflow", "cleanup"] {
        assert_eq!(of(name), 0, "{name}: {found:?}");
    }
    near(of("instructions"), 2_000);
    assert!((3_000..3_040).contains(&of("sum")), "{found:?}");
    assert_eq!((of("in_memory"), of("state"), of("stopped"), of("gone")), (1, 2, -9, -1));
    assert_eq!(of("text"), i64::from(b'E'));
    // A million instructions, and a handler after each hundred thousand.
    assert!((9..=10).contains(&of("handled")), "{found:?}");
    assert_eq!(of("destroy"), 0);
}

/// The same program over the counter service: no PMU, and what the library does itself is not counted either.
#[test]
fn without_a_pmu_the_counter_service_counts() {
    let service = |system: &str| system.replace("pmu = \"emulated\" ", "services = [\"counters\"] ");
    let found = numbers("counts.c", "-DEVENTS=PAPI_TOT_INS,PAPI_TOT_CYC -DNUM_EVENTS=2", "--icount", service);
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, _, cycles, ..] = counts[..] else { panic!("{found:?}") };
    // What counts besides are the instructions from a function's beginning to its first call, and after its last.
    let beside = first - 2_300;
    assert!((0..400).contains(&beside) && (0..400).contains(&(last - 3)), "{found:?}");
    assert!((112_288..112_288 + 800).contains(&sum) && cycles >= sum, "{found:?}");
    let low = numbers("low.c", "", "--icount", service);
    let of = |name: &str| low.iter().find(|(found, _)| found == name).map(|(_, number)| *number).expect(name);
    assert_eq!((of("init"), of("add"), of("listed"), of("start"), of("again"), of("stopped")), (1, 0, 1, 0, -10, -9));
    assert!((2_000..2_400).contains(&of("instructions")) && (3_000..3_800).contains(&of("sum")), "{low:?}");
    // No counter of the service interrupts.
    assert_eq!((of("overflow"), of("handled")), (0, 0));
}

/// The same over observation segments: the configuration says what is counted, and other events are conflicts.
#[test]
fn without_either_observation_segments_count() {
    let hems = |system: &str| {
        system.replace("pmu = \"emulated\" ", "services = [\"hem\"]\nhems = [\"INST_RETIRED\", \"LD_RETIRED\"] ")
    };
    let found = numbers("counts.c", "-DEVENTS=PAPI_TOT_INS -DNUM_EVENTS=1", "--icount", hems);
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    let [first, sum, last, late] = counts[..] else { panic!("{found:?}") };
    // What the library does is counted, too.
    assert!((2_300..4_000).contains(&first) && (112_288..115_000).contains(&sum), "{found:?}");
    assert!((3..1_500).contains(&last) && late == -1, "{found:?}");
    let conflict = numbers("counts.c", "-DEVENTS=PAPI_L1_DCA -DNUM_EVENTS=1", "--icount", hems);
    assert!(conflict.iter().all(|(name, count)| name == "late" || *count == 0), "{conflict:?}");
}

#[test]
fn without_a_pmu_there_are_error_codes_and_no_fault() {
    let found = numbers("without.c", "", "--icount", |system| system.replace("pmu = \"emulated\" ", "pmu = \"none\" "));
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
    assert_eq!(found, expected.map(|(name, number)| (name.to_owned(), number)));
}
