//! The driver of a link's device: two queues, each buffer always in the same slot of its ring.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_guest::abi::virtio::{
    NET_HEADER, NO_INTERRUPT, VSOCK_HEADER, descriptor, feature, offset, status,
};
use cloison_guest::abi::{Call, map, reply};
use cloison_guest::call;
use cloison_guest::probe::{self, Op};
use cloison_guest::ram::Ram;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The device's registers, where the configuration has them.
const DEVICE: u64 = 0x0a00_0000;
/// The two queues.
const QUEUES: u64 = map::RAM + (1 << 20);
/// Buffers, as many as a queue has descriptors; with one room more, since they may begin inside a room.
pub const BUFFERS: u64 = QUEUES + (64 << 10);
/// Where the buffers of a second queue are.
pub const MORE_BUFFERS: u64 = BUFFERS + (SIZE as u64 + 1) * ROOM;
/// Descriptors of a queue, each with one buffer.
pub const SIZE: u16 = 64;
/// Bytes of a buffer.
pub const ROOM: u64 = 4096;
/// Bytes between a queue's parts.
const PART: u64 = 4096;

/// The driver and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ethernet frames.
    Net,
    /// The same, by a legacy driver: its headers have no count of buffers, and it writes each bit of
    /// the status alone.
    Legacy,
    /// Packets of sockets.
    Sockets,
    /// The text of a console.
    Console,
}

impl Kind {
    /// Returns how many bytes are before a frame in its buffer.
    pub fn header(self) -> u64 {
        let len = match self {
            Self::Net => NET_HEADER.len(),
            Self::Legacy => NET_HEADER.len() - 2,
            Self::Sockets => VSOCK_HEADER,
            Self::Console => 0,
        };
        len as u64
    }
}

/// Writes a register.
#[allow(unsafe_code)]
fn store(offset: u16, value: u64) {
    let at = DEVICE + u64::from(offset);
    // SAFETY: a device of this VM. It writes to buffers that nothing else uses, and whose words are
    // atomic.
    let stored = unsafe { probe::access(Op::StoreWord, at, value) };
    stored.unwrap_or_else(|fault| panic!("{offset:#x}: {fault}"));
}

/// Handles the device's interrupt, also in the middle of another access to a register: neither
/// faults.
#[allow(unsafe_code)]
pub fn acknowledge() {
    let at = DEVICE + u64::from(offset::INTERRUPT_STATUS);
    // SAFETY: a device of this VM; reading this register changes nothing.
    let status = unsafe { probe::access(Op::LoadWord, at, 0) };
    store(offset::INTERRUPT_ACK, status.unwrap_or(0));
}

/// Returns the address of a part of a queue: descriptors, available buffers, used ones.
const fn part(queue: u64, part: u64) -> u64 {
    QUEUES + (queue * 3 + part) * PART
}

/// Starts the driver, with both queues.
pub fn start(kind: Kind) {
    let is_legacy = kind == Kind::Legacy;
    store(offset::STATUS, 0);
    let mut before = 0;
    let mut set = |bits: u32| {
        store(offset::STATUS, u64::from(before | bits));
        before |= if is_legacy { 0 } else { bits };
    };
    set(3);
    store(offset::DRIVER_FEATURES_SELECT, 1);
    let version = if is_legacy { 0 } else { feature::VERSION_1 };
    store(offset::DRIVER_FEATURES, version.into());
    set(status::FEATURES_OK);
    for queue in 0..2 {
        store(offset::QUEUE_SELECT, queue);
        store(offset::QUEUE_SIZE, SIZE.into());
        store(offset::QUEUE_DESCRIPTORS, part(queue, 0));
        store(offset::QUEUE_DRIVER, part(queue, 1));
        store(offset::QUEUE_DEVICE, part(queue, 2));
        store(offset::QUEUE_READY, 1);
    }
    set(status::DRIVER_OK);
}

/// Returns whether drivers run at both ends of the link.
pub fn is_up() -> bool {
    let link = call::call::<reply::Link>(Call::Link, [0; 3]);
    link.is_ok_and(|link| link.flags >> 16 & 3 == 3)
}

