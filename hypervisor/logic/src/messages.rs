//! A ring of messages that wait for the console, in fixed memory: one for each core, and one for each VM's lines.
//!
//! One core at a time writes whole messages; whichever core holds the console takes their bytes. Nobody waits: a message
//! that does not fit is counted, and the count is the next message.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU8, AtomicU32};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, AtomicU32};

/// The byte that begins a message.
pub const BEGINS: u8 = 1;

/// A place in what is written to a ring, modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub struct Position(u32);

/// A ring of `N` bytes, a power of two.
pub struct Messages<const N: usize> {
    bytes: [AtomicU8; N],
    /// How many bytes were written, and how many were taken, modulo 2^32.
    written: AtomicU32,
    taken: AtomicU32,
    lost: AtomicU32,
}

impl<const N: usize> Messages<N> {
    /// An empty ring.
    #[cfg(not(loom))]
    pub const fn empty() -> Self {
        let [written, taken, lost] = [const { AtomicU32::new(0) }; 3];
        Self {
            bytes: [const { AtomicU8::new(0) }; N],
            written,
            taken,
            lost,
        }
    }

    /// Returns whether no message waits. Losses may still be unreported.
    pub fn is_empty(&self) -> bool {
        self.written.load(Ordering::Acquire) == self.taken.load(Ordering::Acquire)
    }

    /// Returns whether all bytes up to a position have been taken.
    pub fn is_past(&self, position: Position) -> bool {
        self.taken.load(Ordering::Acquire).wrapping_sub(position.0) < u32::MAX / 2
    }

    /// Adds a message, from [`BEGINS`] to a line feed, after a report of losses if one is due; with an empty message, only that. Returns the position of
    /// its end. To be called by one core at a time.
    pub fn push(&self, message: fmt::Arguments) -> Position {
        let (at, lost) = (
            self.written.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed),
        );
        let mut writer = Writer(
            self,
            at,
            self.taken.load(Ordering::Acquire).wrapping_add(N as u32),
        );
        let report = if lost == 0 {
            Ok(())
        } else {
            write!(writer, "\x01{lost} messages were lost\r\n")
        };
        let fits = report.and_then(|()| writer.write_fmt(message)).is_ok();
        if fits {
            // Only now can the bytes be seen.
            self.written.store(writer.1, Ordering::Release);
        }
        self.lost.store(
            if fits { 0 } else { lost.saturating_add(1) },
            Ordering::Relaxed,
        );
        Position(if fits { writer.1 } else { at })
    }

    /// Takes the oldest byte. To be called by one core at a time.
    pub fn pop(&self) -> Option<u8> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.written.load(Ordering::Acquire) {
            return None;
        }
        let byte = self.bytes[taken as usize % N].load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(byte)
    }
}

/// Writes to a ring from a position to another one.
struct Writer<'a, const N: usize>(&'a Messages<N>, u32, u32);

impl<const N: usize> Write for Writer<'_, N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Self(ring, at, end) = self;
        for byte in text.bytes() {
            if at == end {
                return Err(fmt::Error);
            }
            ring.bytes[*at as usize % N].store(byte, Ordering::Relaxed);
            *at = at.wrapping_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
