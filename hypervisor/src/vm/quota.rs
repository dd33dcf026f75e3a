//! Quotas: the hardware side of `cloison_logic::quota` on one core.
//!
//! A quota's counter starts `budget` below its overflow. Where the board wires the PMU's interrupt, the overflow itself
//! stops the core; elsewhere, or where a quota asks for both, the EL2 timer looks every poll interval. Either way the end of the period comes by the EL2
//! timer, and counting happens at EL1 and EL0 only: a core that waits in EL2 spends nothing.

use crate::devices::{pmu, timer};
use crate::vm::cpu::Cpu;
use crate::vm::life::Vm;
use crate::vm::telemetry;
use alloc::vec::Vec;
use cloison_abi::CallError;
use cloison_formats::image::{Quota, System};
use cloison_formats::telemetry::{QuotaPeriod, QuotaTotal, Record};
use cloison_formats::units::{Events, Nanos};
use cloison_logic::quota::{Regulator, Verdict};

/// The quotas of one core.
pub struct Quotas {
    entries: Vec<Entry>,
    by_interrupt: bool,
}

struct Entry {
    /// Position in the VM's configuration.
    index: u8,
    spec: Quota,
    counter: u32,
    /// A second counter on the same event, preset one lower (see `Board::pmu_shadow`).
    shadow: Option<u32>,
    /// `None` while the vCPU is off.
    regulator: Option<Regulator>,
    preset: u32,
}

impl Entry {
    fn mask(&self) -> u64 {
        1 << self.counter | self.shadow.map_or(0, |shadow| 1 << shadow)
    }

    fn counted(&self) -> Events {
        Events(u64::from(pmu::count(self.counter).wrapping_sub(self.preset)))
    }

    fn is_polled(&self, by_interrupt: bool) -> bool {
        !by_interrupt || self.spec.backstop
    }

    /// Starts counting from zero towards `budget`.
    fn rearm(&mut self, budget: Events) {
        self.preset = 0u32.wrapping_sub(budget.0.min(u64::from(u32::MAX)) as u32);
        pmu::preset(self.counter, self.preset);
        if let Some(shadow) = self.shadow {
            pmu::preset(shadow, self.preset.wrapping_sub(1));
        }
        pmu::take_overflows(self.mask());
    }
}

impl Quotas {
    /// The quotas that bind this core, each with its counter, from the highest down.
    pub fn new(owner: Option<(&Vm, usize)>, system: &System) -> Self {
        let by_interrupt = system.board.pmu_irq.is_some();
        let mut next = pmu::counters();
        let mut take = || {
            next = next.saturating_sub(1);
            next
        };
        let mut entries = Vec::new();
        if let Some((vm, vcpu)) = owner {
            for (index, spec) in vm.spec.quotas.iter().enumerate().filter(|(_, spec)| usize::from(spec.vcpu) == vcpu) {
                let counter = take();
                let shadow = (by_interrupt && system.board.pmu_shadow).then(&mut take);
                entries.push(Entry { index: index as u8, spec: *spec, counter, shadow, regulator: None, preset: 0 });
            }
        }
        Self { entries, by_interrupt }
    }

    /// How many counters the quotas take.
    pub fn reserved(&self) -> u32 {
        self.entries.iter().map(|entry| entry.mask().count_ones()).sum()
    }

    fn next_deadline(&self, now: Nanos) -> u64 {
        let due = |entry: &Entry| {
            let Some(regulator) = &entry.regulator else { return u64::MAX };
            let replenish = regulator.replenish_at().0;
            if !entry.is_polled(self.by_interrupt) || regulator.is_throttled() {
                replenish
            } else {
                replenish.min(now.0 + entry.spec.poll.0)
            }
        };
        self.entries.iter().map(due).min().unwrap_or(u64::MAX)
    }

    fn throttled(&self) -> bool {
        self.entries.iter().any(|entry| entry.regulator.as_ref().is_some_and(Regulator::is_throttled))
    }
}

