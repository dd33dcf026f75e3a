//! k*, the number of pages that is enough: the working set of BBProf's section 4.4.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

/// Default tolerance: a time is enough within 5 % of the difference between the time without pages
/// and the time with all pages.
pub const TOLERANCE: f64 = 0.05;

/// Returns whether `time` is enough: at most `all` plus the part `tolerance` of the difference
/// between `none` and `all`.
pub fn is_enough(time: f64, none: f64, all: f64, tolerance: f64) -> bool {
    time - all <= tolerance * (none - all).max(0.0)
}

/// Returns the least k from which on all times of a curve are enough. The curve's first time is
/// with no page, its last with all. `None` for a curve without times.
pub fn of(curve: &[f64], tolerance: f64) -> Option<usize> {
    let (none, all) = (*curve.first()?, *curve.last()?);
    let is_short = |&time: &f64| !is_enough(time, none, all, tolerance);
    Some(curve.iter().rposition(is_short).map_or(0, |last| last + 1))
}

/// Finds k* with few runs, by halving. It measures none, all, and then about log2(M) more. The
/// times between must fall, up to noise: they do if pages are in order of importance.
#[derive(Clone, Debug)]
pub struct Search {
    pages: usize,
    tolerance: f64,
    /// Each k that was measured.
    times: BTreeMap<usize, f64>,
    /// The greatest k known to be too few, and the least known to be enough.
    bounds: Option<(usize, usize)>,
}

impl Search {
    /// Starts a search among this number of pages.
    pub fn new(pages: usize, tolerance: f64) -> Self {
        Self {
            pages,
            tolerance,
            times: BTreeMap::new(),
            bounds: None,
        }
    }

    /// Returns the next k to measure; `None` when k* is known.
    pub fn next(&self) -> Option<usize> {
        let missing = [0, self.pages]
            .into_iter()
            .find(|k| !self.times.contains_key(k));
        missing.or_else(|| {
            self.bounds
                .filter(|(low, high)| high - low > 1)
                .map(|(low, high)| low + (high - low) / 2)
        })
    }

    /// Adds the time with the k most important pages.
    pub fn add(&mut self, k: usize, time: f64) {
        self.times.insert(k, time);
        let (Some(&none), Some(&all)) = (self.times.get(&0), self.times.get(&self.pages)) else {
            return;
        };
        let enough = |time: f64| is_enough(time, none, all, self.tolerance);
        self.bounds = match self.bounds {
            // If not even the first page matters, k* is 0.
            None if enough(none) => Some((0, 0)),
            None => Some((0, self.pages)),
            Some((low, _)) if enough(time) => Some((low, k)),
            Some((_, high)) => Some((k, high)),
        };
    }

    /// Returns k*, once it is known.
    pub fn found(&self) -> Option<usize> {
        if self.next().is_some() {
            None
        } else {
            self.bounds.map(|(_, high)| high)
        }
    }

    /// Returns every measured k with its time.
    pub fn times(&self) -> &BTreeMap<usize, f64> {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_knee_is_where_more_pages_stop_to_help() {
        assert_eq!(of(&[100.0, 60.0, 20.0, 11.0, 10.0, 10.0], 0.05), Some(3));
        assert_eq!(of(&[100.0, 60.0, 20.0, 11.0, 10.0, 10.0], 0.001), Some(4));
        assert_eq!(of(&[10.0, 10.0, 10.0], 0.05), Some(0));
        assert_eq!(
            of(&[10.0, 12.0, 20.0], 0.05),
            Some(0),
            "pages that only harm are none that are needed"
        );
        assert_eq!(of(&[100.0], 0.05), Some(0));
        assert_eq!(of(&[], 0.05), None);
        // One dip in between is not enough.
        assert_eq!(of(&[100.0, 10.0, 50.0, 10.0], 0.05), Some(3));
    }

    proptest! {
        #[test]
        fn the_search_finds_the_knee_of_any_falling_curve_with_few_runs(
            steps in proptest::collection::vec(0..1000_u32, 0..300), tolerance in 0.0..0.5_f64
        ) {
            let mut time = 1e6;
            let mut curve = vec![time];
            for step in steps {
                time -= f64::from(step);
                curve.push(time);
            }
            let mut search = Search::new(curve.len() - 1, tolerance);
            while let Some(k) = search.next() {
                prop_assert!(!search.times().contains_key(&k));
                search.add(k, curve[k]);
            }
            prop_assert_eq!(search.found(), of(&curve, tolerance));
            let most = 3 + curve.len().ilog2() as usize;
            prop_assert!(
                search.times().len() <= most,
                "{} runs for {} points",
                search.times().len(),
                curve.len()
            );
        }
    }
}
