//! Why no partition keeps all goals, and the nearest goals that held when they were run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::report::{Findings, beside, demand, micros, no_figures, titled};
use super::search::Search;
use super::subjects::Subject;
use super::verify::Verified;
use cloison_config::Checked;
use cloison_engine::figures::Figures;
use cloison_engine::report::Section;
use cloison_tune::{Demand, Impossible, Resource, Time};
use miette::{Diagnostic, Report};
use serde_json::{Value, json};
use thiserror::Error;

/// The answer that no partition keeps all goals.
#[derive(Debug)]
pub struct Refusal {
    /// Why, for the goals as they are written.
    pub reason: Box<Impossible>,
    /// The nearest goals that can be kept, if any held when they were run.
    pub relaxed: Option<Findings>,
}

/// The error of a command whose goals exclude each other.
#[derive(Debug, Error, Diagnostic)]
#[error("{sentence}")]
#[diagnostic(help("{help}"))]
pub(super) struct Excluded {
    sentence: String,
    help: String,
}

impl Refusal {
    /// Returns the VM whose goal is the cheapest to relax, what it lacks, and which goals exclude
    /// each other.
    pub fn sentence(&self) -> String {
        let resource = match self.reason.resource {
            Resource::Colors => "colors",
            Resource::Traffic => "less traffic of its neighbors",
            Resource::ColorsOrTraffic => "colors or less traffic of its neighbors",
            Resource::ColorsAndTraffic => "colors and less traffic of its neighbors",
            Resource::Vm => "speed: it takes longer even alone with the whole cache",
        };
        let conflict = self.reason.conflict.iter();
        let conflict: Vec<String> = conflict.map(|vm| format!("`{vm}`")).collect();
        let among = match conflict.as_slice() {
            [] | [_] => String::new(),
            _ => format!(
                "; the goals of {} exclude each other",
                conflict.join(" and ")
            ),
        };
        format!(
            "no partition keeps all goals: VM `{}` lacks {resource}{among}",
            self.reason.binding
        )
    }

    /// Returns what can be done about it.
    fn help(&self, search: &Search<'_>) -> String {
        let goals = search.relaxed().into_iter();
        let goals: Vec<String> = goals
            .map(|(vm, limit)| format!("`{vm}`: {}", demand(limit)))
            .collect();
        let mut help = match &self.relaxed {
            Some(findings) => {
                let runs: Vec<String> = findings.verified.iter().filter_map(margin).collect();
                format!(
                    "the nearest goals that held when they were run: {}\n{}",
                    goals.join(", "),
                    runs.join("\n")
                )
            }
            None => "let more change (`tune`); no larger limit was found that held when it was run"
                .to_owned(),
        };
        if !search.broken().is_empty() {
            help.push_str(&format!(
                "\nbroken when they were run: {}",
                search.broken().join("; ")
            ));
        }
        help
    }

    /// Returns the error; `report` says where its page is.
    pub fn error(&self, search: &Search<'_>, report: &str) -> Report {
        let help = format!("{}\nreport: {report}", self.help(search));
        let sentence = self.sentence();
        Excluded { sentence, help }.into()
    }

    /// Returns each VM with what it must reach and what it could.
    fn each<'a>(&'a self, search: &'a Search<'_>) -> impl Iterator<Item = Reach<'a>> {
        let relaxed = search.relaxed();
        let vms = search.subjects().vms.iter().enumerate();
        vms.map(move |(index, vm)| {
            let new = relaxed.iter().find(|(name, _)| *name == vm.name.0);
            Reach {
                vm,
                relaxed: new.map(|(_, limit)| *limit),
                alone: search.alone(index),
                run: self.relaxed.as_ref().map(|it| &it.verified[index]),
            }
        })
    }

    /// Returns what each VM must reach and what it could, as a series of figures.
    fn series(&self, search: &Search<'_>) -> Vec<Value> {
        let row = |reach: Reach<'_>| {
            let is_binding = reach.vm.name == self.reason.binding;
            let can_reach = reach.relaxed.unwrap_or(reach.vm.demand);
            json!({
                "vm": reach.vm.name,
                "is_binding": is_binding,
                "lacks": is_binding.then_some(self.reason.resource),
                "must_reach": reach.vm.demand,
                "can_reach": reach.run.map(|_| can_reach),
                "alone_ns": reach.alone,
                "limit_ns": reach.limit(),
                "run_ns": reach.worst(),
            })
        };
        self.each(search).map(row).collect()
    }

    /// Returns what each VM must reach, and what it could.
    pub fn goals(&self, search: &Search<'_>) -> Section {
        let header = ["VM", "must reach", "can reach", "alone", "allowed", "run"];
        let title = titled("The nearest goals", search);
        let mut table = Section::new(&title, &header);
        for reach in self.each(search) {
            table.row([
                reach.vm.name.0.clone(),
                demand(reach.vm.demand),
                match (reach.relaxed, reach.run) {
                    (_, None) => String::new(),
                    (None, Some(_)) => "as written".to_owned(),
                    (Some(limit), Some(_)) => format!("{} *", demand(limit)),
                },
                micros(reach.alone),
                reach.limit().map_or_else(String::new, micros),
                reach.worst().map_or_else(String::new, micros),
            ]);
        }
        table.note(match &self.relaxed {
            Some(_) => {
                "* relaxed, as little as possible. All goals of this table held when they were \
                 run. Times in us."
            }
            None => "No larger limits were found that held when they were run. Times in us.",
        })
    }
}

/// A VM, what it must reach, and what it could.
struct Reach<'a> {
    vm: &'a Subject,
    /// The larger limit, if it has one.
    relaxed: Option<Demand>,
    /// Its time alone with the whole cache.
    alone: Time,
    /// How it did with the nearest goals.
    run: Option<&'a Verified>,
}

impl Reach<'_> {
    fn limit(&self) -> Option<Time> {
        self.run?.limit
    }

    fn worst(&self) -> Option<Time> {
        self.run?.worst().map(|worst| worst.time)
    }
}

/// Returns the figures.
pub fn figures(search: &Search<'_>, refusal: &Refusal, checked: &Checked, seed: u64) -> Figures {
    let mut figures = no_figures(search, checked, seed);
    figures.series("goals", refusal.series(search));
    figures
}

/// Returns a VM's time when it was run, and the time that it may take.
fn margin(vm: &Verified) -> Option<String> {
    let (limit, worst) = (vm.limit?, vm.worst()?);
    Some(format!(
        "`{}` took {} us beside {}, and {} us are allowed then",
        vm.vm,
        micros(worst.time),
        beside(worst.neighbors),
        micros(limit)
    ))
}
