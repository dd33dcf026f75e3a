//! Links: what a driver has told a device of virtio-mmio (virtio 1.2, 4.2.2), and where the wire may
//! store for it (2.7; docs/configuration.md, "Links").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use cloison_abi::virtio::{descriptor, offset, status};
use cloison_formats::addr::{Ipa, PhysAddr};
use std::collections::BTreeSet;
use std::ops::Range;

/// Queues of a device: for what it receives (0), what it sends (1), and events (2).
const QUEUES: usize = 3;
/// The queue of what a device sends, in which the other end's core has nothing to do.
const SENDER: usize = 1;
/// Bytes of a descriptor (2.7.5).
const DESCRIPTOR: u64 = 16;

/// The memory of a VM.
pub trait Memory {
    /// Reads bytes that lie in one page. Returns whether the VM has them.
    fn read(&self, at: Ipa, bytes: &mut [u8]) -> bool;
}

/// What a driver has set up for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Setup {
    /// Number of descriptors.
    size: u32,
    /// Addresses of the descriptors, the available and the used buffers.
    addresses: [u64; 3],
    is_ready: bool,
}

/// A queue that the device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queue {
    number: usize,
    size: u64,
    descriptors: u64,
    device: u64,
}

/// A buffer that a driver has offered to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Buffer {
    /// Its first byte.
    pub at: u64,
    /// Its length.
    pub len: u64,
}

impl Buffer {
    /// Returns whether all of some bytes are in it.
    pub const fn has(self, at: Ipa, len: u64) -> bool {
        let at = at.0;
        self.at <= at && at + len <= self.at.saturating_add(self.len)
    }
}

/// What follows from a write of a register, once EL2 has carried it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the oracle has to know.
    None,
    /// The device uses no queue.
    Reset,
    /// The device does not use this queue.
    Left(usize),
}

/// The device of a link in one VM, as far as its driver's writes say.
///
/// A queue counts as used from the write that may start the device to the end of the visit that
/// certainly stops it: a store is judged only if it is wrong in any case.
#[derive(Clone, Debug, Default)]
pub struct Device {
    selected: usize,
    setups: [Setup; QUEUES],
    used: Vec<Queue>,
    /// What was offered to be written, by queue, at any time that the other end's core left since it
    /// last gave a chain back.
    offered: BTreeSet<(usize, Buffer)>,
    /// What the driver has written is not known: nothing is judged until the device is reset.
    is_unknown: bool,
}

impl Device {
    /// The driver has written in a way that cannot be followed.
    pub fn forget(&mut self) {
        self.is_unknown = true;
    }

    /// Returns whether what the driver has written is known.
    pub const fn is_known(&self) -> bool {
        !self.is_unknown
    }

    /// Follows a write of a register, a word, that begins.
    pub fn write(&mut self, at: u16, value: u32) -> Effect {
        match at {
            offset::QUEUE_SELECT => self.selected = value as usize,
            offset::STATUS if value == 0 => return Effect::Reset,
            offset::STATUS if value & status::DRIVER_OK != 0 => self.start(),
            offset::QUEUE_SIZE | offset::QUEUE_READY => return self.set_up(at, value),
            _ if (offset::QUEUE_DESCRIPTORS..offset::QUEUE_DEVICE + 8).contains(&at) => {
                return self.set_up(at, value);
            }
            _ => {}
        }
        Effect::None
    }

    /// Follows a write of a register of the selected queue.
    fn set_up(&mut self, at: u16, value: u32) -> Effect {
        let number = self.selected;
        let Some(setup) = self.setups.get_mut(number) else {
            return Effect::None;
        };
        if at == offset::QUEUE_READY {
            // A queue that cannot be one is refused: then its registers can still be written, which
            // is not followed.
            setup.is_ready = value & 1 != 0;
            return if setup.is_ready {
                Effect::None
            } else {
                Effect::Left(number)
            };
        }
        if setup.is_ready {
            // No driver may do so (4.2.2.2), and it has no effect on a queue in use.
            self.forget();
            return Effect::None;
        }
        if at == offset::QUEUE_SIZE {
            setup.size = value;
            return Effect::None;
        }
        let within = at - offset::QUEUE_DESCRIPTORS;
        if within % 16 >= 8 {
            return Effect::None;
        }
        let address = &mut setup.addresses[usize::from(within / 16)];
        let shift = within % 8 * 8;
        *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
        Effect::None
    }

