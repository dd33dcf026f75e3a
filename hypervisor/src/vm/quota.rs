//! Quotas: the hardware side of `cloison_logic::quota` on one core.
//!
//! A quota's counter starts `budget` before its overflow. If the board wires the PMU's interrupt, the overflow itself
//! stops the core; otherwise, or if a quota requests both, the EL2 timer checks the counter in every poll interval.
//! Where somebody has to look at it, the EL2 timer ends the period. Counting happens at EL1 and EL0 only, so a core that
//! waits in EL2 uses up nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::devices::timer;
use crate::vm::cpu::Cpu;
use crate::vm::partition::Vm;
use crate::vm::{telemetry, virq};
use cloison_abi::reply::{self, Change};
use cloison_abi::{CallError, irq};
use cloison_formats::image::{Quota, WhenSpent};
use cloison_formats::limits::MAX_VMS;
use cloison_formats::telemetry::{QuotaPeriod, QuotaTotal, Record};
use cloison_formats::units::Events;
use cloison_logic::clock::Instant;
use cloison_logic::quota::{Entry, Quotas, Shared, Verdict};
use cloison_logic::reclaim::Pool;
use cloison_logic::vpmu::PhysicalPmu;

/// The unused budgets that cores share.
static POOLS: [Pool; MAX_VMS] = [const { Pool::new() }; MAX_VMS];

/// Does what follows from a verdict. The caller sees to it that a core which has spent a budget is held.
fn act(cpu: &Cpu, spec: &Quota, verdict: Verdict) {
    let Some(vm) = cpu.vm.filter(|_| verdict == Verdict::Spent) else {
        return;
    };
    match spec.when_spent {
        WhenSpent::Throttle | WhenSpent::Log => {}
        WhenSpent::Interrupt => virq::set_private_line(cpu, irq::BUDGET, true),
        // Fails only where the VM is ending already.
        WhenSpent::Stop => drop(vm.order(Change::Stop)),
    }
}

/// Charges the core's budgets for work on `pages` pages of its VM. A core that has spent one is then held, at the latest
/// before it returns to its guest.
pub fn charge(cpu: &Cpu, pages: u64) {
    let (mut quotas, now) = (cpu.quotas.borrow_mut(), timer::now());
    for entry in &mut quotas.entries {
        let cost = Events(entry.spec.page_cost.0.saturating_mul(pages));
        let verdict = entry.charge(&Pmu, cost, now);
        act(cpu, &entry.spec, verdict);
    }
    // A quiet quota had no deadline.
    hold(cpu, &quotas, now);
}

/// Returns whether the core may restart its VM now: once per period. Otherwise it has to be held.
pub fn may_restart(cpu: &Cpu) -> bool {
    let (mut quotas, now) = (cpu.quotas.borrow_mut(), timer::now());
    let may = quotas.restart(now);
    hold(cpu, &quotas, now);
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
            entry.begin(
                now,
                &POOLS[entry
                    .spec
                    .reclaim
                    .map_or(0, |reclaim| usize::from(reclaim.pool))],
            );
            for counter in &entry.counters {
                let both = [Some(counter.number), counter.shadow].into_iter().flatten();
                both.for_each(|at| pmu::configure(at, counter.event));
            }
            entry.arm(Events(0), &Pmu);
            Pmu.change_overflows(0, entry.mask());
        }
        // Each stop ends this too.
        if by_interrupt {
            entry
                .counters
                .iter()
                .for_each(|counter| Pmu.interrupts(1 << counter.number, 0));
        }
        Pmu.enable(entry.mask(), 0);
    }
    drop(quotas);
    on_deadline(cpu, now);
    cpu.deadlines.program();
}

/// Logs the totals, because the vCPU has stopped.
pub fn stop(cpu: &Cpu) {
    let (mut quotas, now) = (cpu.quotas.borrow_mut(), timer::now());
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        pmu::stop(entry.mask());
        let counted = entry.counted(&Pmu);
        if let Some((vm, regulator)) = cpu.vm.zip(entry.regulator.as_mut()) {
            let (throttled, totals) = regulator.stop(counted, now);
            let (vm, quota, throttled) = (vm.id, entry.index, cpu.clock.nanos(throttled));
            telemetry::record(
                cpu,
                Record::QuotaTotal(QuotaTotal {
                    vm,
                    quota,
                    by_interrupt,
                    throttled,
                    totals,
                }),
            );
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
            let verdict = entry.look(&Pmu, true, now);
            act(cpu, &entry.spec, verdict);
        }
    }
    hold(cpu, &quotas, now);
}

