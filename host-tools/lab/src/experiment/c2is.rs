//! `c2is`: a long function's runtime against the number of its pages in private cache (BBProf, section 7.3, figure 10).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, LIMITS, Runs, Series, falls, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// From the knee on, runtime is within this factor of the best.
const KNEE: f64 = 1.05;
/// The paper's knee, in pages.
const PAPER_KNEE: u64 = 43;
/// Number of pages in the four private colors of the L2.
const PRIVATE_PAGES: u64 = 64;
/// The paper's slowdown under Interf.
const PAPER_SLOWDOWN: f64 = 6.5;

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let (solo, interf) = (runs.first("solo")?.cycles(), runs.first("interf")?.cycles());
    let mut points: Vec<(u64, u64, u64)> = vec![(0, interf, runs.first("interf")?.event("L2D_CACHE_REFILL"))];
    for run in runs.of("migrated") {
        points.push((run.number("pages").unwrap_or(0), run.cycles(), run.event("L2D_CACHE_REFILL")));
    }
    points.sort_unstable();
    let best = points.iter().map(|point| point.1).min().unwrap_or(interf);
    // More pages than the private colors hold are a different case.
    let until_full = points.iter().take_while(|point| point.0 <= PRIVATE_PAGES).count();
    let knee = knee(&points[..until_full].iter().map(|point| (point.0, point.1)).collect::<Vec<_>>());
    let slowdowns: Vec<f64> = points.iter().map(|point| ratio(point.1, solo)).collect();
    let monotone = falls(&slowdowns[..until_full], 0.01);
    for (name, value) in [
        ("solo_cycles", solo as f64),
        ("interf_cycles", interf as f64),
        ("best_cycles", best as f64),
        ("slowdown", ratio(interf, solo)),
        ("recovered_ratio", ratio(best, solo)),
        ("knee_pages", knee as f64),
        ("monotone_to_64_pages", f64::from(monotone)),
        ("solo_l2_refills", runs.first("solo")?.event("L2D_CACHE_REFILL") as f64),
        ("interf_l2_refills", runs.first("interf")?.event("L2D_CACHE_REFILL") as f64),
    ] {
        found.figure(name, value);
    }
    let series = Series {
        name: "recovery".into(),
        columns: vec!["pages", "cycles", "slowdown", "l2_refills"],
        rows: points
            .iter()
            .map(|&(pages, cycles, refills)| {
                vec![Cell::Count(pages), Cell::Count(cycles), Cell::Value(ratio(cycles, solo)), Cell::Count(refills)]
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
        marks: Marks::Lines(vec![
            Line {
                name: "under Interf".into(),
                points: points.iter().zip(&slowdowns).map(|(point, &y)| (point.0 as f64, y)).collect(),
            },
            Line {
                name: "solo".into(),
                points: vec![(0.0, 1.0), (points.last().map_or(0.0, |point| point.0 as f64), 1.0)],
            },
        ]),
    });
    found.series.push(series);
    found.say(format!(
        "Interf slows the function down {:.2} times; on the paper's board it was {PAPER_SLOWDOWN} times. With the pages \
         migrated the best run takes {:.3} times the solo run.",
        ratio(interf, solo),
        ratio(best, solo)
    ));
    found.say(format!(
        "From {knee} pages on, each run is within {:.0} % of the best one: the knee. The paper sees no improvement \
         beyond {PAPER_KNEE} pages, and explains it by the 8 additional pages in the L1 instruction cache. {}",
        (KNEE - 1.0) * 100.0,
        if knee > PAPER_KNEE {
            "In the model the function is executed in order, and an L1 of 8 pages whose ways take turns keeps nothing \
             of a loop of 65 pages. Every page that is not private keeps missing, so runtime falls until nearly all \
             pages are private."
        } else {
            "The model's knee comes no later."
        }
    ));
    let recovery = if monotone {
        "Runtime falls with every step up to 64 pages."
    } else {
        "Runtime does not fall with every step up to 64 pages: see the table."
    };
    let last = points.last().filter(|point| point.0 > PRIVATE_PAGES && point.1 > best);
    let beyond = last.map_or_else(String::new, |point| {
        format!(
            " With {} pages, more than the four private colors hold, it takes {:.3} times the best run.",
            point.0,
            ratio(point.1, best)
        )
    });
    found.say(format!("{recovery}{beyond}"));
    found.say(LIMITS);
    Ok(found)
}

/// Returns the smallest number of pages from which on runtime stays close to the best.
fn knee(points: &[(u64, u64)]) -> u64 {
    let best = points.iter().map(|point| point.1).min().unwrap_or(0) as f64;
    let late = points.iter().rev().take_while(|point| point.1 as f64 <= best * KNEE);
    late.last().map_or(0, |point| point.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_the_best_begins_to_hold() {
        assert_eq!(knee(&[(0, 600), (10, 400), (20, 103), (30, 100), (40, 104)]), 20);
        assert_eq!(knee(&[(0, 100), (10, 300), (20, 100)]), 20, "what came before a relapse does not count");
        assert_eq!(knee(&[]), 0);
    }
}
