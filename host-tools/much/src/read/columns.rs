//! What both readers share: which columns there are, which rows are wanted, where something is wrong.

use crate::data::{Builder, DataError, Measurements, RowError, checked_count};
use std::collections::BTreeSet;

/// Which rows of a log with several programs are wanted; `None` takes what there is, which must then be one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The VM's name.
    pub vm: Option<String>,
    /// The vCPU.
    pub vcpu: Option<u64>,
    /// The workload's number.
    pub workload: Option<u64>,
}

/// Why a file cannot be read as measurements.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system says no.
    #[error("cannot be read")]
    File(#[source] std::io::Error),
    /// It begins well, and then cannot be read on, as gzip that was cut off.
    #[error("ends early or is damaged")]
    Broken(#[source] std::io::Error),
    /// No bytes.
    #[error("is empty")]
    Empty,
    /// Binary, but nothing known.
    #[error("is neither CSV nor gzip nor Parquet")]
    NotText,
    /// A needed column is not there.
    #[error("has no column `{missing}`; its columns are {found}")]
    NoColumn {
        /// The column.
        missing: &'static str,
        /// Those that are there.
        found: String,
    },
    /// CSV that is none.
    #[error("line {line}: {what}")]
    Csv {
        /// From 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A field that makes no sense.
    #[error("{place} {number}, column `{column}`: {what}")]
    Field {
        /// `line` or `row`.
        place: &'static str,
        /// From 1.
        number: u64,
        /// The column.
        column: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A row of merged vectors that makes no sense.
    #[error("row {number}: {what}")]
    Row {
        /// From 1.
        number: u64,
        /// What is wrong.
        what: String,
    },
    /// Parquet that is none, or only half of it.
    #[error("is no complete Parquet file")]
    Parquet(#[source] ::parquet::errors::ParquetError),
    /// Several programs in one file.
    #[error("has measurements of several programs: {0}")]
    Several(String),
    /// No row is wanted.
    #[error("has no measurement of the chosen program; there are {0}")]
    NoneChosen(String),
    /// The rows make no measurements.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// The columns, in the order in which fields are handed over.
pub const NAMES: [&str; 10] =
    ["sub_experiment", "run", "event", "value", "event_code", "overflowed", "cycles", "vm", "vcpu", "workload"];
/// The first of [`NAMES`] must be there.
pub const NEEDED: usize = 4;
/// The event that a `cycles` column becomes.
const CYCLES: &[u8] = b"cycles";

/// One row, as both readers see it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// `line` or `row`.
    pub place: &'static str,
    /// From 1.
    pub number: u64,
    /// Its sub-experiment.
    pub sub_experiment: u64,
    /// Its run.
    pub run: u64,
    /// The event; empty for a run that counted nothing but cycles.
    pub event: &'a [u8],
    /// The count; `None` where it is missing.
    pub value: Option<f64>,
    /// The event's number.
    pub code: Option<u32>,
    /// The run's cycles.
    pub cycles: Option<f64>,
    /// Which program it is of: VM, vCPU, workload.
    pub program: (&'a str, Option<u64>, Option<u64>),
}

/// Takes rows and builds measurements.
pub struct Taker<'a> {
    builder: Builder,
    selection: &'a Selection,
    programs: BTreeSet<(String, Option<u64>, Option<u64>)>,
    chosen: BTreeSet<(String, Option<u64>, Option<u64>)>,
    last: Option<(String, Option<u64>, Option<u64>)>,
    /// The run whose cycles are in already.
    cycles_of: Option<(u64, u64)>,
    rows: u64,
}

impl<'a> Taker<'a> {
    /// Nothing taken yet.
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
        let same = self.last.as_ref().is_some_and(|last| (last.0.as_str(), last.1, last.2) == row.program);
        if !same {
            let program = (vm.to_owned(), vcpu, workload);
            self.programs.insert(program.clone());
            if self.wanted(row.program) {
                self.chosen.insert(program.clone());
            }
            self.last = Some(program);
        }
        // With a second program that is wanted, there is nothing to build; all are named at the end.
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
            let cycles = checked_count(cycles).map_err(|error| field("cycles", error.to_string()))?;
            self.cycles_of = Some((row.sub_experiment, row.run));
            let added = self.builder.add(row.sub_experiment, row.run, None, CYCLES, cycles);
            added.map_err(|error| field("run", format!("{error}; rows of one run must follow each other")))?;
        }
        if row.event.is_empty() {
            return if row.cycles.is_some() { Ok(()) } else { Err(field("event", "is empty".to_owned())) };
        }
        let value = match row.value {
            Some(value) => checked_count(value).map_err(|error| field("value", error.to_string()))?,
            None => f64::NAN,
        };
        self.builder.add(row.sub_experiment, row.run, row.code, row.event, value).map_err(|error| {
            let column = match error {
                RowError::Twice { .. } => "run",
                RowError::NotACount { .. } => "value",
                RowError::Code { .. } => "event_code",
            };
            field(column, error.to_string())
        })
    }

    /// The measurements of the one program that was chosen.
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
