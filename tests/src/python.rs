//! Python with packages of its index, for tests that compare with programs of others.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::path::PathBuf;
use std::process::Command;

/// Runs a command that must succeed. Returns its output.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a Python that can import these modules, of which the packages are installed, if they are
/// not yet, into this directory below the target directory.
#[track_caller]
pub fn with(directory: &str, modules: &str, packages: &[&str]) -> PathBuf {
    let environment = installation::target_dir().join(directory);
    let python = environment.join("bin/python");
    let ready = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    if !ready.is_ok_and(|output| output.status.success()) {
        succeeds(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        );
        succeeds(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet"])
                .args(packages),
        );
    }
    python
}
