//! `cloisonctl stat` and `list` in a Linux guest: by the hypervisor's counters, by segments, and by
//! the kernel's counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison_tests::{Clock, VIRT, config, load};
use miette::Result;
use serde_json::Value;

/// Tens of millions of instructions, most of them not in the kernel.
const WORK: &str = "gzip -c /bin/busybox";

/// Runs `cloisonctl stat` with these options and returns its report.
#[track_caller]
fn stat(linux: &mut Running, vm: &str, options: &str) -> Value {
    let text = linux.output(
        vm,
        &format!("cloisonctl stat --json -o /tmp/o {options} >/dev/null && cat /tmp/o"),
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{options}: {error}: {text}"))
}

#[track_caller]
fn event<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["events"]
        .as_array()
        .and_then(|events| events.iter().find(|event| event["name"] == name));
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn mean(report: &Value, name: &str) -> f64 {
    event(report, name)["mean"].as_f64().expect("a number")
}

fn near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= share * other
}

/// All ways count the same of the same command, and what is computed is computed from the counts.
fn ways_agree(linux: &mut Running) {
    let by_default = stat(
        linux,
        "calls",
        &format!("--vcpu 1 -e instructions,CPU_CYCLES,PAPI_TOT_INS {WORK}"),
    );
    assert_eq!(
        (&by_default["by"], &by_default["cpu"]),
        (&"counters".into(), &"cortex-a53".into())
    );
    let instructions = mean(&by_default, "instructions");
    assert!(
        instructions > 10_000_000.0 && mean(&by_default, "PAPI_TOT_INS") == instructions,
        "{by_default}"
    );
    let ipc = by_default["metrics"]
        .as_array()
        .and_then(|all| all.iter().find(|metric| metric["name"] == "ipc"));
    let ipc = ipc
        .and_then(|metric| metric["value"].as_f64())
        .expect("IPC");
    assert!(
        (ipc - instructions / mean(&by_default, "CPU_CYCLES")).abs() < 1e-9,
        "{by_default}"
    );
    let by_segment = stat(linux, "calls", &format!("--vcpu 1 --by hem {WORK}"));
    assert!(
        near(mean(&by_segment, "INST_RETIRED"), instructions, 0.02),
        "{by_segment} {by_default}"
    );
    let by_kernel = stat(linux, "pmu", &format!("-e instructions {WORK}"));
    assert_eq!(by_kernel["by"], "perf");
    assert!(
        near(mean(&by_kernel, "instructions"), instructions, 0.02),
        "{by_kernel} {by_default}"
    );
    // Programs alone: the kernel's part is left out, and the ways agree better.
    let user = stat(
        linux,
        "calls",
        &format!("--count user -e INST_RETIRED {WORK}"),
    );
    let kernel = stat(
        linux,
        "calls",
        &format!("--count kernel -e INST_RETIRED {WORK}"),
    );
    let of = |report: &Value| mean(report, "INST_RETIRED");
    assert!(
        of(&user) > 10.0 * of(&kernel) && near(of(&user) + of(&kernel), instructions, 0.02),
        "{user} {kernel}"
    );
    let user_by_kernel = stat(
        linux,
        "pmu",
        &format!("--count user -e INST_RETIRED {WORK}"),
    );
    assert!(
        near(of(&user_by_kernel), of(&user), 0.001),
        "{user_by_kernel} {user}"
    );
}

/// Repeats vary, and the report says how; a command that fails is not repeated.
fn repeats_vary(linux: &mut Running) {
    let report = stat(
        linux,
        "calls",
        "-r 5 -e instructions,cycles sh -c 'sleep 0.1'",
    );
    let event = event(&report, "instructions");
    let counts: Vec<f64> = event["counts"]
        .as_array()
        .expect("counts")
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    let average = counts.iter().sum::<f64>() / 5.0;
    let variance = counts
        .iter()
        .map(|count| (count - average).powi(2))
        .sum::<f64>()
        / 4.0;
    assert_eq!(counts.len(), 5);
    assert!(
        near(
            event["variance"].as_f64().expect("a number"),
            variance,
            1e-9
        ) && variance > 0.0,
        "{report}"
    );
    assert!(
        (0.5..5.0).contains(
            &(5.0
                * report["seconds"]["elapsed"]["mean"]
                    .as_f64()
                    .expect("seconds"))
        ),
        "{report}"
    );
    let table = linux.output(
        "calls",
        "cloisonctl stat -r 2 -e INST_RETIRED,CPU_CYCLES true",
    );
    for part in [
        "Counts of 'true' on vCPU 0 (by counters, all, 2 runs)",
        "  INST_RETIRED  ",
        "( +- ",
        "ipc",
        "seconds user",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let csv = linux.output(
        "calls",
        "cloisonctl stat --csv -r 2 --run 7 -e INST_RETIRED,r11 true",
    );
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines.len() == 5
            && lines[0] == "run,event,code,count,overflowed"
            && lines[4].starts_with("8,r11,0x40000011,")
    );
    let failed = linux.ask(
        "calls",
        "cloisonctl stat -r 5 -e INST_RETIRED -o /tmp/o -- sh -c 'echo once; exit 9'",
    );
    let failed = failed.expect("it ends");
    assert_eq!(
        (failed.status, failed.output.matches("once").count()),
        (9, 1)
    );
}

