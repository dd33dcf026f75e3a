//! One direction of a link: takes chains of the sender's transmit queue, and copies them to chains
//! of the receiver's receive queue.
//!
//! In steps that each touch a few pages, so that a visit to EL2 ends: what a step leaves, the next
//! one finds. Frames that the receiver has no room for wait; those longer than its buffer, and those
//! without a receiver, are lost, as on a cable. Bytes of a console continue in the next buffer, and
//! so does a packet of sockets: its parts are packets, each with the header and its own length.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::{Memories, Piece, Queue, Role, Wrong};
use crate::clock::Instant;
use alloc::vec;
use alloc::vec::Vec;
use cloison_abi::virtio::{NET_HEADER, VSOCK_HEADER};
use cloison_formats::link::{Link, LinkKind, Traffic, cid};
use core::mem::take;
use core::ops::Range;

/// Where a packet's header has the length of what follows (5.10.6).
const LEN: Range<usize> = 24..28;

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
    queues: [Option<Queue>; 3],
    /// What the receiver gets first. For sockets: the sender's, with the length of the part that is
    /// received.
    header: Vec<u8>,
    /// The addresses in a packet, the sender's and the receiver's, whatever the sender says.
    addresses: [[u8; 8]; 2],
    /// Bytes of the sender's header that are read.
    read: u32,
    /// Bytes of the header that are in the receiver's chain, and bytes after it.
    headed: u32,
    written: u32,
    /// Whether the sender waits for the receiver.
    pub waits: bool,
    /// What has passed since boot.
    pub traffic: Traffic,
    /// When that may be logged again.
    pub log_from: Instant,
}

impl Wire {
    /// Creates the direction from an end, which no driver uses yet.
    pub fn new(link: &Link, from: usize) -> Self {
        Self {
            kind: link.kind,
            queues: [None; 3],
            header: match link.kind {
                LinkKind::Net => NET_HEADER.to_vec(),
                LinkKind::Console => Vec::new(),
                LinkKind::Vsock => vec![0; VSOCK_HEADER],
            },
            addresses: [from, 1 - from].map(|end| cid(link.ends[end].vm).to_le_bytes()),
            read: 0,
            headed: 0,
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
        self.read = 0;
        self.headed = 0;
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
        let [receiver, Some(sender), _] = &mut self.queues else {
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
        let is_packet = self.kind == LinkKind::Vsock;
        let size = self.header.len() as u32;
        let unread = size - sender.omits - self.read;
        let missing = size - receiver.omits - self.headed;
        let len = self.written.to_le_bytes();
        let is_full = is_packet && self.header[LEN] == len;
        // A frame of a network does not continue in another chain, nor a packet if this one has
        // nothing but its header.
        let is_whole = self.kind == LinkKind::Net || is_packet && self.written == 0;
        match (sender.piece(memories)?, receiver.piece(memories)?) {
            (Some(Piece { len: 0, .. }), _) => {}
            (Some(from), _) if unread > 0 => {
                let bytes = from.len.min(unread);
                if is_packet {
                    let part = &mut self.header[self.read as usize..][..bytes as usize];
                    memories.read(Role::Sender, from.at, part)?;
                    self.header[..16].copy_from_slice(self.addresses.as_flattened());
                }
                sender.advance(bytes);
                self.read += bytes;
            }
            (_, Some(to)) if missing > 0 => {
                let bytes = to.len.min(missing);
                let part = &self.header[self.headed as usize..][..bytes as usize];
                memories.write(Role::Receiver, to.at, part)?;
                receiver.advance(bytes);
                self.headed += bytes;
            }
            (Some(from), Some(to)) if !is_full => {
                let bytes = from.len.min(to.len);
                memories.copy(from.at, to.at, bytes)?;
                sender.advance(bytes);
                receiver.advance(bytes);
                self.written += bytes;
                self.traffic.bytes += u64::from(bytes);
            }
            // From here on, the receiver's chain is full, or the sender's has ended. A frame that
            // ends in a header is lost, too.
            (from, _) if unread + missing > 0 || is_whole && from.is_some() => {
                return self.lose(memories);
            }
            // Its length is known now: the header is written again.
            _ if is_packet && !is_full => {
                self.header[LEN].copy_from_slice(&len);
                receiver.rewind();
                self.headed = 0;
            }
            (from, _) => {
                let written = size - receiver.omits + take(&mut self.written);
                self.headed = 0;
                let mut is_sent = false;
                if from.is_none() {
                    // First the sender's: of a frame that is delivered, nothing is left to be sent
                    // again.
                    self.read = 0;
                    self.traffic.frames += 1;
                    is_sent = sender.give(memories, 0)?;
                }
                return Ok(Step::Used([receiver.give(memories, written)?, is_sent]));
            }
        }
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

    /// Tells the receiver that the sender's driver has started or ended, in a buffer for that.
    ///
    /// # Errors
    /// What the receiver's driver has done wrong.
    pub fn report(&mut self, memories: &impl Memories) -> Result<(), Wrong> {
        if let Some(events) = &mut self.queues[Role::Event as usize]
            && events.take(memories)?
            && let Some(to) = events.piece(memories)?
        {
            let len = to.len.min(4);
            // VIRTIO_VSOCK_EVENT_TRANSPORT_RESET (5.10.6.7).
            memories.write(Role::Event, to.at, &[0; 4][..len as usize])?;
            events.give(memories, len)?;
        }
        Ok(())
    }
}
