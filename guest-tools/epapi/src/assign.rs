//! Assigns events to counters, each of which cannot count some events.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Maximum number of counters: numbers 0 to 31.
pub const COUNTERS: usize = 32;

/// Assigns each event a counter that no other has.
///
/// `allowed` has a set of counters, as bits, for each event; `counters` gets a counter for each.
/// Returns `false` if there is no such assignment: an augmenting path is looked for from each event
/// (Kuhn's algorithm), so none is missed.
pub fn assign(allowed: &[u32], counters: &mut [u8]) -> bool {
    let mut owner: [Option<u8>; COUNTERS] = [None; COUNTERS];
    if allowed.len() > COUNTERS || counters.len() < allowed.len() {
        return false;
    }
    for event in 0..allowed.len() {
        let mut visited = 0;
        if !augment(allowed, event, &mut owner, &mut visited) {
            return false;
        }
    }
    for (counter, event) in owner.iter().enumerate() {
        if let Some(slot) = event.and_then(|event| counters.get_mut(usize::from(event))) {
            *slot = counter as u8;
        }
    }
    true
}

/// Finds a counter for one event, if need be by moving others. Each counter is visited once, which
/// bounds the recursion.
fn augment(
    allowed: &[u32],
    event: usize,
    owner: &mut [Option<u8>; COUNTERS],
    visited: &mut u32,
) -> bool {
    for counter in 0..COUNTERS {
        let bit = 1_u32 << counter;
        if allowed[event] & bit == 0 || *visited & bit != 0 {
            continue;
        }
        *visited |= bit;
        let free = match owner[counter] {
            None => true,
            Some(other) => augment(allowed, usize::from(other), owner, visited),
        };
        if free {
            owner[counter] = Some(event as u8);
            return true;
        }
    }
    false
}
