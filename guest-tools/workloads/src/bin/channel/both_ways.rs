//! Both directions of channel 0, and the bits that peers have set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_channel::{Message, NotSent, Receiver, Ring, Sender, Session};
use cloison_guest::{call, cpu, ram, timer};
use core::sync::atomic::AtomicU64;

/// The VM that asks, and the one that answers.
pub const ASKS: u64 = 0;
pub const ANSWERS: u64 = 1;
/// The bit of a doorbell for "a message waits".
pub const MESSAGE: u64 = 5;
/// How long a peer may take.
pub const PATIENCE_MICROS: u64 = 5_000_000;

/// The bits that the handler has taken.
pub static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Both directions of channel 0.
pub struct Link {
    pub sender: Sender<'static>,
    pub receiver: Receiver<'static>,
    pub peer: u64,
}

impl Link {
    /// Begins a session with the life that the peer has now.
    pub fn begin(own: u64, peer: u64) -> Option<Self> {
        let words = ram::channel(0)?;
        let (first, second) = words.split_at(words.len() / 2);
        let mine = call::doorbell_take(0).ok()?.life;
        let theirs = call::peer(peer).ok()?;
        let (to, from) = if own == ASKS {
            (first, second)
        } else {
            (second, first)
        };
        Some(Self {
            sender: Sender::begin(Ring::new(to)?, Session::new(mine, theirs)),
            receiver: Receiver::begin(Ring::new(from)?, Session::new(theirs, mine)),
            peer,
        })
    }

    pub fn send(&mut self, message: &Message) -> Result<(), NotSent> {
        self.sender.send(message)?;
        // One that is too often or finds no life is no loss: the peer looks into its ring anyway.
        let _ = call::doorbell_ring(self.peer, MESSAGE, 0);
        Ok(())
    }

    /// Waits for a message; `None` if there is none in time.
    pub fn receive(&mut self) -> Option<Message> {
        let end = timer::now() + timer::micros(PATIENCE_MICROS);
        loop {
            if let Some(message) = self.receiver.receive().ok()? {
                return Some(message);
            }
            if timer::now() > end {
                return None;
            }
            cpu::give_way();
        }
    }
}
