//! Formats numbers for people.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::units::Nanos;

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
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
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
        Some(Self { min: *values.first()?, median: values[(values.len() - 1) / 2], max: *values.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_even_and_odd_counts() {
        assert_eq!(Spread::of([5, 1, 3]), Some(Spread { min: 1, median: 3, max: 5 }));
        assert_eq!(Spread::of([4, 1, 3, 2]), Some(Spread { min: 1, median: 2, max: 4 }));
        assert_eq!(Spread::of([]), None);
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
