//! The analysis of any experiment: every run's median and spread, its slowdown against the
//! baseline, its events, and its printed numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::Quantity;
use super::findings::{Cell, Findings, Runs, Series, shown};
use super::measured::{Measured, figure_name, key};
use super::numbers;
use super::origin::Origin;
use super::spec::AxisTitles;
use cloison_engine::text::grouped;
use cloison_plot::{Chart, Heatmap, Line, Marks};
use std::collections::BTreeSet;

/// From this ratio of its ends on, an axis is logarithmic.
const WIDE: f64 = 16.0;

/// Evaluates the runs; slowdowns refer to the variant `baseline`.
pub fn find(runs: Runs<'_>, baseline: &str, titles: &AxisTitles, origin: Origin) -> Findings {
    let mut found = Findings::default();
    let series = table(runs, baseline, &mut found);
    if names(runs).next().is_none() {
        let note = format!(
            "Median of the segments after the warm-up, with the shortest and the longest. \
             Slowdown: relative to the run of `{baseline}` with the same values on the axes that \
             both have. Events are medians, by the hypervisor's HEM log."
        );
        found.tables.push(series.table("Every run", &note));
    }
    found.series.push(series);
    numbers::find(runs, baseline, titles, &mut found);
    if let Some(segments) = segments(runs) {
        found.series.push(segments);
    }
    for axis in runs
        .axes()
        .into_iter()
        .filter(|_| names(runs).next().is_none())
    {
        let chart = by_axis(runs, baseline, axis, titles.of(axis), origin);
        found.charts.push(chart);
    }
    found.charts.extend(bars(runs, baseline, origin));
    found.heatmaps = heatmaps(runs, baseline, titles, origin);
    say(runs, baseline, &mut found);
    found.say(origin.facts());
    found
}

/// Returns the names of all events.
fn events(runs: Runs<'_>) -> BTreeSet<&str> {
    let segments = runs.0.iter().flat_map(|run| &run.segments);
    segments
        .flat_map(|segment| segment.events.keys())
        .map(String::as_str)
        .collect()
}

/// Returns a cell with the value of a quantity, empty if the run does not have it.
fn cell(value: Option<f64>, is_count: bool) -> Cell {
    match value {
        None => Cell::Missing,
        Some(value) if is_count => Cell::Count(value as u64),
        Some(value) => Cell::Value(value),
    }
}

/// Returns one row per run, and adds its figures.
fn table(runs: Runs<'_>, baseline: &str, found: &mut Findings) -> Series {
    let measures_latency = runs.0.iter().any(|run| run.latencies.is_some());
    let has = |quantity: &Quantity| {
        runs.0
            .iter()
            .any(|run| quantity.of(run, runs, baseline).is_some_and(|v| v > 0.0))
    };
    let mut quantities: Vec<(String, Quantity, bool)> = vec![];
    let mut add =
        |name: &str, quantity, is_count| quantities.push((name.to_owned(), quantity, is_count));
    if measures_latency {
        for name in ["min_us", "median_us", "p999_us", "max_us"] {
            add(name, Quantity::Latency(name), true);
        }
        add("avg_us", Quantity::Latency("avg_us"), false);
    } else if names(runs).next().is_none() {
        add("segments", Quantity::Segments, true);
        add("cycles", Quantity::Cycles, true);
        if runs.0.iter().any(|run| run.samples.len() > 1) {
            add("least_cycles", Quantity::LeastCycles, true);
            add("mean_cycles", Quantity::MeanCycles, false);
            add("most_cycles", Quantity::MostCycles, true);
        }
    }
    for name in names(runs).collect::<BTreeSet<_>>() {
        add(
            &format!("printed_{name}"),
            Quantity::Printed(name.to_owned()),
            false,
        );
    }
    if has(&Quantity::Slowdown) {
        add("slowdown", Quantity::Slowdown, false);
    }
    for event in events(runs) {
        add(event, Quantity::Event(event.to_owned()), true);
    }
    for (name, quantity) in Quantity::reported() {
        if has(&quantity) {
            add(name, quantity, true);
        }
    }
    let mut columns = vec!["variant".to_owned()];
    columns.extend(runs.axes().into_iter().map(str::to_owned));
    for (name, ..) in &quantities {
        columns.push(name.clone());
        if name == "cycles" {
            columns.extend(["cycles_min".to_owned(), "cycles_max".to_owned()]);
        }
    }
    let mut rows = vec![];
    for run in runs.0 {
        let mut row = vec![Cell::Text(run.variant.clone())];
        row.extend(runs.axes().into_iter().map(|axis| Cell::label(run, axis)));
        for (name, quantity, is_count) in &quantities {
            let value = quantity.of(run, runs, baseline);
            if let Some(value) = value {
                found.figure(
                    format!("{}_{}", run.figure_name(), figure_name(name)),
                    value,
                );
            }
            row.push(cell(value, *is_count));
            if name == "cycles" {
                let cycles = || run.segments.iter().map(|segment| segment.cycles);
                row.push(cell(cycles().min().map(|least| least as f64), true));
                row.push(cell(cycles().max().map(|most| most as f64), true));
            }
        }
        rows.push(row);
    }
    Series {
        name: "runs".into(),
        columns,
        rows,
    }
}

