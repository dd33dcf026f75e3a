//! The plugin in a real QEMU: counts known in advance, clocks, and runs that repeat exactly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::common::board;
use crate::stream::{Guest, boot};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use tempfile::TempDir;

#[derive(PartialEq)]
struct Run {
    report: Value,
    /// The guest's results: ticks, counter 0, and what it observed of the overflow.
    words: [u64; 6],
}

impl Run {
    fn count(&self, core: usize, name: &str) -> u64 {
        self.report["regions"][0]["cores"][core]["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count {name}"))
    }
    fn event(&self, core: usize, name: &str) -> u64 {
        self.report["regions"][0]["cores"][core]["events"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no event {name}"))
    }
    fn cycles(&self, core: usize) -> u64 {
        self.report["regions"][0]["cores"][core]["cycles"]
            .as_u64()
            .expect("cycles")
    }
}

/// Returns a guest that passes over this many lines, this many times.
fn lines(accesses: u64, passes: u64, cores: u64) -> Guest {
    Guest {
        accesses,
        passes,
        cores,
        stride: 64,
        overflow: 0,
        outside: false,
    }
}

fn run(replacement: &str, accesses: u64, passes: u64, cores: u64) -> Run {
    run_with("roi=hint", replacement, lines(accesses, passes, cores))
}

fn run_with(extra: &str, replacement: &str, guest: Guest) -> Run {
    run_on(extra, replacement, guest, |text| text)
}

/// Runs the guest on the board file after `change`.
fn run_on(extra: &str, replacement: &str, guest: Guest, change: impl Fn(String) -> String) -> Run {
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats.json");
    let board = board(directory.path(), replacement);
    let text = change(fs::read_to_string(&board).expect("the board file"));
    fs::write(&board, text).expect("the board file");
    let arguments = format!(
        "board={},stats={},{extra}",
        board.display(),
        stats.display()
    );
    let outcome = boot(directory.path(), Some(&arguments), guest);
    assert!(outcome.exit.is_clean(), "{}", outcome.exit);
    let mut memory = File::open(directory.path().join("ram")).expect("the guest's memory");
    memory
        .seek(SeekFrom::Start(0x300_0100))
        .expect("its results");
    let words = [0; 6].map(|_: u64| {
        let mut bytes = [0; 8];
        memory.read_exact(&mut bytes).expect("its results");
        u64::from_le_bytes(bytes)
    });
    let report = fs::read_to_string(stats).expect("statistics");
    Run {
        report: serde_json::from_str(&report).expect("JSON"),
        words,
    }
}

#[test]
fn a_stream_over_new_lines_refills_each_once() {
    let run = run("pseudo-random", 5000, 1, 1);
    for (name, expected) in [
        ("loads", 5000),
        ("stores", 1),
        ("l1d_refills", 5001),
        ("l1d_writebacks", 1),
    ] {
        assert_eq!(run.count(0, name), expected, "{name}");
    }
    let code = run.count(0, "l1i_refills");
    assert!((1..=4).contains(&code), "{code} lines of code");
    assert_eq!(run.count(0, "l2_refills"), 5001 + code);
    assert_eq!(
        run.count(0, "l1d_victims"),
        5001 - 512,
        "all lines of data but those still in the L1"
    );
    assert_eq!(run.event(0, "L2D_CACHE"), 5001 + code + 5001 - 512);
    assert_eq!(run.event(0, "BUS_ACCESS"), 4 * (5001 + code));
    assert_eq!(
        run.report["regions"][0]["cores"][0]["events"]["L1D_CACHE"],
        5001
    );
}

/// Returns the instructions at EL0 to EL3 if nothing is modelled.
fn counted(accesses: u64, passes: u64) -> [u64; 4] {
    let directory = TempDir::new().expect("a directory");
    let counts = directory.path().join("counts.json");
    let arguments = format!("count={}", counts.display());
    let outcome = boot(
        directory.path(),
        Some(&arguments),
        lines(accesses, passes, 1),
    );
    assert!(
        outcome.exit.is_clean(),
        "{}\n{}",
        outcome.exit,
        outcome.errors
    );
    let report: Value =
        serde_json::from_str(&fs::read_to_string(counts).expect("counts")).expect("JSON");
    serde_json::from_value(report["instructions"].clone()).expect("four counts")
}

#[test]
fn instructions_alone_are_counted_by_exception_level() {
    let [one, two, three] = [1, 2, 3].map(|passes| counted(5000, passes));
    assert_eq!(
        (one[0], one[3]),
        (0, 0),
        "the guest has neither programs nor a monitor"
    );
    let all = |counts: [u64; 4]| counts.iter().sum::<u64>();
    // Each pass repeats the same instructions, several for each access.
    assert_eq!(all(three) - all(two), all(two) - all(one));
    assert!(all(two) - all(one) >= 3 * 5000, "{one:?} {two:?}");
    assert_eq!(one, counted(5000, 1));
}

