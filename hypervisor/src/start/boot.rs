//! From the boot loader's jump to Rust at the link address, and later onto the colored copy.
//!
//! The loader follows the arm64 boot protocol (Linux, `Documentation/arch/arm64/booting.rst`): MMU off, the image on a
//! 2 MiB boundary, its memory clean to the point of coherency. What runs before the MMU is on touches only the two
//! tables below and uses no lock.

use crate::machine::mmu::Built;
use aarch64_cpu::registers::{MAIR_EL2, SCTLR_EL2, TCR_EL2};
use aarch64_paging::descriptor::El23Attributes as Attr;
use cloison_formats::addr::PhysAddr;
use core::arch::global_asm;

/// Bytes of the boot stack; also what core 0 runs on until it enters its VM.
const BOOT_STACK: usize = 24 * 1024;

/// Memory that only the code below uses by name.
#[repr(C, align(4096))]
struct Early {
    level1: [u64; 512],
    level2: [u64; 512],
    stack: [u8; BOOT_STACK],
}

// Written by the assembly below before any Rust runs; Rust reads `level1` to add blocks to it, through the address in
// TTBR0_EL2.
static mut EARLY: Early = Early { level1: [0; 512], level2: [0; 512], stack: [0; BOOT_STACK] };

global_asm!(
    r#"
    .section .text.boot, "ax"
    .global _start
_start:
    b       1f
    .long   0
    .quad   0                       // text_offset
    .quad   __image_end - _start    // image_size; the image builder adds the system image
    .quad   0xa                     // little-endian, 4 KiB pages, may be placed anywhere
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .long   0
    // Boot parameters, filled in by the image builder: what is needed before the configuration can be read.
    .global __boot_parameters
__boot_parameters:
    .ascii  "CLOIBOOT"
    .quad   0                       // console base
    .quad   0                       // console kind: 1 PL011, 2 Cadence, 3 mini
    .quad   0                       // 1: no PSCI

1:  mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    9f
    msr     daifset, #0xf
    adrp    x19, _start             // physical base
    adrp    x20, {early}              // level 1
    add     x21, x20, #4096         // level 2
    ldr     x22, [x19, #16]         // image_size

    // Identity: the gigabytes that hold the image's first and last byte, normal memory.
    mov     x2, #{normal_block}
    lsr     x3, x19, #30
    lsl     x4, x3, #30
    orr     x4, x4, x2
    str     x4, [x20, x3, lsl #3]
    add     x3, x19, x22
    lsr     x3, x3, #30
    lsl     x4, x3, #30
    orr     x4, x4, x2
    str     x4, [x20, x3, lsl #3]
    // The gigabyte of the console, as a device.
    adr     x5, __boot_parameters
    ldr     x5, [x5, #8]
    cbz     x5, 2f
    lsr     x3, x5, #30
    lsl     x4, x3, #30
    ldr     x6, ={device_block}
    orr     x4, x4, x6
    str     x4, [x20, x3, lsl #3]
    // The link address, by blocks of 2 MiB.
2:  mov     x3, #({image} >> 30)
    orr     x4, x21, #3
    str     x4, [x20, x3, lsl #3]
    orr     x4, x19, x2
    add     x5, x22, #0x200000
    lsr     x5, x5, #21
    mov     x3, x21
3:  str     x4, [x3], #8
    add     x4, x4, #0x200000
    subs    x5, x5, #1
    b.ne    3b
    // What was written with caches off must not be hidden by an old line.
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
    isb
    tlbi    alle2
    ic      iallu
    dsb     sy
    isb
    ldr     x3, ={sctlr}
    msr     sctlr_el2, x3
    isb
    ldr     x3, =5f
    br      x3
5:  adrp    x3, {early}
    add     x3, x3, #8192
    mov     x4, #{stack}
    add     sp, x3, x4
    adrp    x3, vectors
    add     x3, x3, :lo12:vectors
    msr     vbar_el2, x3
    msr     tpidr_el2, xzr
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    mov     x1, x22
    bl      {boot_main}
9:  wfe
    b       9b
    .ltorg

    // Copies the image to its colored frames and continues on the copy.
    // x0: the frames' physical addresses; x1: pages; x2: physical address of the trampoline's copy.
    // Uses no stack: the stack is among what is copied.
    .global switch_to_copy
switch_to_copy:
    ldr     x3, =__image_start
6:  ldr     x4, [x0], #8
    mov     x5, #64
7:  ldp     x6, x7, [x3], #16
    ldp     x8, x9, [x3], #16
    ldp     x10, x11, [x3], #16
    ldp     x12, x13, [x3], #16
    stp     x6, x7, [x4]
    stp     x8, x9, [x4, #16]
    stp     x10, x11, [x4, #32]
    stp     x12, x13, [x4, #48]
    dc      cvac, x4
    add     x4, x4, #64
    subs    x5, x5, #1
    b.ne    7b
    subs    x1, x1, #1
    b.ne    6b
    dsb     sy
    mov     x9, x30
    br      x2

    .section .trampoline, "ax"
    // First word: from the copy of the image, MMU on; x9: where to go on.
    mrs     x3, sctlr_el2
    bic     x3, x3, #1
    msr     sctlr_el2, x3
    isb
    b       8f
    // Second entry, at offset 32: a secondary core, MMU off.
    .balign 32
    adr     x4, trampoline_parameters
    ldr     x9, [x4, #32]
8:  adr     x4, trampoline_parameters
    ldp     x5, x6, [x4]
    ldp     x7, x8, [x4, #16]
    msr     mair_el2, x5
    msr     tcr_el2, x6
    msr     ttbr0_el2, x7
    isb
    tlbi    alle2
    ic      iallu
    dsb     sy
    isb
    msr     sctlr_el2, x8
    isb
    br      x9
    .balign 8
    .global trampoline_parameters
trampoline_parameters:
    .quad   {mair}, {tcr}, 0, {sctlr}
    .quad   secondary_entry

    .section .text.boot
    // A secondary core at the link address.
secondary_entry:
    adrp    x0, {starting}
    ldr     w0, [x0, :lo12:{starting}]
    ldr     x1, =({stacks} + 4096 + {stack_size})
    mov     x2, #{stack_stride}
    madd    x1, x0, x2, x1
    mov     sp, x1
    adrp    x3, vectors
    add     x3, x3, :lo12:vectors
    msr     vbar_el2, x3
    msr     tpidr_el2, xzr
    mov     x29, xzr
    mov     x30, xzr
    bl      {secondary_main}
    b       9b
    .ltorg
"#,
    normal_block = const NORMAL_BLOCK,
    device_block = const DEVICE_BLOCK,
    image = const crate::machine::layout::IMAGE,
    stacks = const crate::machine::layout::STACKS,
    stack_size = const crate::machine::layout::STACK_SIZE,
    stack_stride = const crate::machine::layout::STACK_STRIDE,
    stack = const BOOT_STACK,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
    boot_main = sym boot_main,
    secondary_main = sym crate::secondary_main,
    starting = sym crate::devices::power::STARTING,
    early = sym EARLY,
);

/// MAIR_EL2: index 0 Device-nGnRE, 1 Normal write-back, 2 Normal non-cacheable.
const MAIR: u64 = MAIR_EL2::Attr0_Device::nonGathering_nonReordering_EarlyWriteAck.value
    | MAIR_EL2::Attr1_Normal_Outer::WriteBack_NonTransient_ReadWriteAlloc.value
    | MAIR_EL2::Attr1_Normal_Inner::WriteBack_NonTransient_ReadWriteAlloc.value
    | MAIR_EL2::Attr2_Normal_Outer::NonCacheable.value
    | MAIR_EL2::Attr2_Normal_Inner::NonCacheable.value;
/// TCR_EL2: 39-bit input, 4 KiB granule, write-back inner-shareable walks, 40-bit output; bits 23 and 31 are RES1.
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
/// Early block descriptors: Normal write-back, inner shareable, accessed; Device, accessed, never executed.
const NORMAL_BLOCK: u64 =
    (Attr::VALID.bits() | Attr::ATTRIBUTE_INDEX_1.bits() | Attr::INNER_SHAREABLE.bits() | Attr::ACCESSED.bits()) as u64;
const DEVICE_BLOCK: u64 =
    (Attr::VALID.bits() | Attr::ATTRIBUTE_INDEX_0.bits() | Attr::ACCESSED.bits() | Attr::XN.bits()) as u64;

/// What the image builder wrote behind the image header.
pub struct BootParameters {
    /// Physical base of the console UART; 0 where the image was not built by the image builder.
    pub console_base: PhysAddr,
    /// 1: PL011, 2: Cadence, 3: mini UART.
    pub console_kind: u64,
    /// Whether the firmware has PSCI.
    pub psci: bool,
}

unsafe extern "C" {
    static __boot_parameters: [u64; 4];
    static __image_start: u8;
    static __trampoline: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
    fn switch_to_copy(frames: *const u64, pages: usize, trampoline: u64);
}

/// Addresses of the image's parts, as linked.
pub struct ImageLayout {
    /// First byte: text.
    pub start: u64,
    /// The trampoline page.
    pub trampoline: u64,
    /// First byte of read-only data.
    pub rodata: u64,
    /// First byte of data.
    pub data: u64,
    /// First byte after it: the system image's header.
    pub end: u64,
}

/// Where the image's parts were linked.
pub fn image() -> ImageLayout {
    // Only the addresses of the linker's symbols are used.
    let address = |symbol: *const u8| symbol as u64;
    ImageLayout {
        start: address(&raw const __image_start),
        trampoline: address(&raw const __trampoline),
        rodata: address(&raw const __rodata_start),
        data: address(&raw const __data_start),
        end: address(&raw const __image_end),
    }
}

/// What the image builder wrote behind the image header.
pub fn parameters() -> BootParameters {
    // SAFETY: the symbol names 32 initialized, 8-byte aligned bytes of read-only text.
    let words = unsafe { (&raw const __boot_parameters).read_volatile() };
    BootParameters { console_base: PhysAddr(words[1]), console_kind: words[2], psci: words[3] == 0 }
}

/// Adds the gigabyte of normal memory that holds `pa` to the early identity map.
pub fn early_identity(pa: u64) {
    let index = (pa >> 30) as usize & 0x1ff;
    // SAFETY: runs on the boot core before any other runs; the entry is either invalid, or maps the same gigabyte as
    // normal memory or as the console's device memory, which the board keeps apart from RAM; an entry that was invalid
    // is not in the TLB, so no invalidation is owed.
    unsafe {
        let entry = (&raw mut EARLY.level1[index]).cast::<u64>();
        if entry.read_volatile() == 0 {
            entry.write_volatile((pa >> 30 << 30) | NORMAL_BLOCK);
        }
    }
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::SY);
    aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
}

/// Where a secondary core enters the trampoline page.
pub const SECONDARY_OFFSET: u64 = 32;

/// What the boot loader placed in memory.
pub struct Loaded {
    /// Physical address of the image's first byte.
    pub base: PhysAddr,
    /// What follows the hypervisor: the system image, and whatever lies behind it up to the header's image size.
    pub behind: &'static [u8],
}

impl Loaded {
    /// Physical address of the system image's first byte.
    pub fn header(&self) -> PhysAddr {
        PhysAddr(self.behind.as_ptr() as u64)
    }
}

/// Runs at the link address under the early map; `base` and `size` are the loaded image's.
extern "C" fn boot_main(base: u64, size: u64) -> ! {
    let image = image();
    let own = image.end - image.start;
    // SAFETY: the early map holds the loaded image one to one, up to the size that its header says; nobody writes what
    // follows the hypervisor.
    let behind = unsafe { core::slice::from_raw_parts((base + own) as *const u8, size.saturating_sub(own) as usize) };
    crate::boot(&Loaded { base: PhysAddr(base), behind })
}

/// Copies the image onto the frames that `built` names and goes on there, under its tables.
pub fn continue_on_copy(built: &Built) {
    let layout = image();
    let trampoline_index = ((layout.trampoline - layout.start) / 4096) as usize;
    unsafe extern "C" {
        static trampoline_parameters: u8;
    }
    let parameters = &raw const trampoline_parameters as u64;
    let frames = &built.image_frames;
    // SAFETY: the early map of the image is writable, this core is alone, and the word is the trampoline's TTBR slot.
    unsafe { ((parameters + 16) as *mut u64).write_volatile(built.ttbr) };
    // SAFETY: `mmu::build` made the list: frames of the hypervisor's own, as many as the image has pages, mapped one to
    // one by the early map; its tables map the image's addresses onto them and the trampoline's frame one to one.
    unsafe { switch_to_copy(frames.as_ptr(), frames.len(), frames[trampoline_index]) };
}
