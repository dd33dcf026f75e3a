//! Links, as the oracle follows them: what drivers write to their devices, and what EL2 stores to
//! the VM at the other end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::calls::{PageAccess, Place};
use super::tables::Tables;
use crate::instrument::{Moment, Store};
use crate::prover::MAX_CORES;
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use cloison_formats::link::{LinkKind, cid};
use cloison_spec::Difference;
use cloison_spec::link::{self, Buffer, Device, Effect, Memory};
use rustc_hash::FxHashSet as HashSet;

/// An end of a link: the link's number, and which end.
type End = (usize, usize);

/// A core's visit to EL2.
#[derive(Clone, Debug, Default)]
struct Visit {
    /// The device that its guest has accessed, and what follows at the end.
    access: Option<(End, Effect)>,
    /// What [`Links::changes`] was when it began, and each store that it has made since.
    since: Vec<u64>,
    /// Where it last stored to another VM.
    last: Option<(usize, Buffer)>,
    /// It has stored to descriptors, after which nothing is known of them.
    is_spoiled: bool,
    /// The IPAs of its stores to a VM with which its own has a link of sockets.
    packets: HashSet<u64>,
}

/// All links.
pub struct Links {
    system: &'static System,
    devices: Vec<[Device; 2]>,
    visits: [Visit; MAX_CORES],
    /// By VM: how often its memory may have changed.
    changes: Vec<u64>,
}

/// The memory of a VM, as its tables are.
struct Reader<'a, 'm> {
    tables: &'a Tables,
    at: &'a Moment<'m>,
    vm: usize,
}

impl Memory for Reader<'_, '_> {
    fn read(&self, at: Ipa, bytes: &mut [u8]) -> bool {
        let Some(frame) = self.tables.frame(self.vm, at.page_base()) else {
            return false;
        };
        let address = frame.0 + at.0 % PAGE_SIZE;
        self.at.machine.read_memory(self.at.cpu, address, bytes);
        true
    }
}

impl Links {
    /// Returns the links of a system that starts.
    pub fn of(system: &'static System) -> Self {
        let none = vec![0; system.vms.len()];
        Self {
            devices: vec![Default::default(); system.links.len()],
            visits: std::array::from_fn(|_| Visit {
                since: none.clone(),
                ..Visit::default()
            }),
            changes: none,
            system,
        }
    }

    /// Returns whether there are any.
    pub fn are_some(&self) -> bool {
        !self.devices.is_empty()
    }

    /// A guest of this VM has executed.
    pub fn ran(&mut self, vm: usize) {
        self.changes[vm] += 1;
    }

    /// Follows a guest that leaves for EL2, because of an abort at `fault` if there is one.
    pub fn enters(&mut self, at: &Moment<'_>, place: Place, esr: u64, fault: Option<Ipa>) {
        if !self.are_some() {
            return;
        }
        let visit = &mut self.visits[at.core];
        visit.access = None;
        visit.since.copy_from_slice(&self.changes);
        visit.last = None;
        visit.is_spoiled = false;
        visit.packets.clear();
        let vm = VmId(place.0 as u8);
        let Some((end, access)) = fault.and_then(|fault| {
            let mut links = self.system.links_of(vm);
            links.find_map(|(number, spec, end)| {
                let access = PageAccess::of(esr, fault, spec.ends[end].ipa)?;
                Some(((number, end), access))
            })
        }) else {
            return;
        };
        if !access.stores {
            return;
        }
        let is_crossed = self
            .visits
            .iter()
            .any(|other| other.access.is_some_and(|(other, _)| other == end));
        let device = &mut self.devices[end.0][end.1];
        let effect = if is_crossed || access.bytes == 0 {
            device.forget();
            Effect::None
        } else if access.bytes == 4 && access.offset.is_multiple_of(4) {
            device.write(access.offset, at.x(access.register) as u32)
        } else {
            Effect::None
        };
        self.visits[at.core].access = Some((end, effect));
    }

    /// Follows a core whose guest, of this VM, continues.
    pub fn leaves(&mut self, at: &Moment<'_>, vm: usize, tables: &Tables) {
        let visit = &mut self.visits[at.core];
        let access = visit.access.take();
        if access.is_some() || visit.last.is_some() {
            for (number, spec, end) in self.system.links_of(VmId(vm as u8)) {
                let memory = Reader {
                    tables,
                    at,
                    vm: spec.ends[1 - end].vm.index(),
                };
                self.devices[number][1 - end].pause(&memory);
            }
        }
        if let Some((end, effect)) = access {
            self.devices[end.0][end.1].done(effect);
        }
    }

