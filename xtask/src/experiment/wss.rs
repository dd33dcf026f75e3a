//! `interference-wss`: how much harm Interf does, by the size of its buffer (BBProf, section 7.1, figure 4).

use super::findings::{Cell, Findings, LIMITS, Runs, Series, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// The paper's worst buffer, in KiB for each of three cores.
const PAPER_WORST: u64 = 420;

/// What the runs show. `victim` is the victim's core.
pub fn find(runs: Runs<'_>, victim: usize, clock_mhz: u64) -> Result<Findings> {
    let mut found = Findings::default();
    let solo = runs.first("solo")?.cycles();
    let mut points: Vec<(u64, u64, u64, f64)> = runs
        .of("interf")
        .map(|run| {
            let bandwidth = run.others_bandwidth(victim, clock_mhz) / 1e6;
            (run.number("kib").unwrap_or(0), run.cycles(), run.event("L2D_CACHE_REFILL"), bandwidth)
        })
        .collect();
    points.sort_by_key(|point| point.0);
    let worst = points.iter().max_by_key(|point| point.1).copied().unwrap_or_default();
    found.figure("solo_cycles", solo as f64);
    found.figure("worst_kib", worst.0 as f64);
    found.figure("worst_slowdown", ratio(worst.1, solo));
    found.figure("worst_bandwidth_mb_s", worst.3);
    let fastest = points.iter().map(|point| point.3).fold(0.0, f64::max);
    found.figure("most_bandwidth_mb_s", fastest);
    let series = Series {
        name: "buffers".into(),
        columns: vec!["kib", "cycles", "slowdown", "l2_refills", "interf_mb_s"],
        rows: points
            .iter()
            .map(|&(kib, cycles, refills, bandwidth)| {
                vec![
                    Cell::Count(kib),
                    Cell::Count(cycles),
                    Cell::Value(ratio(cycles, solo)),
                    Cell::Count(refills),
                    Cell::Value(bandwidth),
                ]
            })
            .collect(),
    };
    found.tables.push(series.table(
        "Victim and Interf against the buffer of each Interf core",
        "Victim: median cycles and L2D_CACHE_REFILL by the HEM log. Interf: bytes that its three cores moved to and from \
         memory in a second of modelled time (BUS_ACCESS x 16 bytes), at the model's clock.",
    ));
    let line = |name: &str, y: fn(&(u64, u64, u64, f64)) -> f64| Line {
        name: name.into(),
        points: points.iter().map(|point| (point.0 as f64, y(point))).collect(),
    };
    let slowdown = Line {
        name: "victim".into(),
        points: points.iter().map(|point| (point.0 as f64, ratio(point.1, solo))).collect(),
    };
    found.charts.push(Chart {
        title: "Victim (modelled)".into(),
        x: "KiB of each Interf buffer".into(),
        y: "runtime / solo".into(),
        marks: Marks::Lines(vec![slowdown]),
    });
    found.charts.push(Chart {
        title: "Interf (modelled)".into(),
        x: "KiB of each Interf buffer".into(),
        y: "MB/s to and from memory".into(),
        marks: Marks::Lines(vec![line("three cores together", |point| point.3)]),
    });
    found.series.push(series);
    found.say(format!(
        "The victim is slowed down most, {:.2} times, by buffers of {} KiB; the paper found about {PAPER_WORST} KiB to be \
         worst for its victim on the board.",
        ratio(worst.1, solo),
        worst.0
    ));
    let small = points.iter().filter(|point| point.0 <= 256).max_by_key(|point| point.0);
    if let Some(small) = small {
        found.say(format!(
            "Three buffers of {} KiB ({} KiB together) leave the victim at {:.2} times. What the buffers hold besides \
             the victim's own memory begins to exceed the L2 above that, and Interf turns from a tenant of the cache \
             into one that streams through it: each store evicts a line, and where those are dirty, memory is busy twice.",
            small.0,
            3 * small.0,
            ratio(small.1, solo)
        ));
    }
    if let Some(last) = points.last().filter(|last| last.0 > worst.0) {
        found.say(format!(
            "At {} KiB the slowdown is {:.2} times. {}",
            last.0,
            ratio(last.1, solo),
            if (last.1 as f64) < worst.1 as f64 * 0.97 {
                "As in the paper it is less than at its worst: larger buffers miss more, and a core that waits for memory \
                 evicts less in the same time."
            } else {
                "The paper's curve falls behind its worst point; the model's stays level, because memory is as busy as it \
                 can be from there on and nothing else slows Interf down."
            }
        ));
    }
    found.say(LIMITS);
    Ok(found)
}
