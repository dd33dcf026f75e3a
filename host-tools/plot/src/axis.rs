//! The axes of a plot: their ranges, and ticks at round values.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::text::grouped;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// An axis with its ticks, in the unit of the data, even if it is logarithmic.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    is_log: bool,
}

/// Where an axis begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At zero, or at the lowest value if that is negative.
    Zero,
    /// At the lowest value.
    Lowest,
}

impl Axis {
    /// Returns an axis from its start to the highest value, with at most `most` ticks. Its ticks are
    /// whole numbers if all values are.
    pub fn linear(values: &[f64], start: Start, most: usize) -> Self {
        let (lowest, highest) = ends(values);
        let low = match start {
            Start::Lowest => lowest,
            Start::Zero => lowest.min(0.0),
        };
        // An axis needs a length even with a single value or none.
        let (low, high) = match (start, low < highest) {
            (Start::Lowest, true) => (low, highest),
            (Start::Lowest, false) => (low - 0.5, low + 0.5),
            (Start::Zero, true) => (low, low + (highest - low) * 1.08),
            (Start::Zero, false) => (low, low + 1.0),
        };
        let is_whole = start == Start::Lowest && values.iter().all(|value| value.fract() == 0.0);
        let step = step(high - low, most, is_whole);
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        Self {
            low,
            high,
            ticks: (first..=last).map(|tick| tick as f64 * step).collect(),
            is_log: false,
        }
    }

    /// Returns a logarithmic axis with whole decades. Values that are not positive are at its foot.
    pub fn decades(values: &[f64], most: usize) -> Self {
        let lowest = values
            .iter()
            .copied()
            .filter(|&value| value > 0.0)
            .fold(f64::INFINITY, f64::min);
        if !lowest.is_finite() {
            return Self {
                low: 1.0,
                high: 10.0,
                ticks: vec![1.0, 10.0],
                is_log: true,
            };
        }
        let (bottom, top) = (lowest.log10().floor(), ends(values).1.log10().ceil());
        let top = top.max(bottom + 1.0);
        let stride = ((top - bottom) as usize / most.max(1) + 1) as i32;
        let ticks =
            (bottom as i32..=top as i32).filter(|power| (power - bottom as i32) % stride == 0);
        let ticks = ticks.map(|power| 10f64.powi(power)).collect();
        Self {
            low: 10f64.powf(bottom - 0.25),
            high: 10f64.powf(top),
            ticks,
            is_log: true,
        }
    }

    /// Returns a logarithmic axis over positive values, with ticks at some of them: at most `most`,
    /// evenly spread.
    pub fn at_values(values: &[f64], most: usize) -> Self {
        let (low, high) = ends(values);
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        let apart = (high / low).log10() / most.max(1) as f64;
        let mut ticks: Vec<f64> = vec![];
        for value in sorted {
            // The highest value has a tick, even if that of a lower one has to give way.
            while value == high
                && ticks.len() > 1
                && ticks
                    .last()
                    .is_some_and(|last| (value / last).log10() < apart)
            {
                ticks.pop();
            }
            if ticks
                .last()
                .is_none_or(|last| (value / last).log10() >= apart)
            {
                ticks.push(value);
            }
        }
        Self {
            low: low / 1.04,
            high: high * 1.04,
            ticks,
            is_log: true,
        }
    }

    /// Returns an axis for groups, at the whole numbers from 0 on, without ticks.
    pub fn groups(number: usize) -> Self {
        Self {
            low: -0.5,
            high: number.max(1) as f64 - 0.5,
            ticks: vec![],
            is_log: false,
        }
    }

    /// Returns its lower end.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Returns the number of letters of its longest label.
    pub fn letters(&self) -> usize {
        self.ticks
            .iter()
            .map(|tick| self.label(*tick).chars().count())
            .max()
            .unwrap_or(0)
    }

