//! The interrupt controller: its pages, its size, the EL2 timer's interrupt, and how a GICv2 ends a
//! virtual one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::gicv3;
use crate::checks::interrupt::{
    ALL_PRIORITIES, ARRIVAL_MS, EL2_TIMER, GICD, Gic, ICENABLER, ISENABLER, NUMBER, TAKEN, bit,
    interrupts, list_registers, page, timer, timer_interrupt, word,
};
use crate::machine::access::{read32, write32};
use crate::machine::time;
use crate::report::{Report, address, nothing_at};
use alloc::format;
use alloc::string::String;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::Board;
use cloison_formats::limits::LIST_REGISTERS;
use cloison_hello::line::Verdict;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

// Offsets of registers (Arm IHI 0048B): distributor, CPU interface, virtual interface control.
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;
const PIDR0: u64 = 0xfe0;
const PIDR1: u64 = 0xfe4;
const PIDR2: u64 = 0xfe8;
const PMR: u64 = 0x04;
const IAR: u64 = 0x0c;
const EOIR: u64 = 0x10;
const HPPIR: u64 = 0x18;
const IIDR: u64 = 0xfc;
const GICH_VTR: u64 = 0x04;
const GICH_VMCR: u64 = 0x08;
const GICH_LR0: u64 = 0x100;

/// GICC_CTLR: enabled; EOIR only drops the priority.
const ENABLE: u32 = 1;
const EOI_MODE: u32 = 1 << 9;
/// A virtual interrupt that no device has.
const VIRTUAL: u32 = 100;
/// GICH_LR: pending; of a hardware interrupt.
const LR_PENDING: u32 = 1 << 28;
const LR_HARDWARE: u32 = 1 << 31;
/// The CPU interface that the vectors use.
static GICC: AtomicU64 = AtomicU64::new(0);

/// Takes an interrupt: called by the vectors. It is recorded, and disabled until a check enables it
/// again.
pub fn take() {
    if gicv3::take() {
        return;
    }
    let (gicd, gicc) = (GICD.load(Relaxed), GICC.load(Relaxed));
    let Ok(acknowledged) = read32(gicc + IAR) else {
        return;
    };
    let number = acknowledged & NUMBER;
    TAKEN.store(number, Relaxed);
    // The CPU interface has just answered, and the distributor before.
    let _ = write32(gicd + ICENABLER + word(number), bit(number));
    let _ = write32(gicc + EOIR, acknowledged);
}

/// Whether a page is what a claim says.
fn is_distributor(page: u64) -> bool {
    let [low, high, revision] =
        [PIDR0, PIDR1, PIDR2].map(|at| read32(page + at).unwrap_or_default());
    // Part 0x490 or another one of a GICv2, and by Arm (3.x of the GIC-400's manual, DDI 0471).
    low & 0xff == 0x90 && high & 0xf == 4 && revision >> 4 & 0xf == 2
}

/// Whether a page is a CPU interface of a GICv2: the physical one, or the virtual one, which looks the
/// same.
fn is_interface(page: u64) -> bool {
    let identity = read32(page + IIDR).unwrap_or_default();
    identity & 0xfff == 0x43b && identity >> 16 & 0xf == 2
}

/// Whether a page is the virtual interface control: priorities of five bits, in GICH_VTR.
fn is_control(page: u64) -> bool {
    let kind = read32(page + GICH_VTR).unwrap_or_default();
    kind >> 26 == 0x24
}

