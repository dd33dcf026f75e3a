//! The file of published measurements, read and validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::spec;
use crate::parameters::{Decimal, Value as Setting};
use cloison_config::document::{self, Field, Given, Presence, Table};
use cloison_config::problem::{Errors, Problem, SourceFile};
use cloison_config::{FileKind, suggest};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

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
    /// The facts of boards other than the modelled one, by name.
    pub boards: BTreeMap<String, Facts>,
}

/// The facts of a board: values that the model has there instead of those in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The model's parameters and their values.
    pub set: Vec<(String, Setting)>,
    /// Position of its name in the file.
    pub span: Range<usize>,
}

/// The pages in which a benchmark's buffer is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Of 4 KiB, in all colors but the hypervisor's.
    #[default]
    Small,
    /// Of 2 MiB, in contiguous memory: it has all colors.
    Huge,
}

impl Pages {
    const WORDS: [(&'static str, Self); 2] = [("4K", Self::Small), ("2M", Self::Huge)];
}

/// Returns the word for a value.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words
        .iter()
        .find(|(_, known)| *known == value)
        .map_or("", |(word, _)| word)
}

/// A published measurement, and its benchmark on the model.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its unique name.
    pub name: String,
    /// The board that was measured.
    pub board: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// The unit of `value`.
    pub unit: Unit,
    /// Clock of the measured cores, for units of time.
    pub clock_mhz: Option<u64>,
    /// The largest difference that counts as agreement, as a share of `value`.
    pub tolerance: f64,
    /// The measurement's use for the model.
    pub usage: Usage,
    /// Title of the document.
    pub document: String,
    /// Its place in the document.
    pub place: String,
    /// Its benchmark on the model.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds per access.
    Nanos,
    /// Millions of bytes per second.
    MegabytesPerSecond,
    /// A quotient of two times.
    Ratio,
    /// A number of events.
    Events,
    /// A number of pages.
    Pages,
    /// Units of 1024 bytes.
    Kib,
}

impl Unit {
    const WORDS: [(&'static str, Self); 6] = [
        ("ns", Self::Nanos),
        ("MB/s", Self::MegabytesPerSecond),
        ("ratio", Self::Ratio),
        ("events", Self::Events),
        ("pages", Self::Pages),
        ("KiB", Self::Kib),
    ];

    /// Returns its name in files and tables.
    pub fn name(self) -> &'static str {
        word(&Self::WORDS, self)
    }

    /// Returns whether it depends on how long a cycle is.
    const fn needs_clock(self) -> bool {
        matches!(self, Self::Nanos | Self::MegabytesPerSecond)
    }
}

/// The use of a measurement for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A value or a rule of the model was chosen with it: agreement proves nothing.
    Fitted,
    /// The model was made without it.
    Predicted,
}

impl Usage {
    const WORDS: [(&'static str, Self); 2] =
        [("fitted", Self::Fitted), ("predicted", Self::Predicted)];

    /// Returns its name in files and tables.
    pub fn name(self) -> &'static str {
        word(&Self::WORDS, self)
    }
}

/// What a stream does to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Loads of 16 bytes.
    Read,
    /// Stores of 16 bytes.
    Write,
    /// Loads and stores of 16 bytes; a byte copied counts once.
    Copy,
    /// Stores of 4 bytes, 32 bytes apart.
    Words,
}

impl Operation {
    const WORDS: [(&'static str, Self); 4] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("copy", Self::Copy),
        ("write-words", Self::Words),
    ];

    /// Returns the name in files and tables.
    pub fn name(self) -> &'static str {
        word(&Self::WORDS, self)
    }
}

/// A benchmark on the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Time per load of a chain that reaches each line of a buffer in an order.
    Chase(Chase),
    /// Time per load of a chain of loads 128 bytes apart, from the end of a buffer to its start.
    Stride(Buffer),
    /// Time per random read in a buffer, less that in a buffer of 1 KiB.
    RandomReads(Buffer),
    /// Bytes per second of a stream on some cores, each with its own buffer, of all cores together.
    Stream(Stream),
    /// How many times as long a core's stream takes while other cores do another one.
    Corun(Corun),
    /// A figure of a shipped experiment.
    Experiment(Figure),
}

/// The order in which a chain of loads reaches the lines of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// A random one.
    Random,
    /// That of the lines' numbers with their bits reversed, as in ramlat: each load is of another
    /// page than the one before, and of the same sets of the L1.
    Reversed,
}

