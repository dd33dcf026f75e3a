//! Frames: sends frames of one size on a link as fast as its peer takes them, or takes them.
//!
//! Argument 0: 0 takes, 1 sends; 1: bytes of a frame; 2: how many are sent (0: without end); 3: 1 for
//! a legacy driver: its headers have no count of buffers, and it writes each bit of the status alone.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::map;
use cloison_guest::abi::virtio::{NET_HEADER, descriptor, feature, offset, status};
use cloison_guest::probe::{self, Op};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, cpu, entry, println, timer};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

entry!(main);

/// The device's registers, where the configuration has them.
const DEVICE: u64 = 0x0a00_0000;
/// The two queues, and their buffers.
const QUEUES: u64 = map::RAM + (1 << 20);
const BUFFERS: u64 = QUEUES + (64 << 10);
/// Descriptors of a queue, each with one buffer.
const SIZE: u16 = 64;
/// Bytes of a buffer.
const ROOM: u64 = 4096;
/// Bytes between a queue's parts.
const PART: u64 = 4096;

/// Writes a register.
#[allow(unsafe_code)]
fn store(offset: u16, value: u64) {
    let at = DEVICE + u64::from(offset);
    // SAFETY: a device of this VM. It writes to buffers that nothing else uses, and whose words are
    // atomic.
    let stored = unsafe { probe::access(Op::StoreWord, at, value) };
    stored.unwrap_or_else(|fault| panic!("{offset:#x}: {fault}"));
}

/// Returns the address of a part of a queue: descriptors, available buffers, used ones.
const fn part(queue: u64, part: u64) -> u64 {
    QUEUES + (queue * 3 + part) * PART
}

/// Starts the driver, with both queues.
fn start(is_legacy: bool) {
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

/// A queue whose descriptor `i` is always in slot `i` of its ring.
struct Queue {
    number: u64,
    words: &'static [AtomicU64],
    /// How many buffers have been made available.
    given: u16,
}

impl Queue {
    /// Describes its buffers.
    fn new(number: u64, words: &'static [AtomicU64], len: u64, flags: u16) -> Self {
        for index in 0..u64::from(SIZE) {
            let word = (part(number, 0) - QUEUES + index * 16) as usize / 8;
            words[word].store(BUFFERS + index * ROOM, Relaxed);
            words[word + 1].store(len | u64::from(flags) << 32, Relaxed);
        }
        // After flags and count, four heads a word from the second half of the first one on.
        let ring = (part(number, 1) - QUEUES) as usize / 8;
        for word in 1..=u64::from(SIZE) / 4 {
            let heads = (0..4).map(|place| (word * 4 - 2 + place) << (place * 16));
            words[ring + word as usize].store(heads.sum(), Relaxed);
        }
        // What a former life has left.
        for index in [1, 2].map(|part_of| (part(number, part_of) - QUEUES) as usize / 8) {
            words[index].store(0, SeqCst);
        }
        Self {
            number,
            words,
            given: 0,
        }
    }

    /// Returns how many buffers have come back.
    fn used(&self) -> u16 {
        let ring = (part(self.number, 2) - QUEUES) as usize / 8;
        (self.words[ring].load(SeqCst) >> 16) as u16
    }

    /// Makes buffers available, so that `given` have been, and notifies.
    fn give(&mut self, given: u16) {
        self.given = given;
        let ring = (part(self.number, 1) - QUEUES) as usize / 8;
        // No interrupts; the first two heads are those of slots 0 and 1.
        self.words[ring].store(1 | u64::from(given) << 16 | 1 << 48, SeqCst);
        store(offset::QUEUE_NOTIFY, self.number);
    }
}

/// Sends frames. Returns the ticks that it took.
fn send(mut queue: Queue, count: u64) -> u64 {
    let start = timer::now();
    let mut sent = 0;
    while count == 0 || sent < count {
        let free = SIZE - queue.given.wrapping_sub(queue.used());
        let next = match count {
            0 => free,
            _ => free.min((count - sent).min(u64::from(u16::MAX)) as u16),
        };
        if next == 0 {
            cpu::give_way();
            continue;
        }
        sent += u64::from(next);
        queue.give(queue.given.wrapping_add(next));
    }
    while queue.used() != queue.given {
        cpu::give_way();
    }
    timer::now() - start
}

/// Takes frames without end.
fn take(mut queue: Queue) {
    loop {
        let wanted = queue.used().wrapping_add(SIZE);
        if wanted == queue.given {
            cpu::give_way();
        } else {
            queue.give(wanted);
        }
    }
}

fn main() {
    let (sends, bytes, count) = (arg(0, 0) == 1, arg(1, 1514), arg(2, 0));
    let is_legacy = arg(3, 0) == 1;
    let mut ram = Ram::behind_image();
    let words = ram.take_at(QUEUES, 6 * PART);
    ram.take_at(BUFFERS, u64::from(SIZE) * ROOM);
    // Both queues, as the device wants them: the other one is never used.
    let header = NET_HEADER.len() - if is_legacy { 2 } else { 0 };
    let len = bytes + header as u64;
    let queue = if sends {
        Queue::new(1, words, len.min(ROOM), 0)
    } else {
        Queue::new(0, words, ROOM, descriptor::WRITE)
    };
    println!("frames: sends={sends} bytes={bytes} count={count}");
    start(is_legacy);
    if sends {
        let ticks = send(queue, count);
        println!(
            "frames: done sent={count} bytes={} ticks={ticks}",
            count * bytes
        );
    } else {
        take(queue);
    }
}
