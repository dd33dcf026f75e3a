//! The list of published files, and where they are: in a folder, to which what is not there is
//! fetched.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder: a subfolder `OWNER+NAME` for each repository.
const FOLDER: &str = "CLOISON_PUBLISHED";

/// A file of the list.
pub struct Published {
    /// Its repository, `OWNER/NAME`.
    pub repository: &'static str,
    commit: &'static str,
    /// Its path there.
    pub path: &'static str,
}

/// Returns all files of the list.
pub fn all() -> Vec<Published> {
    let (mut found, mut current) = (Vec::new(), ("", ""));
    for line in include_str!("list.txt").lines() {
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

/// Returns the folder that the environment names.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    folder.unwrap_or_else(|| panic!("set {FOLDER} to a folder"))
}

impl Published {
    /// Returns the file's path. Fetches its repository at its commit, if it is not there.
    pub fn fetched(&self, folder: &Path) -> PathBuf {
        let root = folder.join(self.repository.replace('/', "+"));
        let run = |arguments: &[&str]| {
            let status = Command::new("git")
                .arg("-C")
                .arg(&root)
                .args(arguments)
                .status();
            assert!(
                status.expect("git").success(),
                "git {arguments:?} in {}",
                root.display()
            );
        };
        if !root.exists() {
            std::fs::create_dir_all(&root).expect("a directory");
            run(&["init", "-q"]);
            let from = format!("https://github.com/{}", self.repository);
            run(&["fetch", "-q", "--depth", "1", &from, self.commit]);
            run(&["checkout", "-q", "FETCH_HEAD"]);
        }
        root.join(self.path)
    }
}