/// Checks the interrupt controller.
pub fn check(report: &mut Report, board: &Board) -> Gic {
    let claims = &board.gic;
    if let Some(gicr) = claims.gicr {
        return gicv3::check(report, board, gicr.0);
    }
    let all = [
        claims.gicd,
        claims.gicc,
        claims.gicc_dir,
        claims.gich,
        claims.gicv,
        claims.gicv_dir,
    ]
    .map(|page| page.0);
    let gic = Gic {
        gicd: page(report, "gic.gicd", claims.gicd.0, &all, is_distributor),
        private: None,
    };
    let gicc = page(report, "gic.gicc", claims.gicc.0, &all, is_interface);
    let gich = page(report, "gic.gich", claims.gich.0, &all, is_control);
    interrupts(report, board, &gic);
    let kind = gich.and_then(|page| read32(page + GICH_VTR).ok());
    match kind {
        None => report.untested("gic.list_registers", LIST_REGISTERS, "there is no GICH"),
        Some(kind) => list_registers(report, (kind & 0x3f) + 1, "GICH_VTR"),
    }
    let (Some(gicd), Some(gicc)) = (gic.gicd, gicc) else {
        let why = "there is no distributor and CPU interface to try it with";
        report.untested("timer.interrupt", EL2_TIMER, why);
        for (key, claimed) in [
            ("gic.gicc_dir", claims.gicc_dir),
            ("gic.gicv", claims.gicv),
            ("gic.gicv_dir", claims.gicv_dir),
        ] {
            report.untested(key, claimed, why);
        }
        report.untested("gic.mediated_timer", claims.mediated_timer, why);
        return gic;
    };
    GICD.store(gicd, Relaxed);
    GICC.store(gicc, Relaxed);
    let pages = Pages { gicd, gicc };
    pages.timer_interrupt(report);
    pages.deactivation(report, claims.gicc_dir.0);
    match gich {
        Some(gich) => pages.virtual_interface(report, gich, board, &all),
        None => {
            let why = "there is no GICH to try it with";
            report.untested("gic.gicv", claims.gicv, why);
            report.untested("gic.gicv_dir", claims.gicv_dir, why);
            report.untested("gic.mediated_timer", claims.mediated_timer, why);
        }
    }
    gic
}

/// The distributor and CPU interface that answer.
struct Pages {
    gicd: u64,
    gicc: u64,
}

impl Pages {
    /// Writes a register that has answered before.
    fn set(&self, register: u64, value: u32) {
        // A page that has answered does.
        let _ = write32(register, value);
    }

    fn get(&self, register: u64) -> u32 {
        read32(register).unwrap_or_default()
    }

    /// Checks that the EL2 timer interrupts this core.
    fn timer_interrupt(&self, report: &mut Report) {
        self.set(self.gicd, ENABLE);
        self.set(self.gicc + PMR, ALL_PRIORITIES);
        self.set(self.gicc, ENABLE);
        self.set(self.gicd + ISENABLER, bit(EL2_TIMER));
        timer_interrupt(report);
    }

    /// Makes the timer's interrupt active: acknowledged, with its priority dropped.
    fn activate(&self) -> bool {
        self.set(self.gicc, ENABLE | EOI_MODE);
        self.set(self.gicd + ISENABLER, bit(EL2_TIMER));
        timer(true);
        let mut number = 0;
        let has_come = time::wait_until(ARRIVAL_MS, || {
            number = self.get(self.gicc + IAR) & NUMBER;
            number == EL2_TIMER
        });
        self.set(self.gicc + EOIR, number);
        has_come
    }

    /// Stops the timer, and ends what is left of its interrupt.
    fn quiet(&self) {
        timer(false);
        self.set(self.gicd + ICACTIVER, bit(EL2_TIMER));
        self.set(self.gicd + ICENABLER, bit(EL2_TIMER));
        self.set(self.gicc, ENABLE);
    }

    /// Checks the page of GICC_DIR: a write ends an active interrupt.
    fn deactivation(&self, report: &mut Report, claimed: u64) {
        let ends = |page: u64| {
            let is_active = || self.get(self.gicd + ISACTIVER) & bit(EL2_TIMER) != 0;
            let was_active = self.activate() && is_active();
            timer(false);
            let ends = was_active && write32(page, EL2_TIMER).is_ok() && !is_active();
            self.quiet();
            ends
        };
        functional_page(report, "gic.gicc_dir", claimed, self.gicc, ends);
    }

