//! Published configurations, imported as they are. They are not part of this project: the test takes
//! them from a folder, and fetches into it what is not there.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;

use cloison_import::Options;
use common::import;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder: a subfolder `OWNER+NAME` for each repository.
const FOLDER: &str = "CLOISON_PUBLISHED";

/// A file of the list.
struct Published {
    repository: &'static str,
    commit: &'static str,
    path: &'static str,
}

fn all() -> Vec<Published> {
    let (mut found, mut current) = (Vec::new(), ("", ""));
    for line in include_str!("published.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(' ') {
            Some(head) => current = head,
            None => found.push(Published {
                repository: current.0,
                commit: current.1,
                path: line,
            }),
        }
    }
    found
}

/// Fetches a repository at its commit, if it is not there.
fn fetch(folder: &Path, file: &Published) {
    let run = |arguments: &[&str]| {
        let status = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(arguments)
            .status();
        assert!(
            status.expect("git").success(),
            "git {arguments:?} in {}",
            folder.display()
        );
    };
    if folder.exists() {
        return;
    }
    std::fs::create_dir_all(folder).expect("a directory");
    run(&["init", "-q"]);
    let from = format!("https://github.com/{}", file.repository);
    run(&["fetch", "-q", "--depth", "1", &from, file.commit]);
    run(&["checkout", "-q", "FETCH_HEAD"]);
}

/// Returns the sets of colors that a file has as plain numbers: an own look at the text, without the
/// reader under test.
fn plain_colors(text: &str) -> BTreeSet<u64> {
    let numbers = text.lines().filter_map(|line| {
        let line = line.split("//").next()?.trim();
        let value = line
            .strip_prefix("#define BOMB_COLORS")
            .or_else(|| line.strip_prefix(".colors")?.trim().strip_prefix('='))?;
        let digits = value.trim().trim_end_matches(',').strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    numbers.collect()
}

#[test]
#[ignore = "on demand: needs the published files, or the network to fetch them (set CLOISON_PUBLISHED to a folder)"]
fn published_files_are_imported_as_they_are() {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| panic!("set {FOLDER} to a folder"));
    let (mut table, mut colored) = (String::new(), 0);
    let files = all();
    assert!(files.len() >= 30);
    for file in &files {
        let root = folder.join(file.repository.replace('/', "+"));
        fetch(&root, file);
        let path = root.join(file.path);
        let text = std::fs::read_to_string(&path).expect("a published file");
        let imported = import(std::slice::from_ref(&path), &Options::default())
            .unwrap_or_else(|errors| panic!("{}: {errors:?}", file.path));
        let checked = imported
            .checked
            .unwrap_or_else(|errors| panic!("{}: {errors:?}\n{}", file.path, imported.text));
        common::assert_fits(&checked);
        let (pools, hypervisor) = imported.colors.split_at(imported.colors.len() - 1);
        for mask in plain_colors(&text).into_iter().filter(|mask| *mask != 0) {
            let wanted = mask & ((1 << checked.board.colors) - 1) & !hypervisor[0];
            assert!(
                pools.contains(&wanted),
                "{}: {mask:#x} is not in {pools:x?}",
                file.path
            );
            colored += 1;
        }
        table += &format!(
            "| {} {} | {} | {} | {} | {} | ok |\n",
            file.repository,
            file.path,
            imported.kinds[0].family(),
            checked.system.vms.len(),
            imported.taken,
            imported.list.len(),
        );
    }
    assert!(colored >= 10, "{colored} sets of colors");
    println!(
        "| file | system | VMs | items | in the list | check |\n| --- | --- | --- | --- | --- | --- |\n{table}"
    );
}
