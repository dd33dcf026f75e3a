//! What a vCPU of the puppet has to itself: its program, and the code of its instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_guest::abi::{Call, irq};
use cloison_guest::{args, cpu, gic, probe, timer};
use cloison_puppet::{ASK, LAST, LEASE, LONGEST, OP_WORDS, Op, is_harmless};
use core::cell::UnsafeCell;

/// vCPUs that a puppet may have.
pub const VCPUS: usize = 2;
/// Words for a program: the number of its operations, and these.
const WORDS: usize = 1 + LONGEST * OP_WORDS;
/// Instructions that are kept ready, by code: writing code makes an emulator translate it again, and
/// takes it as long as several exits.
const SLOTS: usize = 1024;
/// Words of code for one.
const CODE_WORDS: usize = 8;
/// Position of the instruction itself.
const HOLE: usize = 3;

/// What a vCPU has to itself.
#[repr(C, align(4096))]
pub struct Own {
    /// The number of operations, and these.
    pub program: [u64; WORDS],
    /// x0 to x3 before an instruction, and x0 and x1 after it.
    registers: [u64; 6],
    last: u64,
    lease: u64,
    words: [u32; SLOTS],
    code: [[u32; CODE_WORDS]; SLOTS],
}

/// The vCPUs' own memory.
struct All([UnsafeCell<Own>; VCPUS]);

// SAFETY: each vCPU uses its own element only.
unsafe impl Sync for All {}

static OWN: All = All([const {
    UnsafeCell::new(Own {
        program: [0; WORDS],
        registers: [0; 6],
        last: 0,
        lease: 0,
        words: [0; SLOTS],
        code: [[0; CODE_WORDS]; SLOTS],
    })
}; VCPUS]);

/// Lends the calling vCPU's own memory. A vCPU asks once: it never returns it.
pub fn lend() -> &'static mut Own {
    // SAFETY: no other vCPU has this element, and the calling one asks at its start only.
    unsafe { &mut *OWN.0[cpu::current() % VCPUS].get() }
}

/// Returns the slot for an instruction: by its upper bits, which name it, as by its registers. Those
/// that programs have most share none.
const fn slot(word: u32) -> usize {
    ((word ^ word >> 22).wrapping_mul(0x9e37_79b1) >> 22) as usize % SLOTS
}

/// Waits for as long as a short loop of this many turns takes. A block of many instructions is
/// emulated fast.
pub fn delay(turns: u64) {
    // SAFETY: counts down, and does nothing else.
    unsafe {
        cloison_guest::asm!(
            "2: nop; nop; nop; nop; nop; nop; nop; nop; nop; nop",
            "subs {turns}, {turns}, #3",
            "b.hi 2b",
            turns = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

impl Own {
    /// Asks for a program.
    pub fn ask(&mut self) {
        let [vm, ..] = args();
        // SAFETY: a hint, at which the fuzzer writes to the memory that the registers name.
        unsafe {
            cloison_guest::asm!(
                "hint #{ask}",
                ask = const ASK,
                in("x0") self.program.as_mut_ptr(),
                in("x1") WORDS,
                in("x2") vm,
                in("x3") cpu::current(),
                options(nostack, preserves_flags),
            );
        }
    }

    /// Executes an instruction that the puppet survives.
    pub fn execute(&mut self, word: u32, x: [u64; 4]) {
        let x = x.map(|value| match value {
            LAST => self.last,
            LEASE => self.lease,
            value => value,
        });
        if !is_harmless(word, x) {
            return;
        }
        // WFI and WFE: something must wake the vCPU.
        if word == 0xd503_207f || word == 0xd503_205f {
            gic::init_distributor();
            gic::init_cpu();
            gic::enable(irq::VTIMER);
            timer::arm(timer::now() + timer::micros(10));
        }
        let slot = slot(word);
        if self.words[slot] != word {
            self.prepare(slot, word);
        }
        let registers = &raw mut self.registers;
        let code = (&raw const self.code[slot]).addr() as u64;
        // SAFETY: this vCPU's own memory, which the code reads and writes too. `prepare` has written
        // the code, which changes x0 to x9 besides the instruction's own effects, which
        // `is_harmless` has judged; then it returns.
        let [status, result] = unsafe {
            registers.write_volatile([x[0], x[1], x[2], x[3], 0, self.last]);
            if probe::jump(code, registers.expose_provenance() as u64, 0).is_err() {
                return;
            }
            let [.., status, result] = registers.read_volatile();
            [status, result]
        };
        if status == 0 {
            self.last = result;
            let is_call = word & 0xffe0_001c == 0xd400_0000;
            if is_call && x[0] as u32 == Call::Lease as u32 {
                self.lease = result;
            }
        }
    }

    /// Writes a list of pages.
    pub fn list(&mut self, op: Op) {
        for (at, entry) in op.entries() {
            // SAFETY: `entries` has words in the RAM that programs may write, which the puppet does
            // not use itself.
            unsafe { (at as *mut u64).write_volatile(entry) };
        }
    }

    /// Writes the code of an instruction.
    fn prepare(&mut self, slot: usize, word: u32) {
        // Each store to code is slow in an emulator.
        if self.words[slot] == 0 {
            self.code[slot] = [
                0xaa00_03e9, // mov x9, x0
                0xa941_0d22, // ldp x2, x3, [x9, #16]
                0xa940_0520, // ldp x0, x1, [x9]
                word,
                0xa902_0520, // stp x0, x1, [x9, #32]
                0xd65f_03c0, // ret
                0,
                0,
            ];
        } else {
            self.code[slot][HOLE] = word;
        }
        self.words[slot] = word;
        let address = (&raw const self.code[slot]).addr();
        // SAFETY: makes the code that was just stored visible to instruction fetches; 32 bytes
        // aligned to 32 are in one line.
        unsafe {
            cloison_guest::asm!(
                "dc cvau, {code}",
                "dsb ish",
                "ic ivau, {code}",
                "dsb ish",
                "isb",
                code = in(reg) address,
                options(nostack),
            );
        }
    }
}
