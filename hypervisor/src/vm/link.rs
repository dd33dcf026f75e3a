//! Links: devices of virtio in two VMs, and the wire between them, which is this core.
//!
//! The core of the VM that sends copies, in its own visit, for its own budgets. Where the receiver
//! has no room, the frame waits, and the receiver's next buffers wake that core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmu::Windows;
use crate::machine::stage2::{Cacheability, Mapping};
use crate::vm::cpu::{Guest, Visit};
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::{Vm, all, system};
use crate::vm::{interrupts, logger, quota, virq};
use alloc::vec::Vec;
use cloison_abi::virtio::{RECEIVE, TRANSMIT, interrupt, offset, status};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::guest_map::MapDevice;
use cloison_formats::image::System;
use cloison_formats::link::{LinkEnd, LinkKind, mac};
use cloison_logic::limit::Topic;
use cloison_logic::power::State;
use cloison_logic::quota::Effort;
use cloison_logic::syndrome::Width;
use cloison_logic::virtio::queue::{GuestMemory, Piece, Violation};
use cloison_logic::virtio::registers::{Change, Reasons, Registers, Seen};
use cloison_logic::virtio::wire::{Memories, Role, Step, Wire, Wrong};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use log::Level;
use spin::Once;
use spin::mutex::TicketMutex;

/// Accesses to guest pages between two points at which interrupts are served.
const BATCH: u32 = 10;
/// Bytes whose copy counts as one access more.
const BYTES_PER_ACCESS: u32 = 512;

/// A link.
///
/// Locks are taken in this order: a device's registers, a wire, the pages of one VM or of both
/// (`Vm::still`), the interrupts of a VM.
struct Link {
    ends: [LinkEnd; 2],
    devices: [Device; 2],
    /// From each end to the other.
    wires: [TicketMutex<Wire>; 2],
}

/// The device at one end.
struct Device {
    registers: TicketMutex<Registers>,
    reasons: Reasons,
    /// How often its driver has started or ended. Odd while it runs.
    turns: AtomicU32,
}

/// All links: they are never added or removed.
static LINKS: Once<Vec<Link>> = Once::new();

/// Creates the links; boot core only, once.
pub fn init(system: &System) {
    let device = |kind: LinkKind| Device {
        registers: TicketMutex::new(Registers::new(kind)),
        reasons: Reasons::default(),
        turns: AtomicU32::new(0),
    };
    let links = system.links.iter().map(|link| Link {
        ends: link.ends,
        devices: [(); 2].map(|()| device(link.kind)),
        wires: [(); 2].map(|()| TicketMutex::new(Wire::new(link.kind))),
    });
    let links = links.collect();
    LINKS.call_once(|| links);
}

/// Returns the device of a link that a VM has at a page.
pub fn at(vm: &Vm, page: Ipa) -> Option<MapDevice> {
    let port = vm.ports.iter().find(|port| port.ipa == page)?;
    Some(MapDevice::Link(port.link))
}

/// One end of a link.
#[derive(Clone, Copy)]
struct Port {
    number: u8,
    link: &'static Link,
    end: usize,
}

impl Port {
    /// Returns the end of the link with this number that a VM has.
    fn of(vm: &Vm, number: u8) -> Option<Self> {
        let link = LINKS.get()?.get(usize::from(number))?;
        let end = link.ends.iter().position(|end| end.vm == vm.id)?;
        Some(Self { number, link, end })
    }

    fn peer(self) -> Self {
        let end = 1 - self.end;
        Self { end, ..self }
    }

    fn vm(self) -> &'static Vm {
        &all()[self.link.ends[self.end].vm.index()]
    }

    fn device(self) -> &'static Device {
        &self.link.devices[self.end]
    }

    /// Returns the direction in which a queue of its device is, and the device's part in it.
    fn wire(self, queue: usize) -> (&'static TicketMutex<Wire>, Role) {
        if queue == TRANSMIT as usize {
            (&self.link.wires[self.end], Role::Sender)
        } else {
            (&self.link.wires[1 - self.end], Role::Receiver)
        }
    }

    fn seen(self) -> Seen {
        Seen {
            needs_reset: self.device().reasons.needs_reset(),
            turns: self.peer().device().turns.load(Relaxed),
            mac: mac(self.number, self.end as u8),
        }
    }

    /// Has its interrupt follow the reasons for it.
    fn follow(self, guest: Guest) {
        let irq = self.link.ends[self.end].irq.0;
        let waits = || self.device().reasons.waiting() != 0;
        virq::follow(guest, self.vm(), irq, waits);
    }

    /// Gives its driver a reason for an interrupt. An interrupt that is pending already stands for
    /// several.
    fn tell(self, guest: Guest, reason: u32) {
        if self.device().reasons.add(reason) {
            self.follow(guest);
        }
    }

    /// Its driver has started or ended: the peer's device shows that.
    fn turn(self, guest: Guest) {
        self.device().turns.fetch_add(1, Relaxed);
        self.peer().tell(guest, interrupt::CONFIGURATION);
    }

    /// A queue of its device is no longer used. Frames that wait for it are lost.
    fn leave(self, queue: usize) {
        let (wire, role) = self.wire(queue);
        let mut wire = wire.lock();
        wire.leave(role);
        let waits = wire.waits.take();
        drop(wire);
        if role == Role::Receiver {
            self.peer().wake(waits);
        }
    }

    /// Resets its device.
    fn reset(self, guest: Guest, registers: &mut Registers) {
        let ran = registers.reset();
        self.leave(TRANSMIT as usize);
        self.leave(RECEIVE as usize);
        self.device().reasons.clear();
        self.follow(guest);
        if ran {
            self.turn(guest);
        }
    }

    /// Its driver has done what none may do.
    fn fail(self, guest: Guest, what: Violation) {
        self.tell(guest, status::NEEDS_RESET | interrupt::CONFIGURATION);
        let name = &system().links[usize::from(self.number)].name;
        let message = format_args!(": link {name}: {what}; its device needs a reset");
        logger::about(self.vm(), Level::Warn, Topic::Act, message);
    }

    /// Wakes the vCPU that waits, or another one of its VM.
    fn wake(self, waits: Option<u8>) {
        if let Some(vcpu) = waits {
            wake(self.vm(), vcpu.into());
        }
    }
}

