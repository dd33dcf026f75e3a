//! What drivers of virtio do, right and wrong: the registers of a link's device, and its queues.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{DATA, Generator, LINK, PAGE, named};
use cloison_abi::virtio::{descriptor, feature, offset, status};
use cloison_puppet::Op;

/// Where a queue's parts are: descriptors, available and used buffers, and the buffers.
const QUEUES: [u64; 2] = [DATA + 16 * PAGE, DATA + 24 * PAGE];
/// How many of a queue's descriptors a program fills.
const FILLED: u64 = 4;

/// Stores a word to a register of the device.
fn register(at: u16, value: u64) -> Op {
    Op::Execute {
        word: named("str.w0.x1"),
        x: [value, LINK + u64::from(at), 0, 0],
    }
}

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
        match self.below(8) {
            0 => {
                let (stores, at) = (self.random.bool(), self.below(0x200));
                let value = self.value();
                let op = self.access(stores, LINK + at, value);
                ops.push(op);
            }
            1 | 2 => self.start_driver(ops),
            3..6 => self.offer(ops),
            _ => {
                let at = [offset::QUEUE_NOTIFY, offset::INTERRUPT_ACK];
                let at = self.pick(&at);
                ops.push(register(at, self.below(3)));
            }
        }
    }

    /// A driver begins: most of what it must do, most of the time.
    fn start_driver(&mut self, ops: &mut Vec<Op>) {
        let first = ops.len();
        ops.extend([
            register(offset::STATUS, 0),
            register(offset::STATUS, 3),
            register(offset::DRIVER_FEATURES_SELECT, 1),
            register(offset::DRIVER_FEATURES, feature::VERSION_1.into()),
            register(offset::STATUS, u64::from(status::FEATURES_OK) | 3),
        ]);
        for (number, queue) in (0..).zip(QUEUES) {
            ops.extend([
                register(offset::QUEUE_SELECT, number),
                register(offset::QUEUE_SIZE, self.pick(&[4, 8, 256, 1, 3, 0x1_0004])),
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

    /// Fills descriptors of a queue, makes buffers available, and notifies.
    fn offer(&mut self, ops: &mut Vec<Op>) {
        let number = self.below(2);
        let queue = QUEUES[number as usize];
        for index in 0..FILLED {
            let at = match self.below(16) {
                0 => self.address(),
                1 => queue + 4 * PAGE - self.below(16),
                _ => queue + (3 + self.below(4)) * PAGE,
            };
            let len = self.pick(&[12, 64, 1500, 4096, 0, 1, u32::MAX.into(), 9000]);
            let direction = if number == 0 { descriptor::WRITE } else { 0 };
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
        // Flags, the number of available buffers, and the heads of the first two.
        let available = match self.below(8) {
            0 => self.below(1 << 16),
            _ => self.below(6),
        };
        let heads = self.below(FILLED) << 32 | self.below(FILLED) << 48;
        ops.push(memory(queue + PAGE, available << 16 | heads));
        ops.push(register(offset::QUEUE_NOTIFY, number));
    }
}
