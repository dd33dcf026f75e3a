//! `cloison much plan`: plans sub-experiments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runner::{self, RunEvent, RunnerArgs};
use cloison_config::events::{CounterIndex, CounterSet, Event};
use cloison_engine::configuration;
use cloison_engine::figures::Figures;
use cloison_engine::files::{write_atomic, write_json};
use cloison_engine::installation;
use cloison_engine::report::Section;
use cloison_much::data::FEWEST_RUNS;
use cloison_much::plan::{self, Catalogue, Plan, verify};
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, Report, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// Options of `cloison much plan`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct PlanArgs {
    /// The events, by name or number
    #[arg(long, group = "what", value_name = "EVENT", value_delimiter = ',', num_args = 1..)]
    events: Vec<String>,
    /// Number of events, without names
    #[arg(long, group = "what", value_name = "V")]
    count: Option<usize>,
    /// Show the sizes for 4 to 64 events on 2 to 8 counters
    #[arg(long, group = "what")]
    table: bool,
    /// Number of counters of the PMU
    #[arg(long, value_name = "N", default_value_t = 6)]
    pmcs: usize,
    /// The CPU of these events, as in configs/events: checks their names, adds their numbers, and
    /// binds them to the counters that can count them
    #[arg(long, value_name = "CPU")]
    cpu: Option<String>,
    /// An event that only some counters can count: EVENT=0,2. Not with --anchor or --runs, because
    /// HRM binds no events
    #[arg(long, value_name = "EVENT=COUNTERS")]
    bind: Vec<String>,
    /// How to plan
    #[arg(long, value_enum, default_value_t = Planner::Fewest, conflicts_with_all = ["table", "anchor", "bind", "runs"])]
    plan: Planner,
    /// Plan for HRM: this event in every sub-experiment, every other in one
    #[arg(long, value_name = "EVENT", conflicts_with = "bind")]
    anchor: Option<String>,
    /// Advise MUCH or HRM for so many runs in all. Not with --bind, because HRM binds no events
    #[arg(long, value_name = "N", conflicts_with_all = ["table", "bind"])]
    runs: Option<usize>,
    /// Write the plan and its figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    runner: RunnerArgs,
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Planner {
    /// With the fewest sub-experiments that the planner finds
    Fewest,
    /// By the greedy process of MUCH's paper
    Paper,
}

/// An event in the plan.
#[derive(Clone, Debug, Serialize)]
struct PlannedEvent {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
    /// The counters that can count it.
    #[serde(skip)]
    counters: CounterSet,
}

impl PlannedEvent {
    /// Returns an event of which no table is known.
    fn new(name: String, code: Option<u32>) -> Self {
        Self {
            name,
            code,
            counters: CounterSet::ALL,
        }
    }
}

/// Runs `cloison much plan`.
pub fn plan(args: &PlanArgs) -> Result<()> {
    if args.table {
        return table(args);
    }
    let events = EventList(events(args)?);
    let (plan, counters) = events.plan(args)?;
    // The same check as in the tests: this command never prints a plan that misses a pair.
    if args.anchor.is_none() {
        verify(plan.events, plan.counters, &plan.sub_experiments)
            .map_err(|fault| miette!("the planner is wrong: {fault}"))?;
    }
    let EventList(events) = events;
    let run_event = |event: &PlannedEvent| RunEvent {
        name: event.name.clone(),
        code: event.code,
    };
    let to_run: Vec<RunEvent> = events.iter().map(run_event).collect();
    let is_written = runner::write(&args.runner, &plan.sub_experiments, &to_run)?;
    // What is written to standard output is to be read by a program.
    if is_written && args.runner.output.is_none() {
        return match &args.json {
            Some(path) => write_json(path, &json(&plan, &events, counters)?),
            None => Ok(()),
        };
    }
    print(&plan, &events, counters.as_deref(), args.anchor.is_some());
    if let Some(runs) = args.runs {
        println!(
            "{}",
            advice(plan.events, plan.counters, runs).map_err(|error| miette!("{error}"))?
        );
    }
    match &args.json {
        Some(path) => write_json(path, &json(&plan, &events, counters)?),
        None => Ok(()),
    }
}

/// The counter of each event of each sub-experiment.
type Counters = Vec<Vec<CounterIndex>>;

/// The events to plan for.
struct EventList(Vec<PlannedEvent>);

