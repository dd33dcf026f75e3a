//! `interference-wss`: the harm that Interf does, against the size of its buffer (BBProf, section 7.1, figure 4).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// The paper's worst buffer size, in KiB for each of three cores.
const PAPER_WORST: u64 = 420;

/// Buffer in KiB, the victim's cycles and L2 refills, MB/s stored by Interf, MB/s of memory traffic by Interf.
type Point = (u64, u64, u64, f64, f64);

/// Evaluates the runs. `victim` is the victim's core.
pub fn find(runs: Runs<'_>, victim: usize, clock_mhz: u64) -> Result<Findings> {
    let mut found = Findings::default();
    let solo = runs.first("solo")?.cycles();
    let mut points: Vec<Point> = runs
        .of("interf")
        .map(|run| {
            let rate =
                |event, bytes| run.others_bytes_per_second(victim, event, bytes, clock_mhz) / 1e6;
            // Interf stores once to each line, which counts as 64 bytes; a bus beat has 16.
            let (stored, moved) = (rate("ST_RETIRED", 64), rate("BUS_ACCESS", 16));
            (
                run.number("kib").unwrap_or(0),
                run.cycles(),
                run.event("L2D_CACHE_REFILL"),
                stored,
                moved,
            )
        })
        .collect();
    points.sort_by_key(|point| point.0);
    let worst = worst(&points);
    found.figure("solo_cycles", solo as f64);
    found.figure("worst_kib", worst.0 as f64);
    found.figure("worst_slowdown", ratio(worst.1, solo));
    found.figure(
        "worst_is_last",
        f64::from(points.last().is_some_and(|last| last.0 == worst.0)),
    );
    found.figure("worst_interf_mb_s", worst.3);
    found.figure("worst_memory_mb_s", worst.4);
    found.figure(
        "most_interf_mb_s",
        points.iter().map(|point| point.3).fold(0.0, f64::max),
    );
    let series = Series {
        name: "buffers".into(),
        columns: columns([
            "kib",
            "cycles",
            "slowdown",
            "l2_refills",
            "interf_mb_s",
            "memory_mb_s",
        ]),
        rows: points
            .iter()
            .map(|&(kib, cycles, refills, stored, moved)| {
                vec![
                    Cell::Count(kib),
                    Cell::Count(cycles),
                    Cell::Value(ratio(cycles, solo)),
                    Cell::Count(refills),
                    Cell::Value(stored),
                    Cell::Value(moved),
                ]
            })
            .collect(),
    };
    found.tables.push(series.table(
        "Victim and Interf against the buffer of each Interf core",
        "Victim: median cycles and L2D_CACHE_REFILL from the HEM log. Interf: the bytes that its three cores stored \
         over per second of modelled time (one line per store), and their memory traffic (BUS_ACCESS x 16 bytes), in \
         MB.",
    ));
    let line = |name: &str, y: fn(&Point) -> f64| Line {
        name: name.into(),
        points: points
            .iter()
            .map(|point| (point.0 as f64, y(point)))
            .collect(),
    };
    let slowdown = Line {
        name: "victim".into(),
        points: points
            .iter()
            .map(|point| (point.0 as f64, ratio(point.1, solo)))
            .collect(),
    };
    found.charts.push(Chart {
        title: "Victim (modelled)".into(),
        x: "KiB of each Interf buffer".into(),
        y: "runtime / solo".into(),
        log: false,
        log_x: false,
        marks: Marks::Lines(vec![slowdown]),
    });
    found.charts.push(Chart {
        title: "Interf, three cores together (modelled)".into(),
        x: "KiB of each Interf buffer".into(),
        y: "MB/s".into(),
        log: false,
        log_x: false,
        marks: Marks::Lines(vec![
            line("stored over", |point| point.3),
            line("to and from memory", |point| point.4),
        ]),
    });
    found.series.push(series);
    say(&mut found, &points, solo);
    Ok(found)
}

/// Returns the point at which the victim takes longest.
fn worst(points: &[Point]) -> Point {
    points
        .iter()
        .max_by_key(|point| point.1)
        .copied()
        .unwrap_or_default()
}

fn say(found: &mut Findings, points: &[Point], solo: u64) {
    let worst = worst(points);
    let is_last = points.last().is_some_and(|last| last.0 == worst.0);
    found.say(format!(
        "Buffers of {1} KiB slow the victim down most, {0:.2} times{2}; in the paper, about {PAPER_WORST} KiB were worst \
         for its victim on the board.",
        ratio(worst.1, solo),
        worst.0,
        if is_last { ", but they are the largest of the sweep: the worst size may be beyond it" } else { "" }
    ));
    let small = points
        .iter()
        .filter(|point| point.0 <= 256)
        .max_by_key(|point| point.0);
    if let Some(small) = small {
        found.say(format!(
            "Three buffers of {} KiB ({} KiB together) leave the victim at {:.2} times. Above that, the buffers and \
             the victim's own memory start to exceed the L2, and Interf no longer lives in the cache but streams \
             through it: each store evicts a line and, if the evicted lines are dirty, memory is busy twice.",
            small.0,
            3 * small.0,
            ratio(small.1, solo)
        ));
    }
    let (peak, last) = (
        ratio(worst.1, solo),
        points.last().copied().unwrap_or_default(),
    );
    found.say(if ratio(last.1, solo) < peak * 0.97 {
        format!(
            "With {} KiB it is {:.2} times: as in the paper, less than in the worst case. A core whose every store \
             waits for memory evicts less in the same time.",
            last.0,
            ratio(last.1, solo)
        )
    } else {
        format!(
            "The paper's curve has a peak and falls after it. The model's rises steeply up to the size of the L2 and \
             levels off: with {} KiB it is {:.2} times. Little in the model slows Interf down once every store \
             misses: it stores to lines in order, whose rows are open, and a walk of the tables for each page is short.",
            last.0,
            ratio(last.1, solo)
        )
    });
}