/// What cannot be counted is refused before the command runs.
fn mistakes_are_told(linux: &mut Running) {
    for (vm, options, message) in [
        (
            "calls",
            "-e NO_SUCH",
            "the cortex-a53 has no event `NO_SUCH`",
        ),
        ("calls", "-M no_such", "metrics: all, ipc"),
        ("calls", "-M all", "by --passes"),
        (
            "calls",
            "-e PAPI_RES_STL --passes",
            "cannot be counted in one run",
        ),
        (
            "calls",
            "--by hem -e L2D_CACHE",
            "observation segments of this VM do not count `L2D_CACHE`",
        ),
        (
            "calls",
            "--by hem --count user",
            "observation segments count programs and the kernel",
        ),
        ("calls", "--by perf -e INST_RETIRED", "cannot count"),
        (
            "pmu",
            "--by counters -e INST_RETIRED",
            "this machine has no Cloison services page",
        ),
        ("calls", "--vcpu 2", "cannot run on vCPU 2"),
        ("calls", "-r 0", "0 is not in 1.."),
    ] {
        let done = linux
            .ask(vm, &format!("cloisonctl stat {options} echo ran 2>&1"))
            .expect("it ends");
        assert!(
            done.status != 0 && done.output.contains(message),
            "{options}: {}",
            done.output
        );
        let has_run = done.output.lines().any(|line| line == "ran");
        assert_eq!(
            has_run,
            options.contains("hem -e"),
            "{options}: {}",
            done.output
        );
    }
    // Each pass runs the command: eleven events by the counters that HEMs leave, and the cycles by
    // theirs.
    let counters = linux.output("calls", "cloisonctl list | head -n 1");
    let counters: u64 = counters
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number");
    let passes = stat(linux, "calls", "--passes -M all sh -c 'echo x >> /tmp/ran'");
    let ran = linux.number("calls", "wc -l < /tmp/ran");
    assert_eq!(
        (ran, passes["events"].as_array().map(Vec::len)),
        (11_u64.div_ceil(counters - 1), Some(12))
    );
    // One program at a time counts on a vCPU by the hypervisor; on the other one another may.
    let taken = "cloisonctl stat -o /tmp/a sleep 5 & sleep 1; cloisonctl stat true; cloisonctl \
                 stat --vcpu 1 true; wait";
    let taken = linux.output("calls", &format!("({taken}) 2>&1"));
    assert!(
        taken.contains("another program counts on vCPU 0") && taken.contains("on vCPU 1 (by"),
        "{taken}"
    );
    assert!(
        linux
            .output("calls", "cloisonctl stat true")
            .contains("INST_RETIRED"),
        "the lock is gone with its owner"
    );
    // A program that is killed leaves counters behind that count; the next one starts from zero.
    linux.output(
        "calls",
        "cloisonctl stat -o /tmp/a sleep 50 & p=$!; sleep 1; kill -9 $p; wait; killall sleep",
    );
    let after = stat(linux, "calls", "-e INST_RETIRED true");
    let again = stat(linux, "calls", "-e INST_RETIRED true");
    assert!(
        near(
            mean(&after, "INST_RETIRED"),
            mean(&again, "INST_RETIRED"),
            0.2
        ),
        "{after} {again}"
    );
}

fn lists_what_there_is(linux: &mut Running) {
    let all = linux.output("calls", "cloisonctl list --json --machine virt-model");
    let all: Value = serde_json::from_str(&all).unwrap_or_else(|error| panic!("{error}: {all}"));
    assert_eq!(
        (all["cpu"].as_str(), all["events"].as_array().map(Vec::len)),
        (Some("cortex-a53"), Some(110))
    );
    let of = |name: &str| event(&all, name).clone();
    assert_eq!(
        (
            &of("PAPI_TOT_INS")["available"],
            &of("PAPI_TOT_INS")["code"]
        ),
        (&true.into(), &0x8000_0032_u32.into())
    );
    assert_eq!(
        (
            &of("PAPI_FP_OPS")["available"],
            &of("PAPI_BR_PRC")["derived"]
        ),
        (&false.into(), &true.into())
    );
    assert_eq!(
        of("PAPI_BR_PRC")["terms"],
        serde_json::json!(["BR_COND", "-BR_COND_MISPRED"])
    );
    assert_eq!(of("PAPI_TOT_INS")["verdict"], "trusted");
    let native = linux.output("calls", "cloisonctl list --native --by hem -a");
    let names: Vec<&str> = native
        .lines()
        .filter(|line| line.contains(" 0x4"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["L1D_CACHE", "INST_RETIRED"], "{native}");
    let table = linux.output("pmu", "cloisonctl list");
    assert!(
        table.contains("PAPI_TOT_CYC")
            && table.contains("description")
            && table.contains("110 events"),
        "{table}"
    );
    let unknown = linux
        .ask("calls", "cloisonctl list --machine nowhere 2>&1")
        .expect("it ends");
    assert!(
        unknown.status == 1
            && unknown.output.contains("machines: ")
            && unknown.output.contains("virt-model"),
        "{unknown:?}"
    );
}

#[test]
fn a_linux_counts_commands_on_virt() -> Result<()> {
    let board = VIRT;
    let mut linux = Running::start(&load(&config("linux-papi"), board)?, board, Clock::Counted)?;
    linux.open("calls")?;
    linux.open("pmu")?;
    ways_agree(&mut linux);
    repeats_vary(&mut linux);
    mistakes_are_told(&mut linux);
    lists_what_there_is(&mut linux);
    // Records of the guest's own counters are marked.
    linux.output(
        "calls",
        "cloisonctl stat --record --workload 70 --run 3 -e INST_RETIRED,CPU_CYCLES true",
    );
    let run = linux.stop()?;
    let own: Vec<_> = run
        .telemetry
        .hem_runs()
        .map(|run| *run.record)
        .filter(|record| record.workload == 70)
        .collect();
    assert!(
        matches!(own.as_slice(), [record] if record.by_guest && record.run == 3 && record.counts[0] > 100_000),
        "{own:?}"
    );
    Ok(())
}
