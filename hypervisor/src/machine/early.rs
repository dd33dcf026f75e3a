//! The loaded image, the early map under which it runs, and the switch to its colored copy.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::layout::ImageLayout;
use crate::machine::mmu::{Built, Stack};
use crate::machine::sysreg;
use aarch64_paging::descriptor::El23Attributes as Attr;
use cloison_formats::addr::PhysAddr;
use cloison_formats::boot::{self, BootParameters};

/// Bytes of the boot stack, which core 0 also uses until it enters its VM.
pub const BOOT_STACK: usize = 40 * 1024;

/// Memory that only `boot` and this module access by name.
#[repr(C, align(4096))]
pub struct Early {
    /// Blocks of 1 GiB, one to one, and the entry of `level2`.
    level1: [u64; 512],
    /// Blocks of 2 MiB: the image at its link address.
    level2: [u64; 512],
    stack: [u8; BOOT_STACK],
}

/// The early tables and the boot stack.
// Written by the assembly of `boot` before any Rust runs. Rust accesses `level1` through TTBR0_EL2
// to add blocks to it.
pub static mut EARLY: Early = Early {
    level1: [0; 512],
    level2: [0; 512],
    stack: [0; BOOT_STACK],
};

/// Early block descriptor: Normal write-back, inner shareable, accessed.
pub const NORMAL_BLOCK: u64 = (Attr::VALID.bits()
    | Attr::ATTRIBUTE_INDEX_1.bits()
    | Attr::INNER_SHAREABLE.bits()
    | Attr::ACCESSED.bits()) as u64;
/// Early block descriptor: Device, accessed, never executed.
pub const DEVICE_BLOCK: u64 =
    (Attr::VALID.bits() | Attr::ATTRIBUTE_INDEX_0.bits() | Attr::ACCESSED.bits() | Attr::XN.bits())
        as u64;

unsafe extern "C" {
    static __boot_parameters: [u8; boot::LEN];
    static __image_start: u8;
    static __trampoline: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
    static trampoline_parameters: u8;
    fn switch_to_copy(frames: *const u64, pages: usize, trampoline: u64);
}

/// Returns the link addresses of the image's parts.
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

/// Returns the boot stack.
pub fn boot_stack() -> Stack {
    // SAFETY: it is part of the image, which is mapped for good.
    unsafe { Stack::new(&raw const EARLY.stack as u64, BOOT_STACK as u64) }
}

/// Returns the boot parameters that the image builder wrote after the image header.
pub fn parameters() -> BootParameters {
    // SAFETY: the symbol names this many initialized bytes of read-only text.
    BootParameters::from_bytes(&unsafe { (&raw const __boot_parameters).read_volatile() })
}

/// Adds the gigabyte of normal memory that contains `pa` to the early identity map.
///
/// # Safety
/// The gigabyte must be RAM, apart from devices, and no core but the boot core may be running.
pub unsafe fn map_identity(pa: PhysAddr) {
    let index = (pa.0 >> 30) as usize & 0x1ff;
    // SAFETY: by the contract, the entry is either invalid or maps the same gigabyte. An entry that
    // was invalid is not in the TLB, so no invalidation is needed.
    unsafe {
        let entry = (&raw mut EARLY.level1[index]).cast::<u64>();
        if entry.read_volatile() == 0 {
            entry.write_volatile((pa.0 >> 30 << 30) | NORMAL_BLOCK);
        }
    }
    sysreg::dsb();
    sysreg::isb();
}

/// Offset at which a secondary core enters the trampoline page.
pub const SECONDARY_OFFSET: u64 = 32;

/// What the boot loader placed in memory.
pub struct Loaded {
    /// Physical address of the image's first byte.
    pub base: PhysAddr,
    /// The bytes after the hypervisor: the system image, and whatever follows it up to the image
    /// size in the header.
    pub behind: &'static [u8],
}

impl Loaded {
    /// Returns the physical address of the system image's first byte.
    pub fn header(&self) -> PhysAddr {
        PhysAddr(self.behind.as_ptr() as u64)
    }
}

/// Copies the image to the frames in `built` and continues there, under its tables.
///
/// # Safety
/// The early map must contain these frames, and no core but the boot core may be running. What was
/// written to the image before is copied; references to it stay valid, because the link addresses
/// are the same.
pub unsafe fn continue_on_copy(built: &Built) {
    let parameters = &raw const trampoline_parameters as u64;
    let frames = &built.image_frames;
    // SAFETY: the early map of the image is writable, no other core runs, and the word is the
    // trampoline's TTBR slot.
    unsafe { ((parameters + 16) as *mut u64).write_volatile(built.ttbr.0) };
    // SAFETY: `mmu::build` made the list: frames of the hypervisor, as many as the image has pages,
    // mapped one to one by the early map. Its tables map the image's addresses to them, and the
    // trampoline's frame one to one.
    unsafe { switch_to_copy(frames.as_ptr(), frames.len(), built.trampoline.0) };
}
