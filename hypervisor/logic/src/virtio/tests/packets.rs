//! Packets of sockets: whole, or in parts for a receiver with short buffers; and events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use cloison_abi::virtio::VSOCK_HEADER;
use cloison_formats::link::Traffic;
use proptest::prelude::*;

const HEADER: u32 = VSOCK_HEADER as u32;

/// A packet's header as a sender may write it (5.10.6): from VM 0 to VM 1, apart from the addresses
/// all different.
fn header(cids: [u64; 2], len: u32) -> Vec<u8> {
    let mut bytes = cids.map(u64::to_le_bytes).concat();
    bytes.extend([1234u32, 5678, len].map(u32::to_le_bytes).concat());
    bytes.extend([1u16, 5].map(u16::to_le_bytes).concat());
    bytes.extend([7u32, 262_144, 99].map(u32::to_le_bytes).concat());
    assert_eq!(bytes.len(), VSOCK_HEADER);
    bytes
}

/// The addresses of the two VMs.
const CIDS: [u64; 2] = [3, 4];

/// Both ends, with a packet that is offered in these buffers, one after the other.
struct Ends {
    both: Both,
    sender: Driver,
    receiver: Driver,
    wire: Wire,
}

impl Ends {
    fn new(size: u16) -> Self {
        let (sender, receiver) = (Driver::new(size), Driver::new(size));
        let wire = joined(LinkKind::Vsock, &sender, &receiver);
        Self {
            both: Both::new(),
            sender,
            receiver,
            wire,
        }
    }

    /// Offers bytes in one buffer.
    fn send(&mut self, bytes: &[u8]) -> u16 {
        let ram = self.both.of(Role::Sender);
        ram.put(BUFFERS, bytes);
        self.sender.offer(ram, &[(BUFFERS, bytes.len() as u32)], 0)
    }

    /// Offers a chain of buffers to receive into.
    fn make_room(&mut self, buffers: &[Buffer]) {
        let ram = self.both.of(Role::Receiver);
        self.receiver.offer(ram, buffers, FILL);
    }

    /// Returns the packets that are in chains of these buffers now.
    fn received(&mut self, buffers: &[Buffer]) -> Vec<Vec<u8>> {
        let ram = self.both.of(Role::Receiver);
        let used = self.receiver.used(ram);
        let packet = |(_, written)| {
            let all = buffers
                .iter()
                .flat_map(|&(at, len)| ram.get(at, len as usize));
            all.take(written as usize).collect()
        };
        used.into_iter().map(packet).collect()
    }
}

#[test]
fn a_packet_without_a_payload_arrives_as_it_is() {
    let mut ends = Ends::new(4);
    let buffers = [(BUFFERS, HEADER), (BUFFERS + 100, 64)];
    ends.make_room(&buffers);
    let sent = ends.send(&header(CIDS, 0));
    let used = Ok(Step::Used([true, true]));
    assert_eq!(run(&mut ends.wire, &ends.both), [used]);
    assert_eq!(ends.sender.used(ends.both.of(Role::Sender)), [(sent, 0)]);
    assert_eq!(ends.received(&buffers), [header(CIDS, 0)]);
    let traffic = Traffic {
        frames: 1,
        ..Traffic::default()
    };
    assert_eq!(ends.wire.traffic, traffic);
}

#[test]
fn a_long_packet_arrives_in_parts_with_a_header_each() {
    let mut ends = Ends::new(4);
    let bytes: Vec<u8> = (0..250).map(|byte: u8| byte.wrapping_mul(7)).collect();
    ends.send(&[header(CIDS, 250), bytes.clone()].concat());
    let buffers = [(BUFFERS, HEADER + 100)];
    for part in bytes.chunks(100) {
        ends.make_room(&buffers);
        run(&mut ends.wire, &ends.both);
        let whole = [&header(CIDS, part.len() as u32), part].concat();
        assert_eq!(ends.received(&buffers), [whole]);
    }
    // One frame of the sender's.
    let traffic = Traffic {
        frames: 1,
        bytes: 250,
        lost: 0,
        waits: 2,
    };
    assert_eq!(ends.wire.traffic, traffic);
    assert_eq!(ends.sender.used(ends.both.of(Role::Sender)).len(), 1);
}

#[test]
fn addresses_and_lengths_are_what_they_are_whatever_is_said() {
    for (cids, len) in [
        ([2, 4], 20),
        ([3, 2], 3),
        ([u64::MAX, 1], 21),
        (CIDS, u32::MAX),
    ] {
        let mut ends = Ends::new(4);
        let buffers = [(BUFFERS, HEADER + 64)];
        ends.make_room(&buffers);
        ends.send(&[header(cids, len), vec![8; 20]].concat());
        run(&mut ends.wire, &ends.both);
        let right = [header(CIDS, 20), vec![8; 20]].concat();
        assert_eq!(ends.received(&buffers), [right]);
    }
}

