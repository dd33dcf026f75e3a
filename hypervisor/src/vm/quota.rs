//! Quotas: the hardware side of `cloison_logic::quota` on one core.
//!
//! A quota's counter starts `budget` before its overflow. If the board wires the PMU's interrupt, the overflow itself
//! stops the core; otherwise, or if a quota requests both, the EL2 timer checks the counter in every poll interval.
//! Either way the EL2 timer ends the period. Counting happens at EL1 and EL0 only, so a core that waits in EL2 uses up
//! nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{pmu, timer};
use crate::vm::cpu::Cpu;
use crate::vm::telemetry;
use cloison_abi::{CallError, reply};
use cloison_formats::telemetry::{QuotaPeriod, QuotaTotal, Record};
use cloison_formats::units::Events;
use cloison_logic::clock::Instant;
use cloison_logic::quota::{Entry, Regulator, Verdict};

/// Returns the events in an entry's running period.
fn counted(entry: &Entry) -> Events {
    entry.counted(pmu::count(entry.counter))
}

/// Starts counting from zero toward `budget`. The entry's counter was selected last.
fn rearm(entry: &mut Entry, budget: Events) {
    let preset = entry.preset_for(budget);
    pmu::preset_last(preset);
    if let Some(shadow) = entry.shadow {
        pmu::preset(shadow, preset.wrapping_sub(1));
    }
    pmu::clear_overflows(entry.mask());
}

/// Adds events to a quota's counters.
fn add(entry: &Entry, events: Events) {
    for counter in [Some(entry.counter), entry.shadow].into_iter().flatten() {
        pmu::preset(counter, pmu::count(counter).wrapping_add(events.0 as u32));
    }
}

/// Charges the core's budgets for work on `pages` pages of its VM. A core that has spent one is then held, at the latest
/// before it returns to its guest.
pub fn charge(cpu: &Cpu, pages: u64) {
    let mut quotas = cpu.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        let (counted, cost) = (counted(entry), Events(entry.spec.page_cost.0.saturating_mul(pages)));
        if let Some(regulator) = &mut entry.regulator {
            let part = regulator.charge(counted, cost, timer::now());
            add(entry, part);
        }
    }
    cpu.throttled.set(quotas.is_throttled());
}

/// Returns whether the core may restart its VM now: once per period. Otherwise it has to be held.
pub fn may_restart(cpu: &Cpu) -> bool {
    let mut quotas = cpu.quotas.borrow_mut();
    let may = quotas.restart(timer::now());
    cpu.throttled.set(quotas.is_throttled());
    may
}

/// The vCPU is about to run. The first time, its periods begin; later it continues in the running one with what is left
/// of its budget, if anything is.
pub fn start(cpu: &Cpu) {
    let mut quotas = cpu.quotas.borrow_mut();
    if quotas.entries.is_empty() {
        return;
    }
    let now = timer::now();
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        if entry.regulator.is_none() {
            entry.regulator = Some(Regulator::new(entry.spec.budget, entry.period, now));
            if let Some(shadow) = entry.shadow {
                pmu::configure(shadow, entry.spec.event, 0);
            }
            pmu::configure(entry.counter, entry.spec.event, 0);
            rearm(entry, entry.spec.budget);
        }
        // Each stop ends this too.
        if by_interrupt {
            pmu::enable_interrupt(entry.counter);
        }
        pmu::start(entry.mask());
    }
    drop(quotas);
    on_deadline(cpu, now);
    cpu.deadlines.program();
}

/// Logs the totals, because the vCPU has stopped.
pub fn stop(cpu: &Cpu) {
    let mut quotas = cpu.quotas.borrow_mut();
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        pmu::stop(entry.mask());
        if let Some((vm, regulator)) = cpu.vm.zip(entry.regulator.as_mut()) {
            let totals = regulator.stop().map(|lasting| cpu.clock.nanos(lasting));
            let record = QuotaTotal { vm: vm.id, quota: entry.index, by_interrupt, totals };
            telemetry::record(cpu, Record::QuotaTotal(record));
        }
    }
    cpu.throttled.set(false);
    cpu.deadlines.quota.set(None);
}

/// Handles the PMU's interrupt.
pub fn on_overflow(cpu: &Cpu) {
    let now = timer::now();
    let mut quotas = cpu.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        if pmu::take_overflows(entry.mask()) != 0 {
            let counted = counted(entry);
            if let Some(regulator) = &mut entry.regulator
                && regulator.check(counted, now) == Verdict::Throttle
            {
                cpu.throttled.set(true);
            }
        }
    }
}

/// Handles a poll, the end of a period, or the start of the vCPU. Inlined: the end of a period is a hot path.
#[inline(always)]
pub fn on_deadline(cpu: &Cpu, now: Instant) {
    let mut quotas = cpu.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        let counted = counted(entry);
        let Some(regulator) = &mut entry.regulator else { continue };
        if let Some(report) = regulator.replenish(counted, now) {
            if regulator.owes() {
                rearm_and_pay(entry, now);
            } else {
                let budget = regulator.budget();
                rearm(entry, budget);
            }
            if let Some(vm) = cpu.vm.filter(|_| entry.spec.trace) {
                let period = report.map(|at| cpu.clock.since_reset(at), |lasting| cpu.clock.nanos(lasting));
                telemetry::record_at(
                    cpu,
                    now,
                    Record::QuotaPeriod(QuotaPeriod { quota: entry.index, vm: vm.id, period }),
                );
            }
        } else {
            regulator.check(counted, now);
        }
    }
    cpu.throttled.set(quotas.is_throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
}

/// Pays debts with the budget of a period that has just begun.
#[cold]
fn rearm_and_pay(entry: &mut Entry, now: Instant) {
    if let Some(regulator) = &mut entry.regulator {
        let (budget, part) = (regulator.budget(), regulator.pay(now));
        rearm(entry, budget);
        add(entry, part);
    }
}

/// Returns the state of a quota.
pub fn read(cpu: &Cpu, index: u64) -> Result<reply::Quota, CallError> {
    let quotas = cpu.quotas.borrow();
    let entry = quotas.entries.iter().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_ref().ok_or(CallError::Absent)?;
    let (events, periods) = (counted(entry).0, regulator.period_index().into());
    Ok(reply::Quota { events, periods, throttled_nanos: cpu.clock.nanos(regulator.totals().throttled).0 })
}

/// Returns what a quota allows in its running period.
pub fn terms(cpu: &Cpu, index: u64) -> Result<reply::QuotaTerms, CallError> {
    let quotas = cpu.quotas.borrow();
    let entry = quotas.entries.iter().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_ref().ok_or(CallError::Absent)?;
    Ok(reply::QuotaTerms { budget: regulator.budget().0, period_nanos: entry.spec.period.0, event: entry.spec.event.0 })
}

/// Lowers a budget from the next period on.
pub fn set(cpu: &Cpu, index: u64, budget: Events) -> Result<(), CallError> {
    let mut quotas = cpu.quotas.borrow_mut();
    let entry = quotas.entries.iter_mut().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_mut().ok_or(CallError::Absent)?;
    regulator.set_budget(budget).map_err(|_| CallError::Invalid)
}
