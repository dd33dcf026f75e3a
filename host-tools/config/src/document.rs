//! Reads TOML files with the position of every key and value, and reports all errors of a file.
//!
//! [`load`] reads a file, and [`read`] a text. [`Table`] remembers which keys were read, so that
//! the remaining ones are unknown fields. [`Field`] converts a value to a type, or records why that
//! is impossible. Nothing stops at the first problem: a reader returns `None` where it has recorded
//! one, and continues with the other fields.
//!
//! ```
//! use cloison_config::document::{self, Field};
//! use cloison_config::problem::SourceFile;
//! use std::path::Path;
//!
//! let file = SourceFile::new(Path::new("job.toml"), "nmae = 'a'\nruns = 0".to_owned());
//! let errors = document::read(&file, |root| {
//!     let name = root.required_value("name", "name it: name = \"a\"", Field::text);
//!     let runs = root.value("runs", |field| field.integer_in(1..=9, "1 to 9 runs"));
//!     root.finish_ref();
//!     Some((name?.value.to_owned(), runs.or(1)?))
//! });
//! let errors = errors.expect_err("three mistakes");
//! assert_eq!(errors.to_string(), "job.toml: 3 errors");
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{self, ReadError};
use crate::foreign::{self, Foreign};
use crate::problem::{self, Errors, Problem, SourceFile};
use crate::quantity::{self, Amount, Malformed};
use cloison_formats::units::Nanos;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use toml::Value;
use toml::de::{DeArray, DeTable, DeValue};

/// How many problems of a file are kept: more than are shown, so that the first ones by position
/// are among them.
pub(crate) const MOST_KEPT: usize = 20 * problem::MOST_SHOWN;

/// Reads the file at `path` with `reader`; `help` says which file to name if it cannot be read.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load<T>(
    path: &Path,
    help: &str,
    reader: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, Errors> {
    read(&open(path, help)?, reader)
}

/// Returns the file at `path` with its text; `help` says which file to name if it cannot be read.
///
/// # Errors
///
/// If the file cannot be read.
pub fn open(path: &Path, help: &str) -> Result<SourceFile, Errors> {
    match files::read_text(path, files::CONFIGURATION) {
        Ok(text) => Ok(SourceFile::new(path, text)),
        Err(error) => {
            let file = SourceFile::new(path, String::new());
            let bytes = matches!(error, ReadError::NotText { .. })
                .then(|| files::read(path, files::CONFIGURATION).ok())
                .flatten();
            let problem = match bytes.and_then(|bytes| Foreign::of(&bytes)) {
                Some(kind) => of_other_hypervisor(&file, kind),
                None => {
                    let message = format!("cannot read {}: {error}", file.name());
                    Problem::error(&file, "file", 0..0, message).help(help)
                }
            };
            Err(Errors::new(file.name(), vec![problem]))
        }
    }
}

/// Returns the problem of a file that another hypervisor is configured by.
fn of_other_hypervisor(file: &SourceFile, kind: Foreign) -> Problem {
    let message = format!("{} is {}, not a TOML file", file.name(), kind.name());
    let help = "`cloison import FILE -o NEW.toml` makes a configuration of it";
    Problem::error(file, "file", 0..0, message).help(help)
}

