//! Reads one file of an event table, in the JSON of perf's pmu-events or in Arm's own.
//!
//! Keys are spelled as upstream (`EventName`), or with blanks as in the RISC-V paper (`Event Name`,
//! section 3.3). An entry that is not understood is left out, with a warning that names it: other
//! entries of tables that grow elsewhere remain usable.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::EventId;
use crate::arm;
use crate::counters::{CounterMask, hex_digits};
use crate::entry::{Entry, Text, span};
use crate::finding::Finding;
use jsonc_parser::ast::{Object, ObjectProp, StringLit, Value};
use jsonc_parser::common::{Range as JsonRange, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::ops::Range;

/// JSON (RFC 8259), without the extensions that the library also reads.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Keys that are read, and those of upstream's files that say nothing that Cloison uses.
const READ: [&str; 12] = [
    "EventName",
    "EventCode",
    "ArchStdEvent",
    "BriefDescription",
    "PublicDescription",
    "CounterMask",
    "Bounds",
    "Bytes",
    "MetricName",
    "MetricExpr",
    "MetricGroup",
    "ScaleUnit",
];
const IGNORED: [&str; 5] = [
    "Errata",
    "Deprecated",
    "MetricThreshold",
    "DefaultMetricgroupName",
    "Compat",
];

/// The deepest nesting of a file: in Arm's own, an object of an array of objects of arrays.
const DEEPEST: usize = 8;

/// Returns the entries of a file; `report` gets what is wrong.
pub(crate) fn read(text: &str, report: &mut dyn FnMut(Finding)) -> Vec<Entry> {
    let syntax = |report: &mut dyn FnMut(Finding), span: Range<usize>, message: String| {
        report(Finding::error("syntax", span, message).label("here").help(
            "see RFC 8259 for the syntax of JSON: no comments, no comma after the last \
                     entry",
        ));
    };
    if let Some(at) = too_deep(text) {
        syntax(
            report,
            at..at + 1,
            "nested too deeply: an event table is an array of objects".to_owned(),
        );
        return Vec::new();
    }
    let value = match parse_to_ast(text, &CollectOptions::default(), &STRICT) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            let message = format!("not JSON: {}", error.kind());
            syntax(report, span(error.range()), message);
            return Vec::new();
        }
    };
    if let Some(Value::Object(whole)) = &value
        && let Some(entries) = arm::read(whole, report)
    {
        return entries;
    }
    let Some(Value::Array(entries)) = value else {
        let end = text.len().min(1);
        syntax(
            report,
            0..end,
            "an event table is an array: [ { \"EventName\": … }, … ]".to_owned(),
        );
        return Vec::new();
    };
    let entry = |(number, value): (usize, &Value<'_>)| match value {
        Value::Object(object) => Reader {
            report: &mut *report,
            object,
            path: format!("[{number}]"),
        }
        .read(),
        other => {
            let error = Finding::error(format!("[{number}]"), span(other.range()), "not an object");
            report(
                error
                    .label("expected { … }")
                    .help("each entry describes one event or metric"),
            );
            None
        }
    };
    entries
        .elements
        .iter()
        .enumerate()
        .filter_map(entry)
        .collect()
}

/// Returns where brackets are nested deeper than in any table: the parser calls itself for each of
/// them.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Some(at);
        }
    }
    None
}

/// Removes the blanks of the RISC-V paper's spelling.
fn plain(key: &str) -> String {
    key.replace(' ', "")
}

struct Reader<'a> {
    report: &'a mut dyn FnMut(Finding),
    object: &'a Object<'a>,
    path: String,
}

