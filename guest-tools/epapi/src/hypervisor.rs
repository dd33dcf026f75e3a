//! The hypervisor's calls that counting needs, and the CPU's identification.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_abi::{Call, CallError};

/// A way to call the hypervisor.
pub trait Hypervisor {
    /// Makes a call. Returns `x1` to `x3`.
    ///
    /// # Errors
    /// As [`Error::from`] translates the hypervisor's, and those of this way.
    fn call(&mut self, function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error>;

    /// Returns MIDR_EL1 of the CPU that executes this.
    ///
    /// # Errors
    /// If this way cannot know it.
    fn midr(&mut self) -> Result<u32, Error>;

    /// Returns what the counters leave out, as PMEVTYPER's filters: by default nothing, all of EL1
    /// and EL0 is counted.
    fn filter(&self) -> u32 {
        0
    }
}

/// The filter that leaves out EL1 (PMEVTYPER.P).
pub const NOT_EL1: u32 = 1 << 31;
/// The filter that leaves out EL0 (PMEVTYPER.U).
pub const NOT_EL0: u32 = 1 << 30;

/// Calls by HVC, which only a kernel or a bare-metal guest can execute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hvc;

#[cfg(target_arch = "aarch64")]
impl Hypervisor for Hvc {
    fn call(&mut self, function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error> {
        let [mut x1, mut x2, mut x3] = arguments;
        let mut x0 = u64::from(function as u32);
        // SAFETY: by the calling convention only x0 to x3 change, and none of these calls changes
        // memory.
        unsafe {
            core::arch::asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3, options(nostack));
        }
        match x0 as i64 {
            0.. => Ok([x1, x2, x3]),
            status => Err(CallError::try_from(status).map_or(Error::NotSupported, Error::from)),
        }
    }

    fn midr(&mut self) -> Result<u32, Error> {
        let value: u64;
        // SAFETY: reading an identification has no effect on memory.
        unsafe {
            core::arch::asm!("mrs {}, midr_el1", out(reg) value, options(nomem, nostack, preserves_flags))
        };
        Ok(value as u32)
    }
}

/// Other machines have no hypervisor of this kind.
#[cfg(not(target_arch = "aarch64"))]
impl Hypervisor for Hvc {
    fn call(&mut self, _: Call, _: [u64; 3]) -> Result<[u64; 3], Error> {
        panic!("only a guest can call a hypervisor")
    }

    fn midr(&mut self) -> Result<u32, Error> {
        panic!("only an AArch64 machine has MIDR_EL1")
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Denied => Self::Permission,
            CallError::Absent | CallError::Invalid => Self::NoEvent,
            CallError::Sequence => Self::CountersLost,
            _ => Self::NotSupported,
        }
    }
}
