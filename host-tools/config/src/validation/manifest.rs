//! A manifest: benchmarks whose event counts can be derived, and the derived count of each event.
//!
//! A benchmark states its instruction mix by blocks of code: how often each is executed and, where
//! that differs, how often a reader of the listing would expect it. An instruction after the end of
//! a program is *in the code*, but not *executed*. Each instruction `X` thus gives two quantities,
//! `executed_X` and `code_X`; their sums are `executed` and `code`. The measured machine gives
//! [`CPU_MHZ`]; its count of an event `X` is `counted_X`, for hypotheses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{self, Field, Table, suggest};
use crate::kind::FileKind;
use crate::problem::Errors;
use crate::sources::WORKLOADS;
use cloison_metrics::Formula;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The start of the names of quantities of the code, as a reader of the listing counts it.
pub const IN_THE_CODE: &str = "code";
/// The start of the names of quantities of the executed code.
pub const EXECUTED: &str = "executed";

/// The quantity for the clock of the measured machine's cores, in MHz.
pub const CPU_MHZ: &str = "cpu_mhz";
/// The start of the names of quantities that are the mean count of an event in the benchmark.
pub const COUNTED: &str = "counted";

/// Returns the event of a quantity that is a mean count.
pub fn counted(quantity: &str) -> Option<&str> {
    quantity.strip_prefix(COUNTED)?.strip_prefix('_')
}

/// A validated manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its description, for reports.
    pub title: String,
    /// The CPU whose events it is about.
    pub cpu: String,
    /// The benchmarks, in the order of the file.
    pub benchmarks: Vec<Benchmark>,
    /// The expectation for each event, in the order of the file.
    pub events: Vec<Expectation>,
    /// The quantities that every benchmark has, those of the machine, and those that events
    /// counted.
    names: Vec<String>,
}

/// A representative benchmark.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// Its name.
    pub name: String,
    /// Its source, such as a figure of a paper.
    pub source: String,
    /// The guest that runs it, if Cloison ships one.
    pub guest: Option<Guest>,
    /// The events whose counts cannot be derived for it, or all for which they can.
    underivable: Vec<String>,
    only: Option<Vec<String>>,
    quantities: BTreeMap<String, f64>,
}

/// A guest that runs a benchmark, as one or more observation segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The workload's name.
    pub workload: String,
    /// Its arguments.
    pub args: [u64; 4],
    /// The argument that is the number of runs.
    pub runs_argument: usize,
    /// The number of the benchmark's sub-experiment in the log.
    pub segment: u32,
}

/// The expected count of an event, by its documentation.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The event's name.
    pub event: String,
    /// The count, as arithmetic with the benchmarks' quantities.
    pub counts: Formula,
    /// Whether the CPU has it: documentation may know a class of instructions, and no event for
    /// it.
    pub exists: bool,
    /// The benchmarks for which its counts can be derived, if those are few.
    only: Option<Vec<String>>,
    /// The maximum distance of a count from the expectation.
    pub tolerance: Tolerance,
    /// Why it should count this.
    pub because: String,
}

/// The maximum distance of a count from an expectation: the greater of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// A share of the expectation, in percent.
    pub percent: f64,
    /// A number of events.
    pub events: f64,
}

impl Tolerance {
    /// Returns whether a count is close enough.
    pub fn accepts(self, expected: f64, counted: f64) -> bool {
        (counted - expected).abs() <= self.around(expected)
    }

    /// Returns the tolerance around `expected`, in events.
    pub fn around(self, expected: f64) -> f64 {
        (self.percent / 100.0 * expected.abs()).max(self.events)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.percent, self.events) {
            (0.0, events) => write!(f, "{events} events"),
            (percent, 0.0) => write!(f, "{percent} %"),
            (percent, events) => write!(f, "{percent} % or {events} events"),
        }
    }
}

impl Benchmark {
    /// Returns the value of a quantity.
    pub fn quantity(&self, name: &str) -> Option<f64> {
        self.quantities.get(name).copied()
    }

    /// Returns whether an event's count can be derived for it.
    pub fn derives(&self, event: &Expectation) -> bool {
        let is_in = |list: &[String]| list.contains(&event.event);
        let is_named = event
            .only
            .as_ref()
            .is_none_or(|only| only.contains(&self.name));
        is_named && !is_in(&self.underivable) && self.only.as_deref().is_none_or(is_in)
    }
}

