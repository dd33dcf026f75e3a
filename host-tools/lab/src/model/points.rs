//! The file of published measurements, read and validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::spec;
use crate::parameters::{Decimal, Value as Setting};
use cloison_config::files;
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_config::suggest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// The largest buffer of a benchmark: the VMs have room for two of this size.
const MOST_KIB: u64 = 8192;
/// The cores of the board on which the benchmarks run.
const CORES: u64 = 4;

/// A validated file of measurements.
#[derive(Clone, Debug)]
pub struct Points {
    /// The file, for messages about it.
    pub source: SourceFile,
    /// The measurements, in the file's order.
    pub points: Vec<Point>,
    /// What is known of boards other than the modelled one, by name.
    pub boards: BTreeMap<String, Facts>,
}

/// What is known of a board: values that the model has there instead of those in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The model's parameters and their values.
    pub set: Vec<(String, Setting)>,
    /// Position of its name in the file.
    pub span: Range<usize>,
}

/// The pages in which a benchmark's buffer is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Pages {
    /// Of 4 KiB, in all colors but the hypervisor's.
    #[default]
    #[serde(rename = "4K")]
    Small,
    /// Of 2 MiB, in contiguous memory: it has all colors.
    #[serde(rename = "2M")]
    Huge,
}

/// A published measurement, and the benchmark on the model that it is compared with.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its name, of which there is only one.
    pub name: String,
    /// The board that was measured.
    pub board: String,
    /// What was measured, in `unit`.
    pub value: f64,
    /// The unit of `value`.
    pub unit: Unit,
    /// Clock of the measured cores, for units of time.
    pub clock_mhz: Option<u64>,
    /// The largest difference that counts as agreement, as a share of `value`.
    pub tolerance: f64,
    /// Whether the model was made with it.
    pub usage: Usage,
    /// Title of the document.
    pub document: String,
    /// Where in the document it is.
    pub place: String,
    /// What the model does to compare with it.
    pub benchmark: Benchmark,
    /// Whether the measured cores prefetched data, if they could.
    pub prefetcher: bool,
    /// How the measured buffer was mapped.
    pub pages: Pages,
    /// Why the model is far off.
    pub why: Option<String>,
    /// Position of its name in the file.
    pub span: Range<usize>,
}

/// The unit of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Unit {
    /// Nanoseconds per access.
    #[serde(rename = "ns")]
    Nanos,
    /// Millions of bytes per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// A quotient of two times.
    #[serde(rename = "ratio")]
    Ratio,
    /// A number of events.
    #[serde(rename = "events")]
    Events,
    /// A number of pages.
    #[serde(rename = "pages")]
    Pages,
    /// Units of 1024 bytes.
    #[serde(rename = "KiB")]
    Kib,
}

impl Unit {
    /// Returns its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::MegabytesPerSecond => "MB/s",
            Self::Ratio => "ratio",
            Self::Events => "events",
            Self::Pages => "pages",
            Self::Kib => "KiB",
        }
    }

    /// Returns whether it depends on how long a cycle is.
    const fn needs_clock(self) -> bool {
        matches!(self, Self::Nanos | Self::MegabytesPerSecond)
    }
}

/// What a measurement is to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Usage {
    /// A value or a rule of the model was chosen with it: agreement proves nothing.
    Fitted,
    /// The model was made without it.
    Predicted,
}

impl Usage {
    /// Returns its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Predicted => "predicted",
        }
    }
}

/// A stream over a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Loads of 16 bytes.
    Read,
    /// Stores of 16 bytes.
    Write,
    /// Loads and stores of 16 bytes; a byte copied counts once.
    Copy,
    /// Stores of 4 bytes, 32 bytes apart.
    #[serde(rename = "write-words")]
    Words,
}

impl Operation {
    /// Returns the name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Words => "write-words",
        }
    }
}

