//! The results of an experiment: figures, tables, plots, and a plain account.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::measured::Measured;
use cloison_engine::report::Section;
use cloison_engine::text::grouped;
use cloison_plot::{Chart, Heatmap};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The results of an experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Named numbers.
    pub figures: BTreeMap<String, f64>,
    /// The series, by name: rows of named values.
    pub series: Vec<Series>,
    /// Heatmaps.
    pub heatmaps: Vec<Heatmap>,
    /// Plots.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Section>,
    /// What the paper shows beside what was found, if the experiment has statements of one.
    pub shows: Option<Section>,
    /// The statements from which the results differ, if there are any.
    pub differences: Option<Section>,
    /// The verdicts on the experiment's guards, if it has any.
    pub guards: Option<Section>,
    /// The guards whose limit was moved, if there are any.
    pub moved: Option<Section>,
    /// The verdicts on the conclusions with other values of the model, if they are kept.
    pub sensitivity: Option<Stability>,
    /// Paragraphs of the results, with their differences from the paper and the reasons.
    pub account: Vec<String>,
}

/// Which conclusions hold with other values of the model.
#[derive(Debug)]
pub struct Stability {
    /// A paragraph: of when, of which form and of which inputs the result is.
    pub text: String,
    /// Its tables; none if it is of the experiment's other form.
    pub tables: Vec<Section>,
}

/// Rows of named values.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Rows, each with one value per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Missing,
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A ratio or a rate.
    Value(f64),
}

impl Cell {
    /// Returns a run's label on an axis, as a number if it is one.
    pub fn label(run: &Measured, axis: &str) -> Self {
        run.number(axis)
            .map_or_else(|| Self::Text(run.label(axis).to_owned()), Self::Count)
    }
    /// Converts it to JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Missing => Value::Null,
            // A text that is not there is no text of length 0.
            Self::Text(text) if text.is_empty() => Value::Null,
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Value(value) => json!(value),
        }
    }
    /// Formats it for a reader, with grouped digits and no more decimals than its size needs.
    pub fn shown(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => grouped(*count),
            Self::Value(value) => shown(*value),
        }
    }
    /// Formats it for a CSV file: a number as it is in JSON and Parquet.
    pub fn text(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Value(value) => value.to_string(),
        }
    }
}

/// Formats a ratio or a rate for a reader: grouped digits, at least four of them significant.
pub fn shown(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || size < 10.0 {
        return format!("{value:.4}");
    }
    if size < 1000.0 {
        return format!("{value:.2}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", grouped(size.round() as u64))
}

/// Returns the heading of a column: its name as words, with the unit in parentheses.
pub fn heading(name: &str) -> String {
    // The names of events are not words.
    if name.contains(|c: char| c.is_ascii_uppercase()) {
        return name.to_owned();
    }
    let units = [("_mb_s", "MB/s"), ("_us", "µs"), ("_percent", "%")];
    let unit = units
        .iter()
        .find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (name, unit) = unit.map_or((name, String::new()), |(name, unit)| {
        (name, format!(" ({unit})"))
    });
    let word = |word: &str| match word {
        "l2" => "L2".to_owned(),
        "kib" => "KiB".to_owned(),
        other => other.to_owned(),
    };
    name.split('_').map(word).collect::<Vec<_>>().join(" ") + &unit
}

/// Returns the names of a series' columns.
pub fn columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

impl Series {
    /// Converts it to one JSON object per row.
    pub fn json(&self) -> Vec<Value> {
        let row = |row: &Vec<Cell>| {
            let object: Map<String, Value> = self
                .columns
                .iter()
                .zip(row)
                .map(|(name, cell)| (name.clone(), cell.json()))
                .collect();
            Value::Object(object)
        };
        self.rows.iter().map(row).collect()
    }
    /// Formats it as a table.
    pub fn table(&self, title: &str, note: &str) -> Section {
        let headings: Vec<String> = self.columns.iter().map(|name| heading(name)).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut section = Section::new(title, &headings).note(note);
        for row in &self.rows {
            section.row(row.iter().map(Cell::shown));
        }
        section
    }
}

impl Findings {
    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }
    /// Returns the sections about conclusions, in the order of a report: the paper's statements,
    /// the differences from them, the guards, and their earlier limits.
    pub fn conclusions(&self) -> impl Iterator<Item = &Section> {
        [&self.shows, &self.differences, &self.guards, &self.moved]
            .into_iter()
            .flatten()
    }
    /// Adds a paragraph to the account.
    pub fn say(&mut self, text: impl Into<String>) {
        self.account.push(text.into());
    }
}

