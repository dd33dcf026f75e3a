//! Reads what `perf stat` writes with `-x` (CSV) and `-j` (JSON), with `-r` and `-I` too.
//!
//! A file may have several calls of perf (`-o FILE --append`): each is a run. A call begins with a
//! comment (`# started on …`). Without comments, it begins where an event comes again, and all calls
//! have to count the same events: otherwise nothing says where one ends. The fields are those of perf-stat(1),
//! "CSV FORMAT": [interval,] count, unit, event, [variance of -r,] run time, share of the time in
//! percent, and metrics, which are not read.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::ReadError;
use super::found::{Note, Request};
use super::runs::{Counted, Run, Runs};
use serde_json::{Map, Value};

const NOT_COUNTED: &str = "<not counted>";
const NOT_SUPPORTED: &str = "<not supported>";

/// A line of perf's, whatever its form.
struct Line {
    interval: Option<String>,
    count: String,
    unit: String,
    event: String,
    percent: f64,
    is_mean: bool,
}

/// Returns the separator of a file that `perf stat -x` wrote, from its first lines.
pub fn separator(text: &str) -> Option<char> {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let fits = |separator: &char| csv_line(line, *separator).is_some_and(|line| line.is_ok());
    [',', ';', '\t', '|', ':', ' '].into_iter().find(fits)
}

/// Returns whether a text is a count, or says that there is none.
fn is_count(text: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit() || ".,-+e".contains(letter);
    text == NOT_COUNTED
        || text == NOT_SUPPORTED
        || (text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
            && text.chars().all(is_digit))
}

/// Splits a line. An event such as `cpu/event=0x11,umask=1/` keeps its commas.
fn fields(line: &str, separator: char) -> Vec<String> {
    let mut fields: Vec<String> = vec![];
    let mut is_open = false;
    for part in line.split(separator) {
        match fields.last_mut() {
            Some(last) if is_open => {
                last.push(separator);
                last.push_str(part);
            }
            _ => fields.push(part.trim().to_owned()),
        }
        // `B/sec` is a unit, `cpu/…/` an event.
        let slashes = part.matches('/').count();
        let opens = part.contains('=') || is_open;
        is_open = opens && (slashes % 2 == 1) != is_open;
    }
    fields
}

/// Returns the fields of a line; an error says why they cannot be used; `None` if the line has
/// another form.
fn csv_line(line: &str, separator: char) -> Option<Result<Line, String>> {
    let fields = fields(line, separator);
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    // Where the count is: after the interval, and after a CPU or a thread.
    let at = (0..fields.len().min(4)).find(|&at| {
        let is_unit = fields
            .get(at + 1)
            .is_some_and(|unit| unit.parse::<f64>().is_err() && !is_count(unit));
        let is_event = fields
            .get(at + 2)
            .is_some_and(|event| !event.is_empty() && event.parse::<f64>().is_err());
        is_count(&fields[at]) && is_unit && is_event
    })?;
    let variance = fields.get(at + 3).filter(|text| text.ends_with('%'));
    let time = at + 3 + usize::from(variance.is_some());
    number(time)?;
    let percent = number(time + 1)?;
    let before = &fields[..at];
    let interval = before.first().filter(|text| text.parse::<f64>().is_ok());
    if before.len() > usize::from(interval.is_some()) {
        let of = &before[usize::from(interval.is_some())];
        return Some(Err(format!(
            "has counts of {of} alone: perf was told to split them (-A, --per-…)"
        )));
    }
    Some(Ok(Line {
        interval: interval.cloned(),
        count: fields[at].clone(),
        unit: fields[at + 1].clone(),
        event: fields[at + 2].clone(),
        percent,
        is_mean: variance.is_some(),
    }))
}

/// Takes lines and divides them into runs.
struct Calls<'r, 'a> {
    runs: &'r mut Runs<'a>,
    request: &'a Request,
    run: Run,
    interval: Option<String>,
    /// Whether comments say where calls begin.
    has_starts: bool,
    /// The events of the calls so far, if they are the same, and the line of the first that has
    /// others.
    events: Option<Vec<String>>,
    differs: Option<u64>,
}

impl<'r, 'a> Calls<'r, 'a> {
    fn new(request: &'a Request, runs: &'r mut Runs<'a>) -> Self {
        Self {
            runs,
            request,
            run: Run::default(),
            interval: None,
            has_starts: false,
            events: None,
            differs: None,
        }
    }

    fn end(&mut self) {
        let run = std::mem::take(&mut self.run);
        if !run.counts.is_empty() {
            let mut events: Vec<String> = run.counts.iter().map(|it| it.0.clone()).collect();
            events.sort_unstable();
            match &self.events {
                None => self.events = Some(events),
                Some(before) if *before == events => {}
                Some(_) => self.differs = self.differs.or(Some(run.number)),
            }
        }
        self.runs.push(run);
    }

    fn start(&mut self) {
        self.end();
        self.has_starts = true;
    }

