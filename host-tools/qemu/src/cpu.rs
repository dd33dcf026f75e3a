//! QEMU's CPUs, and the one that runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ffi::symbol;
use libc::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A CPU of QEMU. Its pointer keeps it on the thread that has it, which is the vCPUs'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(pub(crate) NonNull<c_void>);

/// A CPU of QEMU as other threads see it, once it is known. QEMU keeps its CPUs until it ends.
#[derive(Debug)]
pub struct SharedCpu(pub(crate) AtomicPtr<c_void>);

impl SharedCpu {
    /// Returns one that is not known yet.
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }
    /// Makes it known.
    pub fn learn(&self, cpu: Cpu) {
        self.0.store(cpu.0.as_ptr(), Relaxed);
    }
    /// Returns whether it is this one.
    #[inline]
    pub fn is(&self, cpu: Cpu) -> bool {
        self.0.load(Relaxed) == cpu.0.as_ptr()
    }
}

/// The variable in which QEMU has the CPU that this thread runs.
#[derive(Clone, Copy, Debug)]
pub struct Running(*const *mut c_void);

impl Running {
    /// Returns this thread's variable. The search for internals has checked that QEMU has it.
    pub fn of_this_thread() -> Self {
        Self(symbol(c"current_cpu").map_or(std::ptr::null(), |slot| slot.cast_const().cast()))
    }
    /// Returns the CPU that this thread runs.
    #[inline]
    pub fn cpu(self) -> Option<Cpu> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: this thread's own variable: the pointer keeps `Running` on its thread.
        NonNull::new(unsafe { self.0.read() }).map(Cpu)
    }
}
