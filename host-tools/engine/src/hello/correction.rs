//! The wrong fields of a board file by a hello image's log, and the file with the right values.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::log::Log;
use cloison_config::BoardFile;
use cloison_config::problem::{Problem, SourceFile};
use cloison_config::quantity::show_size;
use cloison_hello::line::{Line, NONE, Verdict};
use miette::{IntoDiagnostic, Result};
use std::ops::Range;
use toml_edit::{Document, DocumentMut, Item, Value};

/// What a log says against a board file.
#[derive(Clone, Debug)]
pub struct Correction {
    /// The wrong fields, with their places in the file.
    pub problems: Vec<Problem>,
    /// What is wrong, and no field of the file: the firmware, for example.
    pub others: Vec<String>,
    /// The file with the values that were found, and the same comments.
    pub text: String,
    /// The fields whose right values are not known.
    pub unknown: Vec<String>,
}

/// A step on the way to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Returns the way to the value of a line's key: `ram[1].size`.
fn steps(key: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, Some(index.strip_suffix(']')?.parse().ok()?)),
            None => (part, None),
        };
        steps.push(Step::Key(name));
        steps.extend(index.map(Step::Index));
    }
    Some(steps)
}

/// How a value is written in a board file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Size,
    Number,
    /// An address or affinity, in hexadecimal.
    Address,
    Flag,
}

/// Returns the form of the field of a key, if a board file has one.
fn form(key: &str) -> Option<Form> {
    let (table, field) = key.split_once('.').unwrap_or(("", key));
    let bare = table.split('[').next().unwrap_or_default();
    Some(match (bare, field) {
        ("", "cpu") | ("console" | "telemetry", "kind") => Form::Text,
        ("cache" | "ram" | "memory", "size") => Form::Size,
        ("cache", "ways" | "line") | ("pmu", "counters" | "irq") | ("gic", "interrupts") => {
            Form::Number
        }
        ("console" | "telemetry", "irq") => Form::Number,
        ("pmu", field) if field.starts_with("irqs[") => Form::Number,
        ("console" | "telemetry", "base") | ("ram" | "memory" | "device", "start") => Form::Address,
        ("gic", "mediated_timer") | ("firmware", "eemi") => Form::Flag,
        ("gic", "gicd" | "gicr" | "gicc" | "gicc_dir" | "gich" | "gicv" | "gicv_dir") => {
            Form::Address
        }
        ("", field) if field.starts_with("cores[") => Form::Address,
        _ => return None,
    })
}

/// Returns a value as the file writes it.
fn value(form: Form, found: &str) -> Option<Value> {
    Some(match form {
        Form::Text => found.into(),
        Form::Size => {
            // As board files have it: `1M`.
            let size = show_size(found.parse().ok()?);
            let short = size.replace(' ', "").replace("iB", "");
            short.replace("bytes", "").into()
        }
        Form::Number | Form::Address | Form::Flag => found.parse().ok()?,
    })
}

/// What is to be done about a line that concerns no field.
fn advice(key: &str) -> &'static str {
    if key == "cores" {
        return "add it to `cores`: the board boots on it";
    }
    match key.split(['.', '[']).next().unwrap_or_default() {
        "coherency" => "the firmware is not one for this CPU: caches would not be coherent",
        "serror" => "an access of the boot loader failed: Cloison would stop at boot",
        "timer" => "the firmware must set CNTFRQ_EL0, and let EL2 have the counter and its timer",
        "psci" => "the board needs a Trusted Firmware-A, or `spin_table` and `[power_off]`",
        "gic" => "Cloison needs a GICv3, or a GICv2 with the virtualization extensions",
        "telemetry" => "nothing leaves the second UART: its clock may be off",
        "cores" => "cores that differ are not supported: leave one kind out of `cores`",
        _ => "see docs/porting.md",
    }
}

