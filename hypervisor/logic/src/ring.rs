//! A core's ring of records that wait for the telemetry UART.
//!
//! A full ring drops records and counts them; the count is logged as soon as there is room.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::collections::VecDeque;
use cloison_formats::telemetry::{Event, Record};
use cloison_formats::units::Nanos;

/// Number of records in a ring.
pub const CAPACITY: usize = 256;

/// The ring of one core. It allocates only when it is created.
pub struct Ring {
    events: VecDeque<Event>,
    dropped: u32,
}

impl Default for Ring {
    /// Creates an empty ring.
    fn default() -> Self {
        Self { events: VecDeque::with_capacity(CAPACITY), dropped: 0 }
    }
}

impl Ring {
    /// Returns whether no record waits. Losses may still be unreported.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds a record, after a report of losses if one is due. If the ring is full, the record is counted as lost.
    #[inline]
    pub fn push(&mut self, event: Event) {
        if self.dropped > 0 && self.events.len() < CAPACITY - 1 {
            self.report_losses(event.core, event.at);
        }
        if self.events.len() < CAPACITY && self.dropped == 0 {
            self.events.push_back(event);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Reports losses that no later record has reported, if there is room. Returns whether there were any.
    pub fn report_losses(&mut self, core: u8, at: Nanos) -> bool {
        let due = self.dropped > 0;
        if due && self.events.len() < CAPACITY {
            let count = core::mem::take(&mut self.dropped);
            self.events.push_back(Event { core, at, record: Record::Dropped { count } });
        }
        due
    }

    /// Removes and returns the oldest record.
    pub fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::telemetry::VmState;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn entry(number: u64) -> Event {
        Event { core: 1, at: Nanos(number), record: Record::VmState { vm: 0, state: VmState::Started } }
    }

    #[test]
    fn a_full_ring_reports_its_losses_before_the_next_entry() {
        let mut ring = Ring::default();
        (0..CAPACITY as u64 + 3).for_each(|number| ring.push(entry(number)));
        assert!(ring.dropped > 0);
        (0..2).for_each(|number| assert_eq!(ring.pop(), Some(entry(number))));
        ring.push(entry(1000));
        assert!(ring.dropped == 0);
        let rest: Vec<Event> = core::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(rest[CAPACITY - 2], Event { record: Record::Dropped { count: 3 }, ..entry(1000) });
        assert_eq!(rest.last(), Some(&entry(1000)));
    }

    #[test]
    fn one_free_place_is_not_enough_for_a_report_and_an_entry() {
        let mut ring = Ring::default();
        (0..=CAPACITY as u64).for_each(|number| ring.push(entry(number)));
        ring.pop();
        ring.push(entry(1000));
        assert!(ring.report_losses(1, Nanos(2000)));
        assert_eq!(ring.dropped, 0);
        let last = core::iter::from_fn(|| ring.pop()).last();
        assert_eq!(last, Some(Event { record: Record::Dropped { count: 2 }, ..entry(2000) }));
    }

    proptest! {
        /// In any sequence, records leave in the order in which they were added, and every record either leaves, is
        /// reported lost, or is still inside.
        #[test]
        fn nothing_vanishes_uncounted(steps in prop::collection::vec((0usize..400, 0usize..400), 1..20)) {
            let mut ring = Ring::default();
            let (mut pushed, mut popped, mut lost, mut newest) = (0u64, 0u64, 0u64, None);
            let mut take = |event: Event| match event.record {
                Record::Dropped { count } => lost += u64::from(count),
                _ => {
                    assert!(newest < Some(event.at));
                    newest = Some(event.at);
                    popped += 1;
                }
            };
            for (pushes, pops) in steps {
                for _ in 0..pushes {
                    ring.push(entry(pushed));
                    pushed += 1;
                }
                (0..pops).map_while(|_| ring.pop()).for_each(&mut take);
            }
            core::iter::from_fn(|| ring.pop()).for_each(&mut take);
            ring.report_losses(1, Nanos(u64::MAX));
            core::iter::from_fn(|| ring.pop()).for_each(&mut take);
            prop_assert!(ring.is_empty() && ring.dropped == 0);
            prop_assert_eq!(popped + lost, pushed);
        }
    }
}
