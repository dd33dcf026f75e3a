//! An event set: its events, the native events that they need, and the counter of each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine};
use crate::error::Error;
use crate::terms::{self, Terms};
use cloison_events::assign::assign;
use cloison_events::{CounterIndex, CounterSet, EventId};

/// Maximum number of events in a set.
pub const EVENTS: usize = 16;
/// Maximum number of native events that the events of a set need together.
pub const NATIVES: usize = 24;

/// States of an event set, as bits, with PAPI's numbers.
pub mod state {
    /// It does not count.
    pub const PAPI_STOPPED: i32 = 0x01;
    /// It counts.
    pub const PAPI_RUNNING: i32 = 0x02;
    /// Some of its events call a handler.
    pub const PAPI_OVERFLOWING: i32 = 0x10;
    /// Its events take turns on the counters.
    pub const PAPI_MULTIPLEXING: i32 = 0x40;
}

/// A native event of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub event: EventId,
    /// How many events of the set need it.
    pub owners: u8,
    pub counter: CounterIndex,
    /// Its turn, if the set is multiplexed.
    pub group: u8,
    /// Events counted since the set was started or reset.
    pub total: u64,
    /// The counter's value when it was last read or written.
    pub last: u64,
    /// Ticks in which it was counted.
    pub time: u64,
    /// Its counter overflows after so many events; 0: at its width.
    pub threshold: u64,
}

impl Need {
    /// Returns the need for an event, without owners.
    const fn of(event: EventId) -> Self {
        Self {
            event,
            owners: 0,
            counter: CounterIndex::CYCLES,
            group: 0,
            total: 0,
            last: 0,
            time: 0,
            threshold: 0,
        }
    }
}

/// An event set.
#[derive(Clone, Debug)]
pub(crate) struct EventSet {
    pub state: i32,
    /// An event was added since the set was made or cleaned up.
    pub is_bound: bool,
    events: [i32; EVENTS],
    /// What the events are made of, so that reading does not look it up.
    terms: [Terms; EVENTS],
    count: usize,
    pub needs: [Need; NATIVES],
    pub needed: usize,
    /// The values of the events when the set was stopped.
    pub values: [i64; EVENTS],
    /// Thresholds of the events that call a handler; 0: none.
    pub thresholds: [u32; EVENTS],
    pub groups: u8,
    /// The group that is counted.
    pub turn: u8,
    /// Ticks since the set was started or reset, and when they were last added up.
    pub time: u64,
    pub since: u64,
}

impl EventSet {
    pub const NEW: Self = Self {
        state: state::PAPI_STOPPED,
        is_bound: false,
        events: [0; EVENTS],
        terms: [Terms::NONE; EVENTS],
        count: 0,
        needs: [Need::of(EventId(0)); NATIVES],
        needed: 0,
        values: [0; EVENTS],
        thresholds: [0; EVENTS],
        groups: 1,
        turn: 0,
        time: 0,
        since: 0,
    };

    pub fn is(&self, state: i32) -> bool {
        self.state & state != 0
    }

    pub fn events(&self) -> &[i32] {
        self.events.get(..self.count).unwrap_or_default()
    }

    pub fn needs(&self) -> &[Need] {
        self.needs.get(..self.needed).unwrap_or_default()
    }

    pub fn position(&self, code: i32) -> Option<usize> {
        self.events().iter().position(|event| *event == code)
    }

    /// Adds an event. The set is unchanged if that fails.
    pub fn add(
        &mut self,
        code: i32,
        machine: &Machine,
        counters: &impl Counters,
    ) -> Result<(), Error> {
        if self.position(code).is_some() {
            return Err(Error::Conflict);
        }
        let terms = terms::of(machine.cpu, code).map_err(|error| match error {
            // PAPI_add_event says this of a preset that does not exist.
            Error::NotPreset => Error::Invalid,
            error => error,
        })?;
        let before = self.clone();
        let added = self
            .bind(code, &terms)
            .and_then(|()| self.place(machine, counters));
        if added.is_err() {
            *self = before;
            let mut alone = Self {
                state: self.state,
                ..Self::NEW
            };
            if alone.bind(code, &terms).is_ok() && alone.place(machine, counters).is_err() {
                // Not even without the other events: if each of its parts could be counted alone,
                // it takes several runs.
                let allowed = |event| !allowed(machine, counters, event).is_empty();
                let some = terms.as_slice().iter().all(|term| allowed(term.event));
                return Err(if some {
                    Error::MultiplePasses
                } else {
                    Error::Conflict
                });
            }
        }
        added
    }

