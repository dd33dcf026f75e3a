//! The virtual timer and the clock behind it.

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, ReadWriteable, Readable, Writeable};

/// The clock's ticks, now.
pub fn now() -> u64 {
    barrier::isb(barrier::SY);
    CNTVCT_EL0.get()
}

/// Ticks per second.
pub fn frequency() -> u64 {
    CNTFRQ_EL0.get()
}

/// Ticks in so many microseconds, at least one.
pub fn micros(micros: u64) -> u64 {
    (micros.saturating_mul(frequency()) / 1_000_000).max(1)
}

/// Arms the timer for the moment `deadline`; [`cloison_abi::irq::VTIMER`] follows, once the interrupt controller lets
/// it.
pub fn arm(deadline: u64) {
    CNTV_CVAL_EL0.set(deadline);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
    barrier::isb(barrier::SY);
}

/// The moment for which the timer was armed last.
pub fn deadline() -> u64 {
    CNTV_CVAL_EL0.get()
}

/// Stops the timer; an interrupt that it holds up goes away.
pub fn disarm() {
    CNTV_CTL_EL0.modify(CNTV_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}
