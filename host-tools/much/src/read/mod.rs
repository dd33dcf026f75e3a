//! Readers of measurements: long CSV (plain or gzip) and Parquet.
//!
//! Columns are found by name. `sub_experiment`, `run`, `event` and `value` are needed; `event_code` gives the event's
//! number; `overflowed` other than 0 makes the count missing; `cycles` is what every row of a run has beside its event,
//! and becomes the event `cycles`; `vm`, `vcpu` and `workload` must be the same in all rows, or be chosen.

mod columns;
mod csv;
mod parquet;

pub use columns::{ReadError, Selection};

use crate::data::Measurements;
use std::io::Read;
use std::path::Path;

/// Reads measurements from a file; what it is follows from its first bytes.
pub fn read(path: &Path, selection: &Selection) -> Result<Measurements, ReadError> {
    let open = || std::fs::File::open(path).map_err(ReadError::File);
    let mut start = [0; 4];
    let mut file = open()?;
    let mut filled = 0;
    while filled < start.len() {
        match file.read(&mut start[filled..]).map_err(ReadError::File)? {
            0 => break,
            some => filled += some,
        }
    }
    match &start[..filled] {
        [] => Err(ReadError::Empty),
        b"PAR1" => parquet::read(open()?, selection),
        [0x1f, 0x8b, ..] => csv::read(flate2::read::MultiGzDecoder::new(open()?), selection),
        [0, ..] => Err(ReadError::NotText),
        _ => csv::read(open()?, selection),
    }
}

/// Reads measurements from long CSV, not compressed.
pub fn read_csv(input: impl Read, selection: &Selection) -> Result<Measurements, ReadError> {
    csv::read(input, selection)
}

/// Reads merged vectors: wide CSV, one column an event.
pub fn read_vectors(path: &Path) -> Result<crate::table::Vectors, ReadError> {
    let file = std::fs::File::open(path).map_err(ReadError::File)?;
    let mut start = [0; 2];
    let mut probe = std::fs::File::open(path).map_err(ReadError::File)?;
    let read = probe.read(&mut start).map_err(ReadError::File)?;
    if read == 2 && start == [0x1f, 0x8b] {
        return csv::read_vectors(flate2::read::MultiGzDecoder::new(file));
    }
    csv::read_vectors(file)
}