impl<'a> Reader<'a> {
    /// Returns the entry, or nothing if it is of no event of a core.
    fn read(mut self) -> Option<Entry> {
        let name = self.text("EventName");
        let metric = self.text("MetricName");
        let standard = self.text("ArchStdEvent");
        if let Some(named) = name.as_ref().or(metric.as_ref()).or(standard.as_ref()) {
            self.path = format!("[{}]", named.text);
        }
        if let Some(unit) = self.property("Unit") {
            let at = span(unit.range());
            let of_other = self.error("Unit", at, "left out: an event of a device, not of a core");
            (self.report)(
                of_other
                    .warning()
                    .label("its PMU")
                    .help("remove the entry to be rid of this warning"),
            );
            return None;
        }
        self.check_keys();
        let entry = Entry {
            path: self.path.clone(),
            span: span(self.object.range()),
            id: self.id(),
            brief: self.text("BriefDescription"),
            public: self.text("PublicDescription"),
            mask: self.mask(),
            bounds: self.text("Bounds"),
            bytes: self.text("Bytes"),
            expression: self.text("MetricExpr"),
            scale: self.text("ScaleUnit"),
            name,
            metric,
            standard,
        };
        self.is_complete(&entry).then_some(entry)
    }

    fn error(&self, key: &str, span: Range<usize>, message: impl Into<String>) -> Finding {
        Finding::error(format!("{}.{key}", self.path), span, message)
    }

    /// Reports a value that cannot be used. Only what Cloison itself adds to a table must be right:
    /// a limit that is dropped is not the table that was meant.
    fn refuse(
        &mut self,
        key: &str,
        range: JsonRange,
        message: impl Into<String>,
        label: &str,
        help: &str,
    ) {
        let error = self.error(key, span(range), message);
        (self.report)(error.label(label).help(help));
    }

