//! Plans in which some events can only be counted by certain counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::catalogue::{Catalogue, fill};
use super::geometry::Blocks;
use super::search::{self, Admits, Coverage};
use super::{Plan, PlanError, check, lower_bound, plan};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The counters that can count an event: bit n for counter n.
pub type Binding = u32;

/// Which counters can count which event.
#[derive(Clone, Debug)]
struct Bindings<'a> {
    of: &'a [Binding],
    all: Binding,
}

impl Bindings<'_> {
    /// Assigns a counter to every event of a block, or returns `None` if there are not enough. (A
    /// maximum matching by augmenting paths; a block has only a few events.)
    fn assign(&self, block: &[usize]) -> Option<Vec<usize>> {
        let mut holder = [usize::MAX; 32];
        for at in 0..block.len() {
            if !self.seat(block, at, &mut holder, &mut 0) {
                return None;
            }
        }
        let mut counters = vec![0; block.len()];
        for (counter, &at) in holder
            .iter()
            .enumerate()
            .filter(|(_, at)| **at != usize::MAX)
        {
            counters[at] = counter;
        }
        Some(counters)
    }
    fn seat(
        &self,
        block: &[usize],
        at: usize,
        holder: &mut [usize; 32],
        tried: &mut Binding,
    ) -> bool {
        for counter in 0..32 {
            let bit = 1 << counter;
            if self.of[block[at]] & self.all & bit == 0 || *tried & bit != 0 {
                continue;
            }
            *tried |= bit;
            let before = holder[counter];
            if before == usize::MAX || self.seat(block, before, holder, tried) {
                holder[counter] = at;
                return true;
            }
        }
        false
    }
}

impl Admits for Bindings<'_> {
    fn admits(&self, block: &[usize]) -> bool {
        self.assign(block).is_some()
    }
}

/// Returns a plan for events that are bound to counters, and for each sub-experiment the counters
/// of its events.
pub fn plan_bound(
    catalogue: &mut Catalogue,
    bindings: &[Binding],
    counters: usize,
) -> Result<(Plan, Vec<Vec<usize>>), PlanError> {
    let events = bindings.len();
    check(events, counters)?;
    let rule = Bindings {
        of: bindings,
        all: (1 << counters) - 1,
    };
    if let Some(event) = (0..events).find(|&event| bindings[event] & rule.all == 0) {
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
fn filled(points: usize, size: usize, mut blocks: Blocks, rule: &Bindings<'_>) -> Blocks {
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
    if rule
        .of
        .iter()
        .all(|&binding| binding & rule.all == rule.all)
    {
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
        let mut bindings = vec![0b1111; 12];
        bindings[2] = 0b0011;
        bindings[5] = 0b0011;
        bindings[7] = 0b1000;
        let (plan, counters) = plan_bound(&mut Catalogue::default(), &bindings, 4).unwrap();
        assert_eq!(verify(12, 4, &plan.sub_experiments), Ok(()));
        for (block, counters) in plan.sub_experiments.iter().zip(&counters) {
            let mut distinct = counters.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), block.len());
            for (&event, &counter) in block.iter().zip(counters) {
                assert!(
                    bindings[event] >> counter & 1 == 1,
                    "event {event} on counter {counter}"
                );
            }
        }
    }

    #[test]
    fn three_on_two_counters_never_meet_in_one_block() {
        let mut bindings = vec![0b11_1111; 9];
        bindings[0] = 0b11;
        bindings[1] = 0b11;
        bindings[2] = 0b11;
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
        let error = plan_bound(&mut Catalogue::default(), &[1, 3, 3, 1], 2).unwrap_err();
        assert_eq!(error, PlanError::NeverTogether(0, 3));
        assert_eq!(
            plan_bound(&mut Catalogue::default(), &[4, 3], 2).unwrap_err(),
            PlanError::Nowhere(0)
        );
    }
}