/// Returns the names of all printed numbers.
fn names(runs: Runs<'_>) -> impl Iterator<Item = &str> {
    runs.0
        .iter()
        .filter_map(|run| run.printed.as_ref())
        .flat_map(|printed| printed.keys())
        .map(String::as_str)
}

/// Returns one row per segment, if segments were measured.
fn segments(runs: Runs<'_>) -> Option<Series> {
    let (axes, events) = (runs.axes(), events(runs));
    let mut columns = vec!["variant".to_owned()];
    columns.extend(axes.iter().map(|axis| (*axis).to_owned()));
    columns.extend(["segment".to_owned(), "cycles".to_owned()]);
    columns.extend(events.iter().map(|event| (*event).to_owned()));
    let mut rows = vec![];
    for run in runs.0 {
        for (number, segment) in run.segments.iter().enumerate() {
            let mut row = vec![Cell::Text(run.variant.clone())];
            row.extend(axes.iter().map(|axis| Cell::label(run, axis)));
            row.extend([Cell::Count(number as u64), Cell::Count(segment.cycles)]);
            let count =
                |event: &&str| cell(segment.events.get(*event).map(|count| *count as f64), true);
            row.extend(events.iter().map(count));
            rows.push(row);
        }
    }
    (!rows.is_empty()).then(|| Series {
        name: "segments".into(),
        columns,
        rows,
    })
}

/// Returns the slowdown against an axis: lines if its values are numbers, otherwise groups of bars.
fn by_axis(runs: Runs<'_>, baseline: &str, axis: &str, title: &str, origin: Origin) -> Chart {
    let is_numeric = on_axis(runs, axis).all(|run| run.number(axis).is_some());
    let (marks, log_x) = if is_numeric {
        lines(runs, baseline, axis)
    } else {
        (groups(runs, baseline, axis), false)
    };
    Chart {
        title: format!("Slowdown by {title} ({})", origin.word()),
        x: title.to_owned(),
        y: format!("relative to {baseline}"),
        log: false,
        log_x,
        marks,
    }
}

/// Returns the runs that have an axis.
fn on_axis<'a>(runs: Runs<'a>, axis: &str) -> impl Iterator<Item = &'a Measured> {
    runs.0.iter().filter(move |run| run.axes.contains_key(axis))
}

/// Returns the name that a run shares with those that differ only on an axis.
fn name_without(run: &Measured, axis: &str) -> String {
    let mut others = run.axes.clone();
    others.remove(axis);
    key(&run.variant, &others)
}

