//! Counting with the PMU's registers (PMUv3, Arm ARM D11): for a VM with its own PMU, or a machine
//! without a hypervisor.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine, Overflow};
use crate::cpu::Cpu;
use crate::error::Error;
use cloison_events::{CounterIndex, CounterSet, EventId};

/// PMCR_EL0 while no counter counts. LC: the cycle counter overflows at 64 bits.
pub const STOPPED: u64 = 1 << 6;
/// PMCR_EL0 while the enabled counters count (E).
pub const COUNTING: u64 = STOPPED | 1;

/// Reads a system register by name.
#[cfg(target_arch = "aarch64")]
macro_rules! read {
    ($($name:tt)+) => {{
        let value: u64;
        // SAFETY: reading a counter, its controls or an identification has no effect on memory.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $($name)+), out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }};
}

/// Writes a system register by name.
#[cfg(target_arch = "aarch64")]
macro_rules! write {
    ([$($name:tt),+], $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: counters and their controls have no effect on memory.
        unsafe { core::arch::asm!(concat!("msr ", $($name,)+ ", {}"), "isb", in(reg) value, options(nostack, preserves_flags)) };
    }};
}

#[cfg(not(target_arch = "aarch64"))]
macro_rules! read {
    ($($name:tt)+) => {
        elsewhere(concat!($($name)+))
    };
}

#[cfg(not(target_arch = "aarch64"))]
macro_rules! write {
    ([$($name:tt),+], $value:expr) => {{
        let _: u64 = $value;
        elsewhere(concat!($($name),+));
    }};
}

/// Stands for registers on machines that do not have them, so that guests type-check there.
#[cfg(not(target_arch = "aarch64"))]
fn elsewhere(register: &str) -> u64 {
    panic!("{register} is a register of AArch64")
}

/// Reads an event counter's value by its number: these registers have no index.
macro_rules! read_counter {
    ($counter:expr; $($number:literal)*) => {
        match $counter {
            $($number => read!("pmevcntr", $number, "_el0"),)*
            _ => 0,
        }
    };
}

/// Writes an event counter's value or type.
macro_rules! write_counter {
    ($counter:expr, $prefix:literal, $value:expr; $($number:literal)*) => {
        match $counter {
            $($number => write!([$prefix, $number, "_el0"], $value),)*
            _ => {}
        }
    };
}

/// Calls one of the macros above with the numbers of all event counters.
macro_rules! each {
    ($which:ident, $($arguments:tt)*) => {
        $which!($($arguments)*; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30)
    };
}

/// The PMU of the calling core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pmuv3;

impl Counters for Pmuv3 {
    fn probe(&mut self) -> Result<Machine, Error> {
        // ID_AA64DFR0_EL1.PMUVer: 1 to 14 is some PMUv3.
        if !matches!(read!("id_aa64dfr0_el1") >> 8 & 15, 1..=14) {
            return Err(Error::NoCounters);
        }
        let cpu = Cpu::by_midr(read!("midr_el1") as u32).ok_or(Error::NoCounters)?;
        let number = (read!("pmcr_el0") >> 11 & 31) as u32;
        let counters = CounterSet::lowest(number) | CounterSet::CYCLES;
        Ok(Machine {
            cpu,
            counters,
            frequency: read!("cntfrq_el0"),
        })
    }

    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error> {
        // No filter: what EL1 and EL0 do is counted, and what EL2 does is not.
        if counter == CounterIndex::CYCLES {
            write!(["pmccfiltr_el0"], 0);
        } else {
            each!(write_counter, counter.index(), "pmevtyper", event.0.into());
        }
        let one = CounterSet::from(counter);
        let bit = one.bits().into();
        if overflow == Overflow::Interrupts {
            write!(["pmintenset_el1"], bit);
        } else {
            write!(["pmintenclr_el1"], bit);
        }
        self.clear(one);
        Ok(())
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        Ok(if counter == CounterIndex::CYCLES {
            read!("pmccntr_el0")
        } else {
            each!(read_counter, counter.index())
        })
    }

    fn overflowed(&mut self) -> CounterSet {
        CounterSet::from_bits(read!("pmovsclr_el0") as u32)
    }

    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error> {
        if counter == CounterIndex::CYCLES {
            write!(["pmccntr_el0"], value);
        } else {
            each!(write_counter, counter.index(), "pmevcntr", value);
        }
        Ok(())
    }

    fn clear(&mut self, counters: CounterSet) {
        write!(["pmovsclr_el0"], counters.bits().into());
    }

    fn ticks(&mut self) -> u64 {
        read!("cntvct_el0")
    }

    fn enable(&mut self, counters: CounterSet) -> Result<(), Error> {
        write!(["pmcntenset_el0"], counters.bits().into());
        Ok(())
    }

    fn disable(&mut self, counters: CounterSet) -> Result<(), Error> {
        write!(["pmcntenclr_el0"], counters.bits().into());
        Ok(())
    }

    fn freeze(&mut self) {
        write!(["pmcr_el0"], STOPPED);
    }

    fn thaw(&mut self) {
        write!(["pmcr_el0"], COUNTING);
    }
}
