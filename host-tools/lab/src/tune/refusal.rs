//! Why no partition keeps all goals, and the nearest goals that held when they were run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::report::{Findings, beside, demand, micros};
use super::search::Search;
use super::verify::Verified;
use cloison_config::Checked;
use cloison_engine::figures::Figures;
use cloison_engine::report::Section;
use cloison_tune::{Impossible, Resource};
use miette::{Report, miette};
use serde_json::{Value, json};

/// The answer that no partition keeps all goals.
#[derive(Debug)]
pub struct Refusal {
    /// Why, for the goals as they are written.
    pub reason: Box<Impossible>,
    /// The nearest goals that can be kept, if any held when they were run.
    pub relaxed: Option<Findings>,
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
        miette!(help = help, "{}", self.sentence())
    }

    /// Returns what each VM must reach and what it could, as a series of figures.
    pub fn series(&self, search: &Search<'_>) -> Vec<Value> {
        let relaxed = search.relaxed();
        let vms = search.subjects().vms.iter().enumerate();
        vms.map(|(index, vm)| {
            let new = relaxed.iter().find(|(name, _)| *name == vm.name.0);
            let run = self.relaxed.as_ref().map(|it| &it.verified[index]);
            let is_binding = vm.name == self.reason.binding;
            json!({
                "vm": vm.name,
                "is_binding": is_binding,
                "lacks": is_binding.then_some(self.reason.resource),
                "must_reach": vm.demand,
                "can_reach": run.map(|_| new.map_or(vm.demand, |(_, limit)| *limit)),
                "alone_ns": search.alone(index),
                "limit_ns": run.and_then(|run| run.limit),
                "run_ns": run.and_then(Verified::worst).map(|worst| worst.time),
            })
        })
        .collect()
    }

    /// Returns what each VM must reach, and what it could.
    pub fn goals(&self, search: &Search<'_>) -> Section {
        let header = ["VM", "must reach", "can reach", "alone", "allowed", "run"];
        let mut table = Section::new("The nearest goals (modelled)", &header);
        let relaxed = search.relaxed();
        for (index, vm) in search.subjects().vms.iter().enumerate() {
            let new = relaxed.iter().find(|(name, _)| *name == vm.name.0);
            let run = self.relaxed.as_ref().map(|it| &it.verified[index]);
            let worst = run.and_then(Verified::worst);
            table.row([
                vm.name.0.clone(),
                demand(vm.demand),
                match (new, run) {
                    (_, None) => String::new(),
                    (None, Some(_)) => "as written".to_owned(),
                    (Some((_, limit)), Some(_)) => format!("{} *", demand(*limit)),
                },
                micros(search.alone(index)),
                run.and_then(|run| run.limit)
                    .map_or_else(String::new, micros),
                worst.map_or_else(String::new, |it| micros(it.time)),
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

/// Returns the figures.
pub fn figures(search: &Search<'_>, refusal: &Refusal, checked: &Checked, seed: u64) -> Figures {
    let mut figures = Figures::new("tune")
        .board(&checked.board.board.name)
        .config(&checked.path)
        .parameter("modelled", true)
        .parameter("seed", seed);
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
