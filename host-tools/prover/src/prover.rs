//! The plugin's listener: one set of callbacks that serves all instruments.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::blocks::Blocks;
use crate::instrument::{Finding, Instrument, Moment, Names, Needs, Store};
use cloison_qemu::cpu::{Cpu, Running};
use cloison_qemu::guest::{Register, Start, level};
use cloison_qemu::internals::Internals;
use cloison_qemu::listener::{Accesses, Home, Listener, MemoryAccess, NewBlock, Place, Registers};
use cloison_qemu::machine::Machine;
use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;

/// Cores that a board may have.
pub const MAX_CORES: usize = 16;
/// QEMU's exit code after a finding.
pub const FOUND: i32 = 42;

const ERET: u32 = 0xd69f_03e0;
const WFI: u32 = 0xd503_207f;
const EL2: u8 = 2;

/// What a callback is for, in the low bits of its data; the rest is an index in `sites`, or a number
/// of instructions.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Tag {
    Leader,
    Vector,
    Return,
    System,
    Hint,
    Guest,
    Wait,
    GuestVector,
}

const TAGS: u32 = 3;

impl Tag {
    const fn data(self, index: usize) -> usize {
        index << TAGS | self as usize
    }
}

/// An instruction with a callback.
#[derive(Clone, Copy, Debug)]
struct Site {
    address: u64,
    word: u32,
}

impl Finding {
    /// Ends QEMU with [`FOUND`], after everything about the finding has been written.
    pub fn end_run(&self) -> ! {
        eprintln!("prover: {}: {}", self.rule, self.what);
        std::process::exit(FOUND)
    }
}

/// State of the callbacks.
pub struct Prover {
    internals: &'static Internals,
    machine: Box<dyn Machine>,
    blocks: Arc<Blocks>,
    instruments: Vec<(Needs, Box<dyn Instrument>)>,
    /// What any of them needs.
    needs: Needs,
    running: Option<Running>,
    cpus: [Option<Cpu>; MAX_CORES],
    names: Names,
    general: Option<[Register; 31]>,
    cpsr: Option<Register>,
    vbar: Option<Register>,
    /// The cores, a bit each, that have waited since their guest last ran.
    waited: u16,
    sites: Vec<Site>,
    known: HashMap<(u64, u32), usize>,
}

/// Returns the number of a CPU.
fn core(cpus: &[Option<Cpu>; MAX_CORES], cpu: Cpu) -> usize {
    let found = cpus.iter().position(|known| *known == Some(cpu));
    found.unwrap_or(0)
}

static PROVER: Home<Prover> = Home::empty();

impl Prover {
    /// Returns one for these instruments.
    pub fn new(
        internals: &'static Internals,
        machine: Box<dyn Machine>,
        blocks: Arc<Blocks>,
        instruments: Vec<Box<dyn Instrument>>,
    ) -> Self {
        let mut needs = Needs::default();
        let instruments: Vec<_> = instruments
            .into_iter()
            .map(|one| (one.needs(), one))
            .collect();
        for (one, _) in &instruments {
            needs.blocks |= one.blocks;
            needs.stores |= one.stores;
            needs.system |= one.system;
            needs.guest_blocks |= one.guest_blocks;
            needs.hints |= one.hints;
            needs.guest_vectors |= one.guest_vectors;
        }
        Self {
            internals,
            machine,
            blocks,
            instruments,
            needs,
            running: None,
            cpus: [None; MAX_CORES],
            names: Names::default(),
            general: None,
            cpsr: None,
            vbar: None,
            waited: 0,
            sites: Vec::new(),
            known: HashMap::default(),
        }
    }

    fn site(&mut self, address: u64, word: u32) -> usize {
        *self.known.entry((address, word)).or_insert_with(|| {
            self.sites.push(Site { address, word });
            self.sites.len() - 1
        })
    }

