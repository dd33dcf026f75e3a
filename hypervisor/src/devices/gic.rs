//! The physical GICv2: distributor, CPU interface and virtual interface control (Arm IHI 0048B).
//!
//! EL2 takes every physical interrupt. EOImode is 1: a write to EOIR drops the priority; only a
//! write to DIR, or a guest's EOI through a list register with the HW bit, deactivates.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmio::{GICC, GICC_DIR, GICD, GICH};
use crate::machine::registers::{Readable, Writeable};
use cloison_abi::gicv2::{GICC_CTLR, GICH_HCR, SGIR};
use cloison_formats::limits::LIST_REGISTERS;
use cloison_logic::vgic::Trigger;
use spin::mutex::TicketMutex;

/// Software-generated interrupt by which cores tell each other to check their mailboxes.
pub const KICK: u32 = 0;
/// Software-generated interrupt by which a core tells another that a peer has called its VM.
pub const CALL: u32 = 1;
/// Virtual maintenance interrupt (PPI 9).
pub const MAINTENANCE: u32 = 25;
/// EL2 physical timer (PPI 10).
pub const HYPERVISOR_TIMER: u32 = 26;
/// EL1 virtual timer (PPI 11).
pub const VIRTUAL_TIMER: u32 = 27;
/// No interrupt is pending.
pub const SPURIOUS: u32 = 1023;

/// Held while a word of GICD_ICFGR is read and written: there is no register that sets single bits.
static CONFIGURING: TicketMutex<()> = TicketMutex::new(());

/// Priority of the hypervisor's own interrupts, above the guests'.
const OWN_PRIORITY: u8 = 0x40;
/// Priority of interrupts that belong to VMs.
const GUEST_PRIORITY: u8 = 0xa0;

/// Sets up the distributor without what a boot loader left of shared interrupts; boot core only.
pub fn init_distributor() {
    // Off while it is set up, so that nothing is forwarded in between.
    GICD.ctlr.set(0);
    // Bank 0 has the private interrupts, which each core sets up (`init_core`).
    for bank in 1..=GICD.typer.get() as usize & 0x1f {
        GICD.icenabler[bank].set(u32::MAX);
        GICD.icpendr[bank].set(u32::MAX);
        GICD.icactiver[bank].set(u32::MAX);
    }
    GICD.ctlr.set(1);
}

/// Sets up this core's interrupts and interfaces. `pmu` is that of its PMU, if the board wires it.
pub fn init_core(core: u8, pmu: Option<u32>) {
    // Banked: these registers are this core's own.
    GICD.icenabler[0].set(u32::MAX);
    // One that firmware has acknowledged and not ended would never arrive again.
    GICD.icactiver[0].set(u32::MAX);
    if let Some(irq) = pmu.filter(|&irq| irq >= 32) {
        // A shared interrupt that is one core's PMU's: it goes to that core alone.
        route(irq, core);
        configure(irq, Trigger::Level);
    }
    for irq in [KICK, CALL, MAINTENANCE, HYPERVISOR_TIMER]
        .into_iter()
        .chain(pmu)
    {
        GICD.ipriorityr[irq as usize].set(OWN_PRIORITY);
        GICD.isenabler[irq as usize / 32].set(1 << (irq % 32));
    }
    // More urgent than this: all priorities that are used here.
    GICC.pmr.set(0xf8);
    GICC.ctlr
        .write(GICC_CTLR::ENABLE::SET + GICC_CTLR::EOI_MODE::SET);
    reset_virtual_interface();
}

/// Empties the list registers and active priorities, so that a vCPU that starts has no interrupt of
/// an earlier life.
pub fn reset_virtual_interface() {
    for register in &GICH.lr[..LIST_REGISTERS] {
        register.set(0);
    }
    GICH.apr.set(0);
    // The guest's interface: disabled, EOImode 0, priority mask 0, as after a reset.
    GICH.vmcr.set(0);
    GICH.hcr.write(GICH_HCR::EN::SET);
}

/// Acknowledges the next pending interrupt. Returns its number, and for a KICK or CALL the sender in
/// bits \[12:10\].
///
/// [`SPURIOUS`] if none is pending. The interrupt is active from here on.
pub fn acknowledge() -> u32 {
    GICC.iar.get()
}

/// Drops the running priority; the interrupt stays active.
pub fn drop_priority(acknowledged: u32) {
    GICC.eoir.set(acknowledged);
}

/// Deactivates one of the hypervisor's own interrupts.
pub fn deactivate(acknowledged: u32) {
    GICC_DIR.dir.set(acknowledged);
}

/// Interrupts the cores in `targets` (a bit mask of GIC CPU interface numbers) by `sgi`.
///
/// The barrier orders what the caller has stored before the interrupt: the other core sees the
/// request when it looks.
pub fn send(sgi: u32, targets: u8) {
    crate::machine::sysreg::dsb_ish();
    GICD.sgir
        .write(SGIR::TARGETS.val(targets.into()) + SGIR::INTID.val(sgi));
}

/// Returns the pending state of a group of 32 interrupts.
pub fn pending(group: usize) -> u32 {
    GICD.ispendr[group % 32].get()
}

/// Returns whether an interrupt is pending: a private one of this core, or a shared one.
pub fn is_pending(irq: u32) -> bool {
    pending(irq as usize / 32) & 1 << (irq % 32) != 0
}

/// Makes a shared interrupt pending.
pub fn pend(irq: u32) {
    GICD.ispendr[irq as usize / 32].set(1 << (irq % 32));
}

/// Enables or disables an interrupt of a VM: a private one of this core, or a shared one.
///
/// Sets the priority each time, which is that of all guests' interrupts: the guest's own priorities
/// are those of list registers.
pub fn set_enabled(irq: u32, on: bool) {
    GICD.ipriorityr[irq as usize].set(GUEST_PRIORITY);
    let bank = if on { &GICD.isenabler } else { &GICD.icenabler };
    bank[irq as usize / 32].set(1 << (irq % 32));
}

/// Routes a shared interrupt to one core.
///
/// GICD_ITARGETSR has a byte for each interrupt, so that no lock is needed.
pub fn route(irq: u32, core: u8) {
    GICD.itargetsr[irq as usize].set(1 << core);
}

/// Makes a shared interrupt edge-triggered or level-sensitive.
pub fn configure(irq: u32, trigger: Trigger) {
    let register = &GICD.icfgr[irq as usize / 16];
    let bit = 2 << (irq % 16 * 2);
    // The word also holds other VMs' interrupts.
    let _guard = CONFIGURING.lock();
    let value = register.get();
    register.set(if trigger == Trigger::Edge {
        value | bit
    } else {
        value & !bit
    });
}
