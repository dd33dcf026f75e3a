//! The calling vCPU: its number, its interrupt mask, waiting.
// SPDX-License-Identifier: MIT OR Apache-2.0

use aarch64_cpu::asm;
use aarch64_cpu::registers::{DAIF, MPIDR_EL1, Readable, VBAR_EL1, Writeable};

/// Number of vCPUs for which the runtime has stacks.
pub const MAX_VCPUS: usize = 4;
/// log2 of a vCPU's stack; `guest.ld` reserves as much.
pub(crate) const STACK_SHIFT: u32 = 14;

/// Returns the calling vCPU's number in its VM.
pub fn current() -> usize {
    (MPIDR_EL1.get() & 0xff) as usize
}

/// Masks interrupts. Returns whether they were unmasked before.
pub fn mask_interrupts() -> bool {
    let unmasked = !DAIF.is_set(DAIF::I);
    // SAFETY: masking interrupts cannot break memory safety. A compiler barrier on purpose (no
    // `nomem`).
    unsafe { crate::asm!("msr daifset, #2", options(nostack, preserves_flags)) };
    unmasked
}

/// Unmasks interrupts. The program must have installed its handler.
pub fn unmask_interrupts() {
    // SAFETY: the vectors have been set since boot and save all registers. A compiler barrier on
    // purpose (no `nomem`).
    unsafe { crate::asm!("msr daifclr, #2", options(nostack, preserves_flags)) };
}

/// Runs `f` with interrupts masked.
pub fn without_interrupts<T>(f: impl FnOnce() -> T) -> T {
    let unmasked = mask_interrupts();
    let result = f();
    if unmasked {
        unmask_interrupts();
    }
    result
}

/// Waits for an interrupt, even if interrupts are masked.
pub fn wait_for_interrupt() {
    asm::wfi();
}

/// Sleeps until `done` returns true, which an interrupt handler causes. Checks with interrupts
/// masked: an interrupt between the check and the wait still wakes the vCPU.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    loop {
        let unmasked = mask_interrupts();
        let ready = done();
        if !ready {
            asm::wfi();
        }
        if unmasked {
            unmask_interrupts();
        }
        if ready {
            return;
        }
    }
}

/// Waits until the effects of earlier accesses to system and device registers are visible (ISB).
pub fn synchronize() {
    asm::barrier::isb(asm::barrier::SY);
}

/// Returns whether an interrupt is pending for the vCPU, masked or not (ISR_EL1.I).
pub fn is_interrupted() -> bool {
    let isr: u64;
    // SAFETY: reads a register that only says which interrupts are pending.
    unsafe {
        crate::asm!("mrs {}, isr_el1", out(reg) isr, options(nomem, nostack, preserves_flags))
    };
    isr >> 7 & 1 == 1
}

/// Yields to another vCPU. An emulator that runs one vCPU at a time switches to the next; hardware
/// does nothing.
pub fn give_way() {
    // SAFETY: a hint. Memory accesses must stay on their side of it (no `nomem`).
    unsafe { crate::asm!("yield", options(nostack, preserves_flags)) };
}

/// Makes the vCPU forget the translations of entries that it has changed.
pub(crate) fn forget_translations() {
    // SAFETY: drops copies of entries, which the tables still have. Stores to them must stay before
    // it (no `nomem`).
    unsafe {
        crate::asm!(
            "dsb ishst",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}

/// Sets the exception vector table. Returns the previous one.
///
/// # Safety
/// `table` must hold code for every exception that can occur until the next change.
pub unsafe fn set_vectors(table: u64) -> u64 {
    let before = VBAR_EL1.get();
    VBAR_EL1.set(table);
    asm::barrier::isb(asm::barrier::SY);
    before
}