/// Compares a board file with a log.
///
/// # Errors
///
/// If the file is not TOML: it was read before.
pub fn correction(board: &BoardFile, log: &Log) -> Result<Correction> {
    let file = SourceFile::new(&board.path, board.source.clone());
    let placed = Document::parse(board.source.as_str()).into_diagnostic()?;
    let mut changed: DocumentMut = board.source.parse().into_diagnostic()?;
    let mut correction = Correction {
        problems: Vec::new(),
        others: Vec::new(),
        text: String::new(),
        unknown: Vec::new(),
    };
    for line in log.with(Verdict::Wrong) {
        let (Some(form), Some(steps)) = (form(&line.key), steps(&line.key)) else {
            correction.other(line);
            continue;
        };
        let found = value(form, &line.found).filter(|_| line.found != NONE);
        let span = place(placed.as_item(), &steps);
        correction
            .problems
            .push(problem(&file, line, span, form, found.as_ref()));
        let is_set = found.is_some_and(|found| set(changed.as_item_mut(), &steps, found));
        if !is_set {
            correction.unknown.push(line.key.clone());
        }
    }
    correction.text = changed.to_string();
    Ok(correction)
}

impl Correction {
    /// Adds a line that concerns no field. The colors follow from the cache, whose fields are there.
    fn other(&mut self, line: &Line) {
        if line.key != "colors" {
            self.others.push(format!(
                "{}: expected {}, found {} ({}): {}",
                line.key,
                line.expected,
                line.found,
                line.remark,
                advice(&line.key)
            ));
        }
    }
}

/// Returns a number of bytes as a size.
fn shown(form: Form, text: &str) -> String {
    let bytes = (form == Form::Size).then(|| text.parse().ok()).flatten();
    bytes.map_or_else(|| text.to_owned(), show_size)
}

/// Returns the report on a field.
fn problem(
    file: &SourceFile,
    line: &Line,
    span: Range<usize>,
    form: Form,
    found: Option<&Value>,
) -> Problem {
    let expected = shown(form, &line.expected);
    let remark = if line.remark.is_empty() {
        String::new()
    } else {
        format!(" ({})", line.remark)
    };
    let (message, label, help) = match found {
        Some(value) => {
            let found = shown(form, &line.found);
            let name = line.key.rsplit('.').next().unwrap_or_default();
            let name = name.split('[').next().unwrap_or_default();
            let help = if line.key.ends_with(']') {
                format!("write {value} in its place")
            } else {
                format!("write {name} = {value}")
            };
            (
                format!("`{}`: expected {expected}, found {found}{remark}", line.key),
                format!("the board has {found}"),
                help,
            )
        }
        None => (
            format!("`{}`: expected {expected}, found nothing{remark}", line.key),
            "the board does not have this".to_owned(),
            "look the right value up in the manual or the device tree: the image could not find it"
                .to_owned(),
        ),
    };
    Problem::error(file, &line.key, span, message)
        .label(label)
        .help(help)
}

