//! Runs of which all events are known, as if other events of them had been counted together.
//!
//! On a board, another split of the events over HRM's sub-experiments takes other runs. A model
//! counts all events of every run, so that each split can be judged by the same ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::data::{DataError, Measurements, SubExperiment};
use crate::evaluate::{Both, mean_square};
use crate::merge;
use crate::parallel;

/// What splits are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Complete<'a> {
    /// Runs in sub-experiments, each of which has counted all events.
    pub runs: &'a Measurements,
    /// HRM's anchor, as an index of an event.
    pub anchor: usize,
    /// The true correlations.
    pub truth: &'a Both,
    /// The pairs of events to judge.
    pub pairs: &'a [(usize, usize)],
}

/// Returns the runs as if the n-th sub-experiment had counted the anchor and the n-th part of the
/// events alone. So no run is used for two sub-experiments, as on a board. A sub-experiment without
/// a part has counted the anchor alone.
pub fn regrouped(runs: &Measurements, anchor: usize, parts: &[Vec<usize>]) -> Measurements {
    let of_part = |(number, sub): (usize, &SubExperiment)| {
        let part = parts.get(number).map_or(&[][..], Vec::as_slice);
        let is_counted = |event: &usize| *event == anchor || part.contains(event);
        let columns = sub.events.iter().copied().zip(&sub.columns);
        let (events, columns) = columns
            .filter(|(event, _)| is_counted(event))
            .map(|(event, column)| (event, column.clone()))
            .unzip();
        SubExperiment {
            number: sub.number,
            events,
            columns,
            places: sub.places.clone(),
            numbers: sub.numbers.clone(),
        }
    };
    Measurements {
        events: runs.events.clone(),
        sub_experiments: runs
            .sub_experiments
            .iter()
            .enumerate()
            .map(of_part)
            .collect(),
        incomplete_runs: 0,
        strays: vec![],
    }
}

impl Complete<'_> {
    /// Returns the mean square errors of HRM's merge with these parts: of Pearson's and of
    /// Spearman's correlations.
    ///
    /// # Errors
    /// If an event is in no part.
    pub fn error_of(&self, parts: &[Vec<usize>]) -> Result<[f64; 2], DataError> {
        let data = regrouped(self.runs, self.anchor, parts);
        let correlations = merge::hrm(&data, self.anchor, None)?.correlations();
        Ok([0, 1].map(|kind| mean_square(&correlations[kind], &self.truth[kind], self.pairs)))
    }

    /// Returns the errors of HRM with each of these splits, in their order.
    ///
    /// # Errors
    /// As [`Self::error_of`].
    pub fn errors_of(&self, splits: &[Vec<Vec<usize>>]) -> Result<Vec<[f64; 2]>, DataError> {
        parallel::of_all(splits, |parts| self.error_of(parts))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Builder;
    use crate::evaluate::{judged_pairs, reference};

    /// Runs of an anchor, two events that follow each other and not the anchor, and one that
    /// follows the anchor.
    fn runs() -> Measurements {
        let mut builder = Builder::default();
        let mut state = 7_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) % 1000
        };
        for run in 0..600 {
            let (one, other, noise) = (next(), next(), next());
            let events = [
                ("cycles", one),
                ("misses", other),
                ("writes", other + noise / 10),
                ("stalls", one + noise / 5),
            ];
            for (name, value) in events {
                builder
                    .add(run % 3, run / 3, None, name.as_bytes(), value as f64)
                    .expect("a count");
            }
        }
        builder.finish().expect("measurements")
    }

    #[test]
    fn hrm_keeps_what_is_counted_together_and_loses_what_is_not() {
        let runs = runs();
        let event = |name: &str| runs.event(name).expect("an event");
        let [cycles, misses, writes, stalls] = ["cycles", "misses", "writes", "stalls"].map(event);
        let (truth, pairs) = (reference(&runs), judged_pairs(&runs));
        let complete = Complete {
            runs: &runs,
            anchor: cycles,
            truth: &truth,
            pairs: &pairs,
        };
        let together = vec![vec![misses, writes], vec![stalls]];
        let apart = vec![vec![misses, stalls], vec![writes]];
        let errors = complete
            .errors_of(&[together.clone(), apart])
            .expect("both have all events");
        for kind in 0..2 {
            assert!(
                errors[0][kind] < 0.01 && errors[1][kind] > 0.1,
                "{errors:?}"
            );
        }
        let lacking = complete.error_of(&[vec![misses], vec![stalls]]);
        assert!(
            matches!(lacking, Err(DataError::NotWithAnchor { .. })),
            "{lacking:?}"
        );
        // No run serves two sub-experiments, and each has the anchor.
        let regrouped = regrouped(&runs, cycles, &together);
        let events: Vec<_> = regrouped
            .sub_experiments
            .iter()
            .map(|sub| (sub.events.len(), sub.runs()))
            .collect();
        assert_eq!(events, [(3, 200), (2, 200), (1, 200)]);
        assert_eq!(
            regrouped.sub_experiments[1].column(stalls),
            runs.sub_experiments[1].column(stalls)
        );
    }
}
