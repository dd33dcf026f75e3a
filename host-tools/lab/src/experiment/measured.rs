//! The results of one run: the measurement of the victim, and the counts of quotas, pages and the
//! model.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::cyclictest::Latencies;
use super::printed::Printed;
use cloison_engine::model::Region;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The measurement of the victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Its observation segments, from the hypervisor's log.
    #[default]
    Segments,
    /// The latencies that cyclictest prints as JSON in its Linux guest.
    Cyclictest,
    /// The page profile that `bbprof` prints in its Linux guest.
    Profile,
    /// The numbers that a command in its Linux guest prints.
    Printed,
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Hash of all inputs.
    pub inputs: String,
    /// Name of the variant.
    pub variant: String,
    /// Label on each axis.
    pub axes: BTreeMap<String, String>,
    /// The victim's segments after the warm-up, in order; those of all samples, if there are
    /// several.
    pub segments: Vec<Segment>,
    /// The median cycles of each sample, if there are several.
    #[serde(default)]
    pub samples: Vec<u64>,
    /// The model's counts during these segments, on all cores.
    pub regions: Vec<Region>,
    /// Results of the quotas, by core.
    pub quotas: Vec<QuotaOutcome>,
    /// Number of pages that moved to a PVT pool.
    pub pages_moved: u64,
    /// cyclictest's results, if it is the measurement.
    #[serde(default)]
    pub latencies: Option<Latencies>,
    /// The text of bbprof's profile, if it is the measurement.
    #[serde(default)]
    pub profile: Option<String>,
    /// The numbers that its command printed, if they are the measurement.
    #[serde(default)]
    pub printed: Option<Printed>,
    /// SHA-256 of the system image, uncompressed.
    #[serde(default)]
    pub image: String,
}

/// An observation segment, as logged by the hypervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Cycles at EL1 and EL0.
    pub cycles: u64,
    /// Event counts by name.
    pub events: BTreeMap<String, u64>,
}

/// Result of a quota.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaOutcome {
    /// Number of the physical core.
    pub core: u8,
    /// Whether overflow interrupts enforced the quota.
    pub by_interrupt: bool,
    /// Number of periods that ended.
    pub periods: u64,
    /// Number of periods in which the core was held.
    pub throttled_periods: u64,
    /// Total number of events.
    pub events: u64,
    /// Maximum overshoot in one period.
    pub max_overshoot: u64,
    /// Sum of the overshoot of all periods.
    pub overshoot: u64,
}

impl QuotaOutcome {
    /// Adds what the same core did in another sample.
    fn add(&mut self, other: &Self) {
        self.by_interrupt &= other.by_interrupt;
        self.periods += other.periods;
        self.throttled_periods += other.throttled_periods;
        self.events += other.events;
        self.max_overshoot = self.max_overshoot.max(other.max_overshoot);
        self.overshoot += other.overshoot;
    }
}

