//! The vectors: accesses that fault return, interrupts are recorded, all else ends the image with a
//! line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::gic;
use crate::machine::access;
use crate::report;
use core::arch::global_asm;

global_asm!(
    r#"
    .section .text.vectors, "ax"
    .balign 2048
    .global hello_vectors
hello_vectors:
    .set    vector, 0
    .rept   16
    .balign 128
    sub     sp, sp, #288
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    mov     x1, #vector
    b       1f
    .set    vector, vector + 1
    .endr
    .balign 128
1:  stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x2, elr_el2
    stp     x30, x2, [sp, #240]
    mrs     x2, spsr_el2
    mrs     x3, esr_el2
    stp     x2, x3, [sp, #256]
    mrs     x2, far_el2
    str     x2, [sp, #272]
    mov     x0, sp
    bl      {handler}
    ldp     x30, x2, [sp, #240]
    msr     elr_el2, x2
    ldr     x2, [sp, #256]
    msr     spsr_el2, x2
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #288
    eret
    "#,
    handler = sym handle,
);

/// Registers at an exception, as stored by the vectors.
#[repr(C)]
struct Frame {
    x: [u64; 31],
    elr: u64,
    spsr: u64,
    esr: u64,
    far: u64,
}

/// Index of the vector "IRQ from the current level, with its own stack".
const VECTOR_IRQ: u64 = 5;

extern "C" fn handle(frame: &mut Frame, vector: u64) {
    if vector == VECTOR_IRQ {
        return gic::take();
    }
    match access::after_fault(frame.elr, frame.esr) {
        Some((address, syndrome)) => {
            frame.elr = address;
            frame.x[0] = 0;
            frame.x[1] = syndrome;
        }
        None => report::abandon(format_args!(
            "exception by vector {vector}: esr={:#x} elr={:#x} far={:#x} spsr={:#x}",
            frame.esr, frame.elr, frame.far, frame.spsr
        )),
    }
}
