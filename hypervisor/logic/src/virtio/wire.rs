//! One direction of a link: takes chains of the sender's transmit queue, and copies them to chains
//! of the receiver's receive queue.
//!
//! In steps that each touch a few pages, so that a visit to EL2 ends: what a step leaves, the next
//! one finds. Frames that the receiver has no room for wait; those longer than its buffer, and those
//! without a receiver, are lost, as on a cable. Bytes of a console continue in the next buffer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::{Chain, GuestMemory, Piece, Queue, Violation};
use cloison_abi::virtio::{NET_HEADER, descriptor};
use cloison_formats::addr::Ipa;
use cloison_formats::link::LinkKind;

/// An end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends.
    Sender = 0,
    /// It receives.
    Receiver = 1,
}

use Role::{Receiver, Sender};

/// What the driver of an end has done wrong. Its queue is no longer used. Either end may have got a
/// chain back in the same step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The end.
    pub role: Role,
    /// What.
    pub what: Violation,
}

/// The memories of both ends.
pub trait Memories {
    /// Returns the memory of an end.
    fn of(&self, role: Role) -> impl GuestMemory;

    /// Copies bytes of the sender's to the receiver's, in one page each.
    ///
    /// # Errors
    /// They are not in RAM.
    fn copy(&self, from: Piece, to: Piece) -> Result<(), Wrong>;
}

/// No byte.
const NOTHING: Piece = Piece { at: Ipa(0), len: 0 };

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: nothing is to be sent.
    Idle,
    /// Nothing: the receiver has no room.
    Waits,
    /// A part.
    More,
    /// The rest of a chain. These ends want an interrupt.
    Used {
        /// The sender does.
        sender: bool,
        /// The receiver does.
        receiver: bool,
    },
}

/// The queue of an end, and the chain that was taken from it.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    queue: Option<Queue>,
    chain: Option<Chain>,
}

impl End {
    /// Returns the next piece of its chain, if there is one.
    fn piece(
        &mut self,
        memory: &impl GuestMemory,
        access: u16,
    ) -> Result<Option<Piece>, Violation> {
        match (&self.queue, &mut self.chain) {
            (Some(queue), Some(chain)) => chain.piece(queue, memory, access),
            _ => Ok(None),
        }
    }

    /// Takes a chain, unless it has one. Returns whether it has one now.
    fn take(&mut self, memory: &impl GuestMemory) -> Result<bool, Violation> {
        if let (Some(queue), None) = (&mut self.queue, &self.chain) {
            self.chain = queue.take(memory)?;
        }
        Ok(self.chain.is_some())
    }

    fn advance(&mut self, bytes: u32) {
        if let Some(chain) = &mut self.chain {
            chain.advance(bytes);
        }
    }

