//! Code shared by all readers: the columns, the selection of rows, and the position of errors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::found::{Note, Request, Rows, Scaled, Selection};
use crate::data::{Builder, DataError, LARGEST_COUNT, Measurements, RowError, checked_count};
use cloison_metrics::log::COLUMNS;
use std::collections::BTreeSet;

/// Errors when reading a file as measurements.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot be read")]
    File(#[source] std::io::Error),
    /// The file starts correctly but cannot be read to its end, such as truncated gzip.
    #[error("ends early or is damaged")]
    Broken(#[source] std::io::Error),
    /// The file has no bytes.
    #[error("is empty")]
    Empty,
    /// The file is binary and has no known format.
    #[error("is neither text nor Parquet, nor compressed by gzip, xz or zstd")]
    NotText,
    /// Something else than a comma separates the columns.
    #[error("separates its columns by {0:?}")]
    Separator(char),
    /// A required column is missing.
    #[error("has no column `{missing}`; its columns are {found}")]
    NoColumn {
        /// Name of the column.
        missing: &'static str,
        /// The columns found.
        found: String,
    },
    /// The file is not valid CSV.
    #[error("line {line}: {what}")]
    Csv {
        /// Line number, starting at 1.
        line: u64,
        /// The mistake.
        what: String,
    },
    /// A field is invalid.
    #[error("{place} {number}, column `{column}`: {what}")]
    Field {
        /// `line` or `row`.
        place: &'static str,
        /// Number of the line or row, starting at 1.
        number: u64,
        /// Name of the column.
        column: &'static str,
        /// The mistake.
        what: String,
    },
    /// A field of a wide table is invalid.
    #[error("{place} {number}, column `{column}`: {what}")]
    WideField {
        /// `line` or `row`.
        place: &'static str,
        /// Number of the line or row, starting at 1.
        number: u64,
        /// Name of the column.
        column: String,
        /// The mistake.
        what: String,
    },
    /// A field of a JSON file is invalid.
    #[error("field `{field}`: {what}")]
    Json {
        /// The field, as a path.
        field: String,
        /// The mistake.
        what: String,
    },
    /// Two columns have one name.
    #[error("has two columns `{0}`")]
    TwiceColumn(String),
    /// A count was scaled, and scaled counts are refused.
    #[error(
        "{place} {number}: {event} was counted for {percent} % of the time: the count is an \
         estimate (multiplexing)"
    )]
    Scaled {
        /// `line` or `row`.
        place: &'static str,
        /// Number of the line or row, starting at 1.
        number: u64,
        /// The event.
        event: String,
        /// The share of the time.
        percent: f64,
    },
    /// What perf prints for people.
    #[error("is perf's output for people")]
    PerfText,
    /// JSON of an unknown form.
    #[error("is JSON, and neither perf's nor PAPI's")]
    OtherJson,
    /// Text that is not UTF-8.
    #[error("line {0}: is not UTF-8 text")]
    NotUtf8(u64),
    /// Only files whose runs are not numbered can be read together.
    #[error("{file} is {form}: it cannot be read together with others")]
    Together {
        /// The file.
        file: String,
        /// What it is.
        form: super::found::Form,
    },
    /// One of several files cannot be read.
    #[error("{file}")]
    OneOf {
        /// The file.
        file: String,
        /// What is wrong with it.
        #[source]
        error: Box<ReadError>,
    },
    /// A row of merged vectors is invalid.
    #[error("row {number}: {what}")]
    Row {
        /// Row number, starting at 1.
        number: u64,
        /// The mistake.
        what: String,
    },
    /// Text in two bytes a letter.
    #[error("is UTF-16 text, not UTF-8")]
    Utf16,
    /// A Parquet file that is invalid or incomplete.
    #[error("is no complete Parquet file")]
    Parquet(#[source] ::parquet::errors::ParquetError),
    /// A Parquet file whose end is readable, but not all before it.
    #[error("is a Parquet file with damaged contents")]
    Contents(#[source] ::parquet::errors::ParquetError),
    /// The file as a whole is compressed in a way that is not read.
    #[error("is compressed with {0}")]
    Packed(&'static str),
    /// A compression that is not supported.
    #[error("has columns compressed with {0}, which is not supported")]
    Compression(String),
    /// Several programs in one file.
    #[error("has measurements of several programs: {0}")]
    Several(String),
    /// No row matches the selection.
    #[error("has no measurement of the selected program; it has {0}")]
    NoneChosen(String),
    /// The rows do not form valid measurements.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Names of the columns that are read, in the order in which fields are passed on.
pub const NAMES: [&str; 11] = {
    let [
        vm,
        vcpu,
        _,
        _,
        workload,
        sub_experiment,
        run,
        cycles,
        _,
        event_code,
        event,
        value,
        overflowed,
    ] = COLUMNS;
    [
        sub_experiment,
        run,
        event,
        value,
        event_code,
        overflowed,
        cycles,
        vm,
        vcpu,
        workload,
        "pcnt-running",
    ]
};
/// Number of columns, from the start of [`NAMES`], that are required.
pub const NEEDED: usize = 4;
/// Least share of a run's time, in percent, that an unscaled count has: perf rounds to two digits.
pub(super) const WHOLE: f64 = 99.995;
/// The event that a `cycles` column becomes.
const CYCLES: &[u8] = b"cycles";

/// Returns whether a count overflowed, by its column: a number, or a word that pandas or R writes.
/// An empty field and R's NA mean that it is unknown. `None` for any other text.
pub fn overflowed(text: &[u8]) -> Option<bool> {
    // As nearly all rows say it.
    if matches!(text, b"" | b"0") {
        return Some(false);
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    match text.to_ascii_lowercase().as_str() {
        "" | "na" | "nan" | "false" | "f" => Some(false),
        "true" | "t" => Some(true),
        number => number
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .map(|number| number != 0.0),
    }
}

/// The error for any other text in the column `overflowed`.
pub const NO_FLAG: &str = "is neither a number nor true nor false";

/// Returns whether a text says that there is no count: as pandas, R, LIKWID or perf write it.
pub fn is_missing(text: &str) -> bool {
    matches!(
        text,
        "" | "NA"
            | "NaN"
            | "nan"
            | "<NA>"
            | "null"
            | "None"
            | "-"
            | "N/A"
            | "n/a"
            | "<not counted>"
            | "<not supported>"
    )
}

/// Parses a count from a text of digits. Whole numbers are compared before they are rounded to a
/// double.
pub fn number(text: &[u8]) -> Option<Result<f64, RowError>> {
    if let Some(whole) = whole(text) {
        let exact = whole <= LARGEST_COUNT as u64;
        let refused = || RowError::NotACount {
            value: whole.to_string(),
            why: ": above 2^53 it is not exact",
        };
        return Some(if exact {
            Ok(whole as f64)
        } else {
            Err(refused())
        });
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    if text.starts_with('+') {
        return None;
    }
    text.parse().ok().map(checked_count)
}

/// Parses a whole number from decimal digits.
pub fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + u64::from(digit - b'0'))
    })
}

/// One row, in the form that both readers produce.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// `line` or `row`.
    pub place: &'static str,
    /// Number of the line or row, starting at 1.
    pub number: u64,
    /// Number of the sub-experiment.
    pub sub_experiment: u64,
    /// Number of the run.
    pub run: u64,
    /// Name of the event; empty for a run that counted only cycles.
    pub event: &'a [u8],
    /// The count; `None` where it is missing.
    pub value: Option<f64>,
    /// The event's number in the PMU.
    pub code: Option<u32>,
    /// Cycles of the run.
    pub cycles: Option<f64>,
    /// Share of the run's time in which the event was counted, in percent: `None` if the input does
    /// not say it.
    pub percent: Option<f64>,
    /// The program that was measured: VM, vCPU, workload.
    pub program: (&'a str, Option<u64>, Option<u64>),
}

/// Returns whether a column is the number of a row, as pandas and R write it.
pub(super) fn is_index(name: &str) -> bool {
    name.is_empty() || name.starts_with("Unnamed: 0") || name.starts_with("__index_level_")
}

/// Returns the columns of a long table that nothing is known of.
///
/// # Errors
///
/// Returns an error if two columns have one name.
pub(super) fn unknown(columns: &[String], request: &Request) -> Result<Option<Note>, ReadError> {
    let mut unknown = vec![];
    for (at, column) in columns.iter().enumerate() {
        if is_index(column) {
            continue;
        }
        if columns[..at].contains(column) {
            return Err(ReadError::TwiceColumn(column.clone()));
        }
        let is_known = NAMES.contains(&column.as_str()) || COLUMNS.contains(&column.as_str());
        if !is_known && !request.ignores(column) {
            unknown.push(column.clone());
        }
    }
    Ok((!unknown.is_empty()).then_some(Note::Columns(unknown)))
}

/// Returns whether a program is this one. Most files name none, and even a comparison of empty
/// names takes time.
pub(super) fn is_program(
    one: &(String, Option<u64>, Option<u64>),
    (vm, vcpu, workload): (&str, Option<u64>, Option<u64>),
) -> bool {
    one.0.len() == vm.len() && (vm.is_empty() || one.0 == vm) && (one.1, one.2) == (vcpu, workload)
}

/// What one reader returns.
pub struct Measured {
    pub(super) measurements: Measurements,
    pub(super) notes: Vec<Note>,
    pub(super) rows: Rows,
}

/// Collects rows and builds measurements.
pub struct Taker<'a> {
    builder: Builder,
    selection: &'a Selection,
    /// What else was asked for.
    request: Option<&'a Request>,
    /// Counts that were scaled, and the first one's place.
    scaled: (usize, String),
    /// Notes of the reader.
    pub(super) notes: Vec<Note>,
    /// Runs whose rows are wanted.
    rows_of: Rows,
    programs: BTreeSet<(String, Option<u64>, Option<u64>)>,
    chosen: BTreeSet<(String, Option<u64>, Option<u64>)>,
    last: Option<(String, Option<u64>, Option<u64>)>,
    /// The run whose cycles were added last.
    cycles_of: Option<(u64, u64)>,
    rows: u64,
}

