//! A file of verdicts: written by a validation, read in review and by whoever decides on a quota.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::judge::{Evidence, Judgment, Tried, Verdict};
use crate::node::{Field, Table};
use crate::problem::Errors;
use std::fmt::{self, Write};
use std::path::Path;

/// The machine that a validation ran on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// QEMU as it is.
    Stock,
    /// QEMU with `-icount`.
    Icount,
    /// The board model.
    Model,
    /// The board itself.
    Hardware,
}

impl Machine {
    /// All machines with their names in files.
    pub const ALL: [(&str, Self); 4] =
        [("stock", Self::Stock), ("icount", Self::Icount), ("model", Self::Model), ("hardware", Self::Hardware)];

    /// Returns its name in files.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, machine)| *machine == self).map_or("", |(word, _)| word)
    }
}

/// What is recorded of a validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The CPU whose events were validated.
    pub cpu: String,
    /// The board.
    pub board: String,
    /// What executed the benchmarks.
    pub machine: Machine,
    /// The state of the prefetchers.
    pub prefetcher: String,
    /// The program that judged, with its version.
    pub tool: String,
    /// When it did, in UTC.
    pub date: String,
    /// The verdicts.
    pub verdicts: Vec<Recorded>,
}

/// The verdict on an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The event's name.
    pub event: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason.
    pub because: String,
    /// How many benchmarks speak for or against it.
    pub benchmarks: usize,
}

/// Text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// What heads a file of verdicts.
pub struct Head<'a> {
    /// The CPU whose events were validated.
    pub cpu: &'a str,
    /// The board.
    pub board: &'a str,
    /// What executed the benchmarks.
    pub machine: Machine,
    /// The state of the prefetchers.
    pub prefetcher: &'a str,
    /// The program that judged, with its version, and the emulator's.
    pub tool: &'a str,
    /// When it did, in UTC.
    pub date: &'a str,
}

/// Formats a validation as [`Record::load`] reads it, with all evidence.
pub fn to_toml(head: &Head<'_>, judgments: &[Judgment]) -> String {
    let mut text =
        "# Written by `cloison events validate`, which also replaces it: run it again instead of editing this.\n"
            .to_owned();
    let lines = [
        ("cpu", head.cpu),
        ("board", head.board),
        ("machine", head.machine.word()),
        ("prefetcher", head.prefetcher),
        ("tool", head.tool),
        ("date", head.date),
    ];
    for (key, value) in lines {
        text += &format!("{key} = {}\n", quoted(value));
    }
    for judgment in judgments {
        // Writing to a string cannot fail.
        let _ = write_judgment(&mut text, judgment);
    }
    text
}

fn write_judgment(text: &mut String, judgment: &Judgment) -> fmt::Result {
    writeln!(text, "\n[[verdict]]\nevent = {}", quoted(&judgment.event))?;
    writeln!(text, "verdict = {}", quoted(&judgment.verdict.to_string()))?;
    if let Some(counts) = &judgment.counts {
        writeln!(text, "counts = {}", quoted(counts))?;
    }
    writeln!(text, "because = {}", quoted(&judgment.because))?;
    if !judgment.unexercised.is_empty() {
        let names: Vec<String> = judgment.unexercised.iter().map(|name| quoted(name)).collect();
        writeln!(text, "unexercised = [{}]", names.join(", "))?;
    }
    if !judgment.tried.is_empty() {
        writeln!(text, "tried = [")?;
        for Tried { counts, kind, outcome } in &judgment.tried {
            writeln!(text, "    {},", quoted(&format!("{} ({}): {outcome}", counts, kind.word())))?;
        }
        writeln!(text, "]")?;
    }
    writeln!(text, "evidence = [")?;
    for Evidence { benchmark, expected, explained, sample, agrees } in &judgment.evidence {
        let explained = if explained == expected { String::new() } else { format!("explained = {explained}, ") };
        writeln!(
            text,
            "    {{ benchmark = {}, expected = {expected}, {explained}mean = {:.1}, spread = {:.1}, runs = {}, outliers = \
             {}, agrees = {agrees} }},",
            quoted(benchmark),
            sample.mean,
            sample.spread,
            sample.runs,
            sample.outliers
        )?;
    }
    writeln!(text, "]")
}

impl Record {
    /// Reads and validates a file of verdicts.
    ///
    /// # Errors
    ///
    /// Returns all errors of the file with their positions.
    pub fn load(path: &Path) -> Result<Self, Errors> {
        super::load(path, "a file of verdicts", read)
    }

