//! Checks files that are not Rust: licenses and sources of dependencies, and the files that GitHub
//! reads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use miette::{IntoDiagnostic, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Whether the rules hold.
    Checked(bool),
    /// The tool is missing: the reason, and how to get it.
    Skipped(String),
}

/// Checks licenses, duplicates and sources of all dependencies against `deny.toml`. The advisory
/// database is a repository that cargo-deny clones; advisories are therefore left to the workflow,
/// which has the network.
pub fn dependencies() -> Result<Outcome> {
    let own = installation::cache_dir().join("cargo-deny/bin/cargo-deny");
    let program = if own.is_file() {
        own
    } else {
        PathBuf::from("cargo-deny")
    };
    let version = Command::new(&program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !version.is_ok_and(|status| status.success()) {
        let why = "cargo-deny is not installed; it takes some minutes to build: cargo install \
                   cargo-deny --locked";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    // Licenses are in the crates themselves, also in those that only other platforms build.
    if !quiet(
        Command::new("cargo")
            .current_dir(installation::root())
            .args(["fetch", "--locked"]),
    ) {
        return Ok(Outcome::Skipped(
            "`cargo fetch --locked` cannot get all crates".to_owned(),
        ));
    }
    let arguments = [
        "--offline",
        "--all-features",
        "check",
        "licenses",
        "bans",
        "sources",
    ];
    let status = Command::new(program)
        .current_dir(installation::root())
        .args(arguments)
        .status()
        .into_diagnostic()?;
    Ok(Outcome::Checked(status.success()))
}

/// The tool that has GitHub's schemas within it.
const SCHEMA_CHECKER: &str = "check-jsonschema==0.39.0";

/// Checks workflows, issue forms and Dependabot's file against GitHub's schemas.
pub fn github_files() -> Result<Outcome> {
    let Some(program) = schema_checker() else {
        let why = format!(
            "{SCHEMA_CHECKER} cannot be installed; it needs python3 with venv, pip and a package \
             index"
        );
        return Ok(Outcome::Skipped(why));
    };
    let github = installation::root().join(".github");
    let mut good = true;
    for (schema, files) in [
        (
            "vendor.github-workflows",
            yaml(&github.join("workflows"), &[])?,
        ),
        (
            "vendor.github-issue-forms",
            yaml(&github.join("ISSUE_TEMPLATE"), &["config.yml"])?,
        ),
        (
            "vendor.github-issue-config",
            vec![github.join("ISSUE_TEMPLATE/config.yml")],
        ),
        ("vendor.dependabot", vec![github.join("dependabot.yml")]),
    ] {
        let status = Command::new(&program)
            .args(["--builtin-schema", schema])
            .args(files)
            .status()
            .into_diagnostic()?;
        good &= status.success();
    }
    Ok(Outcome::Checked(good))
}

/// Returns the YAML files of a directory, sorted, without those named.
fn yaml(directory: &Path, without: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_diagnostic()? {
        let path = entry.into_diagnostic()?.path();
        let is_named = without.iter().any(|name| path.ends_with(name));
        if path.extension().is_some_and(|extension| extension == "yml") && !is_named {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the schema checker, installed into its own Python environment in the cache where it is
/// missing.
fn schema_checker() -> Option<PathBuf> {
    let environment = installation::cache_dir().join("check-jsonschema");
    let program = environment.join("bin/check-jsonschema");
    let works = || quiet(Command::new(&program).arg("--version"));
    if works() {
        return Some(program);
    }
    let installed = quiet(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    ) && quiet(
        Command::new(environment.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--retries",
                "1",
                "--timeout",
                "20",
            ])
            .arg(SCHEMA_CHECKER),
    );
    (installed && works()).then_some(program)
}

/// Returns whether a command succeeds; its output goes nowhere.
fn quiet(command: &mut Command) -> bool {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