    /// Lends those instruments that want it with the place of a callback.
    #[inline]
    fn each(
        &mut self,
        site: Site,
        wants: impl Fn(&Needs) -> bool,
        mut what: impl FnMut(&mut dyn Instrument, &Moment<'_>),
    ) {
        let (Some(cpu), Some(general)) = (self.running.and_then(Running::cpu), &self.general)
        else {
            return;
        };
        let moment = Moment {
            core: core(&self.cpus, cpu),
            cpu,
            address: site.address,
            word: site.word,
            machine: &*self.machine,
            internals: self.internals,
            names: &self.names,
            general,
        };
        for (needs, instrument) in &mut self.instruments {
            if wants(needs) {
                what(&mut **instrument, &moment);
            }
        }
    }

    /// A core is about to wait for an interrupt at EL2. QEMU would return at once if one is pending
    /// for the guest, and the hypervisor would spin.
    fn wait(&mut self) {
        if let Some(cpu) = self.running.and_then(Running::cpu) {
            self.internals.hide_virtual(cpu);
            self.waited |= 1 << core(&self.cpus, cpu);
        }
    }

    /// A core is about to return to its guest, which takes its interrupts.
    fn wake(&mut self) {
        if self.waited != 0
            && let Some(cpu) = self.running.and_then(Running::cpu)
        {
            let bit = 1 << core(&self.cpus, cpu);
            if self.waited & bit != 0 {
                self.waited &= !bit;
                self.internals.show_virtual(cpu);
            }
        }
    }

    /// Ends the run if an instrument has found something.
    fn judge(&mut self) {
        let Some(finding) = self.finding() else {
            return;
        };
        self.conclude(&finding);
        finding.end_run()
    }

    /// Returns what an instrument has found.
    fn finding(&mut self) -> Option<Finding> {
        let mut all = self.instruments.iter_mut();
        all.find_map(|(_, one)| one.finding())
    }

    fn conclude(&mut self, finding: &Finding) {
        for (_, instrument) in &mut self.instruments {
            instrument.found(finding);
        }
        for (_, instrument) in &mut self.instruments {
            instrument.ends();
        }
    }

    /// Asks for the callbacks of a block at EL2.
    fn translate_el2(&mut self, block: &NewBlock<'_, Self>) {
        let vectors = self.vbar.map_or(0, Register::read);
        for at in 0..block.instructions {
            let (address, word) = (block.address(at), block.word(at));
            if address.wrapping_sub(vectors) < 0x800 && address & 0x7f == 0 {
                let site = self.site(address, word);
                block.on_instruction(at, Registers::Read, Tag::Vector.data(site));
            }
            if self.needs.blocks
                && let Some(index) = self.blocks.starting_at(address)
            {
                block.on_instruction(at, Registers::Unused, Tag::Leader.data(index));
            }
            if self.needs.blocks && word == WFI {
                block.on_instruction(at, Registers::Unused, Tag::Wait.data(0));
            }
            if word == ERET {
                let site = self.site(address, word);
                block.on_instruction(at, Registers::Read, Tag::Return.data(site));
            }
            if self.needs.system && is_system(word) {
                let site = self.site(address, word);
                block.on_instruction(at, Registers::Read, Tag::System.data(site));
            }
            if self.needs.stores {
                let site = self.site(address, word);
                block.on_memory(at, Accesses::Stores, site);
            }
        }
    }
}

/// Returns whether an instruction writes a system register, maintains a cache or TLB, or is a
/// barrier (Arm ARM, C4.1.66: "Barriers", "System instructions", "System register move").
const fn is_system(word: u32) -> bool {
    let writes = word & 0xffe0_0000 == 0xd500_0000 && word >> 19 & 3 != 0;
    let barrier = word & 0xffff_f01f == 0xd503_301f;
    writes || barrier
}

/// Returns the number of a HINT that the architecture keeps free: CRm from 8 up.
const fn hint(word: u32) -> Option<u32> {
    let number = word >> 5 & 127;
    if word & 0xffff_f01f == 0xd503_201f && number >= 64 {
        Some(number)
    } else {
        None
    }
}

impl Listener for Prover {
    fn home() -> &'static Home<Self> {
        &PROVER
    }

    fn starts(&mut self, start: &Start) {
        self.cpus[start.core % MAX_CORES] = self.internals.cpu(start.core);
        if start.core == 0 {
            self.running = Some(start.running());
            self.names = Names::of(start);
            let names: Vec<String> = (0..31).map(|number| format!("x{number}")).collect();
            self.general = Some(start.named(std::array::from_fn(|at| names[at].as_bytes())));
            let [cpsr] = start.named([b"cpsr"]);
            self.cpsr = Some(cpsr);
            self.vbar = self.names.get("VBAR_EL2");
        }
        for (_, instrument) in &mut self.instruments {
            instrument.starts(start.core);
        }
    }

