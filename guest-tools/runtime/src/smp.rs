//! Starting the other vCPUs.

use crate::boot::MAX_VCPUS;
use crate::psci::{self, PsciError};
use spin::Mutex;

/// What a vCPU is to run when it comes on.
type Program = Option<fn()>;

static PROGRAMS: [Mutex<Program>; MAX_VCPUS] = [const { Mutex::new(None) }; MAX_VCPUS];

/// Turns vCPU `cpu` on and lets it run `program`; when that returns, the vCPU turns itself off.
///
/// # Panics
/// When the runtime has no stack for the vCPU.
pub fn start(cpu: usize, program: fn()) -> Result<(), PsciError> {
    assert!(cpu < MAX_VCPUS, "the runtime has stacks for {MAX_VCPUS} vCPUs");
    *PROGRAMS[cpu].lock() = Some(program);
    psci::cpu_on(cpu)
}

pub(crate) extern "C" fn secondary(cpu: usize) -> ! {
    assert_eq!(cpu, crate::cpu::current(), "context id and MPIDR_EL1 name different vCPUs");
    let program = PROGRAMS[cpu].lock().take();
    if let Some(program) = program {
        program();
    }
    psci::cpu_off()
}
