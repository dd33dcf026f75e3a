//! Stage-2 tables as they are in memory: walked once per VM, then followed store by store.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::instrument::{Moment, Store};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::image::System;
use cloison_spec::maintenance::{self, Maintenance};
use cloison_spec::stage2::{self, ENTRIES, Entry, FIRST_LEVEL, LAST_LEVEL, Memories, Page};
use cloison_spec::{Difference, Rule};
use rustc_hash::{FxHashMap as HashMap, FxHasher};
use std::hash::Hasher;

/// A table that was walked.
#[derive(Clone, Debug)]
struct Table {
    vm: usize,
    level: u8,
    /// The first IPA that it translates.
    first: Ipa,
    entries: Vec<u64>,
}

/// All tables of all VMs that have run.
pub struct Tables {
    memories: Memories<'static>,
    maintenance: Maintenance,
    /// By frame number.
    tables: HashMap<u64, Table>,
    roots: Vec<Option<PhysAddr>>,
    /// Frames of the hypervisor that any of its cores may write, each at its number's place: most
    /// stores go to a few of them. Forgotten with each change of what is known of frames.
    own: [Option<u64>; OWN],
    /// Number of changes of entries so far.
    pub changes: u64,
}

/// Frames that are kept in mind; a power of two.
const OWN: usize = 256;

fn read_table(at: &Moment<'_>, table: PhysAddr) -> Vec<u64> {
    let mut bytes = vec![0; PAGE_SIZE as usize];
    at.machine.read_memory(at.cpu, table.0, &mut bytes);
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(std::array::from_fn(|at| word[at])))
        .collect()
}

/// Returns a digest of a frame's contents.
fn digest(at: &Moment<'_>, frame: PhysAddr) -> u64 {
    let mut bytes = [0; PAGE_SIZE as usize];
    at.machine.read_memory(at.cpu, frame.0, &mut bytes);
    let mut hasher = FxHasher::default();
    hasher.write(&bytes);
    hasher.finish()
}

impl Tables {
    /// Returns the tables of a system that starts.
    pub fn of(system: &'static System) -> Self {
        Self {
            memories: Memories::of(system),
            maintenance: Maintenance::default(),
            tables: HashMap::default(),
            roots: vec![None; system.vms.len()],
            own: [None; OWN],
            changes: 0,
        }
    }

    /// Returns whether a VM's tables are known.
    pub fn knows(&self, vm: usize) -> bool {
        self.roots[vm].is_some()
    }

    /// Returns the VM and the address there of a byte in memory, if a VM has it.
    pub fn place(&self, address: PhysAddr) -> Option<(usize, Ipa)> {
        let page = self.memories.page(address)?;
        Some((page.vm, Ipa(page.ipa.0 + address.0 % PAGE_SIZE)))
    }

    /// Returns the frame of a page of a VM, also while it is moving.
    pub fn frame(&self, vm: usize, page: Ipa) -> Option<PhysAddr> {
        let mut frame = self.roots[vm]?;
        for level in FIRST_LEVEL..=LAST_LEVEL {
            let table = self.tables.get(&frame.page_number())?;
            let index = page.0 / stage2::reach(level) % ENTRIES;
            let entry = table.entries[index as usize];
            frame = (entry != 0).then_some(Entry(entry).frame())?;
        }
        Some(frame)
    }

    /// Returns whether a frame is known as one that the hypervisor alone has, and that is no table.
    pub fn has_own(&self, frame: PhysAddr) -> bool {
        let number = frame.page_number();
        self.own[number as usize % OWN] == Some(number)
    }

    /// Keeps in mind that a store to a frame without an owner was right, on any core.
    fn keep_own(&mut self, frame: PhysAddr) {
        if self.memories.is_own(frame) {
            let number = frame.page_number();
            self.own[number as usize % OWN] = Some(number);
        }
    }

    /// Returns whether all VMs' tables are known.
    fn knows_all(&self) -> bool {
        self.roots.iter().all(Option::is_some)
    }