/// Returns the ends of links that a VM has.
fn ports(vm: &Vm) -> impl Iterator<Item = Port> {
    vm.ports.iter().filter_map(|port| Port::of(vm, port.link))
}

/// Has a vCPU of a VM send what waits, preferably this one. None does if all are off: then nothing
/// of what they sent is left.
pub fn wake(vm: &Vm, vcpu: usize) {
    let mut vcpus = core::iter::once(vcpu).chain(0..vm.spec.cores.len());
    if let Some(vcpu) = vcpus.find(|&vcpu| vm.power.state(vcpu) == State::On) {
        mailbox::ask(vm.spec.cores[vcpu], Request::Links);
    }
}

/// Handles a guest's read of a register of a link's device.
pub fn read(guest: Guest, number: u8, offset: u16, width: Width) -> u64 {
    let Some(port) = Port::of(guest.vm, number) else {
        return 0;
    };
    let device = port.device();
    if let Some(index) = offset.checked_sub(offset::CONFIGURATION) {
        let registers = device.registers.lock();
        let bytes = (0..width.bytes() as u16).rev();
        return bytes.fold(0, |value, byte| {
            value << 8 | u64::from(registers.configuration(index + byte, port.seen()))
        });
    }
    // The others are read as a whole.
    if width != Width::Word || !offset.is_multiple_of(4) {
        return 0;
    }
    let value = match offset {
        // Without a lock: at each interrupt.
        offset::INTERRUPT_STATUS => device.reasons.waiting(),
        _ => device.registers.lock().read(offset, port.seen()),
    };
    value.into()
}

/// Handles a guest's write to a register of a link's device. May wait: what is sent is copied, and
/// paid for, here.
pub fn write(visit: Visit, number: u8, offset: u16, width: Width, value: u32) {
    let Some(port) = Port::of(visit.vm, number) else {
        return;
    };
    if width != Width::Word || !offset.is_multiple_of(4) {
        return;
    }
    let device = port.device();
    match offset {
        offset::QUEUE_NOTIFY => notify(visit, port, value),
        offset::INTERRUPT_ACK => {
            device.reasons.handled(value);
            port.follow(*visit);
        }
        _ => {
            let mut registers = device.registers.lock();
            match registers.write(offset, value) {
                Change::None => {}
                Change::Reset => port.reset(*visit, &mut registers),
                Change::Left(queue) => port.leave(queue),
                Change::Broken(what) => port.fail(*visit, what),
                Change::Started(queues) => {
                    for (index, queue) in queues.into_iter().enumerate() {
                        let (wire, role) = port.wire(index);
                        queue
                            .into_iter()
                            .for_each(|queue| wire.lock().join(role, queue));
                    }
                    port.turn(*visit);
                }
            }
        }
    }
}

/// Buffers of a queue have become available.
fn notify(visit: Visit, port: Port, queue: u32) {
    quota::charge(*visit, Effort::CALL);
    if queue == TRANSMIT {
        send(visit, port);
    } else {
        let waits = port.wire(RECEIVE as usize).0.lock().waits.take();
        port.peer().wake(waits);
    }
}

/// Sends what waits on all links of the VM.
pub fn send_all(visit: Visit) {
    for port in ports(visit.vm) {
        send(visit, port);
    }
}

/// The VM's life begins or ends: its devices are reset.
pub fn reset_all(guest: Guest) {
    for port in ports(guest.vm) {
        port.reset(guest, &mut port.device().registers.lock());
    }
}

