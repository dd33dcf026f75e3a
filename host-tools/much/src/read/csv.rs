//! Reads measurements from long CSV, and merged vectors from wide CSV.
//!
//! A long file is read in parts of whole lines. All cores parse parts, which are then taken one
//! after the other, in their order: a few parts are in memory at a time, however long the file is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::{
    Measured, NAMES, NEEDED, NO_FLAG, ReadError, Row, Taker, is_missing, is_program, number,
    overflowed, unknown, whole,
};
use super::found::Request;
use super::runs::Runs;
use super::wide;
use crate::data::Event;
use crate::parallel;
use crate::table::{Column, Vectors};
use std::io::Read;

/// Bytes of a part, without the rest of its last line.
const PART: usize = 1 << 18;
/// Parts that are parsed at a time, for each thread.
const PARTS: usize = 2;

fn reader<R: Read>(input: R, has_headers: bool) -> csv::Reader<R> {
    csv::ReaderBuilder::new()
        .has_headers(has_headers)
        .flexible(!has_headers)
        .buffer_capacity(1 << 16)
        .from_reader(input)
}

/// `before`: lines before those that were read.
fn fault(error: csv::Error, before: u64) -> ReadError {
    let line = before + error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ReadError::Broken(error),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => unequal(line, len as usize, expected_len as usize),
        other => ReadError::Csv {
            line,
            what: format!("{other:?}"),
        },
    }
}

fn unequal(line: u64, fields: usize, expected: usize) -> ReadError {
    ReadError::Csv {
        line,
        what: format!("has {fields} fields, not {expected}"),
    }
}

/// Cuts a text into parts of whole records.
struct Parts<R> {
    input: R,
    /// The bytes read beyond the last part.
    rest: Vec<u8>,
    ended: bool,
}

impl<R: Read> Parts<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            rest: vec![],
            ended: false,
        }
    }

    /// The next part, of `least` bytes or more unless the text ends; `None` after the last one.
    fn next(&mut self, least: usize) -> Result<Option<Vec<u8>>, ReadError> {
        let mut part = std::mem::take(&mut self.rest);
        let mut wanted = least;
        loop {
            if !self.ended && part.len() < wanted {
                let missing = (wanted - part.len()) as u64;
                let read = self
                    .input
                    .by_ref()
                    .take(missing)
                    .read_to_end(&mut part)
                    .map_err(ReadError::Broken)?;
                self.ended = (read as u64) < missing;
            }
            if self.ended {
                return Ok((!part.is_empty()).then_some(part));
            }
            if let Some(end) = end_of_records(&part) {
                self.rest = part.split_off(end);
                return Ok(Some(part));
            }
            wanted = part.len() + PART;
        }
    }
}

/// Where the last whole record of a text ends. A line's end within quotes ends none.
fn end_of_records(text: &[u8]) -> Option<usize> {
    if !text.contains(&b'"') {
        return text
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map(|at| at + 1);
    }
    let (mut quoted, mut end) = (false, None);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => end = Some(at + 1),
            _ => {}
        }
    }
    end
}

/// A row of a part: its event and program are in the part's lists.
struct ParsedRow {
    line: u32,
    sub_experiment: u64,
    run: u64,
    event: u32,
    program: u32,
    value: Option<f64>,
    code: Option<u32>,
    cycles: Option<f64>,
    percent: Option<f64>,
}

/// The values of the columns vm, vcpu and workload.
type Program = (String, Option<u64>, Option<u64>);

/// A part that was parsed, up to its first mistake.
struct Batch {
    rows: Vec<ParsedRow>,
    events: Vec<Vec<u8>>,
    /// For each event the one whose row came after its last one: most often it comes again.
    after: Vec<usize>,
    programs: Vec<Program>,
    lines: u64,
    mistake: Option<ReadError>,
}

/// The place of an item in a list, to which it is added if it is new. `guess`: where it is most
/// often.
fn place_of<T>(
    list: &mut Vec<T>,
    guess: usize,
    is: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> usize {
    if list.get(guess).is_some_and(&is) {
        return guess;
    }
    list.iter().position(is).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    })
}

