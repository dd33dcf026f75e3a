//! `strict-colors`: what a victim's own colors cost and save (BBProf, section 7.1, figure 5).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, ratio};
use super::plot::{Chart, Line, Marks};
use cloison_board_model::Board;
use miette::Result;

/// What the inputs show together.
#[derive(Default)]
struct Seen<'a> {
    /// The rows by number of colors.
    rows: Vec<Vec<Cell>>,
    /// A row for each input.
    bars: Vec<Vec<Cell>>,
    /// Colorings in which the victim's memory fits: in its last segment it has no refills.
    fitting: u64,
    /// Those of them that have no refills under Interf either.
    equal: u64,
    /// The largest relative difference of the refills of the others.
    most_off: f64,
    /// Each input, with its slowdown with shared colors and with its own best number of colors.
    rescued: Vec<(&'a str, f64, f64)>,
}

/// Evaluates the runs on this model.
pub fn find(runs: Runs<'_>, model: &Board) -> Result<Findings> {
    let mut found = Findings::default();
    let mut seen = Seen::default();
    for input in runs.labels("shared-solo", "input") {
        seen.input(runs, input, &mut found);
    }
    found.figure("colorings_that_fit", seen.fitting as f64);
    found.figure("colorings_that_fit_with_equal_misses", seen.equal as f64);
    found.figure("most_relative_difference_of_other_misses", seen.most_off);
    say(&mut found, &seen, model);
    add_tables(&mut found, seen);
    Ok(found)
}

impl<'a> Seen<'a> {
    fn input(&mut self, runs: Runs<'a>, input: &'a str, found: &mut Findings) {
        let at = |variant: &str| runs.at(variant, &[("input", input)]);
        let (Some(solo), Some(interf)) = (at("shared-solo"), at("shared-interf")) else {
            return;
        };
        let base = solo.cycles();
        let name = input.replace(['/', '-'], "_");
        found.figure(format!("{name}_solo_cycles"), base as f64);
        found.figure(format!("{name}_slowdown"), ratio(interf.cycles(), base));
        let refills = interf
            .event("L2D_CACHE_REFILL")
            .saturating_sub(solo.event("L2D_CACHE_REFILL"));
        if refills > 0 {
            let each = interf.cycles().saturating_sub(base) as f64 / refills as f64;
            found.figure(format!("{name}_cycles_per_extra_refill"), each);
        }
        let [solo_line, interf_line] =
            [("solo", "colored-solo"), ("under Interf", "colored-interf")].map(
                |(name, variant)| {
                    let mut points: Vec<(f64, f64)> = runs
                        .of(variant)
                        .filter(|run| run.label("input") == input)
                        .map(|run| {
                            (
                                run.number("colors").unwrap_or(0) as f64,
                                ratio(run.cycles(), base),
                            )
                        })
                        .collect();
                    points.sort_by(|a, b| a.0.total_cmp(&b.0));
                    Line {
                        name: name.to_owned(),
                        points,
                    }
                },
            );
        let best = interf_line
            .points
            .iter()
            .map(|point| point.1)
            .fold(f64::INFINITY, f64::min);
        found.figure(format!("{name}_best_colored_slowdown"), best);
        self.rescued
            .push((input, ratio(interf.cycles(), base), best));
        self.colorings(runs, input, base);
        let ends = |y: f64| {
            let xs = solo_line.points.iter().map(|point| point.0);
            vec![
                (xs.clone().fold(f64::INFINITY, f64::min), y),
                (xs.fold(0.0, f64::max), y),
            ]
        };
        let shared = Line {
            name: "Interf, colors shared".into(),
            points: ends(ratio(interf.cycles(), base)),
        };
        found.charts.push(Chart {
            title: format!("{input} (modelled)"),
            x: "colors of the victim".into(),
            y: "runtime / solo with shared colors".into(),
            log: false,
            log_x: false,
            marks: Marks::Lines(vec![solo_line, interf_line, shared]),
        });
        self.bars.push(vec![
            Cell::Text(input.to_owned()),
            Cell::Count(base),
            Cell::Value(ratio(interf.cycles(), base)),
            Cell::Value(best),
            Cell::Count(solo.event("L2D_CACHE_REFILL")),
            Cell::Count(interf.event("L2D_CACHE_REFILL")),
        ]);
    }