/// Returns where a value is in the file, or the nearest table around it.
fn place(root: &Item, steps: &[Step<'_>]) -> Range<usize> {
    let (mut item, mut span) = (root, 0..0);
    for step in steps {
        let next = match step {
            Step::Key(key) => item.get(key),
            Step::Index(index) => item.get(index),
        };
        let Some(next) = next else { break };
        span = next.span().unwrap_or(span);
        item = next;
    }
    span
}

/// Replaces a value, whose comment stays, or adds it to its table. Returns whether it could.
fn set(root: &mut Item, steps: &[Step<'_>], mut new: Value) -> bool {
    let Some((last, way)) = steps.split_last() else {
        return false;
    };
    let mut item = root;
    for step in way {
        let next = match step {
            Step::Key(key) => item.get_mut(key),
            Step::Index(index) => item.get_mut(index),
        };
        let Some(next) = next else { return false };
        item = next;
    }
    let old = match last {
        Step::Key(key) => item.get_mut(key),
        Step::Index(index) => item.get_mut(index),
    };
    match (old, last) {
        (Some(old), _) => {
            if let Some(old) = old.as_value() {
                *new.decor_mut() = old.decor().clone();
            }
            *old = Item::Value(new);
            true
        }
        (None, Step::Key(key)) => item
            .as_table_like_mut()
            .is_some_and(|table| table.insert(key, Item::Value(new)).is_none()),
        (None, Step::Index(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{read_log, tests::printed};
    use super::*;
    use crate::configuration;
    use Verdict::{Noted, Right, Wrong};
    use cloison_hello::line::{BEGIN, END};

    fn corrected(lines: &[(&str, &str, &str, Verdict)]) -> Correction {
        let board = configuration::board("zcu102").expect("it is shipped");
        let mut all = vec![(BEGIN, "zcu102", "0", Noted)];
        all.extend(lines);
        all.push((END, "0", "0", Noted));
        let log = read_log(&printed(&all)).expect("a log");
        correction(&board, &log).expect("a board file")
    }

    #[test]
    fn each_wrong_field_is_named_with_its_line_and_corrected_with_its_comment() {
        let source = configuration::board("zcu102").expect("shipped").source;
        let fields = [
            ("cpu", "cortex-a53", "cortex-a72", "cpu = \"cortex-a72\""),
            ("cores[2]", "0x2", "0x100", "[0, 1, 0x100, 3]"),
            ("cache.size", "1048576", "2097152", "size = \"2M\""),
            ("cache.ways", "16", "8", "ways = 8"),
            ("ram[0].size", "2147483648", "1073741824", "size = \"1G\""),
            ("console.irq", "53", "60", "irq = 60"),
            ("telemetry.kind", "cadence", "pl011", "kind = \"pl011\""),
            ("gic.gich", "0xf9040000", "0xf9050000", "gich = 0xf9050000"),
            ("pmu.irqs[3]", "178", "179", "[175, 176, 177, 179]"),
        ];
        for (key, expected, found, written) in fields {
            let result = corrected(&[("level", "2", "2", Right), (key, expected, found, Wrong)]);
            assert!(result.text.contains(written), "{key}: {}", result.text);
            assert_eq!(
                result.text.matches('#').count(),
                source.matches('#').count()
            );
            assert!(
                result.unknown.is_empty() && result.others.is_empty(),
                "{key}"
            );
            let [problem] = &result.problems[..] else {
                panic!("{key}: {:?}", result.problems);
            };
            assert_eq!(problem.field(), key);
            let (line, _) = problem.line_and_column();
            let name = key.rsplit('.').next().expect("a name");
            let name = name.split('[').next().expect("a name");
            let there = source.lines().nth(line - 1).expect("a line");
            assert!(there.contains(name), "{key}: {there}");
        }
        // The rest is as it was.
        let result = corrected(&[("cache.ways", "16", "8", Wrong)]);
        assert_eq!(result.text.replace("ways = 8", "ways = 16"), source);
    }

    #[test]
    fn what_has_no_value_or_no_field_is_named_and_not_changed() {
        let source = configuration::board("zcu102").expect("shipped").source;
        let result = corrected(&[
            ("telemetry.base", "0xff010000", "-", Wrong),
            ("psci", "yes", "-", Wrong),
            ("colors", "16", "32", Wrong),
        ]);
        assert_eq!(result.text, source);
        assert_eq!(result.unknown, ["telemetry.base"]);
        let help = result.problems[0].fix().expect("a fix");
        assert!(help.contains("manual"), "{help}");
        assert_eq!(result.others.len(), 1, "{:?}", result.others);
        assert!(result.others[0].contains("Trusted Firmware-A"));
    }

    #[test]
    fn a_flag_that_the_file_does_not_have_is_added_to_its_table() {
        let board = configuration::board("zcu102").expect("shipped");
        let source = board.source.replace("mediated_timer = true\n", "");
        let board = BoardFile { source, ..board };
        let lines = [
            (BEGIN, "zcu102", "0", Noted),
            ("gic.mediated_timer", "false", "true", Wrong),
            (END, "0", "0", Noted),
        ];
        let log = read_log(&printed(&lines)).expect("a log");
        let text = correction(&board, &log).expect("a board file").text;
        let (_, gic) = text.split_once("[gic]").expect("its table");
        let (gic, _) = gic.split_once("[pmu]").expect("the next table");
        assert!(gic.contains("mediated_timer = true"), "{gic}");
    }
}