/// The runs of an experiment, for lookup.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a>(pub &'a [Measured]);

impl<'a> Runs<'a> {
    /// Returns the names of all axes, in order.
    pub fn axes(self) -> BTreeSet<&'a str> {
        self.0
            .iter()
            .flat_map(|run| run.axes.keys())
            .map(String::as_str)
            .collect()
    }
    /// Returns the runs of a variant.
    pub fn of(self, variant: &str) -> impl Iterator<Item = &'a Measured> {
        self.0.iter().filter(move |run| run.variant == variant)
    }
    /// Returns the first run of a variant.
    pub fn first(self, variant: &str) -> miette::Result<&'a Measured> {
        self.of(variant)
            .next()
            .ok_or_else(|| miette::miette!("the experiment has no variant `{variant}`"))
    }
    /// Returns the run of a variant with these labels.
    pub fn at(self, variant: &str, axes: &[(&str, &str)]) -> Option<&'a Measured> {
        self.of(variant)
            .find(|run| axes.iter().all(|(axis, label)| run.label(axis) == *label))
    }
    /// Returns the run to which a run's slowdown refers: that of the baseline variant with the same
    /// labels on the axes that both have. An experiment with a single variant has its first run
    /// as the baseline of all.
    pub fn baseline_of(self, run: &Measured, baseline: &str) -> Option<&'a Measured> {
        if self.0.iter().all(|other| other.variant == run.variant) {
            return self.0.first();
        }
        let agrees = |base: &&Measured| {
            base.axes
                .iter()
                .all(|(axis, label)| run.axes.get(axis).is_none_or(|other| other == label))
        };
        self.of(baseline).find(agrees)
    }
    /// Returns a run's median cycles, or its mean latency, relative to its baseline's.
    pub fn slowdown(self, run: &Measured, baseline: &str) -> Option<f64> {
        let base = self.baseline_of(run, baseline)?;
        match (&run.latencies, &base.latencies) {
            (Some(run), Some(base)) if base.avg > 0.0 => Some(run.avg / base.avg),
            (None, None) if base.cycles() > 0 => Some(ratio(run.cycles(), base.cycles())),
            _ => None,
        }
    }
    /// Returns the labels of an axis in a variant, without duplicates, in order.
    pub fn labels(self, variant: &str, axis: &str) -> Vec<&'a str> {
        let mut labels = vec![];
        for run in self.of(variant) {
            let label = run.label(axis);
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }
}

/// Returns `part / whole`.
pub fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns whether no value exceeds the one before it by more than this tolerance.
pub fn falls(values: &[f64], tolerance: f64) -> bool {
    values
        .windows(2)
        .all(|pair| pair[1] <= pair[0] * (1.0 + tolerance))
}

/// A note on the shipped systems that a reader must know.
pub const SHIPPED_GUESTS: &str = "The guests are Cloison's bare-metal programs, not Linux and \
                                  SD-VBS. No VM has the hypervisor's own colors.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_headings_are_for_readers() {
        assert_eq!(Cell::Value(36_347.359_5).shown(), "36\u{202f}347");
        assert_eq!(Cell::Value(1.5).shown(), "1.5000");
        assert_eq!(Cell::Value(-123.45).shown(), "-123.45");
        assert_eq!(Cell::Count(27_303_872).shown(), "27\u{202f}303\u{202f}872");
        assert_eq!(
            Cell::Count(27_303_872).text(),
            "27303872",
            "a CSV file has no groups"
        );
        for (name, shown) in [
            ("l2_refills", "L2 refills"),
            ("interf_mb_s", "interf (MB/s)"),
            ("p999_us", "p999 (µs)"),
            ("L2D_CACHE_REFILL", "L2D_CACHE_REFILL"),
        ] {
            assert_eq!(heading(name), shown);
        }
    }
}