impl<'a> Taker<'a> {
    /// Creates a collector without rows.
    pub fn new(selection: &'a Selection) -> Self {
        Self {
            builder: Builder::default(),
            selection,
            request: None,
            scaled: (0, String::new()),
            notes: vec![],
            rows_of: Rows::new(),
            programs: BTreeSet::new(),
            chosen: BTreeSet::new(),
            last: None,
            cycles_of: None,
            rows: 0,
        }
    }

    /// Creates a collector for a request, which finds the rows of some runs too.
    pub(super) fn of(request: &'a Request, rows_of: &Rows) -> Self {
        Self {
            request: Some(request),
            rows_of: rows_of.clone(),
            ..Self::new(&request.selection)
        }
    }

    fn wanted(&self, (vm, vcpu, workload): (&str, Option<u64>, Option<u64>)) -> bool {
        let same = |wanted: Option<u64>, is: Option<u64>| wanted.is_none() || wanted == is;
        self.selection.vm.as_ref().is_none_or(|wanted| wanted == vm)
            && same(self.selection.vcpu, vcpu)
            && same(self.selection.workload, workload)
    }

    /// Takes a row.
    pub fn take(&mut self, row: &Row<'_>) -> Result<(), ReadError> {
        self.rows += 1;
        let (vm, vcpu, workload) = row.program;
        let same = self
            .last
            .as_ref()
            .is_some_and(|last| is_program(last, row.program));
        if !same {
            let program = (vm.to_owned(), vcpu, workload);
            self.programs.insert(program.clone());
            if self.wanted(row.program) {
                self.chosen.insert(program.clone());
            }
            self.last = Some(program);
        }
        // If a second selected program appears, there is nothing to build; all are listed at the
        // end.
        if !self.wanted(row.program) || self.chosen.len() > 1 {
            return Ok(());
        }
        let field = |column: &'static str, what: String| ReadError::Field {
            place: row.place,
            number: row.number,
            column,
            what,
        };
        if let Some(cycles) = row.cycles
            && self.cycles_of != Some((row.sub_experiment, row.run))
        {
            let cycles =
                checked_count(cycles).map_err(|error| field("cycles", error.to_string()))?;
            self.cycles_of = Some((row.sub_experiment, row.run));
            let added = self
                .builder
                .add(row.sub_experiment, row.run, None, CYCLES, cycles);
            added.map_err(|error| {
                field(
                    "run",
                    format!("{error}; rows of one run must follow each other"),
                )
            })?;
        }
        if row.event.is_empty() {
            return if row.cycles.is_some() {
                Ok(())
            } else {
                Err(field("event", "is empty".to_owned()))
            };
        }
        let mut value = match row.value {
            Some(value) => {
                checked_count(value).map_err(|error| field("value", error.to_string()))?
            }
            None => f64::NAN,
        };
        let mut name = row.event;
        if let Some(request) = self.request {
            if row.percent.is_some_and(|percent| percent < WHOLE) && !value.is_nan() {
                value = self.scaled(row, request, value)?;
            }
            if !request.ignore.is_empty() || !request.names.is_empty() {
                let text = std::str::from_utf8(name).unwrap_or_default();
                if request.ignores(text) {
                    return Ok(());
                }
                if let Some(other) = request.names.get(text) {
                    name = other.as_bytes();
                }
            }
        }
        if !self.rows_of.is_empty()
            && let Some(place) = self.rows_of.get_mut(&(row.sub_experiment, row.run))
        {
            place.get_or_insert_with(|| format!("{} {}", row.place, row.number));
        }
        self.builder
            .add(row.sub_experiment, row.run, row.code, name, value)
            .map_err(|error| {
                let column = match error {
                    RowError::Twice { .. } => "run",
                    RowError::NotACount { .. } => "value",
                    RowError::Code { .. } => "event_code",
                };
                field(column, error.to_string())
            })
    }

    /// Returns the count to use for one that was scaled.
    fn scaled(&mut self, row: &Row<'_>, request: &Request, value: f64) -> Result<f64, ReadError> {
        let value = match request.scaled {
            Scaled::Refuse => {
                return Err(ReadError::Scaled {
                    place: row.place,
                    number: row.number,
                    event: String::from_utf8_lossy(row.event).into_owned(),
                    percent: row.percent.unwrap_or_default(),
                });
            }
            Scaled::LeaveOut => f64::NAN,
            Scaled::Keep => value,
        };
        if self.scaled.0 == 0 {
            self.scaled.1 = format!("{} {}", row.place, row.number);
        }
        self.scaled.0 += 1;
        Ok(value)
    }

    /// Returns the measurements of the selected program, with the notes and the rows that were
    /// found.
    pub(super) fn finish_with_notes(mut self) -> Result<Measured, ReadError> {
        let (notes, rows) = self.notes();
        let measurements = self.finish()?;
        Ok(Measured {
            measurements,
            notes,
            rows,
        })
    }

    fn notes(&mut self) -> (Vec<Note>, Rows) {
        let mut notes = std::mem::take(&mut self.notes);
        let (counts, place) = std::mem::take(&mut self.scaled);
        if counts > 0 {
            notes.push(match self.request.map(|request| request.scaled) {
                Some(Scaled::Keep) => Note::Scaled { counts, place },
                _ => Note::ScaledLeftOut { counts, place },
            });
        }
        (notes, std::mem::take(&mut self.rows_of))
    }

    /// Returns the measurements of the selected program.
    pub fn finish(self) -> Result<Measurements, ReadError> {
        if self.rows == 0 {
            return Err(DataError::Empty.into());
        }
        let list = |programs: &BTreeSet<(String, Option<u64>, Option<u64>)>| {
            let name = |(vm, vcpu, workload): &(String, Option<u64>, Option<u64>)| {
                let mut parts = vec![];
                if !vm.is_empty() {
                    parts.push(format!("vm {vm}"));
                }
                parts.extend(vcpu.map(|vcpu| format!("vcpu {vcpu}")));
                parts.extend(workload.map(|workload| format!("workload {workload}")));
                parts.join(" ")
            };
            programs.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match self.chosen.len() {
            0 => Err(ReadError::NoneChosen(list(&self.programs))),
            1 => Ok(self.builder.finish()?),
            _ => Err(ReadError::Several(list(&self.chosen))),
        }
    }
}
