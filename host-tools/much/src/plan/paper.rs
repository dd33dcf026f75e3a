//! The paper's own greedy plan (MUCH, section 5.3), by which it needed 10 sub-experiments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use super::{Plan, PlanError, check, lower_bound};

/// Which pairs of events have been counted together.
struct Met {
    events: usize,
    pairs: Vec<bool>,
}

impl Met {
    fn none_of(events: usize) -> Self {
        Self {
            events,
            pairs: vec![false; events * events],
        }
    }

    fn have(&self, one: usize, other: usize) -> bool {
        self.pairs[one * self.events + other]
    }

    /// Returns the number of these events with which another one has not been counted.
    fn new_with(&self, event: usize, selected: &[usize]) -> usize {
        let new = |other: &&usize| !self.have(event, **other);
        selected.iter().filter(new).count()
    }

    fn count(&mut self, selected: &[usize]) {
        for &one in selected {
            for &other in selected {
                self.pairs[one * self.events + other] = true;
            }
        }
    }
}

/// Returns the plan of the paper's greedy process: it iterates over the events in their order, and
/// for each creates sub-experiments until it has been counted with every other, adding the lowest
/// event "not yet observed with any of already selected" ones.
///
/// Where no event is new to all that are selected, the text does not say what follows. Leaving the
/// counter free makes 40 sub-experiments of 16 events on 6 counters. Here the event is added that is
/// new to the most of them, of equal ones the lowest: this makes the paper's 10, and the 7 of its
/// figure 4. A counter remains free only if no event is new to any.
pub fn paper_plan(events: usize, counters: usize) -> Result<Plan, PlanError> {
    check(events, counters)?;
    let mut met = Met::none_of(events);
    let mut sub_experiments: Blocks = vec![];
    for first in 0..events {
        while (0..events).any(|other| other != first && !met.have(first, other)) {
            let mut selected = vec![first];
            while selected.len() < counters {
                let candidates = (0..events).filter(|event| !selected.contains(event));
                let newest = candidates
                    .map(|event| (met.new_with(event, &selected), event))
                    // Of equal ones the lowest.
                    .max_by_key(|&(new, event)| (new, std::cmp::Reverse(event)));
                match newest {
                    Some((new, event)) if new > 0 => selected.push(event),
                    _ => break,
                }
            }
            met.count(&selected);
            selected.sort_unstable();
            sub_experiments.push(selected);
        }
    }
    Ok(Plan {
        events,
        counters,
        sub_experiments,
        lower_bound: lower_bound(events, counters),
        origin: "the paper's greedy process".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::verify;
    use super::*;

    #[test]
    fn it_has_as_many_sub_experiments_as_the_paper() {
        let of = |events, counters| paper_plan(events, counters).expect("a plan");
        assert_eq!(of(16, 6).sub_experiments.len(), 10);
        // Figure 4, whose events are numbered from 1.
        let figure = of(7, 3).sub_experiments;
        assert_eq!(figure.len(), 7);
        for together in [[0, 1, 2], [1, 3, 5], [1, 4, 6]] {
            assert!(figure.contains(&together.to_vec()), "{figure:?}");
        }
    }

    #[test]
    fn every_pair_of_every_size_is_counted_together() {
        for counters in 2..=8 {
            for events in 2..=40 {
                let plan = paper_plan(events, counters).expect("a plan");
                assert_eq!(
                    verify(events, counters, &plan.sub_experiments),
                    Ok(()),
                    "{events} events on {counters}"
                );
                assert!(plan.sub_experiments.len() >= plan.lower_bound);
            }
        }
        assert_eq!(paper_plan(5, 1), Err(PlanError::TooFewCounters(1)));
    }
}
