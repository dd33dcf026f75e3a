//! Debian packages for AArch64, unpacked without being installed.
//!
//! apt itself downloads them, from the mirror that this machine's own sources name, and checks
//! their signatures. The release is the caller's choice, not this machine's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{Missing, announce};
use super::{apt, consent};
use crate::files;
use cloison_config::guest_linux::Release;
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

/// Downloads and unpacks the newest version of `package` in a release. If it is an empty package
/// that depends on a versioned one (`linux-image-rt-arm64`), that one is used.
pub fn arm64(release: Release, package: &str) -> Result<Unpacked> {
    get(release, package).map_err(|error| missing(release, package, &error))
}

/// Returns the error for a package that is not available.
pub fn missing(release: Release, package: &str, error: &miette::Report) -> miette::Report {
    let commands = match error.downcast_ref::<Offline>() {
        Some(_) => format!("  {OFFLINE}"),
        None => "  apt-cache policy\nshows apt's sources; a mirror of Debian must be among them"
            .to_owned(),
    };
    Missing {
        what: format!("Debian {release}'s package {package} for arm64"),
        why: error.to_string(),
        commands,
    }
    .into()
}

/// Returns whether Debian packages for these guests may be downloaded into the cache.
///
/// # Errors
///
/// The command that downloads them, if this one may not.
pub fn obtain(release: Release, package: &str) -> Result<()> {
    let what = format!("Debian {release}'s {package} for arm64");
    let command = format!("linux fetch --release {release} [CONFIG]");
    Ok(consent::obtain(&what, "it is not in the cache", &command)?)
}

fn get(release: Release, package: &str) -> Result<Unpacked> {
    let archive = Archive::open(release)?;
    let stem = package.trim_end_matches("-arm64");
    let kind = stem.rsplit('-').next().unwrap_or_default();
    let stands_for = |name: &&String| name.starts_with("linux-image-") && name.contains(kind);
    let package = archive
        .dependencies(package)?
        .iter()
        .find(stands_for)
        .cloned()
        .unwrap_or(package.to_owned());
    archive.unpack(&package)
}

/// A Debian release's packages for AArch64, as known to apt.
#[derive(Debug)]
pub struct Archive {
    release: Release,
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

/// Advice without a network.
const OFFLINE: &str = "connect this machine, or copy the directory ~/.cache/cloison from one that \
                       has booted such a guest";

impl Archive {
    /// Updates the package lists of a release.
    ///
    /// # Errors
    /// If no source of this machine names a mirror of Debian, or apt cannot reach it.
    pub fn open(release: Release) -> Result<Self> {
        let sources = apt::debian(release.name())?;
        let apt = apt::PrivateApt::foreign(&format!("arm64-{release}"), &sources, "arm64")?;
        let done = apt.update(&format!(
            "reading the package lists of Debian {release} for arm64"
        ))?;
        if !done.success {
            return Err(miette!("apt-get update: {}", done.reason()));
        }
        Ok(Self {
            release,
            apt,
            unreachable: done.unreachable(),
        })
    }

    /// Returns the release whose packages these are.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Returns whether the release has `package`.
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
            (None, Some(reason)) => Err(Offline {
                reason: reason.clone(),
            }
            .into()),
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
            return Err(miette!("Debian {} has no such package", self.release));
        };
        announce(&format!(
            "downloading Debian {}'s package {package} {version} for arm64",
            self.release
        ));
        let root = files::scratch()?;
        let done = self
            .apt
            .unpack(&format!("{package}={version}"), root.path())?;
        if let (false, Some(reason)) = (done.success, done.unreachable()) {
            return Err(Offline { reason }.into());
        }
        if !done.success {
            return Err(miette!("{}", done.reason()));
        }
        Ok(Unpacked {
            root,
            package: package.to_owned(),
            version,
        })
    }
}
