//! The GICv2 of a guest: the distributor and the calling vCPU's interface.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::mmio::{gicc, gicd};
use aarch64_cpu::registers::{Readable, Writeable};
use cloison_abi::gicv2::{GICC_CTLR, IAR, SGIR};
use tock_registers::LocalRegisterCopy;

/// An acknowledged interrupt.
#[derive(Clone, Copy)]
pub struct Interrupt {
    acknowledged: LocalRegisterCopy<u32, IAR::Register>,
}

impl Interrupt {
    /// Returns the interrupt's number.
    pub fn id(self) -> u32 {
        self.acknowledged.read(IAR::INTID)
    }

    /// Returns the vCPU that sent a software-generated interrupt.
    pub fn source(self) -> usize {
        self.acknowledged.read(IAR::SOURCE) as usize
    }
}

/// Turns on the distributor. vCPU 0 calls it once.
pub fn init_distributor() {
    gicd().ctlr.set(1);
}

/// Turns on the calling vCPU's interface with all priorities unmasked.
pub fn init_cpu() {
    gicc().pmr.set(0xff);
    gicc().ctlr.write(GICC_CTLR::ENABLE::SET);
}

/// Enables an interrupt with a middle priority; a shared one is routed to the calling vCPU.
pub fn enable(id: u32) {
    gicd().ipriorityr[id as usize].set(0x80);
    if id >= 32 {
        gicd().itargetsr[id as usize].set(1 << crate::cpu::current());
    }
    gicd().isenabler[id as usize / 32].set(1 << (id % 32));
}

/// Disables an interrupt.
pub fn disable(id: u32) {
    gicd().icenabler[id as usize / 32].set(1 << (id % 32));
}

/// Sends a software-generated interrupt (0 to 15) to the vCPUs in the bit mask.
pub fn send_sgi(targets: u8, id: u32) {
    // The receiver must see what was stored before.
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    gicd()
        .sgir
        .write(SGIR::TARGETS.val(targets.into()) + SGIR::INTID.val(id));
}

/// Acknowledges the highest-priority pending interrupt; returns `None` if there is none (spurious).
pub fn acknowledge() -> Option<Interrupt> {
    let acknowledged = gicc().iar.extract();
    (acknowledged.read(IAR::INTID) < 1020).then_some(Interrupt { acknowledged })
}

/// Ends an interrupt taken with [`acknowledge`].
pub fn end(interrupt: Interrupt) {
    gicc().eoir.set(interrupt.acknowledged.get());
}
