//! `c2is`: a long function's runtime against the number of its pages in private cache (BBProf, section 7.3, figure 10).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, falls, ratio};
use super::limits::stall_implied;
use super::plot::{Chart, Line, Marks};
use cloison_board_model::Board;
use miette::Result;

/// From the knee on, runtime is within this factor of the best.
const KNEE: f64 = 1.05;
/// The paper's knee, in pages.
const PAPER_KNEE: u64 = 43;
/// Number of pages in the four private colors of the L2.
const PRIVATE_PAGES: u64 = 64;
/// The paper's slowdown under Interf.
const PAPER_SLOWDOWN: f64 = 6.5;

/// Evaluates the runs on this model.
pub fn find(runs: Runs<'_>, model: &Board) -> Result<Findings> {
    let mut found = Findings::default();
    let (solo, interf) = (runs.first("solo")?.cycles(), runs.first("interf")?.cycles());
    let mut points: Vec<(u64, u64, u64)> =
        vec![(0, interf, runs.first("interf")?.event("L2D_CACHE_REFILL"))];
    for run in runs.of("migrated") {
        points.push((
            run.number("pages").unwrap_or(0),
            run.cycles(),
            run.event("L2D_CACHE_REFILL"),
        ));
    }
    points.sort_unstable();
    let best = points.iter().map(|point| point.1).min().unwrap_or(interf);
    // More pages than the private colors hold are a different case.
    let until_full = points
        .iter()
        .take_while(|point| point.0 <= PRIVATE_PAGES)
        .count();
    let knee = knee(
        &points[..until_full]
            .iter()
            .map(|point| (point.0, point.1))
            .collect::<Vec<_>>(),
    );
    let slowdowns: Vec<f64> = points.iter().map(|point| ratio(point.1, solo)).collect();
    let monotone = falls(&slowdowns[..until_full], 0.01);
    for (name, value) in [
        ("solo_cycles", solo as f64),
        ("interf_cycles", interf as f64),
        ("best_cycles", best as f64),
        ("slowdown", ratio(interf, solo)),
        ("slowdown_implied", stall_implied(model)),
        ("recovered_ratio", ratio(best, solo)),
        ("knee_pages", knee as f64),
        ("monotone_to_64_pages", f64::from(monotone)),
        (
            "solo_l2_refills",
            runs.first("solo")?.event("L2D_CACHE_REFILL") as f64,
        ),
        (
            "interf_l2_refills",
            runs.first("interf")?.event("L2D_CACHE_REFILL") as f64,
        ),
    ] {
        found.figure(name, value);
    }
    let series = Series {
        name: "recovery".into(),
        columns: columns(["pages", "cycles", "slowdown", "l2_refills"]),
        rows: points
            .iter()
            .map(|&(pages, cycles, refills)| {
                vec![
                    Cell::Count(pages),
                    Cell::Count(cycles),
                    Cell::Value(ratio(cycles, solo)),
                    Cell::Count(refills),
                ]
            })
            .collect(),
    };
    found.tables.push(series.table(
        "Runtime against pages in the private pool",
        "Median cycles of a run and L2D_CACHE_REFILL, by the hypervisor's HEM log; slowdown against solo.",
    ));
    found.charts.push(Chart {
        title: "C2IS under Interf (modelled)".into(),
        x: "pages migrated to the private pool".into(),
        y: "runtime / solo".into(),
        log: false,
        log_x: false,
        marks: Marks::Lines(vec![
            Line {
                name: "under Interf".into(),
                points: points
                    .iter()
                    .zip(&slowdowns)
                    .map(|(point, &y)| (point.0 as f64, y))
                    .collect(),
            },
            Line {
                name: "solo".into(),
                points: vec![
                    (0.0, 1.0),
                    (points.last().map_or(0.0, |point| point.0 as f64), 1.0),
                ],
            },
        ]),
    });
    found.series.push(series);
    found.say(format!(
        "Interf slows the function down {:.2} times. Of this, {:.2} times follows from the model's costs alone: a line of \
         code from memory instead of the L2, without any waiting for other cores. On the paper's board it was \
         {PAPER_SLOWDOWN} times; that the two are near each other is no evidence for the model, since a board has other \
         costs, dual issue and several instruction fetches at a time. With the pages migrated the best run takes {:.3} \
         times the solo run. All pages matter alike here, so the order of the profile decides nothing.",
        ratio(interf, solo),
        stall_implied(model),
        ratio(best, solo)
    ));
    found.say(about_knee(&points[..until_full], knee));
    let recovery = about_steps(&points[..until_full], monotone);
    let last = points
        .last()
        .filter(|point| point.0 > PRIVATE_PAGES && point.1 > best);
    let beyond = last.map_or_else(String::new, |point| {
        format!(
            " With {} pages, more than the four private colors hold, it takes {:.3} times the best run.",
            point.0,
            ratio(point.1, best)
        )
    });
    found.say(format!("{recovery}{beyond}").trim().to_owned());
    Ok(found)
}