    fn finish(mut self) -> Result<(), ReadError> {
        self.end();
        match self.differs {
            Some(line) if !self.has_starts && self.interval.is_none() => Err(ReadError::Csv {
                line,
                what: "calls of perf count different events, and nothing says where one ends: \
                       write them by -o FILE --append, or each to a file"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn take(&mut self, number: u64, line: Line) -> Result<(), ReadError> {
        if self.request.ignores(&line.event) {
            return Ok(());
        }
        let is_known = |(event, _): &(String, Counted)| *event == line.event;
        if line.interval != self.interval || self.run.counts.iter().any(is_known) {
            self.end();
        }
        if line.interval.is_some() {
            self.runs.note(Note::Intervals);
        }
        if line.is_mean {
            self.runs.note(Note::Means);
        }
        self.interval = line.interval;
        if self.run.counts.is_empty() {
            self.run.number = number;
        }
        let counted = counted(&line.count, &line.unit).map_err(|what| ReadError::Csv {
            line: number,
            what: format!("{}: {what}", line.event),
        })?;
        let counted = self
            .runs
            .of_share(number, &line.event, line.percent, counted)?;
        self.run.counts.push((line.event, counted));
        Ok(())
    }
}

/// Returns a count. Times in milliseconds become nanoseconds.
fn counted(count: &str, unit: &str) -> Result<Counted, String> {
    match (count, unit) {
        (NOT_COUNTED, _) => return Ok(Counted::Missing),
        (NOT_SUPPORTED, _) => return Ok(Counted::NotSupported),
        _ => {}
    }
    let no_number = || format!("\"{}\" is not a number", count.escape_debug());
    let checked = match unit {
        "" | "ns" => super::columns::number(count.as_bytes()).ok_or_else(no_number)?,
        "msec" => {
            let milliseconds: f64 = count.parse().map_err(|_| no_number())?;
            crate::data::checked_count((milliseconds * 1e6).round())
        }
        other => return Ok(Counted::Unit(other.to_owned())),
    };
    checked
        .map(Counted::Count)
        .map_err(|error| error.to_string())
}

/// Reads CSV.
pub fn read_csv<'a>(
    text: &str,
    separator: char,
    request: &'a Request,
    runs: &mut Runs<'a>,
) -> Result<(), ReadError> {
    let mut calls = Calls::new(request, runs);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with('#') {
            calls.start();
            continue;
        }
        // A further metric of the event before has neither a count nor an event.
        let is_metric = line
            .split(separator)
            .take(3)
            .all(|field| field.trim().is_empty());
        if line.is_empty() || is_metric {
            continue;
        }
        let fault = |what: String| ReadError::Csv { line: number, what };
        match csv_line(line, separator) {
            Some(Ok(line)) => calls.take(number, line)?,
            Some(Err(what)) => return Err(fault(what)),
            None => {
                let what = "is no line of perf stat -x: count, unit, event, run time, percent";
                return Err(fault(what.to_owned()));
            }
        }
    }
    calls.finish()
}

/// Reads JSON: an object on each line.
pub fn read_json<'a>(
    text: &str,
    request: &'a Request,
    runs: &mut Runs<'a>,
) -> Result<(), ReadError> {
    let mut calls = Calls::new(request, runs);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line
            .trim()
            .trim_start_matches('[')
            .trim_end_matches([',', ']']);
        if line.starts_with('#') {
            calls.start();
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let fault = |what: String| ReadError::Csv { line: number, what };
        let object: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| fault(format!("is no JSON object of perf stat -j: {error}")))?;
        if !object.contains_key("event") || !object.contains_key("counter-value") {
            // Further metrics of the event before.
            if object.contains_key("metric-value") {
                continue;
            }
            return Err(fault("has no `event` or no `counter-value`".to_owned()));
        }
        let line = json_line(&object).map_err(fault)?;
        calls.take(number, line)?;
    }
    calls.finish()
}

fn json_line(object: &Map<String, Value>) -> Result<Line, String> {
    for of in [
        "cpu",
        "core",
        "die",
        "socket",
        "node",
        "thread",
        "cgroup",
        "aggregate-number",
    ] {
        if let Some(value) = object.get(of) {
            return Err(format!(
                "has counts of {of} {value} alone: perf was told to split them (-A, --per-…)"
            ));
        }
    }
    let text = |key: &str| match object.get(key) {
        Some(Value::String(text)) => Ok(text.trim().to_owned()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(format!("`{key}` is {other}, not a text")),
        None => Ok(String::new()),
    };
    let percent = match object.get("pcnt-running") {
        None => 100.0,
        Some(value) => value
            .as_f64()
            .ok_or_else(|| format!("`pcnt-running` is {value}, not a number"))?,
    };
    let event = text("event")?;
    if event.is_empty() {
        return Err("`event` is empty".to_owned());
    }
    Ok(Line {
        interval: object.get("interval").map(Value::to_string),
        count: text("counter-value")?,
        unit: text("unit")?,
        event,
        percent,
        is_mean: object.contains_key("variance"),
    })
}
