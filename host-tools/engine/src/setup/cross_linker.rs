//! The linker for AArch64 Linux programs, which guest tools for Linux need and bare-metal guests do not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::emulator::{as_root, root_prefix};
use super::process::{Missing, announce, run_limited};
use miette::{Result, miette};
use std::path::PathBuf;
use std::time::Duration;

/// The linker, and the packages that contain it.
pub const PROGRAM: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [&str; 2] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// Returns the path of the linker, if it is on the PATH.
pub fn find() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(PROGRAM))
        .find(|file| file.is_file())
}

/// Makes sure that the linker is installed.
pub fn cross_linker() -> Result<PathBuf> {
    if let Some(found) = find() {
        return Ok(found);
    }
    announce(&format!(
        "{PROGRAM}, which Linux guest tools are linked with, is missing; installing {}",
        PACKAGES.join(", ")
    ));
    let install = || -> Result<()> {
        let prefix = root_prefix()?;
        // If package lists cannot be updated, the existing ones may be sufficient.
        for arguments in
            [&["update", "-q"][..], &["install", "-y", "-q", "--no-install-recommends", PACKAGES[0], PACKAGES[1]]]
        {
            // Another program, or another test, may be installing the same.
            let wait = ["-o", "DPkg::Lock::Timeout=600"];
            let words: Vec<_> = wait.iter().chain(arguments).map(|&word| word.to_owned()).collect();
            let what = format!("apt-get {}", arguments[0]);
            let done = run_limited(as_root(prefix, "apt-get", &words), &what, Duration::from_secs(900))?;
            if !done.success && arguments[0] == "install" {
                return Err(miette!("{what} failed ({})", done.reason()));
            }
        }
        Ok(())
    };
    let why =
        install().err().map_or("what was installed is not found on the PATH".to_owned(), |error| error.to_string());
    find().ok_or_else(|| {
        let commands =
            format!("  sudo apt-get update && sudo apt-get install --no-install-recommends {}", PACKAGES.join(" "));
        Missing { what: PROGRAM.to_owned(), why, commands }.into()
    })
}