impl Measured {
    /// Returns the results of several samples of a run as those of one; nothing if there are none.
    pub fn of_samples(samples: Vec<Self>) -> Option<Self> {
        let medians = samples.iter().filter(|one| !one.segments.is_empty());
        let medians: Vec<u64> = medians.map(Self::cycles).collect();
        let number = samples.len();
        let mut samples = samples.into_iter();
        let mut all = samples.next()?;
        for sample in samples {
            all.segments.extend(sample.segments);
            all.regions.extend(sample.regions);
            for quota in sample.quotas {
                match all.quotas.iter_mut().find(|it| it.core == quota.core) {
                    Some(sum) => sum.add(&quota),
                    None => all.quotas.push(quota),
                }
            }
            for (name, numbers) in sample.printed.into_iter().flatten() {
                let printed = all.printed.get_or_insert_default();
                printed.entry(name).or_default().extend(numbers);
            }
        }
        if number > 1 {
            all.samples = medians;
        }
        Some(all)
    }
    /// Returns the median cycles of each sample.
    pub fn sample_cycles(&self) -> Vec<u64> {
        match self.samples.is_empty() {
            true if self.segments.is_empty() => vec![],
            true => vec![self.cycles()],
            false => self.samples.clone(),
        }
    }
    /// Returns its name among the runs of its experiment.
    pub fn key(&self) -> String {
        key(&self.variant, &self.axes)
    }
    /// Returns its name in the names of figures.
    pub fn figure_name(&self) -> String {
        figure_name(&self.key())
    }
    /// Returns the median cycles of the segments; the lower one if their number is even.
    pub fn cycles(&self) -> u64 {
        median(self.segments.iter().map(|segment| segment.cycles))
    }
    /// Returns the median count of an event of the victim.
    pub fn event(&self, name: &str) -> u64 {
        median(
            self.segments
                .iter()
                .map(|segment| segment.events.get(name).copied().unwrap_or(0)),
        )
    }
    /// Returns the smallest count of an event in any segment. Earlier contents of a cache cost some
    /// segments a few more, by chance where the cache chooses its victims at random.
    pub fn fewest(&self, name: &str) -> u64 {
        let counts = self.segments.iter();
        counts
            .map(|segment| segment.events.get(name).copied().unwrap_or(0))
            .min()
            .unwrap_or(0)
    }
    /// Returns the label on an axis.
    pub fn label(&self, axis: &str) -> &str {
        self.axes.get(axis).map_or("", String::as_str)
    }
    /// Returns the number on an axis, if its label is one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.label(axis).parse().ok()
    }
    /// Returns the bytes per second on the cores other than the victim's, from the model's count of
    /// an event and the bytes per event.
    pub fn others_bytes_per_second(
        &self,
        victim: usize,
        event: &str,
        bytes: u64,
        clock_mhz: u64,
    ) -> f64 {
        let others = |region: &Region| {
            let cores = region
                .cores
                .iter()
                .enumerate()
                .filter(|(core, _)| *core != victim);
            let events: u64 = cores.map(|(_, core)| core.event(event)).sum();
            let cycles = region
                .cores
                .iter()
                .map(|core| core.cycles)
                .max()
                .unwrap_or(0)
                .max(1);
            (events * bytes) as f64 / (cycles as f64 / (clock_mhz as f64 * 1e6))
        };
        self.regions.iter().map(others).sum::<f64>() / self.regions.len().max(1) as f64
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0)
}

/// Returns the name of a run: its variant and its labels.
pub fn key(variant: &str, axes: &BTreeMap<String, String>) -> String {
    let labels: String = axes
        .iter()
        .map(|(axis, label)| format!("-{axis}={label}"))
        .collect();
    format!("{variant}{labels}").replace(['/', ' '], "_")
}

/// Returns a name for figures: small letters, digits and underscores.
pub fn figure_name(name: &str) -> String {
    name.to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a run of three segments around this number of cycles, a tenth apart, that counted 7
    /// refills.
    pub(in crate::experiment) fn run(
        variant: &str,
        axes: &[(&str, &str)],
        cycles: u64,
    ) -> Measured {
        let segment = |cycles| Segment {
            cycles,
            events: [("L2D_CACHE_REFILL".to_owned(), 7)].into(),
        };
        Measured {
            variant: variant.to_owned(),
            axes: axes
                .iter()
                .map(|(axis, label)| ((*axis).to_owned(), (*label).to_owned()))
                .collect(),
            segments: [cycles - cycles / 20, cycles, cycles + cycles / 20]
                .map(segment)
                .into(),
            ..Measured::default()
        }
    }

    #[test]
    fn samples_are_one_run_with_all_segments_and_each_median() {
        let quota = |periods, max_overshoot| QuotaOutcome {
            core: 1,
            by_interrupt: true,
            periods,
            throttled_periods: 1,
            events: 10,
            max_overshoot,
            overshoot: 3,
        };
        let sample = |cycles, quota, number| Measured {
            quotas: vec![quota],
            printed: Some([("time".to_owned(), vec![number])].into()),
            ..run("solo", &[], cycles)
        };
        let all = Measured::of_samples(vec![
            sample(2000, quota(5, 2), 1.0),
            sample(1000, quota(7, 4), 3.0),
            sample(3000, quota(1, 1), 2.0),
        ])
        .expect("there are some");
        assert_eq!(all.sample_cycles(), [2000, 1000, 3000]);
        assert_eq!((all.segments.len(), all.cycles()), (9, 2000));
        assert_eq!(all.printed.expect("numbers")["time"], [1.0, 3.0, 2.0]);
        let sum = &all.quotas[0];
        assert_eq!((all.quotas.len(), sum.periods), (1, 13));
        assert_eq!((sum.max_overshoot, sum.overshoot), (4, 9));
        let one = Measured::of_samples(vec![run("solo", &[], 500)]).expect("there is one");
        assert_eq!(one, run("solo", &[], 500), "one sample is the run itself");
        assert_eq!(one.sample_cycles(), [500]);
        assert_eq!(Measured::of_samples(vec![]), None);
    }
}