    /// Follows a start of a VM: its devices are reset.
    pub fn restarts(&mut self, vm: usize) {
        let cores = &self.system.vms[vm].cores;
        for core in cores {
            self.visits[core.index() % MAX_CORES].access = None;
        }
        for (number, _, end) in self.system.links_of(VmId(vm as u8)) {
            self.devices[number][end] = Device::default();
        }
    }

    /// Follows a store of EL2 on a core of a VM, before it changes what is known of the tables.
    ///
    /// # Errors
    ///
    /// It is in another VM, and where that has not offered it, or what arrives has a wrong sender.
    pub fn store(
        &mut self,
        at: &Moment<'_>,
        vm: usize,
        store: Store,
        tables: &Tables,
    ) -> Result<(), Difference> {
        let Some((owner, ipa)) = tables.place(PhysAddr(store.address)) else {
            return Ok(());
        };
        let checked = self.check(at, vm, store, (owner, ipa), tables);
        for (number, spec, end) in self.system.links_of(VmId(vm as u8)) {
            if spec.ends[1 - end].vm.index() == owner {
                self.devices[number][1 - end].give(ipa, store.bytes);
            }
        }
        checked
    }

    /// Checks a store at an address of a VM.
    fn check(
        &mut self,
        at: &Moment<'_>,
        vm: usize,
        store: Store,
        (owner, ipa): (usize, Ipa),
        tables: &Tables,
    ) -> Result<(), Difference> {
        let visit = &mut self.visits[at.core];
        self.changes[owner] += 1;
        visit.since[owner] += 1;
        if owner == vm {
            return Ok(());
        }
        let is_there = |&(of, last): &(usize, Buffer)| of == owner && last.has(ipa, store.bytes);
        let last = visit.last.filter(is_there);
        let ends = || {
            let links = self.system.links_of(VmId(vm as u8));
            links.filter_map(|(number, spec, end)| {
                let peer = &spec.ends[1 - end];
                let device = &self.devices[number][1 - end];
                (peer.vm.index() == owner).then_some((spec.kind, device))
            })
        };
        let memory = Reader {
            tables,
            at,
            vm: owner,
        };
        let is_sure = |visit: &Visit| {
            let is_same = !visit.is_spoiled && visit.since[owner] == self.changes[owner];
            is_same && ends().all(|(_, device)| device.is_known())
        };
        let is_of_sockets = ends().any(|(kind, _)| kind == LinkKind::Vsock);
        if is_of_sockets {
            visit.packets.insert(ipa.0);
        }
        if last.is_none() {
            let mut devices = ends().map(|(_, device)| device);
            let place = devices.find_map(|device| device.place(&memory, ipa, store.bytes));
            visit.last = place.map(|place| (owner, place));
            // Of a chain that an earlier visit has taken.
            let was_offered = || ends().any(|(_, device)| device.was_offered(ipa, store.bytes));
            if place.is_none() && is_sure(visit) && !was_offered() {
                return Err(link::stray(vm, owner, ipa, PhysAddr(store.address)));
            }
        }
        visit.is_spoiled |= ends().any(|(_, device)| device.is_descriptor(ipa, store.bytes));
        if !is_of_sockets || store.bytes != 2 || !is_sure(visit) {
            return Ok(());
        }
        let mut header = [0; 16];
        let len = header.len() as u64;
        let mut sockets = ends().filter(|(kind, _)| *kind == LinkKind::Vsock);
        let given = sockets
            .find_map(|(_, device)| device.first_given(&memory, ipa, store.value as u16, len));
        let given = given.filter(|first| {
            let fits = first.0 % PAGE_SIZE + len <= PAGE_SIZE;
            fits && visit.packets.contains(&first.0) && memory.read(*first, &mut header)
        });
        match given {
            Some(_) => {
                let [from, to] = [vm, owner].map(|vm| cid(VmId(vm as u8)));
                link::check_addresses(header, [from, to])
            }
            None => Ok(()),
        }
    }
}
