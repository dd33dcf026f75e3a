//! Quotas: the hardware side of `cloison_logic::quota` on one core.
//!
//! A quota's counter starts `budget` below its overflow. Where the board wires the PMU's interrupt, the overflow itself
//! stops the core; elsewhere, or where a quota asks for both, the EL2 timer looks every poll interval. Either way the end of the period comes by the EL2
//! timer, and counting happens at EL1 and EL0 only: a core that waits in EL2 spends nothing.

use crate::devices::{pmu, timer};
use crate::vm::cpu::Cpu;
use crate::vm::telemetry;
use cloison_abi::CallError;
use cloison_formats::telemetry::Record;
use cloison_formats::units::Events;
use cloison_logic::clock::Instant;
use cloison_logic::quota::{Entry, Regulator, Verdict};

/// Events in an entry's running period.
fn counted(entry: &Entry) -> Events {
    entry.counted(pmu::count(entry.counter))
}

/// Starts counting from zero toward `budget`.
fn rearm(entry: &mut Entry, budget: Events) {
    let preset = entry.preset_for(budget);
    pmu::preset(entry.counter, preset);
    if let Some(shadow) = entry.shadow {
        pmu::preset(shadow, preset.wrapping_sub(1));
    }
    pmu::take_overflows(entry.mask());
}

/// The vCPU is about to run: its first periods begin.
pub fn start(cpu: &Cpu) {
    let mut quotas = cpu.quotas.borrow_mut();
    if quotas.entries.is_empty() {
        return;
    }
    let now = timer::now();
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        entry.regulator = Some(Regulator::new(entry.spec.budget, entry.period, now));
        pmu::configure(entry.counter, entry.spec.event, 0);
        if let Some(shadow) = entry.shadow {
            pmu::configure(shadow, entry.spec.event, 0);
        }
        rearm(entry, entry.spec.budget);
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
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        pmu::stop(entry.mask());
        if let Some((vm, regulator)) = cpu.vm.zip(entry.regulator.take()) {
            let totals = regulator.totals().logged(vm.id, entry.index, by_interrupt, cpu.clock);
            telemetry::record(cpu, Record::QuotaTotal(totals));
        }
    }
    cpu.throttled.set(false);
    cpu.deadlines.quota.set(None);
}

/// The PMU's interrupt.
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

/// A poll, or the end of a period.
pub fn on_deadline(cpu: &Cpu, now: Instant) {
    let mut quotas = cpu.quotas.borrow_mut();
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        let (counted, polled) = (counted(entry), !by_interrupt || entry.spec.backstop);
        let Some(regulator) = &mut entry.regulator else { continue };
        if let Some(report) = regulator.replenish(counted, now) {
            let budget = regulator.budget();
            rearm(entry, budget);
            if let Some(vm) = cpu.vm.filter(|_| entry.spec.trace) {
                let period = report.logged(vm.id, entry.index, cpu.clock);
                telemetry::record(cpu, Record::QuotaPeriod(period));
            }
        } else if polled {
            regulator.check(counted, now);
        }
    }
    cpu.throttled.set(quotas.is_throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
}

/// Events in the running period, periods so far, nanoseconds throttled in all.
pub fn read(cpu: &Cpu, index: u64) -> Result<[u64; 3], CallError> {
    let quotas = cpu.quotas.borrow();
    let entry = quotas.entries.iter().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_ref().ok_or(CallError::Absent)?;
    Ok([counted(entry).0, u64::from(regulator.period_index()), cpu.clock.nanos(regulator.totals().throttled).0])
}

/// Lowers a budget from the next period on.
pub fn set(cpu: &Cpu, index: u64, budget: Events) -> Result<(), CallError> {
    let mut quotas = cpu.quotas.borrow_mut();
    let entry = quotas.entries.iter_mut().find(|entry| u64::from(entry.index) == index).ok_or(CallError::Absent)?;
    let regulator = entry.regulator.as_mut().ok_or(CallError::Absent)?;
    regulator.set_budget(budget).map_err(|_| CallError::Invalid)
}