impl Order {
    const WORDS: [(&'static str, Self); 2] =
        [("random", Self::Random), ("bit-reversed", Self::Reversed)];
}

/// A chain of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chase {
    /// The buffer's size in units of 1024 bytes.
    pub kib: u64,
    /// The order of its lines.
    pub order: Order,
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its size in units of 1024 bytes.
    pub kib: u64,
}

/// A stream over a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// The operation on the buffer.
    pub operation: Operation,
    /// The buffer's size in units of 1024 bytes.
    pub kib: u64,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} KiB", self.operation.name(), self.kib)
    }
}

/// A stream on one or more cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// What each of them does, with a buffer each.
    pub pass: Pass,
    /// Number of cores.
    pub cores: u64,
}

/// A stream on a core, beside other cores' streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corun {
    /// What the measured core does.
    pub measured: Pass,
    /// What each of the others does, with a buffer each.
    pub others: Pass,
    /// Number of cores, the measured one included.
    pub cores: u64,
    /// Whether the measured core has a part of the L2 for itself: a quarter.
    pub partition: bool,
}

/// A figure of a shipped experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of the experiment.
    pub name: String,
    /// Name of the figure, as in docs/figures.md.
    pub figure: String,
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chase(chase) => match chase.order {
                Order::Random => write!(f, "chase {} KiB", chase.kib),
                Order::Reversed => write!(f, "chase {} KiB, bit-reversed", chase.kib),
            },
            Self::Stride(buffer) => write!(f, "stride {} KiB", buffer.kib),
            Self::RandomReads(buffer) => write!(f, "random reads {} KiB", buffer.kib),
            Self::Stream(stream) => {
                let cores = if stream.cores == 1 { "core" } else { "cores" };
                write!(f, "{}, {} {cores}", stream.pass, stream.cores)
            }
            Self::Corun(corun) => {
                let own = if corun.partition {
                    ", in its own colors"
                } else {
                    ""
                };
                let (measured, others) = (corun.measured, corun.others);
                write!(f, "{measured}{own}, beside {} x {others}", corun.cores - 1)
            }
            Self::Experiment(figure) => write!(f, "{}: {}", figure.name, figure.figure),
        }
    }
}

/// Reads and validates a file of measurements.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path) -> Result<Points, Errors> {
    let help = "name a file of measurements, such as configs/models/zcu102-public.toml";
    document::load(path, help, read)
}

fn read(root: &Table<'_>) -> Option<Points> {
    FileKind::Measurements.fits(root)?;
    let sources = root.value("source", |field| named(field, read_source));
    let boards = root.value("board", |field| named(field, read_board));
    let tables = root.tables("point");
    if tables.is_empty() {
        let error = root.error("point", 0..0, "the file has no measurement");
        root.push(error.label("none").help("add a [[point]]"));
    }
    root.finish_ref();
    let sources = sources.or(vec![])?;
    let boards = boards.or(vec![])?;
    let entries: Vec<Entry<'_>> = tables
        .into_iter()
        .map(|table| Entry::read(table, &sources))
        .collect();
    for source in &sources {
        source.check_used(
            &entries,
            |entry| Some(entry.source.as_ref()?.value),
            "source",
        );
    }
    for board in &boards {
        board.check_used(&entries, |entry| Some(entry.board.as_ref()?.value), "board");
        entries
            .iter()
            .for_each(|entry| entry.check_board(board.name));
    }
    for (index, entry) in entries.iter().enumerate() {
        entry.check_earlier(&entries[..index]);
    }
    let boards = boards.into_iter().map(|board| {
        let span = board.span;
        let set = board.value?;
        Some((board.name.to_owned(), Facts { set, span }))
    });
    Some(Points {
        source: root.file().clone(),
        boards: document::all(boards)?.into_iter().collect(),
        points: document::all(entries.into_iter().map(|entry| entry.point))?,
    })
}

/// A table whose name the user chooses.
struct NamedTable<'a, T> {
    table: Table<'a>,
    name: &'a str,
    /// Position of the name.
    span: Range<usize>,
    /// Its value, if that is right.
    value: Option<T>,
}

