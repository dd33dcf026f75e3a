//! What is wrong in a file of an event table, with its place and the advice how to fix it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

/// Whether a table with a finding can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The table is invalid.
    Error,
    /// The table is valid, but probably not intended.
    Warning,
}

/// A place that contributes to a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its bytes in the file.
    pub span: Range<usize>,
    /// What it has to do with the finding.
    pub label: String,
}

/// A name that is unknown, and those that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The name in the file.
    pub name: String,
    /// What it can be; the closest one is worth a suggestion.
    pub known: Vec<String>,
}

/// Something that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it makes the table invalid.
    pub severity: Severity,
    /// The field as a path: `[EXAMPLE_EVENT].CounterMask`.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// The place of the fault.
    pub at: Mark,
    /// Another place that contributes to it.
    pub also: Option<Mark>,
    /// The name that is unknown, if that is the fault.
    pub unknown: Option<Unknown>,
    /// How to fix it; after a suggestion, if there is one.
    pub help: String,
}

impl Finding {
    /// Returns an error at a place.
    pub(crate) fn error(
        field: impl Into<String>,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            field: field.into(),
            message: message.into(),
            at: Mark {
                span,
                label: String::new(),
            },
            also: None,
            unknown: None,
            help: String::new(),
        }
    }

    /// Makes it a warning.
    pub(crate) fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Sets the text at its place.
    pub(crate) fn label(mut self, text: impl Into<String>) -> Self {
        self.at.label = text.into();
        self
    }

    /// Marks another place.
    pub(crate) fn also(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.also = Some(Mark {
            span,
            label: label.into(),
        });
        self
    }

    /// Sets the advice.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.help = text.into();
        self
    }

    /// Sets the unknown name, and the known ones.
    pub(crate) fn unknown<'a>(
        mut self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        self.unknown = Some(Unknown {
            name: name.to_owned(),
            known: known.into_iter().map(str::to_owned).collect(),
        });
        self
    }

    /// Returns the line of its place in the file's text, from 1.
    pub fn line(&self, text: &str) -> usize {
        let end = self.at.span.start.min(text.len());
        text.as_bytes()[..end]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1
    }
}