/// The vCPU is about to run: its first periods begin.
pub fn start(cpu: &Cpu) {
    let mut quotas = cpu.quotas.borrow_mut();
    if quotas.entries.is_empty() {
        return;
    }
    let now = timer::now();
    let by_interrupt = quotas.by_interrupt;
    for entry in &mut quotas.entries {
        entry.regulator = Some(Regulator::new(entry.spec.budget, entry.spec.period, now));
        pmu::configure(entry.counter, entry.spec.event, 0);
        if let Some(shadow) = entry.shadow {
            pmu::configure(shadow, entry.spec.event, 0);
        }
        entry.rearm(entry.spec.budget);
        if by_interrupt {
            pmu::enable_interrupt(entry.counter);
        }
        pmu::start(entry.mask());
    }
    cpu.throttled.set(false);
    cpu.deadlines.quota.set(quotas.next_deadline(now));
    cpu.deadlines.program();
}

/// The vCPU has stopped: its totals go to the log.
pub fn stop(cpu: &Cpu) {
    let mut quotas = cpu.quotas.borrow_mut();
    let by_interrupt = quotas.by_interrupt;
    for entry in &mut quotas.entries {
        pmu::stop(entry.mask());
        if let Some(regulator) = entry.regulator.take() {
            let vm = cpu.vm.map_or(0, |vm| vm.id);
            let totals = QuotaTotal { vm, quota: entry.index, by_interrupt, ..regulator.totals() };
            telemetry::record(cpu, Record::QuotaTotal(totals));
        }
    }
    cpu.throttled.set(false);
    cpu.deadlines.quota.set(u64::MAX);
}

/// The PMU's interrupt.
pub fn on_overflow(cpu: &Cpu) {
    let now = timer::now();
    let mut quotas = cpu.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        if pmu::take_overflows(entry.mask()) != 0 {
            let counted = entry.counted();
            if let Some(regulator) = &mut entry.regulator
                && regulator.check(counted, now) == Verdict::Throttle
            {
                cpu.throttled.set(true);
            }
        }
    }
}

/// A poll, or the end of a period.
pub fn on_deadline(cpu: &Cpu, now: Nanos) {
    let mut quotas = cpu.quotas.borrow_mut();
    let by_interrupt = quotas.by_interrupt;
    for entry in &mut quotas.entries {
        let (counted, polled) = (entry.counted(), entry.is_polled(by_interrupt));
        let Some(regulator) = &mut entry.regulator else { continue };
        if let Some(report) = regulator.replenish(counted, now) {
            let budget = regulator.budget();
            entry.rearm(budget);
            if entry.spec.trace {
                let period = QuotaPeriod {
                    quota: entry.index,
                    vm: cpu.vm.map_or(0, |vm| vm.id),
                    index: report.index,
                    events: report.events,
                    budget: report.budget,
                    throttled_at: report.throttled_at,
                    due: report.due,
                    throttled: report.throttled,
                };
                telemetry::record(cpu, Record::QuotaPeriod(period));
            }
        } else if polled {
            regulator.check(counted, now);
        }
    }
    cpu.throttled.set(quotas.throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
}

/// Events in the running period, periods so far, nanoseconds throttled in all.
pub fn read(cpu: &Cpu, index: u64) -> Result<[u64; 3], CallError> {
    let quotas = cpu.quotas.borrow();
    let entry = quotas.entries.iter().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_ref().ok_or(CallError::Absent)?;
    Ok([entry.counted().0, u64::from(regulator.period_index()), regulator.totals().throttled.0])
}

/// Lowers a budget from the next period on.
pub fn set(cpu: &Cpu, index: u64, budget: Events) -> Result<(), CallError> {
    let mut quotas = cpu.quotas.borrow_mut();
    let entry = quotas.entries.iter_mut().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_mut().ok_or(CallError::Absent)?;
    regulator.set_budget(budget).map_err(|_| CallError::Invalid)
}
