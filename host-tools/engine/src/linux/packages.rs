//! Debian's kernels and static busybox: downloaded once as packages, kept in the cache with
//! versions and checksums.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::sha256;
use crate::installation;
use crate::setup::debian;
use cloison_config::guest_linux::{Flavor, Release};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file of a package in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedFile {
    /// Name of the package.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Length of the file.
    pub bytes: u64,
    /// Path in the cache; not serialized.
    #[serde(skip)]
    pub path: PathBuf,
}

/// Whether the cache's files are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// They are used; only missing files are downloaded.
    Use,
    /// They are downloaded again, and used until the newer version has arrived.
    Update,
}

/// Names of the cached file and of its description.
const FILE: &str = "file";
const DESCRIPTION: &str = "package.json";

/// Returns a kernel, downloading it if it is not in the cache.
pub fn kernel(release: Release, flavor: Flavor, cached: Cached) -> Result<CachedFile> {
    kept_or_fetched(release, flavor.name(), flavor.package(), cached, |root| {
        let entries = std::fs::read_dir(root.join("boot")).into_diagnostic()?;
        let kernel = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("vmlinuz-"))
        };
        let found = entries.flatten().map(|entry| entry.path()).find(kernel);
        found.ok_or_else(|| miette!("the package has no boot/vmlinuz-*"))
    })
}

/// Returns a kernel, if it is in the cache.
pub fn kept_kernel(release: Release, flavor: Flavor) -> Option<CachedFile> {
    find(&directory(release, flavor.name())).ok().flatten()
}

/// Returns the static busybox, downloading it if it is not in the cache.
pub fn busybox(release: Release, cached: Cached) -> Result<CachedFile> {
    kept_or_fetched(release, "busybox", "busybox-static", cached, |root| {
        let places = ["bin/busybox", "usr/bin/busybox"].map(|place| root.join(place));
        places
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| miette!("the package has no bin/busybox"))
    })
}

/// Returns a release's kernels and busybox by name, downloading missing ones.
pub fn all(release: Release, cached: Cached) -> Result<Vec<(&'static str, CachedFile)>> {
    let mut all = Vec::new();
    for flavor in Flavor::ALL {
        all.push((flavor.name(), kernel(release, flavor, cached)?));
    }
    all.push(("busybox", busybox(release, cached)?));
    Ok(all)
}

/// Returns whether the cache has anything of a release.
pub fn is_kept(release: Release) -> bool {
    directory(release, "").is_dir()
}

/// Returns whether the cache has this file of a release.
pub(super) fn is_file_kept(release: Release, name: &str) -> bool {
    directory(release, name).join(DESCRIPTION).is_file()
}

/// Returns the lists of packages of a release whose programs are in the cache.
pub fn kept_lists(release: Release) -> Vec<Vec<String>> {
    let entries = std::fs::read_dir(directory(release, PROGRAMS))
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join(DESCRIPTION).is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
        .iter()
        .map(|names| names.split('_').map(str::to_owned).collect())
        .collect()
}

/// The directory of the programs of packages, below that of the kernels.
const PROGRAMS: &str = "programs";

/// Returns the name in a release's cache of the programs of these packages. No package has `_` in
/// its name.
pub(super) fn programs_of(packages: &[String]) -> String {
    format!("{PROGRAMS}/{}", packages.join("_"))
}

fn directory(release: Release, name: &str) -> PathBuf {
    installation::cache_dir()
        .join("linux")
        .join(release.name())
        .join(name)
}

/// Returns what is kept in `directory`, or an error if it has changed since it was stored.
fn find(directory: &Path) -> Result<Option<CachedFile>> {
    let Ok(text) = std::fs::read_to_string(directory.join(DESCRIPTION)) else {
        return Ok(None);
    };
    let kept: CachedFile = serde_json::from_str(&text).into_diagnostic()?;
    let path = directory.join(FILE);
    let bytes = std::fs::read(&path).into_diagnostic()?;
    let found = sha256(&bytes);
    if found != kept.sha256 {
        return Err(miette!(
            help = format!(
                "`{} linux fetch --update` fetches it again",
                installation::program()
            ),
            "{} is damaged: SHA-256 {found}, expected {}",
            path.display(),
            kept.sha256
        ));
    }
    Ok(Some(CachedFile { path, ..kept }))
}

fn kept_or_fetched(
    release: Release,
    name: &str,
    package: &str,
    cached: Cached,
    pick: impl Fn(&Path) -> Result<PathBuf>,
) -> Result<CachedFile> {
    kept_or_made(release, name, cached, || {
        let unpacked = debian::arm64(release, package)?;
        let bytes = std::fs::read(pick(unpacked.root.path())?).into_diagnostic()?;
        Ok(NewFile {
            package: unpacked.package,
            version: unpacked.version,
            bytes,
        })
    })
}

/// Waits until no other process downloads; holds the lock until the file is closed.
fn lock() -> Result<File> {
    let path = installation::cache_dir().join("linux.lock");
    let locked = || {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = File::create(&path)?;
        file.lock()?;
        Ok::<File, std::io::Error>(file)
    };
    locked()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot lock {}", path.display()))
}

