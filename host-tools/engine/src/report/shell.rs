//! The HTML shell of all reports: style, figures, and provenance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::figures::Figures;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Returns a self-contained page with this title and body. `more` is style in addition to that of
/// all reports.
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

/// Returns text in which words between backticks are code.
pub fn prose(text: &str) -> Markup {
    let pieces: Vec<&str> = text.split('`').collect();
    // A last backtick without its partner remains what it is.
    let odd = pieces.len().is_multiple_of(2);
    html! {
        @for (at, piece) in pieces.iter().enumerate() {
            @if at.is_multiple_of(2) { (piece) } @else if odd && at + 1 == pieces.len() { "`" (piece) } @else { code { (piece) } }
        }
    }
}

/// Returns all figures under a heading, folded; nothing if there are none.
pub fn all_figures(figures: &Figures) -> Markup {
    html! {
        @if figures.iter().next().is_some() {
            h2 { "Figures" }
            details {
                summary { "All figures, by the names of the JSON file" }
                table { @for (name, value) in figures.iter() { tr { td { code { (name) } } td.num { (value) } } } }
            }
        }
    }
}

/// Returns the provenance of figures as a table.
pub fn provenance(figures: &Figures) -> Markup {
    let text = |value: &serde_json::Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let mut rows = vec![];
    for (key, value) in figures.provenance() {
        match value {
            serde_json::Value::Object(more) => {
                rows.extend(more.iter().map(|(key, value)| (key.clone(), text(value))))
            }
            other => rows.push((key, text(&other))),
        }
    }
    html! { table { @for (key, value) in &rows { tr { td { (key) } td { (value) } } } } }
}

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; \
                     margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #eee; \
                     vertical-align: top; }
td.num, th.num { text-align: right; }
td.num { font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.note { color: #666; font-size: .9rem; margin: .4rem 0; }
.caveats { background: #fff7e0; border-left: 4px solid #e0b000; padding: .1rem 1rem; margin: 1rem \
                     0; font-size: .95rem; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .8rem; max-height: 40rem; }
svg { display: block; margin: .6rem 0; max-width: 100%; height: auto; }
svg text { font: 13px system-ui, sans-serif; fill: #333; }
td, .legend { overflow-wrap: anywhere; }
.scroll td, td:first-child { overflow-wrap: normal; }
.scroll > svg { max-width: none; }
figure.chart { display: block; margin: 1rem 0 1.6rem; }
figure.chart figcaption { color: #222; font-size: 1rem; font-weight: 600; }
.chart svg { margin: .3rem 0; }
.chart svg text { font-size: 14px; }
.plot { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: flex-start; }
.plot > .wide { flex: 1 1 0; min-width: 0; }
.plot > .narrow { display: none; }
.legend { list-style: none; margin: 1rem 0 0; padding: 0; font-size: .9rem; max-width: 11rem; }
.legend span { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; }
.bars { display: grid; grid-template-columns: max-content minmax(6rem, 1fr) max-content; gap: \
                     .15rem .7rem; font-size: .9rem; margin: .6rem 0 1rem; }
.bars .bar { background: #f2f2f2; align-self: center; height: .9rem; }
.bars .bar span { display: block; height: 100%; }
.strip { margin: .8rem 0; font-size: .9rem; }
.strip .ends { display: flex; justify-content: space-between; color: #666; }
@media (max-width: 45rem) {
  body { margin: 1rem auto; }
  .plot { display: block; }
  .plot > .wide { display: none; }
  .plot > .narrow { display: block; }
  .legend { max-width: none; margin: 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
  .bars { grid-template-columns: 1fr max-content; }
  .bars .bar { grid-column: 1 / -1; grid-row: auto; }
  .bars .label { grid-column: 1; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_become_code_and_guests_no_markup() {
        let html = |text| prose(text).into_string();
        assert_eq!(
            html("see `a_b` and `c`."),
            "see <code>a_b</code> and <code>c</code>."
        );
        assert_eq!(html("one ` only"), "one ` only");
        assert_eq!(html("`<b>`"), "<code>&lt;b&gt;</code>");
    }

    #[test]
    fn nothing_has_a_heading_without_contents() {
        assert_eq!(all_figures(&Figures::new("test")).into_string(), "");
        let mut figures = Figures::new("test");
        figures.count("one", 1);
        assert!(
            all_figures(&figures)
                .into_string()
                .contains("<h2>Figures</h2>")
        );
    }
}
