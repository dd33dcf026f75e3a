//! The RAM after the image, handed out in order and never twice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Bytes in a cache line of the Cortex-A53.
pub const LINE: u64 = 64;
/// 64-bit words in a cache line.
pub const LINE_WORDS: usize = (LINE / 8) as usize;

unsafe extern "C" {
    /// First byte after image and stacks, from the linker script.
    static __free_ram: u8;
}

/// The RAM that is left. The VM's configuration defines how much there is; a buffer beyond it
/// faults on use.
///
/// Most buffers are atomic words: they compile to plain loads and stores on this machine, several
/// vCPUs may share them, and the compiler does not optimize the accesses away.
#[derive(Debug)]
pub struct Ram {
    next: u64,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Ram {
    /// Returns all RAM after the image.
    ///
    /// # Panics
    /// On the second call, since there is only one.
    pub fn behind_image() -> Self {
        assert!(!TAKEN.swap(true, Relaxed), "the RAM has been taken already");
        Self {
            next: (&raw const __free_ram).addr() as u64,
        }
    }

    /// Takes at least `bytes` bytes from the next page on, as whole cache lines.
    pub fn take(&mut self, bytes: u64) -> &'static [AtomicU64] {
        self.take_at(self.next.next_multiple_of(PAGE), bytes)
    }

    /// Takes at least `bytes` bytes at a fixed address, as whole cache lines. RAM before it that
    /// was not taken is lost.
    ///
    /// # Panics
    /// If `ipa` is not at the start of a cache line, or is in the image or in RAM that was already
    /// taken.
    pub fn take_at(&mut self, ipa: u64, bytes: u64) -> &'static [AtomicU64] {
        let bytes = self.reserve(ipa, bytes);
        // SAFETY: `reserve` hands out each byte once; any bit pattern is a valid word; the identity
        // map makes the range readable and writable, or it faults.
        unsafe {
            core::slice::from_raw_parts(
                core::ptr::with_exposed_provenance(ipa as usize),
                (bytes / 8) as usize,
            )
        }
    }

    /// Takes `words` 32-bit words at a fixed address, for exclusive use. RAM before it that was not
    /// taken is lost.
    ///
    /// # Panics
    /// As [`take_at`](Self::take_at).
    pub fn take_words_at(&mut self, ipa: u64, words: usize) -> &'static mut [u32] {
        self.reserve(ipa, words as u64 * 4);
        // SAFETY: as above, and there is no other reference to it.
        unsafe {
            core::slice::from_raw_parts_mut(
                core::ptr::with_exposed_provenance_mut(ipa as usize),
                words,
            )
        }
    }

    /// Takes whole cache lines at `ipa`, after image and stacks and after everything taken before.
    /// Returns the number of bytes.
    fn reserve(&mut self, ipa: u64, bytes: u64) -> u64 {
        assert!(
            ipa.is_multiple_of(LINE),
            "a buffer must start on a cache line"
        );
        assert!(
            ipa >= self.next,
            "{ipa:#x} is in use: free RAM starts at {:#x}",
            self.next
        );
        let bytes = bytes.next_multiple_of(LINE);
        self.next = ipa + bytes;
        bytes
    }
}

/// Returns the memory of the VM's channel with this index, if it may read it. A store to one that
/// it may not write faults.
pub fn channel(index: u64) -> Option<&'static [AtomicU64]> {
    let channel = crate::call::channel(index).ok()?;
    // SAFETY: the hypervisor maps this many pages there, apart from all RAM, as long as the VM
    // lives; any bit pattern is a valid word, and a peer's stores are atomic.
    channel.is_readable().then(|| unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance(channel.ipa as usize),
            channel.pages as usize * (PAGE as usize / 8),
        )
    })
}
