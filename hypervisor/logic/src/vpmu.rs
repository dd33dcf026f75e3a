//! The virtual PMU of a vCPU (PMUv3, Arm ARM DDI 0487, chapter D13 and D24.5).
//!
//! Every access by a guest traps, or is a call of the counter service. The guest's counters are the
//! cycle counter and the physical counters from 0 on that no quota and no observation segment uses;
//! its registers show only these.
//!
//! ```text
//! trapped access     value = pmu.access(&physical, register, write); line(pmu.line(&physical))
//! counter service    results = pmu.serve(&physical, call, arguments)
//! overflow interrupt line(pmu.line(&physical))
//! vCPU starts        pmu = Vpmu::new(counters); pmu.reset(&physical, is_on)
//! ```
//!
//! `line` sets the level of the guest's PMU interrupt. While the line is high, the physical
//! interrupts of the counters that raised it are disabled, so that they do not repeat.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::quota::Counters;
use crate::syndrome::Encoding;
use cloison_abi::reply::{Counter, CounterMasks};
use cloison_abi::{CYCLE_COUNTER, Call, CallError};
use cloison_formats::bits::{assign, ones};
use cloison_formats::telemetry::MAX_HEMS;
use cloison_formats::units::EventId;
use heapless::Vec;

/// The physical PMU of the calling core, as this module uses it; a fake in the tests. Masks have
/// a bit per event counter and bit 31 for the cycle counter, as the registers do.
pub trait PhysicalPmu: Counters {
    /// Sets an event counter's event and exception levels (PMEVTYPER).
    fn set_type(&self, counter: u32, value: u32);
    /// Reads the cycle counter.
    fn cycles(&self) -> u64;
    /// Writes the cycle counter.
    fn set_cycles(&self, value: u64);
    /// Sets the exception levels at which cycles are counted (PMCCFILTR).
    fn set_cycle_filter(&self, value: u32);
    /// Starts and stops counters.
    fn enable(&self, on: u32, off: u32);
    /// Enables and disables the overflow interrupts of counters.
    fn interrupts(&self, on: u32, off: u32);
    /// Returns the counters that have overflowed.
    fn overflows(&self) -> u32;
    /// Sets and clears overflow flags.
    fn change_overflows(&self, set: u32, clear: u32);
    /// Sets what programs at EL0 may access (PMUSERENR).
    fn allow_user(&self, value: u32);
    /// Returns PMCR_EL0's fields that identify the CPU's implementer.
    fn identity(&self) -> u32;
    /// Returns PMCEID0_EL0 (0) or PMCEID1_EL0 (1).
    fn common_events(&self, which: u32) -> u64;
}

/// Bit of the cycle counter.
pub const CYCLES: u32 = 1 << CYCLE_COUNTER;
/// PMCR: enable; reset of the event counters; reset of the cycle counter.
const E: u32 = 1;
/// PMCR_EL0.P: resets the event counters.
const P: u32 = 1 << 1;
/// PMCR_EL0.C: resets the cycle counter.
const C: u32 = 1 << 2;
/// PMCR: the bits that are kept as written (DP, X, E), and the one that reads as one without
/// AArch32 (LC).
const KEPT: u32 = 1 << 5 | 1 << 4 | E;
const LC: u32 = 1 << 6;
/// PMEVTYPER: event, and the filters for EL1 and EL0. Those for EL2 and EL3 stay zero: a guest
/// counts only itself. P, U, NSK and NSU (bits 31 to 28); not NSH (27) and M (26).
const TYPE: u32 = 0xf000_ffff;
/// PMCCFILTR: only the filters.
const FILTER: u32 = 0xf000_0000;
/// Maximum number of counters, with the cycle counter.
const MOST: usize = 32;

/// A register of the PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// PMCR.
    Control,
    /// PMCNTENSET (`true`) and PMCNTENCLR.
    Enable(bool),
    /// PMOVSSET (`true`) and PMOVSCLR.
    Overflow(bool),
    /// PMINTENSET (`true`) and PMINTENCLR.
    Interrupt(bool),
    /// PMSWINC.
    Increment,
    /// PMSELR.
    Select,
    /// PMCEID0 or PMCEID1.
    CommonEvents(u32),
    /// PMCCNTR.
    Cycles,
    /// PMXEVTYPER.
    SelectedType,
    /// PMXEVCNTR.
    SelectedCounter,
    /// PMUSERENR.
    User,
    /// PMEVCNTR of an event counter.
    Counter(u32),
    /// PMEVTYPER of an event counter, or (31) PMCCFILTR: the cycle counter's event is fixed.
    Type(u32),
}

