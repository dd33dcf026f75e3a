//! The interrupt controller: its pages, its size, the EL2 timer's interrupt, and how a GICv2 ends a
//! virtual one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::gicv3;
use crate::machine::access::{read32, take_interrupts, write32};
use crate::machine::registers::{CNTHP_CTL_EL2, CNTHP_CVAL_EL2, Writeable};
use crate::machine::time;
use crate::report::{Report, address, nothing_at};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::Board;
use cloison_formats::limits::LIST_REGISTERS;
use cloison_hello::line::Verdict;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

// Offsets of registers (Arm IHI 0048B): distributor, CPU interface, virtual interface control.
const TYPER: u64 = 0x004;
pub(super) const ISENABLER: u64 = 0x100;
pub(super) const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
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
/// All priorities are more urgent.
pub(super) const ALL_PRIORITIES: u32 = 0xf8;
/// Interrupt number in IAR and HPPIR.
pub(super) const NUMBER: u32 = 0x3ff;
/// The EL2 timer's interrupt (PPI 10).
pub(super) const EL2_TIMER: u32 = 26;
/// A virtual interrupt that no device has.
const VIRTUAL: u32 = 100;
/// GICH_LR: pending; of a hardware interrupt.
const LR_PENDING: u32 = 1 << 28;
const LR_HARDWARE: u32 = 1 << 31;
/// Milliseconds within which an interrupt arrives.
const ARRIVAL_MS: u64 = 100;
/// Bytes around a claimed page in which the others are looked for.
const NEIGHBORHOOD: u64 = 1 << 20;

/// The distributor and CPU interface that the vectors use, and the last interrupt that they took.
pub(super) static GICD: AtomicU64 = AtomicU64::new(0);
static GICC: AtomicU64 = AtomicU64::new(0);
pub(super) static TAKEN: AtomicU32 = AtomicU32::new(0);

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

/// Returns the offset of an interrupt's word in a register with a bit for each.
pub(super) fn word(irq: u32) -> u64 {
    u64::from(irq / 32 * 4)
}

/// Returns an interrupt's bit in its word.
pub(super) fn bit(irq: u32) -> u32 {
    1 << (irq % 32)
}

/// The pages that work: those of the claims, or those that were found instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gic {
    pub(super) gicd: Option<u64>,
    pub(super) gicc: Option<u64>,
    pub(super) gich: Option<u64>,
    /// Of a GICv3, this core's private interrupts.
    pub(super) private: Option<u64>,
}

/// The pending state of all interrupts.
type Pending = Vec<u32>;

impl Gic {
    /// Returns what the boot core has found, for another core: the distributor.
    pub fn of_boot_core() -> Self {
        let gicd = GICD.load(Relaxed);
        Self {
            gicd: (gicd != 0).then_some(gicd),
            private: gicv3::private(),
            ..Self::default()
        }
    }

    /// Returns whether there is a distributor, so that interrupts can be looked for.
    pub fn has_distributor(&self) -> bool {
        self.gicd.is_some()
    }

    /// Returns which interrupts are pending.
    fn pending(&self) -> Pending {
        let Some(gicd) = self.gicd else {
            return Vec::new();
        };
        let words = read32(gicd + TYPER).unwrap_or_default() & 0x1f;
        let word = |number| {
            let bank = self.private.filter(|_| number == 0).unwrap_or(gicd);
            read32(bank + ISPENDR + u64::from(number) * 4).unwrap_or_default()
        };
        (0..=words).map(word).collect()
    }

