//! Formats numbers and text for people and for the programs that read the output.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::units::Nanos;
use std::env;
use std::io::IsTerminal;

/// The abilities of the terminal or program that reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Only ASCII, and numbers without separators: for pipes, `TERM=dumb` and locales without
    /// UTF-8.
    pub plain: bool,
    /// Columns of the terminal; `None` if there is none.
    pub columns: Option<usize>,
}

/// Columns of a terminal that does not know its width, such as one of a container or of a program
/// that pretends to be one.
const COLUMNS: usize = 80;

/// Returns the columns of the terminal.
pub fn columns() -> usize {
    let width = comfy_table::Table::new().width();
    width
        .map(usize::from)
        .filter(|width| *width > 0)
        .unwrap_or(COLUMNS)
}

impl Style {
    /// Returns the style of standard output.
    pub fn of_output() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        // The first of these that is set decides (POSIX, "Environment Variables").
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .filter_map(|name| env::var(name).ok());
        let locale = locale
            .into_iter()
            .find(|value| !value.is_empty())
            .unwrap_or_default();
        let columns = is_terminal.then(columns);
        Self {
            plain: !is_terminal
                || env::var("TERM").is_ok_and(|term| term == "dumb")
                || !is_utf8(&locale),
            columns,
        }
    }

    /// Returns `text` unchanged or, in plain style, as ASCII with digits that are not grouped.
    /// Characters without an ASCII form stay.
    pub fn show(self, text: &str) -> String {
        if !self.plain {
            return text.to_owned();
        }
        let replacements = [
            ("\u{202f}", ""),
            ("\u{a0}", " "),
            ("µ", "u"),
            ("×", "x"),
            ("–", "-"),
            ("—", "-"),
            ("…", "..."),
            ("±", "+-"),
            ("≤", "<="),
            ("≥", ">="),
            ("→", "->"),
        ];
        replacements
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Returns [`show`](Self::show)n text, wrapped at the terminal's width with `indent` before
    /// each line.
    pub fn wrap(self, text: &str, indent: &str) -> String {
        let text = self.show(text);
        let Some(columns) = self.columns else {
            return format!("{indent}{text}");
        };
        let options = textwrap::Options::new(columns)
            .initial_indent(indent)
            .subsequent_indent(indent);
        textwrap::fill(&text, options.break_words(false))
    }

    /// Returns the borders of tables, in the notation of `comfy-table`.
    pub fn borders(self) -> &'static str {
        use comfy_table::presets::{ASCII_FULL_CONDENSED, UTF8_FULL_CONDENSED};
        if self.plain {
            ASCII_FULL_CONDENSED
        } else {
            UTF8_FULL_CONDENSED
        }
    }
}

/// Returns whether a locale's name has a UTF-8 encoding.
fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Formats nanoseconds with a suitable unit.
pub fn duration(time: Nanos) -> String {
    let ns = time.0;
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")] {
        if ns > 0 && ns.is_multiple_of(unit) {
            return format!("{} {name}", ns / unit);
        }
    }
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats a number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns `part / whole`, or 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// The minimum, the median and the maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Smallest.
    pub min: u64,
    /// Median; the lower one if the number of values is even.
    pub median: u64,
    /// Largest.
    pub max: u64,
}

impl Spread {
    /// Returns the spread of these values, if there are any.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        Some(Self {
            min: *values.first()?,
            median: values[(values.len() - 1) / 2],
            max: *values.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_even_and_odd_counts() {
        assert_eq!(
            Spread::of([5, 1, 3]),
            Some(Spread {
                min: 1,
                median: 3,
                max: 5
            })
        );
        assert_eq!(
            Spread::of([4, 1, 3, 2]),
            Some(Spread {
                min: 1,
                median: 2,
                max: 4
            })
        );
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn plain_text_is_ascii_that_programs_can_read() {
        let plain = Style {
            plain: true,
            columns: None,
        };
        let rich = Style {
            plain: false,
            columns: Some(20),
        };
        assert_eq!(
            plain.show(&format!(
                "{} × {}",
                grouped(1_234_567),
                duration(Nanos(2_000))
            )),
            "1234567 x 2 us"
        );
        assert_eq!(rich.show("1\u{202f}234 × 2 µs"), "1\u{202f}234 × 2 µs");
        assert_eq!(
            rich.wrap("some words that do not fit", "  "),
            "  some words that do\n  not fit"
        );
        assert_eq!(
            plain.wrap("some words that do not fit", "  "),
            "  some words that do not fit"
        );
        assert!(
            is_utf8("C.UTF-8")
                && is_utf8("de_DE.utf8")
                && !is_utf8("C")
                && !is_utf8("de_DE.ISO-8859-1")
        );
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!(duration(Nanos(9_999)), "9999 ns");
        assert_eq!(duration(Nanos(1_250_001)), "1250.0 µs");
        assert_eq!(duration(Nanos(12_345_678_901)), "12.35 s");
        assert_eq!(duration(Nanos(1_000_000)), "1 ms");
        assert_eq!(duration(Nanos(0)), "0 ns");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
    }
}
