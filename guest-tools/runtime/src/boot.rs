//! The guest's first instructions, its identity map, and the entry point of secondary vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::STACK_SHIFT;
use crate::global_asm;
use cloison_abi::map;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

// Block descriptors of 1 GiB. UXN everywhere; devices also PXN.
const NORMAL: u64 = 1 << 54 | 1 << 10 | 3 << 8 | 1 << 2 | 1;
const DEVICE: u64 = 1 << 54 | 1 << 53 | 1 << 10 | 1;
/// Attribute 0: Device-nGnRE; attribute 1: Normal, write-back, read- and write-allocate.
const MAIR: u64 = 0xff04;
/// 40-bit addresses in both ranges, 4 KiB granule, table walks in write-back inner-shareable
/// memory, no TTBR1.
const TCR: u64 = 2 << 32 | 1 << 23 | 3 << 12 | 1 << 10 | 1 << 8 | 24;
/// The bits that are always one, plus instruction cache, stack alignment check, data cache and MMU.
const SCTLR: u64 = 0x30d0_0800 | 1 << 12 | 1 << 3 | 1 << 2 | 1;

// Nothing is written to memory before the MMU and the caches are on: earlier stores would bypass
// the cache and could be overwritten by lines that the VM's previous life left in it.
global_asm!(
    r#"
    .section .text.start, "ax"
    .global _start
_start:
    mrs     x4, cntvct_el0              // very first: `first_ticks`
    mov     x19, x0
    mov     x20, x1
    mov     x21, x2
    mov     x22, x3
    mov     x23, x4
    bl      10f
    adrp    x0, __bss_start
    add     x0, x0, :lo12:__bss_start
    adrp    x1, __bss_end
    add     x1, x1, :lo12:__bss_end
2:  cmp     x0, x1
    b.hs    3f
    stp     xzr, xzr, [x0], #16
    b       2b
3:  adrp    x0, __stacks
    add     x0, x0, #(1 << {stack_shift})
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    mov     x1, x20
    mov     x2, x21
    mov     x3, x22
    mov     x4, x23
    b       {start}

    // PSCI CPU_ON enters here, with the vCPU's number in x0.
    .global cloison_guest_secondary
cloison_guest_secondary:
    mov     x19, x0
    bl      10f
    adrp    x0, __stacks
    add     x1, x19, #1
    lsl     x1, x1, #{stack_shift}
    add     x0, x0, x1
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    b       {secondary}

    // MMU and caches on, vectors set. Uses x0, x1; returns to x30.
10: ldr     x0, ={mair}
    msr     mair_el1, x0
    ldr     x0, ={tcr}
    msr     tcr_el1, x0
    adrp    x0, cloison_guest_tables
    msr     ttbr0_el1, x0
    adrp    x0, cloison_guest_vectors
    add     x0, x0, :lo12:cloison_guest_vectors
    msr     vbar_el1, x0
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     nsh
    isb
    ldr     x0, ={sctlr}
    msr     sctlr_el1, x0
    isb
    ret
    .ltorg

    .section .rodata.tables, "a"
    .balign 4096
cloison_guest_tables:                   // level 0: two entries of 512 GiB
    .quad   1f + 3
    .quad   2f + 3
    .fill   510, 8, 0
    .global cloison_guest_blocks
cloison_guest_blocks:
1:  .quad   {device}
    .set    gib, 1
    .rept   511
    .quad   (gib << 30) | {normal}
    .set    gib, gib + 1
    .endr
2:  .rept   512
    .quad   (gib << 30) | {normal}
    .set    gib, gib + 1
    .endr
    "#,
    start = sym start,
    secondary = sym crate::smp::secondary,
    stack_shift = const STACK_SHIFT,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
    device = const DEVICE,
    normal = const NORMAL,
);

static ARGS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    /// Defined by the macro `entry!`.
    safe fn cloison_guest_main();
}

extern "C" fn start(x0: u64, x1: u64, x2: u64, x3: u64, ticks: u64) -> ! {
    for (slot, value) in ARGS.iter().zip([x0, x1, x2, x3]) {
        slot.store(value, Relaxed);
    }
    FIRST_TICKS.store(ticks, Relaxed);
    map_devices();
    crate::uart::init();
    cloison_guest_main();
    crate::psci::system_off()
}

/// Maps the gigabytes of the VM's devices as devices, as the first one is from the start. No RAM of
/// the guest can be there.
fn map_devices() {
    use crate::device_map::{gicc, gicd, uart};
    for device in [gicd(), gicc(), uart()] {
        let gib = device >> 30;
        if (1..512).contains(&gib) {
            // SAFETY: an entry of the tables' first GiBs, which this vCPU alone uses yet. Nothing in
            // that GiB has been accessed, but the old entry may have been speculatively.
            unsafe { replace(gib as usize, gib << 30 | DEVICE) };
        }
    }
}

/// Replaces a block of 1 GiB, by break-before-make (Arm ARM DDI 0487, D8.16).
///
/// # Safety
///
/// Nothing that Rust knows of is in it.
unsafe fn replace(gib: usize, entry: u64) {
    let table: *mut u64;
    // SAFETY: only computes the address of the table, which is in this image.
    unsafe {
        crate::asm!(
            "adrp {0}, cloison_guest_blocks",
            "add {0}, {0}, :lo12:cloison_guest_blocks",
            out(reg) table,
            options(nomem, nostack, preserves_flags)
        )
    };
    for value in [0, entry] {
        // SAFETY: an entry in bounds, of tables that are memory of this image and that only this
        // vCPU uses yet.
        unsafe { table.add(gib).write_volatile(value) };
        crate::cpu::forget_translations();
    }
}

/// Returns `x0`–`x3` as they were at the first instruction: the `args` of the VM's configuration.
pub fn args() -> [u64; 4] {
    core::array::from_fn(|index| ARGS[index].load(Relaxed))
}

/// Returns one of [`args`], or `default` if the configuration leaves it zero.
pub fn arg(index: usize, default: u64) -> u64 {
    match args()[index] {
        0 => default,
        value => value,
    }
}

/// Returns CNTVCT_EL0 as read by the image's first instruction.
pub fn first_ticks() -> u64 {
    FIRST_TICKS.load(Relaxed)
}

const _: () = assert!(
    map::RAM == 0x4000_0000,
    "guest.ld places the image at the abi's RAM"
);
