//! Links: devices of virtio in two VMs, and the wire between them, which is this core.
//!
//! The core of the VM that sends copies, in its own visit, for its own budgets. Where the receiver
//! has no room, the frame waits, and the receiver's next buffers wake that core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::machine::mmu::Windows;
use crate::machine::stage2::{Cacheability, Mapping};
use crate::machine::sysreg::Patience;
use crate::vm::cpu::{Guest, Visit};
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::{Vm, all, system};
use crate::vm::{interrupts, logger, quota, telemetry, virq};
use alloc::vec::Vec;
use cloison_abi::CallError;
use cloison_abi::reply;
use cloison_abi::virtio::{interrupt, offset, status};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::guest_map::MapDevice;
use cloison_formats::image::System;
use cloison_formats::link::{Link, LinkEnd, LinkKind, Traffic, cid, mac};
use cloison_formats::telemetry::Record;
use cloison_formats::units::Nanos;
use cloison_logic::limit::Topic;
use cloison_logic::power::State;
use cloison_logic::quota::Effort;
use cloison_logic::syndrome::Width;
use cloison_logic::virtio::queue::{Memories, Role, Violation, Wrong};
use cloison_logic::virtio::registers::{Change, Reasons, Registers, Seen};
use cloison_logic::virtio::wire::{Step, Wire};
use core::cell::Cell;
use core::mem::take;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use log::Level;
use spin::Once;
use spin::mutex::TicketMutex;

/// Time between two records of a direction.
const LOG_EVERY: Nanos = Nanos(100_000_000);

/// The lock of what another VM's core may work on.
type Lock<T> = TicketMutex<T, Patience>;

/// The state of a link.
///
/// Locks are taken in this order: a device's registers, a wire, the pages of one VM or of both
/// (`Vm::still`), the interrupts of a VM.
struct LinkState {
    /// That of each end.
    devices: [Device; 2],
    /// From each end to the other.
    wires: [Lock<Wire>; 2],
}

/// The device at one end.
struct Device {
    registers: Lock<Registers>,
    reasons: Reasons,
    /// How often its driver has started or ended. Odd while it runs.
    turns: AtomicU32,
}

/// All links, in configuration order: they are never added or removed.
static LINKS: Once<Vec<LinkState>> = Once::new();

/// Creates the links; boot core only, once.
pub fn init(system: &System) {
    let device = |kind: LinkKind| Device {
        registers: Lock::new(Registers::new(kind)),
        reasons: Reasons::default(),
        turns: AtomicU32::new(0),
    };
    let links = system.links.iter().map(|link| LinkState {
        devices: [(); 2].map(|()| device(link.kind)),
        wires: [0, 1].map(|from| Lock::new(Wire::new(link, from))),
    });
    let links = links.collect();
    LINKS.call_once(|| links);
}

/// One end of a link.
#[derive(Clone, Copy)]
struct Port {
    number: usize,
    spec: &'static Link,
    end: usize,
    state: &'static LinkState,
}

/// Returns the ends of links that a VM has.
fn ports(vm: &Vm) -> impl Iterator<Item = Port> {
    let states = LINKS.get().map_or(&[][..], Vec::as_slice);
    let links = system().links_of(vm.id);
    links.map(|(number, spec, end)| Port {
        number,
        spec,
        end,
        state: &states[number],
    })
}

/// Returns the device of a link that a VM has at a page.
pub fn at(vm: &Vm, page: Ipa) -> Option<MapDevice> {
    let port = ports(vm).find(|port| port.here().ipa == page)?;
    Some(MapDevice::Link(port.number as u8))
}

impl Port {
    /// Returns the end of the link with this number that a VM has.
    fn of(vm: &Vm, number: u8) -> Option<Self> {
        ports(vm).find(|port| port.number == usize::from(number))
    }