fn named<'a, T>(
    field: &Field<'a>,
    read: impl Fn(&Table<'a>) -> Option<T>,
) -> Option<Vec<NamedTable<'a, T>>> {
    let tables = field.table()?.entries().into_iter();
    document::all(tables.map(|(name, span, field)| {
        let table = field.table()?;
        let value = read(&table);
        table.finish_ref();
        Some(NamedTable {
            table,
            name,
            span,
            value,
        })
    }))
}

impl<T> NamedTable<'_, T> {
    fn check_used<'a>(
        &self,
        entries: &[Entry<'a>],
        field: impl Fn(&Entry<'a>) -> Option<&'a str>,
        what: &str,
    ) {
        let is_it = |entry| field(entry) == Some(self.name);
        if !entries.iter().any(is_it) {
            let of = if what == "source" { "from" } else { "of" };
            let message = format!("no measurement is {of} {what} `{}`", self.name);
            let (file, path) = (self.table.file(), self.table.path());
            let error = Problem::error(file, path, self.span.clone(), message).label("unused");
            let help = format!("name it in `{what}` of a point, or remove it");
            self.table.push(error.help(help));
        }
    }
}

/// Reads a text that says something.
fn written<'a>(field: &Field<'a>) -> Option<&'a str> {
    let text = field.text()?;
    if text.trim().is_empty() {
        let error = field.error(format!("`{}` is empty", field.name()));
        let help = "write it out, or remove the entry";
        field.push(error.label("no text").help(help));
        return None;
    }
    Some(text)
}

/// Reads the title of a document.
fn read_source<'a>(table: &Table<'a>) -> Option<&'a str> {
    // Where to find it is only for readers of the file.
    table.value("address", Field::text);
    let help = "give the document's title";
    Some(table.required_value("title", help, written)?.value)
}

/// Reads the values that the model has for a board.
fn read_board(table: &Table<'_>) -> Option<Vec<(String, Setting)>> {
    let help = "say where the values are from";
    let source = table.required_value("source", help, written);
    let help = "give the model's values: model = { \"memory.latency_ns\" = 150 }";
    let model = table.required_value("model", help, |field| {
        let mut entries = field.table()?.entries();
        if entries.is_empty() {
            let error = field.error("no values").label("empty");
            field.push(error.help("give one, or remove the board"));
        }
        entries.sort_by_key(|(name, ..)| *name);
        document::all(
            entries
                .into_iter()
                .map(|(name, _, field)| Some((name.to_owned(), setting(&field)?))),
        )
    });
    source?;
    Some(model?.value)
}

/// Reads a value of a model's file.
fn setting(field: &Field<'_>) -> Option<Setting> {
    let value = field.any()?;
    let read = match &value {
        toml::Value::Integer(number) => Decimal::read(&number.to_string()).map(Setting::Number),
        toml::Value::Float(number) => Decimal::read(&number.to_string()).map(Setting::Number),
        toml::Value::Boolean(on) => Some(Setting::Switch(*on)),
        toml::Value::String(text) => Some(Setting::Text(text.clone())),
        _ => None,
    };
    if read.is_none() {
        let error = field.error(format!("no parameter of a model can be {value}"));
        let help = "give a number that is not negative, true or false, or a text";
        field.push(error.label("no value of a model").help(help));
    }
    read
}

/// A measurement, and the fields in which it refers to other parts of the file or could contradict
/// them: those that are right.
struct Entry<'a> {
    table: Table<'a>,
    point: Option<Point>,
    name: Option<Given<'a, &'a str>>,
    board: Option<Given<'a, &'a str>>,
    source: Option<Given<'a, &'a str>>,
    place: Option<Given<'a, &'a str>>,
    usage: Option<Given<'a, Usage>>,
    benchmark: Option<Benchmark>,
}