#[test]
fn what_cannot_be_a_packet_is_lost_and_so_is_what_has_no_room() {
    let payload = [header(CIDS, 9), vec![8; 9]].concat();
    for (room, sent) in [
        // Without a whole header, on either side.
        (200, &payload[..43]),
        (43, &payload[..]),
        (43, &payload[..44]),
        // Without room for a byte after it.
        (44, &payload[..]),
        // A length of 0, and bytes.
        (200, &[header(CIDS, 0), vec![8; 9]].concat()[..]),
    ] {
        let mut ends = Ends::new(4);
        let buffers = [(BUFFERS, room)];
        ends.make_room(&buffers);
        ends.send(sent);
        let lost = Ok(Step::Used([false, true]));
        assert_eq!(run(&mut ends.wire, &ends.both), [lost]);
        assert_eq!(ends.wire.traffic.lost, 1);
        // The next one finds all as it was.
        if room == 200 {
            ends.send(&payload);
            run(&mut ends.wire, &ends.both);
            assert_eq!(ends.received(&buffers).first(), Some(&payload));
        }
    }
}

#[test]
fn a_receiver_that_comes_back_in_a_packet_gets_it_from_its_first_byte() {
    let mut ends = Ends::new(4);
    let bytes: Vec<u8> = (0..150).collect();
    ends.send(&[header(CIDS, 150), bytes.clone()].concat());
    let buffers = [(BUFFERS, HEADER + 100)];
    ends.make_room(&buffers);
    run(&mut ends.wire, &ends.both);
    assert_eq!(ends.received(&buffers).len(), 1);
    ends.wire.leave(Role::Receiver);
    ends.both.of(Role::Receiver).put(RAM, &[0; LEN as usize]);
    ends.receiver = Driver::new(4);
    ends.wire.join(ends.receiver.queue(Role::Receiver));
    let buffers = [(BUFFERS, HEADER + 200)];
    ends.make_room(&buffers);
    run(&mut ends.wire, &ends.both);
    let whole = [header(CIDS, 150), bytes].concat();
    assert_eq!(ends.received(&buffers), [whole]);
}

#[test]
fn a_driver_is_told_that_the_peers_has_started_or_ended() {
    let both = Both::new();
    let mut driver = Driver::new(4);
    let mut wire = new_wire(LinkKind::Vsock);
    assert_eq!(wire.report(&both), Ok(()), "no queue");
    wire.join(driver.queue(Role::Event));
    assert_eq!(wire.report(&both), Ok(()), "no buffer");
    let ram = both.of(Role::Receiver);
    ram.put(BUFFERS, &[0xff; 8]);
    let first = driver.offer(ram, &[(BUFFERS, 4)], FILL);
    let cut = driver.offer(ram, &[(BUFFERS + 6, 2), (BUFFERS + 4, 2)], FILL);
    assert_eq!(wire.report(&both), Ok(()));
    assert_eq!(driver.used(ram), [(first, 4)]);
    assert_eq!(ram.get(BUFFERS, 8), [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(wire.report(&both), Ok(()));
    assert_eq!(driver.used(ram), [(cut, 2)], "too short for an event");
    driver.offer(ram, &[(BUFFERS, 4)], 0);
    let wrong = Wrong {
        role: Role::Event,
        what: Violation::Flags,
    };
    assert_eq!(wire.report(&both), Err(wrong));
}

/// Cuts what follows a header into chains of these lengths, each of buffers with gaps.
fn chain(lengths: &[u32]) -> Vec<Buffer> {
    let mut at = BUFFERS;
    let next = |&len| {
        let here = at;
        at += u64::from(len) + 3;
        (here, len)
    };
    lengths.iter().map(next).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever buffers packets are sent from and received into, and whatever length they claim:
    /// bytes arrive in their order, each packet has a whole header with its own length, and all but
    /// that and the addresses as it was sent.
    #[test]
    fn a_stream_of_packets_stays_one(
        sent in prop::collection::vec((0usize..3_000, any::<bool>(), prop::collection::vec(0u32..2_000, 0..4)), 1..6),
        rooms in prop::collection::vec((prop::collection::vec(0u32..1_500, 0..4), 1u32..2_500), 1..5),
        claimed in 1u32..4_000,
    ) {
        let mut ends = Ends::new(8);
        let mut rooms = rooms.iter().cycle();
        for (len, is_honest, cuts) in sent {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + len) as u8).collect();
            let claim = if is_honest { len as u32 } else { claimed };
            let whole = [header([3, 7], claim), bytes.clone()].concat();
            let buffers = cut(whole.len() as u32, &cuts);
            let mut rest = &whole[..];
            for &(at, len) in &buffers {
                let (these, others) = rest.split_at(len as usize);
                ends.both.of(Role::Sender).put(at, these);
                rest = others;
            }
            ends.sender.offer(ends.both.of(Role::Sender), &buffers, 0);
            let mut found = Vec::new();
            while ends.sender.used(ends.both.of(Role::Sender)).is_empty() {
                let (first, last) = rooms.next().expect("endless");
                // Room for a header and a byte at least.
                let room = chain(&[&first[..], &[HEADER + last]].concat());
                ends.make_room(&room);
                run(&mut ends.wire, &ends.both);
                for packet in ends.received(&room) {
                    let (head, payload) = packet.split_at(VSOCK_HEADER);
                    prop_assert_eq!(head, header(CIDS, payload.len() as u32));
                    prop_assert!(!payload.is_empty() || len == 0);
                    found.extend(payload.to_vec());
                }
            }
            prop_assert_eq!(found, bytes);
            prop_assert_eq!(ends.wire.traffic.lost, 0);
        }
    }
}