    /// Walks a VM's tables for the first time.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn walk(&mut self, at: &Moment<'_>, vm: usize, root: PhysAddr) -> Result<(), Difference> {
        self.roots[vm] = Some(root);
        self.own = [None; OWN];
        let mut found = HashMap::default();
        let mut ahead = vec![(root, FIRST_LEVEL, 0)];
        while let Some((table, level, first)) = ahead.pop() {
            self.memories.check_table(vm, level, table)?;
            let entries = read_table(at, table);
            for (index, &entry) in entries.iter().enumerate() {
                let ipa = Ipa(first + index as u64 * stage2::reach(level));
                let page = Page { vm, ipa };
                if level == LAST_LEVEL {
                    self.memories.check(page, Entry(entry))?;
                    if entry != 0 {
                        found.insert(ipa.page_number(), Entry(entry));
                    }
                    continue;
                }
                Memories::check_upper(page, level, entry)?;
                if entry != 0 {
                    ahead.push((Entry(entry).frame(), level + 1, ipa.0));
                }
            }
            let walked = Table {
                vm,
                level,
                first: Ipa(first),
                entries,
            };
            if self.tables.insert(table.page_number(), walked).is_some() {
                return Err(Difference::new(
                    Rule::Tables,
                    format!("VM {vm}, table of level {level}"),
                    "a table that no other entry leads to",
                    table.to_string(),
                ));
            }
        }
        self.memories.check_whole(vm, &found)
    }

    /// Compares all tables of a VM in memory with what was followed.
    ///
    /// # Errors
    ///
    /// An entry changed unseen, or the VM has other tables.
    pub fn compare(&self, at: &Moment<'_>, vm: usize, root: PhysAddr) -> Result<(), Difference> {
        if self.roots[vm] != Some(root) {
            return Err(Difference::new(
                Rule::Root,
                format!("VM {vm}, VTTBR_EL2"),
                self.roots[vm].map_or_else(
                    || "none: the VM has not run".to_owned(),
                    |root| format!("the tables at {root}"),
                ),
                root.to_string(),
            ));
        }
        for (&number, table) in self.tables.iter().filter(|(_, table)| table.vm == vm) {
            let address = PhysAddr(number * PAGE_SIZE);
            let now = read_table(at, address);
            if let Some(index) = (0..ENTRIES as usize).find(|&i| now[i] != table.entries[i]) {
                return Err(Difference::new(
                    Rule::Tables,
                    format!("VM {vm}, entry {index} of the table at {address}"),
                    format!("{:#x}", table.entries[index]),
                    format!("{:#x}", now[index]),
                ));
            }
        }
        Ok(())
    }

    /// Follows a store of EL2 on a core of a VM.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn store(&mut self, at: &Moment<'_>, vm: usize, store: Store) -> Result<(), Difference> {
        let address = PhysAddr(store.address);
        let Some(table) = self.tables.get_mut(&address.page_number()) else {
            let moving = self.maintenance.is_broken(address);
            // While a VM is loaded, the frames that it will have are nobody's.
            if moving.or(self.memories.owner(address)).is_none() && !self.knows_all() {
                return Ok(());
            }
            self.memories.check_store(vm, address, moving)?;
            if moving.or(self.memories.owner(address)).is_none() {
                self.keep_own(address);
            }
            return Ok(());
        };
        let index = (store.address % PAGE_SIZE / 8) as usize;
        let before = table.entries[index];
        let after = if store.bytes == 8 {
            store.value
        } else {
            // A part of an entry: not an atomic change.
            let (shift, mask) = (store.address % 8 * 8, (1 << (store.bytes * 8)) - 1);
            before & !(mask << shift) | (store.value & mask) << shift
        };
        table.entries[index] = after;
        let page = Page {
            vm: table.vm,
            ipa: Ipa(table.first.0 + index as u64 * stage2::reach(table.level)),
        };
        if table.level != LAST_LEVEL {
            if before == after {
                return Ok(());
            }
            return Err(Difference::new(
                Rule::Tables,
                format!("VM {}, IPA {}, level {}", page.vm, page.ipa, table.level),
                format!("{before:#x}"),
                format!("{after:#x}"),
            ));
        }
        let (before, after) = (Entry(before), Entry(after));
        self.changes += 1;
        self.own = [None; OWN];
        self.maintenance
            .check_contents(page, after, |frame| digest(at, frame))?;
        self.maintenance.change(at.core, page, before, after)?;
        self.memories.forget(page, before);
        self.memories.check(page, after)
    }

    /// Follows an instruction of EL2 on a core of a VM.
    pub fn executes(&mut self, at: &Moment<'_>, vm: usize) {
        if self.maintenance.is_quiet() {
            return;
        }
        if let Some(act) = maintenance::act(at.word, at.operand()) {
            self.maintenance.follow(at.core, vm, act);
            self.maintenance.note_contents(|frame| digest(at, frame));
        }
    }

    /// Checks that a core whose guest continues has completed its changes.
    ///
    /// # Errors
    ///
    /// It has not.
    pub fn leave(&self, core: usize) -> Result<(), Difference> {
        self.maintenance.leave(core)
    }
}