/// The line of a part in which a record is. Its position is that of the end of a line before it, if
/// that is in two letters or if lines are empty.
fn line_of(part: &[u8], record: &csv::ByteRecord) -> u64 {
    let Some(position) = record.position() else {
        return 0;
    };
    let rest = part.get(position.byte() as usize..).unwrap_or_default();
    let ends = rest
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .filter(|&&byte| byte == b'\n')
        .count();
    position.line() + ends as u64
}

/// Where the columns of [`NAMES`] are, and how many columns there are.
struct Layout {
    places: [Option<usize>; NAMES.len()],
    width: usize,
}

impl Layout {
    fn of(header: &csv::ByteRecord) -> Result<Self, ReadError> {
        let places = NAMES.map(|name| {
            header
                .iter()
                .position(|field| field.trim_ascii() == name.as_bytes())
        });
        if let Some(at) = (0..NEEDED).find(|&at| places[at].is_none()) {
            let whole = header
                .iter()
                .next()
                .filter(|_| header.len() == 1)
                .unwrap_or_default();
            if let Some(&other) = whole.iter().find(|byte| matches!(byte, b';' | b'\t')) {
                return Err(ReadError::Separator(other.into()));
            }
            let found: Vec<_> = header
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            return Err(ReadError::NoColumn {
                missing: NAMES[at],
                found: found.join(", "),
            });
        }
        Ok(Self {
            places,
            width: header.len(),
        })
    }

    /// Parses a part before which there are `before` lines.
    fn parse(&self, part: &[u8], before: u64) -> Batch {
        let lines = part.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let rows = Vec::with_capacity(usize::try_from(lines).unwrap_or_default());
        let mut batch = Batch {
            rows,
            events: vec![],
            after: vec![],
            programs: vec![],
            lines,
            mistake: None,
        };
        let parsed = if part.iter().any(|byte| matches!(byte, b'"' | b'\r')) {
            self.quoted(part, before, &mut batch)
        } else {
            self.plain(part, before, &mut batch)
        };
        batch.mistake = parsed.err();
        batch
    }

    /// Parses records of any form.
    fn quoted(&self, part: &[u8], before: u64, batch: &mut Batch) -> Result<(), ReadError> {
        let mut reader = reader(part, false);
        let mut record = csv::ByteRecord::new();
        let mut event_before = 0;
        while reader
            .read_byte_record(&mut record)
            .map_err(|error| fault(error, before))?
        {
            let line = line_of(part, &record);
            if record.len() != self.width {
                return Err(unequal(before + line, record.len(), self.width));
            }
            let fields = self.places.map(|place| {
                place
                    .and_then(|place| record.get(place))
                    .unwrap_or_default()
                    .trim_ascii()
            });
            let row = self.row(&fields, before, line, batch, &mut event_before)?;
            batch.rows.push(row);
        }
        Ok(())
    }

    /// Parses a part without quotes and carriage returns: its lines are records and its commas
    /// separate fields, so that there is nothing to copy, and most of the time that reading
    /// takes is saved.
    fn plain(&self, part: &[u8], before: u64, batch: &mut Batch) -> Result<(), ReadError> {
        // The name that each column belongs to; the last field is that of all other columns.
        let mut name_of = vec![NAMES.len(); self.width];
        for (name, place) in self.places.iter().enumerate() {
            place.iter().for_each(|&place| name_of[place] = name);
        }
        let mut event_before = 0;
        for (line, text) in (1..).zip(part.split(|&byte| byte == b'\n')) {
            // What is after the last line's end is none, and an empty line is no record.
            if text.is_empty() {
                continue;
            }
            let mut fields = [&text[..0]; NAMES.len() + 1];
            let mut count = 0;
            for field in text.split(|&byte| byte == b',') {
                if let Some(&name) = name_of.get(count) {
                    fields[name] = field.trim_ascii();
                }
                count += 1;
            }
            if count != self.width {
                return Err(unequal(before + line, count, self.width));
            }
            let row = self.row(
                &fields[..NAMES.len()],
                before,
                line,
                batch,
                &mut event_before,
            )?;
            batch.rows.push(row);
        }
        Ok(())
    }

