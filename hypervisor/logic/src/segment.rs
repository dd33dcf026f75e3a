//! Observation segments: the counts between two calls of a guest, and the resulting record.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::vpmu::CYCLES;
use cloison_formats::ids::{VcpuIndex, VmId};
use cloison_formats::image::Vm;
use cloison_formats::telemetry::{HemRecord, MAX_HEMS};
use cloison_formats::units::{Cycles, EventId};
use core::ops::Range;

/// The segment of a vCPU, if one is open, and the previous one.
#[derive(Debug, Default)]
pub struct Segment {
    /// The open segment.
    pub open: Option<Open>,
    /// The record of the previous segment.
    pub last: Option<HemRecord>,
}

/// The numbers by which a guest identifies a segment.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Number of the workload.
    pub workload: u32,
    /// Number of the sub-experiment; a campaign's own number replaces the guest's.
    pub sub_experiment: u32,
    /// Number of the run; a campaign's own number replaces the guest's.
    pub run: u32,
}

/// A segment that has started.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its numbers.
    pub names: Names,
    /// The counter of the first event; those of the others follow it.
    first: u32,
    /// The number of events counted.
    pub hems: u32,
    /// Whether the guest has the cycle counter, so that an event counter counts the segment's
    /// cycles.
    shares: bool,
}

/// Returns what a VM counts: its HEMs, or in a campaign those of the sub-experiment, with the
/// numbers of sub-experiment and run.
pub fn selected(vm: &Vm, runs_over: u32) -> (&[EventId], Option<(u32, u32)>) {
    if let Some(campaign) = &vm.campaign
        && let Some((set, run)) = campaign.next(runs_over)
        && let Some(hems) = campaign.sub_experiments.get(set as usize)
    {
        return (hems, Some((set, run)));
    }
    (&vm.hems, None)
}

impl Names {
    /// Returns the numbers, with a campaign's own ones instead of the guest's.
    pub fn within(self, campaign: Option<(u32, u32)>) -> Self {
        match campaign {
            Some((sub_experiment, run)) => Self {
                sub_experiment,
                run,
                ..self
            },
            None => self,
        }
    }

    /// Returns the record of a segment with these numbers, in which each event was counted so
    /// often.
    pub fn record(
        self,
        (vm, vcpu): (VmId, VcpuIndex),
        cycles: Cycles,
        overflowed: u8,
        counted: impl Iterator<Item = (EventId, u32)>,
    ) -> HemRecord {
        let mut record = HemRecord {
            vm,
            vcpu,
            workload: self.workload,
            sub_experiment: self.sub_experiment,
            run: self.run,
            cycles,
            len: 0,
            events: [EventId(0); MAX_HEMS],
            counts: [0; MAX_HEMS],
            overflowed,
            by_guest: false,
        };
        // More events than a record holds cannot be: `Open::new` takes at most as many.
        for (at, (event, count)) in (0..MAX_HEMS).zip(counted) {
            record.events[at] = event;
            record.counts[at] = count;
            record.len += 1;
        }
        record
    }
}

impl Open {
    /// Starts a segment that counts the first of `events`, one per counter, as far as there are
    /// `counters`. Where it `shares` the core with a guest that has the cycle counter, one more
    /// of them counts cycles.
    pub fn new(names: Names, events: &[EventId], counters: Range<u32>, shares: bool) -> Self {
        // One is kept for the cycles if they need one.
        let room = counters
            .end
            .saturating_sub(counters.start + u32::from(shares));
        Self {
            names,
            first: counters.start,
            hems: (events.len().min(MAX_HEMS) as u32).min(room),
            shares,
        }
    }

    /// Returns the counter of the `hem`-th event.
    pub fn counter(&self, hem: u32) -> u32 {
        self.first + hem
    }

    /// Returns the event counter that counts cycles; `None`: the cycle counter does. A guest that
    /// has the cycle counter may set it at any time.
    pub fn cycles(&self) -> Option<u32> {
        self.shares.then_some(self.first + self.hems)
    }

    /// Returns all counters of the segment as a bit mask.
    pub fn mask(&self) -> u32 {
        let hems = ((1 << self.hems) - 1) << self.first;
        hems | self.cycles().map_or(CYCLES, |counter| 1 << counter)
    }

    /// Returns overflow flags as a record has them.
    pub fn overflowed(&self, flags: u32) -> u8 {
        let cycles = self
            .cycles()
            .is_some_and(|counter| flags >> counter & 1 == 1);
        let cycles = if cycles {
            HemRecord::CYCLES_OVERFLOWED
        } else {
            0
        };
        // Bit 0 is the first event's, whichever counter it has. `hems` is at most 6, so that the
        // bits fit.
        (flags >> self.first & ((1 << self.hems) - 1)) as u8 | cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: Names = Names {
        workload: 7,
        sub_experiment: 1,
        run: 2,
    };

    #[test]
    fn a_campaign_numbers_its_segments() {
        let names = NAMES.within(Some((30, 40)));
        let record = names.record(
            (VmId(3), VcpuIndex(1)),
            Cycles(9),
            0,
            [(EventId(8), 5)].into_iter(),
        );
        assert_eq!(
            (record.workload, record.sub_experiment, record.run),
            (7, 30, 40)
        );
        assert_eq!(
            (record.vm, record.vcpu, record.cycles, record.counts[0]),
            (VmId(3), VcpuIndex(1), Cycles(9), 5)
        );
    }

    proptest! {
        /// It never uses more counters than are free or fit in a record, and each count belongs to
        /// its event.
        #[test]
        fn counts_are_beside_their_events(
            raw in prop::collection::vec(any::<u16>(), 0..12),
            first in 0u32..6,
            free in 0u32..10,
            shares: bool,
            flags: u32,
        ) {
            let events: std::vec::Vec<EventId> = raw.into_iter().map(EventId).collect();
            let free = free + u32::from(shares);
            let open = Open::new(NAMES, &events, first..first + free, shares);
            let room = (free - u32::from(shares)) as usize;
            prop_assert_eq!(open.hems as usize, events.len().min(MAX_HEMS).min(room));
            // Its own counters, and the guest's cycle counter only where that is not the guest's.
            let own = (first..first + open.hems + u32::from(shares))
                .fold(0, |mask, counter| mask | 1 << counter);
            prop_assert_eq!(open.mask(), if shares { own } else { own | CYCLES });
            prop_assert!(shares || open.mask() & CYCLES != 0);
            let overflowed = (0..open.hems).filter(|&hem| flags >> open.counter(hem) & 1 == 1);
            let expected = overflowed.fold(0, |bits, hem| bits | 1u8 << hem);
            let cycles = open
                .cycles()
                .is_some_and(|counter| flags >> counter & 1 == 1);
            prop_assert_eq!(open.overflowed(flags), expected | u8::from(cycles) << 7);
            let counted = (0..open.hems).zip(&events).map(|(hem, &event)| (event, 100 + hem));
            let record = open.names.record((VmId(0), VcpuIndex(0)), Cycles(0), 0, counted);
            prop_assert_eq!(u32::from(record.len), open.hems);
            for (at, (&count, &event)) in record.counts.iter().zip(&record.events).enumerate() {
                let used = events.get(at).filter(|_| at < open.hems as usize);
                prop_assert_eq!(count, used.map_or(0, |_| 100 + at as u32));
                prop_assert_eq!(event, used.copied().unwrap_or(EventId(0)));
            }
        }
    }
}
