//! Reads measurements from long and wide Parquet, and merged vectors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{self, Measured, NAMES, NEEDED, NO_FLAG, ReadError, Row, Taker};
use super::found::Request;
use super::runs::Runs;
use super::wide;
use crate::data::{Event, LARGEST_COUNT, checked_count};
use crate::parallel;
use crate::table::{Column, Vectors};
use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Decimal};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::{ColumnDescPtr, Type};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

/// A file that several threads read: each read says where. The library's own reader of files moves
/// one position that all its copies share, so that columns which are decoded at the same time would
/// get each other's bytes.
struct Shared {
    file: Arc<File>,
    length: u64,
}

/// A reader of a shared file, with its own position.
struct Reader {
    file: Arc<File>,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Length for Shared {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Shared {
    type T = BufReader<Reader>;
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(Reader {
            file: self.file.clone(),
            at: start,
        }))
    }
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let ends = start
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.length);
        if !ends {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of {}",
                self.length
            )));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The reader of a file and the file's schema; refuses compressions that are not supported before
/// anything is read.
fn open(file: File) -> Result<(SerializedFileReader<Shared>, Type), ReadError> {
    let length = file.metadata().map_err(ReadError::File)?.len();
    let reader = SerializedFileReader::new(Shared {
        file: Arc::new(file),
        length,
    })
    .map_err(ReadError::Parquet)?;
    let groups = reader.metadata().row_groups().iter();
    for column in groups.flat_map(|group| group.columns()) {
        if let Compression::LZO = column.compression() {
            return Err(ReadError::Compression("LZO".to_owned()));
        }
    }
    let schema = reader.metadata().file_metadata().schema().clone();
    Ok((reader, schema))
}

/// Rows that are decoded at a time.
const ROWS: usize = 1 << 15;

/// A column of a row group, and what is known of it.
struct Source {
    reader: ColumnReader,
    descriptor: ColumnDescPtr,
}

impl Source {
    /// Decodes the next rows, at most so many.
    fn next(&mut self, rows: usize) -> Result<Vec<Field>, ParquetError> {
        let of = &self.descriptor;
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_bool(of, v)))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_int32(of, v)))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_int64(of, v)))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_int96(of, v)))
            }
            ColumnReader::FloatColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_float(of, v)))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                decode(reader, of, rows, |of, v| Ok(Field::convert_double(of, v)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                decode(reader, of, rows, Field::convert_byte_array)
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                decode(reader, of, rows, |of, v| {
                    Field::convert_byte_array(of, v.into())
                })
            }
        }
    }
}

fn decode<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    descriptor: &ColumnDescPtr,
    rows: usize,
    convert: impl Fn(&ColumnDescPtr, T::T) -> Result<Field, ParquetError>,
) -> Result<Vec<Field>, ParquetError> {
    let (mut levels, mut values) = (vec![], vec![]);
    let (records, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if descriptor.max_def_level() == 0 {
        return values
            .into_iter()
            .map(|value| convert(descriptor, value))
            .collect();
    }
    // A level for each row says whether it has a value.
    let mut values = values.into_iter();
    let field = |&level: &i16| {
        let value = if level == descriptor.max_def_level() {
            values.next()
        } else {
            None
        };
        value.map_or(Ok(Field::Null), |value| convert(descriptor, value))
    };
    levels[..records].iter().map(field).collect()
}

/// Calls what decodes a file. The library panics at some contents that no writer leaves, such as a
/// page of references without the dictionary that they are to: then the file is damaged.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    // What the closure has is not used after a panic.
    panic::catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| panic.downcast_ref::<&str>().copied());
        let error = ParquetError::General(what.unwrap_or("the decoder failed").to_owned());
        Err(ReadError::Contents(error))
    })
}

/// Returns the names of a file's columns.
pub fn names(file: File) -> Result<Vec<String>, ReadError> {
    guarded(|| names_of(file))
}

/// Reads runs from a table with a column for each event.
pub fn read_wide(file: File, request: &Request, runs: &mut Runs<'_>) -> Result<(), ReadError> {
    guarded(|| decode_wide(file, request, runs))
}

/// Reads measurements, row group by row group, some rows of all columns at a time.
pub fn read(file: File, request: &Request, taker: Taker<'_>) -> Result<Measured, ReadError> {
    guarded(|| decode_long(file, request, taker))
}

/// Reads merged vectors, one column per event.
pub fn read_vectors(file: File) -> Result<Vectors, ReadError> {
    guarded(|| decode_vectors(file))
}

