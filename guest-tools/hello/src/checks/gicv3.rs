//! A GICv3: its distributor, the boot core's redistributor, and the EL2 timer's interrupt (Arm IHI
//! 0069H, 12.2, 12.4, 12.9 and 12.11).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::interrupt::{
    ALL_PRIORITIES, EL2_TIMER, GICD, GICR, Gic, ICENABLER, ISENABLER, NUMBER, PRIVATE,
    REDISTRIBUTOR, TAKEN, bit, interrupts, list_registers, page, private, timer_interrupt,
};
use crate::machine::access::{barrier, read32, write32};
use crate::machine::registers::{
    ICC_CTLR_EL1, ICC_EOIR1_EL1, ICC_IAR1_EL1, ICC_IGRPEN1_EL1, ICC_PMR_EL1, ICC_SRE_EL2,
    ICH_VTR_EL2, ID_AA64PFR0_EL1, Readable, Writeable, affinity,
};
use crate::machine::time;
use crate::report::Report;
use cloison_formats::image::Board;
use cloison_formats::limits::LIST_REGISTERS;
use core::sync::atomic::Ordering::Relaxed;

// Offsets of registers of the distributor and a redistributor's first frame.
const CTLR: u64 = 0x0;
const AFFINITY: u64 = 0xc;
const WAKER: u64 = 0x14;
const PIDR0: u64 = 0xffe0;
const PIDR2: u64 = 0xffe8;
const IGROUPR0: u64 = 0x80;
/// GICD_CTLR: affinity routing, then also both groups that EL2 may have.
const ROUTING: u32 = 1 << 4;
const GROUPS: u32 = 3;
/// GICR_WAKER: ProcessorSleep, ChildrenAsleep.
const SLEEP: u32 = 1 << 1;
const ASLEEP: u32 = 1 << 2;
/// ID_AA64PFR0_EL1.GIC: the CPU has system registers of a GIC.
const HAS_REGISTERS: u64 = 0xf << 24;
/// ICC_SRE_EL2: system registers, no bypass.
const SYSTEM_REGISTERS: u64 = 7;
/// Milliseconds within which a redistributor wakes up.
const WAKE_MS: u64 = 100;

/// Takes an interrupt, as with a GICv2. Returns whether the board has a GICv3.
pub fn take() -> bool {
    let Some(private) = private() else {
        return false;
    };
    let acknowledged = ICC_IAR1_EL1.get();
    let number = acknowledged as u32 & NUMBER;
    TAKEN.store(number, Relaxed);
    if number < 32 {
        // The redistributor has answered before.
        let _ = write32(private + ICENABLER, bit(number));
        ICC_EOIR1_EL1.set(acknowledged);
    }
    true
}

/// Returns whether a page begins a frame of a GICv3, and of this part (Arm's GIC-500 and later).
fn is_frame(page: u64, part: u32) -> bool {
    let [low, revision] = [PIDR0, PIDR2].map(|at| read32(page + at).unwrap_or_default());
    low & 0xff == part && revision >> 4 & 0xf == 3
}

fn is_distributor(page: u64) -> bool {
    is_frame(page, 0x92)
}

/// Whether a page is this core's redistributor.
fn is_own(page: u64) -> bool {
    is_frame(page, 0x93) && read32(page + AFFINITY).is_ok_and(|own| u64::from(own) == affinity())
}

/// Checks the interrupt controller, whose redistributors are claimed to be at `gicr`.
pub fn check(report: &mut Report, board: &Board, gicr: u64) -> Gic {
    let claims = &board.gic;
    let before = affinity() * REDISTRIBUTOR;
    let all = [claims.gicd.0, gicr];
    let gicd = page(report, "gic.gicd", claims.gicd.0, &all, is_distributor);
    let first = page(report, "gic.gicr", gicr, &all, |page| is_own(page + before));
    GICD.store(gicd.unwrap_or(0), Relaxed);
    let gic = Gic {
        gicd,
        private: first.map(|first| first + before + PRIVATE),
    };
    interrupts(report, board, &gic);
    let why = "only a guest reaches the virtual interface";
    report.untested("gic.mediated_timer", claims.mediated_timer, why);
    let has_registers = ID_AA64PFR0_EL1.get() & HAS_REGISTERS != 0;
    let (Some(gicd), Some(first), true) = (gicd, first, has_registers) else {
        let why = "there is no distributor, redistributor and system registers to try it with";
        report.untested("timer.interrupt", EL2_TIMER, why);
        report.untested("gic.list_registers", LIST_REGISTERS, why);
        return gic;
    };
    let own = first + before;
    // The pages have just answered.
    let set = |register, value| _ = write32(register, value);
    set(gicd + CTLR, ROUTING);
    set(gicd + CTLR, ROUTING | GROUPS);
    set(own + WAKER, read32(own + WAKER).unwrap_or(0) & !SLEEP);
    time::wait_until(WAKE_MS, || {
        read32(own + WAKER).is_ok_and(|waker| waker & ASLEEP == 0)
    });
    set(own + PRIVATE + IGROUPR0, u32::MAX);
    ICC_SRE_EL2.set(SYSTEM_REGISTERS);
    barrier();
    ICC_PMR_EL1.set(ALL_PRIORITIES.into());
    ICC_CTLR_EL1.set(0);
    ICC_IGRPEN1_EL1.set(1);
    barrier();
    list_registers(report, (ICH_VTR_EL2.get() as u32 & 0x1f) + 1, "ICH_VTR_EL2");
    GICR.store(first, Relaxed);
    set(own + PRIVATE + ISENABLER, bit(EL2_TIMER));
    timer_interrupt(report);
    gic
}
