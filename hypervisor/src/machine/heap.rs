//! The heap: small, for configuration and descriptions. Nothing that a guest triggers allocates
//! from it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use linked_list_allocator::LockedHeap;

/// The part of the heap inside the image, used before the colored frames are available.
const EARLY: usize = 48 * 1024;

/// Placed last in the image by its section, so that the pages of the extension follow it.
#[repr(C, align(4096))]
struct EarlyHeap([u8; EARLY]);

#[unsafe(link_section = ".heap")]
static mut EARLY_HEAP: EarlyHeap = EarlyHeap([0; EARLY]);

#[global_allocator]
static HEAP: LockedHeap = LockedHeap::empty();

/// Starts the heap in the image's own memory; boot core only, once.
pub fn init_early() {
    // SAFETY: nothing else refers to the memory, and this runs once.
    unsafe { HEAP.lock().init((&raw mut EARLY_HEAP).cast(), EARLY) };
}

/// Adds the pages that the final tables map after the image, where the early part ends.
///
/// # Safety
/// This many bytes must be mapped after the image's end, writable, and used by nothing else. To be
/// called once.
pub unsafe fn extend(bytes: usize) {
    // SAFETY: the linker script places the early heap last in the image; the rest is the caller's
    // obligation.
    unsafe { HEAP.lock().extend(bytes) };
}