impl Manifest {
    /// Reads and validates a manifest.
    ///
    /// # Errors
    ///
    /// Returns all errors of the file with their positions.
    pub fn load(path: &Path) -> Result<Self, Errors> {
        document::load(path, "name a manifest of benchmarks", read)
    }

    /// Returns an event's expectation.
    pub fn event(&self, name: &str) -> Option<&Expectation> {
        self.events
            .iter()
            .find(|expectation| expectation.event == name)
    }

    /// Returns a benchmark.
    pub fn benchmark(&self, name: &str) -> Option<&Benchmark> {
        self.benchmarks
            .iter()
            .find(|benchmark| benchmark.name == name)
    }

    /// Reads an event's count as arithmetic with quantities of every benchmark, of the machine, and
    /// of other events.
    pub(crate) fn formula(&self, field: &Field<'_>, event: &str) -> Option<Formula> {
        formula_of(field, &self.names, event)
    }
}

/// The notation of a quantity of this kind of file.
const FORMULA: &str = "arithmetic with quantities: \"2 * lines\"";

fn formula(field: &Field<'_>) -> Option<Formula> {
    let text = field.string(FORMULA)?;
    let wrong = |message: String| {
        field.push(
            field
                .error(message)
                .label("here")
                .help("write + - * / and brackets, numbers and names of quantities"),
        );
    };
    Formula::new(text).map_err(wrong).ok()
}

fn known_formula(field: &Field<'_>, names: &[String]) -> Option<Formula> {
    let formula = formula(field)?;
    let unknown = formula.names().iter().find(|name| !names.contains(name));
    if let Some(unknown) = unknown {
        let known = suggest(unknown, "quantities", names.iter().map(String::as_str));
        let error = field
            .error(format!("not every benchmark has a quantity `{unknown}`"))
            .label("unknown quantity");
        field.push(error.help(known));
        return None;
    }
    Some(formula)
}

/// Reads a list of names, each of which must be known; `one` is what a name is of, with its
/// article, which the file calls `written`.
fn known_list(list: &Field<'_>, one: &str, written: &str, known: &[&str]) -> Option<Vec<String>> {
    let kind = one.split_once(' ').map_or(one, |(_, kind)| kind);
    let read = |field: &Field<'_>| {
        let name = field.string(&format!("{one}'s name"))?;
        if !known.contains(&name) {
            let error = field
                .error(format!("there is no {written} `{name}`"))
                .label(format!("unknown {kind}"));
            field.push(error.help(suggest(name, &format!("{kind}s"), known.iter().copied())));
        }
        Some(name.to_owned())
    };
    Some(list.elements()?.iter().filter_map(read).collect())
}

/// Reads what an event counts: any quantity but its own counts.
fn formula_of(field: &Field<'_>, names: &[String], event: &str) -> Option<Formula> {
    let formula = known_formula(field, names)?;
    let is_own = formula
        .names()
        .iter()
        .any(|name| counted(name) == Some(event));
    if is_own {
        let error = field
            .error(format!("`{event}` cannot be explained by what it counted"))
            .label("its own counts");
        field.push(error.help("name what else is counted"));
    }
    (!is_own).then_some(formula)
}

/// Reads a name that formulas can use.
fn usable(name: &str, what: &str, table: &Table<'_>, span: std::ops::Range<usize>) -> bool {
    let is_name = Formula::is_name(name);
    if !is_name {
        let error = table
            .error(name, span, format!("`{name}` cannot be the name of {what}"))
            .label("not a name");
        table.push(error.help("use letters, digits and _, a letter first"));
    }
    is_name
}

fn text(table: &Table<'_>, key: &'static str, help: &str) -> Option<String> {
    let field = table.required(key, help)?;
    let text = field.string("a text")?.to_owned();
    if text.is_empty() {
        field.push(
            field
                .error(format!("`{key}` is empty"))
                .label("empty")
                .help(help),
        );
    }
    Some(text)
}

