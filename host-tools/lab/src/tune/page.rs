//! The report of `tune`: one self-contained HTML file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::compare::Alternatives;
use super::refusal::Refusal;
use super::report::{self, Findings};
use super::search::Search;
use super::survives::{self, Survival};
use cloison_engine::figures::Figures;
use cloison_engine::report::{self as pages, Section};
use cloison_plot::{Chart, Marks};
use maud::{Markup, html};
use miette::Result;

/// Style in addition to that of all reports.
const STYLE: &str = ".answer { font-size: 1.15em; } pre.map { line-height: 1.3; }";

/// What the report shows.
pub struct Page<'a, 'b> {
    /// All that was measured.
    pub search: &'a Search<'b>,
    /// The decision.
    pub findings: &'a Findings,
    /// What each period of budgets reached, if there were several.
    pub periods: Option<&'a Section>,
    /// What else could be decided, if it was asked for.
    pub alternatives: Option<&'a Alternatives>,
    /// The decision under changes of the model, if it was asked for.
    pub survival: Option<&'a [Survival]>,
    /// The color map of the new configuration.
    pub map: String,
    /// The figures.
    pub figures: &'a Figures,
    /// Name of the system.
    pub system: &'a str,
}

impl Page<'_, '_> {
    /// Returns the report.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub fn html(&self) -> Result<String> {
        let (search, findings) = (self.search, self.findings);
        let body = html! {
            p.answer { (pages::prose(&report::answer(search, findings))) }
            p.note { (report::origin(search)) }
            pre.map { (self.map) }
            (margins(findings).figure()?)
            (report::gets(search, findings).to_html())
            (report::times(search, findings).to_html())
            @if let Some(periods) = self.periods { (periods.to_html()) }
            (self.others()?)
            (self.survives())
            h2 { "Why each VM gets what it gets" }
            @for index in 0..search.subjects().vms.len() {
                (why(search, findings, index))
            }
            (pages::all_figures(self.figures))
            h2 { "Provenance" }
            (pages::provenance(self.figures))
            details { summary { "The new configuration" } pre { (findings.text) } }
        };
        let title = format!("Tuned: {}", self.system);
        Ok(pages::standalone(&title, STYLE, &body))
    }

    /// Returns what fewer knobs and other tolerances reach.
    fn others(&self) -> Result<Markup> {
        let Some(alternatives) = self.alternatives else {
            return Ok(html! {
                h2 { "With fewer knobs, and other tolerances" }
                p.note { "Not decided: " code { "--compare" } " does." }
            });
        };
        let chosen = &self.findings.outcome.partition;
        let front = alternatives.plot(self.search, chosen);
        let front = front.as_ref().map(Chart::figure).transpose()?;
        let bars = alternatives.bars();
        let bars = bars.as_ref().map(Chart::figure).transpose()?;
        Ok(html! {
            @if let Some(front) = front {
                h2 { "What a tighter tolerance costs" }
                (front)
            }
            (alternatives.table(self.search).to_html())
            @if let Some(bars) = bars { (bars) }
        })
    }

    fn survives(&self) -> Markup {
        let Some(survival) = self.survival else {
            return html! {
                h2 { "What survives the model's unsure values" }
                p.note { "Not run: " code { "--sensitivity" } " does." }
            };
        };
        html! {
            (survives::table(survival).to_html())
            p { (pages::prose(&survives::sentence(survival))) }
        }
    }
}

/// What the report shows where no partition keeps all goals.
pub struct Refused<'a, 'b> {
    /// All that was measured.
    pub search: &'a Search<'b>,
    /// Why, and what could be.
    pub refusal: &'a Refusal,
    /// What each period of budgets reached, if there were several.
    pub periods: Option<&'a Section>,
    /// The figures.
    pub figures: &'a Figures,
    /// Name of the system.
    pub system: &'a str,
}

impl Refused<'_, '_> {
    /// Returns the report.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub fn html(&self) -> Result<String> {
        let Self {
            search, refusal, ..
        } = self;
        let relaxed = refusal.relaxed.as_ref();
        let body = html! {
            p.answer { "Impossible: " (pages::prose(&refusal.sentence())) "." }
            p.note { (report::origin(search)) }
            (refusal.goals(search).to_html())
            @if let Some(periods) = self.periods { (periods.to_html()) }
            @if let Some(findings) = relaxed {
                h2 { "The partition for the nearest goals" }
                (margins(findings).figure()?)
                (report::gets(search, findings).to_html())
                (report::times(search, findings).to_html())
            }
            h2 { "What was measured" }
            @for (index, vm) in search.subjects().vms.iter().enumerate() {
                details {
                    summary { (vm.name) }
                    (report::measured(search, index, relaxed).to_html())
                }
            }
            h2 { "Provenance" }
            (pages::provenance(self.figures))
            @if let Some(findings) = relaxed {
                details {
                    summary { "A configuration with this partition; its goals are the written ones" }
                    pre { (findings.text) }
                }
            }
        };
        let title = format!("Not tuned: {}", self.system);
        Ok(pages::standalone(&title, STYLE, &body))
    }
}

/// Returns the plot of predicted and run times.
fn margins(findings: &Findings) -> Chart {
    let groups = findings.verified.iter().map(|vm| {
        let alone = vm.alone.0.max(1) as f64;
        let part = |time: Option<cloison_tune::Time>| time.map_or(0.0, |it| it.0 as f64 / alone);
        let worst = vm.worst().map(|worst| worst.time);
        let bars = vec![part(vm.limit), part(vm.predicted), part(worst)];
        (vm.vm.clone(), bars)
    });
    let names = ["allowed", "predicted", "worst when run"];
    Chart {
        title: "Slowdown of each VM: allowed, predicted, and run again".to_owned(),
        x: String::new(),
        y: "times its time alone with the whole cache".to_owned(),
        log: false,
        log_x: false,
        marks: Marks::Bars(names.map(str::to_owned).to_vec(), groups.collect()),
    }
}

/// Returns why a VM gets what it gets, folded.
fn why(search: &Search<'_>, findings: &Findings, index: usize) -> Markup {
    let explained = report::explained(search, findings, index);
    html! {
        details {
            summary { (search.subjects().vms[index].name) }
            ul { @for change in &explained.changes { li { (change) } } }
            (explained.table.to_html())
        }
    }
}
