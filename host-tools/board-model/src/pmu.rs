//! Event counters of one core as a guest configures them, and the model's additions to them.
//!
//! QEMU keeps the registers. It counts none of the modelled events, so a counter's value is QEMU's
//! plus the events added here since the guest last wrote it. Overflow flags are kept here: QEMU
//! only has the cycle counter's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::events::{Counts, Event};

/// Number of event counters of a Cortex-A53.
pub const COUNTERS: usize = 6;

/// CHAIN: of a counter with an odd number, the overflows of the one before it (Arm ARM, section
/// D13.11.2). Of one with an even number, nothing. It is no event of a core's, so it is not in
/// [`Event`].
pub const CHAIN: u64 = 0x1e;

/// The registers that select the counted events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// PMEVTYPERn_EL0: event and filters of each counter.
    pub types: [u64; COUNTERS],
    /// PMCNTENSET_EL0: enabled counters.
    pub enabled: u64,
    /// PMCR_EL0: global enable.
    pub control: u64,
    /// MDCR_EL2: counters reserved for EL2.
    pub reserved: u64,
    /// PMINTENSET_EL1: counters whose overflow interrupt is enabled.
    pub interrupts: u64,
    /// PMEVCNTRn_EL0 according to QEMU.
    pub values: [u64; COUNTERS],
}

impl Setup {
    /// Returns whether a counter is one that MDCR_EL2.HPMN reserves for EL2.
    const fn is_reserved(&self, counter: usize) -> bool {
        counter as u64 >= self.reserved & 31
    }
    /// Returns whether counters of its kind are on: those reserved for EL2 by MDCR_EL2.HPME, the
    /// others by PMCR_EL0.E. The same bit lets a counter's overflow interrupt (Arm ARM, section
    /// D11.3, "Generating overflow interrupt requests").
    const fn is_on(&self, counter: usize) -> bool {
        let on = if self.is_reserved(counter) {
            self.reserved >> 7
        } else {
            self.control
        };
        on & 1 != 0
    }
    /// Returns the number of the event that a counter counts at an exception level, in the
    /// Non-secure state.
    fn number(&self, counter: usize, level: u8) -> Option<u64> {
        if !self.is_on(counter) || self.enabled >> counter & 1 == 0 {
            return None;
        }
        let kind = self.types[counter];
        let bit = |at: u32| kind >> at & 1 != 0;
        let counted = match level {
            0 => bit(30) == bit(28),
            1 => bit(31) == bit(29),
            2 => bit(27),
            _ => false,
        };
        // Ten bits, as in the A53 (PMUv3 of ARMv8.0).
        counted.then_some(kind & 0x3ff)
    }
    /// Returns the event that a counter counts at an exception level, if the model counts it: QEMU
    /// itself counts cycles, from guest time, which is the model's.
    fn event(&self, counter: usize, level: u8) -> Option<Event> {
        let event = Event::from_number(self.number(counter, level)?);
        event.filter(|event| *event != Event::CPU_CYCLES)
    }
    /// Returns the counter that counts the overflows of `counter`, whatever the exception level.
    fn chained(&self, counter: usize) -> Option<usize> {
        let next = counter + 1;
        let is_pair = counter.is_multiple_of(2) && next < COUNTERS;
        (is_pair && self.types[next] & 0x3ff == CHAIN).then_some(next)
    }
}

/// The counters of one core.
#[derive(Clone, Debug, Default)]
pub struct Pmu {
    setup: Setup,
    added: [u64; COUNTERS],
    /// What the guest last wrote to each event counter and to the cycle counter, from where QEMU
    /// counts nanoseconds.
    written: [u64; COUNTERS],
    cycles_written: u64,
    overflowed: u64,
    seen: Counts,
}

/// Bits of an event counter of the A53.
const BITS: u32 = 32;

/// Converts nanoseconds, which QEMU's counters of cycles count, to cycles of a core.
const fn cycles(nanoseconds: u64, clock_mhz: u64) -> u64 {
    (nanoseconds as u128 * clock_mhz as u128 / 1000) as u64
}

