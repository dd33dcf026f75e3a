//! The assembly from the boot loader's jump to Rust, on each core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::loaded::{self, DEVICE, MEMORY, NORMAL, STACK, STARTING};
use crate::run;
use aarch64_cpu::registers::{MAIR_EL2, SCTLR_EL2, TCR_EL2};
use core::arch::global_asm;

/// MAIR_EL2: index 0 Device-nGnRE, 1 Normal write-back.
const MAIR: u64 = MAIR_EL2::Attr0_Device::nonGathering_nonReordering_EarlyWriteAck.value
    | MAIR_EL2::Attr1_Normal_Outer::WriteBack_NonTransient_ReadWriteAlloc.value
    | MAIR_EL2::Attr1_Normal_Inner::WriteBack_NonTransient_ReadWriteAlloc.value;
/// TCR_EL2: 39-bit input, 4 KiB granule, write-back inner-shareable walks, 40-bit output; bits 23
/// and 31 are RES1.
const TCR: u64 = (64 - 39)
    | TCR_EL2::IRGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable.value
    | TCR_EL2::ORGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable.value
    | TCR_EL2::SH0::Inner.value
    | TCR_EL2::TG0::KiB_4.value
    | TCR_EL2::PS::Bits_40.value
    | 1 << 23
    | 1 << 31;
/// SCTLR_EL2: the RES1 bits of Armv8.0, MMU, caches, stack alignment check.
const SCTLR: u64 = 0x30c5_0830
    | SCTLR_EL2::M::Enable.value
    | SCTLR_EL2::C::Cacheable.value
    | SCTLR_EL2::SA::Enable.value
    | SCTLR_EL2::I::Cacheable.value;
/// HCR_EL2: EL1 is AArch64; interrupts and SErrors come to EL2.
const HCR: u64 = 1 << 31 | 1 << 5 | 1 << 4 | 1 << 3;

