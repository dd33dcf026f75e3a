//! The numbers that programs printed: relative to the baseline's of the same name, and as curves
//! where names end in a number.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series};
use super::measured::Measured;
use super::printed::{Printed, mean};
use super::spec::AxisTitles;
use cloison_plot::{Chart, Line, Marks};
use std::collections::{BTreeMap, BTreeSet};

/// So many numbers whose names differ only in the number at their end are a curve.
const CURVE: usize = 3;

/// A program's curves: for each name without the number at its end, these numbers and the mean of
/// what was printed.
type Curves<'a> = BTreeMap<&'a str, Vec<(f64, f64)>>;

/// Adds tables, series, figures and plots of the printed numbers, if there are any.
pub fn find(runs: Runs<'_>, baseline: &str, titles: &AxisTitles, found: &mut Findings) {
    let Some(series) = means(runs, baseline, found) else {
        return;
    };
    let note = format!(
        "Mean of the numbers of each name, with the least and the greatest. Relative: to the mean \
         of that name in the run of `{baseline}` with the same values on the axes that both have."
    );
    found.tables.push(series.table("Printed numbers", &note));
    found.series.push(series);
    found.series.extend(all(runs));
    if let Some(marks) = beside(runs, baseline) {
        found.tables.push(compared(&marks).table(
            &format!("Relative to {baseline}"),
            "The same means, a column for each run. Empty: not printed by this run.",
        ));
        found.charts.push(Chart {
            title: "Means of what was printed (modelled)".into(),
            x: String::new(),
            y: format!("relative to {baseline}"),
            log: false,
            log_x: false,
            marks: Marks::Bars(marks.0, marks.1),
        });
    }
    found.charts.extend(
        runs.axes()
            .into_iter()
            .filter_map(|axis| along(runs, baseline, axis, titles.of(axis))),
    );
    for (run, printed) in printing(runs) {
        let curves = curves(printed);
        let line = |(name, points): (&str, Vec<(f64, f64)>)| Line::new(name, points);
        if !curves.is_empty() {
            found.charts.push(Chart {
                title: format!(
                    "{}: by the number at the end of the name (modelled)",
                    run.key()
                ),
                x: "number at the end of the name".into(),
                y: "mean of what was printed".into(),
                log: false,
                log_x: false,
                marks: Marks::Lines(curves.into_iter().map(line).collect()),
            });
        }
    }
}

/// Returns the runs whose program printed numbers.
fn printing(runs: Runs<'_>) -> impl Iterator<Item = (&Measured, &Printed)> {
    runs.0
        .iter()
        .filter_map(|run| Some((run, run.printed.as_ref()?)))
}

/// Returns the curves among a program's numbers.
fn curves(printed: &Printed) -> Curves<'_> {
    let mut curves = Curves::new();
    for name in printed.keys() {
        let Some((stem, number)) = name.rsplit_once('_') else {
            continue;
        };
        if let (Ok(number), Some(mean)) = (number.parse::<u32>(), mean(printed, name)) {
            curves
                .entry(stem)
                .or_default()
                .push((f64::from(number), mean));
        }
    }
    curves.retain(|_, points| points.len() >= CURVE);
    curves
        .values_mut()
        .for_each(|points| points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    curves
}

/// Returns the mean of a name relative to that of the run's baseline, if that has printed it too.
fn relative(runs: Runs<'_>, baseline: &str, run: &Measured, name: &str) -> Option<f64> {
    let base = mean(runs.baseline_of(run, baseline)?.printed.as_ref()?, name)?;
    (base > 0.0).then_some(mean(run.printed.as_ref()?, name)? / base)
}

/// Returns whether a run is the one to which it is compared.
fn is_base(runs: Runs<'_>, baseline: &str, run: &Measured) -> bool {
    runs.baseline_of(run, baseline)
        .is_some_and(|base| std::ptr::eq(base, run))
}

/// Returns one row per run and name, and adds the relative figures.
fn means(runs: Runs<'_>, baseline: &str, found: &mut Findings) -> Option<Series> {
    let axes = runs.axes();
    let mut rows = vec![];
    for (run, printed) in printing(runs) {
        for (name, numbers) in printed {
            let relative = relative(runs, baseline, run, name);
            if let Some(relative) = relative.filter(|_| !is_base(runs, baseline, run)) {
                found.figure(
                    format!("{}_printed_{name}_relative", run.figure_name()),
                    relative,
                );
            }
            let mut row = vec![Cell::Text(run.variant.clone())];
            row.extend(axes.iter().map(|axis| Cell::label(run, axis)));
            row.extend([Cell::Text(name.clone()), Cell::Count(numbers.len() as u64)]);
            let extreme = |of: fn(f64, f64) -> f64| numbers.iter().copied().reduce(of);
            for value in [
                mean(printed, name),
                extreme(f64::min),
                extreme(f64::max),
                relative,
            ] {
                row.push(value.map_or(Cell::Missing, Cell::Value));
            }
            rows.push(row);
        }
    }
    let columns = ["variant"]
        .into_iter()
        .chain(axes)
        .chain(["name", "numbers", "mean", "least", "greatest", "relative"]);
    (!rows.is_empty()).then(|| Series {
        name: "means".into(),
        columns: super::findings::columns(columns),
        rows,
    })
}

