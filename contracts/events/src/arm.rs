//! Reads one file of Arm's own machine-readable event tables (ARM-software/data, folder `pmu`).
//!
//! The file is an object: `"_type": "Events"` and an array `events`, whose entries have `name`,
//! `code` as a number, and `description`. Other fields describe trace buses and manuals.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::EventId;
use crate::entry::{Entry, Text, span};
use crate::finding::Finding;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;

/// Returns the entries of a file in this format, or nothing if it has another one.
pub(crate) fn read(whole: &Object<'_>, report: &mut dyn FnMut(Finding)) -> Option<Vec<Entry>> {
    let Value::Array(events) = value(whole, "events")? else {
        return None;
    };
    let mut entries = vec![];
    for (number, event) in events.elements.iter().enumerate() {
        match entry(number, event) {
            Ok(entry) => entries.push(entry),
            Err(finding) => report(*finding),
        }
    }
    Some(entries)
}

fn value<'a>(object: &'a Object<'a>, key: &str) -> Option<&'a Value<'a>> {
    let property = object.properties.iter().find(|it| it.name.as_str() == key);
    property.map(|property| &property.value)
}

fn entry(number: usize, event: &Value<'_>) -> Result<Entry, Box<Finding>> {
    let left_out = |path: &str, why: &str| {
        let message = format!("left out: {why}");
        let finding = Finding::error(path, span(event.range()), message);
        let help = "an event has a `name` and a `code` from 0 to 65535";
        Box::new(finding.warning().label("this entry").help(help))
    };
    let at = format!("events[{number}]");
    let Value::Object(object) = event else {
        return Err(left_out(&at, "not an object"));
    };
    let text = |key: &str| match value(object, key) {
        Some(Value::StringLit(literal)) => {
            let words: Vec<&str> = literal.value.split_whitespace().collect();
            Some(Text {
                text: words.join(" "),
                span: span(literal.range),
            })
        }
        _ => None,
    };
    let is_usable = |text: &Text| !text.text.is_empty() && !text.text.chars().any(char::is_control);
    let name = text("name").filter(is_usable);
    let name = name.ok_or_else(|| left_out(&at, "the event has no name"))?;
    let path = format!("[{}]", name.text);
    let id = match value(object, "code") {
        Some(Value::NumberLit(number)) => number.value.parse().ok(),
        _ => None,
    };
    let id = id.ok_or_else(|| left_out(&path, "the event has no number"))?;
    Ok(Entry {
        path,
        span: span(event.range()),
        name: Some(name),
        id: Some(EventId(id)),
        brief: text("description").filter(is_usable),
        ..Entry::default()
    })
}
