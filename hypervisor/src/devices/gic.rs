//! The physical GIC: distributor, CPU interface and virtual interface control (GICv2: Arm IHI 0048B;
//! GICv3: Arm IHI 0069H). The version is chosen when EL2 is built.
//!
//! EL2 takes every physical interrupt. EOImode is 1: a write to EOIR drops the priority; only a
//! write to DIR, or a guest's EOI through a list register with the HW bit, deactivates.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmio::GICD;
use crate::machine::registers::{Readable, Writeable};
use cloison_formats::image::GicVersion;
use cloison_logic::vgic::Trigger;
use spin::mutex::TicketMutex;
pub use version::*;

#[cfg(not(feature = "gicv3"))]
#[path = "gic/v2.rs"]
mod version;
#[cfg(feature = "gicv3")]
#[path = "gic/v3.rs"]
mod version;

/// Whether it is a GICv3.
pub const IS_V3: bool = matches!(VERSION, GicVersion::V3);

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
    // Affinity routing first: without it, a GICv3 has other registers.
    GICD.ctlr.set(FORWARD & !3);
    // Bank 0 has the private interrupts, which each core sets up (`init_core`).
    for bank in 1..=GICD.typer.get() as usize & 0x1f {
        GICD.icenabler[bank].set(u32::MAX);
        GICD.icpendr[bank].set(u32::MAX);
        GICD.icactiver[bank].set(u32::MAX);
        init_bank(bank);
    }
    GICD.ctlr.set(FORWARD);
}

/// Returns how many interrupts it has.
pub fn interrupts() -> u32 {
    (GICD.typer.get() % 32 + 1) * 32
}

/// A core's redistributor does not wake up, or is another core's.
pub struct NoAnswer;

/// Sets up this core's interrupts and interfaces. `pmu` is that of its PMU, if the board wires it.
pub fn init_core(core: u8, pmu: Option<u32>) -> Result<(), NoAnswer> {
    wake()?;
    // This core's own registers.
    let own = bank(0);
    own.icenabler[0].set(u32::MAX);
    // One that firmware has acknowledged and not ended would never arrive again.
    own.icactiver[0].set(u32::MAX);
    if let Some(irq) = pmu.filter(|&irq| irq >= 32) {
        // A shared interrupt that is one core's PMU's: it goes to that core alone.
        route(irq, core);
        configure(irq, Trigger::Level);
    }
    for irq in [KICK, CALL, MAINTENANCE, HYPERVISOR_TIMER]
        .into_iter()
        .chain(pmu)
    {
        bank(irq).ipriorityr[irq as usize].set(OWN_PRIORITY);
        bank(irq).isenabler[irq as usize / 32].set(1 << (irq % 32));
    }
    init_interface();
    reset_virtual_interface();
    Ok(())
}

/// Returns the pending state of a group of 32 interrupts.
pub fn pending(group: usize) -> u32 {
    bank(group as u32 * 32).ispendr[group % 32].get()
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
    let bank = bank(irq);
    bank.ipriorityr[irq as usize].set(GUEST_PRIORITY);
    let enables = if on { &bank.isenabler } else { &bank.icenabler };
    enables[irq as usize / 32].set(1 << (irq % 32));
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
