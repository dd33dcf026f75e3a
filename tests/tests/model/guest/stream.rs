//! A guest without an operating system: streams over a buffer on one core, while rivals store on
//! the others.
//!
//! Parameters are at 0x4300_0000, 64 bits each: accesses per pass, passes, cores, bytes between two
//! accesses, number of refills after which the overflow interrupt is expected (0 for none), and
//! whether to run without a region of interest. Results are at 0x4300_0100: ticks of CNTVCT_EL0;
//! event counter 0, which counts L1D_CACHE_REFILL from 1000; and with the interrupt: counter 1,
//! which overflows after that many refills, when the interrupt was pending; PMOVSCLR_EL0 at that
//! time; PMOVSCLR_EL0 and ISR_EL1 after the flag was cleared. Rivals stream over 420 KiB.
//! Everything runs at EL2 with the MMU off, where every address is its own physical one.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![no_main]

core::arch::global_asm!(
    r#"
    .global _start
_start:
    mov     x0, #0
enter:
    mov     x19, x0
    movz    x20, #0x4300, lsl #16
    ldp     x21, x22, [x20]
    ldp     x23, x11, [x20, #16]
    ldp     x12, x13, [x20, #32]
    movz    x24, #0x4400, lsl #16
    add     x24, x24, x19, lsl #24
    add     x26, x20, #0x200
    cbnz    x19, rival
    mov     x25, #1
1:  cmp     x25, x23
    b.hs    2f
    movz    x0, #0xc400, lsl #16
    movk    x0, #3
    mov     x1, x25
    adr     x2, enter
    mov     x3, x25
    smc     #0
3:  ldr     x0, [x26, x25, lsl #3]
    cbz     x0, 3b
    add     x25, x25, #1
    b       1b
2:  movz    x0, #0x0800, lsl #16
    movk    x0, #0x03
    msr     pmevtyper0_el0, x0
    msr     pmevtyper1_el0, x0
    mov     x0, #3
    msr     pmcntenset_el0, x0
    mrs     x1, pmcr_el0
    orr     x1, x1, #1
    msr     pmcr_el0, x1
    cbnz    x13, 11f
    hint    #115
    isb
11: mov     x0, #1
    str     x0, [x26]
    mov     x0, #1000
    msr     pmevcntr0_el0, x0
    cbnz    x12, interrupt
    mrs     x27, cntvct_el0
    b       4f
    .balign 64
4:  mov     x1, x24
    mov     x2, x21
5:  ldr     x3, [x1]
    add     x1, x1, x11
    subs    x2, x2, #1
    b.ne    5b
    subs    x22, x22, #1
    b.ne    4b
    mrs     x28, cntvct_el0
    mrs     x9, pmevcntr0_el0
    add     x10, x9, #1
    mrs     x9, pmevcntr0_el0
    sub     x10, x10, #1
    hint    #113
    isb
    sub     x28, x28, x27
    stp     x28, x10, [x20, #0x100]
off:
    movz    x0, #0x8400, lsl #16
    movk    x0, #8
    smc     #0
6:  wfi
    b       6b
interrupt:
    // Interrupts are masked: the pending one is only observed, in ISR_EL1.
    movz    x4, #0x0800, lsl #16
    mov     w5, #1
    str     w5, [x4]
    movz    w6, #0x80, lsl #16
    str     w6, [x4, #0x100]
    movz    x4, #0x0801, lsl #16
    mov     w6, #0xff
    str     w6, [x4, #4]
    str     w5, [x4]
    mov     x0, #0x28
    msr     hcr_el2, x0
    mov     x0, #2
    msr     pmovsclr_el0, x0
    neg     x0, x12
    and     x0, x0, #0xffffffff
    msr     pmevcntr1_el0, x0
    mov     x0, #2
    msr     pmintenset_el1, x0
    mov     x1, x24
10: ldr     x3, [x1]
    add     x1, x1, x11
    mrs     x2, isr_el1
    tbz     x2, #7, 10b
    mrs     x5, pmevcntr1_el0
    mrs     x6, pmovsclr_el0
    str     x5, [x20, #0x110]
    str     x6, [x20, #0x118]
    mov     x0, #2
    msr     pmovsclr_el0, x0
    isb
    mrs     x6, pmovsclr_el0
    mrs     x7, isr_el1
    str     x6, [x20, #0x120]
    str     x7, [x20, #0x128]
    hint    #113
    isb
    b       off
rival:
    mov     x0, #1
    str     x0, [x26, x19, lsl #3]
9:  ldr     x0, [x26]
    cbz     x0, 9b
    mov     x5, #6720
    lsl     x5, x5, #6
    udiv    x5, x5, x11
7:  mov     x1, x24
    mov     x2, x5
8:  str     x2, [x1]
    add     x1, x1, x11
    subs    x2, x2, #1
    b.ne    8b
    b       7b
    "#
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
