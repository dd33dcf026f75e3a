//! Frames of which each word says where it belongs, so that one that is lost, mixed or late shows.
//!
//! They begin in the middle of a line, near the end of a page, so that each has parts in two pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::device::{Kind, Queue, SIZE};
use cloison_guest::{call, cpu};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

/// Where the buffers begin in a page: words follow the headers of 12 and of 44 bytes.
pub const OFFSET: u64 = 4096 - 516;
/// The first word of a frame: its number above the bit for the last one.
const LAST: u64 = 1;

/// Returns the length of a frame, in whole words.
fn len(number: u64, most: u64) -> u64 {
    let words = most / 8;
    8 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % words * 8
}

/// Returns the word with this index, after the first, of a frame.
fn content(number: u64, index: usize) -> u64 {
    (number ^ (index as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a packet's header has the length of what follows (5.10.6): in the upper half of a word.
const LEN: u64 = 20;

/// Sends frames until `is_enough`, which is asked with how many were sent. Returns how many.
pub fn send(queue: &mut Queue, kind: Kind, most: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    let header = kind.header();
    let mut sent = 0;
    let mut is_last = false;
    while !is_last {
        let free = SIZE - queue.given.wrapping_sub(queue.used());
        if free == 0 {
            cpu::give_way();
            continue;
        }
        for slot in 0..free {
            let slot = queue.given.wrapping_add(slot);
            let bytes = len(sent, most);
            queue.set_len(slot, header + bytes);
            if kind == Kind::Sockets {
                queue.word(slot, LEN).store(bytes << 32, Relaxed);
            }
            is_last = is_enough(sent + 1);
            let words = queue.words(slot, header, bytes);
            words[0].store(sent << 1 | u64::from(is_last), Relaxed);
            for (index, word) in words.iter().enumerate().skip(1) {
                word.store(content(sent, index), Relaxed);
            }
            sent += 1;
            if is_last {
                queue.give(slot.wrapping_add(1));
                break;
            }
        }
        if !is_last {
            queue.give(queue.given.wrapping_add(free));
        }
    }
    while queue.used() != queue.given {
        cpu::give_way();
    }
    sent
}

/// What was found.
#[derive(Default)]
pub struct Taken {
    /// Frames.
    taken: u64,
    /// Those with a wrong length, header or word, or that were not the next.
    wrong: u64,
    /// Numbers that were left out.
    missing: u64,
    /// The most events that a quota of this VM counted while it gave buffers back.
    paid: u64,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            taken,
            wrong,
            missing,
            paid,
        } = self;
        write!(
            f,
            "taken={taken} wrong={wrong} missing={missing} paid={paid}"
        )
    }
}

/// Takes frames up to the last one, and checks them.
pub fn take(queue: &mut Queue, kind: Kind, most: u64) -> Taken {
    let mut found = Taken::default();
    let mut next = 0;
    let mut seen = 0;
    give(queue, SIZE, &mut found);
    loop {
        if queue.used() == seen {
            cpu::give_way();
            continue;
        }
        while queue.used() != seen {
            let first = queue.word(seen, kind.header()).load(Relaxed);
            let number = first >> 1;
            found.taken += 1;
            found.missing += number.saturating_sub(next);
            if number < next || !is_whole(queue, seen, kind, number, most) {
                found.wrong += 1;
            }
            next = number.wrapping_add(1);
            seen = seen.wrapping_add(1);
            if first & LAST != 0 {
                return found;
            }
        }
        give(queue, seen.wrapping_add(SIZE), &mut found);
    }
}

/// Returns whether a frame is as it was sent.
fn is_whole(queue: &Queue, slot: u16, kind: Kind, number: u64, most: u64) -> bool {
    let header = kind.header();
    let bytes = len(number, most);
    let is_headed = match kind {
        // All zero but the last count: one buffer.
        Kind::Net => queue.word(slot, 4).load(Relaxed) == 1 << 48,
        Kind::Sockets => queue.word(slot, LEN).load(Relaxed) == bytes << 32,
        Kind::Legacy | Kind::Console => true,
    };
    let mut words = queue.words(slot, header, bytes).iter().enumerate().skip(1);
    is_headed
        && queue.used_len(slot) == Some(header + bytes)
        && words.all(|(index, word)| word.load(Relaxed) == content(number, index))
}

/// Gives buffers back, and notes what that has cost a quota, if there is one.
fn give(queue: &mut Queue, given: u16, found: &mut Taken) {
    let events = || call::quota_read(0).map_or(0, |quota| quota.events);
    let before = events();
    queue.give(given);
    // Less, where a period has ended meanwhile.
    found.paid = found.paid.max(events().saturating_sub(before));
}