/// Returns one row per printed number, if any were.
pub fn all(runs: Runs<'_>) -> Option<Series> {
    let axes = runs.axes();
    let mut rows = vec![];
    for (run, printed) in printing(runs) {
        for (name, number) in printed
            .iter()
            .flat_map(|(name, numbers)| numbers.iter().map(move |it| (name, *it)))
        {
            let mut row = vec![Cell::Text(run.variant.clone())];
            row.extend(axes.iter().map(|axis| Cell::label(run, axis)));
            row.extend([Cell::Text(name.clone()), Cell::Value(number)]);
            rows.push(row);
        }
    }
    let columns = ["variant"]
        .into_iter()
        .chain(axes)
        .chain(["name", "number"]);
    (!rows.is_empty()).then(|| Series {
        name: "printed".into(),
        columns: super::findings::columns(columns),
        rows,
    })
}

/// Names of the runs, and for each name the means of all of them relative to the baseline's; not a
/// number where there is none.
type Beside = (Vec<String>, Vec<(String, Vec<f64>)>);

/// Returns the means of runs that differ in the number on an axis, if there are any.
fn along(runs: Runs<'_>, baseline: &str, axis: &str, title: &str) -> Option<Chart> {
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (run, printed) in printing(runs) {
        let Some(number) = run.number(axis) else {
            continue;
        };
        for name in printed.keys() {
            if let Some(relative) = relative(runs, baseline, run, name) {
                lines
                    .entry(format!("{}: {name}", run.variant))
                    .or_default()
                    .push((number as f64, relative));
            }
        }
    }
    let line = |(name, mut points): (String, Vec<(f64, f64)>)| {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line::new(name, points)
    };
    (!lines.is_empty()).then(|| Chart {
        title: format!("Means of what was printed, by {title} (modelled)"),
        x: title.to_owned(),
        y: format!("relative to {baseline}"),
        log: false,
        log_x: false,
        marks: Marks::Lines(lines.into_iter().map(line).collect()),
    })
}

