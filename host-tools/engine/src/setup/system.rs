//! A minimal system of a Debian release in a directory, to be entered by `chroot`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::apt;
use super::emulator::{as_root, root_prefix};
use super::process::{Missing, announce, run_limited};
use clap::ValueEnum;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The program that builds a system, and the package that contains it.
pub const PROGRAM: &str = "debootstrap";

/// A Debian release that Cloison's own commands are tested in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Debian 12, with QEMU from its backports.
    Bookworm,
    /// Debian 13.
    Trixie,
    /// The next one while it is made, with the newest QEMU.
    Sid,
}

impl Suite {
    /// Returns its name in a mirror.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Builds a minimal system with these packages in `root`, unless it is there already. It appears
/// whole or not at all.
///
/// # Errors
/// If this machine has no Debian mirror among its sources, debootstrap cannot be installed, or a
/// package cannot be downloaded.
pub fn minimal(release: Suite, packages: &[&str], root: &Path) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    let sources = apt::debian(release.name())?;
    let mirror = sources
        .iter()
        .find(|source| source.serves(release.name()))
        .and_then(|source| source.uris.first());
    let mirror = mirror
        .ok_or_else(|| miette!("no apt source of this machine serves all of Debian {release}"))?;
    debootstrap()?;
    let parent = root.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot make {}", parent.display()))?;
    let fresh = tempfile::Builder::new()
        .prefix("fresh-")
        .tempdir_in(parent)
        .into_diagnostic()?;
    announce(&format!(
        "building a minimal Debian {release} with {} in {}",
        packages.join(", "),
        root.display()
    ));
    let mut build = Command::new(PROGRAM);
    build.args([
        "--variant=minbase",
        &format!("--include={}", packages.join(",")),
    ]);
    build.args(apt::keyring().map(|keyring| format!("--keyring={keyring}")));
    build.arg(release.name()).arg(fresh.path()).arg(mirror);
    let done = run_limited(
        build,
        &format!("building Debian {release}"),
        Duration::from_secs(1800),
    )?;
    if !done.success {
        return Err(miette!("{PROGRAM} failed: {}", done.reason()));
    }
    // The keys are the new system's own.
    let text: Vec<String> = sources.iter().map(apt::Source::without_key).collect();
    let list = fresh.path().join("etc/apt/sources.list");
    if list.exists() {
        std::fs::remove_file(&list).into_diagnostic()?;
    }
    std::fs::write(
        fresh.path().join("etc/apt/sources.list.d/cloison.sources"),
        text.join("\n"),
    )
    .into_diagnostic()?;
    std::fs::rename(fresh.keep(), root)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot make {}", root.display()))
}

/// Makes sure that debootstrap is installed.
fn debootstrap() -> Result<()> {
    let is_there = || {
        Command::new(PROGRAM)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if is_there() {
        return Ok(());
    }
    announce(&format!("{PROGRAM} is missing; installing it"));
    let install = || -> Result<()> {
        let prefix = root_prefix()?;
        // If package lists cannot be updated, the existing ones may be sufficient.
        for words in [
            &["update", "-q"][..],
            &["install", "-y", "-q", "--no-install-recommends", PROGRAM],
        ] {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let what = format!("apt-get {}", words[0]);
            let done = run_limited(
                as_root(prefix, "apt-get", &words),
                &what,
                Duration::from_secs(900),
            )?;
            if !done.success && words[0] == "install" {
                return Err(miette!("{what} failed ({})", done.reason()));
            }
        }
        Ok(())
    };
    let why = install()
        .err()
        .map_or("it is not found on the PATH".to_owned(), |error| {
            error.to_string()
        });
    if is_there() {
        return Ok(());
    }
    let commands =
        format!("  sudo apt-get update && sudo apt-get install --no-install-recommends {PROGRAM}");
    Err(Missing {
        what: PROGRAM.to_owned(),
        why,
        commands,
    }
    .into())
}
