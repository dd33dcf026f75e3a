//! Errors and warnings about a file: position, field, cause and fix.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::{Diagnostic, LabeledSpan, NamedSource, Severity, SourceCode};
use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A configuration file: its name in messages, and its text.
#[derive(Clone, Debug)]
pub struct SourceFile(Arc<NamedSource<String>>);

impl SourceFile {
    /// Creates a file with this text. Its name is relative to the current directory if it is below that.
    pub fn new(path: &Path, text: String) -> Self {
        let name = display_path(path).display().to_string();
        Self(Arc::new(NamedSource::new(name, text).with_language("toml")))
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        self.0.inner()
    }
}

/// Returns the shortest form of `path`: without `.` and `..`, and relative to the current directory if it is below
/// that.
pub fn display_path(path: &Path) -> PathBuf {
    let Ok(here) = std::env::current_dir() else { return path.to_path_buf() };
    let mut plain = PathBuf::new();
    for component in here.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain.strip_prefix(&here).map(Path::to_path_buf).unwrap_or(plain)
}

/// One error or warning.
#[derive(Clone, Debug)]
pub struct Problem {
    severity: Severity,
    file: SourceFile,
    field: String,
    message: String,
    help: Option<String>,
    /// The first label marks the problem; the others mark what it conflicts with.
    labels: Vec<LabeledSpan>,
}

impl Problem {
    /// Creates an error: the system cannot be built before it is fixed.
    pub fn error(file: &SourceFile, field: impl Into<String>, span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.clone(),
            field: field.into(),
            message: message.into(),
            help: None,
            labels: vec![LabeledSpan::new_primary_with_span(None, span)],
        }
    }

    /// Creates a warning: valid, but probably not intended.
    pub fn warning(
        file: &SourceFile,
        field: impl Into<String>,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(file, field, span, message) }
    }

    /// Sets the text at the marked position.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        if let Some(first) = self.labels.first_mut() {
            first.set_label(Some(text.into()));
        }
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Narrows the position within the field.
    #[must_use]
    pub fn at(mut self, span: Range<usize>) -> Self {
        if let Some(first) = self.labels.first_mut() {
            *first = LabeledSpan::new_primary_with_span(first.label().map(str::to_owned), span);
        }
        self
    }

    /// Marks another position in the same file that contributes to the problem.
    #[must_use]
    pub fn also(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push(LabeledSpan::new_with_span(Some(text.into()), span));
        self
    }

    /// Sets the advice on how to fix it.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        self.file.name()
    }

    /// Returns the field as a path from the file's root: `vm[victim].region[ram].size`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether it prevents the system from being built.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns line and column, both starting at 1.
    pub fn line_and_column(&self) -> (usize, usize) {
        let text = self.file.text();
        let end = self.labels.first().map_or(0, LabeledSpan::offset).min(text.len());
        let before = text.get(..end).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        (line, column)
    }

    /// Returns the sort key: file, then position.
    fn position(&self) -> (&str, usize) {
        (self.file.name(), self.labels.first().map_or(0, LabeledSpan::offset))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.field))
    }
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&*self.file.0)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// All problems of a configuration and the files it names; at least one is an error.
#[derive(Clone, Debug)]
pub struct Errors {
    file: String,
    problems: Vec<Problem>,
}

impl Errors {
    /// Creates the report on the configuration called `file`.
    pub fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        sort(&mut problems);
        // Stable: within each kind the order stays.
        problems.sort_by_key(|problem| !problem.is_error());
        Self { file: file.to_owned(), problems }
    }

    /// Returns the errors, then the warnings, each by file and position.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// Sorts problems in the order in which a reader meets them.
pub fn sort(problems: &mut [Problem]) {
    problems.sort_by(|a, b| a.position().cmp(&b.position()));
}

/// Formats `1 error`, `2 errors`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.problems.iter().filter(|problem| problem.is_error()).count();
        write!(f, "{}: {}", self.file, count(errors, "error"))?;
        match self.problems.len() - errors {
            0 => Ok(()),
            warnings => write!(f, ", {}", count(warnings, "warning")),
        }
    }
}

impl std::error::Error for Errors {}

impl Diagnostic for Errors {
    fn severity(&self) -> Option<Severity> {
        Some(Severity::Error)
    }
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.problems.iter().map(|problem| problem as &dyn Diagnostic)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_before_warnings() {
        let file = SourceFile::new(Path::new("some.toml"), "a = 1\nb = 2\nc = 3\n".to_owned());
        let problems = vec![
            Problem::warning(&file, "a", 0..1, "first in the file"),
            Problem::error(&file, "c", 12..13, "last in the file"),
            Problem::error(&file, "b", 6..7, "second in the file"),
        ];
        let errors = Errors::new("some.toml", problems);
        let fields: Vec<&str> = errors.problems().iter().map(Problem::field).collect();
        assert_eq!(fields, ["b", "c", "a"]);
        assert_eq!(errors.to_string(), "some.toml: 2 errors, 1 warning");
    }
}
