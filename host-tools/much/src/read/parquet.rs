//! Reads measurements from long Parquet, and merged vectors from wide Parquet.

use super::columns::{NAMES, NEEDED, ReadError, Row, Selection, Taker};
use crate::data::{Event, Measurements, checked_count};
use crate::table::{Column, Vectors};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use std::fs::File;
use std::sync::Arc;

/// Reads measurements from long Parquet.
pub fn read(file: File, selection: &Selection) -> Result<Measurements, ReadError> {
    let reader = SerializedFileReader::new(file).map_err(ReadError::Parquet)?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let fields = schema.get_fields();
    let found: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
    if let Some(missing) = NAMES[..NEEDED].iter().find(|name| !found.iter().any(|found| found == *name)) {
        return Err(ReadError::NoColumn { missing, found: found.join(", ") });
    }
    let wanted: Vec<_> = fields.iter().filter(|field| NAMES.contains(&field.name())).map(Arc::clone).collect();
    let places = NAMES.map(|name| wanted.iter().position(|field| field.name() == name));
    let projection = Type::group_type_builder("rows").with_fields(wanted).build().map_err(ReadError::Parquet)?;
    let rows = reader.get_row_iter(Some(projection)).map_err(ReadError::Parquet)?;
    let mut taker = Taker::new(selection);
    for (number, row) in (1_u64..).zip(rows) {
        let row = row.map_err(ReadError::Parquet)?;
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
            other => self::number(other).map(Some).ok_or_else(|| fault(at, "is not a count")),
        };
        let text = |at: usize| match field(at) {
            Field::Str(text) => Ok(text.as_bytes()),
            Field::Bytes(bytes) => Ok(bytes.data()),
            Field::Null => Ok(&[][..]),
            _ => Err(fault(at, "is not text")),
        };
        let overflowed = !matches!(field(5), Field::Null | Field::Bool(false)) && whole(field(5)) != Some(0);
        let code = match optional(4)? {
            Some(code) => Some(u32::try_from(code).map_err(|_| fault(4, "is not an event number"))?),
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
    let reader = SerializedFileReader::new(file).map_err(ReadError::Parquet)?;
    let schema = reader.metadata().file_metadata().schema().clone();
    let events: Vec<_> =
        schema.get_fields().iter().map(|field| Event { name: field.name().to_owned(), code: None }).collect();
    let mut columns = vec![vec![]; events.len()];
    for (at, row) in (1_u64..).zip(reader.get_row_iter(None).map_err(ReadError::Parquet)?) {
        let row = row.map_err(ReadError::Parquet)?;
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

fn number(field: &Field) -> Option<f64> {
    match *field {
        Field::Double(value) => Some(value),
        Field::Float(value) => Some(f64::from(value)),
        ref other => signed(other).map(|value| value as f64).or_else(|| whole(other).map(|value| value as f64)),
    }
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

fn whole(field: &Field) -> Option<u64> {
    match *field {
        Field::UByte(value) => Some(value.into()),
        Field::UShort(value) => Some(value.into()),
        Field::UInt(value) => Some(value.into()),
        Field::ULong(value) => Some(value),
        ref other => signed(other).and_then(|value| u64::try_from(value).ok()),
    }
}
