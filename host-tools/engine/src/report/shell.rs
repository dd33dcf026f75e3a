//! The HTML shell of all reports: style, figures, and provenance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::figures::Figures;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Returns a self-contained page with this title and body. `more` is style in addition to that of all reports.
pub fn standalone(title: &str, more: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    }
    .into_string()
}

/// Returns all figures under a heading, folded.
pub fn all_figures(figures: &Figures) -> Markup {
    html! {
        h2 { "Figures" }
        details {
            summary { "All figures, by the names of the JSON file" }
            table { @for (name, value) in figures.iter() { tr { td { code { (name) } } td.num { (value) } } } }
        }
    }
}

/// Returns the provenance of figures as a table.
pub fn provenance(figures: &Figures) -> Markup {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut rows = vec![];
    for (key, value) in figures.provenance() {
        match value {
            serde_json::Value::Object(more) => rows.extend(more.iter().map(|(key, value)| (key.clone(), text(value)))),
            other => rows.push((key, text(&other))),
        }
    }
    html! { table { @for (key, value) in &rows { tr { td { (key) } td { (value) } } } } }
}

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
td.num { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.note { color: #666; font-size: .9rem; margin: .4rem 0; }
.caveats { background: #fff7e0; border-left: 4px solid #e0b000; padding: .1rem 1rem; margin: 1rem 0; font-size: .95rem; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; max-height: 40rem; }
svg { display: block; margin: .6rem 0; max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #333; }
";
