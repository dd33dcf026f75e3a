//! The puppet: each of its vCPUs asks the fuzzer for a program, executes it, and asks again.
//!
//! It survives what a program does: faults, interrupts, restarts, and being turned off. Without the
//! fuzzer it finds no program and waits.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::irq;
use cloison_guest::gic::Interrupt;
use cloison_guest::{args, cpu, entry, exceptions, gic, probe, smp, timer};
use cloison_puppet::{ASK, LAST, LONGEST, OP_WORDS, Op, is_harmless};
use core::cell::UnsafeCell;

entry!(main);

const VCPUS: usize = cpu::MAX_VCPUS;
/// Words for a program: the number of its operations, and these.
const WORDS: usize = 1 + LONGEST * OP_WORDS;
/// Instructions that are kept ready, by code: writing code makes an emulator translate it again.
const SLOTS: usize = 256;
/// Words of code for one.
const CODE_WORDS: usize = 8;
/// Position of the instruction itself.
const HOLE: usize = 3;

/// What a vCPU has to itself.
#[repr(C, align(4096))]
struct Own {
    program: [u64; WORDS],
    /// x0 to x3 before an instruction, and x0 and x1 after it.
    registers: [u64; 6],
    last: u64,
    words: [u32; SLOTS],
    code: [[u32; CODE_WORDS]; SLOTS],
}

/// The vCPUs' own memory.
struct All([UnsafeCell<Own>; VCPUS]);

// SAFETY: each vCPU uses its own element only.
#[allow(unsafe_code)]
unsafe impl Sync for All {}

static OWN: All = All([const {
    UnsafeCell::new(Own {
        program: [0; WORDS],
        registers: [0; 6],
        last: 0,
        words: [0; SLOTS],
        code: [[0; CODE_WORDS]; SLOTS],
    })
}; VCPUS]);

fn main() {
    exceptions::on_interrupt(take);
    gic::init_distributor();
    for vcpu in 1..VCPUS {
        // A VM with fewer vCPUs refuses.
        let _ = smp::start(vcpu, serve);
    }
    serve();
}

/// Takes an interrupt. One that would come again at once is disabled.
fn take(interrupt: Interrupt) {
    match interrupt.id() {
        irq::VTIMER => timer::disarm(),
        0..16 => {}
        id => gic::disable(id),
    }
}

/// Executes programs for good.
#[allow(unsafe_code)]
fn serve() {
    // SAFETY: this vCPU's own memory, lent once: `serve` never returns.
    let own = unsafe { &mut *OWN.0[cpu::current() % VCPUS].get() };
    gic::init_cpu();
    // FP and SIMD: CPACR_EL1.FPEN.
    own.execute(0xd518_1040, [3 << 20, 0, 0, 0]);
    loop {
        own.program[0] = 0;
        own.ask();
        let count = (own.program[0] as usize).min(LONGEST);
        if count == 0 {
            idle();
        }
        for at in 0..count {
            let first = 1 + at * OP_WORDS;
            let words = core::array::from_fn(|word| own.program[first + word]);
            match Op::decode(words) {
                Some(Op::Execute { word, x }) => own.execute(word, x),
                Some(Op::Delay(turns)) => (0..turns & 0xffff).for_each(|_| core::hint::spin_loop()),
                Some(Op::Start(vcpu)) if vcpu < VCPUS as u64 => {
                    // It may be on already.
                    let _ = smp::start(vcpu as usize, serve);
                }
                Some(Op::Start(_)) | None => {}
            }
        }
    }
}

/// Waits some microseconds: an interrupt ends each wait.
fn idle() {
    gic::enable(irq::VTIMER);
    timer::arm(timer::now() + timer::micros(20));
    cpu::wait_for_interrupt();
    timer::disarm();
}

impl Own {
    /// Asks for a program.
    #[allow(unsafe_code)]
    fn ask(&mut self) {
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
    #[allow(unsafe_code)]
    fn execute(&mut self, word: u32, x: [u64; 4]) {
        let x = x.map(|value| if value == LAST { self.last } else { value });
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
        let slot = (word ^ word >> 8 ^ word >> 15) as usize % SLOTS;
        if self.words[slot] != word {
            self.words[slot] = word;
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
        }
    }

    /// Writes the code of an instruction.
    #[allow(unsafe_code)]
    fn prepare(&mut self, slot: usize, word: u32) {
        let mut code = [
            0xaa00_03e9, // mov x9, x0
            0xa941_0d22, // ldp x2, x3, [x9, #16]
            0xa940_0520, // ldp x0, x1, [x9]
            0,
            0xa902_0520, // stp x0, x1, [x9, #32]
            0xd65f_03c0, // ret
            0,
            0,
        ];
        code[HOLE] = word;
        self.code[slot] = code;
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
