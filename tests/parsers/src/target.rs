//! A parser of foreign bytes with its rules and its seeds.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Longer files are no seeds: they slow down the search.
pub const LONGEST_SEED: u64 = 32 << 10;

/// A parser of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// The package whose code it runs.
    pub package: &'static str,
    /// What holds for any input, apart from its end without a panic.
    pub rule: &'static str,
    /// What the parser reads.
    pub form: Form,
    /// Seeds in the checkout: files, or folders with the end of the names that are taken.
    pub files: &'static [Files],
    /// Seeds that a program makes.
    pub made: fn() -> Vec<Vec<u8>>,
    /// Parses an input and checks the rule. Panics if it is broken.
    pub check: fn(&[u8]) -> Outcome,
}

/// What a parser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any bytes.
    Bytes,
    /// Text. Words of the seeds are a dictionary.
    Text,
}

/// Files of the checkout.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// A path from the root of the checkout.
    pub folder: &'static str,
    /// The end of the names that are taken.
    pub end: &'static str,
}

/// The result of parsing an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The input was read.
    Accepted,
    /// It was refused with an error.
    Refused,
}

impl<T, E> From<&Result<T, E>> for Outcome {
    fn from(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Accepted,
            Err(_) => Self::Refused,
        }
    }
}

/// Returns the root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Target {
    /// Returns the seeds: first those of the checkout in the order of their names.
    ///
    /// # Errors
    ///
    /// Returns the error of a folder or a file that cannot be read.
    pub fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        let kept = Files {
            folder: "tests/parsers/seeds",
            end: self.name,
        };
        for files in self.files.iter().chain([&kept]) {
            collect(&root().join(files.folder), files.end, &mut paths)?;
        }
        paths.sort();
        let mut seeds = paths
            .iter()
            .map(fs::read)
            .collect::<io::Result<Vec<Vec<u8>>>>()?;
        seeds.extend((self.made)());
        Ok(seeds)
    }
}

/// Adds the files of a folder and of those in it whose names end so.
fn collect(folder: &Path, end: &str, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry?;
        let path = entry.path();
        if path.is_dir() {
            collect(&path, end, paths)?;
        } else if entry.file_name().to_string_lossy().ends_with(end)
            && entry.metadata()?.len() <= LONGEST_SEED
        {
            paths.push(path);
        }
    }
    Ok(())
}
