//! The RAM behind the image, handed out in order and never twice.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Bytes in a cache line of the Cortex-A53.
pub const LINE: u64 = 64;
/// 64-bit words in a cache line.
pub const LINE_WORDS: usize = (LINE / 8) as usize;

unsafe extern "C" {
    /// First byte behind image and stacks, from the linker script.
    static __free_ram: u8;
}

/// What is left of the RAM. How much the VM has is in its configuration; a buffer beyond it faults when it is used.
///
/// Most buffers are atomic words: plain loads and stores on this machine, which several vCPUs may share, and which the
/// compiler does not leave out.
#[derive(Debug)]
pub struct Ram {
    next: u64,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Ram {
    /// All RAM behind the image.
    ///
    /// # Panics
    /// On the second call: there is only one.
    pub fn behind_image() -> Self {
        assert!(!TAKEN.swap(true, Relaxed), "the RAM has been taken already");
        Self { next: (&raw const __free_ram).addr() as u64 }
    }

    /// At least `bytes` bytes from the next page on, a whole number of cache lines.
    pub fn take(&mut self, bytes: u64) -> &'static [AtomicU64] {
        self.take_at(self.next.next_multiple_of(PAGE), bytes)
    }

    /// At least `bytes` bytes at a fixed address, a whole number of cache lines. What lies between is given up.
    ///
    /// # Panics
    /// When `ipa` is not on a cache line, or lies in the image or in what was handed out before.
    pub fn take_at(&mut self, ipa: u64, bytes: u64) -> &'static [AtomicU64] {
        let bytes = self.reserve(ipa, bytes);
        // SAFETY: `reserve` gives out each byte once; any bit pattern is a word; the identity map makes it readable and
        // writable, or it faults.
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(ipa as usize), (bytes / 8) as usize) }
    }

    /// `words` words of 32 bits at a fixed address, for one vCPU alone. What lies between is given up.
    ///
    /// # Panics
    /// As [`take_at`](Self::take_at).
    pub fn take_words_at(&mut self, ipa: u64, words: usize) -> &'static mut [u32] {
        self.reserve(ipa, words as u64 * 4);
        // SAFETY: as above, and nobody else has a reference to it.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(ipa as usize), words) }
    }

    /// Takes whole cache lines at `ipa`, behind image and stacks and beyond all that was taken before; how many bytes.
    fn reserve(&mut self, ipa: u64, bytes: u64) -> u64 {
        assert!(ipa.is_multiple_of(LINE), "a buffer must start on a cache line");
        assert!(ipa >= self.next, "{ipa:#x} is in use: free RAM starts at {:#x}", self.next);
        let bytes = bytes.next_multiple_of(LINE);
        self.next = ipa + bytes;
        bytes
    }
}
