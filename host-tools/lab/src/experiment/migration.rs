//! `interf-migration`: a victim stays in place while its neighbors' pages are moved away (BBProf, section 7.4, figures
//! 11 and 12).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, falls, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// The variant and title of each of the paper's seven bars.
const BARS: [(&str, &str); 7] = [
    ("solo", "Solo"),
    ("solo-col4", "Solo+Col.4"),
    ("solo-col12", "Solo+Col.12"),
    ("interf", "Interf"),
    ("interf-col4", "Interf+Col.4"),
    ("interf-col12", "Interf+Col.12"),
    ("interf-migration", "Interf+Migration"),
];

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let sweep = sweep(runs, &mut found)?;
    let versus = seven_cases(runs, &mut found);
    say(&mut found, sweep, versus);
    Ok(found)
}

/// Slowdown with all of Interf in the victim's colors, slowdown with none, and the two neighboring points, in pages of
/// each moved, between which half of the way is done.
type Sweep = (f64, f64, Option<(u64, u64)>);

/// An input, and its runtime against solo: under Interf, with 12 colors, after migration.
type Versus<'a> = (&'a str, f64, f64, f64);

/// Figure 11: a victim against pages of Interf moved away.
fn sweep(runs: Runs<'_>, found: &mut Findings) -> Result<Sweep> {
    let solo = runs.first("sweep-solo")?;
    let mut points: Vec<(u64, u64, u64)> = runs
        .of("sweep")
        .map(|run| {
            (
                run.number("pages").unwrap_or(0),
                run.cycles(),
                run.event("L2D_CACHE_REFILL"),
            )
        })
        .collect();
    points.sort_unstable();
    let slowdowns: Vec<f64> = points
        .iter()
        .map(|point| ratio(point.1, solo.cycles()))
        .collect();
    let (none, all) = (
        slowdowns.first().copied().unwrap_or(0.0),
        slowdowns.last().copied().unwrap_or(0.0),
    );
    // Half of the way from no page moved to all pages moved.
    let half = halfway(
        &points
            .iter()
            .map(|point| point.0)
            .zip(slowdowns.iter().copied())
            .collect::<Vec<_>>(),
    );
    found.figure("solo_cycles", solo.cycles() as f64);
    found.figure("slowdown", none);
    found.figure("recovered_ratio", all);
    found.figure(
        "half_recovered_pages",
        half.map_or(0.0, |(_, pages)| pages as f64),
    );
    found.figure("monotone", f64::from(falls(&slowdowns, 0.02)));
    let sweep = Series {
        name: "sweep".into(),
        columns: columns(["pages_of_each", "cycles", "slowdown", "l2_refills"]),
        rows: points
            .iter()
            .zip(&slowdowns)
            .map(|(point, &slowdown)| {
                vec![
                    Cell::Count(point.0),
                    Cell::Count(point.1),
                    Cell::Value(slowdown),
                    Cell::Count(point.2),
                ]
            })
            .collect(),
    };
    found.tables.push(sweep.table(
        "Victim against pages of each Interf moved away (figure 11)",
        "Each of the three Interf buffers has 105 pages. Slowdown relative to the solo run in the same shared colors.",
    ));
    found.charts.push(Chart {
        title: "Pages of Interf moved away (modelled)".into(),
        x: "pages of each of the three Interf".into(),
        y: "runtime / solo".into(),
        log: false,
        log_x: false,
        marks: Marks::Lines(vec![Line {
            name: "victim".into(),
            points: points
                .iter()
                .zip(&slowdowns)
                .map(|(point, &y)| (point.0 as f64, y))
                .collect(),
        }]),
    });
    found.series.push(sweep);
    Ok((none, all, half))
}

/// Figure 12: the seven cases.
fn seven_cases<'a>(runs: Runs<'a>, found: &mut Findings) -> Vec<Versus<'a>> {
    let mut groups = vec![];
    let mut rows = vec![];
    let mut versus = vec![];
    for input in runs.labels("solo", "input") {
        let cycles = |variant: &str| {
            runs.at(variant, &[("input", input)])
                .map(super::measured::Measured::cycles)
        };
        let Some(base) = cycles("solo") else { continue };
        let values: Vec<f64> = BARS
            .iter()
            .map(|(variant, _)| cycles(variant).map_or(0.0, |c| ratio(c, base)))
            .collect();
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
        columns: columns(std::iter::once("input").chain(BARS.iter().map(|(_, name)| *name))),
        rows,
    };
    found.tables.push(bars.table(
        "The seven cases (figure 12)",
        "Runtime relative to solo. Col.N: the victim has N private colors, and Interf, if present, the rest of the 15. \
         Interf+Migration: the victim shares 11 colors with Interf's memory except its buffers, which are all in the \
         other 4.",
    ));
    found.charts.push(Chart {
        title: "The seven cases (modelled)".into(),
        x: String::new(),
        y: "runtime / solo".into(),
        log: false,
        log_x: false,
        marks: Marks::Bars(
            BARS.iter().map(|(_, name)| (*name).to_owned()).collect(),
            groups,
        ),
    });
    found.series.push(bars);
    versus
}

/// Returns the last point before half of the way from the first to the last point's slowdown, and the one after it.
fn halfway(points: &[(u64, f64)]) -> Option<(u64, u64)> {
    let middle = (points.first()?.1 + points.last()?.1) / 2.0;
    let at = points.iter().position(|point| point.1 <= middle)?;
    Some((points[at.saturating_sub(1)].0, points[at].0))
}

fn say(found: &mut Findings, (none, all, half): Sweep, versus: Vec<Versus<'_>>) {
    found.say(format!(
        "With all of Interf in the victim's colors, the victim takes {none:.2} times its solo time; with all pages of \
         Interf's buffers moved away, {all:.2} times.{} In the paper the runtime starts to fall when 123 of the 315 \
         pages of all three are gone (41 of each), so that the rest fits in the shared 12 colors.",
        half.map_or_else(String::new, |(less, pages)| format!(
            " Half of the slowdown is recovered somewhere between {less} and {pages} pages of each moved."
        ))
    ));
    for (input, interf, colored, migrated) in versus {
        let better = if migrated <= colored * 1.05 {
            "as good as its own 12 colors"
        } else {
            "less than its own 12 colors"
        };
        found.say(format!(
            "{input}: {interf:.2} times under Interf, {colored:.2} with 12 colors, {migrated:.2} after migration: {better}."
        ));
    }
    found.say(
        "What remains after migration is contention for memory: Interf's buffers, 420 KiB in one or two colors each, \
         always miss and stream as fast as memory allows. The paper also sees that with larger inputs.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_way_is_between_two_points() {
        assert_eq!(halfway(&[(0, 5.0), (50, 3.2), (105, 1.0)]), Some((50, 105)));
        assert_eq!(halfway(&[(0, 5.0), (50, 2.9), (105, 1.0)]), Some((0, 50)));
        assert_eq!(halfway(&[]), None);
    }
}
