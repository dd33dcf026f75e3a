//! Turns the machine off, as the board file says, and calls PSCI.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::{Fault, smc, write32};
use alloc::vec::Vec;
use cloison_abi::psci;
use cloison_formats::image::Board;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Most writes that turn a machine off.
const WRITES: usize = 8;

/// Whether the firmware has PSCI.
static PSCI: AtomicBool = AtomicBool::new(false);
/// Whether it starts cores.
static STARTS_CORES: AtomicBool = AtomicBool::new(false);
/// The addresses and values that turn the machine off otherwise; 0 is none.
static REGISTERS: [[AtomicU64; 2]; WRITES] = [const { [const { AtomicU64::new(0) }; 2] }; WRITES];

/// Sets whether the firmware has PSCI, before the claims are known.
pub fn init_early(psci: bool) {
    PSCI.store(psci, Relaxed);
}

/// Sets how the machine is turned off.
pub fn init(board: &Board) {
    PSCI.store(board.power_off.is_none(), Relaxed);
    STARTS_CORES.store(board.spin_table.is_none(), Relaxed);
    let writes: Vec<(u64, u32)> = board
        .power_off
        .iter()
        .flat_map(|off| {
            off.writes
                .iter()
                .map(|(at, value)| (off.page.0 + u64::from(*at), *value))
        })
        .collect();
    for ([at, value], (address, word)) in REGISTERS.iter().zip(writes) {
        at.store(address, Relaxed);
        value.store(word.into(), Relaxed);
    }
}

/// Calls a function of PSCI.
///
/// # Errors
///
/// The exception that this caused: there is no firmware.
pub fn call(function: u32, x1: u64, x2: u64, x3: u64) -> Result<i64, Fault> {
    smc(function, x1, x2, x3)
}

/// Turns the machine off, or waits forever.
pub fn off() -> ! {
    for [at, value] in &REGISTERS {
        let at = at.load(Relaxed);
        if at != 0 {
            // What cannot be written leaves the machine on, which is seen.
            let _ = write32(at, value.load(Relaxed) as u32);
        }
    }
    if PSCI.load(Relaxed) {
        // As above.
        let _ = call(psci::SYSTEM_OFF, 0, 0, 0);
    }
    park()
}

/// Turns this core off, or waits forever.
pub fn core_off() -> ! {
    if STARTS_CORES.load(Relaxed) {
        // A core that stays on waits.
        let _ = call(psci::CPU_OFF, 0, 0, 0);
    }
    park()
}

fn park() -> ! {
    loop {
        aarch64_cpu::asm::wfe();
    }
}
