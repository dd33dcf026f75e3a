//! Assigns events to counters, each of which cannot count some events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counters::{CounterIndex, CounterSet};

const MOST: usize = CounterIndex::MOST;

/// Assigns each event a counter that no other has.
///
/// `able` has the counters that can count each event; `assigned` gets a counter for each. Returns
/// `false` if there is no such assignment: an augmenting path is looked for from each event (Kuhn's
/// algorithm), so none is missed.
pub fn assign(able: &[CounterSet], assigned: &mut [CounterIndex]) -> bool {
    let mut owner: [Option<u8>; MOST] = [None; MOST];
    if able.len() > MOST || assigned.len() < able.len() {
        return false;
    }
    for event in 0..able.len() {
        let mut visited = CounterSet::EMPTY;
        if !augment(able, event, &mut owner, &mut visited) {
            return false;
        }
    }
    for (counter, event) in CounterIndex::all().zip(owner) {
        if let Some(slot) = event.and_then(|event| assigned.get_mut(usize::from(event))) {
            *slot = counter;
        }
    }
    true
}

/// Finds a counter for one event, if need be by moving others. Each counter is visited once, which
/// bounds the recursion.
fn augment(
    able: &[CounterSet],
    event: usize,
    owner: &mut [Option<u8>; MOST],
    visited: &mut CounterSet,
) -> bool {
    for counter in able[event].counters() {
        if visited.contains(counter) {
            continue;
        }
        *visited = *visited | counter.into();
        let free = match owner[counter.index()] {
            None => true,
            Some(other) => augment(able, usize::from(other), owner, visited),
        };
        if free {
            owner[counter.index()] = Some(event as u8);
            return true;
        }
    }
    false
}
