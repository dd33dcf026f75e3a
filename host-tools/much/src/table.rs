//! Merged vectors: one row per vector, one column per event, every value an observed one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counts::Counts;
use crate::data::{Event, Measurements, SubExperiment};
use crate::parallel;
use nalgebra::DMatrix;
use std::sync::Arc;

/// The values of one event in all vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Observations in ascending order.
    observed: Arc<Counts>,
    /// For each vector, the index of its observation.
    chosen: Vec<u32>,
}

/// Scores of a column's observations of one kind, scaled to mean 0 and variance 1 over the vectors.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Twice the ranks of the observations among the vectors; empty where counts are scored.
    ranks: Vec<u32>,
    mean: f64,
    /// 0 if the column does not vary.
    deviation: f64,
}

impl Column {
    /// Creates a column from ascending observations and, for each vector, the index of its
    /// observation.
    pub fn new(observed: Arc<Counts>, chosen: Vec<u32>) -> Self {
        debug_assert!(
            observed.is_sorted() && chosen.iter().all(|&at| (at as usize) < observed.len())
        );
        Self { observed, chosen }
    }
    /// Creates a column with these values.
    pub fn of_values(values: &[f64]) -> Self {
        let values = Counts::from(values.to_vec());
        let order = values.ascending();
        let mut chosen = vec![0; values.len()];
        for (rank, &at) in order.iter().enumerate() {
            chosen[at as usize] = rank as u32;
        }
        Self {
            observed: Arc::new(order.iter().map(|&at| values.get(at as usize)).collect()),
            chosen,
        }
    }
    /// Returns the value in a vector.
    pub fn value(&self, vector: usize) -> f64 {
        self.observed.get(self.chosen[vector] as usize)
    }
    /// Returns all values, vector by vector.
    pub fn values(&self) -> Vec<f64> {
        self.chosen
            .iter()
            .map(|&at| self.observed.get(at as usize))
            .collect()
    }
    /// Returns the observations in ascending order.
    pub fn observed(&self) -> &Arc<Counts> {
        &self.observed
    }
    /// Returns for each vector the index of its observation.
    pub fn chosen(&self) -> &[u32] {
        &self.chosen
    }
    /// Returns for each vector the index of its observation, and leaves the column without vectors.
    pub(crate) fn take_chosen(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.chosen)
    }
    /// Returns the number of vectors that have each of the observations.
    fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0_u32; self.observed.len()];
        for &at in &self.chosen {
            uses[at as usize] += 1;
        }
        uses
    }
    /// Returns the observations in ascending order, each with the number of vectors that have it.
    pub fn distribution(&self) -> Vec<(f64, u32)> {
        self.observed.iter().zip(self.uses()).collect()
    }
    /// Returns the scales of observations: of the counts themselves and of their ranks.
    pub fn scales(&self) -> [Scale; 2] {
        let uses = self.uses();
        let mut ranks = Vec::with_capacity(uses.len());
        let mut before = 0;
        while ranks.len() < uses.len() {
            let from = ranks.len();
            let same = (from..uses.len())
                .take_while(|&at| self.observed.get(at) == self.observed.get(from))
                .count();
            let count: u32 = uses[from..from + same].iter().sum();
            ranks.resize(from + same, 2 * before + count + 1);
            before += count;
        }
        let count = self.chosen.len() as f64;
        let scale = |ranks: Vec<u32>| {
            let mut scale = Scale {
                ranks,
                mean: 0.0,
                deviation: 1.0,
            };
            let mean_of = |scale: &Scale, of: &dyn Fn(f64) -> f64| {
                uses.iter()
                    .enumerate()
                    .map(|(at, &uses)| of(scale.score(self, at)) * f64::from(uses))
                    .sum::<f64>()
                    / count
            };
            scale.mean = mean_of(&scale, &|score| score);
            let deviation = mean_of(&scale, &|score| score * score).sqrt();
            scale.deviation = if deviation > scale.mean.abs() * 1e-14 {
                deviation
            } else {
                0.0
            };
            scale
        };
        [scale(vec![]), scale(ranks)]
    }
}

