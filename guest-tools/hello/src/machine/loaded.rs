//! The image in memory: where it was loaded, its tables and stacks, and what the image builder wrote.
//!
//! The tables map the first 256 GiB one to one as devices, so that whatever a claim names can be
//! accessed and nothing is read ahead. The block of 2 MiB with the image is ordinary memory, there
//! and at the address at which it is linked; the blocks after it are, too, once [`map_buffer`] is
//! called.
// SPDX-License-Identifier: MIT OR Apache-2.0

use aarch64_cpu::asm::barrier::{self, SY};
use cloison_formats::boot::{self, BootParameters};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Address at which the image is linked.
pub const LINKED: u64 = 256 << 30;
/// Bytes of the block that holds the image.
pub const BLOCK: u64 = 2 << 20;
/// Most cores.
pub const CORES: usize = 16;
/// Blocks of the buffer that benchmarks use, after the image.
pub const BUFFER_BLOCKS: u64 = 2;
/// Bytes of a core's stack.
pub const STACK: usize = 32 << 10;

/// Block descriptor: Device-nGnRE and never executed.
pub const DEVICE: u64 = 1 << 54 | 1 << 10 | 1;
/// Block descriptor: Normal write-back, inner shareable.
pub const NORMAL: u64 = 1 << 10 | 3 << 8 | 1 << 2 | 1;

/// What the assembly of `start` uses by address.
#[repr(C, align(4096))]
pub struct Memory {
    /// Blocks of 1 GiB, one to one.
    level1: [AtomicU64; 512],
    /// The gigabyte of the image, one to one.
    own: [AtomicU64; 512],
    /// The image at its link address, and the buffer.
    linked: [AtomicU64; 512],
    stacks: [[AtomicU64; STACK / 8]; CORES + 1],
}

/// The tables and stacks.
pub static MEMORY: Memory = Memory {
    level1: [const { AtomicU64::new(0) }; 512],
    own: [const { AtomicU64::new(0) }; 512],
    linked: [const { AtomicU64::new(0) }; 512],
    stacks: [const { [const { AtomicU64::new(0) }; STACK / 8] }; CORES + 1],
};

/// The core that is being started: a spin table passes no argument.
pub static STARTING: AtomicU64 = AtomicU64::new(0);
/// Physical address of the image.
static BASE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static __boot_parameters: [u8; boot::LEN];
    static __image_end: u8;
    static hello_secondary: u8;
}

/// Sets where the image was loaded, at the size in its header. Returns what follows it in its block.
pub fn init(base: u64, size: u64) -> &'static [u8] {
    BASE.store(base, Relaxed);
    let end = (&raw const __image_end).addr() as u64;
    let length = (LINKED + size.min(BLOCK)).saturating_sub(end);
    // SAFETY: the block with the image is mapped at its link address, and nobody writes what
    // follows the image.
    unsafe { core::slice::from_raw_parts(&raw const __image_end, length as usize) }
}

/// Returns the boot parameters that the image builder wrote.
pub fn parameters() -> BootParameters {
    // SAFETY: the symbol names this many initialized bytes of read-only text.
    BootParameters::from_bytes(&unsafe { (&raw const __boot_parameters).read_volatile() })
}

/// Returns the physical address of the image.
pub fn base() -> u64 {
    BASE.load(Relaxed)
}

/// Returns the physical address at which other cores start.
pub fn secondary_entry() -> u64 {
    (&raw const hello_secondary).addr() as u64 - LINKED + base()
}

/// Makes the blocks after the image ordinary memory, and returns their address.
pub fn map_buffer() -> u64 {
    for number in 1..=BUFFER_BLOCKS {
        MEMORY.linked[number as usize].store((base() + number * BLOCK) | NORMAL, Relaxed);
    }
    barrier::dsb(SY);
    barrier::isb(SY);
    LINKED + BLOCK
}
