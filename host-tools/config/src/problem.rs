//! Errors and warnings about a file: position, field, cause and fix.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::{Diagnostic, LabeledSpan, NamedSource, Severity, SourceCode};
use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A configuration file: its name in messages, and its text.
#[derive(Clone, Debug)]
pub struct SourceFile(Arc<Source>);

#[derive(Debug)]
struct Source {
    text: String,
    /// The part of the text that messages show.
    shown: NamedSource<String>,
    /// What they leave out: where in the text, in its order.
    cuts: Vec<Range<usize>>,
}

/// How many bytes of a line are shown: a message repeats a line up to three times, with its marks.
const LONGEST_LINE: usize = 200;
/// What is shown for the rest of a line.
const CUT: &str = "…";

/// Returns the text with the ends of long lines left out, and where they were.
fn cut(text: &str) -> (String, Vec<Range<usize>>) {
    let (mut shown, mut cuts, mut start) = (String::with_capacity(text.len()), vec![], 0);
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches('\n');
        if body.len() > LONGEST_LINE {
            let end = (0..=LONGEST_LINE)
                .rev()
                .find(|end| body.is_char_boundary(*end))
                .unwrap_or_default();
            shown.push_str(&body[..end]);
            shown.push_str(CUT);
            shown.push_str(&line[body.len()..]);
            cuts.push(start + end..start + body.len());
        } else {
            shown.push_str(line);
        }
        start += line.len();
    }
    (shown, cuts)
}

impl SourceFile {
    /// Creates a file with this text. Its name is relative to the current directory if it is below
    /// that.
    pub fn new(path: &Path, text: String) -> Self {
        let name = display_path(path).display().to_string();
        let (shown, cuts) = cut(&text);
        Self(Arc::new(Source {
            text,
            shown: NamedSource::new(name, shown).with_language("toml"),
            cuts,
        }))
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        self.0.shown.name()
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns where a position in the text is in what is shown; one that is left out is at the end
    /// of its line.
    fn shown_at(&self, position: usize) -> usize {
        let before = self.0.cuts.iter().take_while(|cut| cut.start < position);
        before.fold(position, |at, cut| {
            at - (cut.end.min(position) - cut.start) + CUT.len()
        })
    }
}

/// Returns the shortest form of `path`: without `.` and `..`, and relative to the current directory
/// if it is below that.
pub fn display_path(path: &Path) -> PathBuf {
    let Ok(here) = std::env::current_dir() else {
        return path.to_path_buf();
    };
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
    plain
        .strip_prefix(&here)
        .map(Path::to_path_buf)
        .unwrap_or(plain)
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
    /// How many problems it stands for: 1, or those that are not shown.
    weight: usize,
}

/// How many problems of a file are shown; the others are counted.
pub const MOST_SHOWN: usize = 50;

impl Problem {
    /// Creates an error: the system cannot be built before it is fixed.
    pub fn error(
        file: &SourceFile,
        field: impl Into<String>,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            file: file.clone(),
            field: field.into(),
            message: message.into(),
            help: None,
            labels: vec![LabeledSpan::new_primary_with_span(None, span)],
            weight: 1,
        }
    }

    /// Creates what stands for `weight` errors, or warnings, that are not shown.
    fn rest(file: &SourceFile, severity: Severity, weight: usize) -> Self {
        let what = if severity == Severity::Error {
            "more error"
        } else {
            "more warning"
        };
        let message = format!("{} not shown", count(weight, what));
        let help = Some("fix those above first".to_owned());
        Self {
            severity,
            file: file.clone(),
            field: String::new(),
            message,
            help,
            labels: vec![],
            weight,
        }
    }

    /// Creates a warning: valid, but probably not intended.
    pub fn warning(
        file: &SourceFile,
        field: impl Into<String>,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(file, field, span, message)
        }
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
        self.labels
            .push(LabeledSpan::new_with_span(Some(text.into()), span));
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

    /// Returns the advice on how to fix it.
    pub fn fix(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns whether it prevents the system from being built.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns line and column, both starting at 1.
    pub fn line_and_column(&self) -> (usize, usize) {
        let text = self.file.text();
        let end = self
            .labels
            .first()
            .map_or(0, LabeledSpan::offset)
            .min(text.len());
        let before = text.get(..end).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |last| last.chars().count())
            + 1;
        (line, column)
    }

    /// Returns the sort key: file, then position.
    fn position(&self) -> (&str, usize) {
        (
            self.file.name(),
            self.labels.first().map_or(0, LabeledSpan::offset),
        )
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
        (!self.field.is_empty()).then_some(Box::new(&self.field) as Box<dyn fmt::Display>)
    }
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.file.0.shown)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let shown = |label: &LabeledSpan| {
            let [start, end] =
                [label.offset(), label.offset() + label.len()].map(|at| self.file.shown_at(at));
            let text = label.label().map(str::to_owned);
            let make = if label.primary() {
                LabeledSpan::new_primary_with_span
            } else {
                LabeledSpan::new_with_span
            };
            make(text, start..end)
        };
        Some(Box::new(self.labels.iter().map(shown)))
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
    pub fn new(file: &str, problems: Vec<Problem>) -> Self {
        Self {
            file: file.to_owned(),
            problems: first(problems),
        }
    }

    /// Returns the errors, then the warnings, each by file and position.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns them in the same order, to be reported with those of another file.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// Returns the errors, then the warnings, each in the order of the file: the first [`MOST_SHOWN`],
