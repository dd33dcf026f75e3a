//! Remains: leaves traces in memory, registers and counters, restarts its VM, and looks for them.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::event::EventId;
use cloison_guest::psci;
use cloison_guest::ram::Ram;
use cloison_guest::{asm, entry, pmu, println, timer};
use cloison_workloads::SURVIVOR;
use core::sync::atomic::Ordering::SeqCst;

entry!(main);

/// A life that begins later than this after the machine's start is the second one. No memory is
/// needed to know.
const FIRST_LIFE_MICROS: u64 = 50_000;
const TRACE: u64 = u64::from_le_bytes(*b"remains!");
/// Bytes of memory that the first life fills.
const FILLED: u64 = 64 << 10;
/// PMCCFILTR: do not count at EL1.
const NOT_AT_EL1: u64 = 1 << 31;

/// Returns how many of a few registers of FP and SIMD are not zero, and sets them.
#[allow(unsafe_code)]
fn registers() -> u64 {
    let (first, last, control, status): (u64, u64, u64, u64);
    // SAFETY: the target has no floating point, so that nobody else uses these registers; the bits
    // set only choose a rounding mode and record an exception.
    unsafe {
        asm!(
            ".arch_extension simd", "mov {0}, #0x300000", "msr cpacr_el1, {0}", "isb",
            "umov {0}, v0.d[0]", "umov {1}, v31.d[1]", "mrs {2}, fpcr", "mrs {3}, fpsr",
            "dup v0.2d, {4}", "dup v31.2d, {4}", "msr fpcr, {5}", "msr fpsr, {6}",
            out(reg) first, out(reg) last, out(reg) control, out(reg) status,
            in(reg) TRACE, in(reg) 3u64 << 22, in(reg) 1u64,
            options(nostack)
        );
    }
    [first, last, control, status]
        .into_iter()
        .filter(|value| *value != 0)
        .count() as u64
}

#[allow(unsafe_code)]
fn set_cycle_filter(value: u64) {
    // SAFETY: the filter of a counter that only this program uses.
    unsafe { asm!("msr pmccfiltr_el0, {}", in(reg) value, options(nostack)) };
}

fn main() {
    let registers = registers();
    let counters = [pmu::cycles(), pmu::count(0).into()]
        .into_iter()
        .filter(|count| *count != 0)
        .count();
    // The filter itself reads as the hypervisor's copy of it; what is counted shows what applies.
    pmu::set_cycles(0);
    pmu::start(pmu::CYCLES);
    pmu::enable();
    let second = timer::now() > timer::micros(FIRST_LIFE_MICROS);
    pmu::disable();
    let filtered = u64::from(pmu::cycles() == 0);
    let memory = Ram::behind_image().take_at(SURVIVOR, FILLED);
    let words = memory.iter().filter(|word| word.load(SeqCst) != 0).count();
    println!(
        "remains: second={} registers={registers} counters={counters} filtered={filtered} \
         words={words}",
        u64::from(second)
    );
    if second {
        psci::system_off();
    }
    memory.iter().for_each(|word| word.store(TRACE, SeqCst));
    pmu::configure(0, EventId(0), TRACE as u32);
    pmu::set_cycles(TRACE);
    set_cycle_filter(NOT_AT_EL1);
    while timer::now() <= timer::micros(FIRST_LIFE_MICROS) {
        core::hint::spin_loop();
    }
    psci::system_reset();
}
