//! Starts the machine's other cores and turns it off: by PSCI, or through words and registers that the board names.

use crate::machine::mmu::Windows;
use crate::machine::registers::Writeable;
use crate::machine::{mmio, sysreg};
use cloison_abi::psci;
use cloison_formats::image::{Board, PowerOff};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use spin::Once;

/// The core that is being started; it reads this at its entry, since a spin table passes no argument.
pub static STARTING: AtomicU32 = AtomicU32::new(0);
/// Whether the firmware turns the machine off.
static PSCI: AtomicBool = AtomicBool::new(false);
/// What turns it off otherwise, once the page of these registers is mapped.
static REGISTERS: Once<PowerOff> = Once::new();

/// Says whether the firmware has PSCI, before the configuration can be read.
pub fn init_early(psci: bool) {
    PSCI.store(psci, Ordering::Relaxed);
}

/// Takes what the board file says, under the final map.
pub fn init_final(board: &Board) {
    board.power_off.iter().for_each(|off| _ = REGISTERS.call_once(|| off.clone()));
}

/// Starts core `index` at the physical address `entry`.
///
/// # Errors
/// What PSCI CPU_ON returned.
pub fn start_core(board: &Board, index: usize, entry: u64, windows: &Windows) -> Result<(), i64> {
    STARTING.store(index as u32, Ordering::Relaxed);
    sysreg::dsb();
    if let Some(words) = &board.spin_table {
        windows.store(words[index], entry);
        aarch64_cpu::asm::sev();
        return Ok(());
    }
    match sysreg::smc(psci::CPU_ON_64, board.cores[index], entry, 0) {
        psci::SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// Turns the machine off, so that a lost hypervisor is noticed and not a silent hang. Where neither PSCI nor a register
/// does that, and before the board file is read where PSCI does not, the core waits forever.
pub fn off() -> ! {
    if let Some(off) = REGISTERS.get() {
        off.writes.iter().for_each(|&(offset, value)| mmio::POWER_OFF[usize::from(offset) / 4].set(value));
    } else if PSCI.load(Ordering::Relaxed) {
        sysreg::smc(psci::SYSTEM_OFF, 0, 0, 0);
    }
    loop {
        aarch64_cpu::asm::wfi();
    }
}
