//! What `tune` says: who gets what, and predicted times against those of runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::search::Search;
use super::systems::{EVENT, Neighbors};
use super::verify::Verified;
use cloison_config::Checked;
use cloison_config::quantity::show_duration;
use cloison_engine::figures::Figures;
use cloison_engine::files::write_atomic;
use cloison_engine::report::Section;
use cloison_tune::{
    Budget, Change, Demand, Effect, Outcome, Placement, Share, Time, Value as Worth, View, WhatIf,
    export,
};
use miette::{IntoDiagnostic, Result};
use serde_json::json;
use std::path::Path;

/// The decision that was run.
#[derive(Debug)]
pub struct Findings {
    /// The solver's answer.
    pub outcome: Outcome,
    /// The configuration's text with it.
    pub text: String,
    /// How each VM did when it was run.
    pub verified: Vec<Verified>,
    /// Partitions that were run.
    pub rounds: usize,
}

/// Returns the answer as a sentence or two.
pub fn answer(search: &Search<'_>, findings: &Findings) -> String {
    let partition = &findings.outcome.partition;
    let own = partition.shares.iter().filter(|share| share.colors.0 > 0);
    let own: Vec<String> = own
        .map(|share| match share.choice.placement {
            Placement::Own { colors } => format!("`{}` {} colors", share.vm, colors.0),
            Placement::Shared { private } => format!(
                "`{}` {} colors for {} of its pages",
                share.vm, share.colors.0, private.0
            ),
        })
        .collect();
    let private = match own.as_slice() {
        [] => "none".to_owned(),
        own => own.join(", "),
    };
    let limited = |share: &&Share| share.choice.budget != Budget::Unlimited;
    let limited = match partition.shares.iter().filter(limited).count() {
        0 => "no VM has a budget".to_owned(),
        budgets => format!("{budgets} of {} VMs have a budget", partition.shares.len()),
    };
    let margins = findings.verified.iter();
    let smallest = margins
        .filter_map(|vm| Some((vm, vm.margin()?)))
        .min_by(|(_, a), (_, b)| a.total_cmp(b));
    let margin = smallest.map_or_else(String::new, |(vm, margin)| {
        format!(
            " The smallest margin is {:.1} %: of `{}`, beside {}.",
            margin * 100.0,
            vm.vm,
            vm.worst().map_or("nobody", |worst| beside(worst.neighbors))
        )
    });
    format!(
        "All goals held when the partition was run. Private: {private}. {} of {} colors are \
         shared, and {limited}.{margin} By the measured times, {}.",
        partition.shared.0,
        search.subjects().colors.0,
        worth(findings.outcome.value)
    )
}

/// Returns a title with where the times below it are from.
pub fn titled(title: &str, search: &Search<'_>) -> String {
    match search.task.runs.is_modelled() {
        true => format!("{title} (modelled)"),
        false => format!("{title} (on the board)"),
    }
}

/// Returns where all times are from.
pub fn origin(search: &Search<'_>) -> String {
    match search.task.runs.is_modelled() {
        true => "Modelled, not measured on a board: QEMU with the board model.".to_owned(),
        false => {
            let board = &search.task.checked.board.board.name;
            format!("From runs that `cloison capture` has left, on board {board}.")
        }
    }
}

/// Returns the tables for the terminal.
pub fn text(search: &Search<'_>, findings: &Findings) -> String {
    let parts = [gets(search, findings), times(search, findings)];
    let parts = parts.map(|part| part.to_text());
    parts.join("\n\n")
}

/// Returns who gets what.
pub fn gets(search: &Search<'_>, findings: &Findings) -> Section {
    let header = ["VM", "must reach", "memory", "private colors", "budget"];
    let mut table = Section::new("Who gets what", &header);
    let partition = &findings.outcome.partition;
    for (vm, share) in search.subjects().vms.iter().zip(&partition.shares) {
        let was = &vm.written;
        let mark = |new: String, changed: bool| if changed { format!("{new} *") } else { new };
        table.row([
            vm.name.0.clone(),
            demand(vm.demand),
            mark(
                share.choice.placement.to_string(),
                share.choice.placement != was.choice.placement,
            ),
            mark(share.colors.0.to_string(), share.colors != was.colors),
            mark(
                budget(share.choice.budget, search.subjects().period.0),
                share.choice.budget != was.choice.budget,
            ),
        ]);
    }
    let proof = findings.outcome.proof;
    let worth = worth(findings.outcome.value);
    table.note(format!(
        "* changed. {} of {} colors are shared. By the measured times, {worth}, and no other of \
         {} partitions is better.",
        partition.shared.0,
        search.subjects().colors.0,
        proof.partitions
    ))
}

