//! A bundle: everything a checkout builds, in one directory, so that `cloison` works without a
//! checkout.
//!
//! ```text
//! bundle.json                      version, commit, compiler, and the SHA-256 of every other file
//! el2/cloison-el2                  the hypervisor
//! el2/cloison-el2-gicv3            the hypervisor for boards with a GICv3
//! guests/NAME                      the shipped workloads
//! linux/cloisonctl                 the program in Linux guests
//! model/libcloison_board_model.so  the board model, a plugin for QEMU
//! configs/, profiles/              the shipped configurations
//! tests/configs/*.toml             the systems that `cloison bench` measures
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{sha256, write_json};
use cloison_formats::{image, telemetry};
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Name of the file that describes a bundle.
const MANIFEST: &str = "bundle.json";
/// Version of a bundle's layout.
const LAYOUT: u32 = 2;

/// The description of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    layout: u32,
    /// Version of Cloison.
    pub version: String,
    /// Version of the system image's format.
    image_format: u32,
    /// Version of the telemetry stream's format.
    telemetry_format: u32,
    /// The commit that it was made from, with `-dirty` if there were uncommitted changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The compiler that built it.
    pub rustc: String,
    /// Tokens of source that run at EL2: neither comment nor test.
    pub el2_tokens: u64,
    /// SHA-256 of each file, in hexadecimal, by its path.
    files: BTreeMap<String, String>,
}

/// Errors that make a bundle unusable.
#[derive(Debug, Error, Diagnostic)]
pub enum BundleError {
    /// The manifest is missing or cannot be read.
    #[error("{} is not a bundle: {why}", directory.display())]
    #[diagnostic(help("`cargo xtask bundle -o DIR` in a checkout makes one"))]
    NoBundle {
        /// Path of the directory.
        directory: PathBuf,
        /// The mistake in the manifest.
        why: String,
    },
    /// The bundle was made by another version.
    #[error("bundle {} is of another version: {what} {found}; this program is of {expected}", directory.display())]
    #[diagnostic(help("install `cloison` and make the bundle from the same checkout"))]
    OtherVersion {
        /// Path of the directory.
        directory: PathBuf,
        /// The difference.
        what: &'static str,
        /// The bundle's value.
        found: String,
        /// This program's value.
        expected: String,
    },
    /// A file is missing or differs.
    #[error("bundle {} is damaged: {file} {why}", directory.display())]
    #[diagnostic(help(
        "copy the bundle again, or make a new one; to change a configuration, copy it elsewhere"
    ))]
    Damaged {
        /// Path of the directory.
        directory: PathBuf,
        /// Path of the file in the directory.
        file: String,
        /// How the file differs.
        why: String,
    },
    /// The bundle lacks a part.
    #[error("bundle {} has no {part}", directory.display())]
    #[diagnostic(help("the bundle has: {parts}"))]
    NoPart {
        /// Path of the directory.
        directory: PathBuf,
        /// Path of the missing part.
        part: String,
        /// The parts that the bundle has.
        parts: String,
    },
}

/// A bundle whose files have all been verified.
#[derive(Clone, Debug)]
pub struct Bundle {
    directory: PathBuf,
    manifest: Manifest,
}

impl Bundle {
    /// Path of the hypervisor in a bundle.
    pub const HYPERVISOR: &str = "el2/cloison-el2";
    /// Path of the hypervisor for boards with a GICv3 in a bundle.
    pub const HYPERVISOR_GICV3: &str = "el2/cloison-el2-gicv3";
    /// Path of the hello image in a bundle.
    pub const HELLO: &str = "el2/cloison-hello-image";
    /// Directory of the guests in a bundle.
    pub const GUESTS: &str = "guests";
    /// Path of the program for Linux guests in a bundle.
    pub const CLIENT: &str = "linux/cloisonctl";
    /// Path of PAPI for guests in C in a bundle.
    pub const EPAPI: &str = "guest-c/libepapi.a";
    /// Path of the board model in a bundle.
    pub const MODEL: &str = "model/libcloison_board_model.so";

    /// Returns the path of one of the programs that a Linux guest may have.
    pub fn tool(name: &str) -> String {
        format!("linux/{name}")
    }

    /// Returns whether `directory` contains a manifest.
    pub fn is_at(directory: &Path) -> bool {
        directory.join(MANIFEST).is_file()
    }

