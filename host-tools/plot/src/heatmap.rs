//! Heatmaps as HTML: a value for each pair of labels, and its color.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::report::PALETTE;
use maud::{Markup, html};

/// A heatmap.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// Heading.
    pub title: String,
    /// What the columns are.
    pub x: String,
    /// What the rows are.
    pub y: String,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// Each row's label, and a value for each column, if there is one.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Heatmap {
    /// Returns a map without values.
    pub fn new(title: impl Into<String>, x: &str, y: &str) -> Self {
        Self {
            title: title.into(),
            x: x.to_owned(),
            y: y.to_owned(),
            columns: vec![],
            rows: vec![],
        }
    }

    /// Sets the value of a column and a row, which are added if they are new.
    pub fn set(&mut self, column: &str, row: &str, value: f64) {
        let at = self
            .columns
            .iter()
            .position(|label| label == column)
            .unwrap_or_else(|| {
                self.columns.push(column.to_owned());
                self.rows.iter_mut().for_each(|(_, row)| row.push(None));
                self.columns.len() - 1
            });
        let known = self.rows.iter().position(|(label, _)| label == row);
        let row = known.unwrap_or_else(|| {
            let empty = vec![None; self.columns.len()];
            self.rows.push((row.to_owned(), empty));
            self.rows.len() - 1
        });
        self.rows[row].1[at] = Some(value);
    }

    /// Returns it as an element of a page. The least value is white, the greatest has the full
    /// color; each is written in its cell.
    pub fn figure(&self) -> Markup {
        let values = || self.rows.iter().flat_map(|(_, row)| row).flatten().copied();
        let (least, most) = (
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        );
        let strength = |value: f64| {
            let part = (value - least) / (most - least);
            if part.is_finite() { part } else { 0.0 }
        };
        let style = |value: f64| {
            let percent = strength(value) * 100.0;
            let ink = if percent > 60.0 { "#fff" } else { "#222" };
            format!(
                "color:{ink};background:color-mix(in srgb, {} {percent:.0}%, white)",
                PALETTE[0]
            )
        };
        html! {
            figure.chart {
                figcaption { (self.title) }
                div.scroll {
                    table {
                        tr {
                            th { (self.y) }
                            th colspan=(self.columns.len()) { (self.x) }
                        }
                        tr {
                            th {}
                            @for column in &self.columns { th.num { (column) } }
                        }
                        @for (label, row) in &self.rows {
                            tr {
                                th.num { (label) }
                                @for value in row {
                                    @match value {
                                        Some(value) => td.num style=(style(*value)) { (format!("{value:.2}")) },
                                        None => td {},
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_written_on_its_color() {
        let mut map = Heatmap::new("Slowdown", "size <KiB>", "cores");
        map.set("64", "1", 1.0);
        map.set("128", "2", 2.0);
        map.set("128", "1", 3.0);
        let html = map.figure().into_string();
        assert!(html.contains("size &lt;KiB&gt;"), "{html}");
        for (percent, value) in [(0, "1.00"), (100, "3.00"), (50, "2.00")] {
            let cell = format!("{} {percent}%, white)\">{value}</td>", PALETTE[0]);
            assert!(html.contains(&cell), "{cell}: {html}");
        }
        assert!(
            html.contains("<td></td>"),
            "a run that there is not: {html}"
        );
        let mut flat = Heatmap::new("Slowdown", "x", "y");
        flat.set("64", "1", 1.0);
        assert!(!flat.figure().into_string().contains("NaN"));
    }
}
