//! The pages that `much` writes: one self-contained HTML file each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::charts;
use cloison_engine::figures::Figures;
use cloison_engine::report::{self, Section};
use cloison_much::data::Measurements;
use cloison_much::evaluate::{Bands, Both, Outcome, accuracy, judged_pairs, reference};
use cloison_much::matrix;
use cloison_much::merge::Merged;
use cloison_much::table::Vectors;
use maud::{Markup, html};
use miette::Result;

const KINDS: [&str; 2] = ["Pearson", "Spearman"];
/// Number of pairs in the table of the strongest correlations.
const SHOWN: usize = 15;

/// The style of these pages, in addition to that of all reports.
pub const MORE: &str = "
figure { display: inline-block; margin: .4rem .8rem .4rem 0; vertical-align: top; }
figcaption { color: #666; font-size: .85rem; }
svg { margin: 0; }
";

/// Returns the page of a merge.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub fn merged(
    data: &Measurements,
    vectors: &Vectors,
    merged: Option<&Merged>,
    section: &Section,
    figures: &Figures,
) -> Result<String> {
    let measured = match merged {
        Some(merged) => [
            merged.correlations.pearson_measured.clone(),
            merged.correlations.spearman_measured.clone(),
        ],
        None => reference(data),
    };
    let body = maps(data, &vectors.correlations(), &measured)?;
    Ok(page("Merged vectors", data, section, figures, &body))
}

/// Returns the page of an evaluation.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub fn evaluated(
    data: &Measurements,
    merged: &Both,
    measured: &Both,
    bands: Option<&Bands>,
    section: &Section,
    figures: &Figures,
) -> Result<String> {
    let pairs = matrix::pairs(data.events.len());
    let of = |matrix: &nalgebra::DMatrix<f64>| {
        pairs.iter().map(|&pair| matrix[pair]).collect::<Vec<_>>()
    };
    let body = html! {
        (maps(data, merged, measured)?)
        @if let Some(bands) = bands {
            h2 { "Every pair" }
            @for (at, kind) in KINDS.iter().enumerate() {
                (charts::pairs_with_bands(&format!("{kind}'s correlations"), &of(&measured[at]), &bands.pairs[at], &of(&merged[at]))?)
            }
        }
    };
    let title = "Merged vectors and measurements";
    Ok(page(title, data, section, figures, &body))
}

/// Returns the page of a comparison.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub fn compared(
    data: &Measurements,
    outcomes: &[Outcome],
    section: &Section,
    figures: &Figures,
) -> Result<String> {
    let body = html! {
        @for (which, kind) in KINDS.iter().enumerate() {
            (charts::over_runs(&format!("Mean square error of {kind}'s correlations: every sample, mean and band"), outcomes, which)?)
        }
    };
    let title = "MUCH, HRM and a blind merge";
    Ok(page(title, data, section, figures, &body))
}

fn maps(data: &Measurements, merged: &Both, measured: &Both) -> Result<Markup> {
    let names: Vec<_> = data.events.iter().map(|event| event.name.clone()).collect();
    let pairs = judged_pairs(data);
    let accuracies = [0, 1].map(|at| accuracy(&merged[at], &measured[at], &pairs));
    let missing = data.missing_pairs().len();
    Ok(html! {
        @if !pairs.is_empty() { (strongest(&names, &pairs, merged, measured).to_html()) }
        @if missing > 0 {
            p.note { (missing) " pairs were never counted together: their measured correlation is drawn as 0." }
        }
        @for (at, kind) in KINDS.iter().enumerate() {
            h2 { (kind) "'s correlations" }
            (charts::heatmaps(&names, &[
                ("measured", &measured[at], 1.0),
                ("merged", &merged[at], 1.0),
                ("merged less measured", &(&merged[at] - &measured[at]), 0.2),
            ]))
        }
        h2 { "Errors of all pairs of which both events vary" }
        (charts::sorted_errors(
            "Difference of merged and measured correlation, pairs in ascending order",
            &[("Pearson", &accuracies[0].errors), ("Spearman", &accuracies[1].errors)],
        )?)
    })
}

/// Returns the pairs of events with the strongest merged correlations, of these pairs.
fn strongest(
    names: &[String],
    pairs: &[(usize, usize)],
    merged: &Both,
    measured: &Both,
) -> Section {
    let strength = |pair: &(usize, usize)| merged[0][*pair].abs().max(merged[1][*pair].abs());
    let mut pairs = pairs.to_vec();
    pairs.sort_by(|one, other| strength(other).total_cmp(&strength(one)));
    let header = [
        "event",
        "and event",
        "Pearson, merged",
        "measured",
        "Spearman, merged",
        "measured",
    ];
    let mut section = Section::new("The strongest correlations", &header);
    for pair in pairs.into_iter().take(SHOWN) {
        let value = |matrices: &Both, at: usize| format!("{:.3}", matrices[at][pair]);
        section.row([
            names[pair.0].clone(),
            names[pair.1].clone(),
            value(merged, 0),
            value(measured, 0),
            value(merged, 1),
            value(measured, 1),
        ]);
    }
    section.note(format!(
        "At most {SHOWN}, by the larger of both merged ones, of the pairs of which both events vary."
    ))
}

fn page(
    title: &str,
    data: &Measurements,
    section: &Section,
    figures: &Figures,
    body: &Markup,
) -> String {
    let warnings: Vec<String> = data.warnings().iter().map(ToString::to_string).collect();
    let body = html! {
        @if !warnings.is_empty() { div.caveats { @for warning in &warnings { p { (warning) } } } }
        (section.to_html())
        (body)
        (report::all_figures(figures))
        h2 { "Provenance" }
        (report::provenance(figures))
    };
    report::standalone(title, MORE, &body)
}