/// Returns what the points, by pages, cycles and refills, show of the knee: nothing unless there are points on both sides.
fn about_knee(points: &[(u64, u64, u64)], knee: u64) -> String {
    let (mut before, after) = (
        points.iter().filter(|point| point.0 < knee),
        points.iter().filter(|point| point.0 > knee),
    );
    let Some(before) = before.next_back().filter(|_| points.len() > 2) else {
        return format!(
            "Where the knee is cannot be seen from {} points.",
            points.len()
        );
    };
    let within = (KNEE - 1.0) * 100.0;
    if after.count() == 0 {
        return format!(
            "Of the runs with at most {PRIVATE_PAGES} pages only the last, with {knee}, is within {within:.0} % of the best \
             one: the knee is between {} and {knee} pages or later.",
            before.0
        );
    }
    let paper = if knee > PAPER_KNEE {
        "In the model the function is executed in order, and an L1 of 8 pages whose ways take turns keeps nothing of a \
         loop of 65 pages. Every page that is not private keeps missing, so runtime falls until nearly all pages are \
         private."
    } else {
        "The model's knee comes no later."
    };
    format!(
        "From {knee} pages on, each run is within {within:.0} % of the best one, and with {} it is not: the knee. The paper \
         sees no improvement beyond {PAPER_KNEE} pages, and explains it by the 8 additional pages in the L1 instruction \
         cache. {paper}",
        before.0
    )
}

/// Returns whether runtime falls from point to point.
fn about_steps(points: &[(u64, u64, u64)], monotone: bool) -> String {
    let Some(last) = points.last().filter(|_| points.len() > 1) else {
        return String::new();
    };
    let steps = points.len() - 1;
    match monotone {
        true => format!(
            "Runtime falls with each of the {steps} steps up to {} pages.",
            last.0
        ),
        false => format!(
            "Runtime does not fall with each of the {steps} steps up to {} pages: see the table.",
            last.0
        ),
    }
}

/// Returns the smallest number of pages from which on runtime stays close to the best.
fn knee(points: &[(u64, u64)]) -> u64 {
    let best = points.iter().map(|point| point.1).min().unwrap_or(0) as f64;
    let late = points
        .iter()
        .rev()
        .take_while(|point| point.1 as f64 <= best * KNEE);
    late.last().map_or(0, |point| point.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_points_show_is_claimed() {
        let points = |all: &[(u64, u64)]| {
            all.iter()
                .map(|&(pages, cycles)| (pages, cycles, 0))
                .collect::<Vec<_>>()
        };
        let one = points(&[(0, 600)]);
        assert_eq!(
            about_knee(&one, 0),
            "Where the knee is cannot be seen from 1 points."
        );
        assert_eq!(about_steps(&one, true), "");
        let quick = points(&[(0, 600), (16, 500), (32, 400), (48, 300), (64, 100)]);
        let text = about_knee(&quick, 64);
        assert!(
            text.contains("between 48 and 64 pages or later") && !text.contains("paper"),
            "{text}"
        );
        assert!(about_steps(&quick, true).contains("each of the 4 steps up to 64 pages"));
        let whole = points(&[(0, 600), (60, 120), (62, 101), (64, 100)]);
        let text = about_knee(&whole, 62);
        assert!(
            text.starts_with("From 62 pages on") && text.contains("with 60 it is not"),
            "{text}"
        );
    }

    #[test]
    fn the_knee_is_where_the_best_begins_to_hold() {
        assert_eq!(
            knee(&[(0, 600), (10, 400), (20, 103), (30, 100), (40, 104)]),
            20
        );
        assert_eq!(
            knee(&[(0, 100), (10, 300), (20, 100)]),
            20,
            "what came before a relapse does not count"
        );
        assert_eq!(knee(&[]), 0);
    }
}