    /// Gives its chain back, if it has one. Returns whether the driver wants an interrupt.
    fn give(&mut self, memory: &impl GuestMemory, written: u32) -> Result<bool, Violation> {
        match (&mut self.queue, self.chain.take()) {
            (Some(queue), Some(chain)) => queue.give(memory, chain, written),
            _ => Ok(false),
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Wire {
    kind: LinkKind,
    ends: [End; 2],
    /// Bytes of the sender's header that are read, and of the receiver's that are written.
    skipped: u32,
    /// Bytes in the receiver's chain.
    written: u32,
    /// The sender's vCPU that waits for the receiver.
    pub waits: Option<u8>,
}

impl Wire {
    /// Creates a direction that no driver uses yet.
    pub fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            ends: [End::default(); 2],
            skipped: 0,
            written: 0,
            waits: None,
        }
    }

    /// A driver uses its queue from now on.
    pub fn join(&mut self, role: Role, queue: Queue) {
        self.ends[role as usize].queue = Some(queue);
    }

    /// A queue is no longer used. Nothing of it is left: what the sender has begun is lost, and what
    /// the receiver has got of it is written over.
    pub fn leave(&mut self, role: Role) {
        self.ends[role as usize] = End::default();
        self.begin_again();
    }

    fn begin_again(&mut self) {
        self.skipped = 0;
        self.written = 0;
        if let Some(chain) = &mut self.ends[Receiver as usize].chain {
            chain.rewind();
        }
    }

    /// Returns how long headers are.
    fn header(&self) -> u32 {
        match self.kind {
            LinkKind::Net => NET_HEADER.len() as u32,
            LinkKind::Console => 0,
        }
    }

    /// Does the next step.
    ///
    /// # Errors
    /// What a driver has done wrong. Its queue has been left.
    pub fn step(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        self.try_step(memories)
            .inspect_err(|wrong| self.leave(wrong.role))
    }

    fn try_step(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        let wrong = |role| move |what| Wrong { role, what };
        let (source, target) = (&memories.of(Sender), &memories.of(Receiver));
        let header = self.header();
        let [sender, receiver] = &mut self.ends;
        if !sender.take(source).map_err(wrong(Sender))? {
            return Ok(Step::Idle);
        }
        if receiver.queue.is_none() {
            return self.drop_chain(source);
        }
        if !receiver.take(target).map_err(wrong(Receiver))? {
            return Ok(Step::Waits);
        }
        let from = sender.piece(source, 0).map_err(wrong(Sender))?;
        if self.skipped < header {
            let Some(from) = from else {
                return Err(wrong(Sender)(Violation::Short));
            };
            let bytes = from.len.min(header - self.skipped);
            sender.advance(bytes);
            self.skipped += bytes;
            return Ok(Step::More);
        }
        let is_header = self.written < header;
        let Some(from) = from.or(is_header.then_some(NOTHING)) else {
            return self.finish(memories);
        };
        if from.len == 0 && !is_header {
            return Ok(Step::More);
        }
        let to = receiver.piece(target, descriptor::WRITE);
        let Some(to) = to.map_err(wrong(Receiver))? else {
            // A buffer that is full. A frame that does not fit is lost.
            return match self.kind {
                LinkKind::Net => self.drop_chain(source),
                LinkKind::Console => self.flush(target, false),
            };
        };
        let bytes = if is_header {
            let rest = &NET_HEADER[self.written as usize..];
            let bytes = rest.len().min(to.len as usize);
            target
                .write(to.at, &rest[..bytes])
                .map_err(wrong(Receiver))?;
            bytes as u32
        } else {
            let len = from.len.min(to.len);
            memories.copy(Piece { len, ..from }, Piece { len, ..to })?;
            sender.advance(len);
            len
        };
        receiver.advance(bytes);
        self.written += bytes;
        Ok(Step::More)
    }

    /// Gives the receiver's chain back.
    fn flush(&mut self, target: &impl GuestMemory, sender: bool) -> Result<Step, Wrong> {
        let written = core::mem::take(&mut self.written);
        let given = self.ends[Receiver as usize].give(target, written);
        let receiver = given.map_err(|what| Wrong {
            role: Receiver,
            what,
        })?;
        Ok(Step::Used { sender, receiver })
    }

    /// Gives both chains back: all is copied.
    fn finish(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        // First the sender's: of a frame that is delivered, nothing is left to be sent again.
        let given = self.ends[Sender as usize].give(&memories.of(Sender), 0);
        let sender = given.map_err(|what| Wrong { role: Sender, what })?;
        self.skipped = 0;
        self.flush(&memories.of(Receiver), sender)
    }

    /// Gives the sender's chain back, although it was not copied.
    fn drop_chain(&mut self, source: &impl GuestMemory) -> Result<Step, Wrong> {
        self.begin_again();
        let given = self.ends[Sender as usize].give(source, 0);
        let sender = given.map_err(|what| Wrong { role: Sender, what })?;
        Ok(Step::Used {
            sender,
            receiver: false,
        })
    }
}
