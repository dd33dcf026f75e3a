//! The heap: small, for configuration and descriptions; nothing a guest drives allocates from it.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use linked_list_allocator::Heap;
use spin::mutex::TicketMutex;

/// The part of the heap inside the image, in use before the colored frames are.
const EARLY: usize = 48 * 1024;

/// Last in the image by its section, so that the extension's pages follow it.
#[repr(C, align(4096))]
struct EarlyHeap([u8; EARLY]);

#[unsafe(link_section = ".heap")]
static mut EARLY_HEAP: EarlyHeap = EarlyHeap([0; EARLY]);

struct Locked(TicketMutex<Heap>);

// SAFETY: `linked_list_allocator::Heap` upholds the contract; the lock makes it exclusive. Interrupts are masked
// whenever EL2 runs, so that the lock cannot be taken twice on one core.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.lock().allocate_first_fit(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: passed on to the caller: the block came from `alloc` with this layout.
            unsafe { self.0.lock().deallocate(pointer, layout) };
        }
    }
}

#[global_allocator]
static HEAP: Locked = Locked(TicketMutex::new(Heap::empty()));

/// Starts the heap in the image's own memory; boot core, once.
pub fn init_early() {
    // SAFETY: nothing else names the memory, and this runs once.
    unsafe { HEAP.0.lock().init((&raw mut EARLY_HEAP).cast(), EARLY) };
}

/// Says that the final tables map pages for the heap behind the image.
pub struct HeapPages(usize);

impl HeapPages {
    /// This many bytes.
    ///
    /// # Safety
    /// Once the final tables are on, they are mapped behind the image's end, writable, and nothing else uses them. There
    /// is one of these.
    pub unsafe fn new(bytes: usize) -> Self {
        Self(bytes)
    }
}

/// Adds the pages that the final tables map behind the image, where the early part ends.
pub fn extend(pages: HeapPages) {
    // SAFETY: the linker script places the early heap last in the image, and `pages` says that the tables in force map
    // this much behind it, for the heap alone.
    unsafe { HEAP.0.lock().extend(pages.0) };
}
