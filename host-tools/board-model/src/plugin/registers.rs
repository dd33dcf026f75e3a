//! A core's translation buffers, and the registers that determine their contents.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::tlb::Tlb;
use crate::walk::Registers;

/// QEMU's names of these registers.
pub const NAMES: [&[u8]; 10] = [
    b"SCTLR_EL1",
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

/// A core's translation.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Its buffers.
    pub tlb: Tlb,
    /// The registers, as last read.
    pub registers: Registers,
    /// They must be read again.
    pub stale: bool,
}

impl Translation {
    /// Returns a core's translation before its registers are read.
    pub fn new(tlb: Tlb) -> Self {
        Self {
            tlb,
            registers: Registers::default(),
            stale: true,
        }
    }
    /// Forgets everything: registers and tables may have changed unseen.
    pub fn forget(&mut self) {
        self.tlb.clear();
        self.stale = true;
    }
}