impl Register {
    /// Returns the PMU's register with this encoding.
    pub const fn decode(
        Encoding {
            op0,
            op1,
            crn,
            crm,
            op2,
        }: Encoding,
    ) -> Option<Self> {
        if op0 != 3 {
            return None;
        }
        Some(match (op1, crn, crm, op2) {
            (3, 9, 12, 0) => Self::Control,
            (3, 9, 12, 1) => Self::Enable(true),
            (3, 9, 12, 2) => Self::Enable(false),
            (3, 9, 12, 3) => Self::Overflow(false),
            (3, 9, 12, 4) => Self::Increment,
            (3, 9, 12, 5) => Self::Select,
            (3, 9, 12, 6 | 7) => Self::CommonEvents(op2 as u32 - 6),
            (3, 9, 13, 0) => Self::Cycles,
            (3, 9, 13, 1) => Self::SelectedType,
            (3, 9, 13, 2) => Self::SelectedCounter,
            (3, 9, 14, 0) => Self::User,
            (3, 9, 14, 3) => Self::Overflow(true),
            (0, 9, 14, 1) => Self::Interrupt(true),
            (0, 9, 14, 2) => Self::Interrupt(false),
            // PMEVCNTR<n> and PMEVTYPER<n> have the number in the lower two bits of CRm and in op2.
            (3, 14, 8..=11, _) => Self::Counter((crm as u32 - 8) * 8 + op2 as u32),
            (3, 14, 12..=15, _) => Self::Type((crm as u32 - 12) * 8 + op2 as u32),
            _ => return None,
        })
    }
}

/// A vCPU's PMU.
#[derive(Debug, Default)]
pub struct Vpmu {
    /// The number of its event counters, which are those from 0 on.
    pub counters: u32,
    /// PMCR_EL0, of which only [`KEPT`] is stored.
    control: u32,
    /// PMCNTENSET_EL0, or the mask of CounterEnable.
    enabled: u32,
    /// The mask of CounterInhibit; a PMU has no such register, so that it stays 0 there.
    inhibited: u32,
    /// PMINTENSET_EL1 as the guest has written it. The physical enables are a subset
    /// ([`Vpmu::line`]).
    interrupts: u32,
    /// PMSELR_EL0.SEL. The physical register is EL2's, so the guest's value is kept here.
    select: u32,
    /// PMUSERENR_EL0.
    user: u32,
    /// `PMEVTYPER<n>_EL0` as written, PMCCFILTR_EL0 at 31: reads need no access to the hardware.
    types: [u32; MOST],
}

impl Vpmu {
    /// Creates a PMU with this many event counters, at most 31.
    pub fn new(counters: u32) -> Self {
        Self {
            counters,
            ..Self::default()
        }
    }

    /// Sets the guest's counters to the state after power-on: nothing counts, nothing interrupts,
    /// and no value, event or filter of a former life is left. The PMU as a whole is enabled
    /// only if it `is_on`.
    pub fn reset(&mut self, physical: &impl PhysicalPmu, is_on: bool) {
        *self = Self {
            control: u32::from(is_on) * E,
            ..Self::new(self.counters)
        };
        // Stops first, so that no counter counts while its event and value change.
        physical.enable(0, self.all());
        physical.set_cycles(0);
        physical.set_cycle_filter(0);
        for counter in 0..self.counters {
            physical.set_type(counter, 0);
            physical.set(counter, 0);
        }
        physical.interrupts(0, self.all());
        physical.change_overflows(0, self.all());
        physical.allow_user(0);
    }

    /// Returns the mask of all the guest's counters.
    pub const fn all(&self) -> u32 {
        CYCLES | ((1 << self.counters) - 1)
    }

    /// Returns whether this is one of the guest's counters.
    const fn has(&self, counter: u32) -> bool {
        counter < self.counters || counter == CYCLE_COUNTER
    }

    /// Returns these counters if the PMU as a whole is enabled, otherwise none.
    const fn if_on(&self, counters: u32) -> u32 {
        if self.control & E != 0 { counters } else { 0 }
    }