    fn check_keys(&mut self) {
        let mut seen: Vec<(String, Range<usize>)> = Vec::new();
        for property in &self.object.properties {
            let (key, at) = (plain(property.name.as_str()), span(property.name.range()));
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == key) {
                let twice = self
                    .error(&key, at.clone(), format!("`{key}` is given twice"))
                    .label("again");
                (self.report)(
                    twice
                        .also(first.clone(), "first here")
                        .help("keep one of them"),
                );
            } else if !READ.contains(&key.as_str()) && !IGNORED.contains(&key.as_str()) {
                let unknown = self.error(
                    &key,
                    at.clone(),
                    format!("unknown field `{}`: not read", property.name.as_str()),
                );
                (self.report)(
                    unknown
                        .warning()
                        .label("unknown")
                        .unknown(&key, READ)
                        .help(format!("fields: {}", READ.join(", "))),
                );
            }
            seen.push((key, at));
        }
    }

    /// Returns whether an event has a code, or is one of the architecture, and a metric has an
    /// expression or is one of the architecture. Reports what is missing.
    fn is_complete(&mut self, entry: &Entry) -> bool {
        let (what, help) = match entry {
            Entry {
                metric: Some(_),
                name: Some(_),
                ..
            } => (
                "the entry is both an event and a metric",
                "give each an entry",
            ),
            Entry {
                standard: Some(_), ..
            }
            | Entry {
                metric: Some(_),
                expression: Some(_),
                ..
            } => return true,
            Entry {
                metric: Some(_), ..
            } => (
                "the metric has no expression",
                "add \"MetricExpr\": \"INST_RETIRED / CPU_CYCLES\"",
            ),
            Entry { name: None, .. } => (
                "the entry has no name",
                "add \"EventName\", \"ArchStdEvent\" or \"MetricName\"",
            ),
            Entry { id: None, .. } => {
                // A number that is none was reported with its place.
                if self.property("EventCode").is_some() {
                    return false;
                }
                ("the event has no number", "add \"EventCode\": \"0x08\"")
            }
            _ => return true,
        };
        let left_out = Finding::error(
            self.path.as_str(),
            entry.span.clone(),
            format!("left out: {what}"),
        );
        (self.report)(left_out.warning().label("this entry").help(help));
        false
    }

    fn property(&self, key: &str) -> Option<&'a ObjectProp<'a>> {
        self.object
            .properties
            .iter()
            .find(|property| plain(property.name.as_str()) == key)
    }

    fn literal(&mut self, key: &str) -> Option<&'a StringLit<'a>> {
        match &self.property(key)?.value {
            Value::StringLit(text) => Some(text),
            other => {
                self.refuse(
                    key,
                    other.range(),
                    format!("`{key}` is not a text"),
                    "expected \"…\"",
                    "numbers are texts too: \"0x08\"",
                );
                None
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<Text> {
        let literal = self.literal(key)?;
        // A description may have line breaks.
        let words: Vec<&str> = literal.value.split_whitespace().collect();
        let found = Text {
            text: words.join(" "),
            span: span(literal.range),
        };
        if found.text.is_empty() || found.text.chars().any(char::is_control) {
            self.refuse(
                key,
                literal.range,
                format!("`{key}` is empty, or has control characters"),
                "here",
                "write one line of text",
            );
            return None;
        }
        Some(found)
    }

    fn id(&mut self) -> Option<EventId> {
        let literal = self.literal("EventCode")?;
        let number = hex_digits(&literal.value).map(|digits| u16::from_str_radix(digits, 16));
        if let Some(Ok(number)) = number {
            return Some(EventId(number));
        }
        let message = format!("left out: `{}` is not an event's number", literal.value);
        let left_out = self.error("EventCode", span(literal.range), message);
        (self.report)(
            left_out
                .warning()
                .label("a number of 16 bits")
                .help("write it in hexadecimal: \"0x08\""),
        );
        None
    }

    fn mask(&mut self) -> Option<CounterMask> {
        let literal = self.literal("CounterMask")?;
        let Some(mask) = CounterMask::parse(&literal.value) else {
            self.refuse(
                "CounterMask",
                literal.range,
                format!("`{}` is not a mask", literal.value),
                "up to 32 bits",
                "a set bit is a counter that cannot count: \"0xfffff8ff\"",
            );
            return None;
        };
        if mask.able().is_empty() {
            self.refuse(
                "CounterMask",
                literal.range,
                "no counter can count the event",
                "every bit is set",
                "a set bit is a counter that cannot count it",
            );
            return None;
        }
        if mask.is_widened {
            let message = format!("`{}` has fewer than 32 bits", literal.value);
            let warning = self
                .error("CounterMask", span(literal.range), message)
                .warning();
            let able = mask.able();
            let help = format!(
                "the other counters are taken not to count the event: {mask}, counters {able}"
            );
            (self.report)(warning.label("widened with ones").help(help));
        }
        Some(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Returns the entries of a text, and what is wrong in it: line, column, field, message.
    fn entries(text: &str) -> (Vec<Entry>, Vec<String>) {
        let mut shown = Vec::new();
        let entries = read(text, &mut |finding: Finding| {
            let before = &text[..finding.at.span.start];
            let column = before.rsplit('\n').next().map_or(0, str::len) + 1;
            let (line, field) = (finding.line(text), &finding.field);
            shown.push(format!("{line}:{column} {field}: {}", finding.message));
        });
        (entries, shown)
    }

    #[test]
    fn the_papers_spelling_and_mask_are_read() {
        let (found, problems) = entries(
            r#"[{ "Public Description": "At length.", "Brief Description": "In short.", "Event Code": "0x11",
                 "Counter Mask": "0xF8FF", "Event Name": "EXAMPLE_EVENT" }]"#,
        );
        assert_eq!(
            problems,
            ["2:34 [EXAMPLE_EVENT].CounterMask: `0xF8FF` has fewer than 32 bits"]
        );
        let [
            Entry {
                id: Some(EventId(0x11)),
                mask: Some(mask),
                ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(mask.able().to_string(), "8-10");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, wanted) in [
            ("", "1:1 syntax: an event table is an array"),
            ("{}", "1:1 syntax: an event table is an array"),
            ("[{]", "1:3 syntax: not JSON"),
            ("[// no\n]", "1:2 syntax: not JSON"),
            ("[3]", "1:2 [0]: not an object"),
            ("[{}]", "1:2 [0]: left out: the entry has no name"),
            (
                r#"[{"EventName": 3}]"#,
                "1:16 [0].EventName: `EventName` is not a text",
            ),
            (
                r#"[{"EventName": ""}]"#,
                "1:16 [0].EventName: `EventName` is empty",
            ),
            (
                r#"[{"EventName": "A"}]"#,
                "1:2 [A]: left out: the event has no number",
            ),
            (
                r#"[{"EventName": "A", "EventCode": "8"}]"#,
                "1:34 [A].EventCode: left out: `8` is not an event's number",
            ),
            (
                r#"[{"EventName": "A", "EventCode": "0x+8"}]"#,
                "1:34 [A].EventCode: left out: `0x+8` is not",
            ),
            (
                r#"[{"EventName": "A", "EventCode": "0x10000"}]"#,
                "1:34 [A].EventCode: left out: `0x10000` is not",
            ),
            (
                r#"[{"EventNam": "A"}]"#,
                "1:3 [0].EventNam: unknown field `EventNam`",
            ),
            (
                r#"[{"ArchStdEvent": "A", "Arch Std Event": "B"}]"#,
                "1:24 [A].ArchStdEvent: `ArchStdEvent` is given twice",
            ),
            (
                r#"[{"ArchStdEvent": "A", "CounterMask": "0xffffffff"}]"#,
                "1:39 [A].CounterMask: no counter can",
            ),
            (
                r#"[{"ArchStdEvent": "A", "CounterMask": "0x1ffffffff"}]"#,
                "1:39 [A].CounterMask: `0x1ffffffff` is not",
            ),
            (
                r#"[{"ArchStdEvent": "A", "CounterMask": "255"}]"#,
                "1:39 [A].CounterMask: `255` is not a mask",
            ),
            (
                r#"[{"MetricName": "A"}]"#,
                "1:2 [A]: left out: the metric has no expression",
            ),
            (
                r#"[{"MetricName": "A", "EventName": "B", "MetricExpr": "B"}]"#,
                "1:2 [B]: left out: the entry is both",
            ),
        ] {
            let (_, problems) = entries(text);
            assert!(
                problems
                    .first()
                    .is_some_and(|first| first.starts_with(wanted)),
                "{text}: {problems:?}"
            );
        }
    }

    #[test]
    fn deep_files_are_refused_before_the_parser_sees_them() {
        let (_, problems) = entries(&"[".repeat(1 << 20));
        assert_eq!(
            problems,
            ["1:9 syntax: nested too deeply: an event table is an array of objects"]
        );
        let (found, problems) = entries(r#"[{"ArchStdEvent": "[[[[{{{{\"[[[["}]"#);
        assert_eq!((found.len(), problems.len()), (1, 0));
    }

    #[test]
    fn events_of_arms_form_have_a_number() {
        let (found, problems) = entries(
            r#"{"_type": "Events", "cpu": "Example", "refs": [{"ref": "TRM", "public": true}],
                "events": [{"code": 23, "refs": [0, 1], "name": "L2D_CACHE_REFILL", "description": "Refill\n of L2"},
                           {"code": 4, "description": "no name"}, {"name": "NO_CODE"}, 3,
                           {"code": 65536, "name": "LARGE"}]}"#,
        );
        assert_eq!(
            problems,
            [
                "3:28 events[1]: left out: the event has no name",
                "3:67 [NO_CODE]: left out: the event has no number",
                "3:88 events[3]: left out: not an object",
                "4:28 [LARGE]: left out: the event has no number",
            ]
        );
        assert_eq!((found.len(), found[0].id), (1, Some(EventId(23))));
        let brief = found[0].brief.as_ref().map(|brief| brief.text.as_str());
        assert_eq!(brief, Some("Refill of L2"));
    }

    #[test]
    fn other_objects_are_no_table() {
        for text in ["{}", r#"{"events": 3}"#, r#"{"other": []}"#] {
            let (found, problems) = entries(text);
            assert!(found.is_empty() && problems[0].starts_with("1:1 syntax: an event table"));
        }
    }
}
