//! The results of an experiment: figures, tables, plots, and a plain account.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::plot::Chart;
use super::runner::Measured;
use cloison_engine::report::Section;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The results of an experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Named numbers.
    pub figures: BTreeMap<String, f64>,
    /// The series, by name: rows of named values.
    pub series: Vec<Series>,
    /// Plots.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Section>,
    /// Paragraphs that say what was found, and where and why it differs from the paper.
    pub account: Vec<String>,
}

/// Rows of named values.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// Names of the columns, in order.
    pub columns: Vec<&'static str>,
    /// Rows, each with one value per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A ratio or a rate.
    Value(f64),
}

impl Cell {
    /// Converts it to JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Value(value) => json!(value),
        }
    }
    /// Formats it for a table or a CSV file.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Value(value) => format!("{value:.4}"),
        }
    }
}

impl Series {
    /// Converts it to one JSON object per row.
    pub fn json(&self) -> Vec<Value> {
        let row = |row: &Vec<Cell>| {
            let object: Map<String, Value> =
                self.columns.iter().zip(row).map(|(name, cell)| ((*name).to_owned(), cell.json())).collect();
            Value::Object(object)
        };
        self.rows.iter().map(row).collect()
    }
    /// Formats it as a table.
    pub fn table(&self, title: &str, note: &str) -> Section {
        let mut section = Section::new(title, &self.columns).note(note);
        for row in &self.rows {
            section.row(row.iter().map(Cell::text));
        }
        section
    }
}

impl Findings {
    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
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
    /// Returns the runs of a variant.
    pub fn of(self, variant: &str) -> impl Iterator<Item = &'a Measured> {
        self.0.iter().filter(move |run| run.variant == variant)
    }
    /// Returns the first run of a variant.
    pub fn first(self, variant: &str) -> miette::Result<&'a Measured> {
        self.of(variant).next().ok_or_else(|| miette::miette!("the experiment has no variant `{variant}`"))
    }
    /// Returns the run of a variant with these labels.
    pub fn at(self, variant: &str, axes: &[(&str, &str)]) -> Option<&'a Measured> {
        self.of(variant).find(|run| axes.iter().all(|(axis, label)| run.label(axis) == *label))
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
    values.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + tolerance))
}

/// The facts about the model that every account needs.
pub const LIMITS: &str = "Modelled, not measured: cores execute one instruction per cycle, in order; a load waits for \
     its line, stores wait when three lines are being fetched; there is no prefetcher and no TLB; the ways of an L1 \
     set are replaced in turn, those of the L2 pseudo-randomly, which is an assumption. The guests are Cloison's \
     bare-metal programs, not Linux and SD-VBS. The hypervisor keeps one of the 16 colors for itself.";