fn read(root: &Table<'_>) -> Option<Manifest> {
    FileKind::Benchmarks.fits(root)?;
    let title = text(
        root,
        "title",
        "say what the benchmarks are: title = \"A Cortex-A53's events\"",
    );
    let cpu = text(
        root,
        "cpu",
        "name the CPU whose events these are: cpu = \"cortex-a53\"",
    );
    let tolerance = root
        .table("tolerance")
        .map_or_else(Tolerance::default, |table| read_tolerance(&table));
    let shared = root
        .table("quantities")
        .map_or_else(Vec::new, |table| read_quantities(&table));
    let written = root.tables("event");
    let expected: Vec<&str> = written
        .iter()
        .filter_map(|table| table.optional("name")?.string("a text"))
        .collect();
    let mut benchmarks: Vec<Benchmark> = vec![];
    for mut table in root.tables("benchmark") {
        let Some(benchmark) = read_benchmark(&mut table, &shared, &expected) else {
            continue;
        };
        if benchmarks.iter().any(|other| other.name == benchmark.name) {
            let error = table.error(
                "name",
                table.span(),
                format!("there are two benchmarks `{}`", benchmark.name),
            );
            table.push(error.label("again").help("rename one"));
        }
        benchmarks.push(benchmark);
    }
    if benchmarks.is_empty() {
        let error = root.error("benchmark", 0..0, "there is no benchmark");
        root.push(
            error
                .label("in this file")
                .help("add a [[benchmark]] with its blocks of code"),
        );
    }
    complete(&mut benchmarks);
    let mut names = names(&benchmarks);
    names.push(CPU_MHZ.to_owned());
    names.extend(expected.iter().map(|event| format!("{COUNTED}_{event}")));
    let mut events: Vec<Expectation> = vec![];
    for mut table in root.tables("event") {
        let Some(event) = read_event(&mut table, &names, &benchmarks, tolerance) else {
            continue;
        };
        if events.iter().any(|other| other.event == event.event) {
            let error = table.error(
                "name",
                table.span(),
                format!("`{}` is expected twice", event.event),
            );
            table.push(
                error
                    .label("again")
                    .help("one [[event]] says what it counts; put others into hypotheses"),
            );
        }
        events.push(event);
    }
    if events.is_empty() {
        let error = root.error("event", 0..0, "there is no event");
        root.push(
            error
                .label("in this file")
                .help("add an [[event]] with what it `counts`"),
        );
    }
    root.finish_ref();
    Some(Manifest {
        title: title?,
        cpu: cpu?,
        benchmarks,
        events,
        names,
    })
}

/// Gives every benchmark all instructions: those that it does not have, none of them.
fn complete(benchmarks: &mut [Benchmark]) {
    let is_instruction = |name: &&String| {
        [IN_THE_CODE, EXECUTED].iter().any(|start| {
            name.strip_prefix(start)
                .is_some_and(|rest| rest.starts_with('_'))
        })
    };
    let all: Vec<String> = benchmarks
        .iter()
        .flat_map(|benchmark| benchmark.quantities.keys().filter(is_instruction).cloned())
        .collect();
    for benchmark in benchmarks {
        for name in &all {
            benchmark.quantities.entry(name.clone()).or_insert(0.0);
        }
    }
}

/// Returns the quantities that all benchmarks have.
fn names(benchmarks: &[Benchmark]) -> Vec<String> {
    let Some((first, rest)) = benchmarks.split_first() else {
        return vec![];
    };
    let shared = first.quantities.keys().filter(|name| {
        rest.iter()
            .all(|other| other.quantities.contains_key(*name))
    });
    shared.cloned().collect()
}

fn read_tolerance(table: &Table<'_>) -> Tolerance {
    let number = |key: &'static str, wanted: &str| {
        table.optional(key).and_then(|field| field.number(wanted))
    };
    let tolerance = Tolerance {
        percent: number("percent", "a share of the expectation in percent: 0.1").unwrap_or(0.0),
        events: number("events", "a number of events: 100").unwrap_or(0.0),
    };
    if tolerance.percent >= 100.0 {
        let error = table.error(
            "percent",
            table.span(),
            "a tolerance of 100 % or more accepts a counter that never moves",
        );
        table.push(error.label("too large").help("give less than 100"));
    }
    table.finish_ref();
    tolerance
}

/// A quantity as written: its name, its formula, and where problems with it belong.
type Written<'a> = (String, Formula, Field<'a>);

