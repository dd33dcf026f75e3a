//! Features of libraries: one set of them for programs and for tests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::collections::BTreeSet;
use std::process::Command;

/// Returns what is built along these edges of the graph of dependencies, with its features.
fn built(edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "--prefix", "none"]);
    tree.args(["--format", "{p} {f}", "--edges", edges]);
    let output = tree
        .current_dir(installation::root())
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    // What was shown before has a mark.
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.map(str::to_owned).collect()
}

/// Otherwise, cargo builds it for both, and all that uses it.
#[test]
fn a_librarys_features_are_the_same_in_tests_and_programs() {
    let programs = built("normal,build");
    let tests = built("normal,build,dev");
    let only: Vec<&String> = programs.difference(&tests).collect();
    assert!(
        programs.len() > 100 && only.is_empty(),
        "tests turn on features of {only:#?}: turn them on in a `[dependencies]` too"
    );
}
