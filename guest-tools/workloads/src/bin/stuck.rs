//! Stuck: a guest that dies before its first output, in one of several ways.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::{args, asm, entry, psci};

entry!(main);

/// An address after the VM's RAM.
const NOWHERE: u64 = 0x6000_0000;
/// SCTLR_EL1 with MMU and caches off.
const OFF: u64 = 0x30d0_0800;

#[allow(unsafe_code)]
fn main() {
    if args()[0] < 3 {
        // SAFETY: this program ends here, so that it needs no vectors; nothing is written to memory
        // from here on.
        unsafe { asm!("msr vbar_el1, xzr", "msr sctlr_el1, {}", "isb", in(reg) OFF) };
    }
    match args()[0] {
        // SAFETY: the end of this program: nothing is at the address.
        0 => unsafe { asm!("str x0, [x1]", "b .", in("x1") NOWHERE, options(noreturn)) },
        // SAFETY: as above; the instruction is undefined.
        1 => unsafe { asm!("udf #0", options(noreturn)) },
        // SAFETY: as above; nothing is at 0.
        2 => unsafe { asm!("br xzr", options(noreturn)) },
        // SAFETY: as above; the vector pushes onto a stack that is not memory.
        3 => unsafe {
            asm!("mov sp, x1", "str x0, [x1]", "b .", in("x1") NOWHERE, options(noreturn))
        },
        _ => psci::system_off(),
    }
}
