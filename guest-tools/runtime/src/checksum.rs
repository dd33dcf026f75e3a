//! FNV-1a over words: enough to notice a changed bit.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The checksum of a buffer.
pub fn fnv1a(words: &[AtomicU64]) -> u64 {
    words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| (hash ^ word.load(Relaxed)).wrapping_mul(0x0000_0100_0000_01b3))
}