impl EventList {
    /// Returns the plan that the options ask for; and the counters of its events, if some events
    /// are bound to some.
    fn plan(&self, args: &PlanArgs) -> Result<(Plan, Option<Counters>)> {
        let Self(events) = self;
        let error = |error| self.explained(error, args.pmcs);
        let bound = events
            .iter()
            .find(|event| event.counters != CounterSet::ALL);
        if let Some(anchor) = &args.anchor {
            if let Some(event) = bound {
                return Err(miette!(
                    help = "plan without --anchor, or without --cpu",
                    "HRM's plan cannot bind events to counters, and only some counters can count \
                     {}",
                    event.name
                ));
            }
            let anchor = self.position(anchor)?;
            let plan = plan::hrm_plan(events.len(), args.pmcs, anchor).map_err(error)?;
            return Ok((plan, None));
        }
        if args.plan == Planner::Paper {
            if let Some(event) = bound {
                return Err(miette!(
                    help = "plan without --plan paper, or without --cpu",
                    "the paper's process does not bind events to counters, and only some counters \
                     can count {}",
                    event.name
                ));
            }
            return Ok((
                plan::paper_plan(events.len(), args.pmcs).map_err(error)?,
                None,
            ));
        }
        if args.bind.is_empty() && bound.is_none() {
            return Ok((cached(events.len(), args.pmcs).map_err(error)?, None));
        }
        let bindings = self.bindings(args)?;
        let planned = plan::plan_bound(&mut Catalogue::default(), &bindings, args.pmcs);
        let (plan, counters) = planned.map_err(error)?;
        Ok((plan, Some(counters)))
    }

    /// Returns the position of an event by its name or its number.
    fn position(&self, text: &str) -> Result<usize> {
        let number = number(text);
        let is_meant =
            |event: &PlannedEvent| event.name == text || number.is_some() && event.code == number;
        let found = self.0.iter().position(is_meant);
        found.ok_or_else(|| {
            miette!(
                help = "use one of --events",
                "the plan has no event `{text}`"
            )
        })
    }

    /// Returns an error of the planner with the events' names.
    fn explained(&self, error: plan::PlanError, pmcs: usize) -> Report {
        let Self(events) = self;
        match error {
            plan::PlanError::NeverTogether(a, b) => miette!(
                "{} and {} can never be counted together: they are bound to too few counters",
                events[a].name,
                events[b].name
            ),
            plan::PlanError::Nowhere(event) => miette!(
                "{} is not bound to any counter from 0 to {}",
                events[event].name,
                pmcs.saturating_sub(1)
            ),
            other => miette!("{other}"),
        }
    }

    /// Returns the counters that can count each event, of those that the options leave it.
    fn bindings(&self, args: &PlanArgs) -> Result<Vec<CounterSet>> {
        let Self(events) = self;
        let mut bindings: Vec<CounterSet> = events.iter().map(|event| event.counters).collect();
        let mut named_before = vec![];
        for bind in &args.bind {
            let (event, counters) = bind.split_once('=').ok_or_else(|| {
                miette!(help = "write EVENT=0,2", "--bind {bind}: there is no `=`")
            })?;
            let named = named_counters(bind, counters, args.pmcs)?;
            let event = self.position(event)?;
            if named_before.contains(&event) {
                return Err(miette!(
                    help = "name all its counters at once: EVENT=0,2",
                    "--bind {bind}: {} is bound already",
                    events[event].name
                ));
            }
            bindings[event] = bindings[event] & named;
            if bindings[event].is_empty() {
                let help = format!(
                    "`cloison events show {}` lists its counters",
                    events[event].name
                );
                return Err(miette!(
                    help = help,
                    "--bind {bind}: none of these counters can count it"
                ));
            }
            named_before.push(event);
        }
        Ok(bindings)
    }
}

/// Returns the counters that an option names.
fn named_counters(bind: &str, counters: &str, pmcs: usize) -> Result<CounterSet> {
    let all = CounterSet::lowest(pmcs as u32);
    let counter = |text: &str| {
        let number: u32 = text
            .trim()
            .parse()
            .into_diagnostic()
            .wrap_err_with(|| miette!("--bind {bind}"))?;
        CounterIndex::new(number)
            .filter(|&counter| all.contains(counter))
            .ok_or_else(|| miette!("--bind {bind}: there is no counter {number} of {pmcs}"))
    };
    counters.split(',').map(counter).collect()
}

