//! Writes merged vectors as wide CSV and Parquet: one row per vector, one named column per event.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::table::{Column, Vectors};
use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rayon::prelude::*;
use std::sync::Arc;

/// Number of CSV rows formatted together.
const ROWS: usize = 4096;

/// The texts of a column's observations, concatenated, and where each ends.
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    fn new(column: &Column) -> Self {
        let (mut bytes, mut ends) = (vec![], vec![]);
        for value in column.observed() {
            bytes.extend_from_slice(value.to_string().as_bytes());
            ends.push(bytes.len() as u32);
        }
        Self { bytes, ends }
    }
    fn text(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }
}

/// Formats vectors as CSV (RFC 4180 with `\n`).
pub fn to_csv(vectors: &Vectors) -> Vec<u8> {
    let mut header = csv::WriterBuilder::new().from_writer(vec![]);
    // Writing into memory cannot fail.
    let _ = header.write_record(vectors.events.iter().map(|event| &event.name));
    let header = header.into_inner().unwrap_or_default();
    let texts: Vec<_> = vectors.columns.par_iter().map(Texts::new).collect();
    let starts: Vec<_> = (0..vectors.len()).step_by(ROWS).collect();
    let part = |&from: &usize| {
        let mut bytes = vec![];
        for row in from..(from + ROWS).min(vectors.len()) {
            for (texts, column) in texts.iter().zip(&vectors.columns) {
                bytes.extend_from_slice(texts.text(column.chosen()[row]));
                bytes.push(b',');
            }
            if let Some(last) = bytes.last_mut() {
                *last = b'\n';
            }
        }
        bytes
    };
    let mut all = header;
    // A few parts at a time, so that the text is not in memory twice.
    for starts in starts.chunks(16) {
        let parts: Vec<Vec<u8>> = starts.par_iter().map(part).collect();
        parts.iter().for_each(|part| all.extend_from_slice(part));
    }
    all
}

/// Formats vectors as a Parquet file with one row group. A column of integers is INT64, any other DOUBLE.
pub fn to_parquet(vectors: &Vectors, created_by: &str) -> Result<Vec<u8>> {
    let whole: Vec<bool> =
        vectors.columns.iter().map(|column| column.observed().iter().all(|value| value.fract() == 0.0)).collect();
    let field = |(event, &whole): (&crate::data::Event, &bool)| {
        let physical = if whole { Physical::INT64 } else { Physical::DOUBLE };
        let field =
            Type::primitive_type_builder(&event.name, physical).with_repetition(Repetition::REQUIRED).build()?;
        Ok(Arc::new(field))
    };
    let fields = vectors.events.iter().zip(&whole).map(field).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("vectors").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by(created_by.to_owned()).build();
    let mut bytes = vec![];
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
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
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Event;

    #[test]
    fn csv_has_names_and_observed_values() {
        let events = ["a,b", "c"].map(|name| Event { name: name.to_owned(), code: None }).to_vec();
        let columns =
            vec![Column::of_values(&[3.0, 1.0, 9_007_199_254_740_992.0]), Column::of_values(&[0.5, 2.0, 0.0])];
        let text = String::from_utf8(to_csv(&Vectors { events, columns })).unwrap();
        assert_eq!(text, "\"a,b\",c\n3,0.5\n1,2\n9007199254740992,0\n");
    }
}