impl<'a> Entry<'a> {
    fn read(mut table: Table<'a>, sources: &[NamedTable<'a, &'a str>]) -> Self {
        let name = table.required_value("name", "name the measurement", written);
        if let Some(name) = &name {
            table.rename(name.value);
        }
        let board = table.required_value("board", "name the board that was measured", written);
        let value = table.required_value("value", "say what was measured", read_value);
        let help = "say in what it was measured: unit = \"ns\"";
        let unit = table.required_value("unit", help, |field| field.one_of("unit", &Unit::WORDS));
        let clock = table.value("clock_mhz", |field| {
            field.integer_in(100..=5000, "100 to 5000 MHz")
        });
        let help = "say by how much a result may differ: tolerance = 0.2";
        let tolerance = table.required_value("tolerance", help, read_tolerance);
        let help = "say what it is to the model: use = \"fitted\" or \"predicted\"";
        let usage = table.required_value("use", help, |field| field.one_of("use", &Usage::WORDS));
        let help = "name the document's table: source = \"NAME\" of [source.NAME]";
        let source = table.required_value("source", help, Field::text);
        let document = source.as_ref().and_then(|source| title(source, sources));
        let help = "say where in the document it is";
        let place = table.required_value("place", help, written);
        let help = "say what the model does: benchmark.chase = { kib = 64 }";
        let benchmark = table.required_value("benchmark", help, read_benchmark);
        let benchmark = benchmark.map(|given| given.value);
        let prefetcher = table.value("prefetcher", Field::boolean);
        let pages = table.value("pages", |field| field.one_of("page size", &Pages::WORDS));
        check_clock(&table, &clock, &unit, &benchmark);
        let clock = clock.optional();
        if let Some(benchmark) = &benchmark {
            check_unit(&unit, benchmark);
            check_options(benchmark, prefetcher.given(), pages.given());
        }
        let why = table.value("why", written);
        table.finish_ref();
        let point = || {
            let name = name.as_ref()?;
            Some(Point {
                name: name.value.to_owned(),
                board: board.as_ref()?.value.to_owned(),
                value: value?.value,
                unit: unit?.value,
                clock_mhz: clock?,
                tolerance: tolerance?.value,
                usage: usage.as_ref()?.value,
                document: document?,
                place: place.as_ref()?.value.to_owned(),
                benchmark: benchmark.clone()?,
                prefetcher: prefetcher.or(true)?,
                pages: pages.or(Pages::Small)?,
                why: why.optional()?.map(str::to_owned),
                span: name.field.span(),
            })
        };
        Self {
            point: point(),
            table,
            name,
            board,
            source,
            place,
            usage,
            benchmark,
        }
    }

    /// Records that an experiment is compared with a board whose values it does not know.
    fn check_board(&self, name: &str) {
        let of_it = self.board.as_ref().filter(|board| board.value == name);
        if let (Some(board), Some(Benchmark::Experiment(_))) = (of_it, &self.benchmark) {
            let message = format!("an experiment does not know the values of board `{name}`");
            let help = "experiments run on the model as it is: compare with another benchmark, or \
                        remove the board";
            let error = board.field.error(message).label("of an experiment");
            self.table.push(error.help(help));
        }
    }

    /// Compares a measurement with those before it: each has its own name, and none is both fitted
    /// and predicted.
    fn check_earlier(&self, before: &[Self]) {
        let Some(name) = &self.name else { return };
        let names = || before.iter().filter_map(|other| other.name.as_ref());
        if names().any(|other| other.value == name.value) {
            let error = name
                .field
                .error(format!("`{}` is declared twice", name.value))
                .label("again");
            self.table.push(error.help("give one of them another name"));
        }
        let place =
            |entry: &Self| Some((entry.source.as_ref()?.value, entry.place.as_ref()?.value));
        let (Some(usage), Some(own)) = (&self.usage, place(self)) else {
            return;
        };
        let differs = |other: &&Self| {
            let another = other.usage.as_ref().filter(|it| it.value != usage.value);
            another.is_some() && place(other) == Some(own)
        };
        let other = before.iter().find(differs);
        let other = other.and_then(|other| other.name.as_ref().zip(other.usage.as_ref()));
        if let Some((other, otherwise)) = other {
            let message = format!(
                "`{}` is the same measurement as `{}`",
                name.value, other.value
            );
            let error = usage.field.error(message).label("and here");
            let help = "a measurement that the model was fitted with predicts nothing: write \
                        \"fitted\" for both";
            let error = error.also(otherwise.field.span(), "it is another one here");
            self.table.push(error.help(help));
        }
    }
}

fn read_value(field: &Field<'_>) -> Option<f64> {
    let value = field.number("a positive number")?;
    if value > 0.0 {
        return Some(value);
    }
    let error = field.error(format!("the value is {value}"));
    let help = "errors are shares of the measured value, which must be a positive number";
    field.push(error.label("not positive").help(help));
    None
}

