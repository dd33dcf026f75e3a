//! Drivers that follow the rules: what is sent arrives.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use cloison_abi::virtio::{NET_HEADER, NO_INTERRUPT};
use cloison_formats::link::Traffic;
use proptest::prelude::*;

const USED: Result<Step, Wrong> = Ok(Step::Used([true, true]));

#[test]
fn a_frame_arrives_with_a_header_that_is_not_the_senders() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(8));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    assert_eq!(wire.step(&both), Ok(Step::Idle));
    both.of(Role::Sender).put(BUFFERS, &[0xff; 12]);
    both.of(Role::Sender).put(BUFFERS + 12, b"frame");
    let sent = sender.offer(both.of(Role::Sender), &[(BUFFERS, 17)], 0);
    assert_eq!(wire.step(&both), Ok(Step::Waits), "no room");
    let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS + 100, 64)], FILL);
    assert_eq!(run(&mut wire, &both), [USED]);
    assert_eq!(sender.used(both.of(Role::Sender)), [(sent, 0)]);
    assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, 17)]);
    assert_eq!(both.of(Role::Receiver).get(BUFFERS + 100, 12), NET_HEADER);
    assert_eq!(both.of(Role::Receiver).get(BUFFERS + 112, 5), b"frame");
}

#[test]
fn a_legacy_driver_has_shorter_headers_on_its_side() {
    for (left_out, leaves_out) in [(2, 0), (0, 2), (2, 2)] {
        let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
        let mut wire = new_wire(LinkKind::Net);
        for (driver, role, omits) in [
            (&sender, Role::Sender, left_out),
            (&receiver, Role::Receiver, leaves_out),
        ] {
            let mut queue = driver.queue(role);
            queue.omits = omits;
            wire.join(queue);
        }
        let (from, to) = (12 - left_out, 12 - leaves_out);
        both.of(Role::Sender)
            .put(BUFFERS + u64::from(from), b"frame");
        // The header ends in the middle of a buffer, as Linux has it, or with one.
        let whole = [(BUFFERS, from + 5)];
        let parts = [(BUFFERS, from), (BUFFERS + u64::from(from), 5)];
        for buffers in [&whole[..], &parts] {
            sender.offer(both.of(Role::Sender), buffers, 0);
            let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
            assert_eq!(run(&mut wire, &both), [USED]);
            let used = receiver.used(both.of(Role::Receiver));
            assert_eq!(used, [(filled, to + 5)]);
            let header = both.of(Role::Receiver).get(BUFFERS, to as usize);
            assert_eq!(header, NET_HEADER[..to as usize]);
            let frame = both.of(Role::Receiver).get(BUFFERS + u64::from(to), 5);
            assert_eq!(frame, b"frame");
        }
    }
}

#[test]
fn what_does_not_fit_is_lost_and_its_buffer_is_filled_by_the_next() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    let long = sender.offer(both.of(Role::Sender), &[(BUFFERS, 112)], 0);
    let short = sender.offer(both.of(Role::Sender), &[(BUFFERS, 20)], 0);
    let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    let lost = Ok(Step::Used([false, true]));
    assert_eq!(run(&mut wire, &both), [lost, USED]);
    assert_eq!(sender.used(both.of(Role::Sender)), [(long, 0), (short, 0)]);
    assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, 20)]);
}

#[test]
fn without_a_receiver_all_is_lost() {
    let (both, mut sender, receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = new_wire(LinkKind::Net);
    assert_eq!(wire.step(&both), Ok(Step::Idle), "nobody has a queue");
    wire.join(sender.queue(Role::Sender));
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 64)], 0);
    assert_eq!(run(&mut wire, &both).len(), 1);
    wire.join(receiver.queue(Role::Receiver));
    assert_eq!(wire.step(&both), Ok(Step::Idle));
}

/// An end starts again: its memory is clear, and its driver has a queue of this size.
fn restarted(both: &Both, wire: &mut Wire, role: Role, size: u16) -> Driver {
    both.of(role).put(RAM, &[0; LEN as usize]);
    let driver = Driver::new(size);
    wire.join(driver.queue(role));
    driver
}

#[test]
fn a_receiver_that_leaves_and_one_that_comes_find_nothing_of_before() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 30)], 0);
    for _ in 0..3 {
        assert_eq!(wire.step(&both), Ok(Step::More));
    }
    wire.leave(Role::Receiver);
    assert_eq!(run(&mut wire, &both).len(), 1, "lost");
    let mut receiver = restarted(&both, &mut wire, Role::Receiver, 4);
    let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 40)], 0);
    assert_eq!(run(&mut wire, &both), [USED]);
    assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, 40)]);
}

