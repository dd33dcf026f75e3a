//! Instructions that may fault: accesses to whatever a claim names, firmware calls, registers that not
//! every core has.
//!
//! Each is a routine in assembly that returns the syndrome of the exception that it caused, if any.
//! The vectors know the routines by their addresses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::loaded::{BLOCK, LINKED, base};
use core::arch::{asm, global_asm};

// Each routine: arguments in x0 and up; returns a value in x0 and, in x1, 0 or the syndrome. SErrors
// are taken at the end, so that a write to nowhere is noticed too. They keep no state in registers
// that an exception does not restore.
global_asm!(
    r#"
    .macro END_ACCESS
    dsb     sy
    msr     daifclr, #4
    isb
    nop
    msr     daifset, #4
    mov     x1, xzr
    ret
    .endm

    .section .text.guarded, "ax"
    .balign 64
    .global hello_guarded
hello_guarded:
    .global hello_read32
hello_read32:
    ldr     w0, [x0]
    END_ACCESS
    .global hello_read64
hello_read64:
    ldr     x0, [x0]
    END_ACCESS
    .global hello_write32
hello_write32:
    str     w1, [x0]
    END_ACCESS
    .global hello_write64
hello_write64:
    str     x1, [x0]
    END_ACCESS
    .global hello_smc
hello_smc:
    smc     #0                      // keeps x18 to x30 (Arm DEN 0028, 2.5)
    mov     x1, xzr
    ret
    .global hello_cpu_controls
hello_cpu_controls:
    // CPUECTLR_EL1 and CPUACTLR_EL1 of a Cortex-A53, A57 or A72.
    mrs     x0, s3_1_c15_c2_1
    mrs     x1, s3_1_c15_c2_0
    str     x1, [x2]
    END_ACCESS
    .global hello_pending
hello_pending:
    END_ACCESS
    .global hello_guarded_end
hello_guarded_end:
    // The vectors continue here, with the syndrome in x1.
    .global hello_faulted
hello_faulted:
    msr     daifset, #4
    ret
    "#
);

/// What a routine returns.
#[repr(C)]
struct Returned {
    value: u64,
    syndrome: u64,
}

unsafe extern "C" {
    fn hello_read32(address: u64) -> Returned;
    fn hello_read64(address: u64) -> Returned;
    fn hello_write32(address: u64, value: u64) -> Returned;
    fn hello_write64(address: u64, value: u64) -> Returned;
    fn hello_smc(function: u64, x1: u64, x2: u64, x3: u64) -> Returned;
    fn hello_cpu_controls(x0: u64, x1: u64, actlr: *mut u64) -> Returned;
    fn hello_pending() -> Returned;
    static hello_guarded: u8;
    static hello_guarded_end: u8;
    static hello_faulted: u8;
}

/// An exception that an access caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// ESR_EL2.
    pub syndrome: u64,
}

/// Bit of a syndrome in x1 that ESR_EL2 never has: x1 is not 0.
const CAUSED: u64 = 1 << 63;

impl From<Returned> for Result<u64, Fault> {
    fn from(returned: Returned) -> Self {
        match returned.syndrome {
            0 => Ok(returned.value),
            caused => Err(Fault {
                syndrome: caused & !CAUSED,
            }),
        }
    }
}

/// Returns where a core continues after an exception at `address`, and its x1, if one of the
/// routines caused it.
pub fn after_fault(address: u64, syndrome: u64) -> Option<(u64, u64)> {
    let place = |symbol: *const u8| symbol.addr() as u64;
    let is_guarded =
        (place(&raw const hello_guarded)..place(&raw const hello_guarded_end)).contains(&address);
    is_guarded.then(|| (place(&raw const hello_faulted), syndrome | CAUSED))
}

/// Whether an address is one that this image must not touch by a claim: its own memory, or beyond
/// the map.
fn is_own(address: u64) -> bool {
    address >= LINKED || (base()..base() + BLOCK).contains(&address)
}

