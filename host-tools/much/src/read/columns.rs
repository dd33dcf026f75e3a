//! Code shared by both readers: the columns, the selection of rows, and the position of errors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{Builder, DataError, LARGEST_COUNT, Measurements, RowError, checked_count};
use cloison_metrics::log::COLUMNS;
use std::collections::BTreeSet;

/// Selects one program of a log with several. `None` accepts any value, but all rows must then have
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Name of the VM.
    pub vm: Option<String>,
    /// Number of the vCPU.
    pub vcpu: Option<u64>,
    /// Number of the workload.
    pub workload: Option<u64>,
}

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
    #[error("is neither CSV nor gzip nor Parquet")]
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
    /// The file as a whole is compressed, but not with gzip.
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
pub const NAMES: [&str; 10] = {
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
    ]
};
/// Number of columns, from the start of [`NAMES`], that are required.
pub const NEEDED: usize = 4;
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
    /// The program that was measured: VM, vCPU, workload.
    pub program: (&'a str, Option<u64>, Option<u64>),
}

/// Returns whether a program is this one. Most files name none, and even a comparison of empty
/// names takes time.
pub(super) fn is_program(
    one: &(String, Option<u64>, Option<u64>),
    (vm, vcpu, workload): (&str, Option<u64>, Option<u64>),
) -> bool {
    one.0.len() == vm.len() && (vm.is_empty() || one.0 == vm) && (one.1, one.2) == (vcpu, workload)
}

/// Collects rows and builds measurements.
pub struct Taker<'a> {
    builder: Builder,
    selection: &'a Selection,
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
            programs: BTreeSet::new(),
            chosen: BTreeSet::new(),
            last: None,
            cycles_of: None,
            rows: 0,
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
        let value = match row.value {
            Some(value) => {
                checked_count(value).map_err(|error| field("value", error.to_string()))?
            }
            None => f64::NAN,
        };
        self.builder
            .add(row.sub_experiment, row.run, row.code, row.event, value)
            .map_err(|error| {
                let column = match error {
                    RowError::Twice { .. } => "run",
                    RowError::NotACount { .. } => "value",
                    RowError::Code { .. } => "event_code",
                };
                field(column, error.to_string())
            })
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