fn names_of(file: File) -> Result<Vec<String>, ReadError> {
    let (_, schema) = open(file)?;
    let fields = schema.get_fields().iter();
    Ok(fields.map(|field| field.name().to_owned()).collect())
}

fn decode_wide(file: File, request: &Request, runs: &mut Runs<'_>) -> Result<(), ReadError> {
    let layout = wide::Layout::of(
        &names_of(file.try_clone().map_err(ReadError::File)?)?,
        request,
    )?;
    let (reader, _) = open(file)?;
    for (at, row) in (1_u64..).zip(reader.get_row_iter(None).map_err(ReadError::Contents)?) {
        let row = row.map_err(ReadError::Contents)?;
        let texts: Vec<Option<String>> = row
            .get_column_iter()
            .map(|(_, field)| match field {
                Field::Null => None,
                Field::Str(text) => Some(text.clone()),
                other if number(other).is_none() => Some(other.to_string()),
                _ => None,
            })
            .collect();
        let fields = row.get_column_iter().zip(&texts).map(|((_, field), text)| {
            match (number(field), text) {
                (Some(number), _) => wide::Field::Number(number),
                (None, Some(text)) => wide::Field::Text(text),
                (None, None) => wide::Field::Missing,
            }
        });
        layout.take("row", at, fields, runs)?;
    }
    Ok(())
}

fn decode_long(file: File, request: &Request, mut taker: Taker<'_>) -> Result<Measured, ReadError> {
    let (reader, schema) = open(file)?;
    let found: Vec<_> = schema
        .get_fields()
        .iter()
        .map(|field| field.name().to_owned())
        .collect();
    if let Some(missing) = NAMES[..NEEDED]
        .iter()
        .find(|name| !found.iter().any(|found| found == *name))
    {
        return Err(ReadError::NoColumn {
            missing,
            found: found.join(", "),
        });
    }
    let descriptors = reader
        .metadata()
        .file_metadata()
        .schema_descr()
        .columns()
        .to_vec();
    // A column of lists or groups is none of ours: its path has more than its name.
    let of_name = |name: &&str| {
        descriptors
            .iter()
            .position(|of| of.path().parts() == [*name] && of.max_rep_level() == 0)
    };
    let places = NAMES.map(|name| of_name(&name));
    if let Some(at) = (0..NEEDED).find(|&at| places[at].is_none()) {
        return Err(ReadError::Row {
            number: 1,
            what: format!("{} is no plain column", NAMES[at]),
        });
    }
    taker.notes.extend(columns::unknown(&found, request)?);
    let mut before = 0;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(ReadError::Contents)?;
        let source = |place: &Option<usize>| {
            place.map(|at| {
                Ok(Source {
                    reader: group.get_column_reader(at)?,
                    descriptor: descriptors[at].clone(),
                })
            })
        };
        let sources: Result<Vec<Option<Source>>, ParquetError> = places
            .iter()
            .map(|place| source(place).transpose())
            .collect();
        let mut sources = sources.map_err(ReadError::Contents)?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let rows = left.min(ROWS);
            let columns = parallel::of_owned(sources.iter_mut().collect(), |_, source| {
                source.as_mut().map_or(Ok(vec![]), |it| it.next(rows))
            });
            let columns: Vec<_> = columns
                .into_iter()
                .collect::<Result<_, ParquetError>>()
                .map_err(ReadError::Contents)?;
            let lengths = || {
                columns
                    .iter()
                    .zip(&places)
                    .filter(|(_, place)| place.is_some())
                    .map(|(it, _)| it.len())
            };
            if lengths().any(|length| length != rows) {
                let error = ParquetError::General("a column has too few rows".to_owned());
                return Err(ReadError::Contents(error));
            }
            for row in 0..rows {
                let fields: [&Field; NAMES.len()] =
                    std::array::from_fn(|at| columns[at].get(row).unwrap_or(&Field::Null));
                take(&mut taker, before + row as u64 + 1, fields)?;
            }
            before += rows as u64;
            left -= rows;
        }
    }
    taker.finish_with_notes()
}

