//! The search for the parameters with the least error: Gauss-Newton steps, a downhill simplex, then
//! whole steps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::neldermead::NelderMead;
use miette::{Result, miette};
use nalgebra::{DMatrix, DVector};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Maximum factor by which a parameter may change, in both directions.
pub const FACTOR: f64 = 4.0;
/// The simplex' first steps: by a third.
const FIRST_STEP: f64 = 1.33;
/// The most vertices that the simplex may try.
const STEPS: u64 = 60;
/// The most Gauss-Newton steps. Benchmarks are nearly linear in most parameters, so a few suffice.
const NEWTON_STEPS: usize = 5;
/// How far a parameter is moved to see what depends on it: by a tenth, as rounding hides less.
const DIFFERENCE: f64 = 1.1;
/// Below this error the simplex is left out, and below a thousandth of it nothing is improved.
const GOOD: f64 = 5e-3;
/// The simplex has converged when its vertices' errors differ by less.
const CONVERGED: f64 = 1e-3;

/// The parameters that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// A value for each parameter.
    pub values: Vec<u64>,
    /// Their error: the root of the mean square.
    pub error: f64,
    /// The error of the values at the start.
    pub before: f64,
    /// Number of sets of values that were tried.
    pub tried: usize,
}

/// Returns the least and the largest value of a parameter that starts at this one.
fn range(start: u64) -> (u64, u64) {
    let [least, most] =
        [start as f64 / FACTOR, start as f64 * FACTOR].map(|value| value.round() as u64);
    (least.max(1), most)
}

/// What has been tried, each once: neighbors in the simplex are often the same whole numbers.
struct Search<'a, F> {
    start: &'a [u64],
    error: RefCell<F>,
    known: RefCell<BTreeMap<Vec<u64>, Vec<f64>>>,
    failed: RefCell<Option<miette::Report>>,
}

impl<F: FnMut(&[u64]) -> Result<Vec<f64>>> Search<'_, F> {
    /// Returns whole values from logarithms of factors on the start, in range.
    fn values(&self, logarithms: &[f64]) -> Vec<u64> {
        let most = FACTOR.ln();
        let one = |(start, logarithm): (&u64, &f64)| {
            (*start as f64 * logarithm.clamp(-most, most).exp())
                .round()
                .max(1.0) as u64
        };
        self.start.iter().zip(logarithms).map(one).collect()
    }

    /// Returns the errors of some values; infinite once a trial has failed.
    fn errors(&self, values: &[u64]) -> Vec<f64> {
        if let Some(errors) = self.known.borrow().get(values) {
            return errors.clone();
        }
        if self.failed.borrow().is_some() {
            return vec![f64::INFINITY];
        }
        let errors = (*self.error.borrow_mut())(values).unwrap_or_else(|report| {
            *self.failed.borrow_mut() = Some(report);
            vec![f64::INFINITY]
        });
        self.known
            .borrow_mut()
            .insert(values.to_vec(), errors.clone());
        errors
    }

    /// Returns the error of some values: the root of the mean square.
    fn try_out(&self, values: &[u64]) -> f64 {
        let errors = self.errors(values);
        (errors.iter().map(|error| error * error).sum::<f64>() / errors.len().max(1) as f64).sqrt()
    }

    /// Returns the logarithms of the factors by which values differ from the start.
    fn logarithms(&self, values: &[u64]) -> Vec<f64> {
        self.start
            .iter()
            .zip(values)
            .map(|(start, value)| (*value as f64 / *start as f64).ln())
            .collect()
    }

    /// Returns how all errors change with the logarithm of each parameter, from trials of each
    /// alone.
    fn slopes(&self, values: &[u64]) -> Option<DMatrix<f64>> {
        let here = self.errors(values);
        let mut slopes = DMatrix::zeros(here.len(), values.len());
        for index in 0..values.len() {
            let (least, most) = range(self.start[index]);
            let mut moved = values.to_vec();
            moved[index] =
                ((values[index] as f64 * DIFFERENCE).round() as u64).max(values[index] + 1);
            if moved[index] > most {
                moved[index] = ((values[index] as f64 / DIFFERENCE).round() as u64)
                    .min(values[index] - 1)
                    .max(least);
            }
            let there = self.errors(&moved);
            let by = (moved[index] as f64 / values[index] as f64).ln();
            if there.len() != here.len() || by == 0.0 {
                return None;
            }
            for (row, (there, here)) in there.iter().zip(&here).enumerate() {
                slopes[(row, index)] = (there - here) / by;
            }
        }
        slopes
            .iter()
            .all(|slope| slope.is_finite())
            .then_some(slopes)
    }

    /// Follows the slopes of all errors until that helps no more.
    fn newton(&self, mut values: Vec<u64>) -> Vec<u64> {
        for _ in 0..NEWTON_STEPS {
            let before = self.try_out(&values);
            if before < GOOD / 1000.0 {
                break;
            }
            let Some(slopes) = self.slopes(&values) else {
                break;
            };
            let errors = DVector::from_vec(self.errors(&values));
            // Of parameters that nothing depends on, the singular values are zero, and they stay as
            // they are.
            let Ok(step) = slopes.svd(true, true).solve(&errors, 1e-6) else {
                break;
            };
            let from = self.logarithms(&values);
            let better = [1.0, 0.5, 0.25].into_iter().find_map(|length| {
                let to: Vec<f64> = from
                    .iter()
                    .zip(step.iter())
                    .map(|(from, step)| from - length * step)
                    .collect();
                let next = self.values(&to);
                (self.try_out(&next) < before).then_some(next)
            });
            match better {
                Some(next) => values = next,
                None => break,
            }
        }
        values
    }

    /// Returns the best vertex of a downhill simplex that begins at some values.
    fn simplex(&self, values: &[u64]) -> Result<Vec<u64>> {
        let origin = self.logarithms(values);
        let mut simplex = vec![origin.clone()];
        simplex.extend((0..values.len()).map(|index| {
            let mut vertex = origin.clone();
            vertex[index] += FIRST_STEP.ln();
            vertex
        }));
        let solver = NelderMead::new(simplex)
            .with_sd_tolerance(CONVERGED)
            .map_err(|error| miette!("{error}"))?;
        let done = Executor::new(self, solver)
            .configure(|state| state.max_iters(STEPS))
            .run();
        let state = done.map_err(|error| miette!("{error}"))?.state;
        Ok(state
            .get_best_param()
            .map_or_else(|| values.to_vec(), |logarithms| self.values(logarithms)))
    }

    /// Improves values by whole steps of one parameter at a time, of 1 to about a tenth, until none
    /// helps.
    fn polish(&self, mut values: Vec<u64>) -> Vec<u64> {
        loop {
            let before = self.try_out(&values);
            if before < GOOD / 1000.0 {
                return values;
            }
            for index in 0..values.len() {
                let mut step = (values[index] / 10).max(1);
                while step > 0 {
                    let (least, most) = range(self.start[index]);
                    let (lower, upper) = (
                        values[index].saturating_sub(step),
                        values[index].saturating_add(step),
                    );
                    for changed in [lower.max(least), upper.min(most)] {
                        let mut other = values.clone();
                        other[index] = changed;
                        if self.try_out(&other) < self.try_out(&values) {
                            values = other;
                        }
                    }
                    step /= 2;
                }
            }
            if self.try_out(&values) >= before {
                return values;
            }
        }
    }
}