/// Sends all that is available and for which the peer has room. Between batches, the core serves
/// what is pending, and waits while a budget is spent; a vCPU that has to stop sends no more.
fn send(visit: Visit, port: Port) {
    let peer = port.peer();
    let pair = Pair {
        windows: &visit.cpu.windows,
        vms: [port.vm(), peer.vm()],
        accesses: Cell::new(0),
        effort: Cell::default(),
    };
    let (wire, _) = port.wire(TRANSMIT as usize);
    loop {
        let mut wire = wire.lock();
        let step = wire.step(&pair);
        if step == Ok(Step::Waits) {
            wire.waits = Some(visit.vcpu as u8);
        }
        drop(wire);
        let (sender, receiver) = match step {
            Ok(Step::Idle | Step::Waits) => break,
            Ok(Step::More) => (false, false),
            Ok(Step::Used { sender, receiver }) => (sender, receiver),
            Err(Wrong { role, what }) => {
                let wrong = if role == Role::Sender { port } else { peer };
                wrong.fail(*visit, what);
                (true, true)
            }
        };
        if sender {
            port.tell(*visit, interrupt::USED);
        }
        if receiver {
            peer.tell(*visit, interrupt::USED);
        }
        if pair.accesses.get() >= BATCH {
            pair.accesses.set(0);
            if !interrupts::pause(visit, pair.effort.take(), || false) {
                return;
            }
        }
    }
    quota::charge(*visit, pair.effort.take());
}

/// The memories of the VMs at both ends of a direction, as this core reaches them.
struct Pair<'a> {
    windows: &'a Windows,
    /// That of the sender, and that of the receiver.
    vms: [&'static Vm; 2],
    /// Accesses since the last pause.
    accesses: Cell<u32>,
    /// Work that is not paid for.
    effort: Cell<Effort>,
}

/// The memory of one of them.
struct End<'a, 'b>(&'a Pair<'b>, Role);

/// A part of a guest's page.
#[derive(Clone, Copy)]
struct Place {
    page: Mapping,
    offset: u64,
}

impl Pair<'_> {
    /// Finds bytes in RAM of an end. They stay there as long as `Vm::still` is held.
    fn find(&self, role: Role, at: Ipa, len: u64) -> Result<Place, Violation> {
        let vm = self.vms[role as usize];
        let offset = at.0 % PAGE_SIZE;
        let fits = offset + len <= PAGE_SIZE && vm.has_ram(at.page_base());
        let page = vm.stage2.mapping(at).filter(|_| fits);
        let page = page.ok_or(Violation::Memory)?;
        Ok(Place { page, offset })
    }

    /// Counts an access to pages, which reads or writes this many bytes in all.
    fn count(&self, bytes: u32) {
        let accesses = self.accesses.get() + 1 + bytes / BYTES_PER_ACCESS;
        self.accesses.set(accesses);
        let lines = Effort::LINE.times(u64::from(bytes).div_ceil(64));
        self.effort
            .set(self.effort.get().and(Effort::LOOKUP).and(lines));
    }

    /// Writes a page that its guest accesses past the caches back from them, so that both sides see
    /// memory.
    fn settle(&self, place: Place) -> PhysAddr {
        let Mapping {
            frame,
            cacheability,
            ..
        } = place.page;
        if cacheability == Cacheability::NonCacheable {
            self.windows.flush(frame);
        }
        frame
    }
}

impl End<'_, '_> {
    /// Calls `with` for a frame and the offset in it, while its page stays there.
    fn access(
        &self,
        at: Ipa,
        len: usize,
        with: impl FnOnce(&Windows, PhysAddr, u64),
    ) -> Result<(), Violation> {
        let &Self(pair, role) = self;
        pair.count(0);
        let _still = pair.vms[role as usize].still.lock();
        let place = pair.find(role, at, len as u64)?;
        with(pair.windows, pair.settle(place), place.offset);
        pair.settle(place);
        Ok(())
    }
}

impl GuestMemory for End<'_, '_> {
    fn read(&self, at: Ipa, bytes: &mut [u8]) -> Result<(), Violation> {
        self.access(at, bytes.len(), |windows, frame, offset| {
            windows.peek(frame, offset, bytes);
        })
    }

    fn write(&self, at: Ipa, bytes: &[u8]) -> Result<(), Violation> {
        self.access(at, bytes.len(), |windows, frame, offset| {
            windows.poke(frame, offset, bytes);
        })
    }
}

impl Memories for Pair<'_> {
    fn of(&self, role: Role) -> impl GuestMemory {
        End(self, role)
    }

    fn copy(&self, from: Piece, to: Piece) -> Result<(), Wrong> {
        let bytes = to.len;
        self.count(2 * bytes);
        let [sender, receiver] = self.vms;
        // In the order of their numbers, so that two directions do not wait for each other.
        let (first, second) = if sender.id < receiver.id {
            (sender, receiver)
        } else {
            (receiver, sender)
        };
        let _first = first.still.lock();
        let _second = second.still.lock();
        let find = |role, piece: Piece| {
            self.find(role, piece.at, bytes.into())
                .map_err(|what| Wrong { role, what })
        };
        let (from, to) = (find(Role::Sender, from)?, find(Role::Receiver, to)?);
        let (source, target) = (self.settle(from), self.settle(to));
        self.windows
            .copy_part([source, target], [from.offset, to.offset], bytes.into());
        self.settle(from);
        self.settle(to);
        Ok(())
    }
}
