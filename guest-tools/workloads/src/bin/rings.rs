//! A driver of a link's device that follows no rule: random queues, descriptors and rings, which it
//! changes while they are used, again and again.
//!
//! What the device may write to is a buffer or the queue itself; all else must stay as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::map;
use cloison_guest::abi::virtio::{descriptor, feature, offset, status};
use cloison_guest::probe::{self, Op};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, entry, println};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

entry!(main);

/// The device's registers, where the configuration has them.
const DEVICE: u64 = 0x0a00_0000;
/// The two queues, the buffers, and what no driver gives away; in the second half of the RAM.
const QUEUES: u64 = map::RAM + (8 << 20);
const BUFFERS: u64 = QUEUES + (64 << 10);
const OWN: u64 = BUFFERS + (64 << 10);
const LEN: u64 = 64 << 10;
/// End of the RAM.
const END: u64 = map::RAM + (16 << 20);
/// Descriptors of a queue.
const SIZE: u64 = 8;
/// Bytes between a queue's parts.
const PART: u64 = 4096;

/// Reads a register.
#[allow(unsafe_code)]
fn load(offset: u16) -> u32 {
    // SAFETY: a device of this VM, whose registers nothing else uses.
    let loaded = unsafe { probe::access(Op::LoadWord, DEVICE + u64::from(offset), 0) };
    loaded.unwrap_or_else(|fault| panic!("{offset:#x}: {fault}")) as u32
}

/// Writes a register.
#[allow(unsafe_code)]
fn store(offset: u16, value: u32) {
    let at = DEVICE + u64::from(offset);
    // SAFETY: a device of this VM. It writes to what is given to it alone: `main` checks that.
    let stored = unsafe { probe::access(Op::StoreWord, at, value.into()) };
    stored.unwrap_or_else(|fault| panic!("{offset:#x}: {fault}"));
}

/// Sets up both queues, in the order of the standard or nearly so.
fn set_up(random: &mut Random) {
    store(offset::STATUS, 0);
    store(offset::STATUS, 3);
    for half in [1, 0] {
        store(offset::DRIVER_FEATURES_SELECT, half);
        store(offset::DRIVER_FEATURES, half * feature::VERSION_1);
    }
    store(offset::STATUS, 3 | status::FEATURES_OK);
    for queue in 0..2u32 {
        store(offset::QUEUE_SELECT, queue);
        let size = if random.below(16) == 0 {
            random.bits()
        } else {
            SIZE
        };
        store(offset::QUEUE_SIZE, size as u32);
        let parts = [
            offset::QUEUE_DESCRIPTORS,
            offset::QUEUE_DRIVER,
            offset::QUEUE_DEVICE,
        ];
        for (part, register) in (0..).zip(parts) {
            let at = QUEUES + (u64::from(queue) * 3 + part) * PART;
            // Near the end of the RAM, a part of the ring is beyond it.
            let at = if random.below(64) == 0 { END - 16 } else { at };
            store(register, at as u32);
            store(register + 4, (at >> 32) as u32);
        }
        store(offset::QUEUE_READY, 1);
    }
    let all = 3 | status::FEATURES_OK | status::DRIVER_OK;
    store(offset::STATUS, all);
}

/// Fills a queue with what a driver might write, and what none would.
fn fill(words: &[AtomicU64], queue: u64, random: &mut Random) {
    let base = (queue * 3 * PART / 8) as usize;
    let access = if queue == 0 { descriptor::WRITE } else { 0 };
    for number in 0..SIZE {
        let at = match random.below(8) {
            0 => END + random.below(1 << 40),
            1 => END - random.below(64),
            2 => u64::MAX - random.below(1 << 20),
            _ => BUFFERS + random.below(LEN),
        };
        let len = match random.below(8) {
            0 => 0,
            1 => random.below(3 * PART),
            _ => random.below(100),
        };
        // What begins in the buffers ends in them, so that a wrong write shows.
        let len = if at < BUFFERS + LEN {
            len.min(BUFFERS + LEN - at)
        } else {
            len
        };
        let flags = match random.below(16) {
            0 => random.below(8) as u16,
            1..8 => access | descriptor::NEXT,
            _ => access,
        };
        let next = random.below(SIZE + 1);
        let word = base + (number * 2) as usize;
        words[word].store(at, Relaxed);
        words[word + 1].store(len | u64::from(flags) << 32 | next << 48, Relaxed);
    }
    let ring = base + (PART / 8) as usize;
    let heads = |random: &mut Random| (0..4).fold(0, |word, _| word << 16 | random.below(SIZE));
    let (first, second) = (heads(random), heads(random));
    let count = random.below(SIZE + 2);
    words[ring].store(count << 16 | first << 32, Relaxed);
    words[ring + 1].store(first >> 32 | second << 32, Relaxed);
    words[ring + 2].store(second >> 32, Relaxed);
    // Before the device is notified.
    words[ring + (PART / 8) as usize].store(0, SeqCst);
}

/// Returns how many chains of a queue have come back.
fn used(words: &[AtomicU64], queue: u64) -> u64 {
    let ring = ((queue * 3 + 2) * PART / 8) as usize;
    words[ring].load(SeqCst) >> 16 & 0xffff
}

fn main() {
    let mut random = Random::new(arg(0, 1));
    let rounds = arg(1, 1000);
    let mut ram = Ram::behind_image();
    let queues = ram.take_at(QUEUES, 6 * PART);
    let own = ram.take_at(OWN, LEN);
    for (position, word) in own.iter().enumerate() {
        word.store(position as u64, Relaxed);
    }
    let (mut back, mut broken) = (0, 0);
    for _ in 0..rounds {
        for queue in 0..2 {
            fill(queues, queue, &mut random);
        }
        set_up(&mut random);
        for _ in 0..random.below(6) {
            store(offset::QUEUE_NOTIFY, random.below(3) as u32);
            match random.below(8) {
                0 => fill(queues, random.below(2), &mut random),
                1 => store(random.below(0x48) as u16 * 4, random.bits() as u32),
                _ => {}
            }
            store(offset::INTERRUPT_ACK, load(offset::INTERRUPT_STATUS));
        }
        back += used(queues, 0) + used(queues, 1);
        broken += u64::from(load(offset::STATUS) & status::NEEDS_RESET != 0);
    }
    store(offset::STATUS, 0);
    let wrong = (0..)
        .zip(own)
        .filter(|(position, word)| word.load(Relaxed) != *position);
    let wrong = wrong.count();
    println!("rings: done rounds={rounds} back={back} broken={broken} wrong={wrong}");
}
