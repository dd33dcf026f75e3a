//! A core's translation buffers and what decides them, and QEMU's handles of these registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::tlb::Tlb;
use crate::walk::Registers;
use libc::c_void;

/// The registers by QEMU's names, in the order of [`Handles`].
const NAMES: [&[u8]; 10] = [
    b"SCTLR",
    b"TCR_EL1",
    b"TTBR0_EL1",
    b"TTBR1_EL1",
    b"HCR_EL2",
    b"VTCR_EL2",
    b"VTTBR_EL2",
    b"SCTLR_EL2",
    b"TCR_EL2",
    b"TTBR0_EL2",
];

/// QEMU's handles of the registers.
#[derive(Clone, Copy, Debug)]
pub struct Handles(pub [*mut c_void; NAMES.len()]);

impl Handles {
    /// Returns a table without handles.
    pub const fn new() -> Self {
        Self([std::ptr::null_mut(); NAMES.len()])
    }
    /// Records QEMU's handle of the register with this name.
    pub fn learn(&mut self, name: &[u8], handle: *mut c_void) {
        if let Some(place) = NAMES.iter().position(|known| *known == name) {
            self.0[place] = handle;
        }
    }
    /// Returns the first register that QEMU lacks.
    pub fn missing(&self) -> Option<&'static str> {
        let place = self.0.iter().position(|handle| handle.is_null())?;
        std::str::from_utf8(NAMES[place]).ok()
    }
}

/// A core's translation.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Its buffers.
    pub tlb: Tlb,
    /// The registers, as they were read last.
    pub registers: Registers,
    /// They must be read again.
    pub stale: bool,
}

impl Translation {
    /// Returns a core's translation of which nothing is known yet.
    pub fn new(tlb: Tlb) -> Self {
        Self { tlb, registers: Registers::default(), stale: true }
    }
    /// Forgets everything: registers and tables may have changed unseen.
    pub fn forget(&mut self) {
        self.tlb.clear();
        self.stale = true;
    }
}
