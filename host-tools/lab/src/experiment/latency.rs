//! `cyclictest`: wake-up latency of a real-time Linux guest's highest-priority task, against its neighbors' activity.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::cyclictest::Latencies;
use super::findings::{Cell, Findings, Runs, Series, columns, ratio};
use super::plot::{Chart, Line, Marks};
use miette::{Result, miette};

/// The variants and their titles.
const CASES: [(&str, &str); 4] = [
    ("alone", "alone"),
    ("interf", "next to Interf"),
    ("quota", "Interf with budgets"),
    ("colors", "its own colors"),
];
/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let mut rows = vec![];
    let mut lines = vec![];
    let mut all: Vec<&Latencies> = vec![];
    for (variant, name) in CASES {
        let run = runs.first(variant)?;
        let latencies = run
            .latencies
            .as_ref()
            .ok_or_else(|| miette!("run `{variant}` has no latencies: measure = \"cyclictest\""))?;
        let (p50, p999) = (latencies.permille(500), latencies.permille(999));
        let held: u64 = run.quotas.iter().map(|quota| quota.throttled_periods).sum();
        for (figure, value) in [
            ("wakeups", latencies.cycles as f64),
            ("min_us", latencies.min as f64),
            ("median_us", p50 as f64),
            ("avg_us", latencies.avg),
            ("p999_us", p999 as f64),
            ("max_us", latencies.max as f64),
            ("beyond_histogram", latencies.beyond() as f64),
            ("throttled_periods", held as f64),
        ] {
            found.figure(format!("{variant}_{figure}"), value);
        }
        rows.push(vec![
            Cell::Text(name.to_owned()),
            Cell::Count(latencies.cycles),
            Cell::Count(latencies.min),
            Cell::Count(p50),
            Cell::Value(latencies.avg),
            Cell::Count(p999),
            Cell::Count(latencies.max),
            Cell::Count(held),
        ]);
        lines.push(Line {
            name: name.to_owned(),
            points: latencies.points(),
        });
        all.push(latencies);
    }
    let names = [
        "linux",
        "wakeups",
        "min_us",
        "median_us",
        "avg_us",
        "p999_us",
        "max_us",
        "periods_held",
    ];
    let series = Series {
        name: "cases".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "How late the task was woken up",
        "Microseconds of modelled time from the requested wake-up to the moment when the task ran, measured by \
         cyclictest itself. p999: not exceeded by 99.9 % of the wake-ups. Periods in which an Interf core was held by \
         its budget.",
    ));
    found.series.push(series);
    found.series.push(histograms(&all));
    found.charts.push(Chart {
        title: "Latencies (modelled)".into(),
        x: "microseconds".into(),
        y: "wake-ups".into(),
        log: true,
        log_x: false,
        marks: Marks::Lines(lines),
    });
    let [alone, interf, quota, colors] = [0, 1, 2, 3].map(|case: usize| all[case]);
    found.say(format!(
        "Alone, Linux wakes its task up after {:.1} us on average and {} us at most. Next to three cores that each \
         store over 420 KiB it takes {:.1} us and {} us: {:.2} and {:.2} times as long. The task sleeps for a \
         millisecond at a time, and by then the data that the kernel needs to wake it has left the L2.",
        alone.avg,
        alone.max,
        interf.avg,
        interf.max,
        interf.avg / alone.avg.max(f64::MIN_POSITIVE),
        ratio(interf.max, alone.max)
    ));
    found.say(format!(
        "With budgets for Interf the mean is {:.1} us and the maximum {} us; 99.9 % do not exceed {} us. If Linux has \
         its own 8 colors and Interf runs without budgets in the other 7: {:.1} us, {} us and {} us.",
        quota.avg,
        quota.max,
        quota.permille(999),
        colors.avg,
        colors.max,
        colors.permille(999)
    ));
    if let Some((_, name)) = CASES
        .iter()
        .zip(&all)
        .skip(1)
        .find(|(_, case)| case.max < alone.max)
        .map(|(case, _)| case)
    {
        found.say(format!(
            "The maximum of `{name}` is lower than alone. A maximum depends on a few of the wake-ups and changes with \
             any change of the inputs: compare the median and the mean."
        ));
    }
    found.say(
        "Modelled, not measured: what is modelled is in docs/board-model.md. A timer and the core that it wakes may be late by one block of code and the lines \
         that it waits for, of which there are more with Interf: differences below a microsecond may be the model's grain. \
         The path of an interrupt through the hypervisor and Linux thus has the right \
         instructions and misses, but not the board's cycles. Every guest boots on the model from its first \
         instruction; its kernel and cyclictest are Debian's, unmodified. A maximum is that of this number of \
         wake-ups, and not a bound.",
    );
    Ok(found)
}

/// Returns a row for each latency that occurs in any of the cases.
fn histograms(all: &[&Latencies]) -> Series {
    let mut latencies: Vec<u64> = all
        .iter()
        .flat_map(|case| case.histogram.keys().copied())
        .collect();
    latencies.sort_unstable();
    latencies.dedup();
    let row = |latency: u64| {
        let count =
            |case: &&Latencies| Cell::Count(case.histogram.get(&latency).copied().unwrap_or(0));
        std::iter::once(Cell::Count(latency))
            .chain(all.iter().map(count))
            .collect()
    };
    Series {
        name: "histogram".into(),
        columns: columns(std::iter::once("latency_us").chain(CASES.map(|(variant, _)| variant))),
        rows: latencies.into_iter().map(row).collect(),
    }
}
