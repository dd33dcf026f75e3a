//! Links between drivers that follow the rules, and drivers that follow none.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod device;
mod hostile;
mod packets;
mod traffic;

use super::queue::{Memories, Queue, Role, Setup, Violation, Wrong};
use super::wire::{Step, Wire};
use cloison_abi::virtio::descriptor::{NEXT, WRITE};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::ids::{Intid, VmId};
use cloison_formats::link::{Link, LinkEnd, LinkKind};
use std::cell::{Cell, RefCell};
use std::vec;
use std::vec::Vec;

/// Where a guest's RAM is, and how long.
const RAM: u64 = 0x4000_0000;
const LEN: u64 = 64 << 10;
/// Where a driver has its queue, and its buffers.
const DESCRIPTORS: u64 = RAM;
const DRIVER: u64 = RAM + 0x1000;
const DEVICE: u64 = RAM + 0x2000;
const BUFFERS: u64 = RAM + 0x3000;

/// A guest's RAM.
struct Ram {
    bytes: RefCell<Vec<u8>>,
    /// What happens at each access: a guest that changes its memory meanwhile.
    meddle: Option<fn(&mut [u8], u64)>,
    accesses: Cell<u64>,
}

impl Ram {
    fn new() -> Self {
        Self {
            bytes: RefCell::new(vec![0; LEN as usize]),
            meddle: None,
            accesses: Cell::new(0),
        }
    }

    /// Returns the offset of bytes that EL2 may access.
    fn find(&self, at: Ipa, len: usize) -> Result<usize, Violation> {
        assert!(
            at.0 % PAGE_SIZE + len as u64 <= PAGE_SIZE,
            "{len} bytes at {at} are in two pages"
        );
        self.accesses.set(self.accesses.get() + 1);
        if let Some(meddle) = self.meddle {
            meddle(&mut self.bytes.borrow_mut(), self.accesses.get());
        }
        let offset = at.0.checked_sub(RAM).ok_or(Violation::Memory)?;
        if offset + len as u64 > LEN {
            return Err(Violation::Memory);
        }
        Ok(offset as usize)
    }

    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let from = (at - RAM) as usize;
        self.bytes.borrow()[from..from + len].to_vec()
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let from = (at - RAM) as usize;
        self.bytes.borrow_mut()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn get16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.get(at, 2).try_into().expect("two bytes"))
    }
}

/// The memories of both ends, by [`Role`]; events are the receiver's.
struct Both {
    ram: [Ram; 2],
    copied: Cell<u64>,
}

impl Both {
    fn new() -> Self {
        Self {
            ram: [Ram::new(), Ram::new()],
            copied: Cell::new(0),
        }
    }

    fn of(&self, role: Role) -> &Ram {
        &self.ram[role as usize & 1]
    }
}

impl Memories for Both {
    fn read(&self, role: Role, at: Ipa, bytes: &mut [u8]) -> Result<(), Wrong> {
        let ram = self.of(role);
        let from = ram.find(at, bytes.len());
        let from = from.map_err(|what| Wrong { role, what })?;
        bytes.copy_from_slice(&ram.bytes.borrow()[from..from + bytes.len()]);
        Ok(())
    }

