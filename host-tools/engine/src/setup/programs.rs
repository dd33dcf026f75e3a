//! Programs of the host that only some tasks need, from Debian's packages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::consent;
use super::emulator::{as_root, root_prefix};
use super::process::{Missing, announce, run_limited};
use miette::{Result, miette};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program, and its source.
#[derive(Debug)]
pub struct Program {
    /// Its name on the PATH.
    pub name: &'static str,
    /// What it does, as the rest of a sentence whose subject it is.
    pub purpose: &'static str,
    packages: &'static [&'static str],
    /// Whether what is on the PATH has all that is used of it.
    is_complete: fn(&Path) -> bool,
}

impl Program {
    /// Describes a program that is complete when it is there.
    const fn new(
        name: &'static str,
        purpose: &'static str,
        packages: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            purpose,
            packages,
            is_complete: |_| true,
        }
    }
}

/// The compiler for AArch64 Linux. Bare-metal guests in Rust do not need it.
pub const LINKER: Program = Program::new(
    "aarch64-linux-gnu-gcc",
    "links programs for Linux guests",
    &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
);
/// Builds guests in C.
pub const MAKE: Program = Program::new("make", "builds guests in C", &["make"]);

/// Runs jobs on the cores of this machine, or on machines that ssh reaches.
pub const PARALLEL: Program =
    Program::new("parallel", "runs jobs on several machines", &["parallel"]);
/// Runs jobs on a cluster.
pub const SLURM: Program = Program::new(
    "slurmctld",
    "runs jobs on a cluster",
    &["slurm-wlm", "munge"],
);

/// Runs a program with another clock.
pub const FAKETIME: Program = Program::new("faketime", "gives jobs another clock", &["faketime"]);
/// Runs engines from Python's package index, in their own environment.
pub const PYTHON: Program = Program {
    is_complete: has_venv,
    ..Program::new(
        "python3",
        "runs engines in Python",
        &["python3", "python3-venv"],
    )
};

impl Program {
    /// Returns its path, if it is on the PATH and complete.
    pub fn find(&self) -> Option<PathBuf> {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|directory| directory.join(self.name))
            .find(|file| file.is_file())
            .filter(|program| (self.is_complete)(program))
    }

    /// Makes sure that it is installed. Returns its path.
    ///
    /// # Errors
    ///
    /// Returns an error, with the commands that install it, if it is missing and cannot be
    /// installed.
    pub fn ensure(&self) -> Result<PathBuf> {
        if let Some(found) = self.find() {
            return Ok(found);
        }
        let packages = self.packages.join(", ");
        let why = format!("it {}, and is not installed", self.purpose);
        consent::obtain(self.name, &why, "setup")?;
        announce(&format!("installing {packages}"));
        let failed = self.install().err().map(|error| error.to_string());
        let why =
            failed.unwrap_or_else(|| "what was installed is not found on the PATH".to_owned());
        self.find().ok_or_else(|| {
            let packages = self.packages.join(" ");
            let commands = format!(
                "  sudo apt-get update && sudo apt-get install --no-install-recommends {packages}"
            );
            Missing {
                what: self.name.to_owned(),
                why,
                commands,
            }
            .into()
        })
    }

    fn install(&self) -> Result<()> {
        let prefix = root_prefix()?;
        let install = [
            &["install", "-y", "-q", "--no-install-recommends"],
            self.packages,
        ]
        .concat();
        // If package lists cannot be updated, the existing ones may be sufficient.
        for arguments in [&["update", "-q"][..], &install] {
            // Another program, or another test, may be installing the same.
            let wait = ["-o", "DPkg::Lock::Timeout=600"];
            let words: Vec<_> = wait
                .iter()
                .chain(arguments)
                .map(|&word| word.to_owned())
                .collect();
            let what = format!("apt-get {}", arguments[0]);
            let done = run_limited(
                as_root(prefix, "apt-get", &words),
                &what,
                Duration::from_secs(900),
            )?;
            if !done.success && arguments[0] == "install" {
                return Err(miette!("{what} failed ({})", done.reason()));
            }
        }
        Ok(())
    }
}

/// Returns whether this Python can make an environment with pip in it, which Debian has in another
/// package.
fn has_venv(python: &Path) -> bool {
    let found = Command::new(python)
        .args(["-c", "import ensurepip, venv"])
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}