    /// The device may use all queues that are ready.
    fn start(&mut self) {
        for (number, setup) in self.setups.iter().enumerate() {
            let [descriptors, _, device] = setup.addresses;
            let queue = Queue {
                number,
                size: setup.size.into(),
                descriptors,
                device,
            };
            // Sizes beyond the most that a device offers are refused.
            if setup.is_ready && setup.size <= 256 && !self.used.contains(&queue) {
                self.used.push(queue);
            }
        }
    }

    /// Follows the end of a visit with a write's effect.
    pub fn done(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Reset => *self = Self::default(),
            Effect::Left(number) => {
                self.used.retain(|queue| queue.number != number);
                self.offered.retain(|(queue, _)| *queue != number);
            }
        }
    }

    /// Returns the queues in which the other end's core has something to do.
    fn receiving(&self) -> impl Iterator<Item = &Queue> {
        self.used.iter().filter(|queue| queue.number != SENDER)
    }

    /// Returns whether bytes are of a table of descriptors.
    pub fn is_descriptor(&self, at: Ipa, len: u64) -> bool {
        let end = |queue: &Queue| queue.descriptors.saturating_add(queue.size * DESCRIPTOR);
        self.receiving()
            .any(|queue| queue.descriptors < at.0 + len && at.0 < end(queue))
    }

    /// The other end's core leaves. Of a chain that it has taken, it continues in any later visit
    /// with what it has read, whatever the driver does to its descriptors meanwhile.
    pub fn pause(&mut self, memory: &impl Memory) {
        let of = |queue: &Queue| {
            let all = (0..queue.size).filter_map(|number| queue.buffer(memory, number));
            all.map(|buffer| (queue.number, buffer)).collect::<Vec<_>>()
        };
        let offered: Vec<_> = self.receiving().flat_map(of).collect();
        self.offered.extend(offered);
    }

    /// Follows a store of the other end's core: the index of a ring of used buffers gives a chain
    /// back (2.7.8), and what is stored after it is for one that is taken later.
    pub fn give(&mut self, at: Ipa, len: u64) {
        let given = self.receiving().find(|queue| queue.has_index(at, len));
        if let Some(number) = given.map(|queue| queue.number) {
            self.offered.retain(|(queue, _)| *queue != number);
        }
    }

    /// Returns whether bytes were offered to be written then.
    pub fn was_offered(&self, at: Ipa, len: u64) -> bool {
        let mut all = self.offered.iter();
        all.any(|(_, buffer)| buffer.has(at, len))
    }

    /// Returns where the other end's core may store bytes at an address: a ring of used buffers, or
    /// a buffer.
    pub fn place(&self, memory: &impl Memory, at: Ipa, len: u64) -> Option<Buffer> {
        self.receiving().find_map(|queue| {
            let ring = queue.ring();
            if ring.has(at, len) {
                return Some(ring);
            }
            let mut buffers = (0..queue.size).filter_map(|index| queue.buffer(memory, index));
            buffers.find(|buffer| buffer.has(at, len))
        })
    }

    /// Returns the first bytes of the chain that a store of two bytes gives back, if it does and no
    /// other buffer has bytes of them.
    pub fn first_given(&self, memory: &impl Memory, at: Ipa, index: u16, len: u64) -> Option<Ipa> {
        let mut queues = self.used.iter().filter(|queue| queue.number == 0);
        let queue = queues.find(|queue| queue.has_index(at, 2) && queue.size > 0)?;
        let slot = u64::from(index.wrapping_sub(1)) % queue.size;
        let mut head = [0; 4];
        let entry = Ipa(queue.device + 4 + slot * 8);
        memory.read(entry, &mut head).then_some(())?;
        let head = u64::from(u32::from_le_bytes(head));
        let buffer = queue.buffer(memory, head).filter(|own| own.len >= len)?;
        let overlaps = |other: Buffer| {
            other.at < buffer.at + len && buffer.at < other.at.saturating_add(other.len)
        };
        let mut others = (0..queue.size).filter(|number| *number != head);
        let is_alone = !others.any(|number| queue.buffer(memory, number).is_some_and(overlaps));
        is_alone.then_some(Ipa(buffer.at))
    }
}