/// What an address gives that must not be touched: as if nothing were there.
const OWN: Fault = Fault { syndrome: 0 };

/// Reads 32 bits of a device.
///
/// # Errors
///
/// The exception that this caused: nothing answers there.
pub fn read32(address: u64) -> Result<u32, Fault> {
    if is_own(address) {
        return Err(OWN);
    }
    // SAFETY: the address is outside the image's memory, which is all that Rust knows of.
    Result::from(unsafe { hello_read32(address) }).map(|value| value as u32)
}

/// Writes 32 bits of a device.
///
/// # Errors
///
/// As [`read32`].
pub fn write32(address: u64, value: u32) -> Result<(), Fault> {
    if is_own(address) {
        return Err(OWN);
    }
    // SAFETY: the address is outside the image's memory, which is all that Rust knows of.
    Result::from(unsafe { hello_write32(address, value.into()) }).map(drop)
}

/// Reads 64 bits of what may be memory.
///
/// # Errors
///
/// As [`read32`].
pub fn read64(address: u64) -> Result<u64, Fault> {
    if is_own(address) {
        return Err(OWN);
    }
    // SAFETY: the address is outside the image's memory, which is all that Rust knows of.
    Result::from(unsafe { hello_read64(address) })
}

/// Writes 64 bits of what may be memory.
///
/// # Errors
///
/// As [`read32`].
pub fn write64(address: u64, value: u64) -> Result<(), Fault> {
    if is_own(address) {
        return Err(OWN);
    }
    // SAFETY: the address is outside the image's memory, which is all that Rust knows of.
    Result::from(unsafe { hello_write64(address, value) }).map(drop)
}

/// Calls the firmware (SMC Calling Convention, Arm DEN 0028).
///
/// # Errors
///
/// The exception that this caused: there is no firmware.
pub fn smc(function: u32, x1: u64, x2: u64, x3: u64) -> Result<i64, Fault> {
    // SAFETY: the callers' functions are those of PSCI that describe, that start a core at this
    // image's own entry, or that end it.
    Result::from(unsafe { hello_smc(function.into(), x1, x2, x3) }).map(|value| value as i64)
}

/// Returns CPUACTLR_EL1 and CPUECTLR_EL1, on a core that has them.
///
/// # Errors
///
/// The exception that this caused.
pub fn cpu_controls() -> Result<[u64; 2], Fault> {
    let mut actlr = 0;
    // SAFETY: reads two registers, and writes the variable.
    let extended = Result::from(unsafe { hello_cpu_controls(0, 0, &raw mut actlr) })?;
    Ok([actlr, extended])
}

/// Takes an SError that is pending. Returns it.
pub fn take_pending() -> Option<Fault> {
    // SAFETY: takes an SError, if there is one, in the vectors.
    Result::from(unsafe { hello_pending() }).err()
}

/// Makes earlier writes take effect for what follows: those to memory, to tables, and to registers.
pub fn barrier() {
    // SAFETY: barriers change nothing.
    unsafe { asm!("dsb sy", "isb", options(nostack, preserves_flags)) };
}

/// Cleans and invalidates the caches' copy of the lines of a value.
pub fn clean<T>(value: &T) {
    let start = (&raw const *value).addr() as u64;
    clean_range(start, size_of::<T>() as u64);
}

/// Cleans and invalidates the caches' copy of `bytes` from a mapped address on.
pub fn clean_range(start: u64, bytes: u64) {
    let mut line = start & !63;
    while line < start + bytes {
        // SAFETY: maintenance by address of mapped memory, which changes no contents.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
        line += 64;
    }
    barrier();
}

/// Lets interrupts in, for the exceptions that wait.
pub fn take_interrupts() {
    // SAFETY: interrupts are handled by this image's vectors, which restore all registers.
    unsafe {
        asm!(
            "msr daifclr, #2",
            "isb",
            "nop",
            "msr daifset, #2",
            options(nostack)
        );
    };
}