impl<F: FnMut(&[u64]) -> Result<Vec<f64>>> CostFunction for &Search<'_, F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, logarithms: &Self::Param) -> Result<f64, Error> {
        Ok(self.try_out(&self.values(logarithms)))
    }
}

/// Returns the values with the least error that a search from `start` finds. `error` returns the
/// errors of all measurements with some values; the search minimizes their mean square.
///
/// # Errors
///
/// Returns the error of the first trial that failed.
pub fn search(start: &[u64], error: impl FnMut(&[u64]) -> Result<Vec<f64>>) -> Result<Solution> {
    let search = Search {
        start,
        error: RefCell::new(error),
        known: RefCell::default(),
        failed: RefCell::default(),
    };
    let before = search.try_out(start);
    let near = search.newton(start.to_vec());
    let found = if search.try_out(&near) < GOOD {
        near
    } else {
        search.simplex(&near)?
    };
    let values = search.polish(found);
    let error = search.try_out(&values);
    if let Some(report) = search.failed.take() {
        return Err(report);
    }
    Ok(Solution {
        error,
        before,
        values,
        tried: search.known.borrow().len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two benchmarks' errors: one depends on the first parameter, one on both.
    fn error(hidden: [u64; 2]) -> impl FnMut(&[u64]) -> Result<Vec<f64>> {
        let results =
            |values: &[u64]| [1.0 + values[0] as f64, 2.0 + (values[0] + values[1]) as f64];
        let measured = results(&hidden);
        move |values: &[u64]| {
            Ok(results(values)
                .iter()
                .zip(measured)
                .map(|(ours, theirs)| (ours / theirs).ln())
                .collect())
        }
    }

    #[test]
    fn hidden_parameters_are_found() {
        for hidden in [[19, 170], [9, 80], [13, 124], [30, 300]] {
            let best = search(&[13, 124], error(hidden)).expect("a result");
            assert_eq!(
                (best.values.as_slice(), best.error),
                (hidden.as_slice(), 0.0),
                "after {}",
                best.tried
            );
            assert!(best.tried <= 20, "{} trials", best.tried);
        }
    }

    #[test]
    fn each_set_of_values_is_tried_once_and_in_range() {
        let mut tried = vec![];
        let best = search(&[100], |values| {
            tried.push(values.to_vec());
            Ok(vec![1.0 / values[0] as f64])
        });
        let best = best.expect("a result");
        let number = tried.len();
        assert_eq!(best.tried, number);
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), number, "twice the same");
        assert_eq!(
            (tried[0][0] >= 25, best.values[0]),
            (true, 400),
            "four times the start is the limit"
        );
    }

    #[test]
    fn a_trial_that_fails_ends_the_search() {
        let mut tried = 0;
        let failed = search(&[10, 10], |_| {
            tried += 1;
            if tried == 3 {
                Err(miette!("no board"))
            } else {
                Ok(vec![f64::from(tried)])
            }
        });
        assert_eq!(failed.expect_err("the third fails").to_string(), "no board");
        assert_eq!(tried, 3, "nothing is tried after it");
    }
}
