//! Counting with the hypervisor's observation segments: for a VM whose PMU is not its own, but that has the service `hem`.
//!
//! The configuration decides what is counted (`hems = […]`), and each start and stop makes a record in the log. What the
//! library itself does between a start and a stop is counted too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine};
use crate::cpu::Cpu;
use crate::error::Error;
use cloison_abi::{Call, CallError};

/// The most events of a VM that are looked for.
const MOST: usize = 31;
/// The workload number of the records that the library makes.
pub const WORKLOAD: u64 = 99;

/// The events that the hypervisor counts for the vCPU that executes this.
#[derive(Clone, Copy, Debug)]
pub struct Hems {
    events: [u16; MOST],
    number: u32,
    is_open: bool,
}

impl Default for Hems {
    fn default() -> Self {
        Self::new()
    }
}

impl Hems {
    /// Returns a way to count whose events are not known yet.
    pub const fn new() -> Self {
        Self { events: [0; MOST], number: 0, is_open: false }
    }
}

impl Counters for Hems {
    fn probe(&mut self) -> Result<Machine, Error> {
        let cpu = Cpu::by_midr(midr()).ok_or(Error::NoCounters)?;
        self.number = 0;
        for (index, slot) in (0..).zip(&mut self.events) {
            match call(Call::HemRead, [index, 0, 0]) {
                Ok([_, _, event]) => *slot = event as u16,
                Err(Error::NoEvent) => break,
                Err(error) => return Err(error),
            }
            self.number += 1;
        }
        if self.number == 0 {
            return Err(Error::NoCounters);
        }
        // Call::Time is in nanoseconds.
        Ok(Machine { cpu, counters: (1_u32 << self.number) - 1, frequency: 1_000_000_000 })
    }

    fn allows(&self, counter: u32, event: u16) -> bool {
        counter < self.number && self.events.get(counter as usize) == Some(&event)
    }

    fn width(&self, _: u32) -> u32 {
        64
    }

    fn configure(&mut self, counter: u32, event: u16, interrupts: bool) -> Result<(), Error> {
        if interrupts {
            return Err(Error::NotSupported);
        }
        if self.allows(counter, event) { Ok(()) } else { Err(Error::Conflict) }
    }

    fn read(&mut self, counter: u32) -> Result<u64, Error> {
        match call(Call::HemRead, [counter.into(), 0, 0])? {
            [value, 0, _] => Ok(value),
            // The hypervisor counts in 64 bits: what overflowed in spite of that is lost.
            _ => Err(Error::CountersLost),
        }
    }

    fn overflowed(&mut self) -> u32 {
        0
    }

    fn write(&mut self, _: u32, value: u64) -> Result<(), Error> {
        // A segment starts at zero, which is all that is asked for.
        if value == 0 { Ok(()) } else { Err(Error::NotSupported) }
    }

    fn clear(&mut self, _: u32) {}

    fn ticks(&mut self) -> u64 {
        call(Call::Time, [0; 3]).map_or(0, |[nanoseconds, ..]| nanoseconds)
    }

    fn enable(&mut self, _: u32) -> Result<(), Error> {
        if !self.is_open {
            call(Call::SegmentBegin, [WORKLOAD, 0, 0])?;
            self.is_open = true;
        }
        Ok(())
    }

    fn disable(&mut self, _: u32) -> Result<(), Error> {
        if self.is_open {
            call(Call::SegmentEnd, [0; 3])?;
            self.is_open = false;
        }
        Ok(())
    }

    fn freeze(&mut self) {}

    fn thaw(&mut self) {}
}

#[cfg(target_arch = "aarch64")]
fn midr() -> u32 {
    let value: u64;
    // SAFETY: reading an identification has no effect on memory.
    unsafe { core::arch::asm!("mrs {}, midr_el1", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value as u32
}

#[cfg(target_arch = "aarch64")]
fn call(function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error> {
    let [mut x1, mut x2, mut x3] = arguments;
    let mut x0 = u64::from(function as u32);
    // SAFETY: by the calling convention only x0 to x3 change, and none of these calls changes memory.
    unsafe {
        core::arch::asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3, options(nostack));
    }
    reply(x0 as i64, [x1, x2, x3])
}

#[cfg(not(target_arch = "aarch64"))]
fn midr() -> u32 {
    panic!("only an AArch64 machine has MIDR_EL1")
}

#[cfg(not(target_arch = "aarch64"))]
fn call(_: Call, _: [u64; 3]) -> Result<[u64; 3], Error> {
    panic!("only a guest can call a hypervisor")
}

#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
fn reply(status: i64, results: [u64; 3]) -> Result<[u64; 3], Error> {
    if status >= 0 {
        return Ok(results);
    }
    Err(match CallError::from_x0(status) {
        Some(CallError::Denied) => Error::Permission,
        Some(CallError::Absent | CallError::Invalid) => Error::NoEvent,
        Some(CallError::Sequence) => Error::CountersLost,
        _ => Error::NotSupported,
    })
}
