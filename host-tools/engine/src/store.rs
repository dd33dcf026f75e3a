//! Files that several results share, each kept once and named by the SHA-256 of its contents.
//!
//! The store of an experiment is the directory `parts` of its results, so that the results can be
//! moved as a whole. Stores on one file system share equal files by hard links, through a pool in
//! the output directory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{self, sha256, write_atomic};
use crate::installation;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use miette::{Diagnostic, IntoDiagnostic, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// Name of the store's directory, and of the pool's.
pub const DIRECTORY: &str = "parts";
/// Extension of what is kept compressed.
const COMPRESSED: &str = "gz";

/// Why a file of a store cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum StoreError {
    /// The name is not one that a store gives.
    #[error("`{name}` does not name a file of a store")]
    #[diagnostic(help("remove the run's directory, and run the experiment again"))]
    Name {
        /// The name.
        name: String,
    },
    /// The store lacks the file.
    #[error("{} is missing", path.display())]
    #[diagnostic(help(
        "runs share the files in `{DIRECTORY}`: copy the whole directory of the results, with \
         `{DIRECTORY}` and `runs`, or run the experiment again"
    ))]
    Missing {
        /// The path of the file.
        path: PathBuf,
    },
    /// The contents do not match the name.
    #[error("{} is damaged: {reason}", path.display())]
    #[diagnostic(help("run the experiment again: it replaces the file"))]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The mistake in it.
        reason: String,
    },
}

/// A directory of files that are named by their contents.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    pool: Option<PathBuf>,
    /// Names whose files this process has written or read.
    checked: Mutex<BTreeSet<String>>,
}

impl Store {
    /// Returns the store of the results in `results`.
    pub fn of_results(results: &Path) -> Self {
        Self {
            pool: Some(installation::output_dir().join(DIRECTORY)),
            ..Self::at(&results.join(DIRECTORY))
        }
    }

    /// Returns the store in a directory, which is created with its first file.
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            pool: None,
            checked: Mutex::default(),
        }
    }

    /// Returns the store's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keeps these bytes compressed. Returns their name.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be written.
    pub fn add_compressed(&self, bytes: &[u8]) -> Result<String> {
        self.add(bytes, COMPRESSED)
    }

    /// Keeps these bytes unchanged, in a file with this extension, which must not be that of
    /// compressed ones. Returns its name.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be written.
    pub fn add(&self, bytes: &[u8], extension: &str) -> Result<String> {
        let name = format!("{}.{extension}", sha256(bytes));
        // Held to the end, so that no two workers write the same file.
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.contains(&name) {
            return Ok(name);
        }
        if load(&self.directory, &name).is_err() && !self.link_from_pool(&name) {
            let path = self.directory.join(&name);
            if extension == COMPRESSED {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).into_diagnostic()?;
                write_atomic(&path, &encoder.finish().into_diagnostic()?)?;
            } else {
                write_atomic(&path, bytes)?;
            }
            // Without the pool, this store has a copy to itself.
            if let Some(pool) = &self.pool {
                let _ = fs::remove_file(pool.join(&name));
                let _ =
                    fs::create_dir_all(pool).and_then(|()| fs::hard_link(&path, pool.join(&name)));
            }
        }
        checked.insert(name.clone());
        Ok(name)
    }

    /// Keeps the file of this name that another store has: the same one, if both are on one file
    /// system.
    ///
    /// # Errors
    ///
    /// Returns an error if the other store's is missing or damaged, or it cannot be written.
    pub fn add_from(&self, other: &Self, name: &str) -> Result<()> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if !checked.contains(name) {
            if load(&self.directory, name).is_err() {
                let (from, to) = (other.path(name)?, self.directory.join(name));
                // A damaged one may be in the way.
                let _ = fs::remove_file(&to);
                fs::create_dir_all(&self.directory).into_diagnostic()?;
                if fs::hard_link(&from, &to).is_err() {
                    write_atomic(&to, &files::read(&from, files::IMAGE)?)?;
                }
            }
            checked.insert(name.to_owned());
        }
        Ok(())
    }

    /// Returns whether the pool has an intact file of this name, which then is in this store too.
    fn link_from_pool(&self, name: &str) -> bool {
        let Some(pool) = self.pool.as_ref().filter(|pool| load(pool, name).is_ok()) else {
            return false;
        };
        let path = self.directory.join(name);
        // A damaged one may be in the way.
        let _ = fs::remove_file(&path);
        fs::create_dir_all(&self.directory)
            .and_then(|()| fs::hard_link(pool.join(name), path))
            .is_ok()
    }

    /// Returns the contents of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it is missing, or its contents do not match its name.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        load(&self.directory, name)
    }

    /// Returns the path of a file whose contents match its name.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        self.read(name).map(|_| self.directory.join(name))
    }

    /// Returns whether the store has a file of this name, intact or not.
    pub fn has(&self, name: &str) -> bool {
        is_name(name) && self.directory.join(name).is_file()
    }

    /// Removes all files except those with these names, and from the pool the files that no store
    /// has any more.
    pub fn keep_only(&self, names: &BTreeSet<String>) {
        let unused = |name: &str| !names.contains(name);
        remove(&self.directory, |name, _| unused(name));
        if let Some(pool) = &self.pool {
            remove(pool, |_, links| links == 1);
        }
    }
}

/// Removes the files of a store for which `is_garbage` is true, given name and number of links. One
/// that cannot be removed does no harm.
fn remove(directory: &Path, is_garbage: impl Fn(&str, u64) -> bool) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let links = entry.metadata().map_or(0, |metadata| metadata.nlink());
        if is_name(&name) && is_garbage(&name, links) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether a name is a SHA-256 with an extension: one from a file that was changed could