/// The memory of both queues and their buffers.
#[derive(Clone, Copy)]
pub struct Memory(&'static [AtomicU64]);

impl Memory {
    /// Takes it.
    pub fn take(ram: &mut Ram) -> Self {
        let end = MORE_BUFFERS + (u64::from(SIZE) + 1) * ROOM;
        Self(ram.take_at(QUEUES, end - QUEUES))
    }

    /// Returns the word at an address.
    fn word(self, at: u64) -> &'static AtomicU64 {
        &self.0[(at - QUEUES) as usize / 8]
    }
}

/// A queue whose descriptor `i` is always in slot `i` of its ring.
pub struct Queue {
    number: u64,
    memory: Memory,
    /// The first buffer.
    buffers: u64,
    /// How many buffers have been made available.
    pub given: u16,
    /// Whether a buffer that comes back interrupts.
    pub interrupts: bool,
}

impl Queue {
    /// Describes its buffers, which the device writes if the queue is the first.
    pub fn new(memory: Memory, number: u64, buffers: u64, len: u64) -> Self {
        let flags = if number == 0 { descriptor::WRITE } else { 0 };
        let queue = Self {
            number,
            memory,
            buffers,
            given: 0,
            interrupts: false,
        };
        for slot in 0..SIZE {
            let descriptor = part(number, 0) + u64::from(slot) * 16;
            memory.word(descriptor).store(queue.buffer(slot), Relaxed);
            let word = len | u64::from(flags) << 32;
            memory.word(descriptor + 8).store(word, Relaxed);
        }
        // After flags and count, four heads a word from the second half of the first one on.
        for word in 1..=u64::from(SIZE) / 4 {
            let heads = (0..4).map(|place| (word * 4 - 2 + place) << (place * 16));
            let ring = memory.word(part(number, 1) + word * 8);
            ring.store(heads.sum(), Relaxed);
        }
        // What a former life has left.
        for part_of in [1, 2] {
            memory.word(part(number, part_of)).store(0, SeqCst);
        }
        queue
    }

    /// Returns the address of a slot's buffer.
    fn buffer(&self, slot: u16) -> u64 {
        self.buffers + u64::from(slot % SIZE) * ROOM
    }

    /// Returns the words from `offset` bytes into a slot's buffer on.
    pub fn words(&self, slot: u16, offset: u64, bytes: u64) -> &'static [AtomicU64] {
        let first = (self.buffer(slot) + offset - QUEUES) as usize / 8;
        &self.memory.0[first..][..bytes as usize / 8]
    }

    /// Returns a word of a slot's buffer.
    pub fn word(&self, slot: u16, offset: u64) -> &'static AtomicU64 {
        self.memory.word(self.buffer(slot) + offset)
    }

    /// Sets the length of a slot's buffer.
    pub fn set_len(&self, slot: u16, len: u64) {
        let descriptor = part(self.number, 0) + u64::from(slot % SIZE) * 16;
        let word = self.memory.word(descriptor + 8);
        word.store(word.load(Relaxed) >> 32 << 32 | len, Relaxed);
    }

    /// Returns how many buffers have come back.
    pub fn used(&self) -> u16 {
        (self.memory.word(part(self.number, 2)).load(SeqCst) >> 16) as u16
    }

    /// Returns the length that came back with the buffer of a slot, unless another buffer is in that
    /// place of the ring.
    pub fn used_len(&self, slot: u16) -> Option<u64> {
        let slot = u64::from(slot % SIZE);
        // After flags and count, each entry has a head and a length.
        let at = part(self.number, 2) + 4 + slot * 8;
        let [low, high] = [at - 4, at + 4].map(|at| self.memory.word(at).load(Relaxed));
        (low >> 32 == slot).then_some(high & 0xffff_ffff)
    }

    /// Makes buffers available, so that `given` have been, and notifies.
    pub fn give(&mut self, given: u16) {
        self.given = given;
        let flags = if self.interrupts { 0 } else { NO_INTERRUPT };
        // The first two heads are those of slots 0 and 1.
        let word = u64::from(flags) | u64::from(given) << 16 | 1 << 48;
        self.memory.word(part(self.number, 1)).store(word, SeqCst);
        store(offset::QUEUE_NOTIFY, self.number);
    }
}
