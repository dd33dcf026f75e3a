//! Messages at full rate, and their times, each run a segment.
//!
//! What asks and what answers sleep until the doorbell interrupts them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::both_ways::{ANSWERS, ASKS, Link, MESSAGE, TAKEN};
use cloison_channel::{Message, NotSent};
use cloison_guest::abi::CallError;
use cloison_guest::{arg, args, call, cpu, println, segment};
use cloison_workloads::id;
use core::sync::atomic::Ordering::Relaxed;

/// Begins a session with the first life of the peer.
///
/// # Panics
/// Without a channel.
fn begin(own: u64, peer: u64) -> Link {
    while call::peer(peer).is_ok_and(|life| life % 2 == 0) {
        cpu::give_way();
    }
    Link::begin(own, peer).expect("a channel")
}

/// Measures this in the runs of argument 3, after one that is not measured.
fn run(mut what: impl FnMut()) {
    what();
    for run in 0..arg(3, 1) {
        let measured = segment::measure(id::CHANNEL, 0, run as u32, &mut what);
        println!("channel: run={run} {measured}");
    }
}

/// Sends argument 2 messages in each run (0: without end), as fast as the peer receives them, and
/// calls the peer for each of argument 1 messages.
pub fn send() {
    let (every, count) = (arg(1, 1), args()[2]);
    let mut link = begin(ASKS, ANSWERS);
    let mut send = |count| {
        for number in 0..count {
            while link.sender.send(&[number; 8]) == Err(NotSent::Full) {
                cpu::give_way();
            }
            if number % every == 0 {
                // One that is too often is no loss: the peer looks into its ring anyway.
                let _ = call::doorbell_ring(ANSWERS, MESSAGE, 0);
            }
        }
    };
    if count == 0 {
        send(u64::MAX);
    }
    run(|| send(count));
}

/// Receives messages without end.
pub fn receive() {
    let mut link = begin(ANSWERS, ASKS);
    loop {
        if link.receiver.receive() == Ok(None) {
            cpu::give_way();
        }
    }
}

/// Sends a message, and calls the peer as soon as its rate lets this VM.
fn send_and_call(link: &mut Link, message: &Message) {
    let sent = link.sender.send(message);
    assert_eq!(sent, Ok(()), "the peer has taken all before");
    while call::doorbell_ring(link.peer, MESSAGE, 0) == Err(CallError::TooOften) {}
}

/// Sleeps until the peer has called, and receives its message.
fn await_message(link: &mut Link) -> Message {
    loop {
        cpu::wait_until(|| TAKEN.fetch_and(!(1 << MESSAGE), Relaxed) >> MESSAGE & 1 == 1);
        if let Ok(Some(message)) = link.receiver.receive() {
            return message;
        }
    }
}

/// Sends argument 2 messages in each run, and waits for each answer.
pub fn ask() {
    let mut link = begin(ASKS, ANSWERS);
    run(|| {
        for number in 0..arg(2, 1) {
            send_and_call(&mut link, &[number; 8]);
            let answer = await_message(&mut link);
            assert_eq!(answer, [number; 8]);
        }
    });
}

/// Answers each message with the same, without end.
pub fn answer() {
    let mut link = begin(ANSWERS, ASKS);
    loop {
        let message = await_message(&mut link);
        send_and_call(&mut link, &message);
    }
}
