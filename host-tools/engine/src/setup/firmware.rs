//! Firmware for QEMU's `virt`, as Debian's packages have it: found in the cache, or downloaded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{Missing, announce};
use super::{apt, consent};
use crate::installation;
use cloison_config::guest_linux::Release;
use miette::{IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};

/// A package with firmware for QEMU's `virt`. One that is installed is not used: its version would
/// be that of this machine's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// U-Boot.
    UBoot,
    /// EDK II, the reference implementation of UEFI.
    Edk2,
}

impl Firmware {
    /// All.
    pub const ALL: [Self; 2] = [Self::UBoot, Self::Edk2];

    /// Returns its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UBoot => "U-Boot",
            Self::Edk2 => "EDK II",
        }
    }

    /// Returns the name of its directory in the cache.
    pub const fn directory(self) -> &'static str {
        match self {
            Self::UBoot => "u-boot",
            Self::Edk2 => "edk2",
        }
    }

    /// Returns the package, and the file in it.
    const fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::UBoot => ("u-boot-qemu", "usr/lib/u-boot/qemu_arm64/u-boot.bin"),
            Self::Edk2 => ("qemu-efi-aarch64", "usr/share/qemu-efi-aarch64/QEMU_EFI.fd"),
        }
    }

    /// Returns the directory in the cache with a release's package.
    fn root(self, release: Release) -> PathBuf {
        installation::cache_dir()
            .join(self.directory())
            .join(release.name())
    }

    /// Returns the path of a release's file, if it is in the cache.
    pub fn find(self, release: Release) -> Option<PathBuf> {
        let path = self.root(release).join(self.source().1);
        Some(path).filter(|path| path.exists())
    }

    /// Returns the path of a release's file, downloading the package into the cache without
    /// installing it if necessary.
    ///
    /// # Errors
    /// Without consent, and without a mirror of Debian among apt's sources.
    pub fn obtain(self, release: Release) -> Result<PathBuf> {
        if let Some(found) = self.find(release) {
            return Ok(found);
        }
        let (package, _) = self.source();
        let what = format!("Debian {release}'s {} for QEMU", self.name());
        consent::obtain(&what, "it is not in the cache", "setup")?;
        announce(&format!(
            "unpacking the package {package} of Debian {release} into the cache"
        ));
        let why = self.fetch(release).err();
        self.find(release).ok_or_else(|| {
            let why = why.map_or("the package does not hold it".to_owned(), |error| {
                error.to_string()
            });
            let commands =
                "  apt-cache policy\nshows apt's sources; a mirror of Debian must be among them"
                    .to_owned();
            Missing {
                what,
                why,
                commands,
            }
            .into()
        })
    }

    /// Unpacks the package into the cache.
    fn fetch(self, release: Release) -> Result<()> {
        let sources = apt::debian(release.name())?;
        let private = apt::PrivateApt::new(&format!("own-{release}"), &sources)?;
        if self.find(release).is_some() {
            // Another process downloaded it while this one waited.
            return Ok(());
        }
        private.update(&format!("reading the package lists of Debian {release}"))?;
        // It appears whole or not at all.
        let root = self.root(release);
        let parent = root.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).into_diagnostic()?;
        let fresh = tempfile::Builder::new()
            .prefix("fresh-")
            .tempdir_in(parent)
            .into_diagnostic()?;
        let done = private.unpack(self.source().0, fresh.path())?;
        if !done.success {
            return Err(miette!("{}", done.reason()));
        }
        std::fs::rename(fresh.keep(), root).into_diagnostic()
    }
}