    fn here(self) -> &'static LinkEnd {
        &self.spec.ends[self.end]
    }

    fn peer(self) -> Self {
        let end = 1 - self.end;
        Self { end, ..self }
    }

    fn vm(self) -> &'static Vm {
        &all()[self.here().vm.index()]
    }

    fn device(self) -> &'static Device {
        &self.state.devices[self.end]
    }

    /// Returns the direction in which its device has this part.
    fn wire(self, role: Role) -> &'static Lock<Wire> {
        let from = match role {
            Role::Sender => self.end,
            Role::Receiver | Role::Event => 1 - self.end,
        };
        &self.state.wires[from]
    }

    fn seen(self) -> Seen {
        Seen {
            needs_reset: self.device().reasons.needs_reset(),
            turns: self.peer().device().turns.load(Relaxed),
            mac: mac(self.number as u8, self.end as u8),
            cid: cid(self.here().vm),
        }
    }

    /// Has its interrupt follow the reasons for it.
    fn follow(self, guest: Guest) {
        let waits = || self.device().reasons.waiting() != 0;
        virq::follow(guest, self.vm(), self.here().irq.0, waits);
    }

    /// Gives its driver a reason for an interrupt. An interrupt that is pending already stands for
    /// several.
    fn tell(self, guest: Guest, reason: u32) {
        if self.device().reasons.add(reason) {
            self.follow(guest);
        }
    }

    /// Its driver has started or ended: the peer's device shows that, one of sockets by an event too.
    fn turn(self, guest: Guest) {
        self.device().turns.fetch_add(1, Relaxed);
        let (peer, pair) = (self.peer(), self.pair(guest));
        let reported = self.wire(Role::Sender).lock().report(&pair);
        quota::charge(guest, pair.effort.take());
        if let Err(Wrong { what, .. }) = reported {
            peer.fail(guest, what);
        }
        peer.tell(guest, interrupt::USED | interrupt::CONFIGURATION);
    }

    /// Returns the memories of the direction in which it sends.
    fn pair(self, guest: Guest) -> Pair {
        Pair {
            windows: &guest.cpu.windows,
            vms: [self.peer().vm(), self.vm()],
            effort: Cell::default(),
        }
    }

    /// A queue of its device is no longer used. Frames that wait for it are lost.
    fn leave(self, role: Role) {
        let mut wire = self.wire(role).lock();
        wire.leave(role);
        if role == Role::Receiver {
            self.peer().wake(&mut wire);
        }
    }

    /// Resets its device.
    fn reset(self, guest: Guest, registers: &mut Registers) {
        let ran = registers.reset();
        Role::ALL.into_iter().for_each(|role| self.leave(role));
        self.device().reasons.clear();
        self.follow(guest);
        if ran {
            self.turn(guest);
        }
    }

    /// Logs what has passed in the direction that it sends.
    fn log(self, visit: Visit, traffic: Traffic) {
        quota::charge(*visit, Effort::RECORD);
        let (link, vm) = (self.number as u8, self.here().vm);
        telemetry::record(&visit, Record::Link { link, vm, traffic });
    }

    /// Its driver has done what none may do.
    fn fail(self, guest: Guest, what: Violation) {
        self.tell(guest, status::NEEDS_RESET | interrupt::CONFIGURATION);
        let name = &self.spec.name;
        let message = format_args!(": link {name}: {what}; its device needs a reset");
        logger::about(self.vm(), Level::Warn, Topic::Act, message);
    }

    /// Wakes its VM, if that waits with the wire.
    fn wake(self, wire: &mut Wire) {
        if take(&mut wire.waits) {
            wake(self.vm());
        }
    }
}

/// Has the first vCPU of a VM that is on send what waits. If all are off, nothing does.
pub fn wake(vm: &Vm) {
    let is_on = |vcpu: &usize| vm.power.state(*vcpu) == State::On;
    if let Some(vcpu) = (0..vm.spec.cores.len()).find(is_on) {
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
        let configuration = device.registers.lock().configuration(port.seen());
        return configuration.unbounded_shr(u32::from(index) * 8);
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
                Change::Left(role) => port.leave(role),
                Change::Started(queues) => {
                    for queue in queues.into_iter().flatten() {
                        port.wire(queue.role).lock().join(queue);
                    }
                    port.turn(*visit);
                }
            }
        }
    }
}

/// Returns the `index`-th link of a VM.
pub fn info(vm: &Vm, index: u64) -> Result<reply::Link, CallError> {
    let port = ports(vm).nth(index as usize).ok_or(CallError::Absent)?;
    let [here, peer] = [port, port.peer()].map(|port| port.device().turns.load(Relaxed) & 1);
    let kind = port.spec.kind as u32 | u32::from(port.peer().here().vm.0) << 8;
    Ok(reply::Link {
        ipa: port.here().ipa.0,
        flags: kind | here << 16 | peer << 17,
    })
}

/// Returns what has passed on the `index`-th link of a VM, from it or to it.
pub fn traffic(vm: &Vm, index: u64, direction: u64) -> Result<reply::Traffic, CallError> {
    let port = ports(vm).nth(index as usize).ok_or(CallError::Absent)?;
    let role = [Role::Sender, Role::Receiver].get(direction as usize);
    let wire = port.wire(*role.ok_or(CallError::Invalid)?);
    let Traffic {
        frames,
        bytes,
        lost,
        ..
    } = wire.lock().traffic;
    Ok(reply::Traffic {
        frames,
        bytes,
        lost,
    })
}