    fn bind(&mut self, code: i32, terms: &Terms) -> Result<(), Error> {
        *self.events.get_mut(self.count).ok_or(Error::TooMany)? = code;
        self.terms[self.count] = *terms;
        self.values[self.count] = 0;
        self.thresholds[self.count] = 0;
        self.count += 1;
        for term in terms.as_slice() {
            if let Some(need) = self.needs[..self.needed]
                .iter_mut()
                .find(|need| need.event == term.event)
            {
                need.owners += 1;
                continue;
            }
            *self.needs.get_mut(self.needed).ok_or(Error::TooMany)? = Need {
                owners: 1,
                ..Need::of(term.event)
            };
            self.needed += 1;
        }
        self.is_bound = true;
        Ok(())
    }

    /// Removes an event.
    pub fn remove(
        &mut self,
        code: i32,
        machine: &Machine,
        counters: &impl Counters,
    ) -> Result<(), Error> {
        let at = self.position(code).ok_or(Error::Invalid)?;
        let terms = terms::of(machine.cpu, code)?;
        self.events.copy_within(at + 1..self.count, at);
        self.terms.copy_within(at + 1..self.count, at);
        self.values.copy_within(at + 1..self.count, at);
        self.thresholds.copy_within(at + 1..self.count, at);
        self.count -= 1;
        for term in terms.as_slice() {
            let Some(at) = self
                .needs()
                .iter()
                .position(|need| need.event == term.event)
            else {
                continue;
            };
            self.needs[at].owners -= 1;
            if self.needs[at].owners == 0 {
                self.needs.copy_within(at + 1..self.needed, at);
                self.needed -= 1;
            }
        }
        self.place(machine, counters)
    }

    /// Removes all events; the set is as new.
    pub fn clear(&mut self) {
        *self = Self::NEW;
    }

    /// Gives each native event a counter; in a multiplexed set, a turn too.
    pub fn place(&mut self, machine: &Machine, counters: &impl Counters) -> Result<(), Error> {
        let mut able = [CounterSet::EMPTY; NATIVES];
        let mut places = [CounterIndex::CYCLES; NATIVES];
        let (mut first, mut group) = (0, 0);
        for at in 0..self.needed {
            able[at] = allowed(machine, counters, self.needs[at].event);
            if !assign(&able[first..=at], &mut places) {
                if !self.is(state::PAPI_MULTIPLEXING) || first == at {
                    return Err(Error::Conflict);
                }
                (first, group) = (at, group + 1);
                if !assign(&able[first..=at], &mut places) {
                    return Err(Error::Conflict);
                }
            }
            for (need, place) in self.needs[first..=at].iter_mut().zip(places) {
                (need.counter, need.group) = (place, group);
            }
        }
        (self.groups, self.turn) = (group + 1, 0);
        Ok(())
    }

    /// Returns the native events that are counted now.
    pub fn counted(&mut self) -> impl Iterator<Item = &mut Need> {
        let turn = self.turn;
        self.needs[..self.needed]
            .iter_mut()
            .filter(move |need| need.group == turn)
    }

    /// Returns the counters of the native events that are counted now.
    pub fn counters(&self) -> CounterSet {
        let turn = self.turn;
        let counted = self.needs().iter().filter(|need| need.group == turn);
        counted.map(|need| need.counter).collect()
    }

    /// Returns the count of a native event. In a multiplexed set it is scaled from the time in
    /// which it was counted to all time.
    fn total(&self, event: EventId) -> i64 {
        let Some(need) = self.needs().iter().find(|need| need.event == event) else {
            return 0;
        };
        if self.groups < 2 {
            return need.total as i64;
        }
        let scaled = u128::from(need.total) * u128::from(self.time);
        scaled.checked_div(u128::from(need.time)).unwrap_or(0) as i64
    }

    /// Computes the events' values from their native events.
    pub fn evaluate(&mut self) {
        for at in 0..self.count {
            let value = self.terms[at].as_slice().iter().fold(0_i64, |sum, term| {
                let total = self.total(term.event);
                if term.minus {
                    sum.wrapping_sub(total)
                } else {
                    sum.wrapping_add(total)
                }
            });
            self.values[at] = value;
        }
    }
}

/// Returns the counters that can count an event.
fn allowed(machine: &Machine, counters: &impl Counters, event: EventId) -> CounterSet {
    let able = machine
        .cpu
        .native(event)
        .map_or(CounterSet::EMPTY, |native| native.counters);
    let able = machine.counters & able;
    able.counters()
        .filter(|&counter| counters.allows(counter, event))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_set_is_stopped_and_empty() {
        let set = EventSet::NEW;
        assert!(
            set.is(state::PAPI_STOPPED)
                && !set.is_bound
                && set.events().is_empty()
                && set.counters().is_empty()
        );
    }
}