#[test]
fn a_receiver_that_comes_back_in_a_frame_gets_it_from_its_first_byte() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    both.of(Role::Sender)
        .put(BUFFERS + 12, b"the frame's bytes!");
    sender.offer(
        both.of(Role::Sender),
        &[(BUFFERS, 20), (BUFFERS + 20, 10)],
        0,
    );
    for _ in 0..3 {
        assert_eq!(wire.step(&both), Ok(Step::More));
    }
    // Between two steps of the sender, which waits for its budget.
    wire.leave(Role::Receiver);
    let mut receiver = restarted(&both, &mut wire, Role::Receiver, 4);
    let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    assert_eq!(run(&mut wire, &both), [USED]);
    assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, 30)]);
    let frame = both.of(Role::Receiver).get(BUFFERS + 12, 18);
    assert_eq!(frame, b"the frame's bytes!");
}

#[test]
fn what_passes_what_is_lost_and_what_waits_is_counted() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    for len in [112, 20, 30] {
        sender.offer(both.of(Role::Sender), &[(BUFFERS, len)], 0);
    }
    assert_eq!(wire.step(&both), Ok(Step::Waits));
    receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    run(&mut wire, &both);
    let traffic = Traffic {
        frames: 1,
        bytes: 52 + 8,
        lost: 1,
        waits: 2,
    };
    assert_eq!(wire.traffic, traffic);
}

#[test]
fn a_sender_that_leaves_in_a_frame_leaves_the_buffer_to_the_next() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    let filled = receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 30)], 0);
    for _ in 0..2 {
        assert_eq!(wire.step(&both), Ok(Step::More));
    }
    wire.leave(Role::Sender);
    assert_eq!(wire.step(&both), Ok(Step::Idle));
    let mut sender = restarted(&both, &mut wire, Role::Sender, 2);
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 13)], 0);
    assert_eq!(run(&mut wire, &both), [USED]);
    assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, 13)]);
}

#[test]
fn no_interrupt_is_wanted_where_the_ring_says_so() {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Console, &sender, &receiver);
    both.of(Role::Sender)
        .put(DRIVER, &NO_INTERRUPT.to_le_bytes());
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 4)], 0);
    receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    let used = Ok(Step::Used([true, false]));
    assert_eq!(run(&mut wire, &both), [used]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever buffers it is sent from and received into, a frame arrives as it was.
    #[test]
    fn a_frame_arrives_whole(
        bytes in prop::collection::vec(any::<u8>(), 12..6_000),
        from in prop::collection::vec(0u32..5_000, 0..6),
        to in prop::collection::vec(0u32..5_000, 0..6),
        room in 0u32..200,
    ) {
        let (both, mut sender, mut receiver) = (Both::new(), Driver::new(8), Driver::new(8));
        let mut wire = joined(LinkKind::Net, &sender, &receiver);
        let len = bytes.len() as u32;
        let (from, to) = (cut(len, &from), cut(len + room, &to));
        let mut rest = &bytes[..];
        for &(at, len) in &from {
            let (these, others) = rest.split_at(len as usize);
            both.of(Role::Sender).put(at, these);
            rest = others;
        }
        let sent = sender.offer(both.of(Role::Sender), &from, 0);
        let filled = receiver.offer(both.of(Role::Receiver), &to, FILL);
        prop_assert_eq!(run(&mut wire, &both), [USED]);
        prop_assert_eq!(sender.used(both.of(Role::Sender)), [(sent, 0)]);
        prop_assert_eq!(receiver.used(both.of(Role::Receiver)), [(filled, len)]);
        let found: Vec<u8> = to.iter().flat_map(|&(at, len)| both.of(Role::Receiver).get(at, len as usize)).collect();
        prop_assert_eq!(&found[..12], NET_HEADER);
        prop_assert_eq!(&found[12..len as usize], &bytes[12..]);
    }

    /// Bytes of a console arrive in their order, whatever buffers they are sent from and received
    /// into, and whenever the receiver makes them available.
    #[test]
    fn a_stream_stays_one(
        sent in prop::collection::vec((1u32..300, any::<bool>()), 1..40),
        room in prop::collection::vec(1u32..300, 1..8),
    ) {
        let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(8));
        let mut wire = joined(LinkKind::Console, &sender, &receiver);
        let (mut expected, mut found, mut byte) = (Vec::new(), Vec::new(), 0u8);
        let mut rooms = room.iter().cycle();
        for (len, is_sent) in sent {
            let bytes: Vec<u8> = (0..len).map(|_| { byte = byte.wrapping_mul(13).wrapping_add(7); byte }).collect();
            both.of(Role::Sender).put(BUFFERS, &bytes);
            expected.extend(&bytes);
            sender.offer(both.of(Role::Sender), &[(BUFFERS, len)], 0);
            while sender.used(both.of(Role::Sender)).is_empty() {
                if is_sent {
                    run(&mut wire, &both);
                }
                let (at, room) = (BUFFERS + 7, *rooms.next().expect("endless"));
                receiver.offer(both.of(Role::Receiver), &[(at, room)], FILL);
                run(&mut wire, &both);
                for (_, written) in receiver.used(both.of(Role::Receiver)) {
                    prop_assert!(written <= room);
                    found.extend(both.of(Role::Receiver).get(at, written as usize));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}
