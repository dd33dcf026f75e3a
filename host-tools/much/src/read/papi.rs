//! Reads the JSON that PAPI's high-level interface writes: threads, regions, and their counts.
//!
//! Two forms are known: PAPI 6 has arrays (`"threads": [{"id": …, "regions": [{NAME: {…}}]}]`),
//! PAPI 7 objects (`"threads": {ID: {"regions": {ID: {"name": NAME, …}}}}`). Each execution of a
//! region is a run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::columns::ReadError;
use super::found::{Note, Request};
use super::runs::{Counted, Run, Runs};
use serde_json::{Map, Value};

/// What PAPI adds to the counts of a region.
const NO_COUNTS: [&str; 5] = [
    "name",
    "parent_region_id",
    "region_count",
    "cycles",
    "real_time_nsec",
];

/// Returns whether a file has this form.
pub fn is_papi(text: &str) -> bool {
    text.contains("\"threads\"") && text.contains("\"regions\"")
}

/// Returns the members of an object or of an array, with their names or places.
fn members(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(members) => (0..)
            .zip(members)
            .map(|(at, value): (usize, _)| (at.to_string(), value))
            .collect(),
        _ => vec![],
    }
}

/// Reads one file.
pub fn read<'a>(text: &str, request: &'a Request, runs: &mut Runs<'a>) -> Result<(), ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| ReadError::Csv {
        line: error.line() as u64,
        what: format!("is not JSON: {error}"),
    })?;
    let fault = |field: &str, what: &str| ReadError::Json {
        field: field.to_owned(),
        what: what.to_owned(),
    };
    let threads = value.get("threads").map(members).unwrap_or_default();
    let [(_, thread)] = threads.as_slice() else {
        let number = threads.len();
        return Err(fault(
            "threads",
            &format!("the counts of one thread are needed, and there are {number}"),
        ));
    };
    let regions = thread.get("regions").map(members).unwrap_or_default();
    let mut named: Vec<(String, &Map<String, Value>)> = vec![];
    for (id, region) in regions {
        let Value::Object(fields) = region else {
            return Err(fault(&format!("regions.{id}"), "is not an object"));
        };
        match (fields.get("name").and_then(Value::as_str), fields.len()) {
            (Some(name), _) => named.push((name.to_owned(), fields)),
            (None, 1) => {
                let of = fields.iter().next().and_then(|(name, value)| {
                    value.as_object().map(|fields| (name.clone(), fields))
                });
                let of = of.ok_or_else(|| fault(&format!("regions.{id}"), "has no counts"))?;
                named.push(of);
            }
            _ => return Err(fault(&format!("regions.{id}"), "has no name")),
        }
    }
    named.retain(|(name, _)| !request.ignores(name));
    let Some((first, _)) = named.first() else {
        return Err(fault("regions", "there is no region"));
    };
    if let Some((other, _)) = named.iter().find(|(name, _)| name != first) {
        let what =
            format!("has the regions {first} and {other}: leave one out with --ignore {other}");
        return Err(fault("regions", &what));
    }
    for (number, (name, fields)) in (1..).zip(&named) {
        let mut run = Run {
            number,
            ..Run::default()
        };
        let mut skipped = vec![];
        for (event, value) in *fields {
            if NO_COUNTS.contains(&event.as_str()) {
                if matches!(event.as_str(), "cycles" | "real_time_nsec") {
                    skipped.push(event.clone());
                }
                continue;
            }
            if request.ignores(event) {
                continue;
            }
            let text = match value {
                Value::String(text) => text.trim().to_owned(),
                Value::Number(number) => number.to_string(),
                other => {
                    return Err(fault(
                        &format!("regions.{name}.{event}"),
                        &format!("{other} is not a count"),
                    ));
                }
            };
            let count = super::columns::number(text.as_bytes());
            let count = count
                .ok_or_else(|| format!("\"{}\" is not a count", text.escape_debug()))
                .and_then(|count| count.map_err(|error| error.to_string()))
                .map_err(|what| fault(&format!("regions.{name}.{event}"), &what))?;
            run.counts.push((event.clone(), Counted::Count(count)));
        }
        if !skipped.is_empty() {
            runs.note(Note::Columns(skipped));
        }
        runs.push(run);
    }
    Ok(())
}