    /// One row from its fields, in the order of [`NAMES`]; those of columns that are not there are
    /// empty.
    fn row(
        &self,
        fields: &[&[u8]],
        before: u64,
        line: u64,
        batch: &mut Batch,
        event_before: &mut usize,
    ) -> Result<ParsedRow, ReadError> {
        let field = |at: usize| fields[at];
        let fault = |at: usize, what: String| ReadError::Field {
            place: "line",
            number: before + line,
            column: NAMES[at],
            what,
        };
        let shown = |at: usize, what: &str| {
            fault(
                at,
                format!("{:?} {what}", String::from_utf8_lossy(field(at))),
            )
        };
        let whole = |at: usize| whole(field(at)).ok_or_else(|| shown(at, "is not a whole number"));
        let optional = |at: usize| {
            if field(at).is_empty() {
                Ok(None)
            } else {
                whole(at).map(Some)
            }
        };
        let count = |at: usize| match field(at) {
            text if missing(text) => Ok(None),
            text => match number(text) {
                Some(count) => count
                    .map(Some)
                    .map_err(|error| fault(at, error.to_string())),
                None => Err(shown(at, "is not a count")),
            },
        };
        let overflowed = overflowed(field(5)).ok_or_else(|| shown(5, NO_FLAG))?;
        let code = match field(4) {
            b"" => None,
            text => Some(event_number(text).ok_or_else(|| shown(4, "is not an event's number"))?),
        };
        let value = count(3)?.filter(|_| !overflowed);
        let percent = match field(10) {
            text if missing(text) => None,
            text => {
                let percent = std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let percent = percent.filter(|percent: &f64| percent.is_finite());
                Some(percent.ok_or_else(|| shown(10, "is not a share in percent"))?)
            }
        };
        let program = (
            std::str::from_utf8(field(7)).unwrap_or_default(),
            optional(8)?,
            optional(9)?,
        );
        let (sub_experiment, run, cycles) = (whole(0)?, whole(1)?, count(6)?);
        let name = field(2);
        let guess = batch.after.get(*event_before).copied().unwrap_or_default();
        let event = place_of(
            &mut batch.events,
            guess,
            |event| event.as_slice() == name,
            || name.to_vec(),
        );
        batch.after.resize(batch.events.len(), 0);
        batch.after[*event_before] = event;
        *event_before = event;
        let same = |other: &Program| is_program(other, program);
        let program = place_of(&mut batch.programs, 0, same, || {
            (program.0.to_owned(), program.1, program.2)
        });
        Ok(ParsedRow {
            line: line as u32,
            sub_experiment,
            run,
            event: *event_before as u32,
            program: program as u32,
            value,
            code,
            cycles,
            percent,
        })
    }
}

/// Returns whether a field says that there is no count. Nearly all are numbers.
fn missing(text: &[u8]) -> bool {
    let is_number = text.first().is_some_and(u8::is_ascii_digit);
    !is_number && std::str::from_utf8(text).is_ok_and(is_missing)
}

/// Hands a batch over, row by row.
fn take(taker: &mut Taker<'_>, batch: Batch, before: u64) -> Result<(), ReadError> {
    for row in &batch.rows {
        let (vm, vcpu, workload) = &batch.programs[row.program as usize];
        taker.take(&Row {
            place: "line",
            number: before + u64::from(row.line),
            sub_experiment: row.sub_experiment,
            run: row.run,
            event: &batch.events[row.event as usize],
            value: row.value,
            code: row.code,
            cycles: row.cycles,
            percent: row.percent,
            program: (vm, *vcpu, *workload),
        })?;
    }
    batch.mistake.map_or(Ok(()), Err)
}

/// Returns the names in a header, without blanks around them.
pub fn names(header: &csv::ByteRecord) -> Vec<String> {
    let name = |name: &[u8]| String::from_utf8_lossy(name.trim_ascii()).into_owned();
    header.iter().map(name).collect()
}

/// Returns the header of a text.
pub fn header(text: &[u8]) -> Vec<String> {
    let mut header = csv::ByteRecord::new();
    match reader(text, false).read_byte_record(&mut header) {
        Ok(_) => names(&header),
        Err(_) => vec![],
    }
}

