//! The performance monitor of the calling vCPU (PMUv3), where its VM has one.

/// Reads a register of the performance monitor by name.
macro_rules! read {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading a counter or its controls has no effect on memory.
        unsafe { crate::asm!("isb", concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack)) };
        value
    }};
}

/// Writes a register of the performance monitor by name.
macro_rules! write {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: counters and their controls have no effect on memory.
        unsafe { crate::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) };
    }};
}

/// The cycle counter's bit in masks of counters.
pub const CYCLES: u64 = 1 << 31;

/// How many event counters there are.
pub fn counters() -> u32 {
    (read!("pmcr_el0") >> 11 & 31) as u32
}

/// Turns all counters on or off, those that are [`start`]ed.
pub fn enable(on: bool) {
    write!("pmcr_el0", 1 << 6 | u64::from(on));
}

/// Sets what a counter counts, and where it starts.
pub fn configure(counter: u32, event: u16, start: u32) {
    write!("pmselr_el0", u64::from(counter));
    write!("pmxevtyper_el0", u64::from(event));
    write!("pmxevcntr_el0", u64::from(start));
}

/// What a counter counts, with its filters.
pub fn event(counter: u32) -> u64 {
    write!("pmselr_el0", u64::from(counter));
    read!("pmxevtyper_el0")
}

/// A counter's value.
pub fn count(counter: u32) -> u32 {
    write!("pmselr_el0", u64::from(counter));
    read!("pmxevcntr_el0") as u32
}

/// Starts counters (a mask).
pub fn start(mask: u64) {
    write!("pmcntenset_el0", mask);
}

/// Stops counters.
pub fn stop(mask: u64) {
    write!("pmcntenclr_el0", mask);
}

/// Counters that are started.
pub fn started() -> u64 {
    read!("pmcntenset_el0")
}

/// The cycle counter.
pub fn cycles() -> u64 {
    read!("pmccntr_el0")
}

/// Sets the cycle counter.
pub fn set_cycles(value: u64) {
    write!("pmccntr_el0", value);
}

/// Lets counters interrupt when they overflow, or no longer.
pub fn interrupts(on: u64, off: u64) {
    write!("pmintenset_el1", on);
    write!("pmintenclr_el1", off);
}

/// Counters that have overflowed; their flags are cleared.
pub fn take_overflows() -> u64 {
    let flags = read!("pmovsclr_el0");
    write!("pmovsclr_el0", flags);
    flags
}

/// Sets overflow flags, as if the counters had overflowed.
pub fn pretend_overflow(mask: u64) {
    write!("pmovsset_el0", mask);
}
