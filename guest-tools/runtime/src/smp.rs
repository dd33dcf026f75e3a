//! Starting the other vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::{MAX_VCPUS, STACK_SHIFT};
use crate::psci::{self, PsciError};
use crate::ram::Ram;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use spin::Mutex;

/// The function that a vCPU runs when it is turned on.
type Program = Option<fn()>;

/// The most vCPUs of a VM.
pub const MOST: usize = 16;

static PROGRAMS: [Mutex<Program>; MOST] = [const { Mutex::new(None) }; MOST];
/// How many vCPUs have a stack.
static STACKS: AtomicUsize = AtomicUsize::new(MAX_VCPUS);

unsafe extern "C" {
    /// The start code's entry for secondary vCPUs: an address, not a function to call.
    static cloison_guest_secondary: u8;
    /// The end of the stacks, from the linker script.
    static __stacks_end: u8;
}

/// Gives stacks to more than `MAX_VCPUS` vCPUs, as the RAM after the others' is used for nothing
/// else. Returns the rest.
///
/// # Panics
/// If there are more than [`MOST`], or the RAM does not begin after the stacks.
pub fn make_room(vcpus: usize) -> Ram {
    assert!(vcpus <= MOST, "a VM has at most {MOST} vCPUs");
    let mut ram = Ram::behind_image();
    let stacks = ram.take((vcpus.saturating_sub(MAX_VCPUS) << STACK_SHIFT) as u64);
    assert_eq!(
        stacks.as_ptr().addr(),
        (&raw const __stacks_end).addr(),
        "stacks are in a row"
    );
    STACKS.store(vcpus.max(MAX_VCPUS), Relaxed);
    ram
}

/// Turns on vCPU `cpu`, which runs `program` and turns itself off when that returns.
///
/// # Panics
/// If the runtime has no stack for the vCPU.
pub fn start(cpu: usize, program: fn()) -> Result<(), PsciError> {
    let stacks = STACKS.load(Relaxed);
    assert!(cpu < stacks, "the runtime has stacks for {stacks} vCPUs");
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
