//! A file of verdicts: written by a validation, read by reviewers and by the check of quotas.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::judge::{Evidence, Explanation, Judgment};
use crate::document::{self, Field, Table};
use crate::problem::Errors;
use cloison_events::Verdict;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::path::Path;

/// The machine that a validation ran on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    pub const ALL: [(&str, Self); 4] = [
        ("stock", Self::Stock),
        ("icount", Self::Icount),
        ("model", Self::Model),
        ("hardware", Self::Hardware),
    ];

    /// Returns its name in files.
    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, machine)| *machine == self)
            .map_or("", |(word, _)| word)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stock => "stock QEMU",
            Self::Icount => "QEMU with --icount",
            Self::Model => "the board model",
            Self::Hardware => "the board itself",
        })
    }
}

/// The format of these files. Files of version 1 had no field `version`, and did not name the
/// model.
const VERSION: u64 = 2;

/// The record of a validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The CPU whose events were validated.
    pub cpu: String,
    /// The board.
    pub board: String,
    /// The machine that executed the benchmarks.
    pub machine: Machine,
    /// The board model, by the name of its file in `configs/models`; on other machines there is
    /// none.
    pub model: Option<String>,
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
    /// The evidence of each benchmark.
    pub evidence: Vec<Observed>,
}

/// The evidence of one benchmark about an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The benchmark's name.
    pub benchmark: String,
    /// The expected count by the event's documentation.
    pub expected: f64,
    /// The mean of its counts.
    pub mean: f64,
    /// Whether every run is close enough to the verdict's explanation.
    pub agrees: bool,
}

impl Recorded {
    /// Returns the benchmark that is the strongest evidence against the event; if none is, the one
    /// with the greatest expectation.
    pub fn telling(&self) -> Option<&Observed> {
        let gap = |it: &&Observed| (!it.agrees, (it.mean - it.expected).abs(), it.expected);
        self.evidence.iter().max_by(|a, b| {
            let (a, b) = (gap(a), gap(b));
            a.0.cmp(&b.0)
                .then(a.1.total_cmp(&b.1))
                .then(a.2.total_cmp(&b.2))
        })
    }
}

/// The subject that a file of verdicts must have.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The CPU.
    pub cpu: &'a str,
    /// The board's name.
    pub board: &'a str,
    /// The machine that executes its systems.
    pub machine: Machine,
    /// The name of the board model's file, if it is one.
    pub model: Option<&'a str>,
}

/// Text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The head of a file of verdicts.
pub struct Head<'a> {
    /// The CPU whose events were validated.
    pub cpu: &'a str,
    /// The board.
    pub board: &'a str,
    /// The machine that executed the benchmarks.
    pub machine: Machine,
    /// The board model, by the name of its file.
    pub model: Option<&'a str>,
    /// The state of the prefetchers.
    pub prefetcher: &'a str,
    /// The program that judged, with its version, and the emulator's.
    pub tool: &'a str,
    /// When it did, in UTC.
    pub date: &'a str,
}

