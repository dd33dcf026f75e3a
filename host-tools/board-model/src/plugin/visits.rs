//! Follows visits to EL2, without caches or clock. For runs under `-icount`, which use QEMU's own
//! clock.
//!
//! Cores take turns of a few instructions each, as if they ran in parallel. A core that waits for
//! another then executes about as many instructions as that one, not as many as fit between two
//! timers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::MAX_CORES;
use crate::statistics;
use crate::visits::{Entry, Follower};
use cloison_qemu::cpu::{Cpu, Running};
use cloison_qemu::guest::{Qemu, Register, Start, level};
use cloison_qemu::internals::Internals;
use cloison_qemu::listener::{
    Accesses, Home, Listener, MemoryAccess, NewBlock, Place, Registers, listen,
};
use std::collections::HashMap;
use std::path::PathBuf;

const ERET: u32 = 0xd69f_03e0;
const WFI: u32 = 0xd503_207f;
const ISB: u32 = 0xd503_3fdf;
const EL2: u8 = 2;

/// The plugin's arguments for following visits.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The file for the longest stretches.
    pub file: PathBuf,
    /// Physical address of GICC_IAR.
    pub acknowledge: u64,
    /// Instructions in a turn.
    pub turn: u64,
    /// GIC IDs of the overflow interrupts where they are shared ones; none if each core has its
    /// private one.
    pub overflows: Vec<u32>,
    /// Addresses of functions that name the purpose of a visit.
    pub marks: Vec<(u64, String)>,
}

/// The registers that are read.
#[derive(Clone, Copy, Debug)]
struct Named {
    cpsr: Register,
    esr: Register,
    elr: Register,
    hpfar: Register,
    x0: Register,
}

/// What an instruction at EL2 does to a visit.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// An exception may enter here, or a visit gets its purpose.
    Entry,
    /// Returns to the guest.
    Return,
    /// Waits for an interrupt.
    Wait,
    /// May be a loop that waits for another core.
    Barrier,
    /// Nothing.
    Plain,
}

/// An instruction at EL2.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    address: u64,
    role: Role,
}

/// State of the callbacks. All vCPUs share one thread under `-icount`.
struct State {
    internals: &'static Internals,
    wanted: Wanted,
    follower: Follower,
    cpus: [Option<Cpu>; MAX_CORES],
    running: Option<Running>,
    registers: Option<Named>,
    /// The instructions at EL2, by the data of their callbacks.
    instructions: Vec<Instruction>,
    /// The data of an address: QEMU translates an instruction many times.
    known: HashMap<u64, usize>,
    /// The core whose turn it is, and the instructions of it.
    turn: (usize, u64),
}

static STATE: Home<State> = Home::empty();

/// Starts following; the longest stretches are written at the end.
pub fn install(qemu: &Qemu, cores: usize, mut wanted: Wanted) -> Result<(), String> {
    let internals = Internals::find()?;
    let follower = Follower::new(
        cores,
        std::mem::take(&mut wanted.overflows),
        std::mem::take(&mut wanted.marks),
    );
    let state = State {
        internals,
        wanted,
        follower,
        cpus: [None; MAX_CORES],
        running: None,
        registers: None,
        instructions: Vec::new(),
        known: HashMap::new(),
        turn: (0, 0),
    };
    listen(qemu, state)
}

impl State {
    fn core(&self) -> usize {
        let cpu = self.running.and_then(Running::cpu);
        self.cpus
            .iter()
            .position(|known| known.is_some() && *known == cpu)
            .unwrap_or(0)
    }

    /// Follows a core to a vector or a mark.
    fn enter(&mut self, core: usize, address: u64) {
        if let Some(registers) = self.registers
            && self.follower.is_in_guest(core)
        {
            let entry = Entry {
                vector: address,
                esr: registers.esr.read(),
                elr: registers.elr.read(),
                hpfar: registers.hpfar.read(),
                x0: registers.x0.read(),
            };
            self.follower.enter(core, entry);
        }
        self.follower.mark(core, address);
    }
}

impl Listener for State {
    fn home() -> &'static Home<Self> {
        &STATE
    }

    fn starts(&mut self, start: &Start) {
        self.cpus[start.core % MAX_CORES] = self.internals.cpu(start.core);
        if start.core != 0 {
            return;
        }
        self.running = Some(start.running());
        let [cpsr, esr, elr, hpfar, x0] =
            start.named([b"cpsr", b"ESR_EL2", b"ELR_EL2", b"HPFAR_EL2", b"x0"]);
        self.registers = Some(Named {
            cpsr,
            esr,
            elr,
            hpfar,
            x0,
        });
    }

    fn translates(&mut self, block: &NewBlock<'_, Self>) {
        block.on_block(Registers::Unused, block.instructions);
        // QEMU has separate translations for each level.
        let is_el2 = self
            .registers
            .is_some_and(|registers| level(registers.cpsr.read()) == EL2);
        if !is_el2 {
            return;
        }
        for at in 0..block.instructions {
            let address = block.address(at);
            let role = match block.word(at) {
                // Vectors are 128 bytes apart.
                _ if address & 0x7f == 0 || self.follower.is_mark(address) => Role::Entry,
                ERET => Role::Return,
                WFI => Role::Wait,
                ISB => Role::Barrier,
                _ => Role::Plain,
            };
            let registers = match role {
                Role::Entry => Registers::Read,
                _ => Registers::Unused,
            };
            let data = *self.known.entry(address).or_insert_with(|| {
                self.instructions.push(Instruction { address, role });
                self.instructions.len() - 1
            });
            block.on_instruction(at, registers, data);
            block.on_memory(at, Accesses::Loads, data);
        }
    }

    fn block(&mut self, instructions: usize) {
        let core = self.core();
        if self.turn.0 != core {
            self.turn = (core, 0);
        }
        self.turn.1 += instructions as u64;
        if self.turn.1 >= self.wanted.turn {
            self.turn.1 = 0;
            if let Some(cpu) = self.cpus[core] {
                self.internals.exit(cpu);
            }
        }
    }

    fn instruction(&mut self, data: usize) {
        let core = self.core();
        let Instruction { address, role } = self.instructions[data];
        if let Role::Entry = role {
            self.enter(core, address);
        }
        self.follower.execute(core, address);
        match role {
            Role::Return => self.follower.leave(core),
            Role::Wait => self.follower.wait(core),
            Role::Barrier => self.follower.barrier(core, address),
            Role::Entry | Role::Plain => {}
        }
    }

    fn memory(&mut self, access: &MemoryAccess<'_>, data: usize) {
        if access.place(access.address) == Some(Place::Device(self.wanted.acknowledge)) {
            let core = self.core();
            let address = self.instructions[data].address;
            self.follower
                .acknowledge(core, address, access.value() as u32);
        }
    }

    fn ends(&mut self) {
        if let Err(error) = statistics::write(self.follower.visits(), &self.wanted.file) {
            eprintln!(
                "board-model: cannot write {}: {error}",
                self.wanted.file.display()
            );
        }
    }
}
