//! `cloison profile`: its totals are the counts of the performance monitors, its files repeat byte by
//! byte, and its gate names what grew.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::counting::{self, Counting};
use cloison_engine::image::prelude::{Others, until};
use cloison_engine::model::{self, Conditions, Model};
use cloison_engine::qemu::Machine;
use cloison_engine::telemetry::Telemetry;
use cloison_engine::{configuration, image};
use cloison_formats::ids::VmId;
use cloison_profiler::runs::Neighbors;
use cloison_profiler::{ProfileArgs, profile};
use cloison_tests::{VIRT, config, hypervisor};
use miette::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A VM whose segments count instructions, on core 2 beside two neighbors.
const VM: &str = "matmul";

/// Returns the options of the command for both runs.
fn options(out: &Path) -> ProfileArgs {
    ProfileArgs {
        config: config("kernels"),
        vm: VM.to_owned(),
        only: None,
        out: Some(out.to_path_buf()),
        symbols: None,
        baseline: None,
        max: None,
        event: "CPU_CYCLES".to_owned(),
        whole: false,
        board: Some(VIRT.to_owned()),
        model: None,
        seed: 0,
        timeout: 300,
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the events of a file of Callgrind's, of its lines and of its line of totals.
fn callgrind(path: &Path) -> [BTreeMap<String, u64>; 2] {
    let text = text(path);
    let line = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("a line")
    };
    let events: Vec<&str> = line("events: ").split(' ').collect();
    let named = |values: Vec<u64>| {
        let names = events.iter().map(|&name| name.to_owned());
        names.zip(values).collect::<BTreeMap<String, u64>>()
    };
    let numbers = |words: &str| {
        let numbers = words
            .split(' ')
            .map(|word| word.parse::<u64>().expect("a number"));
        numbers.collect::<Vec<u64>>()
    };
    let mut sums = vec![0; events.len()];
    let mut is_call = false;
    for line in text.lines() {
        if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with("0x") && !std::mem::take(&mut is_call) {
            let values = line
                .splitn(3, ' ')
                .nth(2)
                .expect("address, line and values");
            for (sum, value) in sums.iter_mut().zip(numbers(values)) {
                *sum += value;
            }
        }
    }
    [named(sums), named(numbers(line("totals: ")))]
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for run in ["alone", "beside"] {
        for entry in std::fs::read_dir(directory.join(run)).expect("a run's directory") {
            let path = entry.expect("a file").path();
            let name = Path::new(run).join(path.file_name().expect("a name"));
            all.insert(name, std::fs::read(&path).expect("a file that can be read"));
        }
    }
    all
}

/// Spans of a track do not overlap, or Perfetto would leave some out.
fn check_trace(path: &Path) {
    let trace: Value = serde_json::from_str(&text(path)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let number = |key: &str| event[key].as_f64().expect("a number");
        let end = ends
            .entry(event["tid"].as_u64().expect("a track"))
            .or_default();
        assert!(number("ts") + 0.0005 > *end, "{event}");
        *end = number("ts") + number("dur");
    }
    let has = |category: &str| events.iter().any(|event| event["cat"] == category);
    assert!(
        has("guest") && has("EL2") && has("segment"),
        "{}",
        path.display()
    );
    assert!(events.iter().any(|event| event["ph"] == "C"), "counters");
}

#[test]
fn a_profile_has_the_counts_of_the_monitors_and_repeats() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [first, second, third] = ["1", "2", "3"].map(|name| scratch.path().join(name));
    profile(&options(&first))?;
    for part in ["alone", "beside"] {
        let directory = first.join(part);
        let log = std::fs::read(directory.join("telemetry.bin")).expect("the log");
        let log = Telemetry::parse(&log);
        let own = log.hem_runs().filter(|run| run.record.vm == VmId(2));
        let (mut instructions, mut cycles, mut segments) = (0, 0, 0);
        for record in own {
            instructions += u64::from(record.record.counts[0]);
            cycles += record.record.cycles.0;
            segments += 1;
        }
        assert_eq!(segments, 2);
        let [lines, totals] = callgrind(&directory.join("callgrind.counted.out"));
        assert_eq!(lines, totals);
        assert_eq!(totals["INST_RETIRED"], instructions);
        // The guest reads cycles from nanoseconds, of which each is 1.5 cycles: at both ends of a
        // segment.
        assert!(
            totals["CPU_CYCLES"].abs_diff(cycles) <= 2 * segments,
            "{totals:?} and {cycles}"
        );
        assert!(
            totals["L2D_CACHE_REFILL"] > 0 && totals["BUS_ACCESS"] > 0,
            "{totals:?}"
        );
        let kept: Value =
            serde_json::from_str(&text(&directory.join("profile.json"))).expect("JSON");
        for (part, file) in [
            ("guest", "callgrind.out"),
            ("counted", "callgrind.counted.out"),
            ("hypervisor", "callgrind.hypervisor.out"),
        ] {
            let [lines, totals] = callgrind(&directory.join(file));
            assert_eq!(lines, totals, "{file}");
            let kept = kept["parts"][part]["totals"].as_array().expect("totals");
            let names = kept.iter().zip(kept_events(&directory));
            for (value, name) in names {
                assert_eq!(value.as_u64(), Some(totals[&name]), "{file}: {name}");
            }
        }
        let file = text(&directory.join("callgrind.counted.out"));
        assert!(
            file.contains("matmul") && file.contains("/matmul.rs"),
            "names and files"
        );
        assert!(text(&directory.join("stacks.counted.txt")).starts_with("matmul;"));
        check_trace(&directory.join("trace.json"));
    }

    // The same bytes again; and a run with itself as the baseline passes.
    profile(&ProfileArgs {
        baseline: Some(first.join("beside/profile.json")),
        max: Some("0%".parse().expect("nothing")),
        ..options(&second)
    })?;
    let (one, other) = (files(&first), files(&second));
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        other.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &one {
        assert!(other[name] == *bytes, "{} differs", name.display());
    }

    // A function that took less in the baseline has grown.
    let alone = first.join("alone/profile.json");
    let mut kept: Value = serde_json::from_str(&text(&alone)).expect("JSON");
    let part = &mut kept["parts"]["counted"];
    let functions = part["functions"].as_object_mut().expect("functions");
    let (name, counts) = functions
        .iter_mut()
        .max_by_key(|(_, counts)| counts[0].as_u64())
        .expect("a function");
    let (name, cycles) = (name.clone(), counts[0].as_u64().expect("its cycles"));
    counts[0] = (cycles / 2).into();
    let whole = part["totals"][0].as_u64().expect("all cycles");
    part["totals"][0] = (whole - (cycles - cycles / 2)).into();
    let changed = scratch.path().join("baseline.json");
    std::fs::write(&changed, kept.to_string()).expect("a baseline");
    let gate = ProfileArgs {
        only: Some(Neighbors::Alone),
        baseline: Some(changed),
        max: Some("+2%".parse().expect("a growth")),
        ..options(&third)
    };
    let error = profile(&gate).expect_err("it grew").to_string();
    assert!(
        error.contains(&name) && error.contains("up to +2% may come"),
        "{error}"
    );

    // Profiling changes nothing that the guests see.
    let mut checked = configuration::load(&config("kernels"), Some(VIRT))?;
    counting::prepare_for(&mut checked, Counting::Model.machine())?;
    let hypervisor = hypervisor()?;
    let image = image::assemble(&checked, &hypervisor)?;
    let image = until(&image, &hypervisor, VmId(2), Others::Run)?;
    let (file, stats) = (scratch.path().join("Image"), scratch.path().join("stats"));
    image.write(&file)?;
    let emulation = checked.emulation()?;
    let model = Model::load(model::of(emulation)?)?;
    let machine = Machine::new(emulation, &file);
    let plain = model.attach(machine, Conditions::default(), &stats).run()?;
    let log = std::fs::read(first.join("beside/telemetry.bin")).expect("the log");
    assert!(plain.telemetry == log, "profiled and not profiled");
    Ok(())
}

