//! A core's ring of records that wait for the telemetry UART.
//!
//! A full ring drops records and counts them; the count is logged as soon as there is room.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::collections::VecDeque;
use cloison_formats::telemetry::{Entry, Record};
use cloison_formats::units::Nanos;

/// Number of records in a ring.
pub const CAPACITY: usize = 256;

/// The ring of one core. It allocates only when it is created.
pub struct Ring {
    entries: VecDeque<Entry>,
    dropped: u32,
}

impl Default for Ring {
    /// Creates an empty ring.
    fn default() -> Self {
        Self {
            entries: VecDeque::with_capacity(CAPACITY),
            dropped: 0,
        }
    }
}

impl Ring {
    /// Returns whether no record waits. Losses may still be unreported.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a record, after a report of losses if one is due. If the ring is full, the record is counted as lost.
    pub fn push(&mut self, entry: Entry) {
        if self.dropped > 0 && self.entries.len() < CAPACITY - 1 {
            self.report_losses(entry.core, entry.at);
        }
        if self.entries.len() < CAPACITY && self.dropped == 0 {
            self.entries.push_back(entry);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Reports losses that no later record has reported, if there is room. Returns whether there were any.
    pub fn report_losses(&mut self, core: u8, at: Nanos) -> bool {
        let due = self.dropped > 0;
        if due && self.entries.len() < CAPACITY {
            let count = core::mem::take(&mut self.dropped);
            self.entries.push_back(Entry {
                core,
                at,
                record: Record::Dropped { count },
            });
        }
        due
    }

    /// Removes and returns the oldest record.
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::telemetry::VmState;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn numbered(number: u64) -> Entry {
        Entry {
            core: 1,
            at: Nanos(number),
            record: Record::VmState {
                vm: 0,
                state: VmState::Started,
            },
        }
    }

    /// `heap_extension` in the hypervisor's layout counts on it.
    #[test]
    fn a_ring_fits_in_its_part_of_the_heap() {
        assert!(
            CAPACITY * size_of::<Entry>() <= 56 * 1024,
            "{} bytes for each record",
            size_of::<Entry>()
        );
    }

    #[test]
    fn a_full_ring_reports_its_losses_before_the_next_entry() {
        let mut ring = Ring::default();
        (0..CAPACITY as u64 + 3).for_each(|number| ring.push(numbered(number)));
        assert!(ring.dropped > 0);
        (0..2).for_each(|number| assert_eq!(ring.pop(), Some(numbered(number))));
        ring.push(numbered(1000));
        assert!(ring.dropped == 0);
        let rest: Vec<Entry> = core::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(
            rest[CAPACITY - 2],
            Entry {
                record: Record::Dropped { count: 3 },
                ..numbered(1000)
            }
        );
        assert_eq!(rest.last(), Some(&numbered(1000)));
    }

    #[test]
    fn one_free_place_is_not_enough_for_a_report_and_an_entry() {
        let mut ring = Ring::default();
        (0..=CAPACITY as u64).for_each(|number| ring.push(numbered(number)));
        ring.pop();
        ring.push(numbered(1000));
        assert!(ring.report_losses(1, Nanos(2000)));
        assert_eq!(ring.dropped, 0);
        let last = core::iter::from_fn(|| ring.pop()).last();
        assert_eq!(
            last,
            Some(Entry {
                record: Record::Dropped { count: 2 },
                ..numbered(2000)
            })
        );
    }

    proptest! {
        /// In any sequence, records leave in the order in which they were added, and every record either leaves, is
        /// reported lost, or is still inside.
        #[test]
        fn nothing_vanishes_uncounted(steps in prop::collection::vec((0usize..400, 0usize..400), 1..20)) {
            let mut ring = Ring::default();
            let (mut pushed, mut popped, mut lost, mut newest) = (0u64, 0u64, 0u64, None);
            let mut take = |entry: Entry| match entry.record {
                Record::Dropped { count } => lost += u64::from(count),
                _ => {
                    assert!(newest < Some(entry.at));
                    newest = Some(entry.at);
                    popped += 1;
                }
            };
            for (pushes, pops) in steps {
                for _ in 0..pushes {
                    ring.push(numbered(pushed));
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
