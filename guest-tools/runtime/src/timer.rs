//! The virtual timer and the clock behind it.

use crate::boot::MAX_VCPUS;
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, ReadWriteable, Readable, Writeable};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Deadlines for after the end of the interrupt that is being handled, by vCPU; zero where there is none.
static REARM: [AtomicU64; MAX_VCPUS] = [const { AtomicU64::new(0) }; MAX_VCPUS];

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

/// From the interrupt handler: stops the timer, and arms it for `deadline` once the interrupt has been ended.
///
/// Armed before that, a timer whose deadline has passed by the time of the end would hold its line up all along. The
/// interrupt is pending again then, and hardware delivers it. QEMU (10.0) does not: when a guest under a hypervisor ends
/// an interrupt, its GIC deactivates the physical one but does not look at the physical lines again, and the interrupt
/// waits until something else makes it look.
pub fn rearm(deadline: u64) {
    disarm();
    REARM[crate::cpu::current() % MAX_VCPUS].store(deadline, Relaxed);
}

/// Arms the timer as [`rearm`] said; the interrupt has been ended.
pub(crate) fn after_end() {
    let deadline = REARM[crate::cpu::current() % MAX_VCPUS].swap(0, Relaxed);
    if deadline != 0 {
        arm(deadline);
    }
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
