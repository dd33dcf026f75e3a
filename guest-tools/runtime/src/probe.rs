//! Accesses and instructions that may fault: a fault is returned as a value.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::exceptions::{Fault, expected};
use crate::global_asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, compiler_fence};

// `cloison_guest_probe(slot, code, x0, x1)` calls `code` with the two values in x0 and x1 and
// returns its x0. After a fault it continues at label 1 with all registers as they were at the
// fault, so only the stack pointer must be intact.
//
// `cloison_guest_probe_codes`: two instructions for each `Op`, in its order. x0 is the value, x1
// the address.
global_asm!(
    r#"
    .section .text.probe, "ax"
    .balign 4
cloison_guest_probe:
    stp     x29, x30, [sp, #-112]!
    mov     x29, sp
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    str     x0, [sp, #96]
    adr     x9, 1f
    str     x9, [x0]
    mov     x10, x1
    mov     x0, x2
    mov     x1, x3
    blr     x10
1:  ldr     x9, [sp, #96]
    str     xzr, [x9]
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp], #112
    ret

    .macro  code insn:vararg
    \insn
    ret
    .endm
cloison_guest_probe_codes:
    code    ldrb w0, [x1]
    code    ldrh w0, [x1]
    code    ldr w0, [x1]
    code    ldr x0, [x1]
    code    ldp x0, x2, [x1]
    code    ldr x0, [x1], #8
    code    ldxr x0, [x1]
    code    ldar x0, [x1]
    code    strb w0, [x1]
    code    strh w0, [x1]
    code    str w0, [x1]
    code    str x0, [x1]
    code    stp x0, x0, [x1]
    code    str x0, [x1], #8
    code    stlr x0, [x1]
    code    dc zva, x1
    code    dc ivac, x1
    code    dc cvac, x1
    code    dc civac, x1
    code    ic ivau, x1
    code    prfm pldl1keep, [x1]
    "#
);

unsafe extern "C" {
    fn cloison_guest_probe(
        slot: *const core::sync::atomic::AtomicU64,
        code: u64,
        x0: u64,
        x1: u64,
    ) -> u64;
    static cloison_guest_probe_codes: [[u32; 2]; 21];
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    LoadByte,
    LoadHalf,
    LoadWord,
    LoadDouble,
    LoadPair,
    LoadPostIndexed,
    LoadExclusive,
    LoadAcquire,
    StoreByte,
    StoreHalf,
    StoreWord,
    StoreDouble,
    StorePair,
    StorePostIndexed,
    StoreRelease,
    ZeroLine,
    InvalidateLine,
    CleanLine,
    CleanInvalidateLine,
    InvalidateInstructionLine,
    Prefetch,
}

impl Op {
    /// The plain operations, of which a device may meet any.
    pub const OF_DEVICES: [Self; 9] = [
        Self::LoadByte,
        Self::LoadHalf,
        Self::LoadWord,
        Self::LoadDouble,
        Self::LoadPair,
        Self::StoreByte,
        Self::StoreHalf,
        Self::StoreWord,
        Self::StoreDouble,
    ];
    /// All operations, in declaration order.
    pub const ALL: [Self; 21] = [
        Self::LoadByte,
        Self::LoadHalf,
        Self::LoadWord,
        Self::LoadDouble,
        Self::LoadPair,
        Self::LoadPostIndexed,
        Self::LoadExclusive,
        Self::LoadAcquire,
        Self::StoreByte,
        Self::StoreHalf,
        Self::StoreWord,
        Self::StoreDouble,
        Self::StorePair,
        Self::StorePostIndexed,
        Self::StoreRelease,
        Self::ZeroLine,
        Self::InvalidateLine,
        Self::CleanLine,
        Self::CleanInvalidateLine,
        Self::InvalidateInstructionLine,
        Self::Prefetch,
    ];

    /// Returns whether the operation reads or writes. The others are cache maintenance and hints,
    /// which may do nothing and need not fault.
    pub fn is_access(self) -> bool {
        (self as usize) <= Self::ZeroLine as usize
    }
}

/// Calls the code at `code`. Returns its x0, or the fault.
///
/// # Safety
/// As for [`jump`].
unsafe fn guarded(code: u64, x0: u64, x1: u64) -> Result<u64, Fault> {
    let expected = expected();
    expected.came.store(0, Relaxed);
    compiler_fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: the slot belongs to the calling vCPU. The caller vouches for what `code` does, if it
    // does not fault.
    let value = unsafe { cloison_guest_probe(&raw const expected.resume, code, x0, x1) };
    compiler_fence(core::sync::atomic::Ordering::SeqCst);
    match expected.came.load(Relaxed) {
        0 => Ok(value),
        _ => Err(Fault {
            esr: expected.esr.load(Relaxed),
            far: expected.far.load(Relaxed),
        }),
    }
}

/// Makes an access at `address`, whatever is there. Returns what a load read.
///
/// # Safety
/// `address` must hold nothing that Rust knows of: no variable, code or stack.
pub unsafe fn access(op: Op, address: u64, value: u64) -> Result<u64, Fault> {
    let code = (&raw const cloison_guest_probe_codes).addr() + op as usize * 8;
    // SAFETY: one access of at most 64 bytes at an address that the caller vouches for.
    unsafe { guarded(code as u64, value, address) }
}

/// Reads 64 bits and returns them, or the fault.
///
/// # Safety
/// As for [`access`]; reading must have no side effect that breaks the program.
pub unsafe fn read(address: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's obligations are the same.
    unsafe { access(Op::LoadDouble, address, 0) }
}

/// Writes 64 bits, or returns the fault.
///
/// # Safety
/// As for [`access`].
pub unsafe fn write(address: u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller's obligations are the same.
    unsafe { access(Op::StoreDouble, address, value).map(|_| ()) }
}

/// Jumps to `address` as to a function of two arguments. Returns its result, or the fault.
///
/// # Safety
/// The code must fault, or return with an unchanged stack pointer; it may change all other
/// registers. The caller vouches for what it does to memory.
pub unsafe fn jump(address: u64, x0: u64, x1: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's obligations are the same.
    unsafe { guarded(address, x0, x1) }
}

/// Two instructions that [`execute`] writes each time.
static SLOT: spin::Mutex<()> = spin::Mutex::new(());
static CODE: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
/// Encoding of `ret`.
const RET: u32 = 0xd65f_03c0;

/// Executes one instruction, given by its encoding, with `x0` in x0. Returns x0 afterwards, or the
/// fault.
///
/// # Safety
/// The instruction must change nothing except x0 to x28, flags, and machine state that the program
/// does not need.
pub unsafe fn execute(instruction: u32, x0: u64) -> Result<u64, Fault> {
    let _slot = SLOT.lock();
    CODE[0].store(instruction, Relaxed);
    CODE[1].store(RET, Relaxed);
    let code = (&raw const CODE).addr() as u64;
    // SAFETY: makes the two words that were just stored visible to instruction fetches of this
    // vCPU. RAM is mapped executable.
    unsafe {
        crate::asm!(
            "dc cvau, {code}",
            "dsb ish",
            "ic ivau, {code}",
            "dsb ish",
            "isb",
            code = in(reg) code,
            options(nostack),
        );
    }
    // SAFETY: the caller vouches for the first instruction; the second one returns.
    unsafe { guarded(code, x0, 0) }
}