/// Returns the plan and its figures.
fn json(
    plan: &Plan,
    events: &[PlannedEvent],
    counters: Option<Counters>,
) -> Result<serde_json::Value> {
    let mut figures = Figures::new("much plan");
    figures
        .count("size", plan.sub_experiments.len() as u64)
        .count("lower_bound", plan.lower_bound as u64)
        .count("optimal", plan.is_optimal().into())
        .count("events", plan.events as u64)
        .count("pmcs", plan.counters as u64);
    let names: Vec<Vec<&str>> = plan
        .sub_experiments
        .iter()
        .map(|block| block.iter().map(|&event| &*events[event].name).collect())
        .collect();
    let mut json = serde_json::to_value(&figures).into_diagnostic()?;
    json["sub_experiments"] = serde_json::to_value(names).into_diagnostic()?;
    json["events"] = serde_json::to_value(events).into_diagnostic()?;
    if let Some(counters) = counters {
        let numbers = |block: Vec<CounterIndex>| block.into_iter().map(u64::from).collect();
        let numbers: Vec<Vec<u64>> = counters.into_iter().map(numbers).collect();
        json["counters"] = serde_json::to_value(numbers).into_diagnostic()?;
    }
    Ok(json)
}

/// Which method fits a number of runs in all: MUCH where each of its sub-experiments gets as many
/// as a correlation needs, or HRM where each of its does (the paper, sections 4.4 and 5.3).
fn advice(events: usize, counters: usize, runs: usize) -> Result<String, plan::PlanError> {
    let much = cached(events, counters)?.sub_experiments.len();
    let hrm = plan::hrm_plan(events, counters, 0)?.sub_experiments.len();
    let each = format!(
        "{runs} runs are {} of each of MUCH's {much} sub-experiments, {} of HRM's {hrm}",
        runs / much,
        runs / hrm
    );
    let enough = |sub_experiments| runs / sub_experiments >= FEWEST_RUNS;
    let choice = if enough(much) {
        "take MUCH: it keeps the correlations of all pairs".to_owned()
    } else if enough(hrm) {
        format!(
            "take HRM, which keeps the correlations with its anchor, or {} runs for MUCH: a \
             sub-experiment needs {FEWEST_RUNS}",
            much * FEWEST_RUNS
        )
    } else {
        format!(
            "too few for either: MUCH needs {} runs, HRM {}; count fewer events",
            much * FEWEST_RUNS,
            hrm * FEWEST_RUNS
        )
    };
    Ok(format!("{each}: {choice}."))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn events(args: &PlanArgs) -> Result<Vec<PlannedEvent>> {
    if let Some(count) = args.count {
        return Ok((0..count)
            .map(|number| PlannedEvent::new(format!("E{number}"), None))
            .collect());
    }
    let known = args.cpu.as_deref().map(of_cpu).transpose()?;
    let mut events: Vec<PlannedEvent> = vec![];
    for text in &args.events {
        let code = number(text);
        let event = match (&known, code) {
            (None, code) => PlannedEvent::new(text.clone(), code),
            (Some(known), Some(code)) => known
                .iter()
                .find(|event| event.code == Some(code))
                .cloned()
                .unwrap_or_else(|| PlannedEvent::new(text.clone(), Some(code))),
            (Some(known), None) => known
                .iter()
                .find(|event| event.name == *text)
                .cloned()
                .ok_or_else(|| {
                    let by_distance =
                        |event: &&PlannedEvent| strsim::damerau_levenshtein(&event.name, text);
                    let near = known
                        .iter()
                        .min_by_key(by_distance)
                        .map_or("", |event| event.name.as_str());
                    miette!(
                        help = format!("did you mean {near}?"),
                        "the CPU has no event `{text}`"
                    )
                })?,
        };
        if events.iter().any(|other| other.name == event.name) {
            return Err(miette!("{} is listed twice", event.name));
        }
        events.push(event);
    }
    Ok(events)
}

/// Returns the events of a CPU from its table in configs/events.
fn of_cpu(cpu: &str) -> Result<Vec<PlannedEvent>> {
    let table = configuration::event_table(cpu)?;
    let named = |event: &Event| PlannedEvent {
        counters: event.counters,
        ..PlannedEvent::new(event.name.clone(), Some(event.id.0.into()))
    };
    Ok(table.events.iter().map(named).collect())
}

fn print(plan: &Plan, events: &[PlannedEvent], counters: Option<&[Vec<CounterIndex>]>, hrm: bool) {
    let size = plan.sub_experiments.len();
    let kind = if hrm {
        "Sub-experiments with the anchor"
    } else {
        "Sub-experiments in which every pair meets"
    };
    let mut section = Section::new(kind, &["sub-experiment", "events"]);
    for (number, block) in plan.sub_experiments.iter().enumerate() {
        let name = |(at, &event): (usize, &usize)| match counters {
            Some(counters) => format!("{} on {}", events[event].name, counters[number][at]),
            None => events[event].name.clone(),
        };
        section.row([
            number.to_string(),
            block
                .iter()
                .enumerate()
                .map(name)
                .collect::<Vec<_>>()
                .join(", "),
        ]);
    }
    let verdict = if plan.is_optimal() {
        format!(
            "{size} sub-experiments: optimal, because no plan has fewer than {}",
            plan.lower_bound
        )
    } else {
        format!(
            "{size} sub-experiments; no plan has fewer than {}",
            plan.lower_bound
        )
    };
    let schoenheim = plan::schoenheim(plan.events, plan.counters);
    let bound = if hrm {
        String::new()
    } else {
        format!(" (Schönheim's bound: {schoenheim})")
    };
    print!(
        "{}",
        section
            .note(format!("{verdict}{bound}. Made by: {}.", plan.origin))
            .to_text()
    );
}

/// Earlier plans, by events and counters. What is read from the file is verified before use.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Cache {
    plans: BTreeMap<String, Cached>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cached {
    sub_experiments: Vec<Vec<usize>>,
    origin: String,
}

impl Cache {
    /// The version is part of the name: another planner finds other plans.
    fn path() -> PathBuf {
        installation::cache_dir().join("much").join(concat!(
            "plans-",
            env!("CARGO_PKG_VERSION"),
            "-3.json"
        ))
    }
    fn load() -> Self {
        std::fs::read(Self::path())
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }
    fn get(&self, events: usize, counters: usize) -> Option<Plan> {
        let cached = self.plans.get(&format!("{events},{counters}"))?;
        verify(events, counters, &cached.sub_experiments).ok()?;
        Some(Plan {
            events,
            counters,
            sub_experiments: cached.sub_experiments.clone(),
            lower_bound: plan::lower_bound(events, counters),
            origin: cached.origin.clone(),
        })
    }
    fn put(&mut self, plan: &Plan) {
        let cached = Cached {
            sub_experiments: plan.sub_experiments.clone(),
            origin: plan.origin.clone(),
        };
        self.plans
            .insert(format!("{},{}", plan.events, plan.counters), cached);
    }
    /// Failing to write the cache is harmless: the plan is valid without it.
    fn store(&self) {
        if let Ok(text) = serde_json::to_vec(self)
            && let Err(error) = write_atomic(&Self::path(), &text)
        {
            eprintln!("warning: cannot keep the plans: {error}");
        }
    }
}

fn cached(events: usize, counters: usize) -> Result<Plan, plan::PlanError> {
    let mut cache = Cache::load();
    if let Some(plan) = cache.get(events, counters) {
        return Ok(plan);
    }
    let spinner = ProgressBar::new_spinner()
        .with_message(format!("planning {events} events on {counters} counters"));
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    let plan = plan::plan(&mut Catalogue::default(), events, counters);
    spinner.finish_and_clear();
    let plan = plan?;
    cache.put(&plan);
    cache.store();
    Ok(plan)
}

/// Returns all sizes of the table, with one thread per number of counters.
fn table(args: &PlanArgs) -> Result<()> {
    let (counts, counters) = (4..=64, 2..=8_usize);
    let cache = Mutex::new(Cache::load());
    let bar = ProgressBar::new((counts.clone().count() * counters.clone().count()) as u64);
    std::thread::scope(|scope| {
        for counter in counters.clone() {
            let (cache, bar, counts) = (&cache, &bar, counts.clone());
            scope.spawn(move || {
                let mut catalogue = Catalogue::default();
                for events in counts {
                    let known = cache
                        .lock()
                        .is_ok_and(|cache| cache.get(events, counter).is_some());
                    if !known
                        && let Ok(plan) = plan::plan(&mut catalogue, events, counter)
                        && let Ok(mut cache) = cache.lock()
                    {
                        cache.put(&plan);
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let cache = cache
        .into_inner()
        .map_err(|_| miette!("a thread of the planner ended early"))?;
    cache.store();
    let header: Vec<String> = std::iter::once("events".to_owned())
        .chain(counters.clone().map(|n| format!("{n} PMCs")))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut section = Section::new("Sub-experiments in which every pair meets", &header);
    let mut figures = Figures::new("much plan");
    for events in counts {
        let mut row = vec![events.to_string()];
        for counter in counters.clone() {
            let plan = cache
                .get(events, counter)
                .ok_or_else(|| miette!("no plan for {events} events on {counter}"))?;
            let size = plan.sub_experiments.len();
            figures.count(format!("size_{events}_{counter}"), size as u64);
            row.push(if plan.is_optimal() {
                size.to_string()
            } else {
                format!("{size} (≥ {})", plan.lower_bound)
            });
        }
        section.row(row);
    }
    print!(
        "{}",
        section
            .note("A size without a bound in parentheses is proven to be minimal.")
            .to_text()
    );
    figures.write(args.json.as_deref())
}