/// Says what an objective amounts to.
pub fn worth(value: Worth) -> String {
    match value {
        Worth::Throughput(parts) => format!(
            "the best-effort VMs together do {:.3} times what each does beside the worst neighbors",
            parts as f64 / 1e6
        ),
        Worth::Colors(colors) => format!("{} colors are private", colors.0),
        Worth::Margin(Some(parts)) => {
            format!("the smallest margin is {:.1} %", parts as f64 / 1e4)
        }
        Worth::Margin(None) => "no VM has a limit".to_owned(),
    }
}

/// Returns predicted times against those of runs.
pub fn times(search: &Search<'_>, findings: &Findings) -> Section {
    let header = [
        "VM",
        "alone",
        "allowed",
        "predicted",
        "run",
        "slowdown",
        "worst beside",
        "margin",
    ];
    let title = titled("Predicted against run again", search);
    let mut table = Section::new(&title, &header);
    for vm in &findings.verified {
        let worst = vm.worst();
        let show = |time: Option<Time>| time.map_or_else(String::new, micros);
        let time = worst.map(|worst| worst.time);
        table.row([
            vm.vm.clone(),
            micros(vm.alone),
            show(vm.limit),
            show(vm.predicted),
            show(time),
            time.map_or_else(String::new, |time| {
                format!("{:.3}", time.0 as f64 / vm.alone.0.max(1) as f64)
            }),
            worst.map_or_else(String::new, |worst| beside(worst.neighbors).to_owned()),
            vm.margin()
                .map_or_else(String::new, |margin| format!("{:.1} %", margin * 100.0)),
        ]);
    }
    let mut note = format!(
        "Times in us: of the longest segment after the first one, and of a best-effort VM for a \
         million instructions. Each VM with a goal ran beside the configuration's neighbors, and \
         beside guests on their cores that only read, only write, do both, or are mixed in two \
         ways, under their budgets; each best-effort VM beside the configuration's neighbors and the \
         first mixed ones. \
         Runs of the whole system until all goals held: {}.",
        findings.rounds
    );
    for dip in search.dips() {
        note.push_str(&format!(
            " The times of `{}` are not monotone by {:.1} %: a harder point counts as slow as the \
             slowest easier one.",
            dip.vm,
            dip.permille as f64 / 10.0
        ));
    }
    table.note(note)
}

/// Says beside which neighbors a VM ran.
pub fn beside(neighbors: Neighbors) -> &'static str {
    match neighbors {
        Neighbors::Written => "its neighbors",
        Neighbors::Stress(kind) => kind.name(),
    }
}

/// Formats a time in microseconds.
pub fn micros(time: Time) -> String {
    format!("{:.1}", time.0 as f64 / 1000.0)
}

/// Says what a VM must reach.
pub fn demand(demand: Demand) -> String {
    match demand {
        Demand::Tolerance(tolerance) => format!("tolerance {tolerance}"),
        Demand::Deadline(deadline) => {
            let nanos = cloison_formats::units::Nanos(deadline.0);
            format!("deadline {}", show_duration(nanos))
        }
        Demand::BestEffort => "best effort".to_owned(),
    }
}

fn budget(budget: Budget, period: u64) -> String {
    match budget {
        Budget::PerPeriod(budget) => {
            let period = show_duration(cloison_formats::units::Nanos(period));
            format!("{} {EVENT} / {period}", budget.0)
        }
        Budget::Unlimited => "none".to_owned(),
    }
}

/// Returns figures without any yet.
pub fn no_figures(search: &Search<'_>, checked: &Checked, seed: u64) -> Figures {
    Figures::new("tune")
        .board(&checked.board.board.name)
        .config(&checked.path)
        .parameter("modelled", search.task.runs.is_modelled())
        .parameter("seed", seed)
}

/// Returns the figures.
pub fn figures(search: &Search<'_>, findings: &Findings, checked: &Checked, seed: u64) -> Figures {
    let mut figures = no_figures(search, checked, seed);
    let partition = &findings.outcome.partition;
    figures
        .count("rounds", findings.rounds as u64)
        .count("shared_colors", u64::from(partition.shared.0))
        .count("changes", findings.outcome.changes)
        .count("partitions", findings.outcome.proof.partitions)
        .count("flood_accesses", search.flood.0);
    let row = |(share, vm): (&Share, &Verified)| {
        json!({
            "vm": vm.vm,
            "placement": share.choice.placement,
            "private_colors": share.colors,
            "budget": share.choice.budget,
            "alone_ns": vm.alone,
            "limit_ns": vm.limit,
            "predicted_ns": vm.predicted,
            "run_ns": vm.worst().map(|worst| worst.time),
            "margin": vm.margin(),
        })
    };
    let rows = partition.shares.iter().zip(&findings.verified).map(row);
    figures.series("vms", rows.collect());
    figures
}