fn read_tolerance(field: &Field<'_>) -> Option<f64> {
    let help = "the share of the value by which a result may differ, such as 0.2";
    let tolerance = field.number(help)?;
    if tolerance > 0.0 && tolerance <= 1.0 {
        return Some(tolerance);
    }
    let error = field.error(format!("the tolerance is {tolerance}"));
    field.push(error.label("not in 0 to 1").help(format!("write {help}")));
    None
}

/// Returns the title of the document that a measurement names.
fn title(source: &Given<'_, &str>, sources: &[NamedTable<'_, &str>]) -> Option<String> {
    let Some(found) = sources.iter().find(|known| known.name == source.value) else {
        let error = source.field.error(format!("no source `{}`", source.value));
        let help = suggest(source.value, "sources", sources.iter().map(|it| it.name));
        source.field.push(error.label("unknown").help(help));
        return None;
    };
    found.value.map(str::to_owned)
}

/// Records a clock that is missing, or that means nothing: units of time have one, and what is
/// measured at the board's own clock.
fn check_clock(
    table: &Table<'_>,
    clock: &Presence<'_, u64>,
    unit: &Option<Given<'_, Unit>>,
    benchmark: &Option<Benchmark>,
) {
    let Some(unit) = unit else { return };
    let name = unit.value.name();
    let needed = unit.value.needs_clock() || matches!(benchmark, Some(Benchmark::Corun(_)));
    match clock {
        Presence::Absent if needed => {
            let message = format!("a measurement in {name} needs the clock of its cores");
            let help = "the model counts cycles: say how long they were, clock_mhz = 1500";
            let error = unit.field.error(message).label("no `clock_mhz`");
            table.push(error.help(help));
        }
        Presence::Given(clock) if !needed => {
            let message = format!("`clock_mhz` means nothing for {name}");
            let error = clock.field.error(message).label("no time");
            table.push(error.help("remove it"));
        }
        _ => {}
    }
}

fn read_benchmark(field: &Field<'_>) -> Option<Benchmark> {
    let table = field.table()?;
    let buffer = |field: &Field<'_>| {
        let table = field.table()?;
        let kib = read_kib(&table);
        table.finish();
        Some(Buffer { kib: kib? })
    };
    let random = |field: &Field<'_>| {
        let buffer = buffer(field)?;
        if !buffer.kib.is_power_of_two() {
            let error = field.error(format!("random reads in {} KiB", buffer.kib));
            let help = "give 64, 128, 256 and so on";
            field.push(error.label("no power of two").help(help));
        }
        Some(buffer)
    };
    let read = [
        table.value("chase", |field| read_chase(field).map(Benchmark::Chase)),
        table.value("stride", |field| buffer(field).map(Benchmark::Stride)),
        table.value("random-reads", |field| {
            random(field).map(Benchmark::RandomReads)
        }),
        table.value("stream", |field| read_stream(field).map(Benchmark::Stream)),
        table.value("corun", |field| read_corun(field).map(Benchmark::Corun)),
        table.value("experiment", |field| {
            read_figure(field).map(Benchmark::Experiment)
        }),
    ];
    table.finish_ref();
    let number = table.entries().len();
    if number != 1 {
        let error = field.error(format!("a measurement has one benchmark, not {number}"));
        field.push(error.label("here").help("name one of the benchmarks"));
    }
    let mut given = read.into_iter().filter_map(Presence::optional).flatten();
    given.next().filter(|_| number == 1)
}

fn read_chase(field: &Field<'_>) -> Option<Chase> {
    let table = field.table()?;
    let kib = read_kib(&table);
    let order = table.value("order", |field| field.one_of("order", &Order::WORDS));
    table.finish_ref();
    let order = order.or(Order::Random)?;
    let kib = kib?;
    if order == Order::Reversed && !kib.is_power_of_two() {
        let error = field.error(format!("reversed numbers of the lines of {kib} KiB"));
        let help = "give 64, 128, 256 and so on";
        field.push(error.label("no power of two").help(help));
        return None;
    }
    Some(Chase { kib, order })
}

fn read_kib(table: &Table<'_>) -> Option<u64> {
    let wanted = format!("1 to {MOST_KIB} KiB");
    let kib = table.required_value("kib", "give the buffer's size: kib = 64", |field| {
        field.integer_in(1..=MOST_KIB, &wanted)
    });
    Some(kib?.value)
}