global_asm!(
    r#"
    .section .text.boot, "ax"
    .global _start
_start:
    // The header of the arm64 boot protocol (Linux, Documentation/arch/arm64/booting.rst).
    b       1f
    .long   0
    .quad   0                       // text_offset
    .quad   __image_end - _start    // image_size; the image builder adds the claims
    .quad   0xa                     // little-endian, 4 KiB pages, may be placed anywhere
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .long   0
    // Boot parameters, as those of the hypervisor.
    .global __boot_parameters
__boot_parameters:
    .ascii  "CLOIBOOT"
    .quad   0                       // console base
    .quad   0                       // console kind: 1 PL011, 2 Cadence, 3 mini
    .quad   0                       // 1: no PSCI

1:  mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    wrong_level
    msr     daifset, #0xf
    adrp    x19, _start             // physical base
    adrp    x20, {memory}           // level 1, then the two tables of level 2
    // All is device memory.
    ldr     x2, ={device}
    mov     x3, #0
2:  lsl     x4, x3, #30
    orr     x4, x4, x2
    str     x4, [x20, x3, lsl #3]
    add     x3, x3, #1
    cmp     x3, #256
    b.lo    2b
    // The gigabyte of the image has a table.
    add     x21, x20, #4096
    orr     x4, x21, #3
    lsr     x5, x19, #30
    str     x4, [x20, x5, lsl #3]
    lsl     x5, x5, #30
    mov     x3, #0
3:  lsl     x4, x3, #21
    add     x4, x4, x5
    orr     x4, x4, x2
    str     x4, [x21, x3, lsl #3]
    add     x3, x3, #1
    cmp     x3, #512
    b.lo    3b
    ldr     x2, ={normal}
    orr     x4, x19, x2
    ubfx    x3, x19, #21, #9
    str     x4, [x21, x3, lsl #3]
    // The image at its link address.
    add     x22, x20, #8192
    str     x4, [x22]
    orr     x4, x22, #3
    str     x4, [x20, #(256 * 8)]
    // What was written with caches off must not be hidden by stale lines.
    dmb     sy
    add     x3, x20, #(3 * 4096)
4:  sub     x3, x3, #64
    dc      ivac, x3
    cmp     x3, x20
    b.hi    4b
    mov     x0, #0
    bl      turn_on
    mov     x0, x19
    ldr     x1, [x19, #16]
    bl      {main}
9:  wfe
    b       9b

    // A secondary core, MMU off.
    .global hello_secondary
hello_secondary:
    mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    9b
    msr     daifset, #0xf
    adrp    x20, {memory}
    // The number of the core was written with caches on, and cleaned.
    adrp    x0, {starting}
    add     x0, x0, :lo12:{starting}
    ldr     x0, [x0]
    // The first stack is the boot core's, which may have any number.
    add     x0, x0, #1
    bl      turn_on
    sub     x0, x0, #1
    bl      {secondary}
    b       9b

    // MMU and caches on, vectors and stack x0 set; returns at the link address.
    // x20: level 1.
turn_on:
    ldr     x3, ={mair}
    msr     mair_el2, x3
    ldr     x3, ={tcr}
    msr     tcr_el2, x3
    msr     ttbr0_el2, x20
    ldr     x3, ={hcr}
    msr     hcr_el2, x3
    mov     x3, #0x33ff             // RES1: nothing traps
    msr     cptr_el2, x3
    isb
    tlbi    alle2
    ic      iallu
    dsb     sy
    isb
    ldr     x3, ={sctlr}
    msr     sctlr_el2, x3
    isb
    ldr     x3, =hello_vectors
    msr     vbar_el2, x3
    ldr     x3, ={memory}
    add     x3, x3, #(3 * 4096)
    add     x4, x0, #1
    mov     x5, #{stack}
    madd    x3, x4, x5, x3
    mov     sp, x3
    mov     x29, xzr
    // From the address that it was loaded at to the same one as linked.
    adr     x4, turn_on
    ldr     x5, =turn_on
    sub     x5, x5, x4
    add     x30, x30, x5
    isb
    ret

    // At EL1 or EL3, x1 being CurrentEL: the text for the level, byte by byte.
wrong_level:
    adr     x2, at_el1
    cmp     x1, #(3 << 2)
    b.ne    5f
    adr     x2, at_el3
5:  adr     x3, __boot_parameters
    ldp     x4, x5, [x3, #8]
    cbz     x4, 9b
6:  ldrb    w6, [x2], #1
    cbz     w6, 9b
    // The status register and its bit, and the data register, by the kind.
    cmp     x5, #2
    b.hi    7f
    b.eq    8f
4:  ldr     w7, [x4, #0x18]         // PL011: until UARTFR.TXFF is clear
    tbnz    w7, #5, 4b
    str     w6, [x4]
    b       6b
8:  ldr     w7, [x4, #0x2c]         // Cadence: until Channel_sts.TFUL is clear
    tbnz    w7, #4, 8b
    str     w6, [x4, #0x30]
    b       6b
7:  ldr     w7, [x4, #0x54]         // mini UART: until its line's status has room
    tbz     w7, #5, 7b
    str     w6, [x4, #0x40]
    b       6b
    // `cloison_hello::early` has the same texts, for their reader, and a test compares them.
at_el1:
    .asciz  "cloison hello: started at EL1, and needs EL2 #el1\r\n"
at_el3:
    .asciz  "cloison hello: started at EL3, and needs EL2 #el3\r\n"
    .balign 8
    .ltorg
"#,
    memory = sym MEMORY,
    starting = sym STARTING,
    main = sym boot_core,
    secondary = sym run::secondary,
    device = const DEVICE,
    normal = const NORMAL,
    mair = const MAIR,
    tcr = const TCR,
    hcr = const HCR,
    sctlr = const SCTLR,
    stack = const STACK,
);

/// Calls the checks with what follows the image, in the length that its header gives.
extern "C" fn boot_core(base: u64, size: u64) -> ! {
    run::check(loaded::init(base, size))
}
