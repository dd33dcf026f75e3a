//! Readers of measurements: CSV and Parquet, long and wide, what perf and PAPI write, compressed or
//! not. A file's contents decide what it is.
//!
//! Of long tables, columns are found by name. `sub_experiment`, `run`, `event` and `value` are
//! needed. `event_code` gives the event's number. `overflowed` other than 0 or false makes the count
//! missing. `cycles` is the same in all rows of a run, and becomes the event `cycles`. `vm`, `vcpu`
//! and `workload` must be the same in all rows, or be chosen. `pcnt-running` is the share of the
//! time in which the event was counted, in percent.
//!
//! | module | contents |
//! | --- | --- |
//! | `columns` | the columns of long tables, and what collects their rows |
//! | `csv`, `parquet` | both forms of tables, and merged vectors |
//! | `wide` | tables with a column for each event |
//! | `perf`, `papi` | what these programs write |
//! | `runs` | runs that a file does not number |
//! | `found` | what was asked for, and what was found beside the counts |
// SPDX-License-Identifier: MIT OR Apache-2.0

mod columns;
mod csv;
mod found;
mod papi;
mod parquet;
mod perf;
mod runs;
mod wide;

pub use columns::{ReadError, Row, Taker};
pub use found::{Form, Found, Note, Request, Rows, Scaled, Selection};

use crate::data::Measurements;
use columns::Measured;
use runs::Runs;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};

/// What a file's first bytes say.
enum Kind {
    Empty,
    Parquet,
    Binary,
    Utf16,
    /// Compressed by a program whose output is not read.
    Packed(&'static str),
    Compressed(Compression),
    Text,
}

#[derive(Clone, Copy)]
enum Compression {
    Gzip,
    Xz,
    Zstd,
}

/// Most bytes of a file that has to be in memory at once.
const MOST_IN_MEMORY: u64 = 1 << 30;
/// Bytes from which the form of a text is told.
const START: u64 = 1 << 16;

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
        // As pandas and R name them: bzip2 and zip.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Kind::Packed("bzip2"),
        [b'P', b'K', 3, 4, ..] => Kind::Packed("zip"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Kind::Compressed(Compression::Xz),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Kind::Compressed(Compression::Zstd),
        [0x1f, 0x8b, ..] => Kind::Compressed(Compression::Gzip),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Kind::Utf16,
        [b'A', b'R', b'R', b'O', b'W', b'1'] => Kind::Packed("Arrow's file format (feather)"),
        [0, ..] => Kind::Binary,
        _ => Kind::Text,
    };
    Ok((kind, file))
}

/// Returns whether a file's first bytes are those of a compressed or binary form that is read here.
pub fn is_known(start: &[u8]) -> bool {
    let known: [&[u8]; 6] = [
        b"PAR1",
        b"ARROW1",
        &[0x1f, 0x8b],
        &[0xfd, b'7', b'z', b'X', b'Z', 0],
        &[0x28, 0xb5, 0x2f, 0xfd],
        b"PK\x03\x04",
    ];
    known.iter().any(|known| start.starts_with(known))
}

fn decompress(file: File, with: Compression) -> Result<Box<dyn Read>, ReadError> {
    Ok(match with {
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
        // Files of several streams are as common as those of one.
        Compression::Xz => Box::new(lzma_rust2::XzReader::new(file, true)),
        Compression::Zstd => Box::new(zstd::Decoder::new(file).map_err(ReadError::Broken)?),
    })
}

/// A file whose form is known.
enum Opened {
    Text(Form, Box<dyn Read>),
    /// The separator of what perf wrote.
    Perf(char, Box<dyn Read>),
    Parquet(Form, File),
}

/// Returns the form of a table with these columns.
fn is_wide(columns: &[String]) -> bool {
    let is_long = |name: &String| matches!(name.trim(), "event" | "value");
    columns.len() > 1 && !columns.iter().any(is_long)
}

fn recognized(path: &Path) -> Result<Opened, ReadError> {
    let (kind, file) = open(path)?;
    let input: Box<dyn Read> = match kind {
        Kind::Empty => return Err(ReadError::Empty),
        Kind::Parquet => {
            let names = parquet::names(file.try_clone().map_err(ReadError::File)?)?;
            let form = if is_wide(&names) {
                Form::WideParquet
            } else {
                Form::LongParquet
            };
            return Ok(Opened::Parquet(form, file));
        }
        Kind::Binary => return Err(ReadError::NotText),
        Kind::Utf16 => return Err(ReadError::Utf16),
        Kind::Packed(with) => return Err(ReadError::Packed(with)),
        Kind::Compressed(with) => decompress(file, with)?,
        Kind::Text => Box::new(file),
    };
    of_text(input)
}

fn of_text(mut input: Box<dyn Read>) -> Result<Opened, ReadError> {
    let mut start = vec![];
    input
        .by_ref()
        .take(START)
        .read_to_end(&mut start)
        .map_err(ReadError::Broken)?;
    let text = String::from_utf8_lossy(&start).into_owned();
    let form = form_of(&text)?;
    let input = Box::new(Cursor::new(start).chain(input));
    Ok(match form {
        (Form::PerfCsv, Some(separator)) => Opened::Perf(separator, input),
        (form, _) => Opened::Text(form, input),
    })
}

