//! The report of a campaign: one HTML file that needs nothing else.

use super::judge::Judged;
use super::spec::Campaign;
use crate::experiment::plot::{Chart, Marks};
use crate::figures::Figures;
use crate::report::{self, STYLE, Section};
use crate::workspace;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use miette::{IntoDiagnostic, Result};
use nalgebra::DMatrix;
use std::path::Path;

/// The report.
pub fn html(
    campaign: &Campaign,
    file: &Path,
    judged: &[Judged],
    tables: &[Section],
    figures: &Figures,
) -> Result<String> {
    let source = std::fs::read_to_string(file).into_diagnostic()?;
    let names = judged.first().map_or_else(Vec::new, |one| one.rows.iter().map(|row| row.title.to_owned()).collect());
    let errors = |of: fn(&super::judge::Row) -> f64| {
        judged.iter().map(|one| (one.workload.clone(), one.rows.iter().map(of).collect())).collect::<Vec<_>>()
    };
    let chart = |title: &str, of| Chart {
        title: title.to_owned(),
        x: String::new(),
        y: "mean square error".into(),
        marks: Marks::Bars(names.clone(), errors(of)),
    };
    let pearson = chart("Pearson's correlations against the truth (modelled)", |row| row.pearson).svg()?;
    let spearman = chart("Spearman's correlations against the truth (modelled)", |row| row.spearman).svg()?;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (campaign.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (campaign.title) }
                p {
                    (campaign.events.len()) " events, " (campaign.counters) " at a time: " (campaign.plan.len())
                    " sub-experiments in which every pair meets, " (campaign.runs) " runs of each. For HRM "
                    (campaign.hrm_plan.len()) " sub-experiments with the anchor " (campaign.events[campaign.anchor]) ", "
                    (campaign.hrm_runs()) " runs of each."
                }
                div.caveats { p { "Everything on this page is modelled: QEMU with the board model, not a board." } }
                (PreEscaped(pearson))
                (PreEscaped(spearman))
                @for table in tables { (table.to_html()) }
                @for one in judged {
                    h2 { (one.workload) }
                    p.note { "Pearson's correlations: the truth, MUCH's vectors, and by how much they differ." }
                    (heat(&one.events, &one.matrices[0], 1.0))
                    (heat(&one.events, &one.matrices[1], 1.0))
                    (heat(&one.events, &(&one.matrices[1] - &one.matrices[0]), 0.25))
                }
                h2 { "Where this comes from" }
                (report::provenance(figures))
                details { summary { "The campaign: " (workspace::display(file)) } pre { (source) } }
            }
        }
    };
    Ok(markup.into_string())
}

/// A matrix as colored squares: blue below zero, red above, full at `full`.
fn heat(names: &[String], matrix: &DMatrix<f64>, full: f64) -> Markup {
    const CELL: usize = 22;
    const LEFT: usize = 150;
    let size = names.len() * CELL;
    let paint = |value: f64| {
        let part = (value / full).clamp(-1.0, 1.0);
        let fade = (255.0 * (1.0 - part.abs())) as u8;
        if part < 0.0 { format!("rgb({fade},{fade},255)") } else { format!("rgb(255,{fade},{fade})") }
    };
    html! {
        svg viewBox=(format!("0 0 {} {}", LEFT + size + 2, size + 2)) width=(LEFT + size + 2) role="img" {
            @for (row, name) in names.iter().enumerate() {
                text x="0" y=(row * CELL + 15) { (name) }
                @for (column, other) in names.iter().enumerate() {
                    rect x=(LEFT + column * CELL) y=(row * CELL) width=(CELL - 1) height=(CELL - 1) fill=(paint(matrix[(row, column)])) {
                        title { (name) " / " (other) ": " (format!("{:.3}", matrix[(row, column)])) }
                    }
                }
            }
        }
    }
}
