//! GICv2 as a guest sees it: the distributor and the calling vCPU's interface.

use crate::mmio::{GICC, GICD};

const GICD_CTLR: u64 = 0x000;
const GICD_ISENABLER: u64 = 0x100;
const GICD_ICENABLER: u64 = 0x180;
const GICD_IPRIORITYR: u64 = 0x400;
const GICD_ITARGETSR: u64 = 0x800;
const GICD_SGIR: u64 = 0xf00;

const GICC_CTLR: u64 = 0x00;
const GICC_PMR: u64 = 0x04;
const GICC_IAR: u64 = 0x0c;
const GICC_EOIR: u64 = 0x10;

/// An acknowledged interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    acknowledged: u32,
}

impl Interrupt {
    /// Returns the interrupt's number.
    pub fn id(self) -> u32 {
        self.acknowledged & 0x3ff
    }

    /// Returns the vCPU that sent a software-generated interrupt.
    pub fn source(self) -> usize {
        (self.acknowledged >> 10 & 7) as usize
    }
}

/// Turns on the distributor. To be called once, by vCPU 0.
pub fn init_distributor() {
    GICD.write(GICD_CTLR, 1);
}

/// Turns on the calling vCPU's interface with all priorities unmasked.
pub fn init_cpu() {
    GICC.write(GICC_PMR, 0xff);
    GICC.write(GICC_CTLR, 1);
}

/// Enables an interrupt with a middle priority; a shared one is routed to the calling vCPU.
pub fn enable(id: u32) {
    GICD.write_byte(GICD_IPRIORITYR + u64::from(id), 0x80);
    if id >= 32 {
        GICD.write_byte(GICD_ITARGETSR + u64::from(id), 1 << crate::cpu::current());
    }
    GICD.write(GICD_ISENABLER + u64::from(id / 32 * 4), 1 << (id % 32));
}

/// Disables an interrupt.
pub fn disable(id: u32) {
    GICD.write(GICD_ICENABLER + u64::from(id / 32 * 4), 1 << (id % 32));
}

/// Sends a software-generated interrupt (0 to 15) to the vCPUs in the bit mask.
pub fn send_sgi(targets: u8, id: u32) {
    // The receiver must see what was stored before.
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    GICD.write(GICD_SGIR, u32::from(targets) << 16 | id & 0xf);
}

/// Acknowledges the highest-priority pending interrupt; returns `None` if there is none (spurious).
pub fn acknowledge() -> Option<Interrupt> {
    let acknowledged = GICC.read(GICC_IAR);
    (acknowledged & 0x3ff < 1020).then_some(Interrupt { acknowledged })
}

/// Ends an interrupt taken with [`acknowledge`].
pub fn end(interrupt: Interrupt) {
    GICC.write(GICC_EOIR, interrupt.acknowledged);
}