#[test]
fn the_guest_reads_modelled_counts_by_mrs() {
    let run = run("lru", 5000, 2, 4);
    assert_eq!(
        run.words[1],
        1000 + 10_000,
        "each pass over 312 KiB misses L1 everywhere"
    );
    assert_eq!(run.event(0, "L1D_CACHE_REFILL"), 10_001);
}

#[test]
fn what_fits_a_level_is_brought_in_once() {
    // One additional line is the flag that starts the rivals. 16 KiB fit in the L1. 512 KiB fit in
    // the L2 and, under LRU, each pass over them misses the L1 everywhere.
    let small = run("lru", 256, 20, 1);
    assert_eq!(
        (small.count(0, "loads"), small.count(0, "l1d_refills")),
        (256 * 20, 257)
    );
    let medium = run("lru", 8192, 4, 1);
    assert_eq!(medium.count(0, "l1d_refills"), 8192 * 4 + 1);
    assert_eq!(
        medium.count(0, "l2_refills"),
        8193 + medium.count(0, "l1i_refills")
    );
}

#[test]
fn guest_time_is_the_models() {
    let run = run("pseudo-random", 5000, 2, 1);
    // The generic timer runs at 62.5 MHz: 24 cycles of the 1.5 GHz clock. All blocks except a few
    // are between the two reads.
    let (ticks, cycles) = (run.words[0] * 24, run.cycles(0));
    assert!(
        ticks <= cycles && cycles - ticks < 1000,
        "{ticks} of {cycles} cycles"
    );
    // 2 x 5000 loads with 3 instructions each. All miss the L1; in the second pass, 5000 lines are
    // in the L2 (or in memory, with random replacement). A line of an open row takes 138 cycles.
    assert!(cycles > 30_000 + 10_000 * 13 + 5000 * 138, "{cycles}");
}

#[test]
fn rivals_slow_a_core_down_and_runs_repeat_exactly() {
    let solo = run("pseudo-random", 6720, 10, 1);
    let first = run("pseudo-random", 6720, 10, 4);
    let again = run("pseudo-random", 6720, 10, 4);
    assert!(
        first.count(0, "l2_refills") > 3 * solo.count(0, "l2_refills"),
        "420 KiB on each core do not fit 1 MiB"
    );
    assert!(
        first.words[0] > 2 * solo.words[0],
        "{} ticks, alone {}",
        first.words[0],
        solo.words[0]
    );
    assert_eq!(first.count(0, "loads"), 67200);
    for core in 1..4 {
        let ahead = first.cycles(core).abs_diff(first.cycles(0));
        assert!(ahead < 1500, "core {core} is {ahead} cycles off");
    }
    assert!(first == again, "two runs differ");
}

#[test]
fn a_run_that_is_modelled_from_the_start_repeats_exactly() {
    let [first, again] = [0; 2].map(|_| run_with("roi=always", "pseudo-random", lines(2000, 5, 4)));
    assert_eq!(first.count(0, "loads"), 10_000);
    assert!(first == again, "two runs differ");
}

#[test]
fn a_board_that_cannot_be_is_refused_before_the_start() {
    let directory = TempDir::new().expect("a directory");
    let board = board(directory.path(), "fifo");
    let outcome = boot(
        directory.path(),
        Some(&format!("board={}", board.display())),
        lines(1, 1, 1),
    );
    assert!(!outcome.exit.is_clean());
    assert!(
        outcome.errors.contains("unknown variant `fifo`"),
        "{}",
        outcome.errors
    );
}

#[test]
fn an_overflow_interrupts_its_core_and_its_flag_reads_as_hardware_has_it() {
    let wanted = 700;
    let guest = Guest {
        overflow: wanted,
        ..lines(0, 0, 1)
    };
    let run = run_with("roi=hint", "pseudo-random", guest);
    let [_, _, counter, flags, cleared, pending] = run.words;
    // Each load is a refill; the interrupt is seen within two of the loop's blocks.
    assert!(
        (1..=3).contains(&counter),
        "seen {counter} refills after the overflow"
    );
    assert_eq!((flags, cleared, pending), (2, 0, 0));
    assert_eq!(
        run.report["regions"][0]["cores"][0]["overflow_interrupts"],
        1
    );
}

#[test]
fn what_is_counted_beyond_an_overflow_does_not_depend_on_the_quantum() {
    let beyond = [50, 300, 3000].map(|quantum| {
        let change = |text: String| text.replace("quantum = 300", &format!("quantum = {quantum}"));
        let guest = Guest {
            overflow: 700,
            ..lines(0, 0, 1)
        };
        run_on("roi=hint", "pseudo-random", guest, change).words[2]
    });
    assert!((1..=3).contains(&beyond[0]), "{beyond:?} refills");
    assert_eq!(beyond, [beyond[0]; 3]);
}

#[test]
fn the_seed_chooses_the_victims_and_the_experiment_how_a_region_begins() {
    let misses = |extra: &str| {
        let run = run_with(extra, "pseudo-random", lines(6720, 10, 4));
        run.count(0, "l2_refills")
    };
    let first = misses("roi=always,seed=1");
    assert_eq!(first, misses("roi=always,seed=1"));
    assert_ne!(first, misses("roi=always,seed=2"));
}
