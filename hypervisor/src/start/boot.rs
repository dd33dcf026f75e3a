//! The assembly from the boot loader's jump to Rust at the link address, and later onto the colored
//! copy.
//!
//! The loader follows the arm64 boot protocol (Linux, `Documentation/arch/arm64/booting.rst`): MMU
//! off, the image on a 2 MiB boundary, its memory clean to the point of coherency. Code that runs
//! before the MMU is on only accesses the two tables of `EARLY` and uses no lock.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::early::{self, BOOT_STACK, DEVICE_BLOCK, Loaded, NORMAL_BLOCK};
use crate::machine::layout;
use crate::start::bring_up;
use aarch64_cpu::registers::{MAIR_EL2, SCTLR_EL2, TCR_EL2};
use cloison_formats::addr::PhysAddr;
use core::arch::global_asm;

global_asm!(
    r#"
    // Maps the gigabyte that contains \address one to one.
    .macro MAP_GIGABYTE address, attributes
    lsr     x3, \address, #30
    lsl     x4, x3, #30
    orr     x4, x4, \attributes
    str     x4, [x20, x3, lsl #3]
    .endm
    // Makes sure that nothing of earlier tables or code is left, and sets SCTLR_EL2.
    .macro TURN_ON control
    isb
    // The new tables are not used before the invalidation is complete (Arm ARM DDI 0487, D8.13).
    tlbi    alle2
    ic      iallu
    dsb     sy
    isb
    msr     sctlr_el2, \control
    isb
    .endm
    // Prepares for Rust.
    .macro FIRST_CALL
    adrp    x3, vectors
    add     x3, x3, :lo12:vectors
    msr     vbar_el2, x3
    // 0: this core has no `Cpu` yet, which the vectors and `cpu::current_index` look for. The zeros
    // in x29 and x30 end a backtrace.
    msr     tpidr_el2, xzr
    mov     x29, xzr
    mov     x30, xzr
    .endm

    .section .text.boot, "ax"
    .global _start
_start:
    // The header of the arm64 boot protocol: 64 bytes, of which this is the first word.
    b       1f
    .long   0
    .quad   0                       // text_offset
    .quad   __image_end - _start    // image_size; the image builder adds the system image
    .quad   0xa                     // little-endian, 4 KiB pages, may be placed anywhere
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .long   0
    // Boot parameters, filled in by the image builder: values needed before the configuration can
    // be read.
    .global __boot_parameters
__boot_parameters:
    .ascii  "CLOIBOOT"
    .quad   0                       // console base
    .quad   0                       // console kind: 1 PL011, 2 Cadence, 3 mini
    .quad   0                       // 1: no PSCI

// At EL1 or EL3 nothing here would work, and no message either: the core waits.
1:  mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    9f
    // Debug exceptions, SErrors, IRQs and FIQs stay masked at EL2 from here on.
    msr     daifset, #0xf
    adrp    x19, _start             // physical base
    adrp    x20, {early}              // level 1
    add     x21, x20, #4096         // level 2
    ldr     x22, [x19, #16]         // image_size

    // Identity map: the gigabytes that contain the image's first and last byte, as normal memory.
    mov     x2, #{normal_block}
    // Two entries, which are the same one unless the image lies across a gigabyte's end.
    MAP_GIGABYTE x19, x2
    add     x3, x19, x22
    MAP_GIGABYTE x3, x2
    // The gigabyte of the console, as device memory.
    adr     x5, __boot_parameters
    ldr     x5, [x5, #8]
    // Without boot parameters, there is no console and no message.
    cbz     x5, 2f
    ldr     x6, ={device_block}
    MAP_GIGABYTE x5, x6
    // The link address, in blocks of 2 MiB.
2:  mov     x3, #({image} >> 30)
    // A table descriptor: valid, and bit 1.
    orr     x4, x21, #3
    str     x4, [x20, x3, lsl #3]
    orr     x4, x19, x2
    add     x5, x22, #0x200000
    lsr     x5, x5, #21
    add     x3, x21, #(({image} >> 21 & 511) * 8)
3:  str     x4, [x3], #8
    add     x4, x4, #0x200000
    subs    x5, x5, #1
    b.ne    3b
    // What was written with caches off must not be hidden by stale lines. The barrier keeps the
    // maintenance after the stores, which go past the caches.
    dmb     sy
    mov     x3, x20
    add     x4, x20, #8192
4:  dc      ivac, x3
    add     x3, x3, #64
    cmp     x3, x4
    b.lo    4b

    ldr     x3, ={mair}
    msr     mair_el2, x3
    ldr     x3, ={tcr}
    msr     tcr_el2, x3
    msr     ttbr0_el2, x20
    ldr     x3, ={sctlr}
    TURN_ON x3
    // The literal is a link address: from the branch on, the PC is in the second map.
    ldr     x3, =5f
    br      x3
5:  adrp    x3, {early}
    add     x3, x3, #8192
    mov     x4, #{stack}
    add     sp, x3, x4
    FIRST_CALL
    // `boot_main(base, size)`: the physical base, and the size in the header.
    mov     x0, x19
    mov     x1, x22
    bl      {boot_main}
9:  wfe
    b       9b
    .ltorg

    // Copies the image to its colored frames and continues on the copy.
    // x0: the frames' physical addresses; x1: pages; x2: physical address of the trampoline's copy.
    // Uses no stack, because the stack is part of what is copied. Vector registers move 64 bytes in
    // four instructions; they are cleared afterwards, so that no guest finds parts of the
    // hypervisor in them.
    .arch_extension fp
    .arch_extension simd
    .global switch_to_copy
switch_to_copy:
    mov     x5, #{cptr}
    // Vector registers do not trap at EL2 from here on.
    msr     cptr_el2, x5
    isb
    ldr     x3, =__image_start
6:  ldr     x4, [x0], #8
    mov     x5, #64
7:  ldp     q0, q1, [x3], #32
    ldp     q2, q3, [x3], #32
    stp     q0, q1, [x4]
    stp     q2, q3, [x4, #32]
    // Also invalidates: a plain clean may lose data on a Cortex-A53 (erratum 855873).
    dc      civac, x4
    add     x4, x4, #64
    subs    x5, x5, #1
    b.ne    7b
    subs    x1, x1, #1
    b.ne    6b
    movi    v0.2d, #0
    movi    v1.2d, #0
    movi    v2.2d, #0
    movi    v3.2d, #0
    dsb     sy
    // The return address is a link address, at which the copy is mapped under the final tables.
    mov     x9, x30
    br      x2

    .section .trampoline, "ax"
    // First word: from the copy of the image, MMU on; x9: where to continue.
    mrs     x3, sctlr_el2
    // SCTLR_EL2.M off: this page has the same address either way, so the next fetch is right. All
    // that was written is in memory already.
    bic     x3, x3, #1
    msr     sctlr_el2, x3
    isb
    b       8f
    // Second entry, at offset 32: a secondary core, MMU off.
    .balign 32
    adr     x4, trampoline_parameters
    // The fifth word: `secondary_entry`.
    ldr     x9, [x4, #32]
8:  adr     x4, trampoline_parameters
    ldp     x5, x6, [x4]
    ldp     x7, x8, [x4, #16]
    msr     mair_el2, x5
    msr     tcr_el2, x6
    msr     ttbr0_el2, x7
    TURN_ON x8
    br      x9
    .balign 8
    .global trampoline_parameters
trampoline_parameters:
    // The third word is TTBR0_EL2: `early::continue_on_copy` fills it in.
    .quad   {mair}, {tcr}, 0, {sctlr} + {wxn}
    .quad   secondary_entry

    .section .text.boot
    // A secondary core at the link address.
secondary_entry:
    // The core's number, because a spin table passes no argument. Cores start one at a time.
    adrp    x0, {starting}
    ldr     w0, [x0, :lo12:{starting}]
    ldr     x1, =({stacks} + 4096 + {stack_size})
    mov     x2, #{stack_stride}
    madd    x1, x0, x2, x1
    mov     sp, x1
    FIRST_CALL
    bl      {secondary_main}
    b       9b
    .ltorg
"#,
    normal_block = const NORMAL_BLOCK,
    device_block = const DEVICE_BLOCK,
    image = const layout::IMAGE,
    stacks = const layout::STACKS,
    stack_size = const layout::STACK_SIZE,
    stack_stride = const layout::STACK_STRIDE,
    stack = const BOOT_STACK,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
    wxn = const WXN,
    boot_main = sym boot_main,
    secondary_main = sym bring_up::secondary_main,
    starting = sym crate::devices::power::STARTING,
    early = sym early::EARLY,
    cptr = const crate::vm::guest_registers::CPTR_RES1,
);

/// MAIR_EL2: index 0 Device-nGnRE, 1 Normal write-back, 2 Normal non-cacheable.
const MAIR: u64 = MAIR_EL2::Attr0_Device::nonGathering_nonReordering_EarlyWriteAck.value
    | MAIR_EL2::Attr1_Normal_Outer::WriteBack_NonTransient_ReadWriteAlloc.value
    | MAIR_EL2::Attr1_Normal_Inner::WriteBack_NonTransient_ReadWriteAlloc.value
    | MAIR_EL2::Attr2_Normal_Outer::NonCacheable.value
    | MAIR_EL2::Attr2_Normal_Inner::NonCacheable.value;
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

/// Added to [`SCTLR`] under the final tables: nothing writable is executable, whatever a descriptor
/// says.
const WXN: u64 = SCTLR_EL2::WXN::Enable.value;

/// Runs at the link address under the early map; `base` and `size` describe the loaded image.
extern "C" fn boot_main(base: u64, size: u64) -> ! {
    let image = early::image();
    let own = image.end - image.start;
    // SAFETY: the early map contains the loaded image one to one, up to the size in its header;
    // nobody writes what follows the hypervisor.
    let behind = unsafe {
        core::slice::from_raw_parts((base + own) as *const u8, size.saturating_sub(own) as usize)
    };
    bring_up::boot_core(&Loaded {
        base: PhysAddr(base),
        behind,
    })
}
