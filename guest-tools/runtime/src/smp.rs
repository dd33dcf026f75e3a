//! Starting the other vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::MAX_VCPUS;
use crate::psci::{self, PsciError};
use spin::Mutex;

/// The function that a vCPU runs when it is turned on.
type Program = Option<fn()>;

static PROGRAMS: [Mutex<Program>; MAX_VCPUS] = [const { Mutex::new(None) }; MAX_VCPUS];

unsafe extern "C" {
    /// The start code's entry for secondary vCPUs: an address, not a function to call.
    static cloison_guest_secondary: u8;
}

/// Turns on vCPU `cpu`, which runs `program` and turns itself off when that returns.
///
/// # Panics
/// If the runtime has no stack for the vCPU.
pub fn start(cpu: usize, program: fn()) -> Result<(), PsciError> {
    assert!(
        cpu < MAX_VCPUS,
        "the runtime has stacks for {MAX_VCPUS} vCPUs"
    );
    *PROGRAMS[cpu].lock() = Some(program);
    psci::cpu_on(cpu, (&raw const cloison_guest_secondary).addr() as u64)
}

pub(crate) extern "C" fn secondary(cpu: usize) -> ! {
    assert_eq!(
        cpu,
        crate::cpu::current(),
        "context id and MPIDR_EL1 name different vCPUs"
    );
    let program = PROGRAMS[cpu].lock().take();
    if let Some(program) = program {
        program();
    }
    psci::cpu_off()
}
