//! Readers of measurements: long CSV (plain or gzip) and Parquet.
//!
//! Columns are found by name. `sub_experiment`, `run`, `event` and `value` are needed. `event_code`
//! gives the event's number. `overflowed` other than 0 or false makes the count missing. `cycles`
//! is the same in all rows of a run, and becomes the event `cycles`. `vm`, `vcpu` and `workload`
//! must be the same in all rows, or be chosen.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod columns;
mod csv;
mod parquet;

pub use columns::{ReadError, Row, Selection, Taker};

use crate::data::Measurements;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// Format of a file, determined from its first bytes.
enum Kind {
    Empty,
    Parquet,
    Gzip,
    Binary,
    Utf16,
    /// Compressed by another program than gzip.
    Packed(&'static str),
    Text,
}

fn open(path: &Path) -> Result<(Kind, File), ReadError> {
    let mut start = vec![];
    let mut file = File::open(path).map_err(ReadError::File)?;
    file.by_ref()
        .take(6)
        .read_to_end(&mut start)
        .map_err(ReadError::File)?;
    file.rewind().map_err(ReadError::File)?;
    let kind = match start.as_slice() {
        [] => Kind::Empty,
        [b'P', b'A', b'R', b'1', ..] => Kind::Parquet,
        // As pandas and R name them: bzip2, xz, zstd, zip.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Kind::Packed("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Kind::Packed("xz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Kind::Packed("zstd"),
        [b'P', b'K', 3, 4, ..] => Kind::Packed("zip"),
        [0x1f, 0x8b, ..] => Kind::Gzip,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Kind::Utf16,
        [0, ..] => Kind::Binary,
        _ => Kind::Text,
    };
    Ok((kind, file))
}

/// Reads measurements from a file; its first bytes determine the format.
pub fn read(path: &Path, selection: &Selection) -> Result<Measurements, ReadError> {
    let (kind, file) = open(path)?;
    match kind {
        Kind::Empty => Err(ReadError::Empty),
        Kind::Parquet => parquet::read(file, selection),
        Kind::Gzip => csv::read(flate2::read::MultiGzDecoder::new(file), selection),
        Kind::Binary => Err(ReadError::NotText),
        Kind::Utf16 => Err(ReadError::Utf16),
        Kind::Packed(with) => Err(ReadError::Packed(with)),
        Kind::Text => csv::read(file, selection),
    }
}

/// Reads measurements from uncompressed long CSV.
pub fn read_csv(input: impl Read, selection: &Selection) -> Result<Measurements, ReadError> {
    csv::read(input, selection)
}

/// Reads merged vectors, one column per event, from CSV (plain or gzip) or Parquet.
pub fn read_vectors(path: &Path) -> Result<crate::table::Vectors, ReadError> {
    let (kind, file) = open(path)?;
    match kind {
        Kind::Empty => Err(ReadError::Empty),
        Kind::Parquet => parquet::read_vectors(file),
        Kind::Gzip => csv::read_vectors(flate2::read::MultiGzDecoder::new(file)),
        Kind::Binary => Err(ReadError::NotText),
        Kind::Utf16 => Err(ReadError::Utf16),
        Kind::Packed(with) => Err(ReadError::Packed(with)),
        Kind::Text => csv::read_vectors(file),
    }
}
