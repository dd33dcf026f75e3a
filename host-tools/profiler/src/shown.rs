//! The tables of a profile on the terminal.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::costs::{Part, WAITS, event};
use super::kept::{Gate, Verdict};
use super::runs::Profiled;
use cloison_board_model::profile::{EVENTS, Values};
use cloison_config::events::EventNames;
use cloison_engine::report::Section;
use cloison_engine::telemetry::End;
use cloison_engine::text::grouped;
use cloison_formats::ids::VmId;
use cloison_formats::telemetry::HemRecord;
use miette::{Report as Error, miette};
use std::collections::{BTreeMap, BTreeSet};

/// Functions that a table shows.
const SHOWN: usize = 15;
/// The events by function.
const COLUMNS: [(&str, &str); 3] = [
    ("CPU_CYCLES", "cycles"),
    ("L2D_CACHE_REFILL", "L2 refills"),
    ("BUS_ACCESS", "bus accesses"),
];

/// The profile of a VM.
pub struct Report<'a> {
    /// The VM, and its name.
    pub vm: (VmId, &'a str),
    /// Name of the system.
    pub system: &'a str,
    /// The part that is shown.
    pub part: Part,
    /// The runs.
    pub runs: &'a [Profiled],
    /// Names of the events in the log.
    pub events: &'a EventNames,
    /// What is not known of the guest's code and of the hypervisor's.
    pub notes: [Option<&'a str>; 2],
}

impl Report<'_> {
    /// Prints all tables.
    pub fn print(&self) {
        println!("{}", self.functions().to_text());
        println!("{}", self.totals().to_text());
        println!("{}", self.el2().to_text());
        for note in self.notes.into_iter().flatten() {
            println!("note: {note}\n");
        }
        for run in self.runs {
            let (name, recorded) = (run.neighbors.name(), &run.run.recorded);
            let end = run.run.telemetry.end_of(self.vm.0);
            if end != End::Off {
                println!(
                    "note: {name}: VM {} did not turn itself off: {end}\n",
                    self.vm.1
                );
            }
            if recorded.calls_folded > 0 {
                println!(
                    "note: {name}: {} calls are counted to their callers: they are deeper, or \
                     more different ones, than are followed\n",
                    grouped(recorded.calls_folded)
                );
            }
            if recorded.moments_dropped > 0 {
                println!(
                    "note: {name}: trace.json lacks the last {} changes between the guest and \
                     EL2\n",
                    grouped(recorded.moments_dropped)
                );
            }
        }
    }

    fn header(&self, first: &[&str], columns: &[&str]) -> Vec<String> {
        let mut header: Vec<String> = first.iter().map(|&name| name.to_owned()).collect();
        for column in columns {
            for run in self.runs {
                header.push(match self.runs.len() {
                    1 => (*column).to_owned(),
                    _ => format!("{column}, {}", run.neighbors.name()),
                });
            }
        }
        header
    }

    fn what(&self) -> &'static str {
        match self.part {
            Part::Counted => "while its counters count",
            Part::Guest | Part::Hypervisor => "from its start to its end",
        }
    }

    fn functions(&self) -> Section {
        let columns = COLUMNS.map(|(_, title)| title);
        let header = self.header(&["function"], &columns);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let title = format!(
            "Functions of VM {} of {}, {} (modelled)",
            self.vm.1,
            self.system,
            self.what()
        );
        let mut section = Section::new(&title, &header);
        let tables = || self.runs.iter().filter_map(|run| run.part(self.part));
        let by_name: Vec<BTreeMap<String, Values>> = tables().map(|it| it.by_name()).collect();
        let names: BTreeSet<&String> = by_name.iter().flat_map(BTreeMap::keys).collect();
        let of = |run: &BTreeMap<String, Values>, name: &String, event: usize| {
            run.get(name).map_or(0, |values| values[event])
        };
        let mut names: Vec<&String> = names.into_iter().collect();
        let last = |name: &String| by_name.last().map_or(0, |run| of(run, name, 0));
        names.sort_by_key(|name| (std::cmp::Reverse(last(name)), (*name).clone()));
        for name in names.iter().take(SHOWN) {
            let events = COLUMNS.iter().filter_map(|(name, _)| event(name));
            let cells = events.flat_map(|event| {
                let runs = by_name.iter();
                runs.map(move |run| grouped(of(run, name, event)))
            });
            section.row(std::iter::once((*name).clone()).chain(cells));
        }
        let mut note = String::new();
        if names.len() > SHOWN {
            note.push_str(&format!(
                "{} functions more are in the files. ",
                names.len() - SHOWN
            ));
        }
        for (run, table) in self.runs.iter().zip(tables()) {
            if table.unnamed[0] > 0 {
                note.push_str(&format!(
                    "{}: {} of {} cycles are in code without a name. ",
                    run.neighbors.name(),
                    grouped(table.unnamed[0]),
                    grouped(table.totals[0])
                ));
            }
        }
        section.note(note.trim_end())
    }

    fn totals(&self) -> Section {
        let header = self.header(&["event"], &["all functions", "the HEM log"]);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut section = Section::new("Totals", &header);
        for (at, event) in EVENTS.iter().enumerate() {
            let totals = self.runs.iter().map(|run| {
                run.part(self.part)
                    .map_or_else(String::new, |table| grouped(table.totals[at]))
            });
            let logged = self.runs.iter().map(|run| {
                let logged = match self.part {
                    Part::Counted => logged(run, self.vm.0, self.events)
                        .get(event.name())
                        .copied(),
                    Part::Guest | Part::Hypervisor => None,
                };
                match logged {
                    Some(Logged::Sum(sum)) => grouped(sum),
                    Some(Logged::Overflowed) => "overflowed".to_owned(),
                    None => "-".to_owned(),
                }
            });
            section.row(
                std::iter::once(event.name().to_owned())
                    .chain(totals)
                    .chain(logged),
            );
        }
        section.note(
            "The functions' events add up to the model's counts, to the unit. The log has those of \
             the VM's segments: its cycles are read in nanoseconds, which may lose one of them in \
             each segment.",
        )
    }

    fn el2(&self) -> Section {
        let header = ["run", "executes", "waits", "L2 refills", "bus accesses"];
        let mut section = Section::new("EL2 on the VM's cores, in cycles", &header);
        for run in self.runs {
            let Some(table) = run.part(Part::Hypervisor) else {
                continue;
            };
            let waits = table.by_name().get(WAITS).map_or(0, |values| values[0]);
            let of = |name: &str| event(name).map_or(0, |at| table.totals[at]);
            section.row([
                run.neighbors.name().to_owned(),
                grouped(table.totals[0].saturating_sub(waits)),
                grouped(waits),
                grouped(of("L2D_CACHE_REFILL")),
                grouped(of("BUS_ACCESS")),
            ]);
        }
        section.note(
            "It waits until its cores start, while a budget is spent, and for an interrupt of an \
             idle guest: see trace.json.",
        )
    }
}