    /// Returns the label of a tick: grouped digits, and as many decimals as the ticks need to
    /// differ.
    pub fn label(&self, tick: f64) -> String {
        if self.is_log && tick > 0.0 && !(1e-4..1e6).contains(&tick) && tick.log10().fract() == 0.0
        {
            return format!("1e{}", tick.log10());
        }
        if tick.fract() == 0.0
            && self
                .ticks
                .iter()
                .all(|tick| tick.fract() == 0.0 || self.is_log)
        {
            let sign = if tick < 0.0 { "-" } else { "" };
            return format!("{sign}{}", grouped(tick.abs() as u64));
        }
        if self.is_log {
            return format!("{tick}");
        }
        let step = self
            .ticks
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .next()
            .unwrap_or(1.0);
        let decimals = (-step.log10() + 1e-9).ceil().clamp(0.0, 9.0) as usize;
        format!("{tick:.decimals$}")
    }
}

/// Returns the lowest and the highest value; both 0 if there is none.
fn ends(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low.is_finite() {
        (low, high)
    } else {
        (0.0, 0.0)
    }
}

/// Returns the smallest of 1, 2 and 5 times a power of ten of which at most `most` fit in a length.
fn step(length: f64, most: usize, is_whole: bool) -> f64 {
    let least = length / most.max(1) as f64;
    let power = 10f64.powf(least.log10().floor());
    let found = [1.0, 2.0, 5.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= least * 0.999_999);
    let step = found.unwrap_or(10.0 * power);
    if is_whole { step.max(1.0) } else { step }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let place = |value: f64| {
            if self.is_log {
                value.max(self.low).log10()
            } else {
                value
            }
        };
        let share = (place(*value) - place(self.low)) / (place(self.high) - place(self.low));
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_their_labels_short() {
        assert_eq!(
            labels(&Axis::linear(&[0.2, 1.72], Start::Zero, 6)),
            ["0.0", "0.5", "1.0", "1.5"]
        );
        assert_eq!(
            labels(&Axis::linear(&[2.0, 7.0], Start::Lowest, 9)),
            ["2", "3", "4", "5", "6", "7"],
            "no 2.5 colors"
        );
        assert_eq!(
            labels(&Axis::linear(&[4.0, 5.0], Start::Lowest, 9)),
            ["4", "5"]
        );
        assert_eq!(
            labels(&Axis::linear(&[0.0, 30_000.0], Start::Zero, 3)),
            ["0", "20\u{202f}000"]
        );
        assert!(labels(&Axis::linear(&[], Start::Zero, 5)).len() > 1);
        assert_eq!(labels(&Axis::linear(&[7.0], Start::Lowest, 5)), ["7"]);
    }

    #[test]
    fn a_logarithmic_axis_has_ticks_in_the_unit_of_the_data() {
        let budgets = Axis::at_values(&[200.0, 1000.0, 4000.0], 6);
        assert_eq!(labels(&budgets), ["200", "1\u{202f}000", "4\u{202f}000"]);
        assert!(budgets.map(&200.0, (0, 100)) < 3 && budgets.map(&4000.0, (0, 100)) > 97);
        let middle = budgets.map(&894.4, (0, 100));
        assert!(
            (45..=55).contains(&middle),
            "the geometric mean is in the middle: {middle}"
        );
        let many = Axis::at_values(
            &[
                800.0, 1600.0, 4000.0, 8000.0, 16000.0, 24000.0, 32000.0, 48000.0, 64000.0,
            ],
            5,
        );
        assert_eq!(
            labels(&many),
            ["800", "4\u{202f}000", "16\u{202f}000", "64\u{202f}000"]
        );
        assert_eq!(
            labels(&Axis::decades(&[0.000_02, 30.0, 0.0], 9))[..3],
            ["1e-5", "0.0001", "0.001"]
        );
        assert_eq!(labels(&Axis::decades(&[0.0], 9)), ["1", "10"]);
    }
}