/// Reads a file's text with `reader`, which returns nothing if it has recorded an error.
///
/// # Errors
///
/// Returns all errors of the text with their positions. A problem that was recorded twice, because
/// its field was read for several others, is one.
pub fn read<T>(
    file: &SourceFile,
    reader: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, Errors> {
    let context = Context::new(file.clone());
    let document = context.parse();
    let result = document
        .as_ref()
        .and_then(|document| reader(&context.root(document)));
    match result {
        Some(result) if !context.has_errors() => Ok(result),
        _ => {
            drop(document);
            let mut problems = context.into_problems();
            let mut seen = HashSet::new();
            problems.retain(|it| {
                let (field, message) = (it.field().to_owned(), it.message().to_owned());
                seen.insert((field, it.line_and_column(), message))
            });
            Err(Errors::new(file.name(), problems))
        }
    }
}

/// A file being validated, and the problems found so far.
pub struct Context {
    /// The file and its text.
    pub file: SourceFile,
    problems: RefCell<Vec<Problem>>,
}

/// How many errors of syntax are reported.
const MOST_SYNTAX_ERRORS: usize = 3;

impl Context {
    /// Creates a context without problems.
    pub fn new(file: SourceFile) -> Self {
        Self {
            file,
            problems: RefCell::new(Vec::new()),
        }
    }

    /// Records a problem.
    pub fn push(&self, problem: Problem) {
        problem::push_limited(&mut self.problems.borrow_mut(), problem, MOST_KEPT);
    }

    /// Returns whether further problems are only counted.
    fn is_full(&self) -> bool {
        self.problems.borrow().len() >= MOST_KEPT
    }

    /// Returns whether an error was recorded.
    pub fn has_errors(&self) -> bool {
        self.problems.borrow().iter().any(Problem::is_error)
    }

    /// Returns the problems.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// Parses the file. After a syntax error there is no document, because any interpretation would
    /// be a guess.
    pub fn parse(&self) -> Option<toml::Spanned<DeTable<'_>>> {
        let (document, errors) = DeTable::parse_recoverable(self.file.text());
        if !errors.is_empty() {
            let text = self.file.text();
            if let Some(kind) = Foreign::of(text.as_bytes()) {
                self.push(of_other_hypervisor(&self.file, kind));
                return None;
            }
            if let Some(what) = foreign::other_format(text) {
                let message = format!("this is {what}, not TOML");
                let help = "Cloison's files are TOML";
                self.push(Problem::error(&self.file, "syntax", 0..0, message).help(help));
                return None;
            }
        }
        // Later ones are often consequences of the first.
        for error in errors.iter().take(MOST_SYNTAX_ERRORS) {
            let span = error.span().unwrap_or(0..0);
            self.push(
                Problem::error(
                    &self.file,
                    "syntax",
                    span,
                    format!("not TOML: {}", error.message().trim_end()),
                )
                .label("here")
                .help("see https://toml.io for the syntax of TOML"),
            );
        }
        errors.is_empty().then_some(document)
    }

    /// Returns the document's root table.
    pub fn root<'a>(&'a self, document: &'a toml::Spanned<DeTable<'a>>) -> Table<'a> {
        Table::new(self, document.get_ref(), 0..0, String::new())
    }
}

/// Returns all results, or `None` if one is missing. Unlike `collect`, it computes every one, so
/// that an error in one does not hide those in the others.
pub fn all<T>(results: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let results: Vec<Option<T>> = results.collect();
    results.into_iter().collect()
}

/// Returns the closest of `known` to `name`, if it is close enough to be a likely typo.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Formats `did you mean `x`?` with the closest name, and a list of all names.
pub fn suggest<'a>(name: &str, what: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let all = if known.is_empty() {
        format!("there are no {what}")
    } else {
        format!("{what}: {}", known.join(", "))
    };
    match closest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? {all}"),
        None => all,
    }
}

/// A value with the field that has it.
#[derive(Clone)]
pub struct Given<'a, T> {
    /// The field, for errors about the value.
    pub field: Field<'a>,
    /// Its value.
    pub value: T,
}

/// An optional field of a table: absent, wrong, or given.
#[derive(Clone)]
pub enum Presence<'a, T> {
    /// The table does not have the field.
    Absent,
    /// The field has no value of its type, which has been recorded.
    Wrong,
    /// The field and its value.
    Given(Given<'a, T>),
}

impl<'a, T> Presence<'a, T> {
    /// Returns the value, or `default` where it is absent; `None` if it is wrong.
    pub fn or(self, default: T) -> Option<T> {
        self.optional().map(|value| value.unwrap_or(default))
    }

    /// Returns the value if there is one; an outer `None` if it is wrong.
    pub fn optional(self) -> Option<Option<T>> {
        match self {
            Self::Absent => Some(None),
            Self::Wrong => None,
            Self::Given(given) => Some(Some(given.value)),
        }
    }

