//! Counting with an event set: operations on its counters while they are frozen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::error::Error;
use crate::set::{EventSet, Need, state};
use cloison_events::{CounterSet, EventId};

/// The value from which a counter has so many events to go until it overflows.
fn initial(width: u32, threshold: u64) -> u64 {
    if threshold == 0 {
        0
    } else {
        (u64::MAX >> (64 - width)).wrapping_sub(threshold - 1)
    }
}

/// Adds what a counter has counted since it was last read to what its event has.
///
/// A counter of 32 bits that has overflowed has passed its end once: further rounds between two
/// reads are lost.
fn add_up(
    need: &mut Need,
    overflowed: CounterSet,
    counters: &mut impl Counters,
) -> Result<(), Error> {
    let counter = need.counter;
    let width = counters.width(counter);
    let value = counters.read(counter)?;
    let mut counted = value.wrapping_sub(need.last) & u64::MAX >> (64 - width);
    if overflowed.contains(counter) && width < 64 && value >= need.last {
        counted += 1 << width;
    }
    need.total = need.total.wrapping_add(counted);
    need.last = value;
    Ok(())
}

/// Brings the totals of a running set up to date.
pub(crate) fn update(set: &mut EventSet, counters: &mut impl Counters) -> Result<(), Error> {
    if set.groups > 1 {
        let now = counters.ticks();
        let passed = now.wrapping_sub(set.since);
        (set.time, set.since) = (set.time.wrapping_add(passed), now);
        set.counted().for_each(|need| need.time += passed);
    }
    let overflowed = counters.overflowed() & set.counters();
    for need in set.counted() {
        add_up(need, overflowed, counters)?;
    }
    if !overflowed.is_empty() {
        counters.clear(overflowed);
    }
    Ok(())
}

/// Sets the counters up for the group whose turn it is.
fn load(set: &mut EventSet, counters: &mut impl Counters) -> Result<(), Error> {
    for need in set.counted() {
        let counter = need.counter;
        need.last = initial(counters.width(counter), need.threshold);
        let overflow = match need.threshold {
            0 => Overflow::Flags,
            _ => Overflow::Interrupts,
        };
        counters.configure(counter, need.event, overflow)?;
        counters.write(counter, need.last)?;
    }
    Ok(())
}

/// Starts from zero.
pub(crate) fn start(set: &mut EventSet, counters: &mut impl Counters) -> Result<(), Error> {
    zero(set);
    set.turn = 0;
    if set.groups > 1 {
        set.since = counters.ticks();
    }
    load(set, counters)
}

fn zero(set: &mut EventSet) {
    let needed = set.needed;
    for need in &mut set.needs[..needed] {
        (need.total, need.time) = (0, 0);
    }
    set.time = 0;
}

/// Sets a running set's counts to zero. Counters without a threshold keep their values: what they
/// hold is the new zero.
pub(crate) fn reset(set: &mut EventSet, counters: &mut impl Counters) -> Result<(), Error> {
    for need in set.counted().filter(|need| need.threshold != 0) {
        let counter = need.counter;
        need.last = initial(counters.width(counter), need.threshold);
        counters.write(counter, need.last)?;
    }
    zero(set);
    Ok(())
}

/// Gives the next group its turn.
pub(crate) fn rotate(set: &mut EventSet, counters: &mut impl Counters) -> Result<(), Error> {
    if set.groups < 2 || !set.is(state::PAPI_RUNNING) {
        return Ok(());
    }
    update(set, counters)?;
    counters.disable(set.counters())?;
    set.turn = (set.turn + 1) % set.groups;
    load(set, counters)?;
    counters.enable(set.counters())?;
    set.since = counters.ticks();
    Ok(())
}

/// Handles the counters that have overflowed, and restarts those with a threshold. Returns the
/// events whose threshold was reached, as bits by their position.
pub(crate) fn overflows(
    set: &mut EventSet,
    machine: &Machine,
    counters: &mut impl Counters,
) -> Result<u64, Error> {
    let mut reached: u64 = 0;
    let (mut events, mut count) = ([EventId(0); crate::set::NATIVES], 0);
    let flags = counters.overflowed() & set.counters();
    for need in set.counted().filter(|need| flags.contains(need.counter)) {
        add_up(need, flags, counters)?;
        if need.threshold != 0 {
            let counter = need.counter;
            need.last = initial(counters.width(counter), need.threshold);
            counters.write(counter, need.last)?;
            (events[count], count) = (need.event, count + 1);
        }
    }
    counters.clear(flags);
    for (at, code) in set
        .events()
        .iter()
        .enumerate()
        .filter(|(at, _)| set.thresholds[*at] != 0)
    {
        let terms = crate::terms::of(machine.cpu, *code)?;
        if terms
            .as_slice()
            .iter()
            .any(|term| events[..count].contains(&term.event))
        {
            reached |= 1 << at;
        }
    }
    Ok(reached)
}
