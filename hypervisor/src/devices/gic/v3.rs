//! What a GICv3 has in system registers and redistributors (Arm IHI 0069H, 12.2, 12.4 and 12.11).
//!
//! The guest's ICC registers are the hardware's virtual ones, ICV, because HCR_EL2.IMO is set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::NoAnswer;
use crate::machine::mmio::{GICD, Mapped, Page, ROUTES, redistributor};
use crate::machine::registers::*;
use crate::machine::sysreg::{dsb_ish, isb};
use cloison_abi::gicv2::Gicd;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr};
use cloison_formats::image::{Board, Gic, GicVersion};
use cloison_formats::limits::LIST_REGISTERS;
use cloison_logic::vgic::v3;

/// The version of the controller.
pub const VERSION: GicVersion = GicVersion::V3;
/// GICD_CTLR: ARE and both enables, wherever the group of all interrupts has its own (12.9.4).
pub const FORWARD: u32 = 0x13;
/// ICH_HCR_EL2: the interface works, and writes of ICC_DIR trap (12.4.7).
const HCR: u64 = 1 | 1 << 14;
/// ICC_SRE_EL2: system registers, no bypass; EL1's ICC_SRE traps (12.2.22).
const SRE: u64 = 7;

/// How often GICR_WAKER is read for the redistributor to wake up.
const PATIENCE: u32 = 100_000;

/// Returns the pages after the distributor's in EL2's map: those of GICD_IROUTER.
pub fn other_pages(gic: &Gic) -> [Option<PhysAddr>; 3] {
    let routes = PhysAddr(gic.gicd.0 + 6 * PAGE_SIZE);
    [Some(routes), Some(routes.page(1)), None]
}

/// Returns the first page of a frame of the redistributors, if they have that frame.
pub fn frame(board: &Board, frame: u64) -> Option<PhysAddr> {
    let base = board.gic.gicr?;
    (frame < 2 * board.cores.len() as u64).then(|| PhysAddr(base.0 + (frame << 16)))
}

/// Returns this core's number: its redistributor's, and its affinity.
fn core() -> usize {
    MPIDR_EL1.read(MPIDR_EL1::Aff0) as usize
}

/// Returns the registers of a private interrupt of this core, or of a shared one. Both have the same
/// layout (12.8.1, 12.10.1).
pub fn bank(irq: u32) -> Mapped<Gicd> {
    if irq < 32 {
        redistributor(2 * core() + 1)
    } else {
        GICD
    }
}

/// Prepares a bank of 32 interrupts: all are in group 1.
pub fn init_bank(number: usize) {
    bank(number as u32 * 32).igroupr[number].set(u32::MAX);
}

/// Turns on this core's redistributor. GICR_TYPER has its affinity (12.11.38), and GICR_WAKER
/// ProcessorSleep, which this clears, and ChildrenAsleep, which follows (12.11.41).
pub fn wake() -> Result<(), NoAnswer> {
    let registers = redistributor::<Page>(2 * core());
    let waker = &registers[5];
    waker.set(waker.get() & !2);
    let is_own = registers[3].get() as usize == core();
    let is_awake = (0..PATIENCE).any(|_| waker.get() & 4 == 0);
    (is_own && is_awake).then_some(()).ok_or(NoAnswer)
}

/// Turns on this core's interface.
pub fn init_interface() {
    init_bank(0);
    ICC_SRE_EL2.set(SRE);
    isb();
    ICC_PMR_EL1.set(0xf8);
    // EOImode.
    ICC_CTLR_EL1.set(2);
    ICC_IGRPEN1_EL1.set(1);
    isb();
}

/// Empties the list registers and active priorities, so that a vCPU that starts has no interrupt of
/// an earlier life.
pub fn reset_virtual_interface() {
    for index in 0..LIST_REGISTERS {
        write_list_register(index, 0);
    }
    ICH_AP0R0_EL2.set(0);
    ICH_AP1R0_EL2.set(0);
    ICH_VMCR_EL2.set(0);
    ICH_HCR_EL2.set(HCR);
}

/// Acknowledges the next pending interrupt, as of a GICv2. It is active from here on.
pub fn acknowledge() -> u32 {
    ICC_IAR1_EL1.get() as u32
}

/// Drops the running priority; the interrupt stays active.
pub fn drop_priority(acknowledged: u32) {
    ICC_EOIR1_EL1.set(acknowledged.into());
}

/// Deactivates one of the hypervisor's own interrupts.
pub fn deactivate(acknowledged: u32) {
    ICC_DIR_EL1.set(acknowledged.into());
}

/// Interrupts the cores in `targets`, whose affinities are their numbers, by `sgi`.
pub fn send(sgi: u32, targets: u16) {
    dsb_ish();
    ICC_SGI1R_EL1.set(v3::sgi(targets, sgi));
}

/// Routes a shared interrupt to one core.
pub fn route(irq: u32, core: u8) {
    ROUTES[irq as usize].set(core.into());
}

/// Returns the list registers that are empty, or ended with a maintenance interrupt. The barrier
/// makes them show what was written to list registers (Arm IHI 0069H, 12.4.6).
pub fn done() -> u32 {
    isb();
    (ICH_ELRSR_EL2.get() | ICH_EISR_EL2.get()) as u32 & ((1 << LIST_REGISTERS) - 1)
}

/// Reads a list register, as a GICv2's.
pub fn list_register(index: usize) -> u32 {
    v3::from_hardware(match index % LIST_REGISTERS {
        0 => ICH_LR0_EL2.get(),
        1 => ICH_LR1_EL2.get(),
        2 => ICH_LR2_EL2.get(),
        _ => ICH_LR3_EL2.get(),
    })
}

/// Writes a list register, given as a GICv2's.
pub fn set_list_register(index: usize, value: u32) {
    write_list_register(index, v3::to_hardware(value));
}

/// Writes ICH_LRn_EL2.
fn write_list_register(index: usize, value: u64) {
    match index % LIST_REGISTERS {
        0 => ICH_LR0_EL2.set(value),
        1 => ICH_LR1_EL2.set(value),
        2 => ICH_LR2_EL2.set(value),
        _ => ICH_LR3_EL2.set(value),
    }
}

/// Sets the maintenance interrupts while no list register is pending, and while EOICount is not 0,
/// which becomes 0.
pub fn watch(waiting: bool, aside: bool) {
    ICH_HCR_EL2.set(HCR | v3::watched(waiting, aside));
}

/// Returns EOICount.
pub fn ended() -> u32 {
    v3::ended(ICH_HCR_EL2.get())
}

/// Returns the active priorities.
pub fn active_priorities() -> u32 {
    ICH_AP1R0_EL2.get() as u32
}

/// Returns the lowest bit of a five-bit priority that decides about preemption.
pub fn binary_point() -> u32 {
    v3::binary_point(ICH_VMCR_EL2.get())
}

/// Returns whether the guest ends its interrupts in two steps (ICH_VMCR_EL2.VEOIM). It may change
/// that at any time without an exit.
pub fn guest_splits_end() -> bool {
    v3::splits_end(ICH_VMCR_EL2.get())
}
