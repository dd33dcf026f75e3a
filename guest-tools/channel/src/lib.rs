//! A ring of messages in a channel's memory, between one sender and one receiver.
//!
//! Neither side trusts the other. Each keeps its own position to itself and checks the other's:
//! whatever a peer stores, a call ends after a bounded time with a message, nothing, or an error. A
//! message is copied once, word by word, before it is looked at, so that the peer cannot change it
//! afterwards.
//!
//! Each position carries the [`Session`]: the lives of the two VMs, as Cloison numbers them. A side
//! that starts again, or learns that the other one has, begins a new session. Messages of another
//! session are never received.
//!
//! ```
//! use cloison_channel::{Receiver, Ring, Sender, Session};
//! use std::sync::atomic::AtomicU64;
//!
//! let memory: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
//! let ring = Ring::new(&memory).expect("a page is enough");
//! let session = Session::new(1, 3);
//! let (mut sender, mut receiver) = (Sender::begin(ring, session), Receiver::begin(ring, session));
//! assert_eq!(receiver.receive(), Ok(None));
//! assert_eq!(sender.send(&[7; 8]), Ok(()));
//! assert_eq!(receiver.receive(), Ok(Some([7; 8])));
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, doctest))]
extern crate std;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// Words in a message: 64 bytes, a cache line.
pub const WORDS: usize = 8;
/// A message.
pub type Message = [u64; WORDS];

/// The lives of both VMs, of which 16 bits each count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(u32);

impl Session {
    /// Returns the session of these lives (`cloison_abi::Call::Peer` and `DoorbellTake`).
    pub const fn new(sender: u64, receiver: u64) -> Self {
        Self((sender as u32 & 0xffff) << 16 | receiver as u32 & 0xffff)
    }

    /// Returns a position as it is stored.
    const fn word(self, position: u32) -> u64 {
        (self.0 as u64) << 32 | position as u64
    }

    /// Returns the position in a word, if that is of this session.
    const fn position(self, word: u64) -> Option<u32> {
        if (word >> 32) as u32 == self.0 {
            Some(word as u32)
        } else {
            None
        }
    }
}

/// Where a ring is.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// How many messages were sent: written by the sender.
    sent: &'a AtomicU64,
    /// How many were received: written by the receiver.
    received: &'a AtomicU64,
    slots: &'a [[AtomicU64; WORDS]],
}

impl<'a> Ring<'a> {
    /// Places a ring in memory that both sides may write: a line for each position, then the
    /// messages, as many as fit and are a power of two. `None` if not even one fits.
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let (positions, slots) = words.split_at_checked(2 * WORDS)?;
        Self::in_parts(&positions[0], &positions[WORDS], slots)
    }

    /// Places a ring of which the receiver may only read `sent` and `slots`, and the sender only
    /// `received`: in two channels, each written by one VM.
    pub fn in_parts(
        sent: &'a AtomicU64,
        received: &'a AtomicU64,
        slots: &'a [AtomicU64],
    ) -> Option<Self> {
        // Positions have 32 bits: the ring must divide their range.
        let (slots, _) = slots.as_chunks();
        let capacity = 1 << slots.len().min(1 << 31).checked_ilog2()?;
        Some(Self {
            sent,
            received,
            slots: &slots[..capacity],
        })
    }

    /// Returns the number of messages that it holds.
    pub const fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the words of the message at a position.
    fn slot(&self, position: u32) -> &'a [AtomicU64; WORDS] {
        &self.slots[(position & (self.capacity() - 1)) as usize]
    }
}

/// The peer has stored a position that cannot be: begin a new session, or give up on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lies;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The ring is full: try again when the receiver has received.
    Full,
    /// The receiver has stored a position that cannot be.
    Lies,
}

/// The side that sends.
#[derive(Debug)]
pub struct Sender<'a> {
    ring: Ring<'a>,
    session: Session,
    /// Messages sent in this session, modulo 2^32.
    sent: u32,
    /// Those of them that the receiver has, as far as known.
    received: u32,
}

impl<'a> Sender<'a> {
    /// Begins a session.
    pub fn begin(ring: Ring<'a>, session: Session) -> Self {
        ring.sent.store(session.word(0), Release);
        Self {
            ring,
            session,
            sent: 0,
            received: 0,
        }
    }

    /// Sends a message. Ring the receiver's doorbell afterwards.
    ///
    /// # Errors
    /// It was not sent.
    #[inline]
    pub fn send(&mut self, message: &Message) -> Result<(), NotSent> {
        self.send_with(message, Release)
    }

    #[inline]
    fn send_with(&mut self, message: &Message, publish: Ordering) -> Result<(), NotSent> {
        let underway = self.sent.wrapping_sub(self.received);
        // Acquire: the receiver has copied what it says to have received. A word of another session
        // says nothing of this one.
        if let Some(received) = self.session.position(self.ring.received.load(Acquire)) {
            let more = received.wrapping_sub(self.received);
            if more > underway {
                return Err(NotSent::Lies);
            }
            self.received = received;
        }
        if self.sent.wrapping_sub(self.received) >= self.ring.capacity() {
            return Err(NotSent::Full);
        }
        for (to, word) in self.ring.slot(self.sent).iter().zip(message) {
            to.store(*word, Relaxed);
        }
        self.sent = self.sent.wrapping_add(1);
        self.ring.sent.store(self.session.word(self.sent), publish);
        Ok(())
    }
}

/// The side that receives.
#[derive(Debug)]
pub struct Receiver<'a> {
    ring: Ring<'a>,
    session: Session,
    /// Messages received in this session, modulo 2^32.
    received: u32,
}

impl<'a> Receiver<'a> {
    /// Begins a session.
    pub fn begin(ring: Ring<'a>, session: Session) -> Self {
        ring.received.store(session.word(0), Release);
        Self {
            ring,
            session,
            received: 0,
        }
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// The sender has stored a position that cannot be.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<Message>, Lies> {
        self.receive_with(Release)
    }

    #[inline]
    fn receive_with(&mut self, release: Ordering) -> Result<Option<Message>, Lies> {
        // A sender of another session has sent nothing in this one.
        let Some(sent) = self.session.position(self.ring.sent.load(Acquire)) else {
            return Ok(None);
        };
        match sent.wrapping_sub(self.received) {
            0 => return Ok(None),
            waiting if waiting > self.ring.capacity() => return Err(Lies),
            _ => {}
        }
        let mut message = [0; WORDS];
        for (to, word) in message.iter_mut().zip(self.ring.slot(self.received)) {
            *to = word.load(Relaxed);
        }
        self.received = self.received.wrapping_add(1);
        // Release: the slot is the sender's again only once it was copied.
        let word = self.session.word(self.received);
        self.ring.received.store(word, release);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests;
