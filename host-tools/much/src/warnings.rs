//! Warnings about measurements that can be merged nevertheless.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{FEWEST_RUNS, Measurements, SubExperiment, Warning, is_stepped};

impl Measurements {
    /// Returns what a user should know before trusting the result.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut found = vec![];
        if self.incomplete_runs > 0 {
            found.push(Warning::Incomplete(self.incomplete_runs));
        }
        for (number, event, runs) in &self.strays {
            found.push(Warning::Stray { number: *number, event: event.clone(), runs: *runs });
        }
        let few: Vec<_> = self.sub_experiments.iter().filter(|sub| sub.runs() < FEWEST_RUNS).collect();
        if let Some(fewest) = few.iter().map(|sub| sub.runs()).min() {
            found.push(Warning::FewRuns { numbers: few.iter().map(|sub| sub.number).collect(), fewest });
        }
        let runs = || self.sub_experiments.iter().map(SubExperiment::runs);
        if let (Some(fewest), Some(most)) = (runs().min(), runs().max())
            && fewest != most
        {
            found.push(Warning::UnequalRuns { fewest, most });
        }
        for (index, event) in self.events.iter().enumerate() {
            let mut values = self.grouped(index);
            if is_stepped(self, index, &values) {
                found.push(Warning::Stepped { event: event.name.clone() });
                continue;
            }
            values.sort_unstable_by(f64::total_cmp);
            let longest = values.chunk_by(|a, b| a == b).max_by_key(|same| same.len());
            let Some(same) = longest else { continue };
            let share = same.len() as f64 / values.len() as f64;
            if same.len() == values.len() {
                found.push(Warning::Constant { event: event.name.clone(), value: same[0] });
            } else if share >= 0.25 {
                found.push(Warning::Ties { event: event.name.clone(), value: same[0], share: share * 100.0 });
            }
        }
        found
    }
}