impl Scale {
    /// Returns whether the column varies.
    pub fn varies(&self) -> bool {
        self.deviation != 0.0
    }
    /// Returns the score of an observation of the column by its index; 0 if the column does not
    /// vary.
    #[inline]
    pub fn score(&self, column: &Column, at: usize) -> f64 {
        if self.deviation == 0.0 {
            return 0.0;
        }
        let value = self
            .ranks
            .get(at)
            .map_or_else(|| column.observed.get(at), |&rank| f64::from(rank) / 2.0);
        (value - self.mean) / self.deviation
    }
}

/// Vectors of all events.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    /// The events, one for each column.
    pub events: Vec<Event>,
    /// The columns.
    pub columns: Vec<Column>,
}

impl Vectors {
    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.chosen.len())
    }
    /// Returns the vectors as measurements with one sub-experiment that counts everything.
    pub fn measurements(&self) -> Measurements {
        let columns = self
            .columns
            .iter()
            .map(|column| column.values().into())
            .collect();
        let all = SubExperiment {
            number: 0,
            events: (0..self.columns.len()).collect(),
            columns,
            places: vec![],
            numbers: Default::default(),
        };
        Measurements {
            events: self.events.clone(),
            sub_experiments: vec![all],
            ..Measurements::default()
        }
    }
    /// Returns whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns Pearson's and Spearman's correlations of all pairs; 0 if an event does not vary.
    pub fn correlations(&self) -> [DMatrix<f64>; 2] {
        let scales = parallel::of_all(&self.columns, Column::scales);
        let events = self.columns.len();
        let mut both = [0, 1].map(|which| {
            const ROWS: usize = 1024;
            let starts: Vec<_> = (0..self.len()).step_by(ROWS).collect();
            let products = parallel::of_all(&starts, |&from| {
                let rows = ROWS.min(self.len() - from);
                let mut scores = DMatrix::zeros(events, rows);
                // Event by event: the scores of one stay in a core's cache.
                for (event, column) in self.columns.iter().enumerate() {
                    for (score, &at) in scores
                        .row_mut(event)
                        .iter_mut()
                        .zip(&column.chosen[from..from + rows])
                    {
                        *score = scales[event][which].score(column, at as usize);
                    }
                }
                &scores * scores.transpose()
            });
            // Summed in a fixed order, whichever thread computed the parts.
            products
                .into_iter()
                .fold(DMatrix::zeros(events, events), |sum, product| sum + product)
                / self.len() as f64
        });
        for matrix in &mut both {
            matrix.fill_diagonal(1.0);
        }
        both
    }
}

/// Returns the index of the value that the vector of rank `rank` gets, among `observations`
/// ascending values for `vectors` vectors. If the numbers are equal, it is the rank; otherwise
/// values are evenly repeated or thinned.
pub fn quantile_index(rank: usize, vectors: usize, observations: usize) -> usize {
    ((2 * rank + 1) * observations) / (2 * vectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores;

    #[test]
    fn quantiles_keep_every_observation() {
        assert_eq!(
            (0..5)
                .map(|rank| quantile_index(rank, 5, 5))
                .collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
        for (vectors, observations) in [(10, 3), (7, 5), (100, 99), (12, 4)] {
            let mut uses = vec![0; observations];
            (0..vectors).for_each(|rank| uses[quantile_index(rank, vectors, observations)] += 1);
            let few = vectors / observations;
            assert!(
                uses.iter().all(|&uses| uses == few || uses == few + 1),
                "{vectors} of {observations}: {uses:?}"
            );
        }
    }

    #[test]
    fn correlations_are_those_of_the_values() {
        let values = [
            [1.0, 4.0, 2.0, 2.0, 9.0],
            [3.0, 1.0, 3.0, 5.0, 0.0],
            [7.0, 7.0, 7.0, 7.0, 7.0],
        ];
        let events = ["a", "b", "c"]
            .map(|name| Event {
                name: name.to_owned(),
                code: None,
            })
            .to_vec();
        let vectors = Vectors {
            events,
            columns: values
                .iter()
                .map(|values| Column::of_values(values))
                .collect(),
        };
        let [pearson, spearman] = vectors.correlations();
        assert!((pearson[(0, 1)] - scores::pearson(&values[0], &values[1])).abs() < 1e-12);
        assert!((spearman[(0, 1)] - scores::spearman(&values[0], &values[1])).abs() < 1e-12);
        assert_eq!((pearson[(0, 2)], pearson[(2, 2)]), (0.0, 1.0));
        assert_eq!(vectors.columns[0].values(), values[0]);
    }
}
