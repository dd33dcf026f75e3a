//! Each parser on its seeds and on damaged files: 150 each, always the same ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_parsers::hunt::{Length, hunt};
use cloison_parsers::targets;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of damaged files for each target: seconds for all of them.
const CASES: u64 = 150;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_parsers"))
}

#[test]
fn damaged_files_break_no_rule() {
    let mut failed = Vec::new();
    for target in targets::ALL {
        let outcome = hunt(
            program(),
            target,
            Length::Cases(CASES),
            1,
            &folder(target.name),
        );
        match outcome.expect("the program starts") {
            Ok(report) => {
                assert_eq!(report.inputs, report.seeds + CASES);
                // What refuses all of its seeds is not searched.
                assert!(report.accepted_seeds > 0, "{}", target.name);
            }
            Err(finding) => failed.push(format!("{}: {finding:?}", target.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn names_are_unique_and_sorted() {
    let names: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
    assert!(names.is_sorted());
    assert!(targets::ALL.iter().all(|target| {
        targets::find(target.name).is_some_and(|found| found.rule == target.rule)
    }));
}

/// Runs the process of a hunt on a target that does what its input says, and returns its status and
/// the input that it leaves.
fn found(bad: &str) -> (Option<i32>, Vec<u8>) {
    let current = folder(&format!("bad-{bad}"));
    let status = Command::new(program())
        .args(["bad", bad])
        .arg(&current)
        .output()
        .expect("the program starts")
        .status;
    let input = fs::read(&current).expect("the input is kept");
    (status.code(), input)
}

#[test]
fn a_panic_an_overflow_and_too_much_memory_leave_their_input() {
    for bad in ["panic", "stack", "memory"] {
        let (code, input) = found(bad);
        assert_ne!(code, Some(0), "{bad}");
        assert_eq!(input, bad.as_bytes());
    }
    // A parser that is right leaves nothing to report.
    assert_eq!(found("good").0, Some(0));
}

#[test]
fn an_endless_loop_is_ended_with_its_input() {
    assert_eq!(found("loop"), (Some(70), b"loop".to_vec()));
}
