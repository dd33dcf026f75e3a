//! The layout of EL2's virtual address space.
//!
//! EL2 has a single range of 39 bits. It maps no guest memory, except two pages per core at a time
//! (`WINDOW`).
//!
//! The parts start at different places in their 32 GiB, so that their most used pages do not share
//! sets of a TLB. QEMU 10.0 even depends on it: where pages of devices and others take turns in its
//! table of translations, it counts fewer entries than there are, below zero, takes that for a full
//! table, and doubles it to 4 million entries.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::list;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::GicVersion;
use core::ops::Range;

/// Link address of the image, where a block of 2 MiB begins: text and read-only data, then data;
/// each page on a frame of the hypervisor's colors.
pub const IMAGE: u64 = 0x40_0020_0000;
/// Addresses of the hypervisor's other frames, in the order of their numbers: stacks, tables and
/// the rest of the heap.
pub const ARENA: u64 = 0x48_0000_0000;
/// Device registers, one page each.
pub const DEVICES: u64 = 0x50_0000_0000;
/// Interrupt distributor.
pub const GICD: u64 = DEVICES;
/// CPU interface, first page. Of a GICv3: the two pages of GICD_IROUTER.
pub const GICC: u64 = DEVICES + PAGE_SIZE;
#[cfg(not(feature = "gicv3"))]
/// CPU interface, second page, which contains only GICC_DIR.
pub const GICC_DIR: u64 = DEVICES + 2 * PAGE_SIZE;
#[cfg(not(feature = "gicv3"))]
/// Virtual interface control.
pub const GICH: u64 = DEVICES + 3 * PAGE_SIZE;
/// Console UART.
pub const CONSOLE: u64 = DEVICES + 4 * PAGE_SIZE;
/// Telemetry UART.
pub const TELEMETRY: u64 = DEVICES + 5 * PAGE_SIZE;
/// Registers that turn the machine off.
pub const POWER_OFF: u64 = DEVICES + 6 * PAGE_SIZE;
/// The SMMU, first page.
pub const SMMU: u64 = DEVICES + 7 * PAGE_SIZE;
/// The SMMU's event queue.
pub const SMMU_EVENTS: u64 = DEVICES + 8 * PAGE_SIZE;
/// A GICv3's redistributors: for each core the first pages of its two frames.
pub const REDISTRIBUTORS: u64 = DEVICES + 9 * PAGE_SIZE;
/// The most cores for which EL2 has room.
pub const MAX_CORES: usize = if cfg!(feature = "gicv3") {
    GicVersion::V3
} else {
    GicVersion::V2
}
.most_cores();
/// How many pages these are.
pub const REDISTRIBUTOR_PAGES: usize = if cfg!(feature = "gicv3") {
    2 * MAX_CORES
} else {
    0
};
/// Registers that stop devices of VMs, a page for each of `System::stops`.
pub const STOPS: u64 = REDISTRIBUTORS + REDISTRIBUTOR_PAGES as u64 * PAGE_SIZE;
/// Windows onto guest pages: for each core two pages, then two that stay unmapped.
pub const WINDOW: u64 = 0x58_02a8_0000;
/// The guest images as they were loaded: read-only and uncached, so that reading them again for a
/// restart evicts nothing from the shared cache.
pub const PAYLOAD: u64 = 0x60_0400_0000;
/// Stacks: for each core one page that stays unmapped, then the stack.
pub const STACKS: u64 = 0x68_0100_0000;
/// Bytes of a core's stack.
pub const STACK_SIZE: u64 = 4 * PAGE_SIZE;
/// Distance from one core's stack to the next.
pub const STACK_STRIDE: u64 = 8 * PAGE_SIZE;

/// Returns the addresses of a core's stack.
pub const fn stack(core: usize) -> Range<u64> {
    let start = STACKS + core as u64 * STACK_STRIDE + PAGE_SIZE;
    start..start + STACK_SIZE
}

/// Returns the bytes of the heap beyond the part in the image, in whole pages, in frames of the
/// hypervisor's colors: for VMs, for each core (its ring of records, of at most 56 KiB, and 16
/// KiB), and one bit per page of RAM.
pub const fn heap_extension(cores: usize, ram: u64) -> u64 {
    (64 * 1024 + cores as u64 * 72 * 1024 + ram / PAGE_SIZE / 8).next_multiple_of(PAGE_SIZE)
}

/// Returns what it has more for a VM: a list of pages, and 32 bytes for each of its pages that can
/// be away.
pub const fn list_bytes(away: u32) -> u64 {
    (list::LONGEST * 8 + away as u64 * 32).next_multiple_of(PAGE_SIZE)
}

/// Link addresses of the image's parts.
pub struct ImageLayout {
    /// First byte: text.
    pub start: u64,
    /// The trampoline page.
    pub trampoline: u64,
    /// First byte of read-only data.
    pub rodata: u64,
    /// First byte of data.
    pub data: u64,
    /// First byte after the image: the system image's header.
    pub end: u64,
}
