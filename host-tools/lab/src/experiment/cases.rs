//! `demo`: one victim in four cases: alone, beside Interf, with budgets, with private pages.

use super::findings::{Cell, Findings, LIMITS, Runs, Series, ratio};
use super::plot::{Chart, Marks};
use miette::Result;

/// Variant, and what it is called.
const CASES: [(&str, &str); 4] = [
    ("solo", "alone"),
    ("interf", "beside Interf"),
    ("quota", "Interf has budgets"),
    ("migration", "the victim's pages are private"),
];

/// What the runs show.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let solo = runs.first("solo")?.cycles();
    let mut rows = vec![];
    let mut slowdowns = vec![];
    for (variant, name) in CASES {
        let run = runs.first(variant)?;
        let (cycles, refills) = (run.cycles(), run.event("L2D_CACHE_REFILL"));
        let (periods, held) = run
            .quotas
            .iter()
            .fold((0, 0), |(periods, held), quota| (periods + quota.periods, held + quota.throttled_periods));
        let overshoot = run.quotas.iter().map(|quota| quota.max_overshoot).max().unwrap_or(0);
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
            Cell::Text(if periods == 0 { String::new() } else { format!("{held} of {periods}") }),
            Cell::Text(if periods == 0 { String::new() } else { overshoot.to_string() }),
        ]);
    }
    let columns = vec!["victim", "cycles", "slowdown", "l2_refills", "pages_moved", "periods_held", "overshoot_max"];
    let series = Series { name: "cases".into(), columns, rows };
    found.tables.push(series.table(
        "A victim in four cases",
        "Median cycles of a run of 20 calls, and lines that the L2 brought from memory for it, both by the hypervisor's HEM \
         log. Periods in which a neighbor was held, of all periods of the three; most refills of a neighbor beyond its \
         budget in one of them.",
    ));
    found.charts.push(Chart {
        title: "Runtime of the victim (modelled)".into(),
        x: String::new(),
        y: "runtime / alone".into(),
        log: false,
        marks: Marks::Bars(vec!["victim".into()], slowdowns.clone()),
    });
    found.series.push(series);
    let slowdown = |case: usize| slowdowns[case].1[0];
    found.say(format!(
        "Beside three cores that store over 420 KiB each, the victim takes {:.2} times as long as alone. Where each of them may \
         refill so many lines in a millisecond as its budget says, and is held for the rest of it, it takes {:.2} times; where \
         they run freely and the victim's 64 most important pages have moved to four colors of its own, {:.2} times.",
        slowdown(1),
        slowdown(2),
        slowdown(3)
    ));
    found.say(LIMITS);
    Ok(found)
}
