//! Repeated counts of one event in one benchmark.
// SPDX-License-Identifier: MIT OR Apache-2.0

use statrs::statistics::{Data, OrderStatistics, Statistics};

/// Fewest runs among which one can be an outlier.
const FEWEST: usize = 4;

/// The counts of all runs, summarized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Number of runs; at least one.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; 0 for a single run.
    pub spread: f64,
    /// The least count.
    pub least: f64,
    /// The greatest count.
    pub most: f64,
    /// Number of runs that are further than 1.5 interquartile ranges from the nearer quartile
    /// (Tukey's fences). They are counted and shown, not left out: a counter that is wrong in one
    /// run of many is wrong.
    pub outliers: usize,
}

impl Sample {
    /// Summarizes the counts of all runs. Returns `None` if there are none.
    pub fn of(counts: &[u64]) -> Option<Self> {
        let values: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
        if values.is_empty() {
            return None;
        }
        let outliers = if values.len() < FEWEST {
            0
        } else {
            let mut data = Data::new(values.clone());
            let (low, high, range) = (
                data.lower_quartile(),
                data.upper_quartile(),
                data.interquartile_range(),
            );
            let fences = low - 1.5 * range..=high + 1.5 * range;
            values
                .iter()
                .filter(|value| !fences.contains(value))
                .count()
        };
        Some(Self {
            runs: values.len(),
            mean: (&values).mean(),
            spread: if values.len() < 2 {
                0.0
            } else {
                (&values).std_dev()
            },
            least: (&values).min(),
            most: (&values).max(),
            outliers,
        })
    }

    /// Returns whether no run counted anything.
    pub fn is_zero(&self) -> bool {
        self.most == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_summarized_with_their_outliers() {
        assert_eq!(Sample::of(&[]), None);
        let one = Sample::of(&[7]).expect("a run");
        assert_eq!((one.mean, one.spread, one.outliers), (7.0, 0.0, 0));
        let several = Sample::of(&[10, 12, 11, 9, 8, 100]).expect("runs");
        assert_eq!(
            (several.runs, several.mean, several.least, several.most),
            (6, 25.0, 8.0, 100.0)
        );
        assert_eq!(several.outliers, 1);
        assert!(
            (several.spread - 36.769).abs() < 0.001,
            "{}",
            several.spread
        );
        assert!(!several.is_zero() && Sample::of(&[0, 0]).expect("runs").is_zero());
    }

    #[test]
    fn equal_counts_have_no_outliers_and_one_that_differs_is_one() {
        assert_eq!(Sample::of(&[5; 9]).expect("runs").outliers, 0);
        assert_eq!(
            Sample::of(&[5, 5, 5, 5, 5, 5, 5, 6])
                .expect("runs")
                .outliers,
            1
        );
    }
}
