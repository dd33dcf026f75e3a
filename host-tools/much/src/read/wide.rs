//! Reads tables with a column for each event and a row for each run.
//!
//! `sub_experiment` and `run` number the runs if they are there; otherwise the rows are numbered,
//! and each set of events that rows count is a sub-experiment.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{ReadError, is_index, is_missing, number};
use super::found::Request;
use super::runs::{Counted, Run, Runs};

/// What a column has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    SubExperiment,
    Run,
    Event(String),
    Ignored,
}

/// The columns of a wide table.
pub struct Layout(Vec<Column>);

/// A field of a row.
pub enum Field<'a> {
    /// Text, as CSV has it.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// Nothing.
    Missing,
}

impl Layout {
    /// Returns the layout of a table with these columns, and notes those that are not read.
    pub fn of(names: &[String], request: &Request) -> Result<Self, ReadError> {
        let mut columns = vec![];
        for (at, name) in names.iter().enumerate() {
            let name = name.trim();
            if names[..at].iter().any(|other| other.trim() == name) && !is_index(name) {
                return Err(ReadError::TwiceColumn(name.to_owned()));
            }
            columns.push(match name {
                name if request.ignores(name) || is_index(name) => Column::Ignored,
                "sub_experiment" => Column::SubExperiment,
                "run" => Column::Run,
                name => Column::Event(name.to_owned()),
            });
        }
        let events = columns
            .iter()
            .filter(|column| matches!(column, Column::Event(_)))
            .count();
        if events < 2 {
            return Err(ReadError::NoColumn {
                missing: "sub_experiment",
                found: names.join(", "),
            });
        }
        Ok(Self(columns))
    }

    /// Takes a row, line `number` of a CSV file or row `number` of another.
    pub fn take<'f>(
        &self,
        place: &'static str,
        number: u64,
        fields: impl Iterator<Item = Field<'f>>,
        runs: &mut Runs<'_>,
    ) -> Result<(), ReadError> {
        let mut run = Run {
            number,
            ..Run::default()
        };
        for (column, field) in self.0.iter().zip(fields) {
            let name = match column {
                Column::Ignored => continue,
                Column::SubExperiment => "sub_experiment",
                Column::Run => "run",
                Column::Event(name) => name,
            };
            let fault = |what: String| ReadError::WideField {
                place,
                number,
                column: name.to_owned(),
                what,
            };
            let count = count(&field).map_err(fault)?;
            match (column, count) {
                (Column::Event(name), Some(count)) => {
                    run.counts.push((name.clone(), Counted::Count(count)));
                }
                (Column::SubExperiment, Some(number)) => run.sub_experiment = Some(number as u64),
                (Column::Run, Some(number)) => run.run = Some(number as u64),
                (Column::SubExperiment | Column::Run, None) => {
                    return Err(fault("is empty".to_owned()));
                }
                _ => {}
            }
        }
        runs.push(run);
        Ok(())
    }
}

/// Returns a count, or nothing where it is missing.
fn count(field: &Field<'_>) -> Result<Option<f64>, String> {
    let checked = match field {
        Field::Missing => return Ok(None),
        Field::Number(missing) if missing.is_nan() => return Ok(None),
        Field::Number(value) => crate::data::checked_count(*value),
        Field::Text(text) if is_missing(text) => return Ok(None),
        Field::Text(text) => number(text.as_bytes())
            .ok_or_else(|| format!("\"{}\" is not a count", text.escape_debug()))?,
    };
    checked.map(Some).map_err(|error| error.to_string())
}
