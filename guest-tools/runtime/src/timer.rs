//! The virtual timer and its counter.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::MAX_VCPUS;
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, ReadWriteable, Readable, Writeable,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Deadlines to arm after the interrupt being handled has ended, by vCPU; zero if there is none.
static REARM: [AtomicU64; MAX_VCPUS] = [const { AtomicU64::new(0) }; MAX_VCPUS];

/// Returns the current value of the virtual counter, in ticks.
pub fn now() -> u64 {
    barrier::isb(barrier::SY);
    CNTVCT_EL0.get()
}

/// Returns the number of ticks per second.
pub fn frequency() -> u64 {
    CNTFRQ_EL0.get()
}

/// Converts microseconds to ticks; returns at least one.
pub fn micros(micros: u64) -> u64 {
    (micros.saturating_mul(frequency()) / 1_000_000).max(1)
}

/// Arms the timer for `deadline`. [`cloison_abi::irq::VTIMER`] follows, if the interrupt controller
/// has it enabled.
pub fn arm(deadline: u64) {
    CNTV_CVAL_EL0.set(deadline);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
    barrier::isb(barrier::SY);
}

/// Stops the timer, and arms it for `deadline` once the interrupt has ended. The interrupt handler
/// calls it.
///
/// If the timer were armed before the end and its deadline passed meanwhile, its line would stay
/// high all along. Hardware makes the interrupt pending again and delivers it. QEMU (10.0) does
/// not: when a guest under a hypervisor ends an interrupt, QEMU's GIC deactivates the physical
/// interrupt without sampling the physical lines again, so the interrupt waits until something else
/// triggers that.
pub fn rearm(deadline: u64) {
    disarm();
    REARM[crate::cpu::current() % MAX_VCPUS].store(deadline, Relaxed);
}

/// Arms the timer as requested by [`rearm`], once the interrupt has ended.
pub(crate) fn after_end() {
    let deadline = REARM[crate::cpu::current() % MAX_VCPUS].swap(0, Relaxed);
    if deadline != 0 {
        arm(deadline);
    }
}

/// Returns the deadline for which the timer was armed last.
pub fn deadline() -> u64 {
    CNTV_CVAL_EL0.get()
}

/// Stops the timer, which also lowers its interrupt line.
pub fn disarm() {
    CNTV_CTL_EL0.modify(CNTV_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}
