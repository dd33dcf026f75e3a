//! The device's side of a split virtqueue (virtio 1.2, 2.7).
//!
//! All of it is in a guest's memory, which changes at any time. So each word is read once, into a
//! copy, and checked there; a chain has no more descriptors than its queue, so that it ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::virtio::{NO_INTERRUPT, descriptor};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use thiserror::Error;

/// Maximum size of a queue, and so of a chain.
pub const MOST: u16 = 256;

/// What a driver has done that no driver may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Its queue cannot be one.
    #[error("a queue is not aligned, or its size is no power of two up to {MOST}")]
    Queue,
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
    #[error("an address is not in its RAM")]
    Memory,
    /// A frame ends in its header.
    #[error("a frame is shorter than its header")]
    Short,
}

/// A guest's memory. Accesses take effect in their order, and lie in one page each; two bytes at an
/// even address are accessed at once.
pub trait GuestMemory {
    /// Reads bytes.
    ///
    /// # Errors
    /// They are not in RAM.
    fn read(&self, at: Ipa, bytes: &mut [u8]) -> Result<(), Violation>;

    /// Writes bytes.
    ///
    /// # Errors
    /// They are not in RAM.
    fn write(&self, at: Ipa, bytes: &[u8]) -> Result<(), Violation>;
}

/// Reads an aligned pair of bytes.
fn half(memory: &impl GuestMemory, at: Ipa) -> Result<u16, Violation> {
    let mut bytes = [0; 2];
    memory.read(at, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// What a driver sets up for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Number of its descriptors.
    pub size: u32,
    /// Address of its descriptors.
    pub descriptors: u64,
    /// Address of its ring of available buffers, to which the driver writes.
    pub driver: u64,
    /// Address of its ring of used buffers, to which the device writes.
    pub device: u64,
}

/// A queue in use.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    size: u16,
    setup: Setup,
    /// How many chains have been taken, and given back.
    taken: u16,
    used: u16,
}

impl Queue {
    /// Checks what a driver has set up.
    ///
    /// # Errors
    /// It cannot be a queue.
    pub fn new(setup: Setup) -> Result<Self, Violation> {
        let size = u16::try_from(setup.size).unwrap_or(0);
        let is_aligned = setup.descriptors.is_multiple_of(16)
            && setup.driver.is_multiple_of(2)
            && setup.device.is_multiple_of(4);
        // No address in a queue wraps.
        let is_low = (setup.descriptors | setup.driver | setup.device) >> 48 == 0;
        if !size.is_power_of_two() || size > MOST || !is_aligned || !is_low {
            return Err(Violation::Queue);
        }
        Ok(Self {
            size,
            setup,
            taken: 0,
            used: 0,
        })
    }

    /// Takes the next chain that is available.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn take(&mut self, memory: &impl GuestMemory) -> Result<Option<Chain>, Violation> {
        let available = half(memory, Ipa(self.setup.driver + 2))?;
        match available.wrapping_sub(self.taken) {
            0 => return Ok(None),
            count if count > self.size => return Err(Violation::Available),
            _ => {}
        }
        let slot = u64::from(self.taken % self.size);
        let head = half(memory, Ipa(self.setup.driver + 4 + slot * 2))?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Chain::new(head)))
    }

    /// Gives a chain back to the driver, of which `written` bytes are new. Returns whether the
    /// driver wants an interrupt for it.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn give(
        &mut self,
        memory: &impl GuestMemory,
        chain: Chain,
        written: u32,
    ) -> Result<bool, Violation> {
        let slot = self.setup.device + 4 + u64::from(self.used % self.size) * 8;
        // Apart: a pair of words that is aligned to four bytes may lie in two pages.
        memory.write(Ipa(slot), &u32::from(chain.head).to_le_bytes())?;
        memory.write(Ipa(slot + 4), &written.to_le_bytes())?;
        self.used = self.used.wrapping_add(1);
        memory.write(Ipa(self.setup.device + 2), &self.used.to_le_bytes())?;
        Ok(half(memory, Ipa(self.setup.driver))? & NO_INTERRUPT == 0)
    }

    /// Reads a descriptor of a chain whose buffers the device writes to, or reads.
    fn load(
        &self,
        memory: &impl GuestMemory,
        number: u16,
        access: u16,
    ) -> Result<Descriptor, Violation> {
        if number >= self.size {
            return Err(Violation::Number);
        }
        let mut bytes = [0; 16];
        let at = Ipa(self.setup.descriptors + u64::from(number) * 16);
        memory.read(at, &mut bytes)?;
        let word = u128::from_le_bytes(bytes);
        let flags = (word >> 96) as u16;
        if flags & (descriptor::WRITE | descriptor::INDIRECT) != access {
            return Err(Violation::Flags);
        }
        let (at, len) = (word as u64, (word >> 64) as u32);
        // Nothing that is computed from it wraps; whether it is RAM is seen page by page.
        if at >> 48 != 0 {
            return Err(Violation::Memory);
        }
        let next = (word >> 112) as u16;
        Ok(Descriptor {
            at: Ipa(at),
            len,
            next: (flags & descriptor::NEXT != 0).then_some(next),
        })
    }
}

/// A descriptor that has been read.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    at: Ipa,
    len: u32,
    next: Option<u16>,
}

/// A chain of descriptors that the driver has made available, and how far the device has come.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    head: u16,
    /// How many descriptors have been read.
    read: u16,
    /// What is left of the last one.
    current: Descriptor,
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
        let current = Descriptor {
            at: Ipa(0),
            len: 0,
            next: Some(head),
        };
        Self {
            head,
            read: 0,
            current,
        }
    }

    /// Returns to the first byte.
    pub fn rewind(&mut self) {
        *self = Self::new(self.head);
    }

    /// Returns the next piece, and reads at most one descriptor for it; `None` at the end.
    ///
    /// # Errors
    /// What the driver has done wrong.
    pub fn piece(
        &mut self,
        queue: &Queue,
        memory: &impl GuestMemory,
        access: u16,
    ) -> Result<Option<Piece>, Violation> {
        if self.current.len == 0 {
            let Some(next) = self.current.next else {
                return Ok(None);
            };
            if self.read == queue.size {
                return Err(Violation::Endless);
            }
            self.read += 1;
            self.current = queue.load(memory, next, access)?;
        }
        let at = self.current.at;
        let rest = (PAGE_SIZE - at.0 % PAGE_SIZE) as u32;
        let len = self.current.len.min(rest);
        Ok(Some(Piece { at, len }))
    }

    /// The first bytes of the piece are done.
    pub fn advance(&mut self, bytes: u32) {
        self.current.at.0 += u64::from(bytes);
        self.current.len -= bytes;
    }
}
