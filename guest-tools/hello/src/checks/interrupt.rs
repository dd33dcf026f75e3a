//! What interrupt controllers of both versions have: interrupts that are pending, a size, and the EL2
//! timer's interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::{barrier, read32, take_interrupts};
use crate::machine::registers::{CNTHP_CTL_EL2, CNTHP_CVAL_EL2, Writeable, affinity};
use crate::machine::time;
use crate::report::{Report, address, nothing_at};
use alloc::format;
use alloc::vec::Vec;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::Board;
use cloison_formats::limits::{LIST_REGISTERS, MAX_IRQ};
use cloison_hello::line::Verdict;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

// Offsets of registers that both have (Arm IHI 0048B, IHI 0069H).
const TYPER: u64 = 0x004;
pub(super) const ISENABLER: u64 = 0x100;
pub(super) const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
/// All priorities are more urgent.
pub(super) const ALL_PRIORITIES: u32 = 0xf8;
/// Interrupt number in IAR and HPPIR.
pub(super) const NUMBER: u32 = 0x3ff;
/// The EL2 timer's interrupt (PPI 10).
pub(super) const EL2_TIMER: u32 = 26;
/// Milliseconds within which an interrupt arrives.
pub(super) const ARRIVAL_MS: u64 = 100;
/// Bytes around a claimed page in which the others are looked for.
const NEIGHBORHOOD: u64 = 1 << 20;

/// Bytes of a GICv3's redistributor, and of its first frame: the private interrupts are in the second.
pub(super) const REDISTRIBUTOR: u64 = 0x2_0000;
pub(super) const PRIVATE: u64 = 0x1_0000;

/// The distributor and the first redistributor that the vectors use, and the last interrupt that they
/// took.
pub(super) static GICD: AtomicU64 = AtomicU64::new(0);
pub(super) static GICR: AtomicU64 = AtomicU64::new(0);
pub(super) static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Returns this core's private interrupts, if the board has a GICv3 that answers.
pub(super) fn private() -> Option<u64> {
    let first = GICR.load(Relaxed);
    (first != 0).then(|| first + affinity() * REDISTRIBUTOR + PRIVATE)
}

/// Returns the offset of an interrupt's word in a register with a bit for each.
pub(super) fn word(irq: u32) -> u64 {
    u64::from(irq / 32 * 4)
}

/// Returns an interrupt's bit in its word.
pub(super) fn bit(irq: u32) -> u32 {
    1 << (irq % 32)
}

/// Where interrupts are pending: in pages of the claims, or in those that were found instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gic {
    pub(super) gicd: Option<u64>,
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
            private: private(),
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

/// Checks the number of interrupts: 1020 to 1023 are none.
pub(super) fn interrupts(report: &mut Report, board: &Board, gic: &Gic) {
    const KEY: &str = "gic.interrupts";
    let claimed = board.gic.interrupts;
    match gic.gicd.and_then(|page| read32(page + TYPER).ok()) {
        None => report.untested(KEY, claimed, "there is no GICD"),
        Some(kind) => {
            let found = ((kind & 0x1f) * 32 + 32).min(MAX_IRQ);
            report.compare(KEY, claimed, Some(found), "GICD_TYPER");
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
pub(super) fn timer(is_on: bool) {
    CNTHP_CVAL_EL2.set(time::now());
    CNTHP_CTL_EL2.write(if is_on {
        CNTHP_CTL_EL2::ENABLE::SET
    } else {
        CNTHP_CTL_EL2::ENABLE::CLEAR
    });
    barrier();
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
