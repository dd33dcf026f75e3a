//! The search for the parameters with the least error: a downhill simplex over logarithms, then whole steps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::neldermead::NelderMead;
use miette::{Result, miette};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A parameter may change by this factor at most, in both directions.
pub const FACTOR: f64 = 4.0;
/// The simplex' first steps: by a third.
const FIRST_STEP: f64 = 1.33;
/// The most vertices that the simplex may try.
const STEPS: u64 = 60;
/// The simplex has converged when its vertices' errors differ by less.
const CONVERGED: f64 = 1e-3;

/// The parameters that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// A value for each parameter.
    pub values: Vec<u64>,
    /// Their error.
    pub error: f64,
    /// How many sets of values were tried.
    pub tried: usize,
}

/// Returns the least and the largest value of a parameter that starts at this one.
fn range(start: u64) -> (u64, u64) {
    let [least, most] = [start as f64 / FACTOR, start as f64 * FACTOR].map(|value| value.round() as u64);
    (least.max(1), most)
}

/// What has been tried, each once: neighbors in the simplex are often the same whole numbers.
struct Search<'a, F> {
    start: &'a [u64],
    error: RefCell<F>,
    known: RefCell<BTreeMap<Vec<u64>, f64>>,
    failed: RefCell<Option<miette::Report>>,
}

impl<F: FnMut(&[u64]) -> Result<f64>> Search<'_, F> {
    /// Returns whole values from logarithms of factors on the start, in range.
    fn values(&self, logarithms: &[f64]) -> Vec<u64> {
        let most = FACTOR.ln();
        let one = |(start, logarithm): (&u64, &f64)| {
            (*start as f64 * logarithm.clamp(-most, most).exp()).round().max(1.0) as u64
        };
        self.start.iter().zip(logarithms).map(one).collect()
    }

    /// Returns the error of some values; infinite once a trial has failed.
    fn try_out(&self, values: &[u64]) -> f64 {
        if let Some(error) = self.known.borrow().get(values) {
            return *error;
        }
        if self.failed.borrow().is_some() {
            return f64::INFINITY;
        }
        let error = (*self.error.borrow_mut())(values).unwrap_or_else(|report| {
            *self.failed.borrow_mut() = Some(report);
            f64::INFINITY
        });
        self.known.borrow_mut().insert(values.to_vec(), error);
        error
    }

    /// Improves values by whole steps of one parameter at a time, of 1 to about a tenth, until none helps.
    fn polish(&self, mut values: Vec<u64>) -> Vec<u64> {
        loop {
            let before = self.try_out(&values);
            for index in 0..values.len() {
                let mut step = (values[index] / 10).max(1);
                while step > 0 {
                    let (least, most) = range(self.start[index]);
                    let (lower, upper) = (values[index].saturating_sub(step), values[index].saturating_add(step));
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

impl<F: FnMut(&[u64]) -> Result<f64>> CostFunction for &Search<'_, F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, logarithms: &Self::Param) -> Result<f64, Error> {
        Ok(self.try_out(&self.values(logarithms)))
    }
}

/// Returns the values with the least error that a search from `start` finds.
///
/// # Errors
///
/// Returns the error of the first trial that failed.
pub fn search(start: &[u64], error: impl FnMut(&[u64]) -> Result<f64>) -> Result<Best> {
    let search = Search { start, error: RefCell::new(error), known: RefCell::default(), failed: RefCell::default() };
    let origin = vec![0.0; start.len()];
    let mut simplex = vec![origin.clone()];
    simplex.extend((0..start.len()).map(|index| {
        let mut vertex = origin.clone();
        vertex[index] = FIRST_STEP.ln();
        vertex
    }));
    let solver = NelderMead::new(simplex).with_sd_tolerance(CONVERGED).map_err(|error| miette!("{error}"))?;
    let done = Executor::new(&search, solver).configure(|state| state.max_iters(STEPS)).run();
    let state = done.map_err(|error| miette!("{error}"))?.state;
    let found = state.get_best_param().map_or_else(|| start.to_vec(), |logarithms| search.values(logarithms));
    let values = search.polish(found);
    let error = search.try_out(&values);
    if let Some(report) = search.failed.take() {
        return Err(report);
    }
    Ok(Best { error, values, tried: search.known.borrow().len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root of the mean square of two benchmarks' errors: one depends on the first parameter, one on both.
    fn error(hidden: [u64; 2]) -> impl FnMut(&[u64]) -> Result<f64> {
        let results = |values: &[u64]| [1.0 + values[0] as f64, 2.0 + (values[0] + values[1]) as f64];
        let measured = results(&hidden);
        move |values: &[u64]| {
            let squares = results(values).iter().zip(measured).map(|(ours, theirs)| (ours / theirs).ln().powi(2)).sum();
            Ok(f64::sqrt(squares))
        }
    }

    #[test]
    fn hidden_parameters_are_found() {
        for hidden in [[19, 170], [9, 80], [13, 124], [30, 300]] {
            let best = search(&[13, 124], error(hidden)).expect("a result");
            assert_eq!((best.values.as_slice(), best.error), (hidden.as_slice(), 0.0), "after {}", best.tried);
            assert!(best.tried < 200, "{} trials", best.tried);
        }
    }

    #[test]
    fn each_set_of_values_is_tried_once_and_in_range() {
        let mut tried = vec![];
        let best = search(&[100], |values| {
            tried.push(values.to_vec());
            Ok(1.0 / values[0] as f64)
        });
        let best = best.expect("a result");
        let number = tried.len();
        assert_eq!(best.tried, number);
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), number, "twice the same");
        assert_eq!((tried[0][0] >= 25, best.values[0]), (true, 400), "four times the start is the limit");
    }

    #[test]
    fn a_trial_that_fails_ends_the_search() {
        let mut tried = 0;
        let failed = search(&[10, 10], |_| {
            tried += 1;
            if tried == 3 { Err(miette!("no board")) } else { Ok(f64::from(tried)) }
        });
        assert_eq!(failed.expect_err("the third fails").to_string(), "no board");
        assert_eq!(tried, 3, "nothing is tried after it");
    }
}