fn read_quantities<'a>(table: &Table<'a>) -> Vec<Written<'a>> {
    let mut all = vec![];
    for (name, span, field) in table.entries() {
        let is_mix = [IN_THE_CODE, EXECUTED].iter().any(|start| {
            name.strip_prefix(start)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        });
        if is_mix {
            let error = table.error(
                name,
                span,
                format!("`{name}` follows from the blocks of code"),
            );
            table.push(
                error
                    .label("reserved")
                    .help("rename it, or count it in a [[benchmark.block]]"),
            );
            continue;
        }
        if name == CPU_MHZ || counted(name).is_some() {
            let error = table.error(
                name,
                span,
                format!("`{name}` follows from the machine that is measured"),
            );
            table.push(error.label("reserved").help("rename it"));
            continue;
        }
        if !usable(name, "a quantity", table, span) {
            continue;
        }
        let formula = if field.is_string() {
            formula(&field)
        } else {
            field
                .number(FORMULA)
                .and_then(|number| Formula::new(&number.to_string()).ok())
        };
        all.extend(formula.map(|formula| (name.to_owned(), formula, field)));
    }
    all
}

/// Computes quantities from each other, whatever their order.
fn resolve(written: &[&Written<'_>]) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let mut rest: Vec<_> = written.to_vec();
    loop {
        let before = rest.len();
        rest.retain(|(name, formula, _)| {
            let value = formula.value(|other| values.get(other).copied());
            values.extend(value.map(|value| (name.clone(), value)));
            value.is_none()
        });
        if rest.len() == before {
            break;
        }
    }
    // What only waits for a wrong quantity is not wrong itself, unless they all wait for each
    // other.
    let is_written = |name: &String| written.iter().any(|(other, ..)| other == name);
    let is_cause = |(_, formula, _): &&&Written<'_>| {
        !formula.names().iter().all(is_written)
            || formula.names().iter().all(|name| values.contains_key(name))
    };
    let causes: Vec<_> = rest.iter().filter(is_cause).collect();
    for (_, formula, field) in if causes.is_empty() {
        rest.iter().collect()
    } else {
        causes
    } {
        let missing = formula
            .names()
            .iter()
            .find(|name| !values.contains_key(*name));
        let (message, help) = match missing {
            None => (
                format!("`{formula}` has no finite value"),
                "do not divide by 0".to_owned(),
            ),
            Some(name) if is_written(name) => (
                format!("`{formula}` depends on itself, through `{name}`"),
                "break the circle".to_owned(),
            ),
            Some(name) => {
                let known = written.iter().map(|(name, ..)| name.as_str());
                (
                    format!("`{formula}` needs `{name}`, which no quantity gives"),
                    suggest(name, "quantities", known),
                )
            }
        };
        field.push(field.error(message).label("cannot be computed").help(help));
    }
    // The file is wrong; what uses these quantities is not.
    let unknown: Vec<String> = rest.iter().map(|(name, ..)| name.clone()).collect();
    values.extend(unknown.into_iter().map(|name| (name, 0.0)));
    values
}

