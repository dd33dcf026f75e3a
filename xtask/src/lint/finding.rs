//! The rules, and their findings.
// SPDX-License-Identifier: MIT OR Apache-2.0

use clap::ValueEnum;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// Modules of a crate that use each other in a circle
    Circles,
    /// The largest crate's share of all lines of code, in percent
    Share,
    /// System registers named in strings, outside `sysreg`
    RegisterStrings,
    /// Shifts and masks of register values, outside `syndrome`
    RegisterShifts,
    /// Unsafe code outside the modules that the compiler allows it in
    UnsafePlaces,
    /// Visits to EL2 that begin elsewhere than where a core enters EL2: what a handler does would
    /// wait
    Visits,
    /// Promises of SPECIFICATION.md whose checks are not there, or do not run
    Promises,
    /// Words that words.md bans
    Words,
    /// Files whose first lines do not say what they are for, or under which license they are
    Headers,
    /// Texts made of Debug output, which changes with a variant's name
    DebugTexts,
}

impl Rule {
    /// The largest count that passes.
    pub const fn limit(self) -> f64 {
        match self {
            Self::Share => 25.0,
            Self::RegisterStrings => 10.0,
            // Of types of others, of texts in quotes, and of what decides whether a result is kept.
            Self::DebugTexts => 17.0,
            _ => 0.0,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value()
            .map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

/// One place that breaks a rule, or counts toward its limit.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Relative to the workspace.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl Finding {
    pub(super) fn new(
        file: &Path,
        line: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            file: file.to_owned(),
            line,
            what: what.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.file.display(),
            self.line,
            self.what,
            self.fix
        )
    }
}

/// The result of one rule.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rule.
    pub rule: Rule,
    /// The value that is compared with [`Rule::limit`]: the number of findings, or a percentage.
    pub count: f64,
    /// The places that count.
    pub findings: Vec<Finding>,
    /// The places that a comment in the source exempts; they do not count.
    pub exempt: Vec<Finding>,
}

impl Outcome {
    pub(super) fn of(rule: Rule) -> Self {
        Self {
            rule,
            count: 0.0,
            findings: Vec::new(),
            exempt: Vec::new(),
        }
    }
    /// Returns whether the count is within the rule's limit.
    pub fn passes(&self) -> bool {
        self.count <= self.rule.limit()
    }
}
