//! The kinds of TOML files, each told by a table that no other kind has, so that a file in the
//! place of another kind is named as what it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Table;
use std::ops::Range;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// VMs, pools and colors.
    System,
    /// Variants of a system.
    Experiment,
    /// Workloads whose events are counted in sub-experiments.
    Campaign,
    /// Published measurements of boards.
    Measurements,
    /// Benchmarks that validate events.
    Benchmarks,
    /// The importance of pages.
    Profile,
    /// A board.
    Board,
    /// Where a guest's devices are.
    Map,
    /// The caches and timing of a board.
    Model,
}

impl FileKind {
    /// All kinds. A campaign may have variants too, so it comes before experiments.
    const ALL: [Self; 9] = [
        Self::System,
        Self::Campaign,
        Self::Experiment,
        Self::Measurements,
        Self::Benchmarks,
        Self::Profile,
        Self::Board,
        Self::Map,
        Self::Model,
    ];

    /// Returns the table by which a file of this kind is told.
    const fn table(self) -> &'static str {
        match self {
            Self::System => "vm",
            Self::Experiment => "variant",
            Self::Campaign => "workload",
            Self::Measurements => "point",
            Self::Benchmarks => "benchmark",
            Self::Profile => "region",
            Self::Board => "gic",
            Self::Map => "uart",
            Self::Model => "l2",
        }
    }

    /// Returns its name, with an article.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "a system",
            Self::Experiment => "an experiment",
            Self::Campaign => "a campaign",
            Self::Measurements => "a file of measurements",
            Self::Benchmarks => "a file of benchmarks for events",
            Self::Profile => "a page profile",
            Self::Board => "a board",
            Self::Map => "a guest map",
            Self::Model => "a board model",
        }
    }

    /// Returns what to do with such a file.
    const fn use_it(self) -> &'static str {
        match self {
            Self::System => "use `cloison run FILE`, or `check`, `image` or `bbprof`",
            Self::Experiment => "use `cloison experiment FILE`",
            Self::Campaign => "use `cloison campaign FILE`",
            Self::Measurements => "use `cloison model validate --points FILE`",
            Self::Benchmarks => "use `cloison events validate`",
            Self::Profile => "name it in a system: [vm.profile] with file = \"FILE\"",
            Self::Board => "use it with `--board FILE`, or name it in a system",
            Self::Map => "name it in a VM: map = \"FILE\"",
            Self::Model => "use it with `--model FILE`, or name it in an experiment",
        }
    }

    /// Returns the kind of a document, with its field that says so.
    fn told_by<'a>(root: &Table<'a>) -> Option<(Self, &'a str, Range<usize>)> {
        let entries = root.entries();
        Self::ALL.into_iter().find_map(|kind| {
            let (key, span, _) = entries.iter().find(|(key, ..)| *key == kind.table())?;
            Some((kind, *key, span.clone()))
        })
    }

    /// Returns the kind of a document, if it is one of these.
    pub fn of(root: &Table<'_>) -> Option<Self> {
        Self::told_by(root).map(|(kind, ..)| kind)
    }

    /// Checks that a document may be of this kind. If it is of another one, that is recorded as an
    /// error, and its fields need not be read.
    pub fn fits(self, root: &Table<'_>) -> Option<()> {
        let Some((kind, key, span)) = Self::told_by(root).filter(|(kind, ..)| *kind != self) else {
            return Some(());
        };
        let message = format!("this is {}, not {}", kind.name(), self.name());
        let label = format!("{} has this", kind.name());
        let error = root.error(key, span, message).label(label);
        root.push(error.help(kind.use_it()));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::problem::SourceFile;
    use std::path::Path;

    fn read(kind: FileKind, text: &str) -> Result<(), Vec<String>> {
        let file = SourceFile::new(Path::new("file.toml"), text.to_owned());
        document::read(&file, |root| kind.fits(root)).map_err(|errors| {
            let problems = errors.problems().iter();
            problems
                .map(|problem| problem.message().to_owned())
                .collect()
        })
    }

    #[test]
    fn a_file_of_another_kind_is_named_as_what_it_is() {
        for kind in FileKind::ALL {
            let text = format!("name = 'x'\n[[{}]]\n", kind.table());
            for wanted in FileKind::ALL {
                let expected = if wanted == kind {
                    Ok(())
                } else {
                    Err(vec![format!(
                        "this is {}, not {}",
                        kind.name(),
                        wanted.name()
                    )])
                };
                assert_eq!(read(wanted, &text), expected);
            }
            assert_eq!(
                read(kind, "name = 'x'"),
                Ok(()),
                "its own errors say what it lacks"
            );
        }
    }

    #[test]
    fn a_file_with_the_tables_of_two_kinds_is_the_larger_one() {
        let text = "[[region]]\n[[variant]]\n[[workload]]\n";
        assert_eq!(read(FileKind::Campaign, text), Ok(()));
        let system = format!("{text}[[vm]]\n");
        assert_eq!(read(FileKind::System, &system), Ok(()));
    }
}
