//! Samples of one quantity: how many, the least, the mean and the greatest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::{Deserialize, Serialize};

/// A summary of samples, in cycles unless the profile was imported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// The least sample.
    pub min: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The greatest sample.
    pub max: u64,
    /// Number of samples, at least 1.
    pub samples: u32,
}

impl Times {
    /// Returns the summary of one sample.
    pub fn one(sample: u64) -> Self {
        Self {
            min: sample,
            mean: sample as f64,
            max: sample,
            samples: 1,
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        self.min = self.min.min(sample);
        self.max = self.max.max(sample);
        self.samples += 1;
        self.mean += (sample as f64 - self.mean) / f64::from(self.samples);
    }

    /// Returns the summary of these samples; `None` if there are none.
    pub fn of(samples: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut samples = samples.into_iter();
        let mut times = Self::one(samples.next()?);
        samples.for_each(|sample| times.add(sample));
        Some(times)
    }

    /// Returns a contradiction in the summary, if there is any.
    pub fn fault(&self) -> Option<&'static str> {
        // A mean that was rounded may leave the range by less than the last digit of the greatest
        // value.
        let slack = 1e-6 * self.max as f64 + 1e-6;
        if self.samples == 0 {
            Some("no samples")
        } else if self.min > self.max {
            Some("the minimum is above the maximum")
        } else if !self.mean.is_finite()
            || self.mean < self.min as f64 - slack
            || self.mean > self.max as f64 + slack
        {
            Some("the mean is not between minimum and maximum")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn summaries_agree_with_their_samples(
            samples in proptest::collection::vec(0..1_u64 << 50, 1..40),
        ) {
            let times = Times::of(samples.iter().copied()).unwrap();
            prop_assert_eq!(times.min, *samples.iter().min().unwrap());
            prop_assert_eq!(times.max, *samples.iter().max().unwrap());
            prop_assert_eq!(times.samples as usize, samples.len());
            let sum: u128 = samples.iter().map(|&sample| u128::from(sample)).sum();
            let mean = sum as f64 / samples.len() as f64;
            prop_assert!((times.mean - mean).abs() <= 1e-9 * mean.max(1.0));
            prop_assert_eq!(times.fault(), None);
        }
    }

    #[test]
    fn contradictions_are_named() {
        let times = Times {
            min: 1,
            mean: 2.0,
            max: 3,
            samples: 2,
        };
        assert_eq!(times.fault(), None);
        assert_eq!(
            Times {
                samples: 0,
                ..times
            }
            .fault(),
            Some("no samples")
        );
        assert_eq!(
            Times { min: 4, ..times }.fault(),
            Some("the minimum is above the maximum")
        );
        for mean in [0.5, 3.5, f64::NAN, f64::INFINITY] {
            assert_eq!(
                Times { mean, ..times }.fault(),
                Some("the mean is not between minimum and maximum")
            );
        }
        assert_eq!(Times::of([]), None);
    }
}
