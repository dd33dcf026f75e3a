//! The result of `cyclictest`: the number of wake-ups of each latency.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::printed;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// cyclictest's results for one thread. Latencies are in microseconds of modelled time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Number of wake-ups of each latency.
    pub histogram: BTreeMap<u64, u64>,
    /// Number of wake-ups.
    pub cycles: u64,
    /// Minimum latency.
    pub min: u64,
    /// Maximum latency; may be beyond the histogram.
    pub max: u64,
    /// Mean latency.
    pub avg: f64,
}

/// The used part of `cyclictest --json`.
#[derive(Deserialize)]
struct Report {
    thread: BTreeMap<String, Latencies>,
}

impl Latencies {
    /// Finds cyclictest's JSON in a VM's output.
    ///
    /// # Errors
    /// If the command has failed, if there is no such JSON or it has several threads, and if its
    /// histogram does not contain all wake-ups.
    pub fn read(said: &str) -> Result<Self> {
        let said = printed::before_success(said)?;
        let start = said
            .find("\n{")
            .ok_or_else(|| miette!("cyclictest printed no JSON"))?;
        let mut documents =
            serde_json::Deserializer::from_str(&said[start..]).into_iter::<Report>();
        let report = documents
            .next()
            .ok_or_else(|| miette!("cyclictest printed no JSON"))?;
        let report = report
            .into_diagnostic()
            .wrap_err("cyclictest's JSON cannot be read")?;
        let mut threads = report.thread.into_values();
        let (Some(latencies), None) = (threads.next(), threads.next()) else {
            return Err(miette!("cyclictest is to have one thread"));
        };
        let counted: u64 = latencies.histogram.values().sum();
        if counted == 0 || counted > latencies.cycles {
            return Err(miette!(
                "{counted} of {} wake-ups are in the histogram",
                latencies.cycles
            ));
        }
        Ok(latencies)
    }

    /// Returns the number of wake-ups later than the histogram's last class.
    pub fn beyond(&self) -> u64 {
        self.cycles.saturating_sub(self.histogram.values().sum())
    }

    /// Returns the histogram as a line, from the class before the first to the one after the last.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let (first, last) = (self.histogram.keys().min(), self.histogram.keys().max());
        let (first, last) = (
            first.map_or(0, |least| least.saturating_sub(1)),
            last.map_or(0, |most| most + 1),
        );
        let point = |latency| {
            (
                latency as f64,
                self.histogram.get(&latency).copied().unwrap_or(0) as f64,
            )
        };
        (first..=last).map(point).collect()
    }

    /// Returns the smallest latency that this many thousandths of the wake-ups do not exceed.
    pub fn permille(&self, permille: u64) -> u64 {
        let mut seen = 0;
        for (latency, count) in &self.histogram {
            seen += count;
            if seen * 1000 >= self.cycles * permille {
                return *latency;
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "up\n\
        {\n  \"file_version\": 1,\n  \"thread\": {\n    \"0\": {\n      \"histogram\": {\n        \"20\": 900,\n        \
        \"21\": 98,\n        \"40\": 1\n      },\n      \"cycles\": 1000,\n      \"min\": 20,\n      \"max\": 1700,\n      \
        \"avg\": 22.15,\n      \"cpu\": 0\n    }\n  }\n}\n\
            cloison: the command ended with status 0\n";

    #[test]
    fn what_cyclictest_prints_is_read() {
        let latencies = Latencies::read(SAID).unwrap();
        assert_eq!(
            (
                latencies.cycles,
                latencies.min,
                latencies.max,
                latencies.beyond()
            ),
            (1000, 20, 1700, 1)
        );
        let points = latencies.points();
        assert_eq!(
            (points.len(), points[0], points[3], points[21]),
            (23, (19.0, 0.0), (22.0, 0.0), (40.0, 1.0))
        );
        assert_eq!(
            [500, 900, 901, 999, 1000].map(|p| latencies.permille(p)),
            [20, 20, 21, 40, 1700]
        );
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let message = |text: &str| Latencies::read(text).unwrap_err().to_string();
        assert!(message(&SAID.replace("status 0", "status 1")).contains("did not succeed"));
        assert!(message("cloison: the command ended with status 0\n").contains("no JSON"));
        assert!(
            message(&SAID.replace("\"cycles\": 1000", "\"cycles\": 998")).contains("999 of 998")
        );
        assert!(message(&SAID.replace("\"max\"", "\"most\"")).contains("cannot be read"));
    }
}