    /// Adds the rows of an input, one for each number of colors.
    fn colorings(&mut self, runs: Runs<'a>, input: &'a str, base: u64) {
        for colored in runs
            .of("colored-solo")
            .filter(|run| run.label("input") == input)
        {
            let colors = colored.label("colors");
            let rival = runs.at("colored-interf", &[("input", input), ("colors", colors)]);
            let misses = colored.settled("L2D_CACHE_REFILL");
            if let Some(rival) = rival {
                let theirs = rival.settled("L2D_CACHE_REFILL");
                if misses == 0 {
                    self.fitting += 1;
                    self.equal += u64::from(theirs == misses);
                } else {
                    self.most_off = self
                        .most_off
                        .max((theirs as f64 / misses as f64 - 1.0).abs());
                }
            }
            self.rows.push(vec![
                Cell::Text(input.to_owned()),
                Cell::Count(colored.number("colors").unwrap_or(0)),
                Cell::Value(ratio(colored.cycles(), base)),
                rival.map_or(Cell::Text(String::new()), |rival| {
                    Cell::Value(ratio(rival.cycles(), base))
                }),
                Cell::Count(misses),
                rival.map_or(Cell::Text(String::new()), |rival| {
                    Cell::Count(rival.settled("L2D_CACHE_REFILL"))
                }),
            ]);
        }
    }
}

fn add_tables(found: &mut Findings, seen: Seen<'_>) {
    let overview = Series {
        name: "inputs".into(),
        columns: columns([
            "input",
            "solo_cycles",
            "slowdown_shared",
            "slowdown_best_colored",
            "l2_refills_solo",
            "l2_refills_interf",
        ]),
        rows: seen.bars,
    };
    found.tables.push(overview.table(
        "Kernels and sizes",
        "Shared: victim and Interf in the same 15 colors. Best colored: the shortest runtime under Interf over all \
         numbers of colors, relative to the same solo run.",
    ));
    found.series.push(overview);
    let series = Series {
        name: "colors".into(),
        columns: columns([
            "input",
            "colors",
            "slowdown_solo",
            "slowdown_interf",
            "l2_refills_solo",
            "l2_refills_interf",
        ]),
        rows: seen.rows,
    };
    found.tables.push(series.table(
        "By number of colors",
        "Relative to the solo run with shared colors. Interf has the rest of the 15 colors; with 15 there is none \
         left, because the hypervisor keeps one, so that run is solo only. Refills are those of the last run, when \
         pseudo-random replacement has displaced the earlier contents of the victim's colors.",
    ));
    found.series.push(series);
}

fn say(found: &mut Findings, seen: &Seen<'_>, model: &Board) {
    let Seen {
        fitting,
        equal,
        most_off,
        rescued,
        ..
    } = seen;
    found.say(format!(
        "In {fitting} colorings the victim's memory fits in its colors: alone, it refills no line of the L2, and in \
         {equal} of them none under Interf either. That is so by construction: no neighbor evicts a line of a color that \
         it does not have. It is no timing isolation: cores share the L2's lookups and outstanding writes, and a board's \
         also has buffers; and memory is shared here too. Where \
         the memory does not fit, the refills differ by at most {:.2} %: the victim evicts its own lines, and which \
         ones depends on the order in which its L1 writes lines back, which the hypervisor's work on its core \
         disturbs.",
        most_off * 100.0
    ));
    let (saved, lost): (Vec<_>, Vec<_>) =
        rescued.iter().partition(|(_, shared, best)| best < shared);
    let list = |all: &[&(&str, f64, f64)]| {
        all.iter()
            .map(|(input, shared, best)| format!("{input} ({shared:.2} to {best:.2})"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !saved.is_empty() {
        found.say(format!(
            "Coloring helps, from shared to best colored: {}.",
            list(&saved)
        ));
    }
    if !lost.is_empty() {
        found.say(format!(
            "It does not help: {}. Either the benchmark's memory is larger than any partition, or it did not need the \
             L2.",
            list(&lost)
        ));
    }
    let timing = &model.timing;
    let wait = match model.banks {
        Some(_) => {
            "its bank and for the bus of the memory, and sometimes for a batch of writes".to_owned()
        }
        None => {
            format!(
                "a memory that serves one line in {} cycles, and for the write-back of another",
                timing.dram_line
            )
        }
    };
    found.say(format!(
        "Uncolored, a refill that Interf causes costs what the parameters say: {} cycles to the L2, {} to memory, and the \
         wait for {wait}. The figures \
         `…_cycles_per_extra_refill` are the average cost. As in the paper, a partition also takes cache from Interf, \
         which then streams more: with a large input, contention for memory remains.",
        timing.l2, timing.dram
    ));
}