    /// Returns the verdict on an event.
    pub fn of(&self, event: &str) -> Option<&Recorded> {
        self.verdicts.iter().find(|recorded| recorded.event == event)
    }
}

/// The advice on a file that `events validate` did not write like this.
const WRITTEN: &str = "`cloison events validate` writes it";

fn text(table: &Table<'_>, key: &'static str) -> Option<String> {
    table.required(key, WRITTEN)?.string("a text").map(str::to_owned)
}

fn read(root: &Table<'_>) -> Option<Record> {
    let (cpu, board) = (text(root, "cpu"), text(root, "board"));
    let machine = root.required("machine", WRITTEN).and_then(|field| field.one_of("machine", &Machine::ALL));
    let (prefetcher, tool, date) = (text(root, "prefetcher"), text(root, "tool"), text(root, "date"));
    let tables = root.tables("verdict");
    if tables.is_empty() {
        let error = root.error("verdict", 0..0, "there is no verdict").label("in this file");
        root.push(error.help(WRITTEN));
    }
    let mut verdicts: Vec<Recorded> = vec![];
    for mut table in tables {
        let Some(recorded) = read_verdict(&mut table) else { continue };
        if verdicts.iter().any(|other| other.event == recorded.event) {
            let error = table.error("event", table.span(), format!("there are two verdicts on {}", recorded.event));
            table.push(error.label("again").help(WRITTEN));
        }
        verdicts.push(recorded);
    }
    root.finish_ref();
    Some(Record {
        cpu: cpu?,
        board: board?,
        machine: machine?,
        prefetcher: prefetcher?,
        tool: tool?,
        date: date?,
        verdicts,
    })
}

fn read_verdict(table: &mut Table<'_>) -> Option<Recorded> {
    let event = text(table, "event")?;
    table.rename(&event);
    let verdict = table.required("verdict", WRITTEN).and_then(|field| field.one_of("verdict", &Verdict::ALL));
    let because = text(table, "because");
    let evidence = table.required("evidence", "a verdict without evidence is none");
    let evidence = evidence.and_then(|field| {
        let benchmarks = field.elements()?;
        if benchmarks.is_empty() {
            field.push(field.error("no benchmark speaks for it").label("empty").help(WRITTEN));
        }
        let read: Vec<bool> = benchmarks.iter().filter_map(read_evidence).collect();
        check_evidence(&field, verdict, &read);
        Some(read.len())
    });
    // For readers: the formula, and what was tried.
    for key in ["counts", "unexercised", "tried"] {
        table.optional(key);
    }
    table.finish_ref();
    Some(Recorded { event, verdict: verdict?, because: because?, benchmarks: evidence? })
}

/// Records a verdict that its evidence contradicts: somebody edited one of the two.
fn check_evidence(field: &Field<'_>, verdict: Option<Verdict>, agrees: &[bool]) {
    let explained = [Verdict::Trusted, Verdict::ExpectationCorrected, Verdict::Corrected, Verdict::Fitted];
    let against = agrees.iter().filter(|agrees| !**agrees).count();
    if let Some(verdict) = verdict.filter(|verdict| explained.contains(verdict) && against > 0) {
        let message = format!("{against} of {} benchmarks contradict the verdict `{verdict}`", agrees.len());
        field.push(field.error(message).label("agrees = false").help("run `cloison events validate` again"));
    }
}

/// Reads whether a benchmark agrees with the verdict, and checks its numbers.
fn read_evidence(field: &Field<'_>) -> Option<bool> {
    let table = field.table()?;
    text(&table, "benchmark")?;
    for key in ["expected", "mean", "spread"] {
        table.required(key, WRITTEN)?.number("a number of events")?;
    }
    if let Some(field) = table.optional("explained") {
        field.number("a number of events")?;
    }
    let whole = |key| table.required(key, WRITTEN)?.integer("a number of runs").map(|number| (key, number));
    let (runs, outliers) = (whole("runs")?.1, whole("outliers")?.1);
    if outliers > runs || runs == 0 {
        let error = table.error("outliers", table.span(), format!("{outliers} of {runs} runs cannot be outliers"));
        table.push(error.label("here").help(WRITTEN));
    }
    let agrees = table.required("agrees", WRITTEN)?.boolean();
    table.finish_ref();
    agrees
}