    /// Converts the value; `convert` returns nothing if it has recorded an error.
    pub fn and_then<U>(self, convert: impl FnOnce(&Field<'a>, T) -> Option<U>) -> Presence<'a, U> {
        match self {
            Self::Absent => Presence::Absent,
            Self::Wrong => Presence::Wrong,
            Self::Given(Given { field, value }) => match convert(&field, value) {
                Some(value) => Presence::Given(Given { field, value }),
                None => Presence::Wrong,
            },
        }
    }

    /// Returns the field and its value, if it is given and right.
    pub fn given(&self) -> Option<&Given<'a, T>> {
        match self {
            Self::Given(given) => Some(given),
            _ => None,
        }
    }
}

/// A table of the document.
pub struct Table<'a> {
    context: &'a Context,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    path: String,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    fn new(context: &'a Context, table: &'a DeTable<'a>, span: Range<usize>, path: String) -> Self {
        Self {
            context,
            table,
            span,
            path,
            asked: RefCell::new(Vec::new()),
        }
    }

    /// Returns its position: the header, or the braces and everything between them.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns its path from the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Identifies the table in messages by `name` instead of its index: `vm[0]` becomes
    /// `vm[victim]`.
    pub fn rename(&mut self, name: &str) {
        if let Some(bracket) = self.path.rfind('[') {
            self.path.truncate(bracket);
            self.path.push_str(&format!("[{name}]"));
        }
    }

    /// Returns the path of a field of this table, whose name is in quotes if it needs them.
    pub fn path_of(&self, key: &str) -> String {
        let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let quote = if key.chars().all(is_bare) { "" } else { "\"" };
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{quote}{key}{quote}", self.path)
    }

    /// Returns an optional field.
    pub fn optional(&self, key: &'static str) -> Option<Field<'a>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        let value = self.table.get(key)?;
        Some(Field {
            context: self.context,
            value: value.get_ref(),
            span: value.span(),
            path: self.path_of(key),
        })
    }

    /// Returns an optional truth value: false where it is absent, or wrong, which it records.
    pub fn flag(&self, key: &'static str) -> bool {
        let field = self.optional(key);
        field.and_then(|field| field.boolean()).unwrap_or(false)
    }

    /// Returns a required field, or records its absence.
    pub fn required(&self, key: &'static str, help: &str) -> Option<Field<'a>> {
        let field = self.optional(key);
        if field.is_none() {
            self.context.push(
                self.error(key, self.span(), format!("`{key}` is missing"))
                    .label(if self.path.is_empty() {
                        "in this file".to_owned()
                    } else {
                        format!("`{key}` belongs here")
                    })
                    .help(help),
            );
        }
        field
    }

    /// Reads an optional field.
    pub fn value<T>(
        &self,
        key: &'static str,
        convert: impl FnOnce(&Field<'a>) -> Option<T>,
    ) -> Presence<'a, T> {
        let Some(field) = self.optional(key) else {
            return Presence::Absent;
        };
        match convert(&field) {
            Some(value) => Presence::Given(Given { field, value }),
            None => Presence::Wrong,
        }
    }

    /// Reads a required field; its absence is recorded, and `help` says what to write.
    pub fn required_value<T>(
        &self,
        key: &'static str,
        help: &str,
        convert: impl FnOnce(&Field<'a>) -> Option<T>,
    ) -> Option<Given<'a, T>> {
        let field = self.required(key, help)?;
        let value = convert(&field)?;
        Some(Given { field, value })
    }

    /// Returns all fields in the order of the file, each with its key and the key's position: for
    /// tables whose keys the user chooses.
    pub fn entries(&self) -> Vec<(&'a str, Range<usize>, Field<'a>)> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                let (span, path) = (value.span(), self.path_of(name));
                (
                    name,
                    key.span(),
                    Field {
                        context: self.context,
                        value: value.get_ref(),
                        span,
                        path,
                    },
                )
            })
            .collect();
        all.sort_by_key(|(_, span, _)| span.start);
        all
    }

    /// Returns an optional table.
    pub fn table(&self, key: &'static str) -> Option<Table<'a>> {
        self.optional(key)?.table()
    }

    /// Returns the tables of an array of tables, or none if it is absent.
    pub fn tables(&self, key: &'static str) -> Vec<Table<'a>> {
        let Some(field) = self.optional(key) else {
            return Vec::new();
        };
        if let DeValue::Table(_) = field.value {
            self.context.push(
                self.error(
                    key,
                    field.span.clone(),
                    format!("`{key}` is one table, but there may be several"),
                )
                .label("a single table")
                .help(format!(
                    "write the header with two brackets: [[{}]]",
                    without_indices(&field.path)
                )),
            );
            return Vec::new();
        }
        let Some(elements) = field.elements() else {
            return Vec::new();
        };
        elements.iter().filter_map(Field::table).collect()
    }

    /// Returns an error at `span` in the field `key` of this table.
    pub fn error(&self, key: &str, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem::error(&self.context.file, self.path_of(key), span, message)
    }

    /// Records a problem.
    pub fn push(&self, problem: Problem) {
        self.context.push(problem);
    }

    /// Returns the file that contains the table.
    pub fn file(&self) -> &'a SourceFile {
        &self.context.file
    }

    /// Records every key that was not read as an unknown field.
    pub fn finish(self) {
        self.finish_ref();
    }

    /// Like [`Table::finish`], if the table's position is still needed.
    pub fn finish_ref(&self) {
        let asked = self.asked.borrow();
        let is_unknown =
            |key: &&toml::Spanned<_>| !asked.contains(&AsRef::<str>::as_ref(key.get_ref()));
        let mut unknown: Vec<_> = self.table.keys().filter(is_unknown).collect();
        // In the order of the file, so that the first ones are recorded if there are too many.
        unknown.sort_by_key(|key| key.span().start);
        for key in unknown {
            let name: &str = key.get_ref();
            let problem = self
                .error(name, key.span(), format!("unknown field `{name}`"))
                .label("unknown field");
            // Advice takes time, and nobody would see it.
            let advice =
                (!self.context.is_full()).then(|| suggest(name, "fields", asked.iter().copied()));
            self.context
                .push(advice.into_iter().fold(problem, Problem::help));
        }
    }
}

