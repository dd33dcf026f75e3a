//! The documentation's commands, executed from its pages as a user types them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_tests::walk::{Step, blocks, execute, page, section, steps};
use std::process::Command;

/// Executes the `console` blocks of a text in an empty folder.
fn walk(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let all: Vec<Step> = blocks(text, "console")
        .into_iter()
        .flat_map(steps)
        .collect();
    assert!(!all.is_empty(), "no commands in\n{text}");
    execute(&all, folder.path());
    folder
}

#[test]
fn the_first_task_is_done_as_its_page_says() {
    let folder = walk(&page("first-task.md"));
    let results = folder.path().join("trial/results");
    let report = std::fs::read_to_string(results.join("report.html")).expect("the report");
    assert!(report.contains("<svg") && report.contains("modelled"));
    assert!(results.join("runs/interf/result.json").is_file());
}

#[test]
fn a_new_guest_starts_as_its_page_says() {
    walk(section(&page("guests.md"), "Start one"));
}

/// From nothing to a report in ten lines, for a bare-metal guest and for a program in Linux.
#[test]
fn own_programs_are_measured_as_their_page_says() {
    let page = page("guests.md");
    let section = section(&page, "Measure it next to others");
    let found = blocks(section, "console");
    assert_eq!(found.len(), 2, "a guest, and a program in Linux");
    for block in found {
        let typed: usize = steps(block)
            .iter()
            .map(|step| step.typed.lines().count())
            .sum();
        assert!(typed <= 10, "{typed} lines are typed\n{block}");
    }
    let folder = walk(section);
    for project in ["trial", "in-linux"] {
        let project = folder.path().join(project);
        let report = std::fs::read_to_string(project.join("results/report.html"));
        let report = report.expect("the report");
        for variant in ["solo", "interf", "colors", "budget"] {
            assert!(
                report.contains(variant),
                "no {variant} in {}",
                project.display()
            );
        }
        let checked = Command::new(cloison_tests::program())
            .arg("check")
            .arg(project.join("system.toml"))
            .output()
            .expect("it starts");
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            checked.status.success() && !said.contains("warning"),
            "{said}"
        );
    }
}
