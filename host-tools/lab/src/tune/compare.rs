//! The answer beside others: what fewer knobs reach, and what tighter tolerances cost.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::report;
use super::search::{Decision, Search};
use cloison_engine::report::Section;
use cloison_plot::{Chart, Line, Marks};
use cloison_tune::{Baseline, Demand, FrontPoint, Outcome, Partition, Permille, Value};
use miette::Result;
use serde_json::json;

/// Distance of two points of the front, at least.
const STEP: Permille = Permille(20);

/// What a baseline reaches.
#[derive(Debug)]
pub enum Reached {
    /// Its best partition.
    Best(Outcome),
    /// It keeps not all goals, because of this VM.
    Impossible(String),
    /// The VMs do not fit, for this reason.
    DoesNotFit(String),
}

/// The answer beside others. All of them rely on measured points alone.
#[derive(Debug)]
pub struct Alternatives {
    /// What each baseline reaches, the one with all knobs first.
    pub baselines: Vec<(Baseline, Reached)>,
    /// The best partitions for tighter and tighter tolerances; empty if no VM has one.
    pub front: Vec<FrontPoint>,
}

impl Alternatives {
    /// Decides again with fewer knobs, and for other tolerances, and measures what that needs.
    ///
    /// # Errors
    ///
    /// If a run fails.
    pub fn of(search: &mut Search<'_>) -> Result<Self> {
        let mut all = Self::with_fewer_knobs(search)?;
        let tolerates = |demand: &Demand| matches!(demand, Demand::Tolerance(_));
        let mut demands = search.subjects().vms.iter().map(|vm| vm.demand);
        if demands.any(|demand| tolerates(&demand)) {
            all.front = search.front(STEP)?;
        }
        Ok(all)
    }

    /// Decides again with fewer knobs alone.
    ///
    /// # Errors
    ///
    /// If a run fails.
    pub fn with_fewer_knobs(search: &mut Search<'_>) -> Result<Self> {
        let mut baselines = vec![];
        for baseline in Baseline::EVERY {
            let problem = search.problem().restricted(baseline);
            let reached = match problem.check() {
                Err(error) => Reached::DoesNotFit(error.to_string()),
                Ok(()) => match search.decide_with(baseline)? {
                    Decision::Best(outcome) => Reached::Best(outcome),
                    Decision::Impossible(reason) => Reached::Impossible(reason.binding.0),
                },
            };
            baselines.push((baseline, reached));
        }
        let front = vec![];
        Ok(Self { baselines, front })
    }

    /// Returns what the baselines reach as a table.
    pub fn table(&self, search: &Search<'_>) -> Section {
        let header = ["may change", "reaches", "changes"];
        let title = report::titled("With fewer knobs", search);
        let mut table = Section::new(&title, &header);
        for (baseline, reached) in &self.baselines {
            let (says, changes) = match reached {
                Reached::Best(outcome) => {
                    (report::worth(outcome.value), outcome.changes.to_string())
                }
                Reached::Impossible(vm) => {
                    (format!("not all goals, because of `{vm}`"), String::new())
                }
                Reached::DoesNotFit(reason) => (reason.clone(), String::new()),
            };
            table.row([name(*baseline).to_owned(), says, changes]);
        }
        table.note(
            "Each row is decided for the best by measured points, with what the configuration has \
             where a knob may not change. Only the first row was run as a whole system.",
        )
    }

    /// Returns a plot of what the baselines reach, if several keep all goals.
    pub fn bars(&self) -> Option<Chart> {
        let reached = self.baselines.iter().filter_map(|(baseline, reached)| {
            let Reached::Best(outcome) = reached else {
                return None;
            };
            Some((name(*baseline).to_owned(), vec![number(outcome.value)?]))
        });
        let groups: Vec<(String, Vec<f64>)> = reached.collect();
        let value = self
            .baselines
            .iter()
            .find_map(|(_, reached)| match reached {
                Reached::Best(outcome) => Some(outcome.value),
                _ => None,
            })?;
        (groups.len() > 1).then(|| Chart {
            title: "What each set of knobs reaches, where all goals hold".to_owned(),
            x: String::new(),
            y: unit(value).to_owned(),
            log: false,
            log_x: false,
            marks: Marks::Bars(vec![unit(value).to_owned()], groups),
        })
    }

    /// Returns the front as a plot, with the partition that was chosen.
    pub fn plot(&self, search: &Search<'_>, chosen: &Partition) -> Option<Chart> {
        if self.front.is_empty() {
            return None;
        }
        let place = |point: &FrontPoint| {
            let tolerance = f64::from(point.tolerance.0) / 1000.0;
            (tolerance, point.throughput as f64 / 1e6)
        };
        let mut lines = vec![Line::new(
            "best for each tolerance",
            self.front.iter().map(place).collect(),
        )];
        if let Some(point) = position(search, chosen) {
            lines.push(Line::new("this configuration", vec![point]));
        }
        Some(Chart {
            title:
                "Work of the best-effort VMs against the tightest tolerance that all others keep"
                    .to_owned(),
            x: "tolerance: slowdown against alone with the whole cache".to_owned(),
            y: unit(Value::Throughput(0)).to_owned(),
            log: false,
            log_x: false,
            marks: Marks::Lines(lines),
        })
    }

    /// Returns the baselines and the front as rows of a figures file.
    pub fn series(&self) -> [(&'static str, Vec<serde_json::Value>); 2] {
        let baseline = |(baseline, reached): &(Baseline, Reached)| match reached {
            Reached::Best(outcome) => json!({"baseline": baseline, "value": outcome.value}),
            Reached::Impossible(vm) => json!({"baseline": baseline, "impossible": vm}),
            Reached::DoesNotFit(reason) => json!({"baseline": baseline, "does_not_fit": reason}),
        };
        let point = |point: &FrontPoint| json!({"tolerance_permille": point.tolerance, "throughput_millionths": point.throughput});
        [
            ("baselines", self.baselines.iter().map(baseline).collect()),
            ("front", self.front.iter().map(point).collect()),
        ]
    }
}

/// Returns where a partition is in the plot of the front, by the measured times.
fn position(search: &Search<'_>, partition: &Partition) -> Option<(f64, f64)> {
    let problem = search.problem();
    let (mut tolerance, mut throughput) = (0_f64, 0.0);
    for (index, vm) in problem.vms.iter().enumerate() {
        let time = problem.bounds(index, partition).lower.0 as f64;
        let alone = vm.surface.alone().time.0 as f64;
        match vm.demand {
            Demand::Tolerance(_) => tolerance = tolerance.max(time / alone),
            Demand::BestEffort => throughput += alone / time,
            Demand::Deadline(_) => {}
        }
    }
    (tolerance > 0.0).then_some((tolerance, throughput))
}

fn name(baseline: Baseline) -> &'static str {
    match baseline {
        Baseline::All => "colors, pages, budgets",
        Baseline::ColorsAndBudgets => "colors, budgets",
        Baseline::Colors => "colors",
        Baseline::Budgets => "budgets",
        Baseline::Pages => "pages",
        Baseline::EvenSplit => "nothing: an even split",
    }
}

fn number(value: Value) -> Option<f64> {
    match value {
        Value::Throughput(parts) => Some(parts as f64 / 1e6),
        Value::Colors(colors) => Some(f64::from(colors.0)),
        Value::Margin(parts) => Some(parts? as f64 / 1e4),
    }
}

fn unit(value: Value) -> &'static str {
    match value {
        Value::Throughput(_) => "work (1 = one VM beside the worst neighbors)",
        Value::Colors(_) => "private colors",
        Value::Margin(_) => "smallest margin (%)",
    }
}
