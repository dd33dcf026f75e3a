//! Tables that look the same on the terminal and in HTML.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::shell::prose;
use crate::text::Style;
use comfy_table::presets::{ASCII_BORDERS_ONLY, UTF8_BORDERS_ONLY};
use comfy_table::{CellAlignment, ContentArrangement};
use maud::{Markup, html};

/// A table with its heading and the note needed to read it.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Titles of the columns.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
    /// Explanation of the numbers.
    pub note: String,
}

impl Section {
    /// Creates an empty table.
    pub fn new(title: &str, header: &[&str]) -> Self {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Self {
            title: title.to_owned(),
            header,
            ..Self::default()
        }
    }
    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
    /// Sets the note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Formats heading, table and note for standard output.
    pub fn to_text(&self) -> String {
        self.to_text_in(Style::of_output())
    }

    /// Formats heading, table and note in a style.
    pub fn to_text_in(&self, style: Style) -> String {
        let mut text = format!("{}\n", style.show(&self.title));
        if self.rows.is_empty() {
            text.push_str("  none\n");
        } else {
            let mut table = comfy_table::Table::new();
            table.load_preset(match (self.header.len(), style.plain) {
                (2.., _) => style.borders(),
                (_, true) => ASCII_BORDERS_ONLY,
                (_, false) => UTF8_BORDERS_ONLY,
            });
            if let Some(columns) = style.columns {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
            }
            let shown = |cells: &[String]| -> Vec<String> {
                cells.iter().map(|cell| style.show(cell)).collect()
            };
            table.set_header(shown(&self.header));
            table.add_rows(self.rows.iter().map(|row| shown(row)));
            for (index, column) in table.column_iter_mut().enumerate() {
                if self.is_numeric(index) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            text.push_str(&format!("{table}\n"));
        }
        if !self.note.is_empty() {
            text.push_str(&format!("{}\n", style.wrap(&self.note, "  ")));
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        self.rows
            .iter()
            .filter_map(|row| row.get(column))
            .all(|cell| {
                let digits = cell.strip_prefix('-').unwrap_or(cell);
                cell.is_empty()
                    || digits.starts_with(|c: char| c.is_ascii_digit())
                        && !digits.contains([':', ',', '-'])
            })
    }

    /// Formats heading, table and note for the report.
    pub fn to_html(&self) -> Markup {
        html! {
            h2 { (prose(&self.title)) }
            @if self.rows.is_empty() {
                p { "none" }
            } @else {
                (self.table())
            }
            @if !self.note.is_empty() { p.note { (prose(&self.note)) } }
        }
    }

    /// Formats only the table, for the report.
    pub(crate) fn table(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    thead {
                        tr {
                            @for (index, name) in self.header.iter().enumerate() {
                                th.num[self.is_numeric(index)] { (prose(name)) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    td.num[self.is_numeric(index)] { (prose(cell)) }
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
    fn pipes_get_ascii_and_terminals_get_lines_that_fit() {
        let mut section = Section::new("Costs", &["path", "cost"])
            .note("Words that are read by nobody. ".repeat(9));
        section.row(["a µs".to_owned(), crate::text::grouped(12_345)]);
        let plain = section.to_text_in(Style {
            plain: true,
            columns: None,
        });
        assert!(
            plain.is_ascii() && plain.contains("| a us | 12345 |"),
            "{plain}"
        );
        let rich = section.to_text_in(Style {
            plain: false,
            columns: Some(60),
        });
        assert!(
            rich.contains("┆") && rich.contains("12\u{202f}345"),
            "{rich}"
        );
        assert!(
            rich.lines().all(|line| line.chars().count() <= 60),
            "{rich}"
        );
    }

    #[test]
    fn text_from_a_guest_cannot_become_markup() {
        let mut section = Section::new("<b>", &["name"]);
        section.row(["<script>alert(1)</script>".to_owned()]);
        let html = section.to_html().into_string();
        assert!(
            !html.contains("<script>") && !html.contains("<b>"),
            "{html}"
        );
    }
}