    /// Returns the level of the guest's PMU interrupt, and adjusts the physical interrupts to it.
    /// The line is high while a counter's overflow flag and interrupt enable are 1, and PMCR_EL0.E
    /// is 1 (Arm ARM DDI 0487, chapter D13, overflow interrupt requests).
    pub fn line(&self, physical: &impl PhysicalPmu) -> bool {
        // Flags of the hypervisor's counters are none of the guest's.
        let overflows = physical.overflows() & self.all();
        let wanted = self.if_on(self.interrupts);
        // The physical interrupt of a counter whose line is high stays off until the guest clears
        // its flag: EL2 would otherwise take it at each return
        // (`an_overflow_holds_the_line_until_it_is_cleared`).
        let on = wanted & !overflows;
        physical.interrupts(on, self.all() & !on);
        wanted & overflows != 0
    }

    /// Handles a trapped read (without `write`) or write.
    pub fn access(
        &mut self,
        physical: &impl PhysicalPmu,
        register: Register,
        write: Option<u64>,
    ) -> u64 {
        let register = match register {
            // PMSELR_EL0.SEL = 31 names PMCCFILTR_EL0 here; as a counter it names none, and reads
            // as 0.
            Register::SelectedType => Register::Type(self.select),
            Register::SelectedCounter => Register::Counter(self.select),
            _ => register,
        };
        let Some(value) = write else {
            return self.read(physical, register);
        };
        let word = value as u32;
        // Bits of counters that the guest does not have are RAZ/WI, as those beyond PMCR_EL0.N.
        // This mask keeps a quota's counters out of reach
        // (`no_call_reaches_a_counter_of_the_hypervisors`).
        let bits = word & self.all();
        match register {
            Register::Control => {
                // PMCR_EL0.P and C reset counters, not their overflow flags (Arm ARM, PMCR_EL0).
                // They read as 0, so `KEPT` has neither.
                if word & P != 0 {
                    (0..self.counters).for_each(|counter| physical.set(counter, 0));
                }
                if word & C != 0 {
                    physical.set_cycles(0);
                }
                self.control = word & KEPT;
                self.run(physical);
            }
            Register::Enable(set) => {
                assign(&mut self.enabled, bits, set);
                self.run(physical);
            }
            Register::Interrupt(set) => assign(&mut self.interrupts, bits, set),
            Register::Overflow(true) => physical.change_overflows(bits, 0),
            Register::Overflow(false) => physical.change_overflows(0, bits),
            Register::Increment => self.increment(physical, bits),
            Register::Select => self.select = word & 0x1f,
            // 64 bits: PMCR_EL0.LC reads as one.
            Register::Cycles => physical.set_cycles(value),
            Register::User => {
                self.user = word & 0xf;
                physical.allow_user(self.user);
            }
            Register::Counter(counter) if counter < self.counters => physical.set(counter, word),
            Register::Type(CYCLE_COUNTER) => {
                self.types[CYCLE_COUNTER as usize] = word & FILTER;
                physical.set_cycle_filter(word & FILTER);
            }
            Register::Type(counter) if self.has(counter) => {
                self.types[counter as usize % MOST] = word & TYPE;
                physical.set_type(counter, word & TYPE);
            }
            _ => {}
        }
        0
    }

    /// Returns what a guest reads. Counters and flags are the hardware's, everything else is kept
    /// here; registers that set and clear show the same.
    fn read(&self, physical: &impl PhysicalPmu, register: Register) -> u64 {
        u64::from(match register {
            Register::Control => {
                // IMP and IDCODE of the CPU; N, in bits [15:11], of the guest.
                physical.identity() & 0xffff_0000 | self.counters << 11 | LC | self.control
            }
            Register::Enable(_) => self.enabled,
            Register::Interrupt(_) => self.interrupts,
            Register::Overflow(_) => physical.overflows() & self.all(),
            Register::Select => self.select,
            Register::CommonEvents(which) => return physical.common_events(which),
            Register::Cycles => return physical.cycles(),
            Register::User => self.user,
            Register::Counter(counter) if counter < self.counters => physical.get(counter),
            Register::Type(counter) if self.has(counter) => self.types[counter as usize % MOST],
            _ => 0,
        })
    }