/// lead anywhere.
fn is_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(hash, extension)| {
        hash.len() == 64
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && extension.bytes().all(|byte| byte.is_ascii_lowercase())
    })
}

fn load(directory: &Path, name: &str) -> Result<Vec<u8>, StoreError> {
    if !is_name(name) {
        return Err(StoreError::Name {
            name: name.to_owned(),
        });
    }
    let path = directory.join(name);
    let damaged = |reason: String| StoreError::Damaged {
        path: path.clone(),
        reason,
    };
    let kept = match cloison_config::files::read(&path, files::IMAGE) {
        Ok(kept) => kept,
        Err(files::ReadError::Missing) => return Err(StoreError::Missing { path }),
        Err(error) => return Err(damaged(error.to_string())),
    };
    let (hash, extension) = name.split_once('.').unwrap_or_default();
    let bytes = if extension == COMPRESSED {
        let mut bytes = vec![];
        let read = GzDecoder::new(kept.as_slice())
            .take(files::IMAGE.most + 1)
            .read_to_end(&mut bytes);
        read.map_err(|error| damaged(format!("it cannot be unpacked: {error}")))?;
        bytes
    } else {
        kept
    };
    let found = sha256(&bytes);
    if found == hash {
        Ok(bytes)
    } else {
        Err(damaged(format!("its contents have the SHA-256 {found}")))
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn what_is_the_same_is_kept_once() {
        let scratch = tempfile::tempdir().unwrap();
        let pool = scratch.path().join("pool");
        let [one, other] = ["one", "other"].map(|name| Store {
            pool: Some(pool.clone()),
            ..Store::at(&scratch.path().join(name).join(DIRECTORY))
        });
        let long = vec![7; 100_000];
        let name = one.add_compressed(&long).unwrap();
        assert_eq!(name, one.add_compressed(&long).unwrap());
        assert_eq!(one.read(&name).unwrap(), long);
        let file = one.directory().join(&name);
        assert!(
            fs::metadata(&file).unwrap().len() < 1000,
            "it is compressed"
        );
        // The same file, by its number, in the other store.
        assert_eq!(other.add_compressed(&long).unwrap(), name);
        let number = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(number(&file), number(&other.directory().join(&name)));
        let plain = other.add(b"model", "so").unwrap();
        assert_eq!(fs::read(other.path(&plain).unwrap()).unwrap(), b"model");
        // What nothing names goes, from the pool too once no store has it; other files stay.
        fs::write(other.directory().join("note.txt"), "mine").unwrap();
        other.keep_only(&BTreeSet::from([plain.clone()]));
        assert_eq!(
            names(other.directory()),
            BTreeSet::from([plain.clone(), "note.txt".to_owned()])
        );
        assert!(
            one.read(&name).is_ok()
                && names(&pool) == BTreeSet::from([name.clone(), plain.clone()])
        );
        one.keep_only(&BTreeSet::new());
        assert_eq!(
            (names(one.directory()), names(&pool)),
            (BTreeSet::new(), BTreeSet::from([plain]))
        );
    }

    #[test]
    fn files_of_another_store_are_checked_before_they_are_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| scratch.path().join(name));
        let name = Store::at(&one).add_compressed(b"image").unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join(&name), "half").unwrap();
        Store::at(&other).add_from(&Store::at(&one), &name).unwrap();
        assert_eq!(
            Store::at(&other).read(&name).unwrap(),
            b"image",
            "a damaged one is replaced"
        );
        fs::remove_file(other.join(&name)).unwrap();
        fs::write(one.join(&name), "half").unwrap();
        assert!(
            Store::at(&other).add_from(&Store::at(&one), &name).is_err()
                && !Store::at(&other).has(&name)
        );
    }

    #[test]
    fn bad_files_are_reported_and_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let pool = scratch.path().join("pool");
        let make = || Store {
            pool: Some(pool.clone()),
            ..Store::at(&scratch.path().join(DIRECTORY))
        };
        let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let name = make().add_compressed(&bytes).unwrap();
        let file = make().directory().join(&name);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        let mut other = GzEncoder::new(Vec::new(), Compression::default());
        other.write_all(b"another image").unwrap();
        let bad: [(&[u8], &str); 5] = [
            (&[], "cannot be unpacked"),
            (&whole[..whole.len() / 2], "cannot be unpacked"),
            (b"plain text", "cannot be unpacked"),
            (&flipped, "is damaged"),
            (&other.finish().unwrap(), "SHA-256"),
        ];
        for (contents, message) in bad {
            // In place, so that the pool's file is damaged too.
            fs::write(&file, contents).unwrap();
            let error = make().read(&name).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains(&name), "{error}");
            assert_eq!(make().add_compressed(&bytes).unwrap(), name);
            assert_eq!(make().read(&name).unwrap(), bytes, "it was replaced");
        }
        fs::remove_file(&file).unwrap();
        assert!(
            matches!(make().read(&name), Err(StoreError::Missing { .. })) && !make().has(&name)
        );
        fs::create_dir(&file).unwrap();
        assert!(matches!(
            make().read(&name),
            Err(StoreError::Damaged { .. })
        ));
        for name in [
            "",
            "..",
            "../secret.gz",
            "/etc/passwd",
            &name[1..],
            &format!("{}/x.gz", &name[..62]),
        ] {
            assert!(
                matches!(make().read(name), Err(StoreError::Name { .. })) && !make().has(name),
                "{name}"
            );
        }
    }
}