    fn translates(&mut self, block: &NewBlock<'_, Self>) {
        // QEMU has separate translations for each level.
        if self.cpsr.is_some_and(|cpsr| level(cpsr.read()) == EL2) {
            self.translate_el2(block);
            return;
        }
        // Entries of a table of vectors are 0x80 bytes apart (Arm ARM, D1.3.1).
        let address = block.address(0);
        if self.needs.guest_vectors && address & 0x7f == 0 {
            let site = self.site(address, 0);
            block.on_instruction(0, Registers::Unused, Tag::GuestVector.data(site));
        }
        if self.needs.guest_blocks {
            for part in block.parts() {
                let data = Tag::Guest.data(part.instructions);
                block.on_instruction(part.first, Registers::Unused, data);
            }
        }
        if self.needs.hints {
            for at in 0..block.instructions {
                let word = block.word(at);
                if hint(word).is_some() {
                    let site = self.site(block.address(at), word);
                    block.on_instruction(at, Registers::Read, Tag::Hint.data(site));
                }
            }
        }
    }

    fn instruction(&mut self, data: usize) {
        const LEADER: usize = Tag::Leader as usize;
        const VECTOR: usize = Tag::Vector as usize;
        const RETURN: usize = Tag::Return as usize;
        const SYSTEM: usize = Tag::System as usize;
        const GUEST: usize = Tag::Guest as usize;
        const WAIT: usize = Tag::Wait as usize;
        const GUEST_VECTOR: usize = Tag::GuestVector as usize;
        let index = data >> TAGS;
        match data & ((1 << TAGS) - 1) {
            LEADER => {
                let site = Site {
                    address: self.blocks.all[index].start,
                    word: 0,
                };
                self.each(site, |needs| needs.blocks, |one, at| one.block(at, index));
            }
            VECTOR => {
                let site = self.sites[index];
                let vector = (site.address & 0x7ff) as u16;
                self.each(site, |_| true, |one, at| one.enters(at, vector));
                self.judge();
            }
            WAIT => self.wait(),
            RETURN => {
                self.wake();
                self.each(self.sites[index], |_| true, |one, at| one.leaves(at));
                self.judge();
            }
            GUEST => {
                let nowhere = Site {
                    address: 0,
                    word: 0,
                };
                self.each(
                    nowhere,
                    |needs| needs.guest_blocks,
                    |one, at| one.guest_block(at, index),
                );
            }
            GUEST_VECTOR => self.each(
                self.sites[index],
                |needs| needs.guest_vectors,
                |one, at| one.guest_vector(at),
            ),
            SYSTEM => self.each(
                self.sites[index],
                |needs| needs.system,
                |one, at| one.executes(at),
            ),
            _ => {
                let site = self.sites[index];
                let number = hint(site.word).unwrap_or_default();
                self.each(site, |needs| needs.hints, |one, at| one.hint(at, number));
                self.judge();
            }
        }
    }

    fn memory(&mut self, access: &MemoryAccess<'_>, data: usize) {
        let (address, is_device) = match access.place(access.address) {
            Some(Place::Memory(address)) => (address, false),
            Some(Place::Device(address)) => (address, true),
            None => return,
        };
        let mut watching = self.instruments.iter().filter(|(needs, _)| needs.stores);
        if watching.all(|(_, one)| one.ignores(address)) {
            return;
        }
        let store = Store {
            address,
            is_device,
            bytes: access.bytes(),
            value: access.value(),
        };
        self.each(
            self.sites[data],
            |needs| needs.stores,
            |one, at| one.stores(at, store),
        );
    }

    fn ends(&mut self) {
        match self.finding() {
            Some(finding) => {
                self.conclude(&finding);
                eprintln!("prover: {}: {}", finding.rule, finding.what);
            }
            None => {
                for (_, instrument) in &mut self.instruments {
                    instrument.ends();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_with_callbacks_are_told_from_others() {
        assert!(is_system(0xd50c_871f)); // tlbi vmalle1
        assert!(is_system(0xd518_2000)); // msr ttbr0_el1, x0
        assert!(is_system(0xd503_3b9f)); // dsb ish
        assert!(!is_system(0xd538_2000)); // mrs x0, ttbr0_el1
        assert!(!is_system(0xd503_201f)); // nop
        assert_eq!(hint(0xd503_201f | 120 << 5), Some(120));
        assert_eq!(hint(0xd503_201f), None);
        assert_eq!(hint(0xd503_207f), None); // wfi
    }
}