    /// Returns the interrupt that a device raises: pending after `raise`, and neither before nor
    /// after `lower`.
    pub fn raised_by(&self, mut raise: impl FnMut(), mut lower: impl FnMut()) -> Option<u32> {
        let before = self.pending();
        raise();
        let mut during = self.pending();
        time::wait_until(ARRIVAL_MS, || {
            during = self.pending();
            during != before
        });
        lower();
        time::wait_until(ARRIVAL_MS, || self.pending() == before);
        let after = self.pending();
        let words = before.iter().zip(&during).zip(&after);
        let new = words.map(|((before, during), after)| during & !before & !after);
        let of_word =
            |(number, word): (u32, u32)| (word != 0).then(|| number * 32 + word.trailing_zeros());
        (0..).zip(new).find_map(of_word)
    }
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

/// Returns the first page near the claimed ones that is what is looked for.
fn near(claimed: &[u64], is_it: impl Fn(u64) -> bool) -> Option<u64> {
    let mut windows: Vec<u64> = claimed
        .iter()
        .map(|page| page & !(NEIGHBORHOOD - 1))
        .collect();
    windows.sort_unstable();
    windows.dedup();
    let pages = windows
        .into_iter()
        .flat_map(|start| (start..start + NEIGHBORHOOD).step_by(PAGE_SIZE as usize));
    pages.into_iter().find(|page| is_it(*page))
}

/// Checks a page by what it shows. Returns where it is.
pub(super) fn page(
    report: &mut Report,
    key: &str,
    claimed: u64,
    all: &[u64],
    is_it: impl Fn(u64) -> bool,
) -> Option<u64> {
    if is_it(claimed) {
        report.compare(key, address(claimed), Some(address(claimed)), "");
        return Some(claimed);
    }
    let remark = if read32(claimed).is_err() {
        nothing_at(claimed)
    } else {
        format!("something else answers at {claimed:#x}")
    };
    let found = near(all, is_it);
    report.compare(key, address(claimed), found.map(address), remark);
    found
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
        gicc: page(report, "gic.gicc", claims.gicc.0, &all, is_interface),
        gich: page(report, "gic.gich", claims.gich.0, &all, is_control),
        private: None,
    };
    interrupts(report, board, &gic);
    let kind = gic.gich.and_then(|page| read32(page + GICH_VTR).ok());
    match kind {
        None => report.untested("gic.list_registers", LIST_REGISTERS, "there is no GICH"),
        Some(kind) => list_registers(report, (kind & 0x3f) + 1, "GICH_VTR"),
    }
    let (Some(gicd), Some(gicc)) = (gic.gicd, gic.gicc) else {
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
    match gic.gich {
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

/// Checks the number of interrupts.
pub(super) fn interrupts(report: &mut Report, board: &Board, gic: &Gic) {
    let uarts = board.telemetry.iter().chain([&board.console]);
    let claimed = uarts
        .map(|uart| uart.irq.0)
        .chain(board.pmu_irqs.iter().map(|irq| irq.0));
    let least = claimed.max().unwrap_or(0) + 1;
    match gic.gicd.and_then(|page| read32(page + TYPER).ok()) {
        None => report.untested("gic.interrupts", format!("{least}.."), "there is no GICD"),
        Some(kind) => {
            let found = (kind & 0x1f) * 32 + 32;
            let verdict = if found >= least {
                Verdict::Right
            } else {
                Verdict::Wrong
            };
            let remark = "GICD_TYPER; at least the interrupts that the file names";
            report.line(
                "gic.interrupts",
                format!("{least}.."),
                found,
                verdict,
                remark,
            );
        }
    }
}

/// Checks the number of list registers.
pub(super) fn list_registers(report: &mut Report, found: u32, remark: &str) {
    let verdict = if found as usize >= LIST_REGISTERS {
        Verdict::Right
    } else {
        Verdict::Wrong
    };
    report.line("gic.list_registers", LIST_REGISTERS, found, verdict, remark);
}

/// Lets the EL2 timer interrupt, now or never.
fn timer(is_on: bool) {
    CNTHP_CVAL_EL2.set(time::now());
    CNTHP_CTL_EL2.write(if is_on {
        CNTHP_CTL_EL2::ENABLE::SET
    } else {
        CNTHP_CTL_EL2::ENABLE::CLEAR
    });
    crate::machine::access::barrier();
}

/// Checks that the EL2 timer's interrupt, which is enabled, is taken.
pub(super) fn timer_interrupt(report: &mut Report) {
    TAKEN.store(0, Relaxed);
    timer(true);
    let arrived = time::wait_until(ARRIVAL_MS, || {
        take_interrupts();
        TAKEN.load(Relaxed) == EL2_TIMER
    });
    timer(false);
    let remark = if arrived {
        ""
    } else {
        "no interrupt within 100 ms"
    };
    let found = arrived.then_some(EL2_TIMER);
    report.compare("timer.interrupt", EL2_TIMER, found, remark);
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
