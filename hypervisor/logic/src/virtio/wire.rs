//! One direction of a link: takes chains of the sender's transmit queue, and copies them to chains
//! of the receiver's receive queue.
//!
//! In steps that each touch a few pages, so that a visit to EL2 ends: what a step leaves, the next
//! one finds. Frames that the receiver has no room for wait; those longer than its buffer, and those
//! without a receiver, are lost, as on a cable. Bytes of a console continue in the next buffer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::{Memories, Piece, Queue, Role, Wrong};
use crate::clock::Instant;
use cloison_abi::virtio::NET_HEADER;
use cloison_formats::link::{LinkKind, Traffic};
use core::mem::take;

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: nothing is to be sent.
    Idle,
    /// Nothing: the receiver has no room.
    Waits,
    /// A part.
    More,
    /// The rest of a chain. Of each [`Role`], whether its driver wants an interrupt.
    Used([bool; 2]),
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Wire {
    kind: LinkKind,
    /// By [`Role`].
    queues: [Option<Queue>; 2],
    /// Bytes of the sender's header that are read.
    skipped: u32,
    /// Bytes in the receiver's chain.
    written: u32,
    /// Whether the sender waits for the receiver.
    pub waits: bool,
    /// What has passed since boot.
    pub traffic: Traffic,
    /// When that may be logged again.
    pub log_from: Instant,
}

impl Wire {
    /// Creates a direction that no driver uses yet.
    pub fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            queues: [None; 2],
            skipped: 0,
            written: 0,
            waits: false,
            traffic: Traffic::default(),
            log_from: Instant(0),
        }
    }

    /// A driver uses its queue from now on.
    pub fn join(&mut self, queue: Queue) {
        self.queues[queue.role as usize] = Some(queue);
    }

    /// A queue is no longer used. Nothing of it is left: what the other end has begun of a chain, it
    /// begins again.
    pub fn leave(&mut self, role: Role) {
        self.queues[role as usize] = None;
        self.begin_again();
    }

    fn begin_again(&mut self) {
        self.skipped = 0;
        self.written = 0;
        for queue in self.queues.iter_mut().flatten() {
            queue.rewind();
        }
    }

    /// Does the next step.
    ///
    /// # Errors
    /// What a driver has done wrong. Its queue has been left, and either end may have got a chain
    /// back.
    pub fn step(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        let step = self.try_step(memories);
        step.inspect_err(|wrong| self.leave(wrong.role))
    }

    fn try_step(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        let header: &[u8] = match self.kind {
            LinkKind::Net => &NET_HEADER,
            LinkKind::Console => &[],
        };
        let [receiver, Some(sender)] = &mut self.queues else {
            return Ok(Step::Idle);
        };
        if !sender.take(memories)? {
            return Ok(Step::Idle);
        }
        let Some(receiver) = receiver else {
            return self.lose(memories);
        };
        if !receiver.take(memories)? {
            self.traffic.waits += 1;
            return Ok(Step::Waits);
        }
        let from = sender.piece(memories)?;
        let skip = header.len() as u32 - self.skipped;
        if let Some(from) = from
            && skip > 0
        {
            let bytes = from.len.min(skip);
            sender.advance(bytes);
            self.skipped += bytes;
            return Ok(Step::More);
        }
        // The receiver's header comes first, whatever the sender's is.
        let header = header.get(self.written as usize..).unwrap_or_default();
        match from {
            _ if !header.is_empty() => {}
            Some(Piece { len: 0, .. }) => return Ok(Step::More),
            Some(_) => {}
            None => {
                // First the sender's: of a frame that is delivered, nothing is left to be sent
                // again.
                self.skipped = 0;
                self.traffic.frames += 1;
                let sender = sender.give(memories, 0)?;
                let receiver = receiver.give(memories, take(&mut self.written))?;
                return Ok(Step::Used([receiver, sender]));
            }
        }
        let Some(to) = receiver.piece(memories)? else {
            // A buffer that is full. A frame that does not fit is lost.
            if self.kind == LinkKind::Net {
                return self.lose(memories);
            }
            let receiver = receiver.give(memories, take(&mut self.written))?;
            return Ok(Step::Used([receiver, false]));
        };
        let bytes = match from {
            Some(from) if header.is_empty() => {
                let len = from.len.min(to.len);
                memories.copy(from.at, to.at, len)?;
                sender.advance(len);
                self.traffic.bytes += u64::from(len);
                len
            }
            _ => {
                let len = to.len.min(header.len() as u32);
                memories.write(Role::Receiver, to.at, &header[..len as usize])?;
                len
            }
        };
        receiver.advance(bytes);
        self.written += bytes;
        Ok(Step::More)
    }

    /// Gives the sender's chain back, although it was not copied.
    fn lose(&mut self, memories: &impl Memories) -> Result<Step, Wrong> {
        self.begin_again();
        self.traffic.lost += 1;
        let sender = self.queues[Role::Sender as usize].as_mut();
        let wants = sender.map_or(Ok(false), |sender| sender.give(memories, 0))?;
        Ok(Step::Used([false, wants]))
    }
}
