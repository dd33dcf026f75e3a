//! The files of an import, and places in them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::files::{self, Kind};
use cloison_config::problem::{Problem, SourceFile};
use cloison_config::{Errors, Foreign};
use std::path::{Path, PathBuf};

/// What other hypervisors are configured by: text of people, and compiled device trees.
const FOREIGN: Kind = Kind {
    what: "a configuration",
    most: 4 << 20,
};
/// How many files one import reads, with all that they include.
const MOST_FILES: usize = 256;

/// A position in one of the files: byte offsets in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index of the file.
    pub file: u16,
    /// Where it starts.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
}

impl Place {
    /// Returns the place from the start of this one to the end of `other`, if both are in one file.
    pub fn to(self, other: Self) -> Self {
        let joins = self.file == other.file && self.start <= other.end;
        Self {
            end: if joins { other.end } else { self.end },
            ..self
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
struct Read {
    path: PathBuf,
    source: SourceFile,
    /// Whether the text was made from a binary file, whose lines nobody knows.
    is_compiled: bool,
}

/// All files that were read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Read>,
}

impl Sources {
    /// Reads a file that the user named, and says what it is.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read, or is nothing that can be imported.
    pub fn open(&mut self, path: &Path) -> Result<(u16, Foreign), Failure> {
        let shown = cloison_config::problem::display_path(path);
        let unusable = |message: String, help: &str| {
            let file = SourceFile::new(path, String::new());
            Box::new(Problem::error(&file, "file", 0..0, message).help(help))
        };
        let bytes = files::read(path, FOREIGN).map_err(|error| {
            let message = format!("cannot read {}: {error}", shown.display());
            unusable(message, "name a configuration of another hypervisor")
        })?;
        let Some(kind) = Foreign::of(&bytes).or_else(|| included(path, &bytes)) else {
            let (message, help) = Foreign::unknown(&bytes, &shown);
            return Err(unusable(message, &help));
        };
        let text = if kind == Foreign::XenCompiled {
            crate::compiled::decompile(&bytes).map_err(|error| {
                let message = format!("{} is not a whole device tree: {error}", shown.display());
                unusable(message, "compile it again, or give its source")
            })?
        } else {
            String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                let message = format!(
                    "cannot read {}: byte {at} is not UTF-8 text",
                    shown.display()
                );
                unusable(message, "save it as UTF-8")
            })?
        };
        let file = self
            .add(path, text, kind == Foreign::XenCompiled)
            .ok_or_else(|| {
                unusable(
                    format!("more than {MOST_FILES} files"),
                    "import fewer at once",
                )
            })?;
        Ok((file, kind))
    }

    /// Adds a file's text; nothing if there are too many files.
    pub fn add(&mut self, path: &Path, text: String, is_compiled: bool) -> Option<u16> {
        if self.files.len() >= MOST_FILES {
            return None;
        }
        self.files.push(Read {
            path: path.to_path_buf(),
            source: SourceFile::new(path, text),
            is_compiled,
        });
        u16::try_from(self.files.len() - 1).ok()
    }

    /// Returns the path of a file.
    pub fn path(&self, file: u16) -> &Path {
        self.files
            .get(usize::from(file))
            .map_or(Path::new(""), |read| &read.path)
    }

    /// Returns the text of a file.
    pub fn text(&self, file: u16) -> &str {
        self.files
            .get(usize::from(file))
            .map_or("", |read| read.source.text())
    }

    /// Returns the text at a place.
    pub fn at(&self, place: Place) -> &str {
        let range = place.start as usize..place.end as usize;
        self.text(place.file).get(range).unwrap_or_default()
    }

    /// Returns `FILE:LINE`, or `FILE` if the file has no lines.
    pub fn show(&self, place: Place) -> String {
        let Some(read) = self.files.get(usize::from(place.file)) else {
            return String::new();
        };
        if read.is_compiled {
            return read.source.name().to_owned();
        }
        format!("{}:{}", read.source.name(), self.line(place))
    }

    /// Returns the same without the file's directory.
    pub fn brief(&self, place: Place) -> String {
        let shown = self.show(place);
        shown.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Returns the line of a place, from 1.
    pub fn line(&self, place: Place) -> usize {
        let text = self.text(place.file).as_bytes();
        let before = &text[..text.len().min(place.start as usize)];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Returns the name of a place's file, as messages have it.
    pub fn name(&self, place: Place) -> &str {
        self.files
            .get(usize::from(place.file))
            .map_or("", |read| read.source.name())
    }

    /// Creates an error about a place. `field` names what is there.
    pub fn error(&self, place: Place, field: &str, message: impl Into<String>) -> Failure {
        let empty = SourceFile::new(Path::new(""), String::new());
        let file = self
            .files
            .get(usize::from(place.file))
            .map_or(&empty, |read| &read.source);
        let length = file.text().len();
        let [start, end] = [place.start, place.end].map(|at| (at as usize).min(length));
        Box::new(Problem::error(file, field, start..end.max(start), message).label("here"))
    }
}

/// Returns what a file is that only includes another one beside it.
fn included(path: &Path, bytes: &[u8]) -> Option<Foreign> {
    let text = str::from_utf8(bytes).ok()?;
    let names = text.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("#include")?.trim();
        name.strip_prefix('"')?.strip_suffix('"')
    });
    names.into_iter().find_map(|name| {
        let path = path.parent()?.join(name);
        Foreign::of(&files::read(&path, FOREIGN).ok()?)
    })
}

/// Why an import stopped: the first mistake of a file.
pub type Failure = Box<Problem>;

/// Returns the report on a file whose import stopped.
pub fn errors(problem: Problem) -> Errors {
    let name = problem.file().to_owned();
    Errors::new(&name, vec![problem])
}
