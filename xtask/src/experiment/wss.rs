//! `interference-wss`: how much harm Interf does, by the size of its buffer (BBProf, section 7.1, figure 4).

use super::findings::{Cell, Findings, Rivals, Runs, Series, ratio};
use super::plot::{Chart, Line, Marks};
use miette::Result;

/// The paper's worst buffer, in KiB for each of three cores.
const PAPER_WORST: u64 = 420;

/// KiB, the victim's cycles and L2 refills, MB/s stored by Interf, MB/s that it moved to and from memory.
type Point = (u64, u64, u64, f64, f64);

/// Part of the most that Interf moves to and from memory, from which on it is taken to use memory.
const USES_MEMORY: f64 = 0.1;

/// What the runs show.
pub fn find(runs: Runs<'_>, rivals: Rivals) -> Result<Findings> {
    let mut found = Findings::default();
    let solo = runs.first("solo")?.cycles();
    let mut points: Vec<Point> = runs
        .of("interf")
        .map(|run| {
            // Interf stores once to each line, and calls that 64 bytes.
            let (stored, moved) = (rivals.rate(run, "ST_RETIRED", 64), rivals.memory(run));
            (run.number("kib").unwrap_or(0), run.cycles(), run.event("L2D_CACHE_REFILL"), stored, moved)
        })
        .collect();
    points.sort_by_key(|point| point.0);
    let worst = points.iter().max_by_key(|point| point.1).copied().unwrap_or_default();
    found.figure("solo_cycles", solo as f64);
    found.figure("worst_kib", worst.0 as f64);
    found.figure("worst_slowdown", ratio(worst.1, solo));
    found.figure("worst_interf_mb_s", worst.3);
    found.figure("worst_memory_mb_s", worst.4);
    found.figure("most_interf_mb_s", points.iter().map(|point| point.3).fold(0.0, f64::max));
    let series = Series {
        name: "buffers".into(),
        columns: vec!["kib", "cycles", "slowdown", "l2_refills", "interf_mb_s", "memory_mb_s"],
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
        "Victim: median cycles and L2D_CACHE_REFILL by the HEM log. Interf: what its three cores stored over in a second of \
         modelled time (a line a store), and what they moved to and from memory (BUS_ACCESS x 16 bytes), in MB.",
    ));
    let line = |name: &str, y: fn(&Point) -> f64| Line {
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
        title: "Interf, three cores together (modelled)".into(),
        x: "KiB of each Interf buffer".into(),
        y: "MB/s".into(),
        marks: Marks::Lines(vec![line("stored over", |point| point.3), line("to and from memory", |point| point.4)]),
    });
    found.series.push(series);
    found.say(format!(
        "The victim is slowed down most, {:.2} times, by buffers of {} KiB; the paper found about {PAPER_WORST} KiB to be \
         worst for its victim on the board.",
        ratio(worst.1, solo),
        worst.0
    ));
    let most_moved = points.iter().map(|point| point.4).fold(0.0, f64::max);
    if let Some(leaves) = points.iter().find(|point| point.4 > USES_MEMORY * most_moved) {
        found.say(format!(
            "With less than {} KiB each ({} KiB together) Interf moves less than {:.0} % of the most that it comes to, and stores \
             over up to {:.0} MB/s in the caches. With {} KiB its lines no longer stay there beside the victim's: it moves {:.0} \
             MB/s to and from memory, and the victim takes {:.2} times its solo time.",
            leaves.0,
            3 * leaves.0,
            USES_MEMORY * 100.0,
            points.iter().map(|point| point.3).fold(0.0, f64::max),
            leaves.0,
            leaves.4,
            ratio(leaves.1, solo)
        ));
    }
    let (peak, last) = (ratio(worst.1, solo), points.last().copied().unwrap_or_default());
    let paper = points.iter().find(|point| point.0 == PAPER_WORST);
    let behind = paper.map_or_else(String::new, |paper| {
        format!(
            " From {PAPER_WORST} KiB to there the victim's refills go from {} to {}, and what Interf moves to and from memory \
             from {:.0} to {:.0} MB/s.",
            paper.2, last.2, paper.4, last.4
        )
    });
    found.say(if ratio(last.1, solo) < peak * 0.97 {
        format!("With {} KiB it is {:.2} times: as in the paper less than at its worst.{behind}", last.0, ratio(last.1, solo))
    } else {
        format!(
            "The paper's curve has a peak and falls behind it. The model's does not fall: with {} KiB it is {:.2} \
             times.{behind} There is nothing in the model that makes a larger buffer slower for Interf once its stores miss: \
             no rows of DRAM that must be opened, no TLB that it exceeds.",
            last.0,
            ratio(last.1, solo)
        )
    });
    Ok(found)
}
