//! The heap, for claims and lines.
// SPDX-License-Identifier: MIT OR Apache-2.0

use linked_list_allocator::LockedHeap;

/// Bytes of the heap.
const SIZE: usize = 256 << 10;

#[repr(C, align(4096))]
struct Memory([u8; SIZE]);

static mut MEMORY: Memory = Memory([0; SIZE]);

#[global_allocator]
static HEAP: LockedHeap = LockedHeap::empty();

/// Starts the heap; boot core only, once.
pub fn init() {
    // SAFETY: nothing else refers to the memory, and this runs once.
    unsafe { HEAP.lock().init((&raw mut MEMORY).cast(), SIZE) };
}