impl Queue {
    /// Returns the ring of used buffers.
    const fn ring(&self) -> Buffer {
        Buffer {
            at: self.device,
            len: 4 + self.size * 8,
        }
    }

    /// Returns whether bytes are the index of its ring (2.7.8).
    fn has_index(&self, at: Ipa, len: u64) -> bool {
        len == 2 && self.device.checked_add(2) == Some(at.0)
    }

    /// Returns the buffer of a descriptor, if the device may write to it.
    fn buffer(&self, memory: &impl Memory, number: u64) -> Option<Buffer> {
        let mut bytes = [0; DESCRIPTOR as usize];
        let at = self.descriptors.checked_add(number * DESCRIPTOR)?;
        memory.read(Ipa(at), &mut bytes).then_some(())?;
        let word = u128::from_le_bytes(bytes);
        let may_write = (word >> 96) as u16 & descriptor::WRITE != 0;
        may_write.then_some(Buffer {
            at: word as u64,
            len: u64::from((word >> 64) as u32),
        })
    }
}

/// Returns the difference of a store to the VM at the other end of a link that is in no buffer.
pub fn stray(vm: usize, owner: usize, at: Ipa, frame: PhysAddr) -> Difference {
    Difference::new(
        Rule::LinkPlace,
        format!("a core of VM {vm}"),
        "a store to the VM at the other end of its link only where that VM's driver has offered it",
        format!("IPA {at} ({frame}) of VM {owner}, in no used ring and no buffer to be written"),
    )
}