    /// Checks the virtual CPU interface, which is used from here as a guest would.
    fn virtual_interface(&self, report: &mut Report, gich: u64, board: &Board, all: &[u64]) {
        let claims = &board.gic;
        // A virtual interrupt in a list register is what the interface acknowledges.
        let acknowledges = |page: u64| {
            self.set(gich + GICH_LR0, LR_PENDING | VIRTUAL);
            self.set(gich + GICH_VMCR, 0);
            self.set(gich, ENABLE);
            let is_on = write32(page, ENABLE).and(write32(page + PMR, ALL_PRIORITIES));
            let number = is_on.and_then(|()| read32(page + IAR));
            // Ends it, where it is.
            let _ = write32(page + EOIR, VIRTUAL);
            self.set(gich + GICH_LR0, 0);
            number.is_ok_and(|number| number & NUMBER == VIRTUAL)
        };
        // Not the physical interface, which looks the same and would lose its settings.
        let is_it = |page: u64| page != self.gicc && is_interface(page) && acknowledges(page);
        let Some(gicv) = page(report, "gic.gicv", claims.gicv.0, all, is_it) else {
            let why = "there is no GICV to try it with";
            report.untested("gic.gicv_dir", claims.gicv_dir, why);
            report.untested("gic.mediated_timer", claims.mediated_timer, why);
            return;
        };
        let ends = |page: u64| {
            self.set(gich + GICH_LR0, LR_PENDING | VIRTUAL);
            self.set(gicv, ENABLE | EOI_MODE);
            let number = self.get(gicv + IAR);
            self.set(gicv + EOIR, number);
            let was_active = self.get(gich + GICH_LR0) >> 28 & 3 == 2;
            let is_written = write32(page, VIRTUAL).is_ok();
            let ends = was_active && is_written && self.get(gich + GICH_LR0) >> 28 & 3 == 0;
            self.set(gich + GICH_LR0, 0);
            self.set(gicv, ENABLE);
            ends
        };
        functional_page(report, "gic.gicv_dir", claims.gicv_dir.0, gicv, ends);
        self.mediated_timer(report, gich, gicv, claims.mediated_timer);
        self.set(gich, 0);
    }

    /// Checks whether a guest's EOI makes the GIC sample the line again: the timer's interrupt, which
    /// is high all along, is then pending again.
    fn mediated_timer(&self, report: &mut Report, gich: u64, gicv: u64, claimed: bool) {
        const KEY: &str = "gic.mediated_timer";
        if !self.activate() {
            self.quiet();
            return report.untested(KEY, claimed, "the EL2 timer's interrupt does not arrive");
        }
        let list = LR_HARDWARE | LR_PENDING | EL2_TIMER << 10 | EL2_TIMER;
        self.set(gich + GICH_LR0, list);
        let number = self.get(gicv + IAR);
        self.set(gicv + EOIR, number);
        let is_sampled = time::wait_until(2, || self.get(self.gicc + HPPIR) & NUMBER == EL2_TIMER);
        self.set(gich + GICH_LR0, 0);
        self.quiet();
        let found = !is_sampled;
        // A hypervisor that mediates needs no GIC that does not sample.
        let verdict = match (claimed, found) {
            (true, false) => Verdict::Noted,
            (false, true) => Verdict::Wrong,
            _ => Verdict::Right,
        };
        let remark = if claimed && !found {
            "this GIC does not need it"
        } else {
            ""
        };
        report.line(KEY, claimed, found, verdict, remark);
    }
}

/// Checks a second page by what a write to it does, and looks for it 4 KiB and 64 KiB after the first.
fn functional_page(
    report: &mut Report,
    key: &str,
    claimed: u64,
    first: u64,
    ends: impl Fn(u64) -> bool,
) {
    let others = [first + PAGE_SIZE, first + (64 << 10)];
    let found = [claimed].into_iter().chain(others).find(|page| ends(*page));
    let remark = match found {
        Some(page) if page == claimed => String::new(),
        _ if read32(claimed).is_err() => nothing_at(claimed),
        _ => format!("a write at {claimed:#x} ends no interrupt"),
    };
    report.compare(key, address(claimed), found.map(address), remark);
}