/// Returns the form of a text, and the separator of what perf wrote.
fn form_of(text: &str) -> Result<(Form, Option<char>), ReadError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let first = first.unwrap_or_default();
    if first.starts_with("Performance counter stats for") {
        return Err(ReadError::PerfText);
    }
    if first.starts_with(['{', '[']) {
        if text.contains("\"counter-value\"") {
            return Ok((Form::PerfJson, None));
        }
        if papi::is_papi(text) {
            return Ok((Form::Papi, None));
        }
        return Err(ReadError::OtherJson);
    }
    if let Some(separator) = perf::separator(text) {
        return Ok((Form::PerfCsv, Some(separator)));
    }
    if is_wide(&csv::header(text.as_bytes())) {
        return Ok((Form::WideCsv, None));
    }
    Ok((Form::LongCsv, None))
}

fn whole_text(input: Box<dyn Read>) -> Result<String, ReadError> {
    let mut bytes = vec![];
    input
        .take(MOST_IN_MEMORY)
        .read_to_end(&mut bytes)
        .map_err(ReadError::Broken)?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = before.iter().filter(|&&byte| byte == b'\n').count();
        ReadError::NotUtf8(lines as u64 + 1)
    })
}

/// Adds the runs of a file that does not number them. Returns the file's form.
fn add_runs<'a>(
    opened: Opened,
    request: &'a Request,
    runs: &mut Runs<'a>,
) -> Result<Form, ReadError> {
    match opened {
        Opened::Perf(separator, input) => {
            perf::read_csv(&whole_text(input)?, separator, request, runs)?;
            Ok(Form::PerfCsv)
        }
        Opened::Parquet(form, file) => {
            parquet::read_wide(file, request, runs)?;
            Ok(form)
        }
        Opened::Text(form, input) => {
            match form {
                Form::PerfJson => perf::read_json(&whole_text(input)?, request, runs)?,
                Form::Papi => papi::read(&whole_text(input)?, request, runs)?,
                _ => csv::read_wide(input, request, runs)?,
            }
            Ok(form)
        }
    }
}

/// Hands runs over to a collector.
fn collected(
    runs: Runs<'_>,
    request: &Request,
    rows: &Rows,
    form: Form,
) -> Result<Found, ReadError> {
    let mut taker = Taker::of(request, rows);
    let notes = runs.finish(&mut taker)?;
    taker.notes.extend(notes);
    Ok(found(taker.finish_with_notes()?, form))
}

fn found(measured: Measured, form: Form) -> Found {
    Found {
        measurements: measured.measurements,
        form,
        notes: measured.notes,
        rows: measured.rows,
    }
}

/// Reads measurements from a file, whose contents decide what it is. Of the runs in `rows`, the
/// first row in the file is found too.
pub fn read_as(path: &Path, request: &Request, rows: &Rows) -> Result<Found, ReadError> {
    match recognized(path)? {
        Opened::Text(Form::LongCsv, input) => {
            let taker = Taker::of(request, rows);
            Ok(found(csv::read(input, request, taker)?, Form::LongCsv))
        }
        Opened::Parquet(Form::LongParquet, file) => {
            let taker = Taker::of(request, rows);
            Ok(found(
                parquet::read(file, request, taker)?,
                Form::LongParquet,
            ))
        }
        opened => {
            let place = match opened {
                Opened::Perf(..) | Opened::Text(Form::PerfJson | Form::WideCsv, _) => "line",
                _ => "row",
            };
            let mut runs = Runs::new(request, place);
            let form = add_runs(opened, request, &mut runs)?;
            collected(runs, request, rows, form)
        }
    }
}

/// Reads measurements from several files that do not number their runs: what perf and PAPI wrote,
/// and wide tables.
pub fn read_together(
    paths: &[PathBuf],
    request: &Request,
    rows: &Rows,
) -> Result<Found, ReadError> {
    let mut runs = Runs::new(request, "run");
    for path in paths {
        let file = path.display().to_string();
        let place = |error| ReadError::OneOf {
            file: file.clone(),
            error: Box::new(error),
        };
        let opened = recognized(path).map_err(place)?;
        if let Opened::Text(form @ Form::LongCsv, _)
        | Opened::Parquet(form @ Form::LongParquet, _) = opened
        {
            return Err(ReadError::Together { file, form });
        }
        add_runs(opened, request, &mut runs).map_err(place)?;
    }
    collected(runs, request, rows, Form::Several)
}

/// Reads measurements from a file; its contents decide what it is.
pub fn read(path: &Path, selection: &Selection) -> Result<Measurements, ReadError> {
    let request = Request {
        selection: selection.clone(),
        ..Request::default()
    };
    Ok(read_as(path, &request, &Rows::new())?.measurements)
}

/// Reads measurements from uncompressed long CSV.
pub fn read_csv(input: impl Read, selection: &Selection) -> Result<Measurements, ReadError> {
    let request = Request {
        selection: selection.clone(),
        ..Request::default()
    };
    let taker = Taker::of(&request, &Rows::new());
    Ok(csv::read(input, &request, taker)?.measurements)
}

/// Reads merged vectors, one column per event, from CSV (compressed or not) or Parquet.
pub fn read_vectors(path: &Path) -> Result<crate::table::Vectors, ReadError> {
    let (kind, file) = open(path)?;
    match kind {
        Kind::Empty => Err(ReadError::Empty),
        Kind::Parquet => parquet::read_vectors(file),
        Kind::Compressed(with) => csv::read_vectors(decompress(file, with)?),
        Kind::Binary => Err(ReadError::NotText),
        Kind::Utf16 => Err(ReadError::Utf16),
        Kind::Packed(with) => Err(ReadError::Packed(with)),
        Kind::Text => csv::read_vectors(file),
    }
}
