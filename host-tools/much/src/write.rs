//! Writes merged vectors as wide CSV and Parquet: one row per vector, one named column per event.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::Measurements;
use crate::parallel;
use crate::table::Vectors;
use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::sync::Arc;

/// Number of CSV rows formatted together.
const ROWS: usize = 4096;

/// Writes vectors as CSV (RFC 4180 with `\n`).
///
/// # Errors
/// Those of `out`.
pub fn write_csv(vectors: &Vectors, out: &mut dyn Write) -> io::Result<()> {
    let mut header = csv::WriterBuilder::new().from_writer(vec![]);
    header.write_record(vectors.events.iter().map(|event| &event.name))?;
    out.write_all(
        &header
            .into_inner()
            .map_err(|error| io::Error::other(error.to_string()))?,
    )?;
    let starts: Vec<_> = (0..vectors.len()).step_by(ROWS).collect();
    let part = |&from: &usize| {
        let rows = ROWS.min(vectors.len() - from);
        // Column by column: an event's counts are all over its observations, which then stay in a
        // core's cache.
        let values: Vec<Vec<f64>> = vectors
            .columns
            .iter()
            .map(|column| (from..from + rows).map(|row| column.value(row)).collect())
            .collect();
        let mut bytes = vec![];
        for row in 0..rows {
            for column in &values {
                write_number(column[row], &mut bytes);
                bytes.push(b',');
            }
            if let Some(last) = bytes.last_mut() {
                *last = b'\n';
            }
        }
        bytes
    };
    // A few parts at a time, so that the text is never in memory as a whole.
    for starts in starts.chunks(16) {
        let parts = parallel::of_all(starts, part);
        parts.iter().try_for_each(|part| out.write_all(part))?;
    }
    Ok(())
}

/// Writes measurements as long CSV: a row for each count, as [`crate::read`] reads it.
///
/// # Errors
/// Those of `out`.
pub fn write_long_csv(data: &Measurements, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["sub_experiment", "run", "event_code", "event", "value"])?;
    for sub in &data.sub_experiments {
        for run in 0..sub.runs() {
            for (&event, column) in sub.events.iter().zip(&sub.columns) {
                let event = &data.events[event];
                let mut value = vec![];
                write_number(column.get(run), &mut value);
                writer.write_record([
                    sub.number.to_string().as_bytes(),
                    sub.run_number(run).to_string().as_bytes(),
                    event
                        .code
                        .map_or_else(String::new, |code| format!("{code:#x}"))
                        .as_bytes(),
                    event.name.as_bytes(),
                    &value,
                ])?;
            }
        }
    }
    writer.flush()
}

/// Adds a number as text: whole ones up to 2⁵³, as nearly all are, digit by digit.
fn write_number(value: f64, bytes: &mut Vec<u8>) {
    let mut whole = value as u64;
    if !(0.0..=crate::data::LARGEST_COUNT).contains(&value) || value.fract() != 0.0 {
        // A vector of bytes takes all.
        let _ = write!(bytes, "{value}");
        return;
    }
    let from = bytes.len();
    loop {
        bytes.push(b'0' + (whole % 10) as u8);
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    bytes[from..].reverse();
}

/// Formats vectors as [`write_csv`] does.
pub fn to_csv(vectors: &Vectors) -> Vec<u8> {
    let mut bytes = vec![];
    // Writing into memory cannot fail.
    let _ = write_csv(vectors, &mut bytes);
    bytes
}

/// Formats vectors as a Parquet file with one row group. A column of integers is INT64, any other
/// DOUBLE.
pub fn to_parquet(vectors: &Vectors, created_by: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    write_parquet(vectors, created_by, &mut bytes)?;
    Ok(bytes)
}

/// Writes the output of [`to_parquet`] column by column.
///
/// # Errors
///
/// Those of `out`.
pub fn write_parquet(
    vectors: &Vectors,
    created_by: &str,
    out: &mut (impl Write + Send),
) -> Result<()> {
    let whole: Vec<bool> = vectors
        .columns
        .iter()
        .map(|column| column.observed().iter().all(|value| value.fract() == 0.0))
        .collect();
    let field = |(event, &whole): (&crate::data::Event, &bool)| {
        let physical = if whole {
            Physical::INT64
        } else {
            Physical::DOUBLE
        };
        let field = Type::primitive_type_builder(&event.name, physical)
            .with_repetition(Repetition::REQUIRED)
            .build()?;
        Ok(Arc::new(field))
    };
    let fields = vectors
        .events
        .iter()
        .zip(&whole)
        .map(field)
        .collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("vectors")
        .with_fields(fields)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(created_by.to_owned())
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (column, whole) in vectors.columns.iter().zip(whole) {
        let values = column.values();
        let missing = || ParquetError::General("too many columns".to_owned());
        let mut out = group.next_column()?.ok_or_else(missing)?;
        if whole {
            let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
            out.typed::<Int64Type>().write_batch(&values, None, None)?;
        } else {
            out.typed::<DoubleType>().write_batch(&values, None, None)?;
        }
        out.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Event;
    use crate::table::Column;

    #[test]
    fn csv_has_names_and_observed_values() {
        let events = ["a,b", "c"]
            .map(|name| Event {
                name: name.to_owned(),
                code: None,
            })
            .to_vec();
        let columns = vec![
            Column::of_values(&[3.0, 1.0, 9_007_199_254_740_992.0]),
            Column::of_values(&[0.5, 2.0, 0.0]),
        ];
        let text = String::from_utf8(to_csv(&Vectors { events, columns })).unwrap();
        assert_eq!(text, "\"a,b\",c\n3,0.5\n1,2\n9007199254740992,0\n");
    }
}
