//! Results in memory: the last read of an event set, for a debugger, another core or the host.
//!
//! All words have 64 bits: [`MAGIC`], a number that is odd while the words after it change, the
//! event set, the number of events, and then each event's code and value.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "ePAPI-1" and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ePAPI-1\0");
/// The words before the first event's code.
pub const HEAD: usize = 4;

/// Writes a result. Events that do not fit are left out; the number of events says so.
pub fn publish(words: &[AtomicU64], set: i32, events: &[i32], values: &[i64]) {
    let Some((head, body)) = words.split_at_checked(HEAD) else {
        return;
    };
    let sequence = head[1].load(Ordering::Relaxed);
    head[1].store(sequence | 1, Ordering::Relaxed);
    fence(Ordering::Release);
    let mut written = 0;
    for ((pair, code), value) in body.chunks_exact(2).zip(events).zip(values) {
        pair[0].store(u64::from(*code as u32), Ordering::Relaxed);
        pair[1].store(*value as u64, Ordering::Relaxed);
        written += 1;
    }
    head[2].store(set as u64, Ordering::Relaxed);
    head[3].store(written, Ordering::Relaxed);
    head[0].store(MAGIC, Ordering::Relaxed);
    head[1].store((sequence | 1).wrapping_add(1), Ordering::Release);
}