fn without_indices(path: &str) -> String {
    let mut depth = 0;
    path.chars()
        .filter(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => return depth == 0,
            }
            false
        })
        .collect()
}

/// A value of the document.
#[derive(Clone)]
pub struct Field<'a> {
    context: &'a Context,
    value: &'a DeValue<'a>,
    span: Range<usize>,
    path: String,
}

impl<'a> Field<'a> {
    /// Returns its position.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns its name: the last part of its path.
    pub fn name(&self) -> &str {
        let (path, end) = match self.path.strip_suffix('"') {
            Some(path) => (path, '"'),
            None => (&*self.path, '.'),
        };
        path.rsplit(end).next().unwrap_or(path)
    }

    /// Returns an error in this field.
    pub fn error(&self, message: impl Into<String>) -> Problem {
        Problem::error(&self.context.file, &self.path, self.span(), message)
    }

    /// Returns a warning about this field.
    pub fn warning(&self, message: impl Into<String>) -> Problem {
        Problem::warning(&self.context.file, &self.path, self.span(), message)
    }

    /// Records a problem.
    pub fn push(&self, problem: Problem) {
        self.context.push(problem);
    }

    fn wrong_type(&self, wanted: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.push(
            self.error(format!("`{}` is {found}", self.name()))
                .label(found)
                .help(format!("write {wanted}")),
        );
    }

