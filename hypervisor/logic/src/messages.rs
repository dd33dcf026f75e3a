//! A ring of messages that wait for the console, in fixed memory: one for each core, and one for
//! each VM's lines.
//!
//! One core at a time writes whole messages. The core that holds the console takes their bytes. No
//! core waits: a message that does not fit is counted, and the count is the next message.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::{AtomicU8, AtomicU32};
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The byte that begins a message.
pub const BEGINS: u8 = 1;

/// A number of bytes written to a ring, modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub struct Position(u32);

/// A ring of `N` bytes, a power of two.
pub struct Messages<const N: usize> {
    /// Position `p` is byte `p % N`. Atomic, because two cores access the array; the positions
    /// order the accesses, so that Relaxed is enough for the bytes.
    bytes: [AtomicU8; N],
    /// Number of bytes that were written, modulo 2^32.
    written: AtomicU32,
    /// Number of bytes that were taken, modulo 2^32.
    taken: AtomicU32,
    /// Messages that did not fit since the last report. Only the writer changes it.
    lost: AtomicU32,
}

impl<const N: usize> Messages<N> {
    /// An empty ring.
    #[cfg(not(loom))]
    pub const fn empty() -> Self {
        Self {
            bytes: [const { AtomicU8::new(0) }; N],
            written: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            lost: AtomicU32::new(0),
        }
    }

    /// Returns whether no message waits. Losses may still be unreported.
    pub fn is_empty(&self) -> bool {
        self.written.load(Acquire) == self.taken.load(Acquire)
    }

    /// Returns the position after the newest message.
    pub fn end(&self) -> Position {
        Position(self.written.load(Acquire))
    }

    /// Returns whether all bytes up to a position have been taken. Positions wrap: one is past if
    /// the difference is less than half of all numbers, since a ring is far shorter.
    pub fn is_past(&self, position: Position) -> bool {
        self.taken.load(Acquire).wrapping_sub(position.0) < u32::MAX / 2
    }

    /// Adds a message, from [`BEGINS`] to a line feed, after a report of losses if one is due. An
    /// empty message adds only the report. Returns the position of the end. One core at a time may
    /// call this.
    pub fn push(&self, message: fmt::Arguments) -> Position {
        let start = self.written.load(Relaxed);
        let lost = self.lost.load(Relaxed);
        let mut writer = Writer {
            ring: self,
            at: start,
            // Acquire pairs with the Release in `pop`: bytes that were taken have been read before
            // they are overwritten.
            end: self.taken.load(Acquire).wrapping_add(N as u32),
        };
        // Before the message, so that a reader sees where something is missing.
        let report = if lost == 0 {
            Ok(())
        } else {
            write!(writer, "\x01{lost} messages were lost\r\n")
        };
        if report.and_then(|()| writer.write_fmt(message)).is_err() {
            self.lost.store(lost.saturating_add(1), Relaxed);
            // Bytes written so far stay invisible: `written` has not moved.
            return Position(start);
        }
        // Only now can the bytes be seen.
        self.written.store(writer.at, Release);
        self.lost.store(0, Relaxed);
        Position(writer.at)
    }

    /// Takes the oldest byte. One core at a time may call this.
    pub fn pop(&self) -> Option<u8> {
        let taken = self.taken.load(Relaxed);
        if taken == self.written.load(Acquire) {
            return None;
        }
        let byte = self.bytes[taken as usize % N].load(Relaxed);
        self.taken.store(taken.wrapping_add(1), Release);
        Some(byte)
    }
}

/// Writes to a ring between two positions.
struct Writer<'a, const N: usize> {
    ring: &'a Messages<N>,
    /// Where the next byte goes.
    at: u32,
    /// Where the ring is full.
    end: u32,
}

impl<const N: usize> Write for Writer<'_, N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.at == self.end {
                return Err(fmt::Error);
            }
            self.ring.bytes[self.at as usize % N].store(byte, Relaxed);
            self.at = self.at.wrapping_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
