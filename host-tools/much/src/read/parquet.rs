//! Reads measurements from long Parquet, and merged vectors from wide Parquet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{self, NAMES, NEEDED, NO_FLAG, ReadError, Row, Selection, Taker};
use crate::data::{Event, LARGEST_COUNT, Measurements, checked_count};
use crate::table::{Column, Vectors};
use parquet::basic::Compression;
use parquet::data_type::Decimal;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use std::fs::File;
use std::sync::Arc;

/// The reader of a file and the file's schema; refuses compressions that are not supported before anything is read.
fn open(file: File) -> Result<(SerializedFileReader<File>, Type), ReadError> {
    let reader = SerializedFileReader::new(file).map_err(ReadError::Parquet)?;
    let groups = reader.metadata().row_groups().iter();
    for column in groups.flat_map(|group| group.columns()) {
        if let Compression::LZO = column.compression() {
            return Err(ReadError::Compression("LZO".to_owned()));
        }
    }
    let schema = reader.metadata().file_metadata().schema().clone();
    Ok((reader, schema))
}

/// Reads measurements.
pub fn read(file: File, selection: &Selection) -> Result<Measurements, ReadError> {
    let (reader, schema) = open(file)?;
    let fields = schema.get_fields();
    let found: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
    if let Some(missing) = NAMES[..NEEDED].iter().find(|name| !found.iter().any(|found| found == *name)) {
        return Err(ReadError::NoColumn { missing, found: found.join(", ") });
    }
    let wanted: Vec<_> = fields.iter().filter(|field| NAMES.contains(&field.name())).map(Arc::clone).collect();
    let places = NAMES.map(|name| wanted.iter().position(|field| field.name() == name));
    let projection =
        Type::group_type_builder(schema.name()).with_fields(wanted).build().map_err(ReadError::Contents)?;
    let rows = reader.get_row_iter(Some(projection)).map_err(ReadError::Contents)?;
    let mut taker = Taker::new(selection);
    for (number, row) in (1_u64..).zip(rows) {
        let row = row.map_err(ReadError::Contents)?;
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let field = |at: usize| places[at].map_or(&Field::Null, |place| fields[place]);
        let fault = |at: usize, what: &str| ReadError::Field {
            place: "row",
            number,
            column: NAMES[at],
            what: format!("{} {what}", field(at)),
        };
        let optional = |at: usize| match field(at) {
            Field::Null => Ok(None),
            other => whole(other).map(Some).ok_or_else(|| fault(at, "is not a whole number")),
        };
        let needed = |at: usize| optional(at)?.ok_or_else(|| fault(at, "is not a whole number"));
        let count = |at: usize| match field(at) {
            Field::Null => Ok(None),
            // pandas has no other way to say that a count is missing.
            Field::Double(missing) if missing.is_nan() => Ok(None),
            other => self::number(other).map(Some).ok_or_else(|| fault(at, "is not a count")),
        };
        let text = |at: usize| match field(at) {
            Field::Str(text) => Ok(text.as_bytes()),
            Field::Bytes(bytes) => Ok(bytes.data()),
            Field::Null => Ok(&[][..]),
            _ => Err(fault(at, "is not text")),
        };
        let overflowed = match field(5) {
            Field::Null => Some(false),
            Field::Bool(overflowed) => Some(*overflowed),
            Field::Str(text) => columns::overflowed(text.as_bytes()),
            other => self::number(other).map(|number| number != 0.0 && !number.is_nan()),
        };
        let overflowed = overflowed.ok_or_else(|| fault(5, NO_FLAG))?;
        let code = match optional(4)? {
            Some(code) => Some(u32::try_from(code).map_err(|_| fault(4, "is not an event's number"))?),
            None => None,
        };
        taker.take(&Row {
            place: "row",
            number,
            sub_experiment: needed(0)?,
            run: needed(1)?,
            event: text(2)?,
            value: count(3)?.filter(|_| !overflowed),
            code,
            cycles: count(6)?,
            program: (std::str::from_utf8(text(7)?).unwrap_or_default(), optional(8)?, optional(9)?),
        })?;
    }
    taker.finish()
}

/// Reads merged vectors, one column per event.
pub fn read_vectors(file: File) -> Result<Vectors, ReadError> {
    let (reader, schema) = open(file)?;
    let events: Vec<_> =
        schema.get_fields().iter().map(|field| Event { name: field.name().to_owned(), code: None }).collect();
    let mut columns = vec![vec![]; events.len()];
    for (at, row) in (1_u64..).zip(reader.get_row_iter(None).map_err(ReadError::Contents)?) {
        let row = row.map_err(ReadError::Contents)?;
        for (column, (name, field)) in columns.iter_mut().zip(row.get_column_iter()) {
            let count = number(field).and_then(|value| checked_count(value).ok());
            let fault = || ReadError::Row { number: at, what: format!("{name}: {field} is not a count") };
            column.push(count.ok_or_else(fault)?);
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    Ok(Vectors { events, columns: columns.iter().map(|values| Column::of_values(values)).collect() })
}

/// A number, not yet a count. A whole one that a double does not hold becomes infinite, so that it is refused.
fn number(field: &Field) -> Option<f64> {
    let exact = |value: i128| if value <= LARGEST_COUNT as i128 { value as f64 } else { f64::INFINITY };
    match field {
        Field::Double(value) => Some(*value),
        Field::Float(value) => Some(f64::from(*value)),
        Field::Decimal(decimal) => of_decimal(decimal),
        other => whole(other).map(i128::from).or_else(|| signed(other).map(i128::from)).map(exact),
    }
}

/// A decimal: a big-endian number of two's complement, and how many of its digits are after the point.
fn of_decimal(decimal: &Decimal) -> Option<f64> {
    let bytes = decimal.data();
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    let negative = bytes[0] >> 7 == 1;
    let unscaled = bytes.iter().fold(if negative { -1_i128 } else { 0 }, |value, &byte| value << 8 | i128::from(byte));
    let scale = 10_i128.checked_pow(u32::try_from(decimal.scale()).ok()?)?;
    let exact = unscaled / scale <= LARGEST_COUNT as i128;
    Some(if exact { unscaled as f64 / scale as f64 } else { f64::INFINITY })
}

fn signed(field: &Field) -> Option<i64> {
    match *field {
        Field::Byte(value) => Some(value.into()),
        Field::Short(value) => Some(value.into()),
        Field::Int(value) => Some(value.into()),
        Field::Long(value) => Some(value),
        _ => None,
    }
}

/// A whole number, however it is written.
fn whole(field: &Field) -> Option<u64> {
    let exact = |value: f64| (value.fract() == 0.0 && (0.0..=LARGEST_COUNT).contains(&value)).then_some(value as u64);
    match field {
        Field::UByte(value) => Some((*value).into()),
        Field::UShort(value) => Some((*value).into()),
        Field::UInt(value) => Some((*value).into()),
        Field::ULong(value) => Some(*value),
        Field::Double(value) => exact(*value),
        Field::Float(value) => exact(f64::from(*value)),
        Field::Decimal(decimal) => of_decimal(decimal).and_then(exact),
        other => signed(other).and_then(|value| u64::try_from(value).ok()),
    }
}
