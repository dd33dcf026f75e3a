//! Tests of the ring: against a queue, against a peer that stores anything, and in all
//! interleavings.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[cfg(loom)]
mod models;

#[cfg(not(loom))]
mod properties {
    use crate::{AtomicU64, Lies, Message, NotSent, Receiver, Ring, Sender, Session, WORDS};
    use core::sync::atomic::Ordering::Relaxed;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    fn memory(messages: usize) -> Vec<AtomicU64> {
        let words = (2 + messages) * WORDS;
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    fn message(number: u64) -> Message {
        core::array::from_fn(|word| number << 8 | word as u64)
    }

    #[test]
    fn a_ring_has_room_for_a_power_of_two() {
        for (messages, capacity) in [(1, 1), (2, 2), (3, 2), (61, 32), (64, 64)] {
            let memory = memory(messages);
            let ring = Ring::new(&memory).expect("there is room");
            assert_eq!(ring.capacity(), capacity);
        }
        assert!(Ring::new(&memory(0)).is_none());
        assert!(Ring::new(&[]).is_none());
    }

    #[test]
    fn nothing_of_another_session_is_received() {
        let memory = memory(4);
        let ring = Ring::new(&memory).expect("there is room");
        let mut sender = Sender::begin(ring, Session::new(1, 1));
        let mut receiver = Receiver::begin(ring, Session::new(1, 1));
        for number in 0..3 {
            assert_eq!(sender.send(&message(number)), Ok(()));
        }
        assert_eq!(receiver.receive(), Ok(Some(message(0))));
        // The receiver starts again, and the sender does not know yet.
        let mut receiver = Receiver::begin(ring, Session::new(1, 3));
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!(sender.send(&message(3)), Ok(()));
        assert_eq!(receiver.receive(), Ok(None));
        // What the receiver has had was not seen in time: nothing of this session is freed.
        assert_eq!(sender.send(&message(4)), Err(NotSent::Full));
        let mut sender = Sender::begin(ring, Session::new(1, 3));
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!(sender.send(&message(6)), Ok(()));
        assert_eq!(receiver.receive(), Ok(Some(message(6))));
    }

    #[test]
    fn positions_wrap() {
        let memory = memory(2);
        let ring = Ring::new(&memory).expect("there is room");
        let session = Session::new(5, 7);
        let mut sender = Sender::begin(ring, session);
        let mut receiver = Receiver::begin(ring, session);
        let almost = u32::MAX - 1;
        (sender.sent, sender.received, receiver.received) = (almost, almost, almost);
        ring.received.store(session.word(almost), Relaxed);
        for number in 0..5 {
            assert_eq!(sender.send(&message(number)), Ok(()));
            assert_eq!(receiver.receive(), Ok(Some(message(number))));
        }
        assert_eq!(receiver.received, 3);
    }

    proptest! {
        /// Two honest sides are a queue of bounded length.
        #[test]
        fn a_ring_is_a_queue(
            messages in 1usize..9,
            steps in prop::collection::vec(any::<bool>(), 1..300),
        ) {
            let memory = memory(messages);
            let ring = Ring::new(&memory).expect("there is room");
            let session = Session::new(9, 3);
            let mut sender = Sender::begin(ring, session);
            let mut receiver = Receiver::begin(ring, session);
            let mut queue = VecDeque::new();
            for (number, sends) in steps.into_iter().enumerate() {
                if sends {
                    let message = message(number as u64);
                    let full = queue.len() == ring.capacity() as usize;
                    let expected = if full { Err(NotSent::Full) } else { Ok(()) };
                    prop_assert_eq!(sender.send(&message), expected);
                    if !full {
                        queue.push_back(message);
                    }
                } else {
                    prop_assert_eq!(receiver.receive(), Ok(queue.pop_front()));
                }
            }
        }

        /// Whatever a peer stores anywhere, each call ends, and none takes more messages than the
        /// ring has room for without the other side's position moving on.
        #[test]
        fn a_liar_gets_no_further_than_a_lie(
            messages in 1usize..9,
            steps in prop::collection::vec(
                (any::<bool>(), any::<prop::sample::Index>(), any::<u64>(), any::<bool>()),
                1..300,
            ),
        ) {
            let memory = memory(messages);
            let ring = Ring::new(&memory).expect("there is room");
            let session = Session::new(1, 1);
            let mut sender = Sender::begin(ring, session);
            let mut receiver = Receiver::begin(ring, session);
            for (sends, place, value, near) in steps {
                // Near what is believable, which gets further.
                let value = if near { session.word(value as u32 & 15) } else { value };
                memory[place.index(memory.len())].store(value, Relaxed);
                if sends {
                    let before = sender.sent;
                    let result = sender.send(&message(value));
                    let sent = u32::from(result == Ok(()));
                    prop_assert_eq!(sender.sent, before.wrapping_add(sent));
                    let underway = sender.sent.wrapping_sub(sender.received);
                    prop_assert!(underway <= ring.capacity());
                } else {
                    let sent = session.position(ring.sent.load(Relaxed));
                    let waiting = sent.map_or(0, |sent| sent.wrapping_sub(receiver.received));
                    match receiver.receive() {
                        Ok(None) => prop_assert_eq!(waiting, 0),
                        Ok(Some(_)) => prop_assert!((1..=ring.capacity()).contains(&waiting)),
                        Err(Lies) => prop_assert!(waiting > ring.capacity()),
                    }
                }
            }
        }
    }
}
