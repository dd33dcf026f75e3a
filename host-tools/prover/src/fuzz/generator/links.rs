//! What drivers of virtio do, right and wrong: the registers of a link's device, and its queues.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{DATA, Generator, LINK, LONGEST, PAGE, named};
use cloison_abi::virtio::{descriptor, feature, offset, status};
use cloison_puppet::Op;

/// Bytes of a queue's parts: descriptors, available and used buffers, and the buffers, in pages.
const QUEUE: u64 = 8 * PAGE;
/// Queues of a device: the network's has no third one.
const QUEUES: u64 = 3;
/// How many of a queue's descriptors a program fills.
const FILLED: u64 = 4;

/// The device of a link in a VM.
#[derive(Clone, Copy)]
pub struct Device(u64);

impl Device {
    /// Those that there are: a network's, and one of sockets.
    const ALL: [Self; 2] = [Self(0), Self(1)];

    /// Returns the page of its registers.
    const fn page(self) -> u64 {
        LINK + self.0 * PAGE
    }

    /// Returns where a queue of it is.
    const fn queue(self, number: u64) -> u64 {
        DATA + 16 * PAGE + (self.0 * QUEUES + number) * QUEUE
    }

    /// Stores a word to a register.
    fn register(self, at: u16, value: u64) -> Op {
        Op::Execute {
            word: named("str.w0.x1"),
            x: [value, self.page() + u64::from(at), 0, 0],
        }
    }

    /// Loads a word from a register.
    fn read(self, at: u16) -> Op {
        Op::Execute {
            word: named("ldr.w0.x1"),
            x: [0, self.page() + u64::from(at), 0, 0],
        }
    }
}

/// What drivers read.
const READ: [u16; 9] = [
    offset::MAGIC,
    offset::VERSION,
    offset::DEVICE_ID,
    offset::DEVICE_FEATURES,
    offset::QUEUE_SIZE_MAX,
    offset::INTERRUPT_STATUS,
    offset::STATUS,
    offset::GENERATION,
    offset::CONFIGURATION,
];

/// Stores eight bytes to memory.
fn memory(at: u64, value: u64) -> Op {
    Op::Execute {
        word: named("str.x0.x1"),
        x: [value, at, 0, 0],
    }
}

impl Generator {
    /// Appends a part of what a driver does, or what none does.
    pub(super) fn link(&mut self, ops: &mut Vec<Op>) {
        let device = self.device();
        match self.below(8) {
            0 => {
                let (stores, at) = (self.random.bool(), self.below(0x200));
                let value = self.value();
                let op = self.access(stores, device.page() + at, value);
                ops.push(op);
            }
            1 => self.start_driver(device, ops),
            2 => {
                let number = self.value();
                ops.push(device.register(offset::DEVICE_FEATURES_SELECT, number));
                ops.extend((0..3).map(|_| device.read(self.pick(&READ))));
            }
            3..6 => {
                let queue = self.pick(&[0, 1, 1, 2]);
                self.offer(device, queue, 0, ops);
            }
            _ => {
                let at = [offset::QUEUE_NOTIFY, offset::INTERRUPT_ACK];
                let at = self.pick(&at);
                ops.push(device.register(at, self.below(QUEUES)));
            }
        }
    }

    /// Returns a device.
    pub fn device(&mut self) -> Device {
        self.pick(&Device::ALL)
    }

    /// Returns a program for one end of a link: a driver that runs, with buffers for what arrives, and
    /// with something to send, at once and later. Only if the other end's does the same at that time,
    /// something is copied.
    pub fn conversation(&mut self, device: Device) -> Vec<Op> {
        let mut ops = Vec::new();
        self.start_driver(device, &mut ops);
        self.offer(device, 0, 0, &mut ops);
        ops.push(Op::Delay(self.below(20_000)));
        let sent = self.offer(device, 1, 0, &mut ops);
        ops.push(Op::Delay(self.below(20_000)));
        self.offer(device, 1, sent, &mut ops);
        ops.push(Op::Delay(self.below(20_000)));
        ops.truncate(LONGEST);
        ops
    }

    /// A driver begins: most of what it must do, most of the time.
    fn start_driver(&mut self, device: Device, ops: &mut Vec<Op>) {
        let first = ops.len();
        let register = |at, value| device.register(at, value);
        ops.extend([
            register(offset::STATUS, 0),
            register(offset::STATUS, 3),
            register(offset::DRIVER_FEATURES_SELECT, 1),
            register(offset::DRIVER_FEATURES, feature::VERSION_1.into()),
            register(offset::STATUS, u64::from(status::FEATURES_OK) | 3),
        ]);
        for number in 0..2 + device.0 {
            let queue = device.queue(number);
            ops.extend([
                register(offset::QUEUE_SELECT, number),
                register(
                    offset::QUEUE_SIZE,
                    self.pick(&[4, 4, 4, 8, 8, 256, 1, 3, 0x1_0004]),
                ),
                register(offset::QUEUE_DESCRIPTORS, queue),
                register(offset::QUEUE_DRIVER, queue + PAGE),
                register(offset::QUEUE_DEVICE, queue + 2 * PAGE),
                register(offset::QUEUE_READY, 1),
                // Nothing is available yet.
                memory(queue + PAGE, 0),
            ]);
        }
        let ready = u64::from(status::FEATURES_OK | status::DRIVER_OK) | 3;
        ops.push(register(offset::STATUS, ready));
        if self.below(4) == 0 {
            let wrong = first + self.random.usize(..ops.len() - first);
            ops.remove(wrong);
        }
    }

    /// Fills descriptors of a queue, makes buffers available after those that have been, and notifies.
    /// Returns how many have been available then.
    fn offer(&mut self, device: Device, number: u64, before: u64, ops: &mut Vec<Op>) -> u64 {
        let queue = device.queue(number);
        for index in 0..FILLED {
            let at = match self.below(16) {
                0 => self.address(),
                1 => queue + 4 * PAGE - self.below(16),
                _ => queue + (3 + self.below(4)) * PAGE,
            };
            let len = self.pick(&[12, 64, 1500, 1500, 4096, 4096, 0, 1, u32::MAX.into(), 9000]);
            let direction = if number == 1 { 0 } else { descriptor::WRITE };
            let flags = match self.below(8) {
                0 => self.below(8) as u16,
                1 | 2 => direction | descriptor::NEXT,
                _ => direction,
            };
            let next = self.pick(&[(index + 1) % FILLED, (index + 1) % FILLED, index, 255, 999]);
            let word = len | u64::from(flags) << 32 | next << 48;
            ops.extend([
                memory(queue + index * 16, at),
                memory(queue + index * 16 + 8, word),
            ]);
        }
        if number == 1 {
            // The length in a packet of sockets, where its header begins.
            let len = self.pick(&[0, 10, 100, 4096]);
            ops.push(memory(queue + 3 * PAGE + 24, len));
        }
        // Flags, the number of available buffers, and the heads of the first four.
        let available = match self.below(8) {
            0 => self.below(1 << 16),
            _ => before + self.below(5),
        };
        let mut head = || self.below(FILLED);
        let heads = [head(), head(), head(), head()];
        ops.push(memory(
            queue + PAGE,
            available << 16 | heads[0] << 32 | heads[1] << 48,
        ));
        ops.push(memory(queue + PAGE + 8, heads[2] | heads[3] << 16));
        ops.push(device.register(offset::QUEUE_NOTIFY, number));
        available
    }
}