    /// Starts the enabled counters, if the PMU as a whole is enabled.
    fn run(&self, physical: &impl PhysicalPmu) {
        let on = self.if_on(self.enabled & !self.inhibited);
        physical.enable(on, self.all() & !on);
    }

    /// Serves a call of the counter service.
    ///
    /// # Errors
    /// [`CallError::Absent`] for a counter that the guest does not have, [`CallError::Denied`] for
    /// a mask with one, [`CallError::Invalid`] for an event or value that does not fit the
    /// counter.
    pub fn serve(
        &mut self,
        physical: &impl PhysicalPmu,
        call: Call,
        [x1, x2, _]: [u64; 3],
    ) -> Result<[u64; 3], CallError> {
        // Saturates, so that no large number wraps to a counter that exists.
        let index = x1.min(u64::from(u32::MAX)) as u32;
        let kind = Register::Type(index);
        let (counter, event, most) = match index {
            CYCLE_COUNTER => (Register::Cycles, EventId::CPU_CYCLES.0.into(), u64::MAX),
            _ => (Register::Counter(index), 0, u32::MAX.into()),
        };
        // For the calls with a mask of counters; the others do not look at it.
        let named = if x1 & !u64::from(self.all()) == 0 {
            Ok(x1 as u32)
        } else {
            Err(CallError::Denied)
        };
        match call {
            Call::Counters => Ok([
                self.counters.into(),
                physical.common_events(0),
                physical.common_events(1),
            ]),
            Call::CounterEnable => {
                self.enabled = named?;
                self.run(physical);
                Ok([0; 3])
            }
            Call::CounterInhibit => {
                self.inhibited = named?;
                self.run(physical);
                Ok([0; 3])
            }
            Call::CounterMasks => {
                let clear = named?;
                // The guest's counters do not count at EL2: no flag is set between this and the
                // next step.
                let overflowed = physical.overflows() & self.all();
                physical.change_overflows(0, clear);
                Ok(CounterMasks {
                    enabled: self.enabled,
                    inhibited: self.inhibited,
                    overflowed,
                }
                .into())
            }
            _ if !self.has(index) => Err(CallError::Absent),
            Call::CounterEvent => Ok([self.read(physical, kind) | event, 0, 0]),
            Call::CounterEventSet
                // Bits that PMEVTYPER does not have, or another event for the cycle counter, which
                // has only one.
                if x2 & !u64::from(TYPE) != 0 || event != 0 && x2 & 0xffff != event =>
            {
                Err(CallError::Invalid)
            }
            Call::CounterEventSet => Ok([self.access(physical, kind, Some(x2)), 0, 0]),
            Call::CounterRead => {
                let overflowed = physical.overflows() >> index & 1 == 1;
                Ok(Counter {
                    value: self.read(physical, counter),
                    overflowed,
                }
                .into())
            }
            Call::CounterSet if x2 > most => Err(CallError::Invalid),
            // The flag must tell of an overflow of the new value only.
            Call::CounterSet => {
                physical.change_overflows(0, 1 << index);
                Ok([self.access(physical, counter, Some(x2)), 0, 0])
            }
            _ => Err(CallError::NotSupported),
        }
    }

    /// Returns the first of the enabled event counters, with the events that they count.
    pub fn counting(&self) -> Vec<(u32, EventId), MAX_HEMS> {
        let enabled = ones(self.enabled & !CYCLES).take(MAX_HEMS);
        enabled
            .map(|counter| (counter, EventId(self.types[counter as usize % MOST] as u16)))
            .collect()
    }

