//! Quantities that the measured machine gives: its clock, and what other events counted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::validation::Verdict;
use cloison_config::validation::judge::Outcome;
use cloison_config::validation::{Counts, Hypothesis, Judgment, Manifest, judge};

const MANIFEST: &str = r#"
title = "Lines that a prefetcher brings"
cpu = "any"
[tolerance]
events = 2

[[event]]
name = "REFILL"
counts = "lines"
because = "each line"
[[event]]
name = "PREFETCH"
counts = "lines - counted_REFILL"
because = "each line that is no refill"
[[event]]
name = "CYCLES"
counts = "micros * cpu_mhz"
only = ["busy"]
because = "each tick"

[[benchmark]]
name = "stream"
source = "here"
quantities = { lines = 100, micros = 0 }
[[benchmark]]
name = "busy"
source = "here"
quantities = { lines = 0, micros = 10 }
"#;

const HYPOTHESES: &str = r#"
[[hypothesis]]
event = "REFILL"
kind = "mechanism"
counts = "lines - counted_PREFETCH"
because = "the prefetcher brings the others"
source = "a manual"
"#;

/// Judges counts of a file: the refills and prefetches of the stream, the cycles of both
/// benchmarks.
fn judged(counts: &str) -> Vec<Judgment> {
    judged_with(counts, &[])
}

/// Judges counts of a file, and runs of the stream that counted refills and prefetches together.
fn judged_with(counts: &str, runs: &[(u64, u64)]) -> Vec<Judgment> {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let manifest = Manifest::load(&write("manifest.toml", MANIFEST)).expect("a manifest");
    let hypotheses =
        Hypothesis::load(&write("hypotheses.toml", HYPOTHESES), &manifest).expect("hypotheses");
    let counts = format!("machine = \"a board\"\nprefetcher = \"on\"\n{counts}");
    let mut counts = Counts::load(&write("counts.toml", &counts), &manifest).expect("counts");
    for (refills, prefetches) in runs {
        counts.add_run("stream", [("REFILL", *refills), ("PREFETCH", *prefetches)]);
    }
    judge(&manifest, &hypotheses, &counts, |_| true)
}

fn verdict(judged: &[Judgment], event: &str) -> Option<Verdict> {
    judged
        .iter()
        .find(|judgment| judgment.event == event)
        .map(|judgment| judgment.verdict)
}

/// The share of each differs from run to run by more than the tolerance; the sum does not.
#[test]
fn what_events_share_is_judged_in_each_run() {
    let elsewhere = "[[run]]\nbenchmark = \"busy\"\ncounts = { REFILL = 0, PREFETCH = 0 }\n";
    let of = |runs: &[(u64, u64)], event: &str| verdict(&judged_with(elsewhere, runs), event);
    let shared = [(10, 90), (50, 50), (90, 10)];
    assert_eq!(of(&shared, "REFILL"), Some(Verdict::Corrected));
    assert_eq!(of(&shared, "PREFETCH"), Some(Verdict::Trusted));
    // The means would agree here; no run does.
    let crossed = [(10, 10), (50, 50), (90, 90)];
    assert_eq!(of(&crossed, "REFILL"), Some(Verdict::Quarantined));
    assert_eq!(of(&crossed, "PREFETCH"), Some(Verdict::Quarantined));
}

#[test]
fn two_events_may_share_what_is_known_of_both() {
    let counts = |prefetched: u64| {
        format!(
            "[[run]]\nbenchmark = \"stream\"\n\
             counts = {{ REFILL = [30, 31], PREFETCH = {prefetched} }}\n"
        )
    };
    let good = judged(&counts(70));
    assert_eq!(verdict(&good, "REFILL"), Some(Verdict::Corrected));
    assert_eq!(verdict(&good, "PREFETCH"), Some(Verdict::Trusted));
    let bad = judged(&counts(60));
    assert_eq!(verdict(&bad, "REFILL"), Some(Verdict::Quarantined));
    assert_eq!(verdict(&bad, "PREFETCH"), Some(Verdict::Quarantined));
    // Without the other's counts, nothing is explained.
    let alone = judged("[[run]]\nbenchmark = \"stream\"\ncounts = { REFILL = 30 }\n");
    assert_eq!(verdict(&alone, "REFILL"), Some(Verdict::Quarantined));
    let tried = &alone.first().expect("it is judged").tried;
    assert!(
        matches!(
            tried.last().map(|it| &it.outcome),
            Some(Outcome::Fails { .. })
        ),
        "{tried:?}"
    );
}

#[test]
fn no_event_counts_less_than_nothing() {
    let counts = "[[run]]\nbenchmark = \"stream\"\ncounts = { REFILL = 130, PREFETCH = 0 }\n";
    let evidence = judged(counts)
        .into_iter()
        .find(|it| it.event == "PREFETCH")
        .expect("it is judged")
        .evidence;
    assert_eq!((evidence[0].expected, evidence[0].agrees), (0.0, true));
}

#[test]
fn cycles_are_known_where_the_clock_is() {
    let runs = "[[run]]\nbenchmark = \"busy\"\ncounts = { CYCLES = 12_001 }\n[[run]]\n\
        benchmark = \"stream\"\n\
                counts = { CYCLES = 5, REFILL = 100 }\n";
    let slow = judged(&format!("cpu_mhz = 1200\n{runs}"));
    assert_eq!(verdict(&slow, "CYCLES"), Some(Verdict::Trusted));
    assert_eq!(
        slow.iter()
            .find(|it| it.event == "CYCLES")
            .expect("it is judged")
            .evidence
            .len(),
        1
    );
    assert_eq!(
        verdict(&judged(&format!("cpu_mhz = 1300\n{runs}")), "CYCLES"),
        Some(Verdict::Quarantined)
    );
    assert_eq!(verdict(&judged(runs), "CYCLES"), None);
}