/// Buffers of a queue have become available.
fn notify(visit: Visit, port: Port, queue: u32) {
    quota::charge(*visit, Effort::CALL);
    if queue == Role::Sender as u32 {
        send(visit, port);
    } else {
        port.peer().wake(&mut port.wire(Role::Receiver).lock());
    }
}

/// Sends what waits on all links of the VM.
pub fn send_all(visit: Visit) {
    for port in ports(visit.vm) {
        send(visit, port);
    }
}

/// The VM's life ends: its devices are reset.
pub fn reset_all(visit: Visit) {
    for port in ports(visit.vm) {
        port.reset(*visit, &mut port.device().registers.lock());
    }
    log_all(visit, visit.vm);
}

/// Logs what a VM has sent on all links, at its end.
pub fn log_all(visit: Visit, vm: &Vm) {
    for port in ports(vm) {
        let traffic = port.wire(Role::Sender).lock().traffic;
        port.log(visit, traffic);
    }
}

/// Sends all that is available and for which the peer has room. Between steps, the core serves
/// what is pending, and waits while a budget is spent; a vCPU that has to stop sends no more.
fn send(visit: Visit, port: Port) {
    let peer = port.peer();
    let pair = port.pair(*visit);
    loop {
        let mut wire = port.wire(Role::Sender).lock();
        let step = wire.step(&pair);
        wire.waits = step == Ok(Step::Waits);
        drop(wire);
        let used = match step {
            Ok(Step::Idle | Step::Waits) => break,
            Ok(Step::More) => [false; 2],
            Ok(Step::Used(used)) => used,
            Err(Wrong { role, what }) => {
                [peer, port][role as usize].fail(*visit, what);
                [true; 2]
            }
        };
        for (end, is_told) in [peer, port].into_iter().zip(used) {
            if is_told {
                end.tell(*visit, interrupt::USED);
            }
        }
        if !interrupts::pause(visit, pair.effort.take(), || false) {
            return;
        }
    }
    quota::charge(*visit, pair.effort.take());
    let mut wire = port.wire(Role::Sender).lock();
    let now = timer::now();
    if now >= wire.log_from {
        wire.log_from = now + visit.clock.ticks(LOG_EVERY);
        let traffic = wire.traffic;
        drop(wire);
        port.log(visit, traffic);
    }
}

/// The memories of the VMs at both ends of a direction, as this core reaches them.
struct Pair {
    windows: &'static Windows,
    /// By [`Role`]; events are the receiver's.
    vms: [&'static Vm; 2],
    /// Work that is not paid for.
    effort: Cell<Effort>,
}

impl Pair {
    /// Finds bytes in RAM of an end, and counts their access. They stay there as long as `Vm::still`
    /// is held.
    fn find(&self, role: Role, at: Ipa, len: usize) -> Result<PhysAddr, Wrong> {
        let lines = Effort::LINE.times((len as u64).div_ceil(64));
        let effort = self.effort.get().and(Effort::LOOKUP).and(lines);
        self.effort.set(effort);
        let vm = self.vms[role as usize & 1];
        let offset = at.0 % PAGE_SIZE;
        let fits = offset + len as u64 <= PAGE_SIZE && vm.has_ram(at.page_base());
        // The windows are cached: what a guest stores past the caches would not be seen.
        let is_cached = |page: &Mapping| page.cacheability == Cacheability::WriteBack;
        let page = vm.stage2.mapping(at).filter(|page| fits && is_cached(page));
        let what = Violation::Memory;
        let page = page.ok_or(Wrong { role, what })?;
        Ok(PhysAddr(page.frame.0 + offset))
    }
}

impl Memories for Pair {
    fn read(&self, role: Role, at: Ipa, bytes: &mut [u8]) -> Result<(), Wrong> {
        let _still = self.vms[role as usize & 1].still.lock();
        self.windows.peek(self.find(role, at, bytes.len())?, bytes);
        Ok(())
    }

    fn write(&self, role: Role, at: Ipa, bytes: &[u8]) -> Result<(), Wrong> {
        let _still = self.vms[role as usize & 1].still.lock();
        self.windows.poke(self.find(role, at, bytes.len())?, bytes);
        Ok(())
    }

    fn copy(&self, from: Ipa, to: Ipa, len: u32) -> Result<(), Wrong> {
        // In the order of their numbers, so that two directions do not wait for each other.
        let mut vms = self.vms;
        vms.sort_unstable_by_key(|vm| vm.id);
        let _still = vms.map(|vm| vm.still.lock());
        let from = self.find(Role::Sender, from, len as usize)?;
        let to = self.find(Role::Receiver, to, len as usize)?;
        self.windows.copy_part(from, to, len.into());
        Ok(())
    }
}
