//! The points at which a core abandons its stack: to enter a guest, or to continue on an empty
//! stack.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::arch::global_asm;

global_asm!(
    r#"
    // EL2 itself uses no SIMD register: only the guest's are reset.
    .arch_extension simd
    .section .text.vectors, "ax"
    // Enters a new guest: x0 points to its x0-x3; all other registers are zero.
    .global enter_guest
enter_guest:
    mrs     x4, tpidr_el2
    ldr     x4, [x4, #8]
    mov     sp, x4
    ldp     x2, x3, [x0, #16]
    ldp     x0, x1, [x0]
    .irp n, 4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    mov     x\n, xzr
    .endr
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movi    v\n\().2d, #0
    .endr
    .irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    movi    v\n\().2d, #0
    .endr
    msr     fpcr, xzr
    msr     fpsr, xzr
    isb
    eret
    // Nothing is speculated past the return.
    dsb     nsh
    isb

    // Abandons whatever the core was doing and continues at x0.
    .global continue_on_empty_stack
continue_on_empty_stack:
    mrs     x1, tpidr_el2
    ldr     x1, [x1, #8]
    mov     sp, x1
    mov     x29, xzr
    mov     x30, xzr
    br      x0
"#
);

unsafe extern "C" {
    /// Enters the guest at ELR_EL2 with `x0`–`x3` given and all other general registers, and those
    /// of FP and SIMD, zero.
    ///
    /// # Safety
    /// ELR_EL2, SPSR_EL2 and the EL1 state must be a vCPU's of this core. The stack is abandoned:
    /// no borrow or lock of this core may be held.
    pub fn enter_guest(arguments: &[u64; 4]) -> !;
    /// Continues with `next` on the core's empty stack.
    ///
    /// # Safety
    /// No borrow or lock of this core may be held.
    pub fn continue_on_empty_stack(next: extern "C" fn() -> !) -> !;
}