/// What is run on the model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benchmark {
    /// Time per load of a chain that reaches each line of a buffer in random order.
    Chase(Buffer),
    /// Time per load of a chain of loads 128 bytes apart, from the end of a buffer to its start.
    Stride(Buffer),
    /// Time per random read in a buffer, less that in a buffer of 1 KiB.
    RandomReads(Buffer),
    /// Bytes per second of a stream on some cores, each with its own buffer, of all cores together.
    Stream(Stream),
    /// A figure of a shipped experiment.
    Experiment(Figure),
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Its size in units of 1024 bytes.
    pub kib: u64,
}

/// A stream on one or more cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// What is done to the buffer.
    pub operation: Operation,
    /// Size of each core's buffer in units of 1024 bytes.
    pub kib: u64,
    /// Number of cores.
    pub cores: u64,
}

/// A figure of a shipped experiment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name of the experiment.
    pub name: String,
    /// Name of the figure, as in docs/figures.md.
    pub figure: String,
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chase(buffer) => write!(f, "chase {} KiB", buffer.kib),
            Self::Stride(buffer) => write!(f, "stride {} KiB", buffer.kib),
            Self::RandomReads(buffer) => write!(f, "random reads {} KiB", buffer.kib),
            Self::Stream(stream) => {
                let cores = if stream.cores == 1 { "core" } else { "cores" };
                write!(
                    f,
                    "{} {} KiB, {} {cores}",
                    stream.operation.name(),
                    stream.kib,
                    stream.cores
                )
            }
            Self::Experiment(figure) => write!(f, "{}: {}", figure.name, figure.figure),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    source: BTreeMap<Spanned<String>, SourceEntry>,
    #[serde(default)]
    board: BTreeMap<Spanned<String>, BoardEntry>,
    #[serde(default)]
    point: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BoardEntry {
    model: Spanned<BTreeMap<String, Spanned<toml::Value>>>,
    source: Spanned<String>,
}

impl BoardEntry {
    /// Returns the values that the model has for the board; those that it cannot have are left out.
    fn settings(&self) -> Vec<(String, Setting)> {
        let values = self.model.get_ref().iter();
        values
            .filter_map(|(name, value)| Some((name.clone(), setting(value.get_ref())?)))
            .collect()
    }
}

/// Returns a value of a model's file.
fn setting(value: &toml::Value) -> Option<Setting> {
    match value {
        toml::Value::Integer(number) => Decimal::read(&number.to_string()).map(Setting::Number),
        toml::Value::Float(number) => Decimal::read(&number.to_string()).map(Setting::Number),
        toml::Value::Boolean(on) => Some(Setting::Switch(*on)),
        toml::Value::String(text) => Some(Setting::Text(text.clone())),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceEntry {
    title: Spanned<String>,
    /// Where to find it; only for readers of the file.
    #[serde(rename = "address")]
    _address: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    board: Spanned<String>,
    value: Spanned<f64>,
    unit: Spanned<Unit>,
    clock_mhz: Option<Spanned<u64>>,
    tolerance: Spanned<f64>,
    #[serde(rename = "use")]
    usage: Spanned<Usage>,
    source: Spanned<String>,
    place: Spanned<String>,
    benchmark: Spanned<Benchmark>,
    prefetcher: Option<Spanned<bool>>,
    pages: Option<Spanned<Pages>>,
    why: Option<Spanned<String>>,
}

/// Reads and validates a file of measurements.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path) -> Result<Points, Errors> {
    let text = files::read_text(path, files::CONFIGURATION).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let problem = Problem::error(
            &file,
            "file",
            0..0,
            format!("cannot read {}: {error}", file.name()),
        )
        .help("name a file of measurements, such as configs/models/zcu102-public.toml");
        Errors::new(file.name(), vec![problem])
    })?;
    let source = SourceFile::new(path, text);
    let refused = |problems| Errors::new(source.name(), problems);
    let file: File = toml::from_str(source.text()).map_err(|error| {
        let problem = Problem::error(
            &source,
            "point",
            error.span().unwrap_or(0..0),
            error.message().trim_end(),
        );
        refused(vec![problem.label("here").help(
            "docs/validation.md has the fields of a measurement and their values",
        )])
    })?;
    let problems = Checker {
        source: &source,
        file: &file,
        problems: vec![],
    }
    .check();
    if !problems.is_empty() {
        return Err(refused(problems));
    }
    let titles: BTreeMap<&str, &str> = file
        .source
        .iter()
        .map(|(name, entry)| (name.get_ref().as_str(), entry.title.get_ref().as_str()))
        .collect();
    let points = file
        .point
        .iter()
        .map(|entry| point(entry, &titles))
        .collect();
    let facts = |(name, entry): (&Spanned<String>, &BoardEntry)| {
        (
            name.get_ref().clone(),
            Facts {
                set: entry.settings(),
                span: name.span(),
            },
        )
    };
    let boards = file.board.iter().map(facts).collect();
    Ok(Points {
        points,
        boards,
        source,
    })
}

