//! Reads measurements from long CSV, and merged vectors from wide CSV.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{NAMES, NEEDED, NO_FLAG, ReadError, Row, Selection, Taker, number, overflowed, whole};
use crate::data::{Event, Measurements};
use crate::table::{Column, Vectors};
use std::io::Read;

fn reader<R: Read>(input: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new().buffer_capacity(1 << 18).from_reader(input)
}

fn fault(error: csv::Error) -> ReadError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ReadError::Broken(error),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            ReadError::Csv { line, what: format!("has {len} fields, not {expected_len}") }
        }
        other => ReadError::Csv { line, what: format!("{other:?}") },
    }
}

/// Reads measurements from long CSV.
pub fn read(input: impl Read, selection: &Selection) -> Result<Measurements, ReadError> {
    let mut reader = reader(input);
    let header = reader.byte_headers().map_err(fault)?.clone();
    let places = NAMES.map(|name| header.iter().position(|field| field == name.as_bytes()));
    if let Some(at) = (0..NEEDED).find(|&at| places[at].is_none()) {
        let found: Vec<_> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        return Err(ReadError::NoColumn { missing: NAMES[at], found: found.join(", ") });
    }
    let mut taker = Taker::new(selection);
    let mut record = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return taker.finish(),
            Err(error) => return Err(fault(error)),
        }
        let line = record.position().map_or(0, csv::Position::line);
        let field = |at: usize| places[at].and_then(|place| record.get(place)).unwrap_or_default();
        let fault = |at: usize, what: String| ReadError::Field { place: "line", number: line, column: NAMES[at], what };
        let shown = |at: usize, what: &str| fault(at, format!("{:?} {what}", String::from_utf8_lossy(field(at))));
        let whole = |at: usize| whole(field(at)).ok_or_else(|| shown(at, "is not a whole number"));
        let optional = |at: usize| if field(at).is_empty() { Ok(None) } else { whole(at).map(Some) };
        let count = |at: usize| match field(at) {
            b"" | b"NA" => Ok(None),
            text => match number(text) {
                Some(count) => count.map(Some).map_err(|error| fault(at, error.to_string())),
                None => Err(shown(at, "is not a count")),
            },
        };
        let overflowed = overflowed(field(5)).ok_or_else(|| shown(5, NO_FLAG))?;
        let code = match optional(4)? {
            Some(code) => Some(u32::try_from(code).map_err(|_| fault(4, format!("{code} is not an event's number")))?),
            None => None,
        };
        let value = count(3)?.filter(|_| !overflowed);
        taker.take(&Row {
            place: "line",
            number: line,
            sub_experiment: whole(0)?,
            run: whole(1)?,
            event: field(2),
            value,
            code,
            cycles: count(6)?,
            program: (std::str::from_utf8(field(7)).unwrap_or_default(), optional(8)?, optional(9)?),
        })?;
    }
}

/// Reads merged vectors.
pub fn read_vectors(input: impl Read) -> Result<Vectors, ReadError> {
    let mut reader = reader(input);
    let header = reader.byte_headers().map_err(fault)?.clone();
    let names: Vec<_> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let mut columns = vec![vec![]; names.len()];
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(fault)? {
        let line = record.position().map_or(0, csv::Position::line);
        for (at, field) in record.iter().enumerate() {
            let value = number(field).and_then(Result::ok).ok_or_else(|| ReadError::Csv {
                line,
                what: format!("{}: {:?} is not a count", names[at], String::from_utf8_lossy(field)),
            })?;
            columns[at].push(value);
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    let events = names.into_iter().map(|name| Event { name, code: None }).collect();
    Ok(Vectors { events, columns: columns.iter().map(|values| Column::of_values(values)).collect() })
}
