//! The report of one run: one self-contained HTML file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::drawing::{bars, color_map, hem_charts, migration_bars, strip, throttled_bars};
use super::shell::{all_figures, prose, standalone};
use super::summary::Summary;
use crate::figures::Figures;
use maud::html;

/// The contents of the page in addition to the run's own tables.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Heading.
    pub title: &'a str,
    /// Line below the heading.
    pub subtitle: &'a str,
    /// Warnings that a reader must know before believing a number.
    pub caveats: &'a [&'a str],
    /// Text of the configuration, as its author wrote it.
    pub config: &'a str,
    /// The QEMU command line.
    pub command_line: &'a str,
    /// The figures with their provenance.
    pub figures: &'a Figures,
    /// The console's complete output.
    pub console: &'a str,
}

/// Returns the report as one self-contained HTML file.
pub fn html(summary: &Summary<'_>, page: &Page<'_>) -> String {
    let provenance = page.figures.provenance();
    let migrations = summary.telemetry.migrations().count();
    let body = html! {
        p { (page.subtitle) }
        div.caveats { @for caveat in page.caveats { p { (prose(caveat)) } } }
        h2 { "Color map" }
        p.note { "Each column is a page color. A cell shows how many pages of that color the pool had handed out at \
             boot, and how many migrated there and stayed." }
        (color_map(summary))
        (summary.pools().to_html())
        (summary.vms().to_html())
        (summary.exits().to_html())
        (summary.quotas().to_html())
        (summary.quota_periods().to_html())
        (bars(&throttled_bars(summary)))
        @for section in [summary.links(), summary.doorbells()] {
            @if !section.rows.is_empty() { (section.to_html()) }
        }
        (summary.migrations().to_html())
        @if migrations > 0 {
            (bars(&migration_bars(summary)))
            details { summary { "Every migration (" (migrations) ")" } (summary.migration_list().table()) }
        }
        (summary.hems().to_html())
        @for chart in &hem_charts(summary) { (strip(chart)) }
        (all_figures(page.figures))
        h2 { "Provenance" }
        table {
            @for (key, value) in &provenance {
                tr { td { (key) } td { (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) } }
            }
            tr { td { "command" } td { code { (page.command_line) } } }
        }
        details { summary { "Configuration" } pre { (page.config) } }
        details { summary { "Console" } pre { (page.console) } }
    };
    standalone(page.title, "", &body)
}
