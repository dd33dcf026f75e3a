//! A core's ring of records that wait for the telemetry UART.
//!
//! A full ring drops records and counts them; the count is logged as soon as there is room.
// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::collections::VecDeque;
use cloison_formats::ids::Core;
use cloison_formats::telemetry::{Entry, Record};
use cloison_formats::units::Nanos;

/// Number of records in a ring.
pub const CAPACITY: usize = 256;

/// A place in what is added to a ring.
#[derive(Clone, Copy, Debug)]
pub struct Place(u64);

/// The ring of one core. It allocates only when it is created.
///
/// Property test: `nothing_vanishes_uncounted`.
pub struct Ring {
    /// The oldest first. Only the ring's core accesses it: records of different cores meet at the
    /// UART.
    entries: VecDeque<Entry>,
    /// Number of records that have left.
    left: u64,
    /// Records lost since the last report of losses.
    dropped: u32,
}

impl Default for Ring {
    /// Creates an empty ring.
    fn default() -> Self {
        Self {
            entries: VecDeque::with_capacity(CAPACITY),
            left: 0,
            dropped: 0,
        }
    }
}

impl Ring {
    /// Returns whether so many records wait that they should leave soon: half of what fits.
    pub fn is_filling(&self) -> bool {
        self.entries.len() >= CAPACITY / 2
    }

    /// Returns the place after the newest record.
    pub fn end(&self) -> Place {
        Place(self.left + self.entries.len() as u64)
    }

    /// Returns whether all records before a place have left.
    pub fn is_past(&self, place: Place) -> bool {
        self.left >= place.0
    }

    /// Adds a record, after a report of losses if one is due. If the ring is full, the record is
    /// counted as lost.
    ///
    /// Inlined, and with a comparison by which it cannot allocate, so that a record is written
    /// where it stays: most are much shorter than the longest, and a copy takes as long as the
    /// longest does.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry) {
        // Room for two: the report, and the record after it.
        if self.dropped > 0 && self.entries.len() < CAPACITY - 1 {
            self.report_losses(entry.core, entry.at);
        }
        if self.dropped == 0 && self.entries.len() < self.entries.capacity() {
            self.entries.push_back(entry);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Removes the oldest record, or a report of losses that no later record has reported, after a
    /// call of `with` for it. Returns whether there was one.
    #[inline]
    pub fn take(&mut self, core: Core, at: Nanos, with: impl FnOnce(&Entry)) -> bool {
        if self.dropped > 0 && self.entries.is_empty() {
            self.report_losses(core, at);
        }
        let is_some = self.entries.front().map(with).is_some();
        self.entries.pop_front();
        self.left += u64::from(is_some);
        is_some
    }

    /// Adds the count of losses as a record in its place, and begins to count again.
    #[cold]
    #[inline(never)]
    fn report_losses(&mut self, core: Core, at: Nanos) {
        let count = core::mem::take(&mut self.dropped);
        self.entries.push_back(Entry {
            core,
            at,
            record: Record::Dropped { count },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::ids::VmId;
    use cloison_formats::telemetry::VmState;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn numbered(number: u64) -> Entry {
        Entry {
            core: Core(1),
            at: Nanos(number),
            record: Record::VmState {
                vm: VmId(0),
                state: VmState::Started,
            },
        }
    }

    fn pop(ring: &mut Ring) -> Option<Entry> {
        let mut taken = None;
        assert_eq!(
            ring.take(Core(1), Nanos(2000), |entry| taken = Some(*entry)),
            taken.is_some()
        );
        taken
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
        (0..2).for_each(|number| assert_eq!(pop(&mut ring), Some(numbered(number))));
        ring.push(numbered(1000));
        assert!(ring.dropped == 0);
        let rest: Vec<Entry> = core::iter::from_fn(|| pop(&mut ring)).collect();
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
        pop(&mut ring);
        ring.push(numbered(1000));
        let last = core::iter::from_fn(|| pop(&mut ring)).last();
        assert_eq!(
            last,
            Some(Entry {
                record: Record::Dropped { count: 2 },
                ..numbered(2000)
            })
        );
    }

    #[test]
    fn a_place_is_past_when_all_records_before_it_have_left() {
        let mut ring = Ring::default();
        assert!(ring.is_past(ring.end()));
        (0..3).for_each(|number| ring.push(numbered(number)));
        let place = ring.end();
        // What is added later does not move it.
        for number in 3..6 {
            assert!(!ring.is_past(place));
            pop(&mut ring);
            ring.push(numbered(number));
        }
        assert!(ring.is_past(place) && !ring.is_past(ring.end()));
    }

    #[test]
    fn a_ring_fills_at_its_half() {
        let mut ring = Ring::default();
        (1..CAPACITY as u64 / 2).for_each(|number| ring.push(numbered(number)));
        assert!(!ring.is_filling());
        ring.push(numbered(1000));
        assert!(ring.is_filling());
        pop(&mut ring);
        assert!(!ring.is_filling());
    }

    proptest! {
        /// In any sequence, records leave in the order in which they were added, and every record
        /// either leaves, is reported lost, or is still inside.
        #[test]
        fn nothing_vanishes_uncounted(
            steps in prop::collection::vec((0usize..400, 0usize..400), 1..20),
        ) {
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
                (0..pops).map_while(|_| pop(&mut ring)).for_each(&mut take);
            }
            core::iter::from_fn(|| pop(&mut ring)).for_each(&mut take);
            prop_assert!(ring.entries.is_empty() && ring.dropped == 0);
            prop_assert_eq!(popped + lost, pushed);
        }
    }
}
