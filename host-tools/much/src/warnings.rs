//! Warnings about measurements that can be merged nevertheless.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{FEWEST_RUNS, Measurements, SubExperiment, Warning, is_stepped};
use crate::parallel;

impl Measurements {
    /// Returns the warnings that a user should read before trusting the result.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut found = vec![];
        if self.incomplete_runs > 0 {
            found.push(Warning::Incomplete(self.incomplete_runs));
        }
        for (number, event, runs) in &self.strays {
            found.push(Warning::Stray {
                number: *number,
                event: event.clone(),
                runs: *runs,
            });
        }
        let few: Vec<_> = self
            .sub_experiments
            .iter()
            .filter(|sub| sub.runs() < FEWEST_RUNS)
            .collect();
        if let Some(fewest) = few.iter().map(|sub| sub.runs()).min() {
            found.push(Warning::FewRuns {
                numbers: few.iter().map(|sub| sub.number).collect(),
                fewest,
            });
        }
        let runs = || self.sub_experiments.iter().map(SubExperiment::runs);
        if let (Some(fewest), Some(most)) = (runs().min(), runs().max())
            && fewest != most
        {
            found.push(Warning::UnequalRuns { fewest, most });
        }
        let of_events = parallel::of_each(self.events.len(), |event| self.warning_of(event));
        found.extend(of_events.into_iter().flatten());
        found
    }

    fn warning_of(&self, event: usize) -> Option<Warning> {
        let name = || self.events[event].name.clone();
        if is_stepped(self, event, &self.grouped(event)) {
            return Some(Warning::Stepped { event: name() });
        }
        let values = self.sorted(event).to_vec();
        let same = values
            .chunk_by(|a, b| a == b)
            .max_by_key(|same| same.len())?;
        let share = same.len() as f64 / values.len() as f64;
        if same.len() == values.len() {
            return Some(Warning::Constant {
                event: name(),
                value: same[0],
            });
        }
        (share >= 0.25).then(|| Warning::Ties {
            event: name(),
            value: same[0],
            share: share * 100.0,
        })
    }
}
