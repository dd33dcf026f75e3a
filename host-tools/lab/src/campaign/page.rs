//! The report of a campaign: one self-contained HTML file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::judge::Judged;
use super::spec::Campaign;
use crate::experiment::plot::{Chart, Marks};
use crate::much::charts;
use crate::much::page::MORE;
use cloison_engine::figures::Figures;
use cloison_engine::report::{self, Section};
use cloison_engine::{files, installation};
use maud::html;
use miette::Result;
use std::path::Path;

/// Returns the report.
pub fn html(
    campaign: &Campaign,
    file: &Path,
    judged: &[Judged],
    tables: &[Section],
    figures: &Figures,
) -> Result<String> {
    let source = files::read_text(file, files::CONFIGURATION)?;
    let names = judged.first().map_or_else(Vec::new, |one| one.rows.iter().map(|row| row.title.to_owned()).collect());
    let errors = |of: fn(&super::judge::Row) -> f64| {
        judged.iter().map(|one| (one.workload.clone(), one.rows.iter().map(of).collect())).collect::<Vec<_>>()
    };
    let chart = |title: &str, of| Chart {
        title: title.to_owned(),
        x: String::new(),
        y: "mean square error".into(),
        log: true,
        log_x: false,
        marks: Marks::Bars(names.clone(), errors(of)),
    };
    let pearson = chart("Pearson's correlations against the truth (modelled)", |row| row.pearson).figure()?;
    let spearman = chart("Spearman's correlations against the truth (modelled)", |row| row.spearman).figure()?;
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
        (pearson)
        (spearman)
        @for table in tables { (table.to_html()) }
        @for one in judged {
            h2 { (one.workload) }
            p.note { "Pearson's correlations, modelled." }
            (charts::heatmaps(&one.events, &[
                ("truth", &one.matrices[0], 1.0),
                ("merged by MUCH", &one.matrices[1], 1.0),
                ("merged less truth", &(&one.matrices[1] - &one.matrices[0]), 0.25),
            ]))
            (charts::sorted_errors(
                &format!("{}: errors of all pairs, Pearson's correlations (modelled)", one.workload),
                &one.rows.iter().map(|row| (row.title, row.errors[0].as_slice())).collect::<Vec<_>>(),
            ))
        }
        h2 { "Provenance" }
        (report::provenance(figures))
        details { summary { "The campaign: " (installation::display(file)) } pre { (source) } }
    };
    Ok(report::standalone(&campaign.title, MORE, &body))
}