impl Pmu {
    /// Returns counters that add no event from before `now`.
    pub fn starting_at(now: Counts) -> Self {
        Self {
            seen: now,
            ..Self::default()
        }
    }
    /// Returns a counter's value, by QEMU's and what was added to it.
    const fn value(&self, counter: usize) -> u64 {
        self.setup.values[counter].wrapping_add(self.added[counter]) & ((1 << BITS) - 1)
    }
    /// Adds the events since the last call, all at one exception level.
    pub fn advance(&mut self, level: u8, counts: &Counts) {
        for counter in 0..COUNTERS {
            if let Some(event) = self.setup.event(counter, level) {
                // Less than zero where instructions that did not execute are taken back.
                let new = event
                    .count(counts, 0)
                    .wrapping_sub(event.count(&self.seen, 0));
                let overflows = self.add(counter, new);
                if let Some(next) = self.setup.chained(counter)
                    && self.setup.number(next, level).is_some()
                {
                    self.add(next, overflows);
                }
            }
        }
        self.seen = *counts;
    }
    /// Adds events to a counter. Returns how often it overflowed.
    const fn add(&mut self, counter: usize, new: u64) -> u64 {
        let before = self.value(counter);
        self.added[counter] = self.added[counter].wrapping_add(new);
        let overflows = if new.cast_signed() > 0 {
            (before + new) >> BITS
        } else {
            0
        };
        if overflows > 0 {
            self.overflowed |= 1 << counter;
        }
        overflows
    }
    /// Updates the configuration after the guest changed the registers.
    pub fn set_up(&mut self, setup: Setup) {
        self.setup = setup;
    }
    /// Resets the addition to a counter to which the guest wrote `value`.
    pub fn written(&mut self, counter: usize, value: u64) {
        self.added[counter] = 0;
        self.written[counter] = value;
    }
    /// Records that the guest wrote `value` to the cycle counter.
    pub const fn cycles_written(&mut self, value: u64) {
        self.cycles_written = value;
    }
    /// Resets the counters that PMCR_EL0.P resets at an exception level: below EL2 not those
    /// reserved for EL2 (Arm ARM, PMCR_EL0). QEMU has set the counters that it keeps to zero.
    pub fn cleared(&mut self, level: u8) {
        for counter in 0..COUNTERS {
            let kept = level < 2 && self.setup.is_reserved(counter);
            self.added[counter] = if kept { self.value(counter) } else { 0 };
            self.written[counter] = 0;
        }
    }
    /// Returns the value that a guest reads from a counter whose value in QEMU is `value`, on a
    /// core with this clock.
    pub fn read(&self, counter: usize, value: u64, clock_mhz: u64) -> u64 {
        let mask = (1 << BITS) - 1;
        let value = if self.setup.types[counter] & 0x3ff == Event::CPU_CYCLES as u64 {
            let begun = self.written[counter];
            begun.wrapping_add(cycles(value.wrapping_sub(begun) & mask, clock_mhz))
        } else {
            value
        };
        value.wrapping_add(self.added[counter]) & mask
    }
    /// Returns the value that a guest reads from the cycle counter, whose value in QEMU is `value`.
    pub const fn read_cycles(&self, value: u64, clock_mhz: u64) -> u64 {
        self.cycles_written
            .wrapping_add(cycles(value.wrapping_sub(self.cycles_written), clock_mhz))
    }
    /// Returns the overflow flags of the event counters, as in PMOVSCLR_EL0 and PMOVSSET_EL0.
    pub const fn overflows(&self) -> u64 {
        self.overflowed
    }
    /// Clears overflow flags, which the guest wrote to PMOVSCLR_EL0.
    pub fn clear_overflows(&mut self, flags: u64) {
        self.overflowed &= !flags;
    }
    /// Returns whether an event counter requests the overflow interrupt.
    pub fn interrupts(&self) -> bool {
        let wanted = self.overflowed & self.setup.interrupts;
        wanted != 0
            && (0..COUNTERS).any(|counter| wanted >> counter & 1 != 0 && self.setup.is_on(counter))
    }
    /// Returns whether some counter of the guest's is on, the cycle counter included: one that
    /// MDCR_EL2.HPMN does not reserve for EL2.
    pub const fn counts_for_guest(&self) -> bool {
        let all = (1 << COUNTERS) - 1;
        let guests = all & ((1 << (self.setup.reserved & 31)) - 1);
        let cycles = 1 << 31;
        self.setup.control & 1 != 0 && self.setup.enabled & (guests | cycles) != 0
    }
    /// Returns whether the overflow interrupt of some enabled counter is enabled: its overflow must
    /// then not be noticed late.
    pub const fn is_armed(&self) -> bool {
        self.setup.interrupts & self.setup.enabled & ((1 << COUNTERS) - 1) != 0
    }
    /// Returns the smallest number of events after which a counter interrupts; `u64::MAX` if none
    /// can.
    pub fn distance(&self) -> u64 {
        let armed = self.setup.interrupts & self.setup.enabled & !self.overflowed;
        let left = |counter: usize| (1 << BITS) - self.value(counter);
        // A counter that counts overflows is at its end one overflow after the others.
        let after = |counter: usize| match counter.checked_sub(1) {
            Some(before) if self.setup.chained(before) == Some(counter) => {
                ((left(counter) - 1) << BITS).saturating_add(left(before))
            }
            _ => left(counter),
        };
        (0..COUNTERS)
            .filter(|counter| armed >> counter & 1 != 0)
            .map(after)
            .min()
            .unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(kind: u64) -> Pmu {
        let mut pmu = Pmu::default();
        let setup = Setup {
            types: [kind; COUNTERS],
            enabled: 0b11,
            control: 1,
            reserved: 1,
            ..Setup::default()
        };
        pmu.set_up(setup);
        pmu
    }

    #[test]
    fn a_counter_counts_where_it_is_told_to() {
        let mut counts = Counts {
            l2_refills: 5,
            ..Counts::default()
        };
        let mut pmu = counting(0x17);
        pmu.advance(1, &counts);
        counts.l2_refills = 8;
        pmu.advance(2, &counts);
        assert_eq!(
            pmu.read(0, 100, 1000),
            105,
            "EL2 is not counted without NSH"
        );
        assert_eq!(
            pmu.read(1, 100, 1000),
            100,
            "counter 1 is EL2's own, and HPME is off"
        );
        pmu.written(0, 0);
        assert_eq!(pmu.read(0, u64::from(u32::MAX), 1000), u64::from(u32::MAX));
        let mut pmu = counting(0x17 | 1 << 27 | 1 << 31);
        pmu.advance(1, &counts);
        assert_eq!(pmu.read(0, 0, 1000), 0);
        counts.l2_refills = 10;
        pmu.advance(2, &counts);
        assert_eq!(pmu.read(0, u64::from(u32::MAX), 1000), 1, "32 bits");
    }

    #[test]
    fn el2_keeps_its_counters_to_itself() {
        let mut setup = Setup {
            types: [0x17 | 1 << 27; COUNTERS],
            enabled: 0b11,
            reserved: 1 << 7 | 1,
            ..Setup::default()
        };
        setup.values = [7, (1 << 32) - 5, 0, 0, 0, 0];
        setup.interrupts = 0b11;
        let mut pmu = Pmu::default();
        pmu.set_up(setup);
        pmu.advance(
            2,
            &Counts {
                l2_refills: 5,
                ..Counts::default()
            },
        );
        assert_eq!(
            (pmu.overflows(), pmu.interrupts()),
            (2, true),
            "by HPME, with PMCR_EL0.E = 0"
        );
        pmu.set_up(Setup {
            reserved: 1,
            ..setup
        });
        assert!(!pmu.interrupts(), "HPME is off");
        pmu.advance(
            2,
            &Counts {
                l2_refills: 9,
                ..Counts::default()
            },
        );
        pmu.written(1, 984);
        pmu.set_up(Setup {
            values: [7, 984, 0, 0, 0, 0],
            ..setup
        });
        pmu.cleared(1);
        pmu.set_up(Setup {
            values: [0; COUNTERS],
            ..setup
        });
        assert_eq!(
            [pmu.read(0, 0, 1000), pmu.read(1, 0, 1000)],
            [0, 984],
            "PMCR_EL0.P at EL1"
        );
        pmu.cleared(2);
        assert_eq!(pmu.read(1, 0, 1000), 0, "PMCR_EL0.P at EL2");
    }

    #[test]
    fn cycles_are_those_of_the_clock_since_the_guest_wrote_the_counter() {
        let mut pmu = counting(0x11);
        pmu.written(0, u64::from(u32::MAX) - 9);
        pmu.cycles_written(1000);
        assert_eq!(
            [1000, 1500].map(|mhz| pmu.read(0, 90, mhz)),
            [90, 140],
            "100 ns after it was written"
        );
        assert_eq!(
            [1000, 1500].map(|mhz| pmu.read_cycles(1100, mhz)),
            [1100, 1150]
        );
        pmu.cleared(2);
        assert_eq!(pmu.read(0, 100, 500), 50);
    }

    #[test]
    fn an_odd_counter_counts_the_overflows_of_the_one_before() {
        let refills = |l2_refills| Counts {
            l2_refills,
            ..Counts::default()
        };
        let most = u64::from(u32::MAX);
        let setup = Setup {
            types: [0x17, CHAIN, 0x17, CHAIN, CHAIN, CHAIN],
            // Counter 3 is off; counter 4 counts nothing, so counter 5 does not either.
            enabled: 0b11_0111,
            control: 1,
            reserved: 6,
            interrupts: 0b10,
            values: [most - 9, most, most, most, 7, 7],
        };
        let mut pmu = Pmu::default();
        pmu.set_up(setup);
        assert_eq!(pmu.distance(), 10);
        pmu.advance(1, &refills(9));
        assert_eq!((pmu.overflows(), pmu.interrupts()), (0b100, false));
        pmu.advance(1, &refills(12));
        let values: Vec<u64> = (0..COUNTERS)
            .map(|counter| pmu.read(counter, setup.values[counter], 1000))
            .collect();
        assert_eq!(values, [2, 0, 11, most, 7, 7]);
        assert_eq!(
            (pmu.overflows(), pmu.interrupts()),
            (0b111, true),
            "an overflow of CHAIN is one, too"
        );

        // Both halves hold a count of 64 bits, and its end is the distance.
        pmu.clear_overflows(0b111);
        pmu.written(0, most);
        pmu.written(1, most - 1);
        pmu.set_up(Setup {
            values: [most, most - 1, 0, 0, 0, 0],
            ..setup
        });
        assert_eq!(pmu.distance(), (1 << BITS) + 1);
        pmu.set_up(Setup {
            types: [0x17, CHAIN | 1 << 31, 0, 0, 0, 0],
            values: [most, 5, 0, 0, 0, 0],
            ..setup
        });
        pmu.advance(1, &refills(13));
        assert_eq!(pmu.read(1, 5, 1000), 5, "not at EL1");
    }

    #[test]
    fn what_is_taken_back_is_no_overflow() {
        let mut pmu = counting(0x08);
        pmu.advance(
            1,
            &Counts {
                instructions: 10,
                ..Counts::default()
            },
        );
        pmu.advance(
            1,
            &Counts {
                instructions: 4,
                ..Counts::default()
            },
        );
        assert_eq!((pmu.read(0, 0, 1000), pmu.overflows()), (4, 0));
    }

    #[test]
    fn the_guest_counts_with_its_own_counters_and_the_cycle_counter() {
        let counts = |enabled: u64, control| {
            let mut pmu = Pmu::default();
            pmu.set_up(Setup {
                enabled,
                control,
                reserved: 4,
                ..Setup::default()
            });
            pmu.counts_for_guest()
        };
        assert!(counts(0b1000, 1) && counts(1 << 31, 1));
        assert!(!counts(0b1000, 0), "PMCR_EL0.E is 0");
        assert!(!counts(0b11_0000, 1), "those of EL2 alone");
    }

    #[test]
    fn the_distance_is_that_of_the_next_interrupt() {
        let mut setup = Setup {
            types: [0x17; COUNTERS],
            enabled: 0b111,
            control: 1,
            reserved: 6,
            ..Setup::default()
        };
        setup.values = [(1 << 32) - 1, (1 << 32) - 10, (1 << 32) - 20, 0, 0, 0];
        setup.interrupts = 0b110;
        let mut pmu = Pmu::default();
        pmu.set_up(setup);
        assert_eq!(pmu.distance(), 10, "counter 0 does not interrupt");
        pmu.advance(
            1,
            &Counts {
                l2_refills: 10,
                ..Counts::default()
            },
        );
        assert_eq!(pmu.distance(), 10, "counter 1 has");
    }

    #[test]
    fn an_overflow_is_flagged_once_and_interrupts_where_it_may() {
        let mut pmu = Pmu::default();
        let mut setup = Setup {
            types: [0x17; COUNTERS],
            enabled: 0b1,
            control: 1,
            reserved: 6,
            ..Setup::default()
        };
        setup.values[0] = (1 << 32) - 10;
        pmu.set_up(setup);
        let mut counts = Counts {
            l2_refills: 9,
            ..Counts::default()
        };
        pmu.advance(1, &counts);
        assert_eq!((pmu.overflows(), pmu.is_armed()), (0, false));
        counts.l2_refills = 10;
        pmu.advance(1, &counts);
        assert_eq!(
            (
                pmu.overflows(),
                pmu.read(0, setup.values[0], 1000),
                pmu.interrupts()
            ),
            (1, 0, false)
        );
        pmu.set_up(Setup {
            interrupts: 1,
            ..setup
        });
        assert!(pmu.interrupts() && pmu.is_armed());
        pmu.clear_overflows(1);
        counts.l2_refills = 11;
        pmu.advance(1, &counts);
        assert!(!pmu.interrupts(), "it wrapped once");
    }
}
