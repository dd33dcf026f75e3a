//! Debian packages for AArch64, unpacked without being installed.
//!
//! apt itself downloads them, from this machine's own sources, and checks their signatures.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::apt;
use super::process::{Missing, announce};
use miette::{Diagnostic, Result, miette};
use tempfile::TempDir;
use thiserror::Error;

/// An unpacked package.
#[derive(Debug)]
pub struct Unpacked {
    /// Directory with the package's files, as they would be below `/`.
    pub root: TempDir,
    /// Name of the package: the requested one, or the versioned one that it depends on.
    pub package: String,
    /// Version of the package.
    pub version: String,
}

/// Downloads and unpacks the newest version of `package`. If it is an empty package that depends on a versioned one
/// (`linux-image-rt-arm64`), that one is used.
pub fn arm64(package: &str) -> Result<Unpacked> {
    get(package).map_err(|error| missing(package, &error))
}

/// Returns the error for a package that is not available.
pub fn missing(package: &str, error: &miette::Report) -> miette::Report {
    if error.downcast_ref::<Offline>().is_some() {
        let what = format!("Debian's package {package} for arm64");
        return Missing { what, why: error.to_string(), commands: format!("  {OFFLINE}") }.into();
    }
    let commands = format!(
        "  sudo dpkg --add-architecture arm64 && sudo apt-get update && apt-get download {package}:arm64\n\
         shows what apt says; Debian's suites must be among its sources"
    );
    Missing { what: format!("Debian's package {package} for arm64"), why: error.to_string(), commands }.into()
}

fn get(package: &str) -> Result<Unpacked> {
    let archive = Archive::open()?;
    let stem = package.trim_end_matches("-arm64");
    let kind = stem.rsplit('-').next().unwrap_or_default();
    let stands_for = |name: &&String| name.starts_with("linux-image-") && name.contains(kind);
    let package = archive.dependencies(package)?.iter().find(stands_for).cloned().unwrap_or(package.to_owned());
    archive.unpack(&package)
}

/// Debian's packages for AArch64, as known to apt.
#[derive(Debug)]
pub struct Archive {
    apt: apt::PrivateApt,
    /// What apt could not download and why. What it knew before is still there.
    unreachable: Option<String>,
}

/// Why no package can be downloaded.
#[derive(Debug, Error, Diagnostic)]
#[error("the network cannot be reached: apt could not fetch {reason}")]
#[diagnostic(help("{OFFLINE}"))]
struct Offline {
    reason: String,
}

/// What to do without a network.
const OFFLINE: &str = "connect this machine, or copy the directory ~/.cache/cloison from one that has booted such a \
                       guest";

impl Archive {
    /// Updates the package lists.
    ///
    /// # Errors
    /// If this is not a Debian machine, no source serves its release, or apt cannot reach one.
    pub fn open() -> Result<Self> {
        let distribution = apt::distribution().ok_or_else(|| miette!("this is not a Debian machine"))?;
        let of_this_release = |suite: &String| {
            let rest = suite.strip_prefix(distribution.codename.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let mut sources = apt::sources();
        for source in &mut sources {
            source.suites.retain(of_this_release);
        }
        sources.retain(|source| !source.suites.is_empty() && source.components.iter().any(|name| name == "main"));
        if sources.is_empty() {
            return Err(miette!("no apt source of this machine serves {}", distribution.codename));
        }
        let apt = apt::PrivateApt::foreign("arm64", &sources, "arm64")?;
        let done = apt.update("reading the package lists for arm64")?;
        if !done.success {
            return Err(miette!("apt-get update: {}", done.reason()));
        }
        Ok(Self { apt, unreachable: done.unreachable() })
    }

    /// Returns whether a source of this machine has `package`.
    pub fn has(&self, package: &str) -> Result<bool> {
        Ok(self.newest(package)?.is_some())
    }

    /// Returns the newest version of `package`, if there is one.
    ///
    /// # Errors
    /// If it is not known because the network cannot be reached.
    fn newest(&self, package: &str) -> Result<Option<String>> {
        let newest = self.apt.versions(package)?.into_iter().next();
        match (&newest, &self.unreachable) {
            (None, Some(reason)) => Err(Offline { reason: reason.clone() }.into()),
            _ => Ok(newest),
        }
    }

    /// Returns the packages that `package` depends on, without virtual ones.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        self.apt.dependencies(package)
    }

    /// Downloads and unpacks the newest version of `package`.
    pub fn unpack(&self, package: &str) -> Result<Unpacked> {
        let Some(version) = self.newest(package)? else {
            return Err(miette!("no apt source of this machine has {package}"));
        };
        announce(&format!("downloading Debian's package {package} {version} for arm64"));
        let root = tempfile::Builder::new().prefix("cloison-").tempdir().map_err(|error| miette!("{error}"))?;
        let done = self.apt.unpack(&format!("{package}={version}"), root.path())?;
        if let (false, Some(reason)) = (done.success, done.unreachable()) {
            return Err(Offline { reason }.into());
        }
        if !done.success {
            return Err(miette!("{}", done.reason()));
        }
        Ok(Unpacked { root, package: package.to_owned(), version })
    }
}