    /// Reads the manifest and verifies every file against it.
    ///
    /// # Errors
    ///
    /// Returns an error if `directory` is not a bundle, has another version, or is damaged.
    pub fn open(directory: &Path) -> Result<Self, BundleError> {
        let directory = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.to_path_buf());
        let no_bundle = |why: String| BundleError::NoBundle {
            directory: directory.clone(),
            why,
        };
        let text = std::fs::read(directory.join(MANIFEST))
            .map_err(|error| no_bundle(format!("{MANIFEST}: {error}")))?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| no_bundle(format!("{MANIFEST}: {error}")))?;
        let ours = Manifest::of_this_program();
        let versions = [
            (
                "layout",
                manifest.layout.to_string(),
                ours.layout.to_string(),
            ),
            ("Cloison", manifest.version.clone(), ours.version),
            (
                "system images",
                manifest.image_format.to_string(),
                ours.image_format.to_string(),
            ),
            (
                "telemetry",
                manifest.telemetry_format.to_string(),
                ours.telemetry_format.to_string(),
            ),
        ];
        if let Some((what, found, expected)) = versions
            .into_iter()
            .find(|(_, found, expected)| found != expected)
        {
            return Err(BundleError::OtherVersion {
                directory,
                what,
                found,
                expected,
            });
        }
        for (file, expected) in &manifest.files {
            let damaged = |why: String| BundleError::Damaged {
                directory: directory.clone(),
                file: file.clone(),
                why,
            };
            let bytes = std::fs::read(directory.join(file))
                .map_err(|error| damaged(format!("cannot be read: {error}")))?;
            let found = sha256(&bytes);
            if found != *expected {
                return Err(damaged(format!("has SHA-256 {found}, expected {expected}")));
            }
        }
        Ok(Self {
            directory,
            manifest,
        })
    }

    /// Describes the files in `directory` in a manifest, which makes it a bundle.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or the manifest cannot be written.
    pub fn seal(
        directory: &Path,
        commit: Option<String>,
        rustc: String,
        el2_tokens: u64,
    ) -> miette::Result<Self> {
        let mut manifest = Manifest {
            commit,
            rustc,
            el2_tokens,
            ..Manifest::of_this_program()
        };
        let mut directories = vec![directory.to_path_buf()];
        let unreadable = |path: &Path, error: std::io::Error| {
            miette::miette!("cannot read {}: {error}", path.display())
        };
        while let Some(next) = directories.pop() {
            for entry in std::fs::read_dir(&next).map_err(|error| unreadable(&next, error))? {
                let path = entry.map_err(|error| unreadable(&next, error))?.path();
                let name = path
                    .strip_prefix(directory)
                    .unwrap_or(&path)
                    .display()
                    .to_string();
                if path.is_dir() {
                    directories.push(path);
                } else if name != MANIFEST {
                    let bytes = std::fs::read(&path).map_err(|error| unreadable(&path, error))?;
                    manifest.files.insert(name, sha256(&bytes));
                }
            }
        }
        write_json(&directory.join(MANIFEST), &manifest)?;
        Ok(Self {
            directory: directory.to_path_buf(),
            manifest,
        })
    }

    /// Returns the bundle's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the bundle's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the path of a file by its path in the bundle.
    ///
    /// # Errors
    ///
    /// Returns an error if the bundle does not contain the file.
    pub fn part(&self, path: &str) -> Result<PathBuf, BundleError> {
        if self.manifest.files.contains_key(path) {
            return Ok(self.directory.join(path));
        }
        let folder = path.split('/').next().unwrap_or_default();
        let parts = self.names(folder).collect::<Vec<_>>().join(", ");
        Err(BundleError::NoPart {
            directory: self.directory.clone(),
            part: path.to_owned(),
            parts,
        })
    }

    /// Returns the paths of all files except the manifest, sorted.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.keys().map(String::as_str)
    }

    /// Returns the names of the files in a directory of the bundle, sorted.
    pub fn names(&self, folder: &str) -> impl Iterator<Item = &str> {
        self.manifest
            .files
            .keys()
            .filter_map(move |path| path.strip_prefix(folder)?.strip_prefix('/'))
    }
}

impl Manifest {
    fn of_this_program() -> Self {
        Self {
            layout: LAYOUT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            image_format: image::VERSION,
            telemetry_format: u32::from(telemetry::VERSION),
            commit: None,
            rustc: String::new(),
            el2_tokens: 0,
            files: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("guests")).unwrap();
        std::fs::write(directory.path().join("guests/echo"), "echo").unwrap();
        Bundle::seal(
            directory.path(),
            Some("0123".into()),
            "rustc 1.95.0".into(),
            6_000,
        )
        .unwrap();
        directory
    }

    #[test]
    fn parts_are_found_by_name() {
        let directory = bundle();
        let bundle = Bundle::open(directory.path()).unwrap();
        assert_eq!(bundle.names("guests").collect::<Vec<_>>(), ["echo"]);
        assert_eq!(
            std::fs::read(bundle.part("guests/echo").unwrap()).unwrap(),
            b"echo"
        );
        let error = bundle.part("guests/eco").unwrap_err();
        assert!(matches!(error, BundleError::NoPart { parts, .. } if parts == "echo"));
    }

    #[test]
    fn damage_is_found() {
        let directory = bundle();
        std::fs::write(directory.path().join("guests/echo"), "ecko").unwrap();
        let error = Bundle::open(directory.path()).unwrap_err();
        assert!(matches!(error, BundleError::Damaged { file, .. } if file == "guests/echo"));
        std::fs::remove_file(directory.path().join("guests/echo")).unwrap();
        assert!(matches!(
            Bundle::open(directory.path()),
            Err(BundleError::Damaged { .. })
        ));
        std::fs::remove_file(directory.path().join(MANIFEST)).unwrap();
        assert!(!Bundle::is_at(directory.path()));
        assert!(matches!(
            Bundle::open(directory.path()),
            Err(BundleError::NoBundle { .. })
        ));
    }

    #[test]
    fn another_version_is_refused() {
        let directory = bundle();
        let manifest = directory.path().join(MANIFEST);
        let text = std::fs::read_to_string(&manifest).unwrap();
        let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
        std::fs::write(&manifest, text.replace(&version, "\"version\": \"0.0.9\"")).unwrap();
        let error = Bundle::open(directory.path()).unwrap_err();
        assert!(
            matches!(error, BundleError::OtherVersion { what: "Cloison", found, .. } if found == "0.0.9")
        );
    }
}