/// and how many more there are.
pub fn first(mut problems: Vec<Problem>) -> Vec<Problem> {
    // What stands for others has no position.
    let rank = |problem: &Problem| (problem.labels.is_empty(), !problem.is_error());
    problems.sort_by(|a, b| (rank(a), a.position()).cmp(&(rank(b), b.position())));
    let shown = problems
        .iter()
        .take_while(|problem| !problem.labels.is_empty())
        .count()
        .min(MOST_SHOWN);
    let rest = problems.split_off(shown);
    let Some(file) = rest.first().map(|problem| problem.file.clone()) else {
        return problems;
    };
    for severity in [Severity::Error, Severity::Warning] {
        let of = rest
            .iter()
            .filter(|problem| problem.severity == severity)
            .map(|problem| problem.weight);
        problems.extend(
            Some(of.sum())
                .filter(|&sum| sum > 0)
                .map(|sum| Problem::rest(&file, severity, sum)),
        );
    }
    problems
}

/// Adds a problem to a list of at most `most`, and one for all further errors and one for all
/// further warnings.
pub(crate) fn push_limited(problems: &mut Vec<Problem>, problem: Problem, most: usize) {
    if problems.len() < most {
        problems.push(problem);
        return;
    }
    match problems[most..]
        .iter_mut()
        .find(|rest| rest.severity == problem.severity)
    {
        Some(rest) => rest.weight += problem.weight,
        None => problems.push(Problem::rest(
            &problem.file,
            problem.severity,
            problem.weight,
        )),
    }
}

/// Formats `1 error`, `2 errors`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |errors: bool| -> usize {
            self.problems
                .iter()
                .filter(|problem| problem.is_error() == errors)
                .map(|problem| problem.weight)
                .sum()
        };
        write!(f, "{}: {}", self.file, count(of(true), "error"))?;
        match of(false) {
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
        Some(Box::new(
            self.problems
                .iter()
                .map(|problem| problem as &dyn Diagnostic),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_positions_stay_right() {
        let long = format!(
            "a = 1\nb = \"{}ü{}\"\nc = 3\n",
            "x".repeat(LONGEST_LINE - 6),
            "y".repeat(9000)
        );
        let file = SourceFile::new(Path::new("some.toml"), long.clone());
        assert_eq!(file.text(), long);
        let at = long.find("c = 3").unwrap();
        let of = |span: Range<usize>| {
            let problem = Problem::error(&file, "b", span, "wrong").also(at..at + 1, "other");
            let labels: Vec<LabeledSpan> = problem.labels().unwrap().collect();
            let shown = file.0.shown.inner();
            let text = |label: &LabeledSpan| {
                shown[label.offset()..label.offset() + label.len()].to_owned()
            };
            (
                text(&labels[0]),
                text(&labels[1]),
                problem.line_and_column(),
            )
        };
        assert!(file.0.shown.inner().len() < LONGEST_LINE + 30);
        assert_eq!(of(6..7), ("b".into(), "c".into(), (2, 1)));
        let (value, other, _) = of(10..at - 1);
        assert!(
            value.starts_with("\"xxx") && value.ends_with(CUT) && other == "c",
            "{value}"
        );
        // Both ends are left out.
        let (value, other, (line, column)) = of(at - 10..at - 5);
        assert_eq!((value.as_str(), other.as_str(), line), ("", "c", 2));
        assert!(column > 9000);
    }

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

    #[test]
    fn only_the_first_problems_are_shown_and_the_others_counted() {
        let file = SourceFile::new(Path::new("a.toml"), "x".repeat(10_000));
        let error = |at: usize| Problem::error(&file, "x", at..at + 1, format!("error at {at}"));
        let mut kept = Vec::new();
        for at in 0..3000 {
            push_limited(&mut kept, error(at), 100);
            if at % 3 == 0 {
                push_limited(
                    &mut kept,
                    Problem::warning(&file, "x", at..at, "a warning"),
                    100,
                );
            }
        }
        assert_eq!(kept.len(), 102);
        let errors = Errors::new("a.toml", kept);
        assert_eq!(errors.to_string(), "a.toml: 3000 errors, 1000 warnings");
        let messages: Vec<&str> = errors.problems().iter().map(Problem::message).collect();
        assert_eq!(messages.len(), MOST_SHOWN + 2);
        assert_eq!((messages[0], messages[1]), ("error at 0", "error at 1"));
        let shown = errors.problems()[..MOST_SHOWN]
            .iter()
            .filter(|problem| problem.is_error())
            .count();
        assert_eq!(
            messages[MOST_SHOWN],
            format!("{} more errors not shown", 3000 - shown)
        );
        assert_eq!(
            messages[MOST_SHOWN + 1],
            format!("{} more warnings not shown", 1000 - (MOST_SHOWN - shown))
        );
        // One report may have been cut before it becomes part of another.
        let again = Errors::new("a.toml", errors.problems().to_vec());
        assert_eq!(again.to_string(), errors.to_string());
    }
}
