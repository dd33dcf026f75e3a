//! `cloison much` as a user types it: plans, merges, evaluations, comparisons, and the messages on
//! bad input.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The result of a command.
struct CommandResult {
    ok: bool,
    out: String,
    err: String,
}

/// Runs `xtask much` in a directory that also holds its cache.
fn much(directory: &TempDir, args: &str) -> CommandResult {
    let output = Command::new(env!("CARGO_BIN_EXE_cloison"))
        .arg("much")
        .args(args.split(' '))
        .current_dir(directory.path())
        .env("XDG_CACHE_HOME", directory.path().join("cache"))
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    CommandResult {
        ok: output.status.success(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

#[track_caller]
fn good(directory: &TempDir, args: &str) -> CommandResult {
    let done = much(directory, args);
    assert!(done.ok, "much {args}\n{}{}", done.out, done.err);
    done
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

fn json(directory: &TempDir, name: &str) -> serde_json::Value {
    let text = std::fs::read(directory.path().join(name)).expect("the file is there");
    serde_json::from_slice(&text).expect("JSON")
}

/// Seven sub-experiments of three events: every pair of seven events meets once.
const FANO: [[usize; 3]; 7] = [
    [0, 1, 2],
    [0, 3, 4],
    [0, 5, 6],
    [1, 3, 5],
    [1, 4, 6],
    [2, 3, 6],
    [2, 4, 5],
];

/// Counts of seven events with a common cause, from a fixed sequence, as long CSV.
fn counts(runs: usize) -> String {
    let mut state = 12_345_u64;
    let mut draw = move || {
        state = (1_103_515_245 * state + 12_345) % (1 << 31);
        (state >> 16) % 1000
    };
    let mut text = "sub_experiment,run,event_code,event,value\n".to_owned();
    for (number, events) in FANO.iter().enumerate() {
        for run in 0..runs {
            let common = draw();
            for &event in events {
                let value = (event as u64 + 1) * common / 3 + draw();
                writeln!(text, "{number},{run},{},E{event},{value}", event + 16)
                    .expect("a text takes it");
            }
        }
    }
    text
}

fn write(directory: &TempDir, name: &str, text: impl AsRef<[u8]>) {
    std::fs::write(directory.path().join(name), text).expect("the file is written");
}

fn read(directory: &TempDir, name: &str) -> String {
    std::fs::read_to_string(directory.path().join(name)).expect("the file is there")
}

fn columns(csv: &str) -> Vec<(String, Vec<u64>)> {
    let mut lines = csv.lines();
    let names = lines.next().expect("names").split(',');
    let mut columns: Vec<_> = names.map(|name| (name.to_owned(), vec![])).collect();
    for line in lines {
        for (column, value) in columns.iter_mut().zip(line.split(',')) {
            column.1.push(value.parse().expect("a count"));
        }
    }
    columns
}

#[test]
fn a_plan_is_printed_kept_and_checked_again() {
    let directory = scratch();
    let first = good(&directory, "plan --count 16 --pmcs 6 --json plan.json");
    assert!(
        first.out.contains("10 sub-experiments: optimal"),
        "{}",
        first.out
    );
    assert!(first.out.contains("Schönheim's bound: 8"), "{}", first.out);
    let plan = json(&directory, "plan.json");
    assert_eq!(
        (&plan["figures"]["size"], &plan["figures"]["lower_bound"]),
        (&10.into(), &10.into())
    );
    let mut met = BTreeSet::new();
    for block in plan["sub_experiments"].as_array().expect("lists") {
        let names: Vec<_> = block
            .as_array()
            .expect("a list")
            .iter()
            .map(|name| name.as_str().expect("a name"))
            .collect();
        assert!(names.len() <= 6);
        met.extend(names.iter().flat_map(|one| {
            names
                .iter()
                .map(move |other| (one.to_string(), other.to_string()))
        }));
    }
    assert_eq!(met.len(), 16 * 16);
    assert_eq!(
        good(&directory, "plan --count 16 --pmcs 6").out,
        first.out,
        "from the cache"
    );
    // A plan with a hole in the cache is not believed.
    let kept = std::fs::read_dir(directory.path().join("cache/cloison/much"))
        .expect("the cache")
        .next();
    let kept = kept.expect("one file").expect("an entry").path();
    std::fs::write(
        &kept,
        r#"{"plans":{"16,6":{"sub_experiments":[[0,1]],"origin":"nowhere"}}}"#,
    )
    .expect("written");
    assert_eq!(good(&directory, "plan --count 16 --pmcs 6").out, first.out);
}

#[test]
fn events_have_numbers_and_may_be_bound_or_anchored() {
    let directory = scratch();
    let events = "--events INST_RETIRED 0x17 L2D_CACHE BUS_ACCESS CPU_CYCLES";
    good(
        &directory,
        &format!("plan {events} --cpu cortex-a53 --pmcs 3 --json plan.json"),
    );
    let plan = json(&directory, "plan.json");
    assert_eq!(
        plan["events"][0],
        serde_json::json!({"name": "INST_RETIRED", "code": 8})
    );
    assert_eq!(plan["events"][1]["name"], "L2D_CACHE_REFILL");
    let bound = good(
        &directory,
        "plan --events A B C D E --pmcs 3 --bind A=0 --bind B=0,1",
    );
    assert!(
        bound.out.contains("A on 0") && !bound.out.contains("B on 2"),
        "{}",
        bound.out
    );
    // Each of this CPU's events has one counter, which its table says.
    let fixed = "--events riscv_cycles riscv_instret ariane_load ariane_store --cpu cva6";
    let bound = good(&directory, &format!("plan {fixed} --pmcs 17"));
    assert!(
        bound.out.contains("riscv_cycles on 0") && bound.out.contains("riscv_instret on 2"),
        "{}",
        bound.out
    );
    // A counter of the TC297 that is multiplexed counts one of its four events at a time, so that
    // some of the ePAPI paper's presets take two runs.
    let misses = "DCACHE_MISS_CLEAN DCACHE_MISS_DIRTY DCACHE_HIT CCNT";
    let bound = good(
        &directory,
        &format!("plan --events {misses} --cpu tc297 --pmcs 5"),
    );
    for counter in [
        "CCNT on 0",
        "DCACHE_HIT on 2",
        "DCACHE_MISS_CLEAN on 3",
        "DCACHE_MISS_DIRTY on 4",
    ] {
        assert!(bound.out.contains(counter), "{}", bound.out);
    }
    let refused = said(
        &directory,
        "plan --events PCACHE_HIT DCACHE_HIT --cpu tc297 --pmcs 5",
    );
    assert!(
        refused.contains("PCACHE_HIT and DCACHE_HIT can never be counted together"),
        "{refused}"
    );
    let anchored = good(
        &directory,
        &format!("plan {events} --cpu cortex-a53 --pmcs 3 --anchor CPU_CYCLES"),
    );
    assert_eq!(
        anchored.out.matches("CPU_CYCLES").count(),
        2,
        "{}",
        anchored.out
    );
}

#[test]
fn the_table_of_all_plans() {
    let directory = scratch();
    let done = good(&directory, "plan --table --json table.json");
    let figures = &json(&directory, "table.json")["figures"];
    assert_eq!(figures.as_object().expect("figures").len(), 61 * 7);
    for (name, size) in [("size_7_3", 7), ("size_16_6", 10), ("size_22_6", 19)] {
        assert_eq!(figures[name], size, "{name}");
    }
    assert!(figures["size_64_6"].as_u64().expect("a size") <= 175);
    assert_eq!(
        good(&directory, "plan --table").out,
        done.out,
        "from the cache"
    );
}

#[test]
fn a_merge_orders_what_was_observed_and_all_its_forms_are_the_same() {
    let directory = scratch();
    write(&directory, "runs.csv", counts(40));
    good(
        &directory,
        "merge runs.csv -o vectors.csv --json merge.json --report merge.html",
    );
    good(&directory, "merge runs.csv -o vectors.parquet");
    let printed = good(&directory, "merge runs.csv");
    assert_eq!(
        printed.out,
        read(&directory, "vectors.csv"),
        "standard output is the CSV alone"
    );
    let mut observed: Vec<Vec<u64>> = vec![vec![]; 7];
    for line in read(&directory, "runs.csv").lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let event: usize = fields[3][1..].parse().expect("a number");
        observed[event].push(fields[4].parse().expect("a count"));
    }
    for (name, mut values) in columns(&printed.out) {
        let observed = &mut observed[name[1..].parse::<usize>().expect("a number")];
        values.sort_unstable();
        observed.sort_unstable();
        assert_eq!(&values, observed, "{name} is a permutation");
    }
    let figures = &json(&directory, "merge.json")["figures"];
    assert_eq!(
        (&figures["vectors"], &figures["marginal_distance"]),
        (&120.into(), &0.0.into())
    );
    assert!(
        figures["pearson_mse_target"].as_f64().expect("a figure") < 1e-4,
        "{figures}"
    );
    assert!(read(&directory, "merge.html").contains("<svg"));

    let of = |vectors: &str| {
        good(
            &directory,
            &format!("evaluate {vectors} --reference runs.csv --csv pairs.csv"),
        )
        .out
    };
    assert_eq!(of("vectors.csv"), of("vectors.parquet"));
    let pairs = read(&directory, "pairs.csv");
    assert!(pairs.starts_with(
        "event,other,pearson_measured,pearson_merged,pearson_low,pearson_high,spearman_measured"
    ));
    assert_eq!(pairs.lines().count(), 1 + 21);
    // Against themselves, vectors are right.
    good(
        &directory,
        "evaluate vectors.csv --truth vectors.parquet --json itself.json",
    );
    let figures = &json(&directory, "itself.json")["figures"];
    assert!(
        figures["pearson_mse"].as_f64().expect("a figure") < 1e-20,
        "{figures}"
    );
    assert_eq!(figures["spearman_within"], 1.0);
    assert!(figures["pearson_mse_high"].as_f64() > figures["pearson_mse_low"].as_f64());
    for (method, fewer) in [
        ("hrm --anchor E0", false),
        ("blind", true),
        ("plain", false),
    ] {
        let done = much(
            &directory,
            &format!("merge runs.csv --method {method} -o other.csv"),
        );
        // E0 is not in every sub-experiment, and yet with every event.
        assert!(done.ok, "{}", done.err);
        assert_eq!(
            columns(&read(&directory, "other.csv"))[0].1.len() < 120,
            fewer || method.starts_with("hrm")
        );
    }
}

#[test]
fn held_out_runs_judge_a_merge_and_methods_are_compared() {
    let directory = scratch();
    write(&directory, "runs.csv", counts(80));
    good(&directory, "merge runs.csv --first-runs 40 -o vectors.csv");
    assert_eq!(columns(&read(&directory, "vectors.csv"))[0].1.len(), 120);
    good(
        &directory,
        "evaluate vectors.csv --reference runs.csv --skip-runs 40 --report held-out.html --json \
         held-out.json",
    );
    let figures = &json(&directory, "held-out.json")["figures"];
    let figure = |name: &str| {
        figures[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no figure {name}"))
    };
    // Two samples of as many runs differ by more than one of them from the truth; the merge knows
    // more than a pair.
    assert!(
        figure("pearson_mse") < 3.0 * figure("pearson_mse_chance"),
        "{figures}"
    );
    assert!(figure("pearson_within") > 0.5);
    assert!(read(&directory, "held-out.html").contains("with the band of 95 %"));
    let args = "compare runs.csv --runs 30 --samples 4 --resampling held-out --anchor E0 --csv \
                samples.csv --json c.json";
    let done = good(&directory, &format!("{args} --report compare.html"));
    assert!(
        done.out.contains("MUCH, plain") && done.out.contains("pairwise, repaired"),
        "{}",
        done.out
    );
    assert_eq!(read(&directory, "samples.csv").lines().count(), 1 + 8 * 4);
    let figures = &json(&directory, "c.json")["figures"];
    assert!(
        figures["much_30_pearson"].as_f64() < figures["blind_30_pearson"].as_f64(),
        "{figures}"
    );
    assert_eq!(
        figures["floor_30_pearson"], figures["pairwise_30_pearson"],
        "the name that kept figures have"
    );
    assert!(
        figures["repaired_30_pearson"].as_f64() <= figures["pairwise_30_pearson"].as_f64(),
        "{figures}"
    );
    // Three sub-experiments have E0: HRM without its own measurements uses no others.
    assert_eq!(
        (&figures["hrm_30_runs"], &figures["much_30_runs"]),
        (&90.into(), &210.into())
    );
    // Without --runs, what the measurements have; with it, no more than that.
    let done = good(&directory, "compare runs.csv --samples 2 --json c.json");
    assert!(done.err.contains("up to 50 runs"), "{}", done.err);
    assert!(json(&directory, "c.json")["figures"]["much_50_pearson"].is_number());
    write(&directory, "sixty.csv", counts(60));
    for (args, most) in [
        ("--runs 58", "30 are to be left"),
        ("--runs 61 --resampling subset", "of 61 runs"),
    ] {
        let done = much(&directory, &format!("compare sixty.csv {args}"));
        assert!(!done.ok && done.err.contains(most), "{args}: {}", done.err);
    }
}

#[test]
fn what_a_merge_was_made_from_and_loses_is_said() {
    let directory = scratch();
    write(&directory, "runs.csv", counts(40));
    let done = good(
        &directory,
        "merge runs.csv -o vectors.csv --json merge.json",
    );
    let words = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("rests on 40 runs, not on as many as there are vectors"),
        "{words}"
    );
    assert!(!words.contains("do not take maxima"), "{words}");
    let pairs = read(&directory, "vectors.pairs.csv");
    assert!(
        pairs.starts_with("event,other,effective_runs,") && pairs.contains("\nE0,E1,40,"),
        "{pairs}"
    );
    assert_eq!(
        json(&directory, "merge.json")["figures"]["effective_runs_least"],
        40
    );
    let done = good(&directory, "merge runs.csv --vectors 20 -o few.csv");
    let words = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("do not take maxima from so few vectors"),
        "{words}"
    );
    // Against their own measurements the figures say so; against other runs they do not.
    let in_sample = |args: &str| {
        let done = good(&directory, &format!("evaluate {args} --json e.json"));
        let said = done.out.contains("In-sample");
        assert_eq!(
            json(&directory, "e.json")["figures"]["in_sample"],
            u64::from(said)
        );
        said
    };
    assert!(in_sample("vectors.csv --reference runs.csv"));
    good(&directory, "merge runs.csv --first-runs 20 -o first.csv");
    assert!(!in_sample("first.csv --reference runs.csv --skip-runs 20"));
    assert!(in_sample("first.csv --reference runs.csv --first-runs 20"));
}

#[test]
fn the_first_runs_are_those_with_the_lowest_numbers() {
    let directory = scratch();
    let text = counts(40);
    let (header, rows) = text.split_once('\n').expect("a header");
    let mut sorted: Vec<&str> = rows.lines().collect();
    sorted.sort_unstable();
    write(&directory, "runs.csv", &text);
    write(
        &directory,
        "sorted-as-text.csv",
        format!("{header}\n{}\n", sorted.join("\n")),
    );
    let merged = |name: &str| {
        let printed = good(&directory, &format!("merge {name} --skip-runs 5")).out;
        let mut columns = columns(&printed);
        columns
            .iter_mut()
            .for_each(|(_, values)| values.sort_unstable());
        columns.sort();
        columns
    };
    assert_eq!(merged("runs.csv"), merged("sorted-as-text.csv"));
}

/// What a command says, without the line breaks that depend on how wide a terminal is taken to be.
fn said(directory: &TempDir, args: &str) -> String {
    let done = much(directory, args);
    let verdict = if done.ok { "goes on" } else { "fails" };
    format!("much {args}\n{verdict}\n{}", done.err)
}

#[test]
fn bad_input_is_named_and_nothing_is_written() {
    let directory = scratch();
    let good_text = counts(40);
    write(&directory, "good.csv", &good_text);
    good(&directory, "merge good.csv -o good.parquet");
    let changed = |name: &str, change: &dyn Fn(usize, &str) -> Option<String>| {
        let lines = good_text.lines().enumerate();
        let text: String = lines
            .filter_map(|(at, line)| change(at, line))
            .map(|line| line + "\n")
            .collect();
        write(&directory, name, text);
    };
    let value = |line: &str, value: &str| {
        Some(format!(
            "{},{value}",
            line.rsplit_once(',').expect("fields").0
        ))
    };
    let only = |at: usize, line: &str, new: &str| {
        if at == 9 {
            value(line, new)
        } else {
            Some(line.to_owned())
        }
    };
    changed("missing-pairs.csv", &|_, line| {
        (!line.starts_with("3,")).then(|| line.to_owned())
    });
    changed("negative.csv", &|at, line| only(at, line, "-7"));
    changed("infinite.csv", &|at, line| only(at, line, "inf"));
    changed("text.csv", &|at, line| only(at, line, "many"));
    changed("empty-value.csv", &|at, line| only(at, line, ""));
    changed("few-runs.csv", &|_, line| {
        let run = line.split(',').nth(1).and_then(|run| run.parse().ok());
        run.is_none_or(|run: usize| run < 12)
            .then(|| line.to_owned())
    });
    changed("unequal.csv", &|_, line| {
        (!line.starts_with("2,3")).then(|| line.to_owned())
    });
    changed("constant.csv", &|_, line| {
        if line.contains(",E3,") {
            value(line, "5")
        } else {
            Some(line.to_owned())
        }
    });
    changed("stepped.csv", &|_, line| {
        if line.contains(",E3,") {
            value(line, &format!("10{}", &line[..1]))
        } else {
            Some(line.to_owned())
        }
    });
    changed("ties.csv", &|at, line| {
        if line.contains(",E3,") && at % 2 == 0 {
            value(line, "100")
        } else {
            Some(line.to_owned())
        }
    });
    changed("no-column.csv", &|_, line| {
        Some(line.replace("value", "count"))
    });
    let parquet = std::fs::read(directory.path().join("good.parquet")).expect("the vectors");
    write(&directory, "half.parquet", &parquet[..parquet.len() / 2]);
    write(
        &directory,
        "half.csv.gz",
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x2b],
    );
    write(&directory, "empty.csv", "");
    let mut report = String::new();
    for name in [
        "missing-pairs.csv",
        "negative.csv",
        "infinite.csv",
        "text.csv",
        "no-column.csv",
        "half.parquet",
        "half.csv.gz",
        "empty.csv",
        "nothing.csv",
    ] {
        report += &said(&directory, &format!("merge {name} -o out.csv"));
        assert!(
            !directory.path().join("out.csv").exists(),
            "{name} left a file"
        );
    }
    for args in [
        "merge good.csv --vectors 1",
        "merge good.csv --method hrm --anchor E9",
        "merge good.csv --skip-runs 40",
        "evaluate half.parquet --reference good.csv",
        "evaluate good.csv --reference good.csv",
        "compare good.csv --runs 1",
        "compare good.csv --runs 50",
        "evaluate good.parquet --truth good.parquet --skip-runs 3",
        "plan --events A B C --bind A=0 --bind A=3",
        "plan --events INST_RETIRD LD_RETIRED --cpu cortex-a53",
        "plan --events A B C --pmcs 2 --bind A=0 --bind B=0",
        "plan --events A B --bind A=9",
        "plan --events riscv_cycles riscv_instret --cpu cva6 --pmcs 2",
        "plan --events riscv_cycles riscv_instret --cpu cva6 --bind riscv_cycles=1",
        "plan --events riscv_cycles riscv_instret --cpu cva6 --anchor riscv_cycles",
        "plan --count 500",
        "plan --count 9 --pmcs 1",
        "plan --count 9 --pmcs 1 --plan paper",
    ] {
        report += &said(&directory, args);
    }
    insta::assert_snapshot!("much-refused", report);
    let mut report = String::new();
    for name in [
        "empty-value.csv",
        "few-runs.csv",
        "unequal.csv",
        "constant.csv",
        "stepped.csv",
        "ties.csv",
    ] {
        let text = said(&directory, &format!("merge {name} -o {name}.out"));
        // The figures are the business of other tests.
        report += text.split("Merged\n").next().unwrap_or_default();
        assert!(directory.path().join(format!("{name}.out")).exists());
    }
    insta::assert_snapshot!("much-warned", report);
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .expect("the directory")
        .flatten()
        .collect();
    assert!(
        left.iter().all(|entry| !is_scratch(&entry.path())),
        "{left:?}"
    );
}

/// Whether a file looks like one that was to be renamed.
fn is_scratch(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(".tmp"))
}