    fn write(&self, role: Role, at: Ipa, bytes: &[u8]) -> Result<(), Wrong> {
        let ram = self.of(role);
        let from = ram.find(at, bytes.len());
        let from = from.map_err(|what| Wrong { role, what })?;
        ram.bytes.borrow_mut()[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn copy(&self, from: Ipa, to: Ipa, len: u32) -> Result<(), Wrong> {
        let mut bytes = vec![0; len as usize];
        self.read(Role::Sender, from, &mut bytes)?;
        self.write(Role::Receiver, to, &bytes)?;
        self.copied.set(self.copied.get() + u64::from(len));
        Ok(())
    }
}

/// What a driver sets up in the usual places.
fn setup(size: u16) -> Setup {
    let mut setup = Setup {
        size: size.into(),
        ..Setup::default()
    };
    for (first, at) in [(0, DESCRIPTORS), (4, DRIVER), (8, DEVICE)] {
        setup.registers[first] = at as u32;
        setup.registers[first + 1] = (at >> 32) as u32;
    }
    setup
}

/// A driver's side of a queue.
struct Driver {
    size: u16,
    available: u16,
    seen: u16,
    next: u16,
}

/// A buffer: its address and length.
type Buffer = (u64, u32);

impl Driver {
    fn new(size: u16) -> Self {
        Self {
            size,
            available: 0,
            seen: 0,
            next: 0,
        }
    }

    fn queue(&self, role: Role) -> Queue {
        Queue::new(role, &setup(self.size)).expect("a queue")
    }

    /// Makes a chain of buffers available. Returns its number.
    fn offer(&mut self, ram: &Ram, buffers: &[Buffer], access: u16) -> u16 {
        let head = self.next;
        for (index, &(at, len)) in buffers.iter().enumerate() {
            let follows = index + 1 < buffers.len();
            let number = self.next;
            self.next = (self.next + 1) % self.size;
            descriptor(ram, number, (at, len), access, follows.then_some(self.next));
        }
        self.publish(ram, head);
        head
    }

    fn publish(&mut self, ram: &Ram, head: u16) {
        let slot = u64::from(self.available % self.size);
        ram.put(DRIVER + 4 + slot * 2, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        ram.put(DRIVER + 2, &self.available.to_le_bytes());
    }

    /// Returns the chains that came back since the last time, with how many bytes are new.
    fn used(&mut self, ram: &Ram) -> Vec<(u16, u32)> {
        let index = ram.get16(DEVICE + 2);
        let mut all = Vec::new();
        while self.seen != index {
            let slot = DEVICE + 4 + u64::from(self.seen % self.size) * 8;
            let word = |at| u32::from_le_bytes(ram.get(at, 4).try_into().expect("four bytes"));
            all.push((word(slot) as u16, word(slot + 4)));
            self.seen = self.seen.wrapping_add(1);
        }
        all
    }
}

/// Writes a descriptor.
fn descriptor(ram: &Ram, number: u16, buffer: Buffer, access: u16, next: Option<u16>) {
    let at = DESCRIPTORS + u64::from(number) * 16;
    ram.put(at, &buffer.0.to_le_bytes());
    ram.put(at + 8, &buffer.1.to_le_bytes());
    let flags = access | if next.is_some() { NEXT } else { 0 };
    ram.put(at + 12, &flags.to_le_bytes());
    ram.put(at + 14, &next.unwrap_or(0).to_le_bytes());
}

/// Steps until nothing is to be done, and returns the steps that ended a chain.
fn run(wire: &mut Wire, both: &Both) -> Vec<Result<Step, Wrong>> {
    let mut ends = Vec::new();
    for _ in 0..100_000 {
        match wire.step(both) {
            Ok(Step::Idle | Step::Waits) => return ends,
            Ok(Step::More) => {}
            end => ends.push(end),
        }
    }
    panic!("it does not end");
}

/// A wire from the first VM to the second one.
fn new_wire(kind: LinkKind) -> Wire {
    let end = |vm| LinkEnd {
        vm: VmId(vm),
        ipa: Ipa(0x0a00_0000),
        irq: Intid(48),
    };
    let link = Link {
        name: "wire".into(),
        kind,
        ends: [end(0), end(1)],
    };
    Wire::new(&link, 0)
}

/// A wire with the queues of a sender and a receiver.
fn joined(kind: LinkKind, sender: &Driver, receiver: &Driver) -> Wire {
    let mut wire = new_wire(kind);
    wire.join(sender.queue(Role::Sender));
    wire.join(receiver.queue(Role::Receiver));
    wire
}

/// The access of a receiver's buffers.
const FILL: u16 = WRITE;

/// Cuts a range of `len` bytes into buffers of these lengths, one after the other with gaps.
fn cut(len: u32, lengths: &[u32]) -> Vec<Buffer> {
    let mut buffers = Vec::new();
    let (mut at, mut left) = (BUFFERS, len);
    for &length in lengths {
        let length = length.min(left);
        buffers.push((at, length));
        at += u64::from(length) + 3;
        left -= length;
    }
    buffers.push((at, left));
    buffers
}
