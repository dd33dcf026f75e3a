//! The hypervisor's calls, and the CPU's identification.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_abi::{Call, CallError};

#[cfg(target_arch = "aarch64")]
pub(crate) fn midr() -> u32 {
    let value: u64;
    // SAFETY: reading an identification has no effect on memory.
    unsafe { core::arch::asm!("mrs {}, midr_el1", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value as u32
}

#[cfg(target_arch = "aarch64")]
pub(crate) fn call(function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error> {
    let [mut x1, mut x2, mut x3] = arguments;
    let mut x0 = u64::from(function as u32);
    // SAFETY: by the calling convention only x0 to x3 change, and none of these calls changes memory.
    unsafe {
        core::arch::asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3, options(nostack));
    }
    reply(x0 as i64, [x1, x2, x3])
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn midr() -> u32 {
    panic!("only an AArch64 machine has MIDR_EL1")
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn call(_: Call, _: [u64; 3]) -> Result<[u64; 3], Error> {
    panic!("only a guest can call a hypervisor")
}

#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
fn reply(status: i64, results: [u64; 3]) -> Result<[u64; 3], Error> {
    if status >= 0 {
        return Ok(results);
    }
    Err(match CallError::from_x0(status) {
        Some(CallError::Denied) => Error::Permission,
        Some(CallError::Absent | CallError::Invalid) => Error::NoEvent,
        Some(CallError::Sequence) => Error::CountersLost,
        _ => Error::NotSupported,
    })
}
