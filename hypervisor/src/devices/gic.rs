//! The physical GICv2: distributor, CPU interface and virtual interface control (Arm IHI 0048B).
//!
//! EL2 takes every physical interrupt. EOImode is 1: writing EOIR drops the priority, and only DIR (or a guest's EOI
//! through a list register with the HW bit) deactivates.

use crate::machine::mmio::{GICC, GICC_DIR, GICD, GICH};
use cloison_formats::limits::LIST_REGISTERS;
use spin::mutex::TicketMutex;

/// Software-generated interrupt by which cores tell each other to look at their mailbox.
pub const KICK: u32 = 0;
/// Virtual maintenance interrupt (PPI 9).
pub const MAINTENANCE: u32 = 25;
/// EL2 physical timer (PPI 10).
pub const HYPERVISOR_TIMER: u32 = 26;
/// EL1 virtual timer (PPI 11).
pub const VIRTUAL_TIMER: u32 = 27;
/// No interrupt is pending.
pub const SPURIOUS: u32 = 1023;

const GICD_CTLR: u32 = 0x000;
const GICD_ISENABLER: u32 = 0x100;
const GICD_ICENABLER: u32 = 0x180;
const GICD_ICACTIVER: u32 = 0x380;
const GICD_IPRIORITYR: u32 = 0x400;
const GICD_ITARGETSR: u32 = 0x800;
const GICD_ICFGR: u32 = 0xc00;
const GICD_SGIR: u32 = 0xf00;
const GICC_CTLR: u32 = 0x00;
const GICC_PMR: u32 = 0x04;
const GICC_IAR: u32 = 0x0c;
const GICC_EOIR: u32 = 0x10;
const GICH_HCR: u32 = 0x00;
const GICH_VMCR: u32 = 0x08;
const GICH_EISR0: u32 = 0x20;
const GICH_ELRSR0: u32 = 0x30;
const GICH_APR: u32 = 0xf0;
const GICH_LR0: u32 = 0x100;
static CONFIGURING: TicketMutex<()> = TicketMutex::new(());

const HCR_EN: u32 = 1;
const HCR_UIE: u32 = 1 << 1;

/// Priority of the hypervisor's own interrupts, above the guests'.
const OWN_PRIORITY: u8 = 0x40;
/// Priority of interrupts that belong to VMs.
const GUEST_PRIORITY: u8 = 0xa0;

/// Sets up the distributor; boot core only.
pub fn init_distributor() {
    GICD.write(GICD_CTLR, 1);
}

/// Sets up this core's private interrupts and interfaces. `pmu` is the PMU's PPI, where the board wires it.
pub fn init_core(pmu: Option<u32>) {
    GICD.write(GICD_ICENABLER, u32::MAX);
    GICD.write(GICD_ICACTIVER, u32::MAX);
    let own = [KICK, MAINTENANCE, HYPERVISOR_TIMER].into_iter().chain(pmu);
    let mut enable = 0;
    for irq in own {
        GICD.write_byte(GICD_IPRIORITYR + irq, OWN_PRIORITY);
        enable |= 1 << irq;
    }
    GICD.write(GICD_ISENABLER, enable);
    GICC.write(GICC_PMR, 0xf8);
    GICC.write(GICC_CTLR, 1 | 1 << 9);
    reset_virtual_interface();
}

/// Empties the list registers and active priorities: a vCPU that starts has no interrupt of a former life.
pub fn reset_virtual_interface() {
    for index in 0..LIST_REGISTERS as u32 {
        GICH.write(GICH_LR0 + 4 * index, 0);
    }
    GICH.write(GICH_APR, 0);
    GICH.write(GICH_VMCR, 0);
    GICH.write(GICH_HCR, HCR_EN);
}

/// Takes the next pending interrupt: its number, and for a KICK the sender in bits \[12:10\].
#[inline(always)]
pub fn acknowledge() -> u32 {
    GICC.read(GICC_IAR)
}

/// Drops the running priority; the interrupt stays active.
#[inline(always)]
pub fn drop_priority(acknowledged: u32) {
    GICC.write(GICC_EOIR, acknowledged);
}

/// Deactivates an interrupt of the hypervisor's own.
#[inline(always)]
pub fn deactivate(acknowledged: u32) {
    GICC_DIR.write(0, acknowledged);
}

/// Interrupts the cores in `targets` (a bit mask of GIC CPU interface numbers).
#[inline(always)]
pub fn kick(targets: u8) {
    crate::machine::sysreg::dsb_ish();
    GICD.write(GICD_SGIR, u32::from(targets) << 16 | KICK);
}

/// Enables or disables an interrupt of a VM's: one of this core's private ones, or a shared one.
pub fn enable(irq: u32, on: bool) {
    let bank = if on { GICD_ISENABLER } else { GICD_ICENABLER };
    GICD.write_byte(GICD_IPRIORITYR + irq, GUEST_PRIORITY);
    GICD.write(bank + irq / 32 * 4, 1 << (irq % 32));
}

/// Sends a shared interrupt to one core.
pub fn route(irq: u32, core: u8) {
    GICD.write_byte(GICD_ITARGETSR + irq, 1 << core);
}

/// Makes a shared interrupt edge-triggered or level-sensitive.
pub fn configure(irq: u32, edge: bool) {
    let offset = GICD_ICFGR + irq / 16 * 4;
    let bit = 2 << (irq % 16 * 2);
    // The word holds other VMs' interrupts too.
    let _guard = CONFIGURING.lock();
    let value = GICD.read(offset);
    GICD.write(offset, if edge { value | bit } else { value & !bit });
}

/// List registers that the guest is done with, empty or ended: a bit mask.
#[inline(always)]
pub fn finished_list_registers() -> u32 {
    (GICH.read(GICH_ELRSR0) | GICH.read(GICH_EISR0)) & ((1 << LIST_REGISTERS) - 1)
}

/// Reads a list register.
#[inline(always)]
pub fn list_register(index: usize) -> u32 {
    GICH.read(GICH_LR0 + 4 * index as u32)
}

/// Writes a list register.
#[inline(always)]
pub fn set_list_register(index: usize, value: u32) {
    GICH.write(GICH_LR0 + 4 * index as u32, value);
}

/// Asks for a maintenance interrupt when at most one list register is in use, or no longer does.
#[inline(always)]
pub fn set_underflow_interrupt(on: bool) {
    GICH.write(GICH_HCR, if on { HCR_EN | HCR_UIE } else { HCR_EN });
}
