//! `profile-staircase`: which pages a profiler finds to matter, against how often each is read.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns};
use super::plot::{Chart, Line, Marks};
use super::profiled::{self, Group, Staircase};
use miette::{Result, miette};

/// The variants, the start of their figures' names, and their titles.
const CASES: [(&str, &str, &str); 2] = [
    ("steps", "group", "read 1 to 5 times"),
    ("equal", "equal_group", "all read 5 times"),
];

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let (mut rows, mut pages, mut lines) = (vec![], vec![], vec![]);
    for (variant, figure, title) in CASES {
        let text = runs.first(variant)?.profile.as_ref();
        let text =
            text.ok_or_else(|| miette!("run `{variant}` has no profile: measure = \"profile\""))?;
        let profile = profiled::read(text)?;
        let Some(Staircase {
            pages: buffer,
            groups,
            others,
        }) = profiled::staircase(&profile)
        else {
            return Err(miette!(
                "the profile of run `{variant}` has no hundred pages that follow each other"
            ));
        };
        let first = groups[0].mean;
        for (number, Group { mean, min, max }) in groups
            .iter()
            .enumerate()
            .map(|(index, group)| (index + 1, group))
        {
            for (end, value) in [("", mean), ("_min", min), ("_max", max)] {
                found.figure(format!("{figure}_{number}{end}"), value / first);
            }
            rows.push(vec![
                Cell::Text(title.to_owned()),
                Cell::Count(number as u64),
                Cell::Value(*mean),
                Cell::Value(*min),
                Cell::Value(*max),
                Cell::Value(mean / first),
            ]);
        }
        found.figure(format!("{variant}_pages"), profile.pages() as f64);
        if !others.is_empty() {
            found.figure(
                format!("{variant}_others_cycles"),
                others.iter().sum::<f64>() / others.len() as f64,
            );
        }
        for (name, times) in [
            ("none", profile.baseline.none),
            ("all", profile.baseline.all),
            ("tracing", profile.baseline.tracing),
        ] {
            if let Some(times) = times {
                found.figure(format!("{variant}_{name}_cycles"), times.mean);
            }
        }
        for (index, importance) in buffer.iter().enumerate() {
            pages.push(vec![
                Cell::Text(title.to_owned()),
                Cell::Count(index as u64),
                Cell::Value(*importance),
            ]);
        }
        let point = |(index, importance): (usize, &f64)| (index as f64, importance / first);
        lines.push(Line {
            name: title.to_owned(),
            points: buffer.iter().enumerate().map(point).collect(),
        });
    }
    let series = Series {
        name: "groups".into(),
        columns: columns(["buffer", "group", "mean", "min", "max", "relative"]),
        rows,
    };
    found.tables.push(series.table(
        "What a page's caches save, by group",
        "Cycles by which the segment is shorter with one page cacheable than with none: mean, least and most of the 20 pages of a \
         group, and the mean relative to that of the first group, as the paper normalizes it.",
    ));
    found.series.push(series);
    found.series.push(Series {
        name: "pages".into(),
        columns: columns(["buffer", "page", "importance"]),
        rows: pages,
    });
    found.charts.push(Chart {
        title: "Importance of each page (modelled)".into(),
        x: "page of the buffer".into(),
        y: "cycles saved / mean of group 1".into(),
        log: false,
        log_x: false,
        marks: Marks::Lines(lines),
    });
    let steps: Vec<String> = (1..=profiled::GROUPS)
        .map(|n| format!("{:.2}", found.figures[&format!("group_{n}")]))
        .collect();
    let equal = (1..=profiled::GROUPS).map(|n| found.figures[&format!("equal_group_{n}")]);
    let (least, most) = equal.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| {
        (least.min(it), most.max(it))
    });
    found.say(format!(
        "A page that is read twice as often saves twice as many cycles: {}. Where all pages are read equally often, groups are \
         between {least:.2} and {most:.2}: the steps are the program's, and not the profiler's.",
        steps.join(" : ")
    ));
    if let Some(others) = found.figures.get("steps_others_cycles") {
        found.say(format!(
            "The heap's other pages are hardly read. That each of them seems to save {others:.0} cycles is by how much the one run without \
             any cacheable page, to which all are compared, happened to be longer or shorter: the groups contain it alike, which counts \
             most in the first."
        ));
    }
    found.say(
        "Modelled, not measured: a page that is not cacheable costs the model's access to memory for each byte that is read, as the \
         program reads single bytes. The profiler, its kernel and the program are real, in an unmodified Debian guest; the frames are those \
         of its kernel's choice.",
    );
    Ok(found)
}