/// Reads runs from wide CSV.
pub fn read_wide(
    input: impl Read,
    request: &Request,
    runs: &mut Runs<'_>,
) -> Result<(), ReadError> {
    let mut reader = reader(input, true);
    let header = reader.byte_headers().map_err(|error| fault(error, 0))?;
    let layout = wide::Layout::of(&names(header), request)?;
    let mut record = csv::ByteRecord::new();
    while reader
        .read_byte_record(&mut record)
        .map_err(|error| fault(error, 0))?
    {
        let line = record.position().map_or(0, csv::Position::line);
        let texts = record
            .iter()
            .map(std::str::from_utf8)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| ReadError::NotUtf8(line))?;
        let fields = texts.iter().map(|text| wide::Field::Text(text.trim()));
        layout.take("line", line, fields, runs)?;
    }
    Ok(())
}

/// Reads measurements from long CSV.
pub fn read(
    input: impl Read,
    request: &Request,
    mut taker: Taker<'_>,
) -> Result<Measured, ReadError> {
    let mut parts = Parts::new(input);
    // The header alone, whose reader tells where the next record begins; a mark at the start of the
    // text is none of it.
    let first = parts.next(PART)?.unwrap_or_default();
    let mut header = csv::ByteRecord::new();
    let mut of_header = reader(first.as_slice(), false);
    of_header
        .read_byte_record(&mut header)
        .map_err(|error| fault(error, 0))?;
    let layout = Layout::of(&header)?;
    taker.notes.extend(unknown(&names(&header), request)?);
    let position = of_header.position().clone();
    let mut before = position.line() - 1;
    let mut next = vec![first[position.byte() as usize..].to_vec()];
    drop(first);
    let at_a_time = PARTS * rayon::current_num_threads();
    // The parts before are taken while the next ones are parsed.
    let mut parsed: Vec<(u64, Batch)> = vec![];
    loop {
        let starts: Vec<u64> = next
            .iter()
            .scan(before, |before, part| {
                let start = *before;
                *before += part.iter().filter(|&&byte| byte == b'\n').count() as u64;
                Some(start)
            })
            .collect();
        let (batches, taken) = rayon::join(
            || parallel::of_each(next.len(), |at| layout.parse(&next[at], starts[at])),
            || {
                parsed
                    .drain(..)
                    .try_for_each(|(start, batch)| take(&mut taker, batch, start))
            },
        );
        taken?;
        before = starts.last().copied().unwrap_or(before)
            + batches.last().map_or(0, |batch| batch.lines);
        let last = batches.is_empty();
        parsed = starts.into_iter().zip(batches).collect();
        if last {
            return taker.finish_with_notes();
        }
        next.clear();
        while next.len() < at_a_time
            && let Some(part) = parts.next(PART)?
        {
            next.push(part);
        }
    }
}

/// Reads merged vectors.
pub fn read_vectors(input: impl Read) -> Result<Vectors, ReadError> {
    let mut reader = reader(input, true);
    let header = reader
        .byte_headers()
        .map_err(|error| fault(error, 0))?
        .clone();
    let names: Vec<_> = header
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    let mut columns = vec![vec![]; names.len()];
    let mut record = csv::ByteRecord::new();
    while reader
        .read_byte_record(&mut record)
        .map_err(|error| fault(error, 0))?
    {
        let line = record.position().map_or(0, csv::Position::line);
        for (at, field) in record.iter().enumerate() {
            let value = number(field)
                .and_then(Result::ok)
                .ok_or_else(|| ReadError::Csv {
                    line,
                    what: format!(
                        "{}: {:?} is not a count",
                        names[at],
                        String::from_utf8_lossy(field)
                    ),
                })?;
            columns[at].push(value);
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    let events = names
        .into_iter()
        .map(|name| Event { name, code: None })
        .collect();
    Ok(Vectors {
        events,
        columns: columns
            .iter()
            .map(|values| Column::of_values(values))
            .collect(),
    })
}

/// Returns an event's number: hexadecimal after 0x, as Cloison writes it, else decimal.
fn event_number(text: &[u8]) -> Option<u32> {
    let hexadecimal = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"));
    match hexadecimal {
        Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        }
        Some(_) => None,
        None => u32::try_from(whole(text)?).ok(),
    }
}
