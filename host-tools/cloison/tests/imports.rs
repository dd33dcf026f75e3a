//! Published configurations boot as they are, with a guest of Cloison in place of the images that
//! their authors have. They are not part of this project.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[path = "../../import/tests/published/list.rs"]
mod list;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command.
fn cloison(arguments: &[&str], files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cloison"))
        .args(arguments)
        .args(files)
        .output()
        .expect("the command starts")
}

/// Makes the guests end after three beats, and counts them.
fn with_an_end(text: &str) -> (String, usize) {
    const GUEST: &str = "image = { workload = \"heartbeat\" }\n";
    let ending = format!("{GUEST}args = [1000, 4096, 3]\n");
    (text.replace(GUEST, &ending), text.matches(GUEST).count())
}

#[test]
#[ignore = "on demand: boots the published files (set CLOISON_PUBLISHED to a folder), some minutes"]
fn published_files_boot_with_another_guest() {
    let folder = list::folder();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let system = scratch.path().join("imported.toml");
    let (mut booted, mut families) = (0, BTreeSet::new());
    println!("| file | board | VMs | how it ended |\n| --- | --- | ---: | --- |");
    for file in list::all() {
        let path = file.fetched(&folder);
        let made = cloison(&["import", "--stand-in", "heartbeat"], &[&path]);
        let text = String::from_utf8(made.stdout).expect("TOML");
        assert!(made.status.success(), "{}", file.path);
        let (text, guests) = with_an_end(&text);
        fs::write(&system, &text).expect("written");
        let mut lines = text.lines();
        let board = lines.find_map(|line| line.strip_prefix("board = "));
        let board = board.unwrap_or_default().trim_matches('"');
        let run = cloison(&["run", "--timeout", "120"], &[&system]);
        let console = String::from_utf8_lossy(&run.stdout);
        let ended = console
            .lines()
            .filter(|line| line.contains("heartbeat: done beats=3 corrupt=0"))
            .count();
        let is_right = run.status.success() && guests > 0 && ended == guests;
        let how = if is_right {
            booted += 1;
            families.insert(file.repository);
            "all guests, then the board".to_owned()
        } else {
            let errors = String::from_utf8_lossy(&run.stderr);
            let first = errors.lines().find(|line| line.contains('×'));
            format!(
                "{ended} of {guests} guests; {}",
                first.unwrap_or_default().trim()
            )
        };
        println!(
            "| {} {} | {board} | {guests} | {how} |",
            file.repository, file.path
        );
    }
    assert!(
        booted >= 8 && families.len() >= 3,
        "{booted} files of {families:?} booted"
    );
}
