//! The PMU (PMUv3, Arm ARM DDI 0487, chapter D13): event counters that only EL2 can access.
//!
//! Quotas use counters from the top, observation segments from the bottom. MDCR_EL2.HPMN sets the quotas' counters
//! apart, and TPM traps every access by a guest as well: an emulator that honors HPMN only in part must not let a guest
//! stop its own quota.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::registers::{self, *};
use crate::machine::sysreg;
use aarch64_cpu::registers::MDCR_EL2;
use cloison_formats::units::EventId;

/// MDCR_EL2 without HPMN: traps debug, OS lock and ROM registers and the PMU, and enables the counters from HPMN on.
const MDCR: u64 = MDCR_EL2::TPMCR::SET.value
    | MDCR_EL2::TPM::SET.value
    | MDCR_EL2::HPME::SET.value
    | MDCR_EL2::TDA::SET.value
    | MDCR_EL2::TDOSA::SET.value
    | MDCR_EL2::TDRA::SET.value;
/// Bit of the cycle counter in the enable and overflow registers.
const CYCLES: u64 = 1 << 31;

/// Returns the number of event counters of this core.
pub fn counters() -> u32 {
    PMCR_EL0.read(PMCR::N) as u32
}

/// Initializes this core's PMU: everything stopped, `reserved` counters for the quotas.
pub fn init_core(reserved: u32) {
    // Armv8.0 leaves HPMN = 0 undefined. Counters below HPMN still belong to the hypervisor, by TPM.
    let available = u64::from(counters().saturating_sub(reserved).max(1));
    // SAFETY: `MDCR` traps what the contract requires; HPMN is not above the number of counters.
    unsafe { registers::write_mdcr(MDCR | MDCR_EL2::HPMN.val(available).value) };
    PMCNTENCLR_EL0.set(u64::from(u32::MAX));
    PMINTENCLR_EL1.set(u64::from(u32::MAX));
    PMOVSCLR_EL0.set(u64::from(u32::MAX));
    PMCR_EL0.write(PMCR::E::SET + PMCR::P::SET + PMCR::C::SET + PMCR::LC::SET);
    PMUSERENR_EL0.set(0);
    // Count at EL1 and EL0 only: all filter bits zero.
    PMCCFILTR_EL0.set(0);
    sysreg::isb();
}

/// Returns whether an overflow raises this core's interrupt, which `is_pending` looks for. No counter runs yet.
pub fn raises_interrupt(is_pending: impl Fn() -> bool) -> bool {
    enable_interrupt(0);
    PMOVSSET_EL0.set(counter_bit(0));
    sysreg::isb();
    let raised = (0..100).any(|_| is_pending());
    stop(counter_bit(0));
    clear_overflows(counter_bit(0));
    raised
}

/// Returns a counter's bit in the enable, interrupt and overflow registers.
const fn counter_bit(counter: u32) -> u64 {
    1 << counter
}

/// Selects a counter, unless it is selected: guests cannot.
fn select(counter: u32) {
    if PMSELR_EL0.get() != u64::from(counter) {
        PMSELR_EL0.set(u64::from(counter));
        sysreg::isb();
    }
}

/// Sets a counter's event (at EL1 and EL0) and initial value.
pub fn configure(counter: u32, event: EventId, start: u32) {
    set_type(counter, event.0.into());
    preset(counter, start);
}

/// Sets a counter's event and exception levels, in the format of PMEVTYPER.
pub fn set_type(counter: u32, value: u32) {
    select(counter);
    PMXEVTYPER_EL0.set(u64::from(value));
}

/// Sets a counter's value.
pub fn preset(counter: u32, value: u32) {
    select(counter);
    PMXEVCNTR_EL0.set(u64::from(value));
}

/// Returns a counter's value.
pub fn count(counter: u32) -> u32 {
    select(counter);
    PMXEVCNTR_EL0.get() as u32
}

/// Starts the counters in the bit mask.
pub fn start(mask: u64) {
    PMCNTENSET_EL0.set(mask);
    sysreg::isb();
}

/// Stops the counters in the bit mask.
pub fn stop(mask: u64) {
    PMCNTENCLR_EL0.set(mask);
    PMINTENCLR_EL1.set(mask);
    sysreg::isb();
}

/// Enables a counter's overflow interrupt.
pub fn enable_interrupt(counter: u32) {
    PMINTENSET_EL1.set(counter_bit(counter));
}

/// Returns whether a counter has overflowed.
pub fn has_overflowed(counter: u32) -> bool {
    PMOVSCLR_EL0.get() & counter_bit(counter) != 0
}

/// Clears the overflow flags of these counters. Returns which were set.
pub fn take_overflows(mask: u64) -> u64 {
    let flags = PMOVSCLR_EL0.get() & mask;
    clear_overflows(flags);
    flags
}

/// Clears the overflow flags of these counters.
pub fn clear_overflows(mask: u64) {
    PMOVSCLR_EL0.set(mask);
    sysreg::isb();
}

/// Resets the cycle counter to zero and starts it.
pub fn start_cycles() {
    PMCCNTR_EL0.set(0);
    start(CYCLES);
}

/// Stops the cycle counter and returns its value.
pub fn stop_cycles() -> u64 {
    stop(CYCLES);
    PMCCNTR_EL0.get()
}
