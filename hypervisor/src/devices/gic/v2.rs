//! What a GICv2 has in more pages than the distributor's: the CPU interface, and the virtual interface
//! control (Arm IHI 0048B, 4.4 and 5.3).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::NoAnswer;
use crate::machine::mmio::{GICC, GICC_DIR, GICD, GICH, Mapped};
use crate::machine::registers::{Readable, Writeable};
use cloison_abi::gicv2::{GICC_CTLR, GICH_HCR, GICH_VMCR, Gicd, SGIR};
use cloison_formats::addr::PhysAddr;
use cloison_formats::image::{Board, Gic, GicVersion};
use cloison_formats::limits::LIST_REGISTERS;

/// The version of the controller.
pub const VERSION: GicVersion = GicVersion::V2;
/// GICD_CTLR: interrupts are forwarded.
pub const FORWARD: u32 = 1;

/// Returns the pages after the distributor's in EL2's map.
pub fn other_pages(gic: &Gic) -> [Option<PhysAddr>; 3] {
    [gic.gicc, gic.gicc_dir, gic.gich].map(Some)
}

/// Returns a page of the redistributors, which a GICv2 has not.
pub fn frame(_: &Board, _: u64) -> Option<PhysAddr> {
    None
}

/// Returns the registers of a private interrupt of this core, or of a shared one.
pub fn bank(_: u32) -> Mapped<Gicd> {
    GICD
}

/// Prepares a bank of 32 interrupts: all are in group 0 after a reset.
pub fn init_bank(_: usize) {}

/// Turns on this core's redistributor, which a GICv2 has not.
pub fn wake() -> Result<(), NoAnswer> {
    Ok(())
}

/// Turns on this core's interface.
pub fn init_interface() {
    // More urgent than this: all priorities that are used here.
    GICC.pmr.set(0xf8);
    GICC.ctlr
        .write(GICC_CTLR::ENABLE::SET + GICC_CTLR::EOI_MODE::SET);
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
/// [`SPURIOUS`](super::SPURIOUS) if none is pending. The interrupt is active from here on.
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
pub fn send(sgi: u32, targets: u16) {
    crate::machine::sysreg::dsb_ish();
    GICD.sgir
        .write(SGIR::TARGETS.val(targets.into()) + SGIR::INTID.val(sgi));
}

/// Routes a shared interrupt to one core.
///
/// GICD_ITARGETSR has a byte for each interrupt, so that no lock is needed.
pub fn route(irq: u32, core: u8) {
    GICD.itargetsr[irq as usize].set(1 << core);
}

/// Returns the list registers that are empty (ELRSR), or ended with a maintenance interrupt that is
/// still shown (EISR).
pub fn done() -> u32 {
    (GICH.elrsr[0].get() | GICH.eisr[0].get()) & ((1 << LIST_REGISTERS) - 1)
}

/// Reads a list register.
pub fn list_register(index: usize) -> u32 {
    GICH.lr[index % LIST_REGISTERS].get()
}

/// Writes a list register.
pub fn set_list_register(index: usize, value: u32) {
    GICH.lr[index % LIST_REGISTERS].set(value);
}

/// Sets the maintenance interrupts while no list register is pending, and while EOICount is not 0,
/// which becomes 0 (IHI 0048B, 5.3.1).
pub fn watch(waiting: bool, aside: bool) {
    let waiting = GICH_HCR::NPIE.val(waiting.into());
    let aside = GICH_HCR::LRENPIE.val(aside.into());
    GICH.hcr.write(GICH_HCR::EN::SET + waiting + aside);
}

/// Returns EOICount.
pub fn ended() -> u32 {
    GICH.hcr.read(GICH_HCR::EOI_COUNT)
}

/// Returns the active priorities.
pub fn active_priorities() -> u32 {
    GICH.apr.get()
}

/// Returns the lowest bit of a five-bit priority that decides about preemption.
pub fn binary_point() -> u32 {
    // Of eight bits, the interface has the upper five; its smallest binary point is 2.
    GICH.vmcr.read(GICH_VMCR::BINARY_POINT).saturating_sub(2)
}

/// Returns whether the guest ends its interrupts in two steps. It may change that at any time
/// without an exit.
pub fn guest_splits_end() -> bool {
    GICH.vmcr.is_set(GICH_VMCR::EOI_MODE)
}