fn read_pass(table: &Table<'_>) -> Option<Pass> {
    let help = "say what is done to the buffer: operation = \"read\"";
    let operation = table.required_value("operation", help, |field| {
        field.one_of("stream operation", &Operation::WORDS)
    });
    let kib = read_kib(table);
    Some(Pass {
        operation: operation?.value,
        kib: kib?,
    })
}

fn read_cores(table: &Table<'_>, least: u64) -> Option<u64> {
    let wanted = format!("{least} to {CORES} cores");
    let help = format!("say how many cores: cores = {least}");
    let cores = table.required_value("cores", &help, |field| {
        field.integer_in(least..=CORES, &wanted)
    });
    Some(cores?.value)
}

fn read_stream(field: &Field<'_>) -> Option<Stream> {
    let table = field.table()?;
    let (pass, cores) = (read_pass(&table), read_cores(&table, 1));
    table.finish();
    Some(Stream {
        pass: pass?,
        cores: cores?,
    })
}

fn read_corun(field: &Field<'_>) -> Option<Corun> {
    let table = field.table()?;
    let measured = read_pass(&table);
    let help = "say what the other cores do: others = { operation = \"write\", kib = 8192 }";
    let others = table.required_value("others", help, |field| {
        let table = field.table()?;
        let pass = read_pass(&table);
        table.finish();
        pass
    });
    let cores = read_cores(&table, 2);
    let partition = table.value("partition", Field::boolean);
    table.finish_ref();
    Some(Corun {
        measured: measured?,
        others: others?.value,
        cores: cores?,
        partition: partition.or(false)?,
    })
}

fn read_figure(field: &Field<'_>) -> Option<Figure> {
    let table = field.table()?;
    let name = table.required_value("name", "name a shipped experiment", |field| {
        let name = field.text()?;
        let known = spec::names().unwrap_or_default();
        if !known.iter().any(|other| other == name) {
            let error = field.error(format!("there is no experiment `{name}`"));
            let help = suggest(name, "experiments", known.iter().map(String::as_str));
            field.push(error.label("unknown experiment").help(help));
        }
        Some(name.to_owned())
    });
    let help = "name the figure, as in docs/figures.md";
    let figure = table.required_value("figure", help, Field::text);
    table.finish();
    Some(Figure {
        name: name?.value,
        figure: figure?.value.to_owned(),
    })
}

/// Records a unit in which a benchmark is not measured.
fn check_unit(unit: &Option<Given<'_, Unit>>, benchmark: &Benchmark) {
    let Some(unit) = unit else { return };
    let fits = match benchmark {
        Benchmark::Chase(_) | Benchmark::Stride(_) | Benchmark::RandomReads(_) => {
            unit.value == Unit::Nanos
        }
        Benchmark::Stream(_) => unit.value == Unit::MegabytesPerSecond,
        Benchmark::Corun(_) => unit.value == Unit::Ratio,
        Benchmark::Experiment(_) => !unit.value.needs_clock(),
    };
    if !fits {
        let message = format!("`{benchmark}` is not measured in {}", unit.value.name());
        let help = "chains and random reads are in ns, streams in MB/s, a stream beside others is a \
                    ratio, and figures of experiments are in other units";
        let error = unit.field.error(message).label("another unit");
        unit.field.push(error.help(help));
    }
}

/// Records options that a benchmark does not have.
fn check_options(
    benchmark: &Benchmark,
    prefetcher: Option<&Given<'_, bool>>,
    pages: Option<&Given<'_, Pages>>,
) {
    let is_experiment = matches!(benchmark, Benchmark::Experiment(_));
    if let Some(prefetcher) = prefetcher.filter(|_| !is_experiment) {
        let error = prefetcher.field.error("`prefetcher` is for experiments");
        let help = "remove it: only experiments run on a model whose prefetcher is turned off";
        prefetcher
            .field
            .push(error.label("no experiment").help(help));
    }
    let is_shared = match benchmark {
        Benchmark::Stream(stream) => stream.cores > 1,
        Benchmark::Corun(_) => true,
        _ => false,
    };
    if let Some(pages) = pages.filter(|_| is_shared || is_experiment) {
        let error = pages.field.error("`pages` is for benchmarks on one core");
        let help = "remove it: benchmarks of several cores, and experiments, choose their pages \
                    themselves";
        pages.field.push(error.label("here").help(help));
    }
}
