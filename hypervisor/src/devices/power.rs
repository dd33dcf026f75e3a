//! Starts the machine's other cores and turns the machine off: by PSCI, or through words and
//! registers in the board file. Passes guests' calls of the firmware on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmu::Windows;
use crate::machine::registers::Writeable;
use crate::machine::{mmio, sysreg};
use cloison_abi::psci;
use cloison_formats::boot::{AtEnd, BootParameters};
use cloison_formats::image::{Board, PowerOff};
use cloison_logic::eemi::Passed;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use spin::Once;

/// The core that is being started. It reads this at its entry, because a spin table passes no
/// argument.
pub static STARTING: AtomicU32 = AtomicU32::new(0);
/// The call of the firmware that ends the run; 0 if the firmware has no PSCI.
static END: AtomicU32 = AtomicU32::new(0);
/// The registers that turn it off otherwise, once their page is mapped.
static REGISTERS: Once<PowerOff> = Once::new();

/// Sets how the firmware ends the run, before the configuration can be read.
pub fn init_early(parameters: &BootParameters) {
    if parameters.psci {
        let end = match parameters.at_end {
            AtEnd::Off => psci::SYSTEM_OFF,
            AtEnd::Reset { .. } => psci::SYSTEM_RESET,
        };
        END.store(end, Relaxed);
    }
}

/// Applies the board file, under the final map.
pub fn init_final(board: &Board) {
    if let Some(off) = &board.power_off {
        REGISTERS.call_once(|| off.clone());
    }
}

/// Starts core `index` at the physical address `entry`.
///
/// # Safety
/// The code at `entry` must set up the core's own stack and tables.
///
/// # Errors
/// The code that PSCI CPU_ON returned.
pub unsafe fn start_core(
    board: &Board,
    index: usize,
    entry: u64,
    windows: &Windows,
) -> Result<(), i64> {
    // One core at a time: the caller waits until this one is up. The core reads the number with its
    // caches on, so that a barrier is enough.
    STARTING.store(index as u32, Relaxed);
    sysreg::dsb();
    if let Some(words) = &board.spin_table {
        // SAFETY: the check of the board ensures that its spin table is in reserved memory and
        // aligned.
        unsafe { windows.store(words[index], entry) };
        // The core waits in WFE between its looks at the word.
        aarch64_cpu::asm::sev();
        return Ok(());
    }
    // SAFETY: CPU_ON, at code that the caller answers for.
    let [code, ..] = unsafe { sysreg::smc(psci::CPU_ON_64, board.cores[index], entry, 0) };
    match code as i64 {
        psci::SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// Makes a guest's call of the firmware. Returns x0 to x3.
pub fn ask(call: Passed) -> [u64; 4] {
    let (function, [x1, x2, x3]) = call.registers();
    // SAFETY: a call that passes is about clocks, resets and power of a guest's devices: it touches
    // no memory and no core.
    unsafe { sysreg::smc(function, x1, x2, x3) }
}

/// Turns the machine off, or resets it if the image says so: a lost hypervisor is noticed instead of
/// hanging silently. If neither PSCI nor a register does that, or the board file has not been read
/// yet and there is no PSCI, the core waits forever.
pub fn off() -> ! {
    if let Some(off) = REGISTERS.get() {
        // In the board file's order, which the hardware may need: an unlock before the reset, for
        // example.
        for &(offset, value) in &off.writes {
            mmio::POWER_OFF[usize::from(offset) / 4].set(value);
        }
    } else if let end @ 1.. = END.load(Relaxed) {
        // SAFETY: nothing runs after SYSTEM_OFF and SYSTEM_RESET.
        unsafe { sysreg::smc(end, 0, 0, 0) };
    }
    idle()
}

/// Waits forever.
pub fn idle() -> ! {
    loop {
        // An interrupt only repeats it: none is acknowledged any more.
        aarch64_cpu::asm::wfi();
    }
}
