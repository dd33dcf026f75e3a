//! `interf-migration`: a victim stays where it is and its neighbors' pages are moved away (BBProf, section 7.4, figures 11
//! and 12).

use super::findings::{Cell, Findings, Rivals, Runs, Series, falls, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// Variant and name of each of the paper's seven bars.
const BARS: [(&str, &str); 7] = [
    ("solo", "Solo"),
    ("solo-col4", "Solo+Col.4"),
    ("solo-col12", "Solo+Col.12"),
    ("interf", "Interf"),
    ("interf-col4", "Interf+Col.4"),
    ("interf-col12", "Interf+Col.12"),
    ("interf-migration", "Interf+Migration"),
];

/// Pages of all Interf with which it begins to fall in the paper.
const PAPER_BEGINS: u64 = 123;
/// Runtime has begun to fall when it is at most this part of what it was.
const BEGUN: f64 = 0.95;
/// What is called near.
const NEAR: f64 = 1.05;

/// What the runs show.
pub fn find(runs: Runs<'_>, rivals: Rivals) -> Result<Findings> {
    let mut found = Findings::default();
    // Figure 11.
    let solo = runs.first("sweep-solo")?;
    let mut points: Vec<(u64, u64, u64)> = runs
        .of("sweep")
        .map(|run| (run.number("pages").unwrap_or(0), run.cycles(), run.event("L2D_CACHE_REFILL")))
        .collect();
    points.sort_unstable();
    let slowdowns: Vec<f64> = points.iter().map(|point| ratio(point.1, solo.cycles())).collect();
    let (none, all) = (slowdowns.first().copied().unwrap_or(0.0), slowdowns.last().copied().unwrap_or(0.0));
    // Half of the way from none to all.
    let half = points.iter().zip(&slowdowns).find(|(_, slowdown)| **slowdown <= (none + all) / 2.0);
    found.figure("solo_cycles", solo.cycles() as f64);
    found.figure("slowdown", none);
    found.figure("recovered_ratio", all);
    found.figure("half_recovered_pages", half.map_or(0.0, |(point, _)| point.0 as f64));
    found.figure("monotone", f64::from(falls(&slowdowns, 0.02)));
    let sweep = Series {
        name: "sweep".into(),
        columns: vec!["pages_of_each", "cycles", "slowdown", "l2_refills"],
        rows: points
            .iter()
            .zip(&slowdowns)
            .map(|(point, &slowdown)| {
                vec![Cell::Count(point.0), Cell::Count(point.1), Cell::Value(slowdown), Cell::Count(point.2)]
            })
            .collect(),
    };
    found.tables.push(sweep.table(
        "Victim against pages of each Interf moved away (figure 11)",
        "Each of the three Interf buffers has 105 pages. Slowdown against the solo run in the same shared colors.",
    ));
    found.charts.push(Chart {
        title: "Pages of Interf moved away (modelled)".into(),
        x: "pages of each of the three Interf".into(),
        y: "runtime / solo".into(),
        marks: Marks::Lines(vec![Line {
            name: "victim".into(),
            points: points.iter().zip(&slowdowns).map(|(point, &y)| (point.0 as f64, y)).collect(),
        }]),
    });
    found.series.push(sweep);
    // Figure 12.
    let mut groups = vec![];
    let mut rows = vec![];
    let mut versus = vec![];
    for input in runs.labels("solo", "input") {
        let cycles = |variant: &str| runs.at(variant, &[("input", input)]).map(super::runner::Measured::cycles);
        let Some(base) = cycles("solo") else { continue };
        let values: Vec<f64> =
            BARS.iter().map(|(variant, _)| cycles(variant).map_or(0.0, |c| ratio(c, base))).collect();
        let name = input.replace(['/', '-'], "_");
        for ((variant, _), value) in BARS.iter().zip(&values) {
            found.figure(format!("{name}_{}", variant.replace('-', "_")), *value);
        }
        let mut row = vec![Cell::Text(input.to_owned())];
        row.extend(values.iter().map(|value| Cell::Value(*value)));
        rows.push(row);
        versus.push((input, values[3], values[5], values[6]));
        groups.push((input.to_owned(), values));
    }
    let bars = Series {
        name: "bars".into(),
        columns: std::iter::once("input").chain(BARS.iter().map(|(_, name)| *name)).collect(),
        rows,
    };
    found.tables.push(bars.table(
        "The seven cases (figure 12)",
        "Runtime against solo. Col.N: the victim alone has N colors, and Interf, if it is there, the rest of the 15. \
         Interf+Migration: the victim shares 11 colors with what Interf has besides its buffers, which are all in the other \
         4.",
    ));
    found.charts.push(Chart {
        title: "The seven cases (modelled)".into(),
        x: String::new(),
        y: "runtime / solo".into(),
        marks: Marks::Bars(BARS.iter().map(|(_, name)| (*name).to_owned()).collect(), groups),
    });
    found.series.push(bars);
    let begins = points.iter().zip(&slowdowns).find(|(_, slowdown)| **slowdown <= none * BEGUN);
    found.say(format!(
        "With all of Interf in the victim's colors it takes {none:.2} times its solo time, with all pages of their buffers \
         moved away {all:.2} times.{}{} In the paper the runtime begins to fall when {PAPER_BEGINS} of the 315 pages are gone, 41 of each, \
         so that what is left of the three fits the shared 12 colors; here 11 are shared.",
        begins.map_or_else(String::new, |(point, _)| format!(
            " It has fallen by {:.0} % with {} pages of each moved, {} in all.",
            (1.0 - BEGUN) * 100.0,
            point.0,
            3 * point.0
        )),
        half.map_or_else(String::new, |(point, _)| format!(
            " Half of the way is done with {} pages of each.",
            point.0
        ))
    ));
    if let Some(((pages, _, refills), first)) =
        begins.map(|(point, _)| *point).zip(points.first()).filter(|(point, _)| 3 * point.0 < PAPER_BEGINS)
    {
        found.say(format!(
            "It falls earlier here: the victim's refills go from {} to {refills} over the first {pages} pages of each, long before \
             what is left fits. Each page of Interf less lets the victim's lines stay a little longer.",
            first.2
        ));
    }
    for (input, interf, colored, migrated) in versus {
        let better = if migrated <= colored * NEAR {
            format!("within {:.0} % of 12 colors of its own", (NEAR - 1.0) * 100.0)
        } else {
            "less than 12 colors of its own give it".to_owned()
        };
        found.say(format!(
            "{input}: {interf:.2} times under Interf, {colored:.2} with 12 colors, {migrated:.2} after migration: {better}."
        ));
    }
    let ends = |end: u64| runs.of("sweep").find(|run| run.number("pages") == Some(end));
    let (first, last) = (points.first().and_then(|point| ends(point.0)), points.last().and_then(|point| ends(point.0)));
    if let (Some(first), Some(last)) = (first, last) {
        found.say(format!(
            "What migration leaves to the victim of the sweep is {} refills where it has {} alone in the same colors, and the \
             wait for a memory that Interf uses with {:.0} MB/s after migration, where it was {:.0} MB/s before: its buffers, \
             in a color or two each, are larger than these.",
            last.event("L2D_CACHE_REFILL"),
            solo.event("L2D_CACHE_REFILL"),
            rivals.memory(last),
            rivals.memory(first)
        ));
    }
    Ok(found)
}
