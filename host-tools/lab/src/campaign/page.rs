//! The report of a campaign: one self-contained HTML file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::judge::WorkloadResult;
use super::spec::Campaign;
use super::summary::{self, Group};
use cloison_engine::figures::Figures;
use cloison_engine::report::{self, Section};
use cloison_engine::{files, installation};
use cloison_much::evaluate::Outcome;
use cloison_much_command::charts;
use cloison_much_command::page::MORE;
use cloison_plot::{Chart, Line, Marks};
use maud::{Markup, html};
use miette::Result;
use std::path::Path;

/// Returns the report.
pub fn html(
    campaign: &Campaign,
    file: &Path,
    groups: &[Group<'_>],
    over_runs: &[(String, Vec<Outcome>)],
    tables: &[Section],
    figures: &Figures,
) -> Result<String> {
    let source = files::read_text(file, files::CONFIGURATION)?;
    let mut bars = vec![];
    for variant in &campaign.variants {
        for (kind, name) in ["Pearson", "Spearman"].into_iter().enumerate() {
            bars.push(bars_of(groups, &variant.name, kind, name)?);
        }
    }
    // With many workloads, those that are shown over the number of runs are shown in full, as in
    // the paper's figure 5.
    let in_full = |group: &&Group<'_>| {
        campaign.over_runs.is_empty() || campaign.over_runs.iter().any(|it| it == group.workload)
    };
    let body = html! {
        p {
            (campaign.events.len()) " events, " (campaign.counters) " at a time: " (campaign.plan.len())
            " sub-experiments in which every pair meets, " (campaign.runs) " runs of each. For HRM "
            (campaign.hrm_plan.len()) " sub-experiments with the anchor " (campaign.events[campaign.anchor]) ", "
            (campaign.hrm_runs()) " runs of each."
            @if campaign.warm_up > 0 {
                " Before those, " (campaign.warm_up) " runs of each sub-experiment are warm-up runs and not used."
            }
        }
        div.caveats { p { "Everything on this page is modelled: QEMU with the board model, not a board." } }
        @for bars in &bars { (bars) }
        @for table in tables { (table.to_html()) }
        @for (title, outcomes) in over_runs {
            (charts::over_runs(&format!("{title}: error of Pearson's correlations over runs (modelled)"), outcomes, 0)?)
        }
        @for group in groups.iter().filter(in_full) {
            @if let Some(one) = group.seeds.first() { (workload(one)?) }
        }
        (plans(campaign.counters)?)
        h2 { "Provenance" }
        (report::provenance(figures))
        details { summary { "The campaign: " (installation::display(file)) } pre { (source) } }
    };
    Ok(report::standalone(&campaign.title, MORE, &body))
}

/// The mean errors of a variant's workloads, method by method.
fn bars_of(groups: &[Group<'_>], variant: &str, kind: usize, name: &str) -> Result<Markup> {
    let of_variant = || groups.iter().filter(|group| group.variant == variant);
    let rows = || {
        groups
            .first()
            .and_then(|group| group.seeds.first())
            .map_or(&[][..], |one| one.rows.as_slice())
    };
    let of_group = |group: &Group<'_>| {
        let errors = rows()
            .iter()
            .map(|row| group.mean(row.method, kind))
            .collect();
        (group.workload.to_owned(), errors)
    };
    let variant = if variant.is_empty() {
        String::new()
    } else {
        format!("{variant}: ")
    };
    let chart = Chart {
        title: format!("{variant}{name}'s correlations against the truth (modelled)"),
        x: String::new(),
        y: "mean square error".into(),
        log: true,
        log_x: false,
        marks: Marks::Bars(
            rows().iter().map(|row| row.title.to_owned()).collect(),
            of_variant().map(of_group).collect(),
        ),
    };
    chart.figure()
}

/// A workload's correlations, and the errors of its pairs.
fn workload(one: &WorkloadResult) -> Result<Markup> {
    let title = format!("{} {}", one.workload, one.variant)
        .trim_end()
        .to_owned();
    let errors: Vec<_> = one
        .rows
        .iter()
        .map(|row| (row.title, row.errors[0].as_slice()))
        .collect();
    Ok(html! {
        h2 { (title) }
        p.note { "Pearson's correlations, modelled." }
        (charts::heatmaps(&one.events, &[
            ("truth", &one.matrices[0], 1.0),
            ("merged by MUCH", &one.matrices[1], 1.0),
            ("merged less truth", &(&one.matrices[1] - &one.matrices[0]), 0.25),
        ]))
        (charts::sorted_errors(
            &format!("{title}: errors of all pairs, Pearson's correlations (modelled)"),
            &errors,
        )?)
    })
}

/// The runs that plans take (the paper's figure 7).
fn plans(counters: usize) -> Result<Markup> {
    let runs = summary::runs_of_plans(counters);
    let line = |name: &str, at: usize| {
        let points = runs
            .iter()
            .map(|(events, runs)| (*events as f64, runs[at] as f64));
        Line::new(name, points.collect())
    };
    let lines = vec![
        line("MUCH", 0),
        line("MUCH by the paper's formula", 1),
        line("HRM", 2),
    ];
    let chart = Chart {
        title: format!("Runs of a campaign on {counters} counters, 100 of each sub-experiment"),
        x: "events".to_owned(),
        y: "runs in all".to_owned(),
        log: false,
        log_x: false,
        marks: Marks::Lines(lines),
    };
    chart.figure()
}
