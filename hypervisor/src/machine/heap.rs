//! The heap: small, for configuration and descriptions. Nothing that a guest triggers allocates from it.
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

/// Proof that the final tables map pages for the heap after the image.
pub struct HeapPages(usize);

impl HeapPages {
    /// Creates the proof for this many bytes.
    ///
    /// # Safety
    /// Once the final tables are on, this many bytes must be mapped after the image's end, writable, and used by
    /// nothing else. There must be only one of these.
    pub unsafe fn new(bytes: usize) -> Self {
        Self(bytes)
    }
}

/// Adds the pages that the final tables map after the image, where the early part ends.
pub fn extend(pages: HeapPages) {
    // SAFETY: the linker script places the early heap last in the image, and `pages` proves that the current tables map
    // this much after it, for the heap only.
    unsafe { HEAP.lock().extend(pages.0) };
}
