//! The costs of a core's accesses in translation: the registers that control it, and the guest's
//! and hypervisor's real tables.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::state::{Block, Plugin};
use crate::hierarchy::Hierarchy;
use crate::tlb::{Found, Invalidation, Side};
use crate::walk::{Memory, Registers};
use cloison_qemu::cpu::Cpu;
use cloison_qemu::guest::Register;
use cloison_qemu::machine::Machine;

/// The memory as a walk reads it: each descriptor at its time.
struct Walk<'a> {
    machine: &'a dyn Machine,
    cpu: Cpu,
    caches: &'a mut Hierarchy,
    core: usize,
    now: u64,
    /// Cycles that it took.
    wait: u64,
}

impl Memory for Walk<'_> {
    fn read(&mut self, physical: u64, cacheable: bool) -> u64 {
        self.wait += self
            .caches
            .walk_read(self.core, physical, cacheable, self.now + self.wait);
        let mut bytes = [0; 8];
        self.machine.read_memory(self.cpu, physical, &mut bytes);
        u64::from_le_bytes(bytes)
    }
    fn table(&mut self, physical: u64) -> [u64; 512] {
        let mut bytes = [0; 4096];
        self.machine.read_memory(self.cpu, physical, &mut bytes);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|at| u64::from_le_bytes(words[at]))
    }
}

impl Plugin {
    fn read_translation(&self) -> Registers {
        let [
            sctlr,
            tcr,
            low,
            high,
            hcr,
            vtcr,
            vttbr,
            sctlr_el2,
            tcr_el2,
            ttbr_el2,
        ] = self
            .translation_handles
            .of
            .map(|handle| handle.map_or(0, Register::read));
        Registers {
            sctlr,
            tcr,
            ttbr: [low, high],
            hcr,
            vtcr,
            vttbr,
            sctlr_el2,
            tcr_el2,
            ttbr_el2,
        }
    }

    /// Runs at the first block of another exception level, and after a possible write to the
    /// registers.
    pub fn enter_translation(&mut self, core: usize, level: u8) {
        if self.translations[core].stale {
            self.translations[core].registers = self.read_translation();
            self.translations[core].stale = false;
        }
        let translation = &mut self.translations[core];
        translation.tlb.enter(translation.registers.context(level));
    }

    /// Translates an address of the running core. Returns the cycles that it waits.
    #[cold]
    #[inline(never)]
    fn walk(&mut self, core: usize, side: Side, address: u64, now: u64) -> u64 {
        let Some(cpu) = self.cpus[core] else {
            return 0;
        };
        let Self {
            machine,
            caches,
            translations,
            board,
            ..
        } = self;
        let mut walk = Walk {
            machine: &**machine,
            cpu,
            caches,
            core,
            now,
            wait: 0,
        };
        let found = translations[core].tlb.look_up(side, address, &mut walk);
        if found == Found::Micro {
            return 0;
        }
        let wait = walk.wait + board.tlb.map_or(0, |shape| shape.main_cycles);
        let counts = caches.counts_mut(core);
        match side {
            Side::Instruction => counts.l1i_tlb_refills += 1,
            Side::Data => counts.l1d_tlb_refills += 1,
        }
        counts.walks += u64::from(found != Found::Main);
        wait
    }

    /// Translates the address of a load or store. Returns the cycles that the core waits.
    #[inline]
    pub fn translate_data(&mut self, core: usize, address: u64) -> u64 {
        if !self.translates || self.translations[core].tlb.is_latest(Side::Data, address) {
            return 0;
        }
        let now = self.clocks.cycles(core);
        self.walk(core, Side::Data, address, now)
    }

    /// Translates the addresses of a block. Returns the cycles that the core waits.
    #[inline]
    pub fn translate_code(&mut self, core: usize, block: &Block, now: u64) -> u64 {
        if !self.translates {
            return 0;
        }
        let mut wait = 0;
        let last = block.address + 4 * (block.instructions - 1);
        for address in [block.address, last] {
            if !self.translations[core]
                .tlb
                .is_latest(Side::Instruction, address)
            {
                wait += self.walk(core, Side::Instruction, address, now + wait);
            }
        }
        wait
    }

    /// Handles a write to a register that controls translation: its value is read in the next
    /// block.
    pub fn translation_changes(&mut self, core: usize) {
        if self.translates {
            self.translations[core].stale = true;
            self.counters[core].watched = super::counters::NO_LEVEL;
        }
    }

    /// Handles a TLBI.
    pub fn invalidate_translations(
        &mut self,
        core: usize,
        what: Invalidation,
        all: bool,
        register: u8,
    ) {
        if !self.translates {
            return;
        }
        let value = self.register(register);
        let registers = self.translations[core].registers;
        let all = all || self.counters[core].level < 2 && registers.broadcasts();
        let vmid = registers.context(1).vmid;
        for (number, translation) in self.translations.iter_mut().enumerate() {
            if all || number == core {
                translation.tlb.invalidate(what, value, vmid);
            }
        }
    }
}