/// Formats a validation as [`Record::load`] reads it, with all evidence.
pub fn to_toml(head: &Head<'_>, judgments: &[Judgment]) -> String {
    let mut text = "# Written by `cloison events validate`, which also replaces it: run it again \
                    instead of editing this.\n"
        .to_owned();
    text += &format!("version = {VERSION}\n");
    let lines = [
        ("cpu", Some(head.cpu)),
        ("board", Some(head.board)),
        ("machine", Some(head.machine.word())),
        ("model", head.model),
        ("prefetcher", Some(head.prefetcher)),
        ("tool", Some(head.tool)),
        ("date", Some(head.date)),
    ];
    for (key, value) in lines
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    {
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
        let names: Vec<String> = judgment
            .unexercised
            .iter()
            .map(|name| quoted(name))
            .collect();
        writeln!(text, "unexercised = [{}]", names.join(", "))?;
    }
    if !judgment.tried.is_empty() {
        writeln!(text, "tried = [")?;
        for Explanation {
            counts,
            kind,
            outcome,
        } in &judgment.tried
        {
            writeln!(
                text,
                "    {},",
                quoted(&format!("{} ({}): {outcome}", counts, kind.word()))
            )?;
        }
        writeln!(text, "]")?;
    }
    writeln!(text, "evidence = [")?;
    for Evidence {
        benchmark,
        expected,
        explained,
        sample,
        agrees,
        furthest: _,
    } in &judgment.evidence
    {
        let explained = if explained == expected {
            String::new()
        } else {
            format!("explained = {explained}, ")
        };
        writeln!(
            text,
            "    {{ benchmark = {}, expected = {expected}, {explained}mean = {:.1}, spread = \
             {:.1}, runs = {}, outliers = {}, agrees = {agrees} }},",
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
        document::load(path, "name a file of verdicts", read)
    }

    /// Reads a file of verdicts like [`Record::load`]. The file must be about this subject.
    ///
    /// # Errors
    ///
    /// Returns all errors of the file with their positions.
    pub fn load_of(path: &Path, subject: &Subject<'_>) -> Result<Self, Errors> {
        document::load(path, "name a file of verdicts", |root| {
            let record = read(root)?;
            let named = [
                ("cpu", record.cpu.as_str(), subject.cpu),
                ("board", &record.board, subject.board),
                ("machine", record.machine.word(), subject.machine.word()),
                (
                    "model",
                    record.model.as_deref().unwrap_or_default(),
                    subject.model.unwrap_or_default(),
                ),
            ];
            for (key, found, wanted) in named
                .into_iter()
                .filter(|(_, found, wanted)| found != wanted)
            {
                let span = root.optional(key).map_or(0..0, |field| field.span());
                let error = root.error(
                    key,
                    span,
                    format!("the verdicts are on another {key}: `{found}`"),
                );
                root.push(
                    error
                        .label(format!("not `{wanted}`"))
                        .help("`cloison events validate` writes a file for each board and machine"),
                );
            }
            Some(record)
        })
    }

    /// Returns the verdict on an event.
    pub fn of(&self, event: &str) -> Option<&Recorded> {
        self.verdicts
            .iter()
            .find(|recorded| recorded.event == event)
    }
}

/// The advice on a file that `events validate` did not write like this.
const WRITTEN: &str = "`cloison events validate` writes it";

fn text(table: &Table<'_>, key: &'static str) -> Option<String> {
    table
        .required(key, WRITTEN)?
        .string("a text")
        .map(str::to_owned)
}

/// Reads the number of the format; files that were written before it had one have none.
fn read_version(root: &Table<'_>) -> Option<()> {
    let Some(field) = root.optional("version") else {
        let error = root.error(
            "version",
            0..0,
            format!("the file is older than format {VERSION}: it has no `version`"),
        );
        root.push(
            error
                .label("this file")
                .help("run `cloison events validate` again"),
        );
        return None;
    };
    let version = field.integer("the number of a format")?;
    if version != VERSION {
        let error = field.error(format!(
            "the file has format {version}, and this program reads format {VERSION}"
        ));
        field.push(
            error
                .label("another format")
                .help("run this program's `cloison events validate` again"),
        );
        return None;
    }
    Some(())
}

/// Reads the name of the board model, which is there if and only if it was one.
fn read_model(root: &Table<'_>, machine: Option<Machine>) -> Option<Option<String>> {
    match (machine?, root.optional("model")) {
        (Machine::Model, None) => text(root, "model").map(Some),
        (Machine::Model, Some(field)) => field.string("a name").map(|name| Some(name.to_owned())),
        (_, None) => Some(None),
        (machine, Some(field)) => {
            let error = field
                .error(format!("{machine} has no board model"))
                .label("a model");
            field.push(error.help("machine = \"model\" is the board model"));
            None
        }
    }
}

fn read(root: &Table<'_>) -> Option<Record> {
    // What another version means by the other fields is not known.
    read_version(root)?;
    let (cpu, board) = (text(root, "cpu"), text(root, "board"));
    let machine = root
        .required("machine", WRITTEN)
        .and_then(|field| field.one_of("machine", &Machine::ALL));
    let model = read_model(root, machine);
    let (prefetcher, tool, date) = (
        text(root, "prefetcher"),
        text(root, "tool"),
        text(root, "date"),
    );
    let tables = root.tables("verdict");
    if tables.is_empty() {
        let error = root
            .error("verdict", 0..0, "there is no verdict")
            .label("in this file");
        root.push(error.help(WRITTEN));
    }
    let mut verdicts: Vec<Recorded> = vec![];
    for mut table in tables {
        let Some(recorded) = read_verdict(&mut table) else {
            continue;
        };
        if verdicts.iter().any(|other| other.event == recorded.event) {
            let error = table.error(
                "event",
                table.span(),
                format!("there are two verdicts on {}", recorded.event),
            );
            table.push(error.label("again").help(WRITTEN));
        }
        verdicts.push(recorded);
    }
    root.finish_ref();
    Some(Record {
        cpu: cpu?,
        board: board?,
        machine: machine?,
        model: model?,
        prefetcher: prefetcher?,
        tool: tool?,
        date: date?,
        verdicts,
    })
}

fn read_verdict(table: &mut Table<'_>) -> Option<Recorded> {
    let event = text(table, "event")?;
    table.rename(&event);
    let words: Vec<_> = Verdict::ALL.iter().map(|it| (it.words(), *it)).collect();
    let verdict = table
        .required("verdict", WRITTEN)
        .and_then(|field| field.one_of("verdict", &words));
    let because = text(table, "because");
    let evidence = table.required("evidence", "a verdict without evidence is none");
    let evidence = evidence.and_then(|field| {
        let benchmarks = field.elements()?;
        if benchmarks.is_empty() {
            field.push(
                field
                    .error("no benchmark speaks for it")
                    .label("empty")
                    .help(WRITTEN),
            );
        }
        let read: Vec<Observed> = benchmarks.iter().filter_map(read_evidence).collect();
        check_evidence(&field, verdict, &read);
        Some(read)
    });
    // For readers: the formula, and what was tried.
    for key in ["counts", "unexercised", "tried"] {
        table.optional(key);
    }
    table.finish_ref();
    Some(Recorded {
        event,
        verdict: verdict?,
        because: because?,
        evidence: evidence?,
    })
}

/// Records a verdict that its evidence contradicts: somebody edited one of the two.
fn check_evidence(field: &Field<'_>, verdict: Option<Verdict>, evidence: &[Observed]) {
    let explained = [
        Verdict::Trusted,
        Verdict::ExpectationCorrected,
        Verdict::Corrected,
        Verdict::Fitted,
    ];
    let against = evidence.iter().filter(|observed| !observed.agrees).count();
    if let Some(verdict) = verdict.filter(|verdict| explained.contains(verdict) && against > 0) {
        let message = format!(
            "{against} of {} benchmarks contradict the verdict `{verdict}`",
            evidence.len()
        );
        field.push(
            field
                .error(message)
                .label("agrees = false")
                .help("run `cloison events validate` again"),
        );
    }
}

/// Reads what a benchmark says, and checks its numbers.
fn read_evidence(field: &Field<'_>) -> Option<Observed> {
    let table = field.table()?;
    let benchmark = text(&table, "benchmark")?;
    let number = |key| table.required(key, WRITTEN)?.number("a number of events");
    let (expected, mean) = (number("expected")?, number("mean")?);
    number("spread")?;
    if let Some(field) = table.optional("explained") {
        field.number("a number of events")?;
    }
    let whole = |key| table.required(key, WRITTEN)?.integer("a number of runs");
    let (runs, outliers) = (whole("runs")?, whole("outliers")?);
    if outliers > runs || runs == 0 {
        let error = table.error(
            "outliers",
            table.span(),
            format!("{outliers} of {runs} runs cannot be outliers"),
        );
        table.push(error.label("here").help(WRITTEN));
    }
    let agrees = table.required("agrees", WRITTEN)?.boolean()?;
    table.finish_ref();
    Some(Observed {
        benchmark,
        expected,
        mean,
        agrees,
    })
}