/// Has the core held if a budget is spent, and wakes it when it has to look again.
fn hold(cpu: &Cpu, quotas: &Quotas, now: Instant) {
    cpu.throttled.set(quotas.is_throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
    cpu.deadlines.program();
}

/// Handles a poll, the end of a period, or the start of the vCPU; the caller programs the timer.
pub fn on_deadline(cpu: &Cpu, now: Instant) {
    let mut quotas = cpu.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        let shared = cpu
            .vm
            .and_then(|vm| vm.budgets.get(usize::from(entry.index)));
        let verdict = match entry.turn(&Pmu, now, shared.and_then(Shared::set)) {
            Some((report, verdict)) => {
                Pmu.change_overflows(0, entry.mask());
                shared.iter().for_each(|shared| shared.publish(&report));
                if entry.spec.when_spent == WhenSpent::Interrupt && report.spent_at.is_some() {
                    virq::set_private_line(cpu, irq::BUDGET, false);
                }
                let logged = entry.spec.trace
                    || entry.spec.when_spent == WhenSpent::Log && report.spent_at.is_some();
                if let Some(vm) = cpu.vm.filter(|_| logged) {
                    let period = report.map(
                        |at| cpu.clock.since_reset(at),
                        |lasting| cpu.clock.nanos(lasting),
                    );
                    let (quota, vm) = (entry.index, vm.id);
                    telemetry::record_at(
                        cpu,
                        now,
                        Record::QuotaPeriod(QuotaPeriod { quota, vm, period }),
                    );
                }
                verdict
            }
            None => entry.look(&Pmu, false, now),
        };
        act(cpu, &entry.spec, verdict);
    }
    cpu.throttled.set(quotas.is_throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
}

/// Calls `with` for the started quota of this core with an index in its VM.
fn find<T>(
    cpu: &Cpu,
    index: u64,
    with: impl FnOnce(&mut Entry) -> Option<T>,
) -> Result<T, CallError> {
    let mut quotas = cpu.quotas.borrow_mut();
    let entry = quotas
        .entries
        .iter_mut()
        .find(|entry| u64::from(entry.index) == index);
    entry.and_then(with).ok_or(CallError::Absent)
}

/// Returns the state of a quota.
pub fn read(cpu: &Cpu, index: u64) -> Result<reply::Quota, CallError> {
    find(cpu, index, |entry| {
        let (regulator, events) = (entry.regulator.as_ref()?, entry.counted(&Pmu).0);
        let throttled_nanos = cpu.clock.nanos(regulator.throttled).0;
        Some(reply::Quota {
            events,
            periods: regulator.index.into(),
            throttled_nanos,
        })
    })
}

/// Returns what a quota allows in its running period.
pub fn terms(cpu: &Cpu, index: u64) -> Result<reply::QuotaTerms, CallError> {
    find(cpu, index, |entry| {
        let (budget, spec) = (entry.regulator.as_ref()?.budget.0, &entry.spec);
        Some(reply::QuotaTerms {
            budget,
            period_nanos: spec.period.0,
            event: spec.counted.event.0,
        })
    })
}

/// Lowers a budget from the next period on.
pub fn set(cpu: &Cpu, index: u64, budget: Events) -> Result<(), CallError> {
    let now = timer::now();
    let done = find(cpu, index, |entry| {
        Some(entry.regulator.as_mut()?.set_budget(budget, now))
    })?;
    hold(cpu, &cpu.quotas.borrow(), now);
    done.map_err(|_| CallError::Invalid)
}

/// A quota of a VM, for another one that may set it.
fn shared(vm: &Vm, index: u64) -> Result<(&Quota, &Shared), CallError> {
    let index = usize::try_from(index).map_err(|_| CallError::Absent)?;
    vm.spec
        .quotas
        .get(index)
        .zip(vm.budgets.get(index))
        .ok_or(CallError::Absent)
}

/// Returns what another VM's quota allows, and what was used of it.
pub fn budget(vm: &Vm, index: u64) -> Result<reply::Budget, CallError> {
    let (spec, shared) = shared(vm, index)?;
    let (events, periods) = shared.last();
    Ok(reply::Budget {
        budget: shared.set().unwrap_or(spec.budget).0,
        events,
        periods,
    })
}

/// Sets the budget of another VM's quota from its next period on.
pub fn set_budget(vm: &Vm, index: u64, budget: Events) -> Result<(), CallError> {
    let (spec, shared) = shared(vm, index)?;
    shared
        .change(budget, spec.ceiling)
        .map_err(|_| CallError::Invalid)
}
