//! Measured counts of events in benchmarks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::manifest::Manifest;
use crate::document::{self, Field, Table, suggest};
use crate::problem::Errors;
use std::collections::BTreeMap;
use std::path::Path;

/// The fastest clock of a core that is no mistake.
const MOST_MHZ: u64 = 10_000;

/// The counts of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// The machine that was measured.
    pub machine: String,
    /// The state of its prefetchers, which every verdict depends on.
    pub prefetcher: String,
    /// The clock of its cores in MHz, if it is known.
    pub cpu_mhz: Option<u64>,
    /// The counts of each run, by benchmark and event.
    runs: BTreeMap<(String, String), Vec<u64>>,
    /// The number of the run that each of these counts is of, ascending.
    numbers: BTreeMap<(String, String), Vec<usize>>,
    /// How many runs there are.
    numbered: usize,
}

impl Counts {
    /// Returns a machine's file without counts.
    pub fn new(machine: &str, prefetcher: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            prefetcher: prefetcher.to_owned(),
            ..Self::default()
        }
    }

    /// Reads and validates the counts of a manifest's benchmarks.
    ///
    /// # Errors
    ///
    /// Returns all errors of the file with their positions.
    pub fn load(path: &Path, manifest: &Manifest) -> Result<Self, Errors> {
        document::load(path, "name a file of counts", |root| read(root, manifest))
    }

    /// Adds the count of a run in which nothing else is known to be counted.
    pub fn add(&mut self, benchmark: &str, event: &str, count: u64) {
        self.add_run(benchmark, [(event, count)]);
    }

    /// Adds what the events counted in one run.
    pub fn add_run(
        &mut self,
        benchmark: &str,
        counts: impl IntoIterator<Item = (impl Into<String>, u64)>,
    ) {
        for (event, count) in counts {
            let key = (benchmark.to_owned(), event.into());
            let numbers = self.numbers.entry(key.clone()).or_default();
            numbers.push(self.numbered);
            self.runs.entry(key).or_default().push(count);
        }
        self.numbered += 1;
    }

    /// Returns what another event counted in the run that the count `at` of an event is of; `None`
    /// if it was not counted in that run.
    pub fn beside(&self, benchmark: &str, event: &str, at: usize, other: &str) -> Option<u64> {
        let numbers = |event: &str| self.numbers.get(&(benchmark.to_owned(), event.to_owned()));
        let run = numbers(event)?.get(at)?;
        let place = numbers(other)?.binary_search(run).ok()?;
        self.of(benchmark, other).get(place).copied()
    }

    /// Returns the counts of all runs; none if it was not measured.
    pub fn of(&self, benchmark: &str, event: &str) -> &[u64] {
        self.runs
            .get(&(benchmark.to_owned(), event.to_owned()))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns every series of counts with its benchmark and event, to change it.
    pub fn series_mut(&mut self) -> impl Iterator<Item = (&str, &str, &mut Vec<u64>)> {
        self.runs
            .iter_mut()
            .map(|((benchmark, event), counts)| (benchmark.as_str(), event.as_str(), counts))
    }
}

fn read(root: &Table<'_>, manifest: &Manifest) -> Option<Counts> {
    let text = |key, help| {
        root.required(key, help)
            .and_then(|field| field.string("a text"))
    };
    let machine = text(
        "machine",
        "name the machine that was measured: machine = \"ZCU102\"",
    );
    let prefetcher = text(
        "prefetcher",
        "say whether prefetchers were on: prefetcher = \"off\"",
    );
    let mut counts = Counts::new(machine.unwrap_or_default(), prefetcher.unwrap_or_default());
    counts.cpu_mhz = root.optional("cpu_mhz").and_then(|field| clock(&field));
    let tables = root.tables("run");
    if tables.is_empty() {
        let error = root
            .error("run", 0..0, "nothing was measured")
            .label("in this file");
        root.push(error.help("add a [[run]] with `benchmark` and `counts`"));
    }
    for mut table in tables {
        read_run(&mut table, manifest, &mut counts);
    }
    root.finish_ref();
    Some(counts)
}

/// Reads the clock of a core.
fn clock(field: &Field<'_>) -> Option<u64> {
    let clock = field.integer_up_to(MOST_MHZ, "the clock of the cores in MHz: 1200")?;
    if clock == 0 {
        field.push(
            field
                .error("a clock of 0 MHz does not tick")
                .label("here")
                .help("leave it out if it is not known"),
        );
    }
    (clock > 0).then_some(clock)
}

fn read_run(table: &mut Table<'_>, manifest: &Manifest, counts: &mut Counts) -> Option<()> {
    let field = table.required(
        "benchmark",
        "name the benchmark that was run: benchmark = \"matrix-copy\"",
    )?;
    let name = field.string("a benchmark's name")?;
    table.rename(name);
    let Some(benchmark) = manifest.benchmark(name) else {
        let known = manifest
            .benchmarks
            .iter()
            .map(|benchmark| benchmark.name.as_str());
        let error = field
            .error(format!("the manifest has no benchmark `{name}`"))
            .label("unknown benchmark");
        field.push(error.help(suggest(name, "benchmarks", known)));
        return None;
    };
    // Where the counts are from, for readers of the file.
    if let Some(source) = table.optional("source") {
        source.string("a text")?;
    }
    let series = table
        .required(
            "counts",
            "give the counts: counts = { L2D_CACHE = [130772, 130770] }",
        )?
        .table()?;
    for (event, key, field) in series.entries() {
        if manifest.event(event).is_none() {
            let known = manifest
                .events
                .iter()
                .map(|expectation| expectation.event.as_str());
            let error = series.error(event, key, format!("the manifest has no event `{event}`"));
            series.push(
                error
                    .label("unknown event")
                    .help(suggest(event, "events", known)),
            );
        } else if !counts.of(&benchmark.name, event).is_empty() {
            let error = field
                .error(format!("`{event}` was given for `{name}` before"))
                .label("again");
            field.push(error.help("give the counts of all runs in one list"));
        }
        let one = |field: &Field<'_>| field.integer("a count, or a list with one count per run");
        let all: Vec<u64> = match field.is_array() {
            true => field.elements()?.iter().filter_map(one).collect(),
            false => one(&field).into_iter().collect(),
        };
        if field.is_array() && all.is_empty() {
            field.push(
                field
                    .error("no run counted it")
                    .label("empty")
                    .help("leave out what was not measured"),
            );
        }
        all.into_iter()
            .for_each(|count| counts.add(&benchmark.name, event, count));
    }
    table.finish_ref();
    Some(())
}