/// Returns a line over an axis for each name, and whether its numbers span so much that it is
/// logarithmic. Runs without the axis are level lines.
fn lines(runs: Runs<'_>, baseline: &str, axis: &str) -> (Marks, bool) {
    let numbers = || {
        runs.0
            .iter()
            .filter_map(|run| run.number(axis))
            .map(|number| number as f64)
    };
    let (first, last) = (
        numbers().fold(f64::INFINITY, f64::min),
        numbers().fold(f64::NEG_INFINITY, f64::max),
    );
    let mut lines: Vec<Line> = vec![];
    for run in runs.0 {
        let Some(slowdown) = runs.slowdown(run, baseline) else {
            continue;
        };
        let points = match run.number(axis) {
            Some(number) => vec![(number as f64, slowdown)],
            None => vec![(first, slowdown), (last, slowdown)],
        };
        let name = name_without(run, axis);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.extend(points),
            None => lines.push(Line::new(name, points)),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    (Marks::Lines(lines), first > 0.0 && last / first >= WIDE)
}

/// Returns a group of bars for each value on an axis, with a bar for each name.
fn groups(runs: Runs<'_>, baseline: &str, axis: &str) -> Marks {
    let mut names: Vec<String> = vec![];
    for name in on_axis(runs, axis).map(|run| name_without(run, axis)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut groups: Vec<(String, Vec<f64>)> = vec![];
    for run in on_axis(runs, axis) {
        let name = name_without(run, axis);
        let column = names.iter().position(|known| *known == name);
        let Some((column, slowdown)) = column.zip(runs.slowdown(run, baseline)) else {
            continue;
        };
        let label = run.label(axis);
        let at = groups
            .iter()
            .position(|(group, _)| group == label)
            .unwrap_or_else(|| {
                groups.push((label.to_owned(), vec![0.0; names.len()]));
                groups.len() - 1
            });
        groups[at].1[column] = slowdown;
    }
    Marks::Bars(names, groups)
}

/// Returns the slowdown of each variant with two axes as a map of them.
fn heatmaps(runs: Runs<'_>, baseline: &str, titles: &AxisTitles, origin: Origin) -> Vec<Heatmap> {
    let mut maps: Vec<(&str, Heatmap)> = vec![];
    for run in runs.0 {
        let axes: Vec<&String> = run.axes.keys().collect();
        let ([x, y], Some(slowdown)) = (axes.as_slice(), runs.slowdown(run, baseline)) else {
            continue;
        };
        let known = maps.iter().position(|(variant, _)| *variant == run.variant);
        let at = known.unwrap_or_else(|| {
            let title = format!(
                "Slowdown of {}, relative to {baseline} ({})",
                run.variant,
                origin.word()
            );
            maps.push((
                &run.variant,
                Heatmap::new(title, titles.of(x), titles.of(y)),
            ));
            maps.len() - 1
        });
        maps[at].1.set(run.label(x), run.label(y), slowdown);
    }
    maps.into_iter().map(|(_, map)| map).collect()
}

/// Returns the slowdown of every run as bars, if no axis shows them.
fn bars(runs: Runs<'_>, baseline: &str, origin: Origin) -> Option<Chart> {
    if runs.0.len() < 2 || !runs.axes().is_empty() || names(runs).next().is_some() {
        return None;
    }
    let group = |run: &Measured| Some((run.key(), vec![runs.slowdown(run, baseline)?]));
    Some(Chart {
        title: format!("Slowdown of each run ({})", origin.word()),
        x: String::new(),
        y: format!("relative to {baseline}"),
        log: false,
        log_x: false,
        marks: Marks::Bars(
            vec!["slowdown".into()],
            runs.0.iter().filter_map(group).collect(),
        ),
    })
}

fn say(runs: Runs<'_>, baseline: &str, found: &mut Findings) {
    let mut others: Vec<(String, f64)> = vec![];
    for run in runs.0 {
        let is_base = runs
            .baseline_of(run, baseline)
            .is_some_and(|base| std::ptr::eq(base, run));
        if let Some(slowdown) = runs.slowdown(run, baseline).filter(|_| !is_base) {
            others.push((run.key(), slowdown));
        }
    }
    others.sort_by(|one, other| other.1.total_cmp(&one.1));
    let times =
        |(key, slowdown): &(String, f64)| format!("`{key}` takes {} times", shown(*slowdown));
    match others.as_slice() {
        [] => {}
        few if few.len() <= 4 => found.say(format!(
            "Compared with `{baseline}`, {} as long.",
            few.iter().map(times).collect::<Vec<_>>().join(", ")
        )),
        [slowest, .., fastest] => found.say(format!(
            "Compared with `{baseline}`, {} as long, the most of {} runs, and {} as long, the \
             least.",
            times(slowest),
            others.len(),
            times(fastest)
        )),
        [_] => {}
    }
    let several = runs.0.iter().filter(|run| run.segments.len() > 1);
    let spread = several.filter_map(|run| Some((run, Quantity::Spread.of(run, runs, baseline)?)));
    let widest = spread.max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((run, part)) = widest {
        found.say(format!(
            "Within one run, segments differ most in `{}`: the longest and the shortest by {:.1} \
             % of the median of {} cycles.",
            run.key(),
            part * 100.0,
            grouped(run.cycles())
        ));
    } else if runs.0.iter().any(|run| run.segments.len() == 1) {
        found.say("Runs have one measured segment each, so nothing is known of their spread.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measured::tests::run;
    use cloison_engine::model::Roi;

    #[test]
    fn every_run_has_a_row_its_figures_and_a_place_in_a_plot() {
        let runs = [
            run("solo", &[], 100),
            run("budget", &[("events", "200")], 110),
            run("budget", &[("events", "4000")], 520),
        ];
        let found = find(
            Runs(&runs),
            "solo",
            &AxisTitles::default(),
            Origin::Model(Roi::Always),
        );
        assert_eq!(found.figures["budget_events_4000_slowdown"], 5.2);
        assert_eq!(found.figures["solo_l2d_cache_refill"], 7.0);
        let table = &found.series[0];
        assert_eq!(
            table.columns[..5],
            ["variant", "events", "segments", "cycles", "cycles_min"]
        );
        assert_eq!(table.rows.len(), 3);
        assert_eq!(
            table.rows[2][3..6],
            [Cell::Count(520), Cell::Count(494), Cell::Count(546)]
        );
        assert_eq!(found.series[1].rows.len(), 9, "every segment");
        let [chart] = found.charts.as_slice() else {
            panic!("{} charts", found.charts.len())
        };
        assert!(chart.log_x, "from 200 to 4000");
        let Marks::Lines(lines) = &chart.marks else {
            panic!("numbers are lines")
        };
        assert_eq!(
            lines[0].points,
            [(200.0, 1.0), (4000.0, 1.0)],
            "a run without the axis is a level line"
        );
        assert_eq!(lines[1].points, [(200.0, 1.1), (4000.0, 5.2)]);
        let text = found.account.join(" ");
        assert!(
            text.contains("`budget-events=4000` takes 5.2000 times"),
            "{text}"
        );
        for word in ["Interf", "SD-VBS", "paper", "L2 pseudo"] {
            assert!(
                !text.contains(word),
                "{word} is nothing that these runs show: {text}"
            );
        }
    }

    #[test]
    fn a_baseline_agrees_on_the_axes_that_both_have() {
        let runs = [
            run("alone", &[("input", "a")], 100),
            run("alone", &[("input", "b")], 200),
            run("busy", &[("input", "b"), ("kib", "64")], 600),
        ];
        assert_eq!(Runs(&runs).slowdown(&runs[2], "alone"), Some(3.0));
        let found = find(
            Runs(&runs),
            "alone",
            &AxisTitles::default(),
            Origin::Model(Roi::Hint),
        );
        let kinds: Vec<_> = found
            .charts
            .iter()
            .map(|chart| matches!(chart.marks, Marks::Lines(_)))
            .collect();
        assert_eq!(kinds, [false, true], "names are bars, numbers are lines");
        let [map] = found.heatmaps.as_slice() else {
            panic!("{:?}", found.heatmaps)
        };
        assert_eq!(
            (map.x.as_str(), map.y.as_str(), map.rows.as_slice()),
            ("input", "kib", &[("64".to_owned(), vec![Some(3.0)])][..])
        );
        // A single variant has its first run as the baseline.
        let sweep = [
            run("sweep", &[("n", "1")], 100),
            run("sweep", &[("n", "2")], 150),
        ];
        assert_eq!(Runs(&sweep).slowdown(&sweep[1], "sweep"), Some(1.5));
    }
}
