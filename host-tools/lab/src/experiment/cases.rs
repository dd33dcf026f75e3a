//! `demo`: one victim in four cases: alone, next to Interf, with budgets, with private pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, ratio};
use super::plot::{Chart, Marks};
use miette::Result;

/// The variants and their titles.
const CASES: [(&str, &str); 4] = [
    ("solo", "alone"),
    ("interf", "next to Interf"),
    ("quota", "Interf with budgets"),
    ("migration", "the victim's pages are private"),
];

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let solo = runs.first("solo")?.cycles();
    let mut rows = vec![];
    let mut slowdowns = vec![];
    for (variant, name) in CASES {
        let run = runs.first(variant)?;
        let (cycles, refills) = (run.cycles(), run.event("L2D_CACHE_REFILL"));
        let (periods, held) = run.quotas.iter().fold((0, 0), |(periods, held), quota| {
            (periods + quota.periods, held + quota.throttled_periods)
        });
        let overshoot = run
            .quotas
            .iter()
            .map(|quota| quota.max_overshoot)
            .max()
            .unwrap_or(0);
        found.figure(format!("{variant}_cycles"), cycles as f64);
        found.figure(format!("{variant}_slowdown"), ratio(cycles, solo));
        found.figure(format!("{variant}_l2_refills"), refills as f64);
        found.figure(format!("{variant}_pages_moved"), run.pages_moved as f64);
        found.figure(format!("{variant}_throttled_periods"), held as f64);
        found.figure(format!("{variant}_overshoot_max"), overshoot as f64);
        slowdowns.push((name.to_owned(), vec![ratio(cycles, solo)]));
        rows.push(vec![
            Cell::Text(name.to_owned()),
            Cell::Count(cycles),
            Cell::Value(ratio(cycles, solo)),
            Cell::Count(refills),
            Cell::Count(run.pages_moved),
            Cell::Text(if periods == 0 {
                String::new()
            } else {
                format!("{held} of {periods}")
            }),
            Cell::Text(if periods == 0 {
                String::new()
            } else {
                overshoot.to_string()
            }),
        ]);
    }
    let names = [
        "victim",
        "cycles",
        "slowdown",
        "l2_refills",
        "pages_moved",
        "periods_held",
        "overshoot_max",
    ];
    let series = Series {
        name: "cases".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "A victim in four cases",
        "Median cycles of a run of 20 calls, and lines that the L2 fetched from memory for it, both from the \
         hypervisor's HEM log. Periods in which a neighbor was held, of all periods of the three; maximum overshoot of \
         a neighbor in one period, in accesses to the bus.",
    ));
    found.charts.push(Chart {
        title: "Runtime of the victim (modelled)".into(),
        x: String::new(),
        y: "runtime / alone".into(),
        log: false,
        log_x: false,
        marks: Marks::Bars(vec!["victim".into()], slowdowns.clone()),
    });
    found.series.push(series);
    let slowdown = |case: usize| slowdowns[case].1[0];
    found.say(format!(
        "Next to three cores that each store over 420 KiB, the victim takes {:.2} times as long as alone. If a budget \
         limits the bus accesses of each of them per millisecond, it takes {:.2} times as long. If they run without budgets \
         and the victim's 64 most important pages have moved to four private colors, {:.2} times.",
        slowdown(1),
        slowdown(2),
        slowdown(3)
    ));
    Ok(found)
}