/// Returns the means of the names that the baseline and another run have printed and that are no
/// curves, if there are any. Runs on an axis of numbers are in another plot.
fn beside(runs: Runs<'_>, baseline: &str) -> Option<Beside> {
    let in_curves = |printed| {
        curves(printed)
            .into_keys()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let stems: BTreeSet<String> = printing(runs)
        .flat_map(|(_, printed)| in_curves(printed))
        .collect();
    let is_point = |name: &str| {
        name.rsplit_once('_')
            .is_some_and(|(stem, _)| stems.contains(stem))
    };
    let on_numbers = |run: &Measured| run.axes.keys().any(|axis| run.number(axis).is_some());
    let shown: Vec<(&Measured, &Printed)> =
        printing(runs).filter(|(run, _)| !on_numbers(run)).collect();
    let has = |run: &Measured, name: &str| relative(runs, baseline, run, name).is_some();
    let names: BTreeSet<&String> = shown
        .iter()
        .filter(|(run, _)| !is_base(runs, baseline, run))
        .flat_map(|(run, printed)| {
            printed
                .keys()
                .filter(|name| has(run, name) && !is_point(name))
        })
        .collect();
    let shown: Vec<&Measured> = shown
        .iter()
        .map(|(run, _)| *run)
        .filter(|run| names.iter().any(|name| has(run, name)))
        .collect();
    let values = |name: &str| {
        shown
            .iter()
            .map(|run| relative(runs, baseline, run, name).unwrap_or(f64::NAN))
            .collect()
    };
    let groups: Vec<(String, Vec<f64>)> = names
        .iter()
        .map(|name| ((*name).clone(), values(name)))
        .collect();
    (!groups.is_empty()).then(|| (shown.iter().map(|run| run.key()).collect(), groups))
}

/// Returns them as a table.
fn compared((runs, groups): &Beside) -> Series {
    let cell = |value: &f64| {
        if value.is_nan() {
            Cell::Missing
        } else {
            Cell::Value(*value)
        }
    };
    let row = |(name, values): &(String, Vec<f64>)| {
        [Cell::Text(name.clone())]
            .into_iter()
            .chain(values.iter().map(cell))
            .collect()
    };
    let columns = ["name"].into_iter().chain(runs.iter().map(String::as_str));
    Series {
        name: "compared".into(),
        columns: super::findings::columns(columns),
        rows: groups.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measured::tests::run;

    fn printing(variant: &str, printed: &[(&str, &[f64])]) -> Measured {
        let numbers = printed
            .iter()
            .map(|(name, numbers)| ((*name).to_owned(), numbers.to_vec()))
            .collect();
        Measured {
            segments: vec![],
            printed: Some(numbers),
            ..run(variant, &[], 1)
        }
    }

    #[test]
    fn numbers_are_compared_with_the_baselines_of_the_same_name() {
        let runs = [
            printing("solo", &[("a", &[10.0, 30.0]), ("b", &[5.0])]),
            printing("interf", &[("a", &[50.0]), ("c", &[1.0])]),
            printing(
                "sweep",
                &[
                    ("moved_0", &[9.0]),
                    ("moved_20", &[4.0]),
                    ("moved_3", &[7.0]),
                ],
            ),
        ];
        let mut found = Findings::default();
        find(Runs(&runs), "solo", &AxisTitles::default(), &mut found);
        assert_eq!(
            found.figures,
            [("interf_printed_a_relative".to_owned(), 2.5)].into()
        );
        let [table, each] = found.series.as_slice() else {
            panic!("{:?}", found.series)
        };
        assert_eq!((table.rows.len(), each.rows.len()), (7, 8));
        let mean = [
            Cell::Count(2),
            Cell::Value(20.0),
            Cell::Value(10.0),
            Cell::Value(30.0),
            Cell::Value(1.0),
        ];
        assert_eq!(
            table.rows[0][2..],
            mean,
            "with the extremes, and what is compared"
        );
        assert_eq!(table.rows[3][6], Cell::Missing, "the baseline has no c");
        let [bars, lines] = found.charts.as_slice() else {
            panic!("{} charts", found.charts.len())
        };
        let Marks::Bars(names, groups) = &bars.marks else {
            panic!("no bars")
        };
        assert_eq!(
            (names.as_slice(), groups.len()),
            (&["solo".to_owned(), "interf".to_owned()][..], 1)
        );
        assert_eq!(groups[0], ("a".to_owned(), vec![1.0, 2.5]));
        let Marks::Lines(lines) = &lines.marks else {
            panic!("no lines")
        };
        assert_eq!(
            lines[0].points,
            [(0.0, 9.0), (3.0, 7.0), (20.0, 4.0)],
            "by number, not by letters"
        );
    }

    #[test]
    fn runs_that_differ_in_a_number_are_a_line() {
        let on = |moved: &str, number: f64| {
            let axes = [("moved".to_owned(), moved.to_owned())].into();
            Measured {
                axes,
                ..printing("sweep", &[("a", &[number])])
            }
        };
        let runs = [
            printing("solo", &[("a", &[2.0])]),
            on("20", 6.0),
            on("3", 8.0),
        ];
        let mut found = Findings::default();
        find(Runs(&runs), "solo", &AxisTitles::default(), &mut found);
        assert_eq!(found.figures["sweep_moved_20_printed_a_relative"], 3.0);
        let charts: Vec<_> = found.charts.iter().map(|chart| &chart.marks).collect();
        let [Marks::Lines(lines)] = charts.as_slice() else {
            panic!("{charts:?}")
        };
        assert_eq!(
            (lines[0].name.as_str(), lines[0].points.as_slice()),
            ("sweep: a", &[(3.0, 4.0), (20.0, 3.0)][..])
        );
    }

    #[test]
    fn a_name_with_a_number_is_no_curve_yet() {
        let runs = [
            printing("one", &[("a_1", &[1.0]), ("a_2", &[1.0])]),
            printing("two", &[("a_1", &[3.0])]),
        ];
        let mut found = Findings::default();
        find(Runs(&runs), "one", &AxisTitles::default(), &mut found);
        assert_eq!(found.charts.len(), 1);
        assert_eq!(found.figures["two_printed_a_1_relative"], 3.0);
        let mut nothing = Findings::default();
        find(
            Runs(&[run("solo", &[], 100)]),
            "solo",
            &AxisTitles::default(),
            &mut nothing,
        );
        assert!(
            nothing.series.is_empty() && nothing.tables.is_empty(),
            "segments alone"
        );
    }
}