/// What the log says of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logged {
    /// The sum of all records.
    Sum(u64),
    /// A counter of 32 bits has lost multiples of 2^32.
    Overflowed,
}

/// Returns what a VM's records of segments say, by event: of those events that all records have.
fn logged(run: &Profiled, vm: VmId, names: &EventNames) -> BTreeMap<String, Logged> {
    let mut sums: BTreeMap<String, (Logged, usize)> = BTreeMap::new();
    let telemetry = &run.run.telemetry;
    let records = || telemetry.hem_runs().filter(|hem| hem.record.vm == vm);
    for hem in records() {
        let record = hem.record;
        let lost = record.overflowed & HemRecord::CYCLES_OVERFLOWED != 0;
        let mut counted = BTreeMap::from([("CPU_CYCLES".to_owned(), (record.cycles.0, lost))]);
        for (event, count, lost) in hem.counts() {
            counted
                .entry(names.name(event))
                .or_insert((u64::from(count), lost));
        }
        for (event, (count, lost)) in counted {
            let sum = sums.entry(event).or_insert((Logged::Sum(0), 0));
            sum.1 += 1;
            sum.0 = match sum.0 {
                Logged::Sum(sum) if !lost => Logged::Sum(sum.saturating_add(count)),
                _ => Logged::Overflowed,
            };
        }
    }
    let all = records().count();
    let in_all = sums.into_iter().filter(|(_, (_, times))| *times == all);
    in_all.map(|(event, (logged, _))| (event, logged)).collect()
}

/// Returns a table of what changed since the baseline.
pub fn verdict(verdict: &Verdict, gate: &Gate) -> Section {
    let title = format!("{} since the baseline", gate.event);
    let header = ["function", "before", "now", "of the whole"];
    let mut section = Section::new(&title, &header);
    let whole = verdict.whole.before;
    for change in std::iter::once(&verdict.whole).chain(verdict.changes.iter().take(SHOWN)) {
        section.row([
            change.function.clone(),
            grouped(change.before),
            grouped(change.now),
            change.percent_of(whole),
        ]);
    }
    let passes = if verdict.passes() {
        "passes"
    } else {
        "does not pass"
    };
    section.note(format!("Up to {} may come: this {passes}.", gate.max))
}

/// Returns the error of a gate that does not pass.
pub fn failure(verdict: &Verdict, gate: &Gate, vm: &str) -> Error {
    let whole = verdict.whole.before;
    let line = |change: &super::kept::Change| {
        format!(
            "{}: {} to {}, {} of the whole",
            change.function,
            grouped(change.before),
            grouped(change.now),
            change.percent_of(whole)
        )
    };
    // If no function alone is too much, those that grew most.
    let mut grown: Vec<String> = verdict.too_much().map(line).collect();
    if grown.is_empty() {
        let more = verdict
            .changes
            .iter()
            .filter(|change| change.now > change.before);
        grown = more.take(3).map(line).collect();
    }
    miette!(
        help = "if that is meant to be, keep the new profile.json as the baseline",
        "VM {vm} has {} {} in all, and up to {} may come:\n{}",
        verdict.whole.percent_of(whole),
        gate.event,
        gate.max,
        grown.join("\n")
    )
}
