//! Plans in which some events can only be counted by certain counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::catalogue::{Catalogue, fill};
use super::geometry::Blocks;
use super::search::{self, Admits, Coverage};
use super::{Plan, PlanError, check, lower_bound, plan};
use cloison_events::assign::assign;
use cloison_events::{CounterIndex, CounterSet};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Which counters can count which event.
#[derive(Clone, Debug)]
struct Bindings {
    /// The counters of the plan that can count each event.
    of: Vec<CounterSet>,
    all: CounterSet,
}

impl Bindings {
    /// Assigns a counter to every event of a block, or returns `None` if there are not enough.
    fn assign(&self, block: &[usize]) -> Option<Vec<CounterIndex>> {
        let able: Vec<CounterSet> = block.iter().map(|&event| self.of[event]).collect();
        let mut counters = vec![CounterIndex::CYCLES; block.len()];
        assign(&able, &mut counters).then_some(counters)
    }
}

impl Admits for Bindings {
    fn admits(&self, block: &[usize]) -> bool {
        self.assign(block).is_some()
    }
}

/// Returns a plan for events that are bound to counters, and for each sub-experiment the counters
/// of its events.
pub fn plan_bound(
    catalogue: &mut Catalogue,
    bindings: &[CounterSet],
    counters: usize,
) -> Result<(Plan, Vec<Vec<CounterIndex>>), PlanError> {
    let events = bindings.len();
    check(events, counters)?;
    let all = CounterSet::lowest(counters as u32);
    let rule = Bindings {
        of: bindings.iter().map(|&binding| binding & all).collect(),
        all,
    };
    if let Some(event) = rule.of.iter().position(|able| able.is_empty()) {
        return Err(PlanError::Nowhere(event));
    }
    for b in 0..events {
        if let Some(a) = (0..b).find(|&a| !rule.admits(&[a, b])) {
            return Err(PlanError::NeverTogether(a, b));
        }
    }
    let free = plan(catalogue, events, counters)?;
    let plan = if free.sub_experiments.iter().all(|block| rule.admits(block)) {
        free
    } else {
        let mut best: Option<Blocks> = None;
        for seed in 0..8 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let found = search::greedy(events, counters, &mut rng, &rule);
            if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                best = Some(found);
            }
        }
        let start = best.unwrap_or_default();
        let mut rng = ChaCha8Rng::seed_from_u64(bindings.len() as u64);
        let bound = lower_bound(events, counters);
        let found = search::shrink(events, start, bound, 300_000, &mut rng, &rule);
        Plan {
            events,
            counters,
            lower_bound: bound,
            sub_experiments: filled(events, counters, found, &rule),
            origin: "greedy and local search, with bound events".to_owned(),
        }
    };
    let assigned = plan
        .sub_experiments
        .iter()
        .map(|block| rule.assign(block).unwrap_or_default())
        .collect();
    Ok((plan, assigned))
}

/// Sorts the blocks, and fills those with free counters as far as the bindings allow.
fn filled(points: usize, size: usize, mut blocks: Blocks, rule: &Bindings) -> Blocks {
    let mut coverage = Coverage::new(points);
    for block in &blocks {
        coverage.add_block(block);
    }
    for block in &mut blocks {
        for point in 0..points {
            if block.len() < size && !block.contains(&point) {
                block.push(point);
                if !rule.admits(block) {
                    block.pop();
                }
            }
        }
        block.sort_unstable();
    }
    if rule.of.iter().all(|&able| able == rule.all) {
        fill(points, size, &mut blocks);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::verify;
    use super::*;

    #[test]
    fn bound_events_get_one_of_their_counters() {
        // 12 events on 4 counters: two only on counter 0 or 1, one only on 3.
        let mut bindings = vec![CounterSet::lowest(4); 12];
        bindings[2] = CounterSet::lowest(2);
        bindings[5] = CounterSet::lowest(2);
        bindings[7] = CounterSet::from_bits(0b1000);
        let (plan, counters) = plan_bound(&mut Catalogue::default(), &bindings, 4).unwrap();
        assert_eq!(verify(12, 4, &plan.sub_experiments), Ok(()));
        for (block, counters) in plan.sub_experiments.iter().zip(&counters) {
            let mut distinct = counters.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), block.len());
            for (&event, &counter) in block.iter().zip(counters) {
                assert!(
                    bindings[event].contains(counter),
                    "event {event} on counter {counter}"
                );
            }
        }
    }

    #[test]
    fn three_on_two_counters_never_meet_in_one_block() {
        let mut bindings = vec![CounterSet::lowest(6); 9];
        bindings[0] = CounterSet::lowest(2);
        bindings[1] = CounterSet::lowest(2);
        bindings[2] = CounterSet::lowest(2);
        let (plan, _) = plan_bound(&mut Catalogue::default(), &bindings, 6).unwrap();
        assert_eq!(verify(9, 6, &plan.sub_experiments), Ok(()));
        assert!(
            plan.sub_experiments
                .iter()
                .all(|block| !(block.contains(&0) && block.contains(&1) && block.contains(&2)))
        );
    }

    #[test]
    fn two_events_on_one_counter_are_an_error() {
        let error = plan_bound(
            &mut Catalogue::default(),
            &[1, 3, 3, 1].map(CounterSet::from_bits),
            2,
        )
        .unwrap_err();
        assert_eq!(error, PlanError::NeverTogether(0, 3));
        assert_eq!(
            plan_bound(
                &mut Catalogue::default(),
                &[4, 3].map(CounterSet::from_bits),
                2
            )
            .unwrap_err(),
            PlanError::Nowhere(0)
        );
    }
}
