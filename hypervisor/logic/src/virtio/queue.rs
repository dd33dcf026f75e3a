//! The device's side of a split virtqueue (virtio 1.2, 2.7).
//!
//! All of it is in a guest's memory, which changes at any time. So each word is read once, into a
//! copy, and checked there; a chain has no more descriptors than its queue, so that it ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::virtio::{NO_INTERRUPT, descriptor, offset};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use thiserror::Error;

/// Maximum size of a queue, and so of a chain.
pub const MOST: u16 = 256;

/// What a driver has done that no driver may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// More buffers are available than the queue has.
    #[error("more buffers are available than the queue has")]
    Available,
    /// There is no such descriptor.
    #[error("a descriptor has a number beyond the queue")]
    Number,
    /// A chain does not end.
    #[error("a chain has more descriptors than the queue")]
    Endless,
    /// A descriptor is for the other direction, or has a table of descriptors.
    #[error("a descriptor is for the other direction, or indirect")]
    Flags,
    /// A queue or a buffer is not in RAM.
    #[error("an address is not in its cacheable RAM")]
    Memory,
}

/// What a queue is for in a direction, by the number that it has at its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its end receives, and the device writes to its buffers.
    Receiver = 0,
    /// Its end sends.
    Sender = 1,
    /// Its end receives, and is told of the other one.
    Event = 2,
}

impl Role {
    /// All.
    pub const ALL: [Self; 3] = [Self::Receiver, Self::Sender, Self::Event];
}

/// What the driver of an end has done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its queue.
    pub role: Role,
    /// What.
    pub what: Violation,
}

/// The memories of both ends. Accesses take effect in their order, and lie in one page each; two
/// bytes at an even address are accessed at once.
pub trait Memories {
    /// Reads bytes of an end.
    ///
    /// # Errors
    /// They are not in RAM.
    fn read(&self, role: Role, at: Ipa, bytes: &mut [u8]) -> Result<(), Wrong>;

    /// Writes bytes of an end.
    ///
    /// # Errors
    /// They are not in RAM.
    fn write(&self, role: Role, at: Ipa, bytes: &[u8]) -> Result<(), Wrong>;

    /// Copies bytes of the sender's to the receiver's.
    ///
    /// # Errors
    /// They are not in RAM.
    fn copy(&self, from: Ipa, to: Ipa, len: u32) -> Result<(), Wrong>;
}

/// What a driver sets up for a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Number of its descriptors.
    pub size: u32,
    /// The registers of its addresses, from that of the descriptors on.
    pub registers: [u32; 10],
}

impl Setup {
    /// Returns the address in the registers at an offset.
    fn address(&self, at: u16) -> u64 {
        let first = usize::from(at - offset::QUEUE_DESCRIPTORS) / 4;
        let [low, high] = [first, first + 1].map(|index| u64::from(self.registers[index]));
        low | high << 32
    }
}

/// A queue in use.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// What it is for.
    pub role: Role,
    /// Bytes at the end of a frame's header that its driver leaves out.
    pub omits: u32,
    size: u16,
    /// Address of its descriptors.
    descriptors: u64,
    /// Address of its ring of available buffers, to which the driver writes.
    driver: u64,
    /// Address of its ring of used buffers, to which the device writes.
    device: u64,
    /// How many chains have been taken, and given back.
    taken: u16,
    used: u16,
    /// The chain that was taken last, until it is given back.
    chain: Option<Chain>,
}

/// A chain of descriptors, and how far the device has come in it.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u16,
    /// How many descriptors have been read.
    read: u16,
    /// What is left of the last one.
    at: u64,
    len: u32,
    next: Option<u16>,
}

/// A part of a buffer, in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of its first byte.
    pub at: Ipa,
    /// How many bytes it has: none where a descriptor has none.
    pub len: u32,
}

impl Chain {
    const fn new(head: u16) -> Self {
        Self {
            head,
            read: 0,
            at: 0,
            len: 0,
            next: Some(head),
        }
    }
}

