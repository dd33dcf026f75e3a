//! Vectors for a program that measures when an interrupt arrives.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Assembly of exception vectors that read the counter in their first instruction, for
/// `global_asm!`. They end the interrupt and the timer, and continue with interrupts masked.
///
/// x0: the address of the CPU interface, 0 for a GICv3's; x9: the counter in the vector; x10: where to continue;
/// x11 is lost. They are only valid while a function runs that has set these registers: all except
/// the interrupt's spin.
#[macro_export]
macro_rules! stamping_vectors {
    ($name:literal) => {
        concat!(
            ".section .text.",
            $name,
            ", \"ax\"\n.balign 2048\n.global ",
            $name,
            "\n",
            $name,
            ":",
            r#"
    .rept   5
    .balign 128
    b       .
    .endr
    .balign 128
    mrs     x9, cntvct_el0
    b       2f
    .rept   10
    .balign 128
    b       .
    .endr
    .balign 128
2:  cbz     x0, 3f
    ldr     w11, [x0, #0xc]             // GICC_IAR
    msr     cntv_ctl_el0, xzr
    isb
    str     w11, [x0, #0x10]            // GICC_EOIR
    b       4f
3:  mrs     x11, icc_iar1_el1
    msr     cntv_ctl_el0, xzr
    isb
    msr     icc_eoir1_el1, x11
4:  mrs     x11, spsr_el1
    orr     x11, x11, #0x80             // continue with interrupts masked
    msr     spsr_el1, x11
    msr     elr_el1, x10
    eret
"#
        )
    };
}