/// Writes the bounds of all choices of all VMs (`cloison_tune::export`): as Parquet if the file is
/// called so, else as CSV.
///
/// # Errors
///
/// If the table cannot be made, or the file not be written.
pub fn write_surfaces(search: &Search<'_>, file: &Path) -> Result<()> {
    let table = export::bounds(&search.problem()).into_diagnostic()?;
    let is_parquet = file.extension().is_some_and(|it| it == "parquet");
    let bytes = if is_parquet {
        table.to_parquet().into_diagnostic()?
    } else {
        let mut bytes = vec![];
        table.write_csv(&mut bytes).into_diagnostic()?;
        bytes
    };
    write_atomic(file, &bytes)
}

/// What the measured points say of a VM.
#[derive(Debug)]
pub struct Explained {
    /// What was measured.
    pub table: Section,
    /// What changes of its share would do.
    pub changes: Vec<String>,
}

/// Returns what the measured points say of a VM, for the terminal.
pub fn explanation(search: &Search<'_>, findings: &Findings, name: &str) -> String {
    let vms = &search.subjects().vms;
    let Some(index) = vms.iter().position(|vm| vm.name.0 == name) else {
        return String::new();
    };
    let Explained { table, changes } = explained(search, findings, index);
    format!("{}\n{}\n", table.to_text(), changes.join("\n"))
}

/// Returns what the measured points say of a VM.
pub fn explained(search: &Search<'_>, findings: &Findings, vm: usize) -> Explained {
    let name = &search.subjects().vms[vm].name;
    let explained = cloison_tune::explain(
        &search.problem(),
        search.objective(),
        View::Optimistic,
        &findings.outcome,
        vm,
    );
    let changes = explained.ok().flatten().map(|it| it.changes);
    let changes = changes.into_iter().flatten();
    Explained {
        table: measured(search, vm, Some(findings)),
        changes: changes
            .map(|what| format!("{name} {}", effect(search, &what)))
            .collect(),
    }
}

/// Returns what was measured of a VM; what was chosen is marked.
pub fn measured(search: &Search<'_>, vm: usize, findings: Option<&Findings>) -> Section {
    let subject = &search.subjects().vms[vm];
    let header = [
        "memory",
        "shared",
        "neighbors' traffic",
        "budget",
        "us",
        "slowdown",
    ];
    let title = titled(&format!("What was measured of {}", subject.name), search);
    let mut table = Section::new(&title, &header);
    let alone = search.alone(vm);
    let wanted = findings.map(|findings| {
        let partition = &findings.outcome.partition;
        search.measured_point(vm, &partition.shares[vm], partition.shared)
    });
    for measured in search.points(vm) {
        let point = measured.point;
        let mark = if Some(point) == wanted { " *" } else { "" };
        table.row([
            format!("{}{mark}", point.placement),
            point.shared.0.to_string(),
            point.traffic.0.to_string(),
            budget(point.budget, search.subjects().period.0),
            micros(measured.sample.time),
            format!(
                "{:.3}",
                measured.sample.time.0 as f64 / alone.0.max(1) as f64
            ),
        ]);
    }
    let chosen = if wanted.is_some() { "* chosen. " } else { "" };
    table.note(format!(
        "{chosen}The VM must reach: {}. Traffic: accesses to the bus in a period, of all \
         neighbors together.",
        demand(subject.demand)
    ))
}

/// Says what a change of a VM's share would do.
fn effect(search: &Search<'_>, what: &WhatIf) -> String {
    let change = match what.change {
        Change::SmallerBudget => format!(
            "with a budget of {}",
            budget(what.choice.budget, search.subjects().period.0)
        ),
        Change::More | Change::Less => format!("with {}", what.choice.placement),
    };
    let effect = match &what.effect {
        Effect::Holds { bounds, outcome } => format!(
            "{} us{}; {}",
            micros(bounds.lower),
            match bounds.upper {
                Some(upper) if upper == bounds.lower => String::new(),
                Some(upper) => format!(" to {} us", micros(upper)),
                None => " or more".to_owned(),
            },
            worth(outcome.value)
        ),
        Effect::Breaks(reason) => {
            format!(
                "no partition keeps all goals, because of `{}`",
                reason.binding
            )
        }
        Effect::DoesNotFit => "there is no room".to_owned(),
    };
    format!("{change}: {effect}")
}
