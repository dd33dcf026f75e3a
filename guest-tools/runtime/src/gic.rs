//! The GIC of a guest: the distributor and the calling vCPU's interface, a GICv2's or a GICv3's. The
//! CPU says which (ID_AA64PFR0_EL1.GIC).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::mmio::{gicc, gicd, redistributor};
use aarch64_cpu::registers::{ID_AA64PFR0_EL1, Readable, Writeable};
use cloison_abi::gicv2::{GICC_CTLR, Gicd, IAR, SGIR};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
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

    /// Returns the vCPU that sent a software-generated interrupt, which a GICv3 does not tell.
    pub fn source(self) -> Option<usize> {
        (!is_v3()).then(|| self.acknowledged.read(IAR::SOURCE) as usize)
    }
}

/// The version of the controller, 0 before it is known: reading the CPU's register traps.
static VERSION: AtomicU8 = AtomicU8::new(0);

/// Returns whether the VM has a GICv3: system registers instead of a CPU interface's page.
#[inline]
pub fn is_v3() -> bool {
    match VERSION.load(Relaxed) {
        0 => {
            let is_v3 = ID_AA64PFR0_EL1.get() >> 24 & 0xf != 0;
            VERSION.store(2 + u8::from(is_v3), Relaxed);
            is_v3
        }
        version => version == 3,
    }
}

/// Returns the address of the CPU interface, 0 if it is a GICv3's system registers.
pub fn interface() -> u64 {
    if is_v3() {
        0
    } else {
        crate::device_map::gicc()
    }
}

/// Writes a system register of the GICv3's CPU interface.
macro_rules! write {
    ($register:literal, $value:expr) => {{
        // SAFETY: changes which interrupts this vCPU takes, and no memory.
        unsafe {
            crate::asm!(
                concat!("msr ", $register, ", {}"),
                "isb",
                in(reg) u64::from($value),
                options(nostack, preserves_flags),
            )
        }
    }};
}

/// Returns the registers of an interrupt: a private one's are in the vCPU's redistributor.
fn bank(id: u32) -> &'static Gicd {
    if id < 32 && is_v3() {
        redistributor(crate::cpu::current())
    } else {
        gicd()
    }
}

/// Turns on the distributor. vCPU 0 calls it once.
pub fn init_distributor() {
    gicd().ctlr.set(if is_v3() { 0x12 } else { 1 });
}

/// Turns on the calling vCPU's interface with all priorities unmasked.
pub fn init_cpu() {
    if is_v3() {
        write!("icc_pmr_el1", 0xffu32);
        write!("icc_igrpen1_el1", 1u32);
        return;
    }
    gicc().pmr.set(0xff);
    gicc().ctlr.write(GICC_CTLR::ENABLE::SET);
}

/// Enables an interrupt with a middle priority; a shared one is routed to the calling vCPU.
pub fn enable(id: u32) {
    let bank = bank(id);
    bank.ipriorityr[id as usize].set(0x80);
    if id >= 32 {
        let own = crate::cpu::current();
        if is_v3() {
            crate::mmio::Device::distributor().write(0x6000 + 8 * u64::from(id), own as u32);
        } else {
            bank.itargetsr[id as usize].set(1 << own);
        }
    }
    bank.isenabler[id as usize / 32].set(1 << (id % 32));
}

/// Disables an interrupt.
pub fn disable(id: u32) {
    bank(id).icenabler[id as usize / 32].set(1 << (id % 32));
}

/// Sends a software-generated interrupt (0 to 15) to the vCPUs in the bit mask.
pub fn send_sgi(targets: u16, id: u32) {
    // The receiver must see what was stored before.
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    if is_v3() {
        write!("icc_sgi1r_el1", u32::from(targets) | id << 24);
        return;
    }
    gicd()
        .sgir
        .write(SGIR::TARGETS.val(targets.into()) + SGIR::INTID.val(id));
}

/// Acknowledges the highest-priority pending interrupt; returns `None` if there is none (spurious).
#[inline]
pub fn acknowledge() -> Option<Interrupt> {
    let acknowledged = if is_v3() {
        let id: u64;
        // SAFETY: takes an interrupt, and changes no memory.
        unsafe { crate::asm!("mrs {}, icc_iar1_el1", out(reg) id, options(nostack)) };
        LocalRegisterCopy::new(id as u32)
    } else {
        gicc().iar.extract()
    };
    (acknowledged.read(IAR::INTID) < 1020).then_some(Interrupt { acknowledged })
}

/// Ends an interrupt taken with [`acknowledge`].
#[inline]
pub fn end(interrupt: Interrupt) {
    if is_v3() {
        write!("icc_eoir1_el1", interrupt.acknowledged.get());
        return;
    }
    gicc().eoir.set(interrupt.acknowledged.get());
}
