//! The interface between QEMU's callbacks and an instrument that watches EL2.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_qemu::cpu::Cpu;
use cloison_qemu::guest::{Register, Start};
use cloison_qemu::internals::Internals;
use cloison_qemu::machine::Machine;
use std::collections::HashMap;

/// What QEMU before 11.1 calls registers: as AArch32 does. Other names are the architecture's.
const OLDER: [(&str, &str); 6] = [
    ("AMAIR_EL1", "AMAIR0"),
    ("CNTKCTL_EL1", "CNTKCTL"),
    ("CPACR_EL1", "CPACR"),
    ("CSSELR_EL1", "CSSELR"),
    ("SCTLR_EL1", "SCTLR"),
    ("VBAR_EL1", "VBAR"),
];

/// The registers of the running CPU, by QEMU's names.
#[derive(Debug, Default)]
pub struct Names(HashMap<&'static [u8], Register>);

impl Names {
    /// Collects the registers of a CPU that starts.
    pub fn of(start: &Start) -> Self {
        Self(start.registers().into_iter().collect())
    }

    /// Returns the handle of a register, by the architecture's name, if QEMU has it.
    pub fn get(&self, name: &str) -> Option<Register> {
        let older = OLDER.iter().find(|(newer, _)| *newer == name);
        let older = older.and_then(|(_, older)| self.0.get(older.as_bytes()));
        self.0.get(name.as_bytes()).or(older).copied()
    }

    /// Returns the value of a register, or 0 if QEMU does not have it.
    pub fn read(&self, name: &str) -> u64 {
        self.get(name).map_or(0, Register::read)
    }
}

/// The place and time of a callback.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// The core that executes.
    pub core: usize,
    /// The core, as QEMU has it.
    pub cpu: Cpu,
    /// Virtual address of the instruction; 0 where a callback has none.
    pub address: u64,
    /// Its code; 0 where a callback has none.
    pub word: u32,
    /// Reads and writes memory.
    pub machine: &'a dyn Machine,
    /// QEMU's own functions.
    pub internals: &'static Internals,
    /// Registers by name: only in callbacks that read registers, which are all but
    /// [`Instrument::block`], [`Instrument::guest_block`], [`Instrument::guest_vector`] and
    /// [`Instrument::stores`].
    pub names: &'a Names,
    /// x0 to x30.
    pub general: &'a [Register; 31],
}

impl Moment<'_> {
    /// Returns the value of the general register with this number; 31 is XZR.
    pub fn x(&self, number: u32) -> u64 {
        self.general
            .get(number as usize)
            .map_or(0, |register| register.read())
    }

    /// Returns the value that the instruction at hand moves to a system register, or the operand of
    /// its maintenance operation: the register in bits 0 to 4 of its code.
    pub fn operand(&self) -> u64 {
        self.x(self.word & 31)
    }
}

/// A store of EL2 that has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Physical address.
    pub address: u64,
    /// Whether a device is there.
    pub is_device: bool,
    /// Number of bytes.
    pub bytes: u64,
    /// Its lower 64 bits.
    pub value: u64,
}

/// The callbacks that an instrument needs besides entries to EL2 and returns from it. Those that no
/// instrument needs cost nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// [`Instrument::block`].
    pub blocks: bool,
    /// [`Instrument::stores`].
    pub stores: bool,
    /// [`Instrument::executes`].
    pub system: bool,
    /// [`Instrument::guest_block`].
    pub guest_blocks: bool,
    /// [`Instrument::hint`].
    pub hints: bool,
    /// [`Instrument::guest_vector`].
    pub guest_vectors: bool,
}

/// What an instrument has found: a promise that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The rule or the kind, such as `fatal` or `stage2.frame`.
    pub rule: String,
    /// One sentence: what was expected, what was found.
    pub what: String,
    /// The core on which it was seen.
    pub core: usize,
}

/// Something that watches EL2.
pub trait Instrument {
    /// Returns the callbacks that it needs.
    fn needs(&self) -> Needs;
    /// A core starts, before its first instruction.
    fn starts(&mut self, _core: usize) {}
    /// A core takes an exception from a guest: `vector` is the offset in EL2's table, 0x400 to
    /// 0x780, or from EL2 itself, below that. The general registers are still the guest's.
    fn enters(&mut self, _at: &Moment<'_>, _vector: u16) {}
    /// A core is about to return to a guest (ERET). The general registers are the guest's already.
    fn leaves(&mut self, _at: &Moment<'_>) {}
    /// A core begins a basic block of EL2, the one with this index in
    /// [`Blocks`](crate::blocks::Blocks).
    fn block(&mut self, _at: &Moment<'_>, _block: usize) {}
    /// Returns whether it learns nothing from stores to the page of this physical address.
    fn ignores(&self, _address: u64) -> bool {
        false
    }
    /// EL2 has stored.
    fn stores(&mut self, _at: &Moment<'_>, _store: Store) {}
    /// EL2 is about to write a system register, to maintain a cache or TLB, or to execute a barrier:
    /// [`Moment::word`], with [`Moment::operand`].
    fn executes(&mut self, _at: &Moment<'_>) {}
    /// A guest begins a part of a block, of this many instructions, that executes as a whole.
    fn guest_block(&mut self, _at: &Moment<'_>, _instructions: usize) {}
    /// A guest executes a HINT with this number, one of those that the architecture keeps free.
    fn hint(&mut self, _at: &Moment<'_>, _number: u32) {}
    /// A guest begins a block where a vector may be, whose first instruction may never complete.
    fn guest_vector(&mut self, _at: &Moment<'_>) {}
    /// Returns what was found since the last call. Called after entries, returns and hints.
    fn finding(&mut self) -> Option<Finding> {
        None
    }
    /// Some instrument has found something: the run ends after this.
    fn found(&mut self, _finding: &Finding) {}
    /// The run ends.
    fn ends(&mut self) {}
}