fn point(entry: &Entry, titles: &BTreeMap<&str, &str>) -> Point {
    Point {
        name: entry.name.get_ref().clone(),
        board: entry.board.get_ref().clone(),
        value: *entry.value.get_ref(),
        unit: *entry.unit.get_ref(),
        clock_mhz: entry.clock_mhz.as_ref().map(|clock| *clock.get_ref()),
        tolerance: *entry.tolerance.get_ref(),
        usage: *entry.usage.get_ref(),
        document: titles
            .get(entry.source.get_ref().as_str())
            .map_or_else(String::new, |&title| title.to_owned()),
        place: entry.place.get_ref().clone(),
        benchmark: entry.benchmark.get_ref().clone(),
        prefetcher: entry
            .prefetcher
            .as_ref()
            .is_none_or(|prefetcher| *prefetcher.get_ref()),
        pages: entry
            .pages
            .as_ref()
            .map_or(Pages::Small, |pages| *pages.get_ref()),
        why: entry.why.as_ref().map(|why| why.get_ref().clone()),
        span: entry.name.span(),
    }
}

/// Looks for what a file of the right form says wrong.
struct Checker<'a> {
    source: &'a SourceFile,
    file: &'a File,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn check(mut self) -> Vec<Problem> {
        let file = self.file;
        if file.point.is_empty() {
            self.add(
                "point",
                0..0,
                "the file has no measurement",
                "none",
                "add a [[point]]",
            );
        }
        for (name, entry) in &file.source {
            self.text("source.title", &entry.title);
            if !file
                .point
                .iter()
                .any(|point| point.source.get_ref() == name.get_ref())
            {
                let message = format!("no measurement is from source `{}`", name.get_ref());
                self.add(
                    "source",
                    name.span(),
                    &message,
                    "unused",
                    "name it in `source` of a point, or remove it",
                );
            }
        }
        for (name, entry) in &file.board {
            self.board(name, entry);
        }
        for (index, entry) in file.point.iter().enumerate() {
            self.entry(entry);
            self.earlier(entry, &file.point[..index]);
        }
        self.problems
    }

    fn add(&mut self, field: &str, span: Range<usize>, message: &str, label: &str, help: &str) {
        self.problems.push(
            Problem::error(self.source, field, span, message)
                .label(label)
                .help(help),
        );
    }

    fn text(&mut self, field: &str, text: &Spanned<String>) {
        if text.get_ref().trim().is_empty() {
            self.add(
                field,
                text.span(),
                &format!("`{field}` is empty"),
                "no text",
                "write it out, or remove the entry",
            );
        }
    }

    fn entry(&mut self, entry: &Entry) {
        for (field, text) in [
            ("point.name", &entry.name),
            ("point.board", &entry.board),
            ("point.place", &entry.place),
        ] {
            self.text(field, text);
        }
        if let Some(why) = &entry.why {
            self.text("point.why", why);
        }
        let (value, tolerance) = (*entry.value.get_ref(), *entry.tolerance.get_ref());
        if !(value.is_finite() && value > 0.0) {
            let help = "errors are shares of the measured value, which must be a positive number";
            self.add(
                "point.value",
                entry.value.span(),
                &format!("the value is {value}"),
                "not positive",
                help,
            );
        }
        if !(tolerance > 0.0 && tolerance <= 1.0) {
            let message = format!("the tolerance is {tolerance}");
            let help = "write the share of the value by which a result may differ, such as 0.2";
            self.add(
                "point.tolerance",
                entry.tolerance.span(),
                &message,
                "not in 0 to 1",
                help,
            );
        }
        let names: Vec<&str> = self
            .file
            .source
            .keys()
            .map(|name| name.get_ref().as_str())
            .collect();
        let wanted = entry.source.get_ref();
        if !names.contains(&wanted.as_str()) {
            let help = suggest(wanted, "sources", names.iter().copied());
            self.add(
                "point.source",
                entry.source.span(),
                &format!("no source `{wanted}`"),
                "unknown",
                &help,
            );
        }
        self.clock(entry);
        self.benchmark(entry);
    }

    fn board(&mut self, name: &Spanned<String>, entry: &BoardEntry) {
        self.text("board.source", &entry.source);
        let of_it = |point: &&Entry| point.board.get_ref() == name.get_ref();
        if !self.file.point.iter().any(|point| of_it(&point)) {
            let message = format!("no measurement is of board `{}`", name.get_ref());
            self.add(
                "board",
                name.span(),
                &message,
                "unused",
                "name it in `board` of a point, or remove it",
            );
        }
        for point in self.file.point.iter().filter(of_it) {
            if let Benchmark::Experiment(_) = point.benchmark.get_ref() {
                let message = format!(
                    "an experiment does not know the values of board `{}`",
                    name.get_ref()
                );
                let help = "experiments run on the model as it is: compare with another benchmark, or remove the board";
                self.add(
                    "point.board",
                    point.board.span(),
                    &message,
                    "of an experiment",
                    help,
                );
            }
        }
        if entry.model.get_ref().is_empty() {
            self.add(
                "board.model",
                entry.model.span(),
                "no values",
                "empty",
                "give one, or remove the board",
            );
        }
        for (parameter, value) in entry.model.get_ref() {
            if setting(value.get_ref()).is_none() {
                let message = format!("`{parameter}` cannot be {}", value.get_ref());
                let help = "give a number that is not negative, true or false, or a text";
                self.add(
                    "board.model",
                    value.span(),
                    &message,
                    "no value of a model",
                    help,
                );
            }
        }
    }

    fn clock(&mut self, entry: &Entry) {
        let unit = *entry.unit.get_ref();
        match &entry.clock_mhz {
            None if unit.needs_clock() => {
                let message = format!(
                    "a measurement in {} needs the clock of its cores",
                    unit.name()
                );
                let help = "the model counts cycles: say how long they were, clock_mhz = 1500";
                self.add(
                    "point.unit",
                    entry.unit.span(),
                    &message,
                    "no `clock_mhz`",
                    help,
                );
            }
            Some(clock) if !unit.needs_clock() => {
                let message = format!("`clock_mhz` means nothing for {}", unit.name());
                self.add(
                    "point.clock_mhz",
                    clock.span(),
                    &message,
                    "no time",
                    "remove it",
                );
            }
            Some(clock) if !(100..=5000).contains(clock.get_ref()) => {
                let message = format!("no core runs at {} MHz", clock.get_ref());
                self.add(
                    "point.clock_mhz",
                    clock.span(),
                    &message,
                    "out of range",
                    "give 100 to 5000 MHz",
                );
            }
            _ => {}
        }
    }

    fn benchmark(&mut self, entry: &Entry) {
        let (benchmark, span) = (entry.benchmark.get_ref(), entry.benchmark.span());
        let unit = *entry.unit.get_ref();
        let fits = match benchmark {
            Benchmark::Chase(_) | Benchmark::Stride(_) | Benchmark::RandomReads(_) => {
                unit == Unit::Nanos
            }
            Benchmark::Stream(_) => unit == Unit::MegabytesPerSecond,
            Benchmark::Experiment(_) => !unit.needs_clock(),
        };
        if !fits {
            let message = format!("`{benchmark}` is not measured in {}", unit.name());
            let help = "chains and random reads are in ns, streams in MB/s, figures of experiments in other units";
            self.add(
                "point.unit",
                entry.unit.span(),
                &message,
                "another unit",
                help,
            );
        }
        if let Some(prefetcher) = &entry.prefetcher
            && !matches!(benchmark, Benchmark::Experiment(_))
        {
            let help = "remove it: only experiments run on a model whose prefetcher is turned off";
            self.add(
                "point.prefetcher",
                prefetcher.span(),
                "`prefetcher` is for experiments",
                "no experiment",
                help,
            );
        }
        if let Some(pages) = &entry.pages {
            let shared = matches!(benchmark, Benchmark::Stream(stream) if stream.cores > 1);
            if shared || matches!(benchmark, Benchmark::Experiment(_)) {
                let help = "remove it: benchmarks of several cores, and experiments, choose their pages themselves";
                self.add(
                    "point.pages",
                    pages.span(),
                    "`pages` is for benchmarks on one core",
                    "here",
                    help,
                );
            }
        }
        let kib = match benchmark {
            Benchmark::Chase(buffer)
            | Benchmark::Stride(buffer)
            | Benchmark::RandomReads(buffer) => Some(buffer.kib),
            Benchmark::Stream(stream) => Some(stream.kib),
            Benchmark::Experiment(_) => None,
        };
        if let Some(kib) = kib.filter(|kib| !(1..=MOST_KIB).contains(kib)) {
            let message = format!("a buffer of {kib} KiB");
            self.add(
                "point.benchmark",
                span.clone(),
                &message,
                "out of range",
                &format!("give 1 to {MOST_KIB} KiB"),
            );
        }
        match benchmark {
            Benchmark::RandomReads(buffer) if !buffer.kib.is_power_of_two() => {
                let message = format!("random reads in {} KiB", buffer.kib);
                self.add(
                    "point.benchmark",
                    span,
                    &message,
                    "no power of two",
                    "give 64, 128, 256 and so on",
                );
            }
            Benchmark::Stream(stream) if !(1..=CORES).contains(&stream.cores) => {
                let message = format!("a stream on {} cores", stream.cores);
                self.add(
                    "point.benchmark",
                    span,
                    &message,
                    "no such board",
                    &format!("give 1 to {CORES} cores"),
                );
            }
            Benchmark::Experiment(figure) => {
                let known = spec::names().unwrap_or_default();
                if !known.contains(&figure.name) {
                    let help = suggest(
                        &figure.name,
                        "experiments",
                        known.iter().map(String::as_str),
                    );
                    let message = format!("there is no experiment `{}`", figure.name);
                    self.add(
                        "point.benchmark",
                        span,
                        &message,
                        "unknown experiment",
                        &help,
                    );
                }
            }
            _ => {}
        }
    }

    /// Compares a measurement with those before it: each has its own name, and none is both fitted and predicted.
    fn earlier(&mut self, entry: &Entry, before: &[Entry]) {
        if before
            .iter()
            .any(|other| other.name.get_ref() == entry.name.get_ref())
        {
            let message = format!("`{}` is declared twice", entry.name.get_ref());
            self.add(
                "point.name",
                entry.name.span(),
                &message,
                "again",
                "give one of them another name",
            );
        }
        let is_same = |other: &&Entry| {
            other.source.get_ref() == entry.source.get_ref()
                && other.place.get_ref() == entry.place.get_ref()
        };
        if let Some(other) = before
            .iter()
            .filter(is_same)
            .find(|other| other.usage.get_ref() != entry.usage.get_ref())
        {
            let message = format!(
                "`{}` is the same measurement as `{}`",
                entry.name.get_ref(),
                other.name.get_ref()
            );
            let problem = Problem::error(self.source, "point.use", entry.usage.span(), message)
                .label("and here");
            self.problems.push(
                problem
                    .also(other.usage.span(), "it is another one here")
                    .help("a measurement that the model was fitted with predicts nothing: write \"fitted\" for both"),
            );
        }
    }
}
