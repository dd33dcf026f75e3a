//! `quota`: the effect on a victim of budgets of bus accesses on the other cores.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, falls, ratio};
use super::plot::{Chart, Line, Marks};
use cloison_engine::report::Section;
use cloison_engine::text::grouped;
use miette::Result;

/// Points within this relative difference are equal.
const EQUAL: f64 = 0.001;

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let (solo, free) = (runs.first("solo")?.cycles(), runs.first("interf")?.cycles());
    let mut points: Vec<_> = runs
        .of("quota")
        .map(|run| (run.number("budget").unwrap_or(0), run))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.0));
    let slowdowns: Vec<f64> = std::iter::once(ratio(free, solo))
        .chain(points.iter().map(|point| ratio(point.1.cycles(), solo)))
        .collect();
    let monotone = falls(&slowdowns, EQUAL);
    found.figure("solo_cycles", solo as f64);
    found.figure("interf_cycles", free as f64);
    found.figure("slowdown", ratio(free, solo));
    found.figure(
        "least_slowdown",
        slowdowns.iter().copied().fold(f64::INFINITY, f64::min),
    );
    found.figure("monotone", f64::from(monotone));
    let mut rows = vec![];
    let mut overshoots = Section::new(
        "Beyond the budget, by core",
        &[
            "budget",
            "core",
            "enforced by",
            "periods",
            "held in",
            "events",
            "most beyond budget",
            "beyond budget, total",
        ],
    );
    let mut most = 0;
    for (budget, run) in &points {
        let quotas = &run.quotas;
        most = most.max(
            quotas
                .iter()
                .map(|quota| quota.max_overshoot)
                .max()
                .unwrap_or(0),
        );
        rows.push(vec![
            Cell::Count(*budget),
            Cell::Count(run.cycles()),
            Cell::Value(ratio(run.cycles(), solo)),
            Cell::Count(run.event("L2D_CACHE_REFILL")),
            Cell::Count(
                quotas
                    .iter()
                    .map(|quota| quota.max_overshoot)
                    .max()
                    .unwrap_or(0),
            ),
            Cell::Count(quotas.iter().map(|quota| quota.throttled_periods).sum()),
            Cell::Count(quotas.iter().map(|quota| quota.periods).sum()),
        ]);
        for quota in quotas {
            overshoots.row([
                grouped(*budget),
                quota.core.to_string(),
                if quota.by_interrupt {
                    "interrupt"
                } else {
                    "polling"
                }
                .to_owned(),
                grouped(quota.periods),
                grouped(quota.throttled_periods),
                grouped(quota.events),
                grouped(quota.max_overshoot),
                grouped(quota.overshoot),
            ]);
            found.figure(
                format!("bus{budget}_core{}_overshoot_max", quota.core),
                quota.max_overshoot as f64,
            );
        }
    }
    found.figure("overshoot_max", most as f64);
    let names = [
        "budget",
        "cycles",
        "slowdown",
        "l2_refills",
        "overshoot_max",
        "throttled_periods",
        "periods",
    ];
    let series = Series {
        name: "budgets".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "Victim against the budget of each Interf core",
        "Budget: BUS_ACCESS events per period of 1 ms; 8 for a line that is filled and written back. Overshoot: maximum \
         of events beyond the budget in one period of one core.",
    ));
    found.tables.push(overshoots.note(
        "Events counted beyond the budget before the core was stopped, by the hypervisor's own count: lines in \
         progress when the interrupt arrived.",
    ));
    found.charts.push(Chart {
        title: "Victim against Interf's budget (modelled)".into(),
        x: "BUS_ACCESS events in 1 ms, each Interf core".into(),
        y: "runtime / solo".into(),
        log: false,
        log_x: true,
        marks: Marks::Lines(vec![Line {
            name: "victim".into(),
            points: points
                .iter()
                .map(|(budget, run)| (*budget as f64, ratio(run.cycles(), solo)))
                .collect(),
        }]),
    });
    found.series.push(series);
    found.say(format!(
        "Without budgets the victim takes {:.2} times its solo time, with the smallest budget {:.2} times. {}",
        ratio(free, solo),
        slowdowns.last().copied().unwrap_or(1.0),
        if monotone {
            "No smaller budget slows it down more than the next larger one, by 0.1 %."
        } else {
            "Some smaller budget slows it down more than the next larger one, by 0.1 %: see the table."
        }
    ));
    found.say(format!(
        "No core exceeded its budget by more than {most} accesses in a period: what it does until the end of its block of \
         code and in the hypervisor's first instructions. With quanta of 50 to 3000 cycles it changes by two lines at most. On a board it also \
         depends on how many accesses are under way, which the model has only for stores."
    ));
    Ok(found)
}
