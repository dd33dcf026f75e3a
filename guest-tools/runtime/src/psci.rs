//! PSCI: turns vCPUs and the whole VM on and off.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::call::hvc;
use cloison_abi::psci;
use core::fmt;

/// Errors returned by PSCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsciError(pub i64);

impl fmt::Display for PsciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            psci::NOT_SUPPORTED => "not supported",
            psci::INVALID_PARAMETERS => "invalid parameters",
            psci::DENIED => "denied",
            psci::ALREADY_ON => "already on",
            psci::ON_PENDING => "on pending",
            psci::INTERNAL_FAILURE => "internal failure",
            psci::INVALID_ADDRESS => "invalid address",
            _ => "unknown error",
        };
        write!(f, "PSCI: {name} ({})", self.0)
    }
}

/// State of a vCPU, as returned by AFFINITY_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// The vCPU runs.
    On,
    /// The vCPU is off.
    Off,
    /// CPU_ON was called, but the vCPU has not started yet.
    OnPending,
}

/// Converts a PSCI result; 32-bit functions may leave the upper half zero.
fn result(x0: u64) -> Result<u64, PsciError> {
    match x0 as i32 {
        error if error < 0 => Err(PsciError(i64::from(error))),
        _ => Ok(x0),
    }
}

/// Returns PSCI's major and minor version.
pub fn version() -> Result<(u16, u16), PsciError> {
    // SAFETY: VERSION only reads a number.
    let [x0, ..] = unsafe { hvc(psci::VERSION, [0; 6]) };
    result(x0).map(|version| ((version >> 16) as u16, version as u16))
}

/// Turns a vCPU on; it starts at `entry`, the runtime's start code for secondary vCPUs.
pub(crate) fn cpu_on(cpu: usize, entry: u64) -> Result<(), PsciError> {
    // SAFETY: the entry is the runtime's own start code for secondary vCPUs, which takes its number
    // in x0.
    let [x0, ..] = unsafe { hvc(psci::CPU_ON_64, [cpu as u64, entry, cpu as u64, 0, 0, 0]) };
    result(x0).map(|_| ())
}

/// Turns the calling vCPU off.
pub fn cpu_off() -> ! {
    // SAFETY: the vCPU never returns; if it is turned on again, it starts with an empty stack.
    unsafe { hvc(psci::CPU_OFF, [0; 6]) };
    panic!("PSCI CPU_OFF returned");
}

/// Returns the state of a vCPU.
pub fn affinity_info(cpu: usize) -> Result<Affinity, PsciError> {
    // SAFETY: AFFINITY_INFO only reads a state.
    let [x0, ..] = unsafe { hvc(psci::AFFINITY_INFO_64, [cpu as u64, 0, 0, 0, 0, 0]) };
    result(x0).map(|state| match state {
        0 => Affinity::On,
        1 => Affinity::Off,
        _ => Affinity::OnPending,
    })
}

/// Turns the VM off.
pub fn system_off() -> ! {
    // SAFETY: the VM ends, and none of its code runs again.
    unsafe { hvc(psci::SYSTEM_OFF, [0; 6]) };
    halt()
}

/// Restarts the VM: its image is loaded again, and the rest of its RAM keeps its contents.
pub fn system_reset() -> ! {
    // SAFETY: the VM starts again from its image.
    unsafe { hvc(psci::SYSTEM_RESET, [0; 6]) };
    halt()
}

/// Loops if the machine stays on although it was told to turn off.
fn halt() -> ! {
    loop {
        crate::cpu::mask_interrupts();
        crate::cpu::wait_for_interrupt();
    }
}