/// Checks the addresses in the first bytes of a packet of sockets that arrives (5.10.6): the
/// sender's, and the receiver's.
///
/// # Errors
///
/// One of them is another VM's.
pub fn check_addresses(header: [u8; 16], expected: [u64; 2]) -> Checked {
    let word = |range: Range<usize>| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[range]);
        u64::from_le_bytes(bytes)
    };
    let found = [word(0..8), word(8..16)];
    if found == expected {
        return Ok(());
    }
    Err(Difference::new(
        Rule::LinkSender,
        "a packet of sockets",
        format!("from {} to {}", expected[0], expected[1]),
        format!("from {} to {}", found[0], found[1]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RINGS: u64 = 0x1000;
    const BUFFER: u64 = 0x3000;

    /// Memory from address 0 on.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, at: Ipa, bytes: &mut [u8]) -> bool {
            let first = at.0 as usize;
            let found = self.0.get(first..first.saturating_add(bytes.len()));
            found.is_some_and(|found| {
                bytes.copy_from_slice(found);
                true
            })
        }
    }

    fn describe(memory: &mut Bytes, number: usize, (at, len): (u64, u32), flags: u16) {
        let word = u128::from(at) | u128::from(len) << 64 | u128::from(flags) << 96;
        let first = RINGS as usize + number * 16;
        memory.0[first..first + 16].copy_from_slice(&word.to_le_bytes());
    }

    /// A device whose receive queue of four descriptors is in use, and its memory.
    fn started() -> (Device, Bytes) {
        let mut device = Device::default();
        for (at, value) in [
            (offset::QUEUE_SELECT, 0),
            (offset::QUEUE_SIZE, 4),
            (offset::QUEUE_DESCRIPTORS, RINGS as u32),
            (offset::QUEUE_DEVICE, 0x2000),
            (offset::QUEUE_READY, 1),
            (offset::STATUS, status::FEATURES_OK | status::DRIVER_OK),
        ] {
            assert_eq!(device.write(at, value), Effect::None);
        }
        let mut memory = Bytes(vec![0; 0x4000]);
        describe(&mut memory, 0, (BUFFER, 64), descriptor::WRITE);
        describe(&mut memory, 1, (BUFFER + 64, 64), 0);
        (device, memory)
    }

    #[test]
    fn stores_are_for_used_rings_and_buffers_that_may_be_written() {
        let (device, memory) = started();
        let may = |at, len| device.place(&memory, Ipa(at), len).is_some();
        assert!(may(BUFFER, 64) && may(BUFFER + 63, 1) && may(0x2002, 2) && may(0x2000 + 28, 8));
        for (at, len) in [
            (BUFFER + 63, 2),
            (BUFFER + 64, 1),
            (RINGS, 1),
            (0x2000 + 36, 1),
        ] {
            assert!(!may(at, len), "{len} bytes at {at:#x}");
        }
        assert!(
            device.is_descriptor(Ipa(RINGS + 63), 1) && !device.is_descriptor(Ipa(RINGS + 64), 1)
        );
    }

    #[test]
    fn a_device_that_was_reset_is_stored_nothing() {
        for (at, value, effect) in [
            (offset::STATUS, 0, Effect::Reset),
            (offset::QUEUE_READY, 0, Effect::Left(0)),
        ] {
            let (mut device, memory) = started();
            assert_eq!(device.write(at, value), effect);
            let found = |device: &Device| device.place(&memory, Ipa(BUFFER), 8).is_some();
            assert!(found(&device), "not before EL2 is done");
            device.done(effect);
            assert!(!found(&device));
        }
    }

    #[test]
    fn a_chain_that_was_taken_is_as_it_was_then() {
        let (mut device, mut memory) = started();
        device.pause(&memory);
        describe(&mut memory, 0, (BUFFER + 256, 64), descriptor::WRITE);
        assert_eq!(device.place(&memory, Ipa(BUFFER), 64), None);
        assert!(device.was_offered(Ipa(BUFFER), 64) && !device.was_offered(Ipa(BUFFER + 64), 1));
        // However often the core has come and gone since.
        device.pause(&memory);
        assert!(device.was_offered(Ipa(BUFFER), 64) && device.was_offered(Ipa(BUFFER + 256), 64));
        let mut left = device.clone();
        left.done(Effect::Left(0));
        assert!(!left.was_offered(Ipa(BUFFER), 64));
        // Until the chain is given back.
        device.give(Ipa(0x2000 + 4), 8);
        device.give(Ipa(0x2000), 2);
        assert!(device.was_offered(Ipa(BUFFER), 64));
        device.give(Ipa(0x2000 + 2), 2);
        assert!(!device.was_offered(Ipa(BUFFER), 64));
        device.pause(&memory);
        assert!(!device.was_offered(Ipa(BUFFER), 64) && device.was_offered(Ipa(BUFFER + 256), 64));
        device.done(Effect::Reset);
        assert!(!device.was_offered(Ipa(BUFFER + 256), 64));
    }

    #[test]
    fn what_the_driver_sends_is_not_written_by_the_other_end() {
        let (mut device, memory) = started();
        device.used[0].number = SENDER;
        assert_eq!(device.place(&memory, Ipa(BUFFER), 8), None);
    }

    #[test]
    fn a_queue_that_changes_while_it_is_ready_is_not_judged() {
        let (mut device, _) = started();
        assert!(device.is_known());
        device.write(offset::QUEUE_SIZE, 8);
        assert!(!device.is_known());
        device.done(Effect::Reset);
        assert!(device.is_known());
    }

    #[test]
    fn a_packet_that_arrives_names_its_ends() {
        let (device, mut memory) = started();
        let first = |memory: &Bytes| device.first_given(memory, Ipa(0x2002), 1, 44);
        assert_eq!(first(&memory), Some(Ipa(BUFFER)));
        assert_eq!(device.first_given(&memory, Ipa(0x2004), 1, 44), None);
        // Another buffer has the same bytes.
        describe(&mut memory, 2, (BUFFER + 8, 8), descriptor::WRITE);
        assert_eq!(first(&memory), None);
        let header = u128::to_le_bytes(4 | 3 << 64);
        assert_eq!(check_addresses(header, [4, 3]), Ok(()));
        let wrong = check_addresses(header, [3, 4]).expect_err("exchanged");
        assert_eq!(wrong.rule, Rule::LinkSender);
    }
}