    /// PMSWINC: increments the enabled counters of event 0 (SW_INCR).
    fn increment(&self, physical: &impl PhysicalPmu, bits: u32) {
        for counter in ones(self.if_on(self.enabled & bits & !CYCLES)) {
            if self.types[counter as usize % MOST] & 0xffff == 0 {
                let value = physical.get(counter).wrapping_add(1);
                physical.set(counter, value);
                // It has wrapped: an overflow, as if the event had happened (SW_INCR).
                if value == 0 {
                    physical.change_overflows(1 << counter, 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use proptest::prelude::*;

    /// Six counters, of which the upper two belong to the hypervisor: any access to those is an
    /// error.
    #[derive(Default)]
    struct Fake {
        counters: RefCell<[u32; 6]>,
        types: RefCell<[u32; 6]>,
        cycles: Cell<u64>,
        enabled: Cell<u32>,
        interrupts: Cell<u32>,
        overflows: Cell<u32>,
        user: Cell<u32>,
    }

    const GUESTS: u32 = 4;
    const OTHERS: u32 = 0x7fff_fff0;

    impl Counters for Fake {
        fn get(&self, counter: u32) -> u32 {
            assert!(counter < GUESTS);
            self.counters.borrow()[counter as usize]
        }

        fn set(&self, counter: u32, value: u32) {
            assert!(counter < GUESTS);
            self.counters.borrow_mut()[counter as usize] = value;
        }
    }

    impl PhysicalPmu for Fake {
        fn set_type(&self, counter: u32, value: u32) {
            assert!(counter < GUESTS && value & 0x0fff_0000 == 0);
            self.types.borrow_mut()[counter as usize] = value;
        }

        fn cycles(&self) -> u64 {
            self.cycles.get()
        }

        fn set_cycles(&self, value: u64) {
            self.cycles.set(value);
        }

        fn set_cycle_filter(&self, value: u32) {
            assert_eq!(value & 0x0fff_ffff, 0);
        }

        fn enable(&self, on: u32, off: u32) {
            assert_eq!((on | off) & OTHERS, 0);
            self.enabled.set(self.enabled.get() & !off | on);
        }

        fn interrupts(&self, on: u32, off: u32) {
            assert_eq!((on | off) & OTHERS, 0);
            self.interrupts.set(self.interrupts.get() & !off | on);
        }

        fn overflows(&self) -> u32 {
            self.overflows.get()
        }

        fn change_overflows(&self, set: u32, clear: u32) {
            assert_eq!((set | clear) & OTHERS, 0);
            self.overflows.set(self.overflows.get() & !clear | set);
        }

        fn allow_user(&self, value: u32) {
            self.user.set(value);
        }

        fn identity(&self) -> u32 {
            0x4103_3000
        }

        fn common_events(&self, which: u32) -> u64 {
            u64::from(which) + 7
        }
    }

    fn new() -> (Fake, Vpmu) {
        let physical = Fake {
            enabled: Cell::new(0x8000_003f),
            overflows: Cell::new(0x21),
            ..Fake::default()
        };
        let mut pmu = Vpmu::new(GUESTS);
        pmu.reset(&physical, false);
        (physical, pmu)
    }

    #[test]
    fn reset_leaves_the_hypervisors_counters_alone() {
        let (physical, pmu) = new();
        assert_eq!(
            (physical.enabled.get(), physical.overflows.get()),
            (0x30, 0x20)
        );
        assert!(!pmu.line(&physical));
    }

    #[test]
    fn every_register_is_found_and_no_other() {
        assert_eq!(
            Register::decode(Encoding::new(3, 3, 14, 8, 0)),
            Some(Register::Counter(0))
        );
        assert_eq!(
            Register::decode(Encoding::new(3, 3, 14, 11, 6)),
            Some(Register::Counter(30))
        );
        assert_eq!(
            Register::decode(Encoding::new(3, 3, 14, 13, 1)),
            Some(Register::Type(9))
        );
        assert_eq!(
            Register::decode(Encoding::new(3, 3, 14, 15, 7)),
            Some(Register::Type(CYCLE_COUNTER))
        );
        assert_eq!(
            Register::decode(Encoding::new(3, 0, 9, 14, 2)),
            Some(Register::Interrupt(false))
        );
        assert_eq!(Register::decode(Encoding::new(3, 3, 9, 14, 4)), None);
        assert_eq!(
            Register::decode(Encoding::new(3, 3, 14, 2, 0)),
            None,
            "the timer's"
        );
    }

    #[test]
    fn a_guest_counts_only_while_all_is_on() {
        let (physical, mut pmu) = new();
        let mut write = |register, value: u64| pmu.access(&physical, register, Some(value));
        write(Register::Type(1), 0xffff_ffff);
        assert_eq!(physical.types.borrow()[1], TYPE);
        write(Register::Enable(true), u64::from(u32::MAX));
        assert_eq!(physical.enabled.get(), 0x30);
        write(Register::Control, 1);
        assert_eq!(physical.enabled.get(), 0x8000_003f);
        write(Register::Enable(false), 0x2);
        assert_eq!(physical.enabled.get(), 0x8000_003d);
        write(Register::Control, 0);
        assert_eq!(physical.enabled.get(), 0x30);
    }

    #[test]
    fn control_says_how_many_counters_there_are_and_resets_them() {
        let (physical, mut pmu) = new();
        pmu.access(&physical, Register::Counter(2), Some(5));
        pmu.access(&physical, Register::Counter(4), Some(5));
        pmu.access(&physical, Register::Cycles, Some(1 << 40));
        assert_eq!(pmu.access(&physical, Register::Control, None), 0x4103_2040);
        assert_eq!(
            (
                pmu.access(&physical, Register::Counter(2), None),
                pmu.access(&physical, Register::Counter(4), None)
            ),
            (5, 0)
        );
        pmu.access(&physical, Register::Control, Some(0x7));
        assert_eq!(
            (physical.counters.borrow()[2], physical.cycles.get()),
            (0, 0)
        );
        assert_eq!(pmu.access(&physical, Register::Control, None), 0x4103_2041);
    }

    #[test]
    fn selected_registers_are_those_selected() {
        let (physical, mut pmu) = new();
        pmu.access(&physical, Register::Select, Some(3));
        pmu.access(&physical, Register::SelectedType, Some(0x11));
        pmu.access(&physical, Register::SelectedCounter, Some(9));
        assert_eq!(
            (
                pmu.access(&physical, Register::Type(3), None),
                physical.counters.borrow()[3]
            ),
            (0x11, 9)
        );
        for (selected, expected) in [(5, 0), (31, 0x8000_0000)] {
            pmu.access(&physical, Register::Select, Some(selected));
            pmu.access(&physical, Register::SelectedType, Some(0x8000_0011));
            pmu.access(&physical, Register::SelectedCounter, Some(9));
            assert_eq!(
                pmu.access(&physical, Register::SelectedType, None),
                expected
            );
            assert_eq!(pmu.access(&physical, Register::SelectedCounter, None), 0);
        }
    }

    #[test]
    fn an_overflow_holds_the_line_until_it_is_cleared() {
        let (physical, mut pmu) = new();
        pmu.access(&physical, Register::Control, Some(1));
        pmu.access(&physical, Register::Interrupt(true), Some(0x33));
        assert!(!pmu.line(&physical));
        assert_eq!(physical.interrupts.get(), 0x3);
        physical.overflows.set(0x22);
        assert!(pmu.line(&physical));
        assert_eq!(
            physical.interrupts.get(),
            0x1,
            "it has come, and does not come again"
        );
        assert_eq!(pmu.access(&physical, Register::Overflow(false), None), 0x2);
        pmu.access(
            &physical,
            Register::Overflow(false),
            Some(u64::from(u32::MAX)),
        );
        assert_eq!(physical.overflows.get(), 0x20);
        assert!(!pmu.line(&physical));
        assert_eq!(physical.interrupts.get(), 0x3);
        // The guest learns nothing of the hypervisor's own overflow.
        physical.overflows.set(0x30);
        assert!(!pmu.line(&physical));
        assert_eq!(pmu.access(&physical, Register::Overflow(true), None), 0);
    }

    /// Serves a call that succeeds.
    fn done(physical: &Fake, pmu: &mut Vpmu, call: Call, x1: u64, x2: u64) -> [u64; 3] {
        pmu.serve(physical, call, [x1, x2, 0]).expect("it fits")
    }

    #[test]
    fn calls_count_as_registers_do() {
        let (physical, mut pmu) = new();
        pmu.reset(&physical, true);
        assert_eq!(
            done(&physical, &mut pmu, Call::Counters, 0, 0),
            [GUESTS.into(), 7, 8]
        );
        done(&physical, &mut pmu, Call::CounterEventSet, 2, 0x4000_0017);
        assert_eq!(
            (
                done(&physical, &mut pmu, Call::CounterEvent, 2, 0),
                physical.types.borrow()[2]
            ),
            ([0x4000_0017, 0, 0], 0x4000_0017)
        );
        done(&physical, &mut pmu, Call::CounterSet, 2, 41);
        physical.overflows.set(1 << 2 | 1 << 5);
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterRead, 2, 0),
            [41, 1, 0]
        );
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterMasks, 4, 0),
            [0, 0, 4]
        );
        assert_eq!(
            physical.overflows.get(),
            1 << 5,
            "the hypervisor's own stays"
        );
        done(&physical, &mut pmu, Call::CounterEnable, 0x8000_0006, 0);
        assert_eq!(physical.enabled.get() & !OTHERS, 0x8000_0006);
        done(&physical, &mut pmu, Call::CounterInhibit, 0x8000_0002, 0);
        assert_eq!(physical.enabled.get() & !OTHERS, 0x4);
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterMasks, 0, 0),
            [0x8000_0006, 0x8000_0002, 0]
        );
        assert_eq!(
            pmu.counting().as_slice(),
            [(1, EventId(0)), (2, EventId(0x17))]
        );
        done(&physical, &mut pmu, Call::CounterSet, 31, 1 << 40);
        done(&physical, &mut pmu, Call::CounterEventSet, 31, 0x8000_0011);
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterRead, 31, 0),
            [1 << 40, 0, 0]
        );
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterEvent, 31, 0),
            [0x8000_0011, 0, 0]
        );
        pmu.reset(&physical, true);
        assert_eq!(
            done(&physical, &mut pmu, Call::CounterMasks, 0, 0),
            [0; 3],
            "nothing is left"
        );
    }

    #[test]
    fn calls_that_cannot_be_served_say_why() {
        let (physical, mut pmu) = new();
        let mut refused = |call, x1, x2| {
            pmu.serve(&physical, call, [x1, x2, 0])
                .expect_err("refused")
        };
        for counter in [4, 5, 30, 32, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            for call in [
                Call::CounterEvent,
                Call::CounterEventSet,
                Call::CounterRead,
                Call::CounterSet,
            ] {
                assert_eq!(refused(call, counter, 0x11), CallError::Absent);
            }
        }
        for mask in [0x10, 0x20, 1 << 30, 1 << 32, u64::MAX] {
            for call in [
                Call::CounterEnable,
                Call::CounterInhibit,
                Call::CounterMasks,
            ] {
                assert_eq!(refused(call, mask, 0), CallError::Denied);
            }
        }
        for event in [1 << 16, 1 << 27, 1 << 32] {
            assert_eq!(
                refused(Call::CounterEventSet, 0, event),
                CallError::Invalid,
                "{event:#x}"
            );
        }
        assert_eq!(
            refused(Call::CounterEventSet, 31, 0x08),
            CallError::Invalid,
            "only cycles"
        );
        assert_eq!(
            refused(Call::CounterSet, 3, 1 << 32),
            CallError::Invalid,
            "32 bits"
        );
        assert_eq!(refused(Call::Time, 0, 0), CallError::NotSupported);
    }

    proptest! {
        /// The fake panics where a counter of the hypervisor's is touched.
        #[test]
        fn no_call_reaches_a_counter_of_the_hypervisors(
            calls in prop::collection::vec(
                (0x13u32..=0x1b, any::<u64>(), 0u64..40, any::<u64>(), any::<bool>()),
                1..60,
            ),
        ) {
            let (physical, mut pmu) = new();
            let _ = pmu.counters;
            for (function, wild, near, x2, is_wild) in calls {
                let call = Call::from_id(0xC600_0000 + function).expect("a call");
                let _ = pmu.serve(&physical, call, [if is_wild { wild } else { near }, x2, 0]);
            }
            prop_assert_eq!(physical.overflows.get() >> 5, 1);
        }
    }

    #[test]
    fn software_counts_its_own_event() {
        let (physical, mut pmu) = new();
        pmu.access(&physical, Register::Type(1), Some(0x11));
        pmu.access(&physical, Register::Counter(0), Some(u64::from(u32::MAX)));
        pmu.access(&physical, Register::Enable(true), Some(0x3));
        pmu.access(&physical, Register::Increment, Some(0xff));
        assert_eq!(physical.counters.borrow()[0], u32::MAX);
        pmu.access(&physical, Register::Control, Some(1));
        pmu.access(&physical, Register::Increment, Some(0xff));
        assert_eq!(
            (
                &physical.counters.borrow()[..2],
                physical.overflows.get() & 0xf
            ),
            ([0, 0].as_slice(), 1)
        );
    }
}