/// A file to put into the cache.
pub(super) struct NewFile {
    /// Name of the package or packages.
    pub package: String,
    /// Version of the package or packages.
    pub version: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

/// Returns the file that the cache has under this name for a release, making it first if necessary
/// or wanted.
pub(super) fn kept_or_made(
    release: Release,
    name: &str,
    cached: Cached,
    make: impl FnOnce() -> Result<NewFile>,
) -> Result<CachedFile> {
    let directory = directory(release, name);
    if cached == Cached::Update {
        let _lock = lock()?;
        return replaced(&directory, make);
    }
    if let Some(kept) = find(&directory)? {
        return Ok(kept);
    }
    let shown = name.strip_prefix(PROGRAMS).map_or(name.to_owned(), |list| {
        format!("packages {}", list.trim_matches('/').replace('_', ", "))
    });
    debian::obtain(release, &shown)?;
    // apt's own lock would make a second, simultaneous download fail. With this lock it waits, and
    // then finds what the first one downloaded.
    let _lock = lock()?;
    if let Some(kept) = find(&directory)? {
        return Ok(kept);
    }
    stored(&directory, make()?)
}

/// Makes a file, and only then puts it in the place of the one that is there, damaged or not.
fn replaced(directory: &Path, make: impl FnOnce() -> Result<NewFile>) -> Result<CachedFile> {
    let made = make()?;
    let cannot = || miette!("cannot replace {}", directory.display());
    let parent = directory.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .into_diagnostic()
        .wrap_err_with(cannot)?;
    let aside = tempfile::Builder::new()
        .prefix("old-")
        .tempdir_in(parent)
        .into_diagnostic()
        .wrap_err_with(cannot)?;
    let old = aside.path().join("old");
    let was_there = directory.exists();
    if was_there {
        std::fs::rename(directory, &old)
            .into_diagnostic()
            .wrap_err_with(cannot)?;
    }
    stored(directory, made).inspect_err(|_| {
        if was_there {
            // What could not be replaced returns to its place; the error says what failed.
            let _ = std::fs::rename(&old, directory);
        }
    })
}

fn stored(directory: &Path, made: NewFile) -> Result<CachedFile> {
    let NewFile {
        package,
        version,
        bytes,
    } = made;
    let kept = CachedFile {
        package,
        version,
        sha256: sha256(&bytes),
        bytes: bytes.len() as u64,
        path: directory.join(FILE),
    };
    keep(directory, &bytes, &kept)
        .wrap_err_with(|| miette!("cannot write {}", directory.display()))?;
    Ok(kept)
}

/// Stores a file. The directory appears atomically, even if two commands download at the same time.
fn keep(directory: &Path, bytes: &[u8], kept: &CachedFile) -> Result<()> {
    let parent = directory.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).into_diagnostic()?;
    let fresh = tempfile::Builder::new()
        .prefix("fresh-")
        .tempdir_in(parent)
        .into_diagnostic()?;
    std::fs::write(fresh.path().join(FILE), bytes).into_diagnostic()?;
    let text = serde_json::to_string_pretty(kept).into_diagnostic()?;
    std::fs::write(fresh.path().join(DESCRIPTION), text).into_diagnostic()?;
    match std::fs::rename(fresh.path(), directory) {
        Ok(()) => {
            // Already removed: nothing to do.
            let _ = fresh.keep();
            Ok(())
        }
        // Another process stored the same file first.
        Err(_) if find(directory)?.is_some() => Ok(()),
        Err(error) => Err(error).into_diagnostic(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_and_damage_is_seen() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("kernel");
        assert_eq!(find(&directory).unwrap(), None);
        let kept = CachedFile {
            package: "p".into(),
            version: "1".into(),
            sha256: sha256(b"abc"),
            bytes: 3,
            path: directory.join(FILE),
        };
        assert_eq!(
            kept.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        keep(&directory, b"abc", &kept).unwrap();
        assert_eq!(find(&directory).unwrap(), Some(kept.clone()));
        // A second, simultaneous one is not an error.
        keep(&directory, b"abc", &kept).unwrap();
        std::fs::write(directory.join(FILE), "abd").unwrap();
        assert!(
            find(&directory)
                .unwrap_err()
                .to_string()
                .contains("is damaged")
        );
    }

    #[test]
    fn what_is_kept_stays_until_its_successor_has_arrived() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("kernel");
        let made = |version: &str| NewFile {
            package: "p".into(),
            version: version.into(),
            bytes: version.into(),
        };
        let first = replaced(&directory, || Ok(made("1"))).unwrap();
        assert!(replaced(&directory, || Err(miette!("there is no network"))).is_err());
        assert_eq!(find(&directory).unwrap(), Some(first));
        std::fs::write(directory.join(FILE), "damaged").unwrap();
        let second = replaced(&directory, || Ok(made("2"))).unwrap();
        assert_eq!(find(&directory).unwrap(), Some(second));
        assert_eq!(
            std::fs::read_dir(scratch.path()).unwrap().count(),
            1,
            "something is left beside it"
        );
    }
}
