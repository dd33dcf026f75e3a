//! The pages that `much` writes: one HTML file each that needs nothing else.

use super::charts;
use crate::figures::Figures;
use crate::report::Section;
use cloison_much::data::Measurements;
use cloison_much::evaluate::{Both, Outcome, accuracy, reference};
use cloison_much::merge::Merged;
use cloison_much::table::Vectors;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const KINDS: [&str; 2] = ["Pearson", "Spearman"];

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #eee; }
figure { display: inline-block; margin: .4rem .8rem .4rem 0; vertical-align: top; }
figcaption, .note { color: #666; font-size: .85rem; }
svg text { font: 11px system-ui, sans-serif; fill: #333; }
";

/// The page of a merge.
pub fn merged(
    data: &Measurements,
    vectors: &Vectors,
    merged: Option<&Merged>,
    section: &Section,
    figures: &Figures,
) -> String {
    let measured = match merged {
        Some(merged) => [merged.correlations.pearson_measured.clone(), merged.correlations.spearman_measured.clone()],
        None => reference(data),
    };
    let body = maps(data, &vectors.correlations(), &measured);
    page("Merged vectors", section, figures, &body)
}

/// The page of an evaluation.
pub fn evaluated(data: &Measurements, merged: &Both, measured: &Both, section: &Section, figures: &Figures) -> String {
    page("Merged vectors and measurements", section, figures, &maps(data, merged, measured))
}

/// The page of a comparison.
pub fn compared(outcomes: &[Outcome], section: &Section, figures: &Figures) -> String {
    let body = html! {
        @for (which, kind) in KINDS.iter().enumerate() {
            (charts::over_runs(&format!("Mean square error of {kind}'s correlations: every sample, mean and 95 % band"), outcomes, which))
        }
    };
    page("MUCH, HRM and a blind merge", section, figures, &body)
}

fn maps(data: &Measurements, merged: &Both, measured: &Both) -> Markup {
    let names: Vec<_> = data.events.iter().map(|event| event.name.clone()).collect();
    let accuracies = [0, 1].map(|at| accuracy(&merged[at], &measured[at]));
    let missing = data.missing_pairs().len();
    html! {
        @if missing > 0 {
            p.note { (missing) " pairs were never counted together: their measured correlation is drawn as 0." }
        }
        @for (at, kind) in KINDS.iter().enumerate() {
            h2 { (kind) "'s correlations" }
            (charts::heatmap("measured", &measured[at], &names, 1.0))
            (charts::heatmap("merged", &merged[at], &names, 1.0))
            (charts::heatmap("merged less measured", &(&merged[at] - &measured[at]), &names, 0.2))
        }
        h2 { "Errors of all pairs" }
        (charts::sorted_errors(
            "Difference of merged and measured correlation, pairs in ascending order",
            &[("Pearson", &accuracies[0].errors), ("Spearman", &accuracies[1].errors)],
        ))
    }
}

fn page(title: &str, section: &Section, figures: &Figures, body: &Markup) -> String {
    let provenance = serde_json::to_value(figures).ok().and_then(|value| value.get("provenance").cloned());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                h2 { (section.title) }
                table {
                    thead { tr { @for name in &section.header { th { (name) } } } }
                    tbody { @for row in &section.rows { tr { @for cell in row { td { (cell) } } } } }
                }
                p.note { (section.note) }
                (body)
                h2 { "Figures" }
                table { @for (name, value) in figures.iter() { tr { td { code { (name) } } td { (value) } } } }
                h2 { "Where this comes from" }
                table {
                    @for (key, value) in provenance.iter().filter_map(|value| value.as_object()).flatten() {
                        tr { td { (key) } td { (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) } }
                    }
                }
            }
        }
    }
    .into_string()
}
