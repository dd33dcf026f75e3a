//! Both sides of a ring in all interleavings, and two bugs that the search must find.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{AtomicU64, NotSent, Receiver, Ring, Sender, Session, WORDS};
use core::sync::atomic::Ordering::{self, Relaxed, Release};
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

/// Messages sent: more than the ring holds.
const SENT: u64 = 3;

/// A sender and a receiver with a ring of one message; the positions are stored with `publish` and
/// `release`.
fn messages_arrive_in_order(publish: Ordering, release: Ordering) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        // The first and the last word of each message stand for all.
        let memory: Vec<AtomicU64> = (0..3 * WORDS).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(memory);
        let session = Session::new(1, 1);
        let sends = memory.clone();
        // Both begin before either continues, as after the news of the peer's life.
        let ring = Ring::new(&memory).expect("there is room");
        let mut receiver = Receiver::begin(ring, session);
        drop(Sender::begin(ring, session));
        let other = thread::spawn(move || {
            let ring = Ring::new(&sends).expect("there is room");
            let mut sender = Sender {
                ring,
                session,
                sent: 0,
                received: 0,
            };
            let mut number = 0;
            // In each round one try: a model has to end.
            for _ in 0..SENT {
                match sender.send_with(&[number + 1; WORDS], publish) {
                    Ok(()) => number += 1,
                    Err(NotSent::Full) => {}
                    Err(NotSent::Lies) => panic!("the receiver does not lie"),
                }
            }
            number
        });
        let mut next = 1;
        for _ in 0..SENT {
            if let Some(message) = receiver
                .receive_with(release)
                .expect("the sender does not lie")
            {
                assert_eq!(message, [next; WORDS], "torn or out of order");
                next += 1;
            }
        }
        let sent = other.join().expect("no assertions");
        while let Some(message) = receiver
            .receive_with(release)
            .expect("the sender does not lie")
        {
            assert_eq!(message, [next; WORDS], "torn or out of order");
            next += 1;
        }
        assert_eq!(next, sent + 1, "a message is lost");
    });
}

#[test]
fn loom_messages_arrive_whole_and_in_order() {
    messages_arrive_in_order(Release, Release);
}

#[test]
#[should_panic(expected = "torn or out of order")]
fn loom_finds_a_position_that_overtakes_its_message() {
    messages_arrive_in_order(Relaxed, Release);
}
