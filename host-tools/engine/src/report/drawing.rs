//! The report's drawings as SVG: the color map, bars, and counts over runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::summary::{Summary, kind, outcome};
use crate::text::{Spread, grouped, share};
use cloison_formats::ids::VmId;
use cloison_formats::units::EventId;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Colors that are easy to tell apart, also for color-blind readers (after Okabe and Ito).
pub const PALETTE: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a8a00",
];

pub(super) fn color_map(summary: &Summary<'_>) -> Markup {
    let Some(boot) = &summary.telemetry.boot else {
        return html! { p { "The stream has no Boot message." } };
    };
    let pools = &summary.telemetry.pools;
    // Each memory besides the RAM is one more color.
    let memories = &summary.system.board.memories;
    let colors = (0..boot.colors).map(|color| color.to_string());
    let columns: Vec<String> = colors
        .chain(memories.iter().map(|memory| memory.name.clone()))
        .take(64)
        .collect();
    let count = columns.len() as u32;
    let (left, cell, row) = (150, 48, 26);
    let (width, height) = (left + cell * count + 4, row * (pools.len() as u32 + 2));
    let users = |index: usize| {
        let uses = |vm: &&cloison_formats::image::Vm| {
            vm.regions
                .iter()
                .any(|region| matches!(region.backing, cloison_formats::image::Backing::Pool(pool) if usize::from(pool) == index))
                || vm.target.is_some_and(|target| usize::from(target) == index)
        };
        summary
            .system
            .vms
            .iter()
            .filter(uses)
            .map(|vm| vm.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let row_of = |line: u32, name: &str, title: &str, paint: &str, cells: Vec<(u8, String)>| {
        html! {
            text x="0" y=(line * row + 17) { (name) title { (title) } }
            @for (color, label) in cells {
                rect x=(left + cell * u32::from(color)) y=(line * row + 2) width=(cell - 2) height=(row - 4) rx="3" fill=(paint) fill-opacity="0.35" { title { (title) } }
                text x=(left + cell * u32::from(color) + cell / 2 - 1) y=(line * row + 17) text-anchor="middle" { (label) }
            }
        }
    };
    html! {
        div.scroll { svg viewBox=(format!("0 0 {width} {height}")) width=(width) role="img" {
            @for (color, column) in (0..).zip(&columns) {
                text x=(left + cell * color + cell / 2 - 1) y="17" text-anchor="middle" { (column) }
            }
            (row_of(1, "hypervisor", "the hypervisor's own frames", "#555", boot.hypervisor_colors.iter().zip(0..).map(|(color, turn)| {
                let own = (boot.hypervisor_pages + boot.hypervisor_colors.len() - 1 - turn) / boot.hypervisor_colors.len();
                (color.0, own.to_string())
            }).collect()))
            @for (index, pool) in pools.iter().enumerate() {
                (row_of(
                    index as u32 + 2,
                    &format!("{} ({})", pool.name, kind(pool.kind)),
                    &format!("used by {}", users(index)),
                    PALETTE[index % PALETTE.len()],
                    pool.colors.iter().zip(&pool.used).map(|(color, used)| {
                        let migrated = summary.migrated_into(index).into_iter().find(|&(of, _)| of == color);
                        (color.0, migrated.map_or_else(|| used.to_string(), |(_, pages)| format!("{used} + {pages}")))
                    }).collect(),
                ))
            }
        } }
        table {
            @for (index, pool) in pools.iter().enumerate() {
                tr { td { (pool.name) } td { (kind(pool.kind)) } td { "used by " (users(index)) } }
            }
        }
    }
}

/// A chart of horizontal bars.
pub(super) struct Bars {
    title: String,
    /// Label, length, and the text after the bar.
    rows: Vec<(String, f64, String)>,
    /// The value at full width.
    full: f64,
}

pub(super) fn throttled_bars(summary: &Summary<'_>) -> Bars {
    let rows = summary.telemetry.quota_totals().map(|(core, total)| {
        let ran = summary.telemetry.vm_runtime(total.vm).unwrap_or_default();
        let part = 100.0 * share(total.throttled.0, ran.0);
        (
            format!("core {core}, {}", summary.telemetry.vm_name(total.vm)),
            part,
            format!("{part:.1} %"),
        )
    });
    Bars {
        title: "Share of its run for which each core was held".to_owned(),
        rows: rows.collect(),
        full: 100.0,
    }
}

pub(super) fn migration_bars(summary: &Summary<'_>) -> Bars {
    const MOST: usize = 24;
    let all: Vec<_> = summary
        .telemetry
        .migrations()
        .map(|(_, migration)| migration)
        .collect();
    let full = all
        .iter()
        .map(|migration| migration.took.0)
        .max()
        .unwrap_or(0) as f64;
    let rows = all.iter().take(MOST).map(|migration| {
        let name = format!(
            "{} {}",
            summary.telemetry.vm_name(migration.vm),
            migration.ipa
        );
        (
            name,
            migration.took.0 as f64,
            format!("{} ns, {}", migration.took.0, outcome(migration.outcome)),
        )
    });
    let title = if all.len() > MOST {
        format!("Cost of the first {MOST} migrations")
    } else {
        "Cost of each migration".into()
    };
    Bars {
        title,
        rows: rows.collect(),
        full,
    }
}

/// Returns the bars as a grid, whose letters keep their size on a narrow window.
pub(super) fn bars(chart: &Bars) -> Markup {
    html! {
        @if !chart.rows.is_empty() {
            p.note { (chart.title) }
            div.bars {
                @for (label, value, text) in &chart.rows {
                    @let part = if chart.full > 0.0 { (100.0 * value / chart.full).clamp(0.0, 100.0) } else { 0.0 };
                    div.label { (label) }
                    div.bar { span style=(format!("width:{part:.1}%;background:{}", PALETTE[0])) {} }
                    div { (text) }
                }
            }
        }
    }
}

/// A chart of values over runs, as points.
pub(super) struct Strip {
    /// VM, workload and sub-experiment.
    of: String,
    /// What is counted: all events whose counts are the same in every run.
    what: Vec<String>,
    points: Vec<(u32, u64)>,
    paint: &'static str,
}

pub(super) fn hem_charts(summary: &Summary<'_>) -> Vec<Strip> {
    /// VM, workload, sub-experiment, and event; `None` for cycles.
    type Key = (VmId, u32, u32, Option<EventId>);
    let mut charts: BTreeMap<Key, Vec<(u32, u64)>> = BTreeMap::new();
    for run in summary.telemetry.hem_runs() {
        let record = run.record;
        let mut add = |event, value| {
            let key = (record.vm, record.workload, record.sub_experiment, event);
            charts.entry(key).or_default().push((record.run, value));
        };
        add(None, record.cycles.0);
        for (event, count, _) in run.counts() {
            add(Some(event), u64::from(count));
        }
    }
    let mut strips: Vec<Strip> = vec![];
    for ((vm, workload, sub_experiment, event), points) in charts {
        let what = event.map_or_else(|| "cycles".to_owned(), |event| summary.names.name(event));
        let of = format!(
            "{}, workload {workload}, sub-experiment {sub_experiment}",
            summary.telemetry.vm_name(vm)
        );
        add_strip(&mut strips, of, what, points);
    }
    strips
}

/// Adds a chart, or only its name to one with the same points: twice they would look like two
/// findings.
fn add_strip(strips: &mut Vec<Strip>, of: String, what: String, points: Vec<(u32, u64)>) {
    match strips
        .iter_mut()
        .find(|strip| strip.of == of && strip.points == points)
    {
        Some(strip) => strip.what.push(what),
        None => strips.push(Strip {
            of,
            what: vec![what],
            points,
            paint: PALETTE[strips.len() % PALETTE.len()],
        }),
    }
}

pub(super) fn strip(chart: &Strip) -> Markup {
    const HEIGHT: f64 = 64.0;
    let Some(values) = Spread::of(chart.points.iter().map(|&(_, value)| value)) else {
        return html! {};
    };
    let last = chart.points.iter().map(|&(run, _)| run).max().unwrap_or(0);
    let x = |run: u32| 1.0 + 98.0 * f64::from(run) / f64::from(last.max(1));
    // The axis starts at zero, so that noise does not look like an effect.
    let y = |value: u64| HEIGHT - 5.0 - (HEIGHT - 10.0) * value as f64 / values.max.max(1) as f64;
    html! {
        div.strip {
            div {
                (chart.of) ": " strong { (chart.what.join(" = ")) } " per run (" (chart.points.len()) " runs; "
                (grouped(values.min)) " to " (grouped(values.max)) ", median " (grouped(values.median)) ")"
            }
            @if values.max == 0 {
                p.note { "Always zero." }
            } @else {
                div.ends { span { (grouped(values.max)) } }
                svg width="100%" height=(HEIGHT) role="img" {
                    line x1="0" x2="100%" y1=(y(0)) y2=(y(0)) stroke="#ccc" {}
                    @for &(run, value) in &chart.points {
                        circle cx=(format!("{:.2}%", x(run))) cy=(format!("{:.1}", y(value))) r="2.5" fill=(chart.paint) { title { "run " (run) ": " (grouped(value)) } }
                    }
                }
                div.ends { span { "0; first run" } span { "run " (last) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_with_the_same_counts_share_a_chart_with_its_ends() {
        let mut strips = vec![];
        for (of, what, last) in [
            ("a", "cycles", 30_000),
            ("a", "CPU_CYCLES", 30_000),
            ("a", "LD_RETIRED", 7),
            ("b", "cycles", 30_000),
        ] {
            add_strip(
                &mut strips,
                of.to_owned(),
                what.to_owned(),
                vec![(0, 10), (1, last)],
            );
        }
        let names: Vec<_> = strips.iter().map(|strip| strip.what.join(" = ")).collect();
        assert_eq!(names, ["cycles = CPU_CYCLES", "LD_RETIRED", "cycles"]);
        let html = strip(&strips[0]).into_string();
        for label in [
            "<span>30\u{202f}000</span>",
            "<span>0; first run</span>",
            "<span>run 1</span>",
        ] {
            assert!(html.contains(label), "{label}: {html}");
        }
        assert_eq!(html.matches("<circle").count(), 2);
    }
}
