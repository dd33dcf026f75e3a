//! Event counters of one core as a guest configures them, and what the model adds to them.
//!
//! QEMU keeps the registers. It counts none of the modelled events, so a counter's value is QEMU's plus what was added
//! here since the guest last wrote it. Overflow flags are kept here: QEMU only has the cycle counter's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::events::{Counts, Event};

/// Number of event counters of a Cortex-A53.
pub const COUNTERS: usize = 6;

/// The registers that define what is counted.
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
    /// Returns the event that a counter counts at an exception level, in the Non-secure state.
    fn event(&self, counter: usize, level: u8) -> Option<Event> {
        let own = counter as u64 >= self.reserved & 31;
        let on = if own { self.reserved >> 7 & 1 } else { self.control & 1 };
        if on == 0 || self.enabled >> counter & 1 == 0 {
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
        // QEMU itself counts cycles, from guest time, which is the model's.
        Event::from_number(kind & 0x3ff).filter(|event| counted && *event != Event::CPU_CYCLES)
    }
}

/// The counters of one core.
#[derive(Clone, Debug, Default)]
pub struct Pmu {
    setup: Setup,
    added: [u64; COUNTERS],
    overflowed: u64,
    seen: Counts,
}

/// Bits of an event counter of the A53.
const BITS: u32 = 32;
/// Bit E of PMCR_EL0.
const ENABLE: u64 = 1;

impl Pmu {
    /// Adds what was counted since the last call, all at one exception level.
    pub fn advance(&mut self, level: u8, counts: &Counts, double_l2: bool) {
        for counter in 0..COUNTERS {
            if let Some(event) = self.setup.event(counter, level) {
                let new = event.count(counts, 0, double_l2) - event.count(&self.seen, 0, double_l2);
                let before = self.setup.values[counter] + self.added[counter];
                self.added[counter] += new;
                if (before + new) >> BITS != before >> BITS {
                    self.overflowed |= 1 << counter;
                }
            }
        }
        self.seen = *counts;
    }
    /// Updates the configuration after the guest changed the registers.
    pub fn set_up(&mut self, setup: Setup) {
        self.setup = setup;
    }
    /// Resets the addition to a counter that the guest wrote.
    pub fn written(&mut self, counter: usize) {
        self.added[counter] = 0;
    }
    /// Resets the additions to all counters, which the guest set to zero.
    pub fn cleared(&mut self) {
        self.added = [0; COUNTERS];
    }
    /// Returns the value that a guest reads from a counter whose value in QEMU is `value`.
    pub fn read(&self, counter: usize, value: u64) -> u64 {
        value.wrapping_add(self.added[counter]) & ((1 << BITS) - 1)
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
    pub const fn interrupts(&self) -> bool {
        self.setup.control & ENABLE != 0 && self.overflowed & self.setup.interrupts != 0
    }
    /// Returns whether the overflow interrupt of some enabled counter is enabled, so that its overflow must not be
    /// noticed late.
    pub const fn is_armed(&self) -> bool {
        self.setup.interrupts & self.setup.enabled & ((1 << COUNTERS) - 1) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(kind: u64) -> Pmu {
        let mut pmu = Pmu::default();
        let setup = Setup { types: [kind; COUNTERS], enabled: 0b11, control: 1, reserved: 1, ..Setup::default() };
        pmu.set_up(setup);
        pmu
    }

    #[test]
    fn a_counter_counts_where_it_is_told_to() {
        let mut counts = Counts { l2_refills: 5, ..Counts::default() };
        let mut pmu = counting(0x17);
        pmu.advance(1, &counts, false);
        counts.l2_refills = 8;
        pmu.advance(2, &counts, false);
        assert_eq!(pmu.read(0, 100), 105, "EL2 is not counted without NSH");
        assert_eq!(pmu.read(1, 100), 100, "counter 1 is EL2's own, and HPME is off");
        pmu.written(0);
        assert_eq!(pmu.read(0, u64::from(u32::MAX)), u64::from(u32::MAX));
        let mut pmu = counting(0x17 | 1 << 27 | 1 << 31);
        pmu.advance(1, &counts, false);
        assert_eq!(pmu.read(0, 0), 0);
        counts.l2_refills = 10;
        pmu.advance(2, &counts, false);
        assert_eq!(pmu.read(0, u64::from(u32::MAX)), 1, "32 bits");
    }

    #[test]
    fn an_overflow_is_flagged_once_and_interrupts_where_it_may() {
        let mut pmu = Pmu::default();
        let mut setup = Setup { types: [0x17; COUNTERS], enabled: 0b1, control: 1, reserved: 6, ..Setup::default() };
        setup.values[0] = (1 << 32) - 10;
        pmu.set_up(setup);
        let mut counts = Counts { l2_refills: 9, ..Counts::default() };
        pmu.advance(1, &counts, false);
        assert_eq!((pmu.overflows(), pmu.is_armed()), (0, false));
        counts.l2_refills = 10;
        pmu.advance(1, &counts, false);
        assert_eq!((pmu.overflows(), pmu.read(0, setup.values[0]), pmu.interrupts()), (1, 0, false));
        pmu.set_up(Setup { interrupts: 1, ..setup });
        assert!(pmu.interrupts() && pmu.is_armed());
        pmu.clear_overflows(1);
        counts.l2_refills = 11;
        pmu.advance(1, &counts, false);
        assert!(!pmu.interrupts(), "it wrapped once");
    }
}
