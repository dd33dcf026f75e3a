//! The performance monitor of the calling vCPU (PMUv3), if its VM has one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::event::EventId;

/// Reads a performance monitor register by name.
macro_rules! read {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading a counter or its controls has no effect on memory.
        unsafe { crate::asm!("isb", concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack)) };
        value
    }};
}

/// Writes a performance monitor register by name.
macro_rules! write {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: counters and their controls have no effect on memory.
        unsafe { crate::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) };
    }};
}

/// Bit of the cycle counter in counter masks.
pub const CYCLES: u64 = 1 << 31;

/// Returns the number of event counters.
pub fn counters() -> u32 {
    (read!("pmcr_el0") >> 11 & 31) as u32
}

/// Turns on all counters that have been [`start`]ed.
pub fn enable() {
    write!("pmcr_el0", 1 << 6 | 1);
}

/// Turns off all counters.
pub fn disable() {
    write!("pmcr_el0", 1 << 6);
}

/// Sets a counter's event and initial value.
pub fn configure(counter: u32, event: EventId, start: u32) {
    write!("pmselr_el0", u64::from(counter));
    write!("pmxevtyper_el0", u64::from(event.0));
    write!("pmxevcntr_el0", u64::from(start));
}

/// Returns a counter's event, with its filters.
pub fn event(counter: u32) -> u64 {
    write!("pmselr_el0", u64::from(counter));
    read!("pmxevtyper_el0")
}

/// Returns a counter's value.
pub fn count(counter: u32) -> u32 {
    write!("pmselr_el0", u64::from(counter));
    read!("pmxevcntr_el0") as u32
}

/// Starts the counters in the mask.
pub fn start(mask: u64) {
    write!("pmcntenset_el0", mask);
}

/// Stops the counters in the mask.
pub fn stop(mask: u64) {
    write!("pmcntenclr_el0", mask);
}

/// Returns the mask of started counters.
pub fn started() -> u64 {
    read!("pmcntenset_el0")
}

/// Returns the cycle counter's value.
pub fn cycles() -> u64 {
    read!("pmccntr_el0")
}

/// Sets the cycle counter.
pub fn set_cycles(value: u64) {
    write!("pmccntr_el0", value);
}

/// Enables and disables the overflow interrupts of the counters in two masks.
pub fn interrupts(on: u64, off: u64) {
    write!("pmintenset_el1", on);
    write!("pmintenclr_el1", off);
}

/// Returns the mask of counters that have overflowed, and clears their flags.
pub fn take_overflows() -> u64 {
    let flags = read!("pmovsclr_el0");
    write!("pmovsclr_el0", flags);
    flags
}

/// Sets overflow flags, as if the counters had overflowed.
pub fn pretend_overflow(mask: u64) {
    write!("pmovsset_el0", mask);
}