    /// Reads a string.
    pub fn string(&self, wanted: &str) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type(wanted);
                None
            }
        }
    }

    /// Reads any text.
    pub fn text(&self) -> Option<&'a str> {
        self.string("a text")
    }

    /// Returns whether the value is a string, without recording anything.
    pub fn is_string(&self) -> bool {
        self.value.is_str()
    }

    /// Returns whether the value is an array, without recording anything.
    pub fn is_array(&self) -> bool {
        self.value.is_array()
    }

    /// Reads a boolean.
    pub fn boolean(&self) -> Option<bool> {
        let found = self.value.as_bool();
        if found.is_none() {
            self.wrong_type("true or false");
        }
        found
    }

    /// Reads a nonnegative integer.
    pub fn integer(&self, wanted: &str) -> Option<u64> {
        let Some(integer) = self.value.as_integer() else {
            self.wrong_type(wanted);
            return None;
        };
        let digits: String = integer.as_str().chars().filter(|c| *c != '_').collect();
        let parsed = u64::from_str_radix(digits.trim_start_matches('+'), integer.radix());
        if parsed.is_err() {
            let what = if digits.starts_with('-') {
                "negative"
            } else {
                "more than 2^64 - 1"
            };
            self.push(
                self.error(format!("`{digits}` is {what}"))
                    .label(what)
                    .help(format!("write {wanted}")),
            );
        }
        parsed.ok()
    }

    /// Reads a nonnegative number, with or without a fraction.
    pub fn number(&self, wanted: &str) -> Option<f64> {
        let DeValue::Float(float) = self.value else {
            return self.integer(wanted).map(|integer| integer as f64);
        };
        let number = float
            .as_str()
            .replace('_', "")
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            let message = format!("`{}` is not a number from 0 up", float.as_str());
            self.push(
                self.error(message)
                    .label("out of range")
                    .help(format!("write {wanted}")),
            );
        }
        number
    }

    /// Reads an integer that is at most `most`.
    pub fn integer_up_to(&self, most: u64, wanted: &str) -> Option<u64> {
        self.integer_in(0..=most, wanted)
    }

    /// Reads an integer in a range.
    pub fn integer_in(&self, range: RangeInclusive<u64>, wanted: &str) -> Option<u64> {
        let number = self.integer(wanted)?;
        let (message, label) = if number < *range.start() {
            (
                format!("{number} is less than {}", range.start()),
                "too small",
            )
        } else if number > *range.end() {
            (
                format!("{number} is more than {}", range.end()),
                "too large",
            )
        } else {
            return Some(number);
        };
        self.push(
            self.error(message)
                .label(label)
                .help(format!("write {wanted}")),
        );
        None
    }

    /// Reads a value of any type, for another file.
    pub fn any(&self) -> Option<Value> {
        match self.value {
            DeValue::String(text) => Some(Value::String(text.to_string())),
            DeValue::Integer(integer) => {
                let digits = integer.as_str().replace('_', "");
                let number = i64::from_str_radix(&digits, integer.radix()).ok();
                if number.is_none() {
                    let error = self.error(format!("`{digits}` is not a number of 64 bits"));
                    self.push(error.label("out of range").help("write a smaller number"));
                }
                number.map(Value::Integer)
            }
            DeValue::Float(float) => {
                let number = float.as_str().replace('_', "").parse();
                number.ok().map(Value::Float)
            }
            DeValue::Boolean(boolean) => Some(Value::Boolean(*boolean)),
            DeValue::Datetime(datetime) => Some(Value::Datetime(*datetime)),
            DeValue::Array(_) => self.each(Self::any).map(Value::Array),
            DeValue::Table(_) => {
                let entries = self.table()?.entries().into_iter();
                let values =
                    all(entries.map(|(key, _, field)| Some((key.to_owned(), field.any()?))));
                Some(Value::Table(values?.into_iter().collect()))
            }
        }
    }

    /// Reads the elements of an array.
    pub fn elements(&self) -> Option<Vec<Field<'a>>> {
        let DeValue::Array(array) = self.value else {
            self.wrong_type("an array: [ ... ]");
            return None;
        };
        Some(self.fields_of(array))
    }

    /// Reads every element of an array.
    pub fn each<T>(&self, read: impl FnMut(&Field<'a>) -> Option<T>) -> Option<Vec<T>> {
        all(self.elements()?.iter().map(read))
    }

    fn fields_of(&self, array: &'a DeArray<'a>) -> Vec<Field<'a>> {
        let element = |(index, value): (usize, &'a toml::Spanned<DeValue<'a>>)| Field {
            context: self.context,
            value: value.get_ref(),
            span: value.span(),
            path: format!("{}[{index}]", self.path),
        };
        array.iter().enumerate().map(element).collect()
    }

    /// Reads a table.
    pub fn table(&self) -> Option<Table<'a>> {
        let DeValue::Table(table) = self.value else {
            self.wrong_type("a table");
            return None;
        };
        Some(Table::new(
            self.context,
            table,
            self.span(),
            self.path.clone(),
        ))
    }

    /// Reads one of several words.
    pub fn one_of<T: Clone>(&self, what: &str, words: &[(&str, T)]) -> Option<T> {
        let names = || words.iter().map(|(name, _)| *name);
        let text = self.string(&format!("one of {}", quoted(names())))?;
        let found = words
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| value.clone());
        if found.is_none() {
            self.push(
                self.error(format!("`{text}` is not a {what}"))
                    .label("unknown")
                    .help(suggest(text, &format!("{what}s"), names())),
            );
        }
        found
    }

    /// Returns the position of a part of this string: exact unless the string has escapes, else the
    /// whole string.
    pub fn part(&self, at: Range<usize>) -> Range<usize> {
        let plain = self
            .value
            .as_str()
            .is_some_and(|text| text.len() + 2 == self.span.len());
        if plain {
            self.span.start + 1 + at.start..self.span.start + 1 + at.end
        } else {
            self.span()
        }
    }

    /// Records why a string is not a valid quantity.
    pub fn malformed(&self, malformed: Malformed) {
        let span = self.part(malformed.at);
        self.push(
            Problem::error(&self.context.file, &self.path, span, malformed.message)
                .label("here")
                .help(malformed.help),
        );
    }

    fn quantity<T>(&self, wanted: &str, parse: impl Fn(&str) -> Result<T, Malformed>) -> Option<T> {
        parse(self.string(wanted)?)
            .map_err(|malformed| self.malformed(malformed))
            .ok()
    }

    /// Reads a number of bytes: an integer, or a string like `64M`.
    pub fn size(&self) -> Option<u64> {
        match self.value {
            DeValue::Integer(_) => self.integer("a number of bytes"),
            _ => self.quantity("a size: \"64M\"", quantity::size),
        }
    }

    /// Reads a nonzero number of whole pages, given in bytes.
    pub fn pages(&self) -> Option<u32> {
        let bytes = self.size()?;
        let page = cloison_formats::addr::PAGE_SIZE;
        if bytes == 0 {
            self.push(
                self.error("the size is zero")
                    .label("zero")
                    .help("give it at least one page: \"4K\""),
            );
            return None;
        }
        if bytes / page > u64::from(u32::MAX) {
            self.push(
                self.error(format!(
                    "{bytes} bytes are {} pages, more than 2^32",
                    bytes / page
                ))
                .label("too large")
                .help("the whole IPA space of a VM has 512 GiB"),
            );
            return None;
        }
        if !bytes.is_multiple_of(page) {
            let (down, up) = (bytes / page * page, bytes.next_multiple_of(page));
            let near = if down == 0 {
                format!("{up}")
            } else {
                format!("{down} or {up}")
            };
            self.push(
                self.error(format!(
                    "{bytes} bytes are not whole pages: {bytes} = {} x {page} + {}",
                    bytes / page,
                    bytes % page
                ))
                .label("not a multiple of 4096")
                .help(format!("the nearest whole pages are {near} bytes")),
            );
            return None;
        }
        Some((bytes / page) as u32)
    }

    /// Reads a length of time.
    pub fn duration(&self) -> Option<Nanos> {
        self.quantity("a length of time: \"50 us\"", quantity::duration)
    }

    /// Reads events per period.
    pub fn budget(&self) -> Option<(Amount, Nanos)> {
        self.quantity(
            "events per period: \"20000 events / 1 ms\"",
            quantity::budget,
        )
    }

    /// Reads a number of events, or a rate.
    pub fn amount(&self) -> Option<Amount> {
        self.quantity(
            "a number of events, or a rate: \"20000 events\", \"200 MB/s\"",
            quantity::amount,
        )
    }

    /// Reads a set of numbers, each with its position: `"0-3,8"` or `[0, 1, 2, 3, 8]`.
    pub fn number_set(&self, what: &str) -> Option<Vec<(u64, Range<usize>)>> {
        if !self.is_array() {
            let set =
                self.quantity("ranges: \"0-3,8\"", |text| quantity::number_set(text, what))?;
            return Some(
                set.into_iter()
                    .map(|(number, at)| (number, self.part(at)))
                    .collect(),
            );
        }
        let elements = self.elements()?;
        let mut set: Vec<(u64, Range<usize>)> = Vec::new();
        for element in &elements {
            let number = element.integer(&format!("a {what}'s number"))?;
            if let Some((_, first)) = set.iter().find(|(other, _)| *other == number) {
                self.push(
                    element
                        .error(format!("{what} {number} is given twice"))
                        .label("again")
                        .also(first.clone(), "first here")
                        .help("name it once"),
                );
                return None;
            }
            set.push((number, element.span()));
        }
        if set.is_empty() {
            self.push(
                self.error(format!("no {what} is given"))
                    .label("empty")
                    .help(format!("give at least one {what}")),
            );
            return None;
        }
        Some(set)
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names
        .map(|name| format!("\"{name}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file_of_another_system_is_one_error_and_named() {
        let problems = |text: &str| {
            let context = Context::new(SourceFile::new(Path::new("file"), text.to_owned()));
            assert!(context.parse().is_none(), "{text}");
            context.into_problems()
        };
        for (text, named) in [
            (
                "/* a zone */\n/dts-v1/;\n/ { a = <1>; };\n",
                "a device tree",
            ),
            (
                "#include <config.h>\nstruct config config = {\n",
                "C source",
            ),
            ("{ \"arch\": \"arm64\" }\n", "JSON"),
            ("<vm>\n</vm>\n", "XML"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(format!("{:?}", found[0]).contains(named), "{text}");
        }
        let many = "a = \n".repeat(100);
        assert_eq!(problems(&many).len(), MOST_SYNTAX_ERRORS);
    }
}