fn kept_events(directory: &Path) -> Vec<String> {
    let kept: Value = serde_json::from_str(&text(&directory.join("profile.json"))).expect("JSON");
    let names = kept["events"].as_array().expect("events").iter();
    names
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// Profiles the VM beside its neighbors alone.
fn profile_beside(directory: &Path) -> Result<()> {
    profile(&ProfileArgs {
        only: Some(Neighbors::Beside),
        ..options(directory)
    })
}

/// Valgrind's own program finds the same totals.
#[test]
#[ignore = "on demand: needs callgrind_annotate of the package valgrind"]
fn callgrind_annotate_reads_the_same_totals() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    profile_beside(scratch.path())?;
    for file in [
        "callgrind.out",
        "callgrind.counted.out",
        "callgrind.hypervisor.out",
    ] {
        let file = scratch.path().join("beside").join(file);
        let output = Command::new("callgrind_annotate")
            .arg("--show-percs=no")
            .arg(&file)
            .output()
            .expect("callgrind_annotate");
        let shown = String::from_utf8_lossy(&output.stdout).replace(',', "");
        let totals = shown
            .lines()
            .find(|line| line.contains("PROGRAM TOTALS"))
            .expect("totals");
        let totals: Vec<u64> = totals
            .split_whitespace()
            .map_while(|it| it.parse().ok())
            .collect();
        let [lines, _] = callgrind(&file);
        let events = kept_events(&scratch.path().join("beside"));
        let expected: Vec<u64> = events.iter().map(|event| lines[event]).collect();
        assert_eq!(totals, expected, "{}", file.display());
    }
    Ok(())
}

/// Perfetto's own trace processor reads the trace: a slice of each state, and counters.
#[test]
#[ignore = "on demand: needs Python with PyPI's perfetto, which downloads its trace processor"]
fn perfetto_reads_the_trace() -> Result<()> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    profile_beside(scratch.path())?;
    let program = "import sys; from perfetto.trace_processor import TraceProcessor as T\n\
                   t = T(trace=sys.argv[1])\n\
                   n = lambda q: next(iter(t.query(q))).n\n\
                   print(n('select count(*) n from slice'), n('select count(*) n from counter'), \
                   n(\"select value n from stats where name = 'json_parser_failure'\"))";
    let output = Command::new("python3")
        .args(["-c", program])
        .arg(scratch.path().join("beside/trace.json"))
        .output()
        .expect("python3");
    let shown = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = shown
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect();
    let trace = text(&scratch.path().join("beside/trace.json"));
    let slices = trace.matches("\"ph\":\"X\"").count() as u64;
    let counters = trace.matches("\"ph\":\"C\"").count() as u64;
    assert_eq!(
        numbers,
        [slices, counters, 0],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