/// Hands a row over; its fields are in the order of [`NAMES`].
fn take(
    taker: &mut Taker<'_>,
    number: u64,
    fields: [&Field; NAMES.len()],
) -> Result<(), ReadError> {
    let fault = |at: usize, what: &str| ReadError::Field {
        place: "row",
        number,
        column: NAMES[at],
        what: format!("{} {what}", fields[at]),
    };
    let optional = |at: usize| match fields[at] {
        Field::Null => Ok(None),
        other => whole(other)
            .map(Some)
            .ok_or_else(|| fault(at, "is not a whole number")),
    };
    let needed = |at: usize| optional(at)?.ok_or_else(|| fault(at, "is not a whole number"));
    let count = |at: usize| match fields[at] {
        Field::Null => Ok(None),
        // pandas has no other way to say that a count is missing.
        Field::Double(missing) if missing.is_nan() => Ok(None),
        Field::Str(text) if columns::is_missing(text.trim()) => Ok(None),
        other => self::number(other)
            .map(Some)
            .ok_or_else(|| fault(at, "is not a count")),
    };
    let text = |at: usize| match fields[at] {
        Field::Str(text) => Ok(text.as_bytes()),
        Field::Bytes(bytes) => Ok(bytes.data()),
        Field::Null => Ok(&[][..]),
        _ => Err(fault(at, "is not text")),
    };
    let overflowed = match fields[5] {
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
        percent: count(10)?,
        program: (
            std::str::from_utf8(text(7)?).unwrap_or_default(),
            optional(8)?,
            optional(9)?,
        ),
    })
}

fn decode_vectors(file: File) -> Result<Vectors, ReadError> {
    let (reader, schema) = open(file)?;
    let events: Vec<_> = schema
        .get_fields()
        .iter()
        .map(|field| Event {
            name: field.name().to_owned(),
            code: None,
        })
        .collect();
    let mut columns = vec![vec![]; events.len()];
    for (at, row) in (1_u64..).zip(reader.get_row_iter(None).map_err(ReadError::Contents)?) {
        let row = row.map_err(ReadError::Contents)?;
        for (column, (name, field)) in columns.iter_mut().zip(row.get_column_iter()) {
            let count = number(field).and_then(|value| checked_count(value).ok());
            let fault = || ReadError::Row {
                number: at,
                what: format!("{name}: {field} is not a count"),
            };
            column.push(count.ok_or_else(fault)?);
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    Ok(Vectors {
        events,
        columns: columns
            .iter()
            .map(|values| Column::of_values(values))
            .collect(),
    })
}

/// A number, not yet a count. A whole one that a double does not hold becomes infinite, so that it
/// is refused.
fn number(field: &Field) -> Option<f64> {
    let exact = |value: i128| {
        if value <= LARGEST_COUNT as i128 {
            value as f64
        } else {
            // Rounded, but not to a count that is exact.
            (value as f64).max(LARGEST_COUNT + 2.0)
        }
    };
    match field {
        Field::Double(value) => Some(*value),
        Field::Float(value) => Some(f64::from(*value)),
        Field::Decimal(decimal) => of_decimal(decimal),
        // Digits too large for a double are an error, as they are in CSV.
        Field::Str(text) if whole(field).is_none() => text
            .trim()
            .parse()
            .ok()
            .filter(|_| !text.trim().starts_with('+')),
        other => whole(other)
            .map(i128::from)
            .or_else(|| signed(other).map(i128::from))
            .map(exact),
    }
}

/// A decimal: a big-endian number of two's complement, and how many of its digits are after the
/// point.
fn of_decimal(decimal: &Decimal) -> Option<f64> {
    let bytes = decimal.data();
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    let negative = bytes[0] >> 7 == 1;
    let unscaled = bytes
        .iter()
        .fold(if negative { -1_i128 } else { 0 }, |value, &byte| {
            value << 8 | i128::from(byte)
        });
    let scale = 10_i128.checked_pow(u32::try_from(decimal.scale()).ok()?)?;
    let exact = unscaled / scale <= LARGEST_COUNT as i128;
    Some(if exact {
        unscaled as f64 / scale as f64
    } else {
        f64::INFINITY
    })
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
    let exact = |value: f64| {
        (value.fract() == 0.0 && (0.0..=LARGEST_COUNT).contains(&value)).then_some(value as u64)
    };
    match field {
        Field::UByte(value) => Some((*value).into()),
        Field::UShort(value) => Some((*value).into()),
        Field::UInt(value) => Some((*value).into()),
        Field::ULong(value) => Some(*value),
        Field::Double(value) => exact(*value),
        Field::Float(value) => exact(f64::from(*value)),
        Field::Decimal(decimal) => of_decimal(decimal).and_then(exact),
        Field::Str(text) => columns::whole(text.trim().as_bytes()),
        other => signed(other).and_then(|value| u64::try_from(value).ok()),
    }
}