fn read_benchmark(
    table: &mut Table<'_>,
    shared: &[Written<'_>],
    expected: &[&str],
) -> Option<Benchmark> {
    let name = text(table, "name", "name the benchmark: name = \"matrix-copy\"")?;
    table.rename(&name);
    let source = text(
        table,
        "source",
        "say where it is described: source = \"HEM reliability, figure 2\"",
    )?;
    let own = table
        .table("quantities")
        .map_or_else(Vec::new, |table| read_quantities(&table));
    let others = shared
        .iter()
        .filter(|(name, ..)| !own.iter().any(|(own, ..)| own == name));
    let mut quantities = resolve(&own.iter().chain(others).collect::<Vec<_>>());
    let defined: Vec<String> = quantities.keys().cloned().collect();
    let mut mix: BTreeMap<String, f64> = [IN_THE_CODE, EXECUTED]
        .map(|name| (name.to_owned(), 0.0))
        .into();
    for block in table.tables("block") {
        read_block(&block, &defined, &quantities, &mut mix);
    }
    quantities.append(&mut mix);
    let list =
        |key: &'static str| known_list(&table.optional(key)?, "an event", "[[event]]", expected);
    let (underivable, only) = (list("underivable").unwrap_or_default(), list("only"));
    let guest = read_guest(table);
    table.finish_ref();
    Some(Benchmark {
        name,
        source,
        guest,
        underivable,
        only,
        quantities,
    })
}

fn read_guest(table: &Table<'_>) -> Option<Guest> {
    let arguments = table.optional("args");
    let runs_argument = table.optional("runs_argument");
    let segment = table.optional("segment").map_or(Some(0), |field| {
        field.integer_up_to(255, "a number up to 255")
    });
    let workload = table.optional("workload")?;
    let name = workload.string("the name of a workload")?.to_owned();
    if !WORKLOADS.iter().any(|(known, _)| *known == name) {
        let error = workload
            .error(format!("there is no workload `{name}`"))
            .label("unknown workload");
        workload.push(error.help(suggest(
            &name,
            "workloads",
            WORKLOADS.iter().map(|(known, _)| *known),
        )));
    }
    let mut args = [0; 4];
    if let Some(field) = arguments {
        let given = field.elements()?;
        if given.len() > args.len() {
            field.push(
                field
                    .error("more than 4 arguments")
                    .label("too many")
                    .help("a workload has at most 4"),
            );
        }
        for (slot, element) in args.iter_mut().zip(&given) {
            *slot = element.integer("a workload's argument")?;
        }
    }
    let runs_argument = match runs_argument {
        Some(field) => {
            field.integer_up_to(3, "the argument that is the number of runs: 0 to 3")? as usize
        }
        None => {
            let error = table
                .error("runs_argument", table.span(), "`runs_argument` is missing")
                .label("belongs here");
            table.push(error.help(
                "say which of the workload's arguments is its number of runs: runs_argument = 0",
            ));
            return None;
        }
    };
    Some(Guest {
        workload: name,
        args,
        runs_argument,
        segment: segment? as u32,
    })
}

/// Adds a block's instructions to the mix of a benchmark.
fn read_block(
    table: &Table<'_>,
    defined: &[String],
    quantities: &BTreeMap<String, f64>,
    mix: &mut BTreeMap<String, f64>,
) -> Option<()> {
    let times = |field: &Field<'_>| {
        let value = match field.is_string() {
            true => known_formula(field, defined)?.value(|name| quantities.get(name).copied()),
            false => Some(field.number("how often it is executed: a number, or \"iterations\"")?),
        };
        if value.is_none_or(|value| value < 0.0) {
            let error = field
                .error("a block is executed 0 times or more")
                .label("negative or not finite");
            field.push(
                error.help("write a number, or arithmetic with quantities that is not negative"),
            );
        }
        value.filter(|value| *value >= 0.0)
    };
    let executed = table
        .required(
            "executed",
            "say how often it is executed: executed = \"iterations\"",
        )
        .as_ref()
        .and_then(times);
    let listed = table
        .optional("listed")
        .map_or(Some(executed), |field| times(&field).map(Some));
    let code = table.required(
        "code",
        "give the block's instructions: code = { LDR = 5, STR = 2 }",
    );
    let code = code.and_then(|field| field.table());
    for (name, span, field) in code.as_ref().map_or_else(Vec::new, Table::entries) {
        if !usable(name, "an instruction", code.as_ref()?, span) {
            continue;
        }
        let number = field.number("a number of instructions")?;
        for (start, times) in [(EXECUTED, executed), (IN_THE_CODE, listed.flatten())] {
            let times = times.unwrap_or(0.0);
            *mix.entry(format!("{start}_{name}")).or_insert(0.0) += number * times;
            *mix.entry(start.to_owned()).or_insert(0.0) += number * times;
        }
    }
    table.finish_ref();
    Some(())
}

fn read_event(
    table: &mut Table<'_>,
    names: &[String],
    benchmarks: &[Benchmark],
    tolerance: Tolerance,
) -> Option<Expectation> {
    let event = text(table, "name", "name the event: name = \"L2D_CACHE\"")?;
    table.rename(&event);
    let counts = table.required(
        "counts",
        "say what it counts by its documentation: counts = \"loads + stores\"",
    );
    let counts = counts.and_then(|field| formula_of(&field, names, &event));
    let because = text(
        table,
        "because",
        "say why: because = \"every load and store looks it up\"",
    );
    let exists = table
        .optional("exists")
        .map_or(Some(true), |field| field.boolean());
    let known: Vec<&str> = benchmarks
        .iter()
        .map(|benchmark| benchmark.name.as_str())
        .collect();
    let only = table
        .optional("only")
        .and_then(|field| known_list(&field, "a benchmark", "benchmark", &known));
    let tolerance = table
        .table("tolerance")
        .map_or(tolerance, |table| read_tolerance(&table));
    table.finish_ref();
    Some(Expectation {
        event,
        counts: counts?,
        exists: exists?,
        only,
        tolerance,
        because: because?,
    })
}