impl Queue {
    /// Returns what a driver has set up, if it can be a queue: aligned, and of a power of two.
    pub fn new(role: Role, setup: &Setup) -> Option<Self> {
        let size = u16::try_from(setup.size).ok()?;
        let descriptors = setup.address(offset::QUEUE_DESCRIPTORS);
        let driver = setup.address(offset::QUEUE_DRIVER);
        let device = setup.address(offset::QUEUE_DEVICE);
        let is_aligned =
            descriptors.is_multiple_of(16) && driver.is_multiple_of(2) && device.is_multiple_of(4);
        // No address in a queue wraps.
        let is_low = (descriptors | driver | device) >> 48 == 0;
        let is_queue = size.is_power_of_two() && size <= MOST && is_aligned && is_low;
        is_queue.then_some(Self {
            role,
            omits: 0,
            size,
            descriptors,
            driver,
            device,
            taken: 0,
            used: 0,
            chain: None,
        })
    }

    /// Returns what the driver has done wrong, unless a rule holds.
    fn check(&self, holds: bool, what: Violation) -> Result<(), Wrong> {
        let role = self.role;
        holds.then_some(()).ok_or(Wrong { role, what })
    }

    /// Reads a half word of the ring of available buffers.
    fn available(&self, memories: &impl Memories, index: u16) -> Result<u16, Wrong> {
        let mut bytes = [0; 2];
        let at = Ipa(self.driver + u64::from(index) * 2);
        memories.read(self.role, at, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Takes the next chain that is available, unless it has one. Returns whether it has one now.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn take(&mut self, memories: &impl Memories) -> Result<bool, Wrong> {
        if self.chain.is_none() {
            let count = self.available(memories, 1)?.wrapping_sub(self.taken);
            if count == 0 {
                return Ok(false);
            }
            self.check(count <= self.size, Violation::Available)?;
            let head = self.available(memories, 2 + self.taken % self.size)?;
            self.taken = self.taken.wrapping_add(1);
            self.chain = Some(Chain::new(head));
        }
        Ok(true)
    }

    /// Returns to the first byte of its chain.
    pub fn rewind(&mut self) {
        self.chain = self.chain.map(|chain| Chain::new(chain.head));
    }

    /// Returns the next piece of its chain, and reads at most one descriptor for it; `None` at the
    /// end.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn piece(&mut self, memories: &impl Memories) -> Result<Option<Piece>, Wrong> {
        let Some(mut chain) = self.chain else {
            return Ok(None);
        };
        if chain.len == 0 {
            let Some(number) = chain.next else {
                return Ok(None);
            };
            self.check(chain.read < self.size, Violation::Endless)?;
            self.check(number < self.size, Violation::Number)?;
            let mut bytes = [0; 16];
            let at = Ipa(self.descriptors + u64::from(number) * 16);
            memories.read(self.role, at, &mut bytes)?;
            let word = u128::from_le_bytes(bytes);
            let flags = (word >> 96) as u16;
            let writes = flags & descriptor::WRITE != 0;
            let is_indirect = flags & descriptor::INDIRECT != 0;
            let is_right = writes == (self.role != Role::Sender) && !is_indirect;
            self.check(is_right, Violation::Flags)?;
            let at = word as u64;
            // Nothing that is computed from it wraps; whether it is RAM is seen page by page.
            self.check(at >> 48 == 0, Violation::Memory)?;
            chain.read += 1;
            chain.at = at;
            chain.len = (word >> 64) as u32;
            chain.next = (flags & descriptor::NEXT != 0).then_some((word >> 112) as u16);
            self.chain = Some(chain);
        }
        let rest = PAGE_SIZE - chain.at % PAGE_SIZE;
        Ok(Some(Piece {
            at: Ipa(chain.at),
            len: chain.len.min(rest as u32),
        }))
    }

    /// The first bytes of the piece are done.
    pub fn advance(&mut self, bytes: u32) {
        if let Some(chain) = &mut self.chain {
            chain.at += u64::from(bytes);
            chain.len -= bytes;
        }
    }

    /// Gives its chain back to the driver, of which `written` bytes are new. Returns whether the
    /// driver wants an interrupt for it.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn give(&mut self, memories: &impl Memories, written: u32) -> Result<bool, Wrong> {
        let Some(chain) = self.chain.take() else {
            return Ok(false);
        };
        let slot = self.device + 4 + u64::from(self.used % self.size) * 8;
        self.used = self.used.wrapping_add(1);
        let write = |at, bytes: &[u8]| memories.write(self.role, Ipa(at), bytes);
        // Apart: a pair of words that is aligned to four bytes may lie in two pages.
        write(slot, &u32::from(chain.head).to_le_bytes())?;
        write(slot + 4, &written.to_le_bytes())?;
        write(self.device + 2, &self.used.to_le_bytes())?;
        Ok(self.available(memories, 0)? & NO_INTERRUPT == 0)
    }
}
