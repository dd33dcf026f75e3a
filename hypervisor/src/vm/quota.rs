//! Quotas: the hardware side of `cloison_logic::quota` on one core.
//!
//! A quota's counter starts `budget` before its overflow. If the board wires the PMU's interrupt,
//! the overflow itself stops the core; otherwise, or if a quota requests both, the EL2 timer checks
//! the counter in every poll interval. Where a core must read the counter at a period's end, the
//! EL2 timer ends the period. Counting happens at EL1 and EL0 only, so a core that waits in EL2
//! uses up nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::devices::timer;
use crate::vm::cpu::{Cpu, Guest};
use crate::vm::partition::Vm;
use crate::vm::{telemetry, virq};
use cloison_abi::reply::{self, Change};
use cloison_abi::{CallError, irq};
use cloison_formats::image::{Quota, WhenSpent};
use cloison_formats::limits::MAX_VMS;
use cloison_formats::telemetry::{QuotaPeriod, QuotaTotal, Record};
use cloison_formats::units::Events;
use cloison_logic::clock::Instant;
use cloison_logic::quota::{Effort, Entry, Quotas, Shared, Verdict};
use cloison_logic::reclaim::Pool;
use cloison_logic::vpmu::PhysicalPmu;

/// The unused budgets that cores share.
///
/// The index is `Reclaim::pool`, which the image gives each quota that shares.
static POOLS: [Pool; MAX_VMS] = [const { Pool::new() }; MAX_VMS];

/// Does what follows from a verdict. The caller sees to it that a core which has spent a budget is
/// held.
fn act(guest: Guest, spec: &Quota, verdict: Verdict) {
    // `Throttle` is not an effect: `hold` reads it from the regulators.
    if verdict != Verdict::Spent {
        return;
    }
    match spec.when_spent {
        // `throttled` holds the core; the log is written when the period ends.
        WhenSpent::Throttle | WhenSpent::Log => {}
        WhenSpent::Interrupt => virq::set_private_line(guest, irq::BUDGET, true),
        // Fails only where the VM is ending already.
        WhenSpent::Stop => drop(guest.vm.order(Change::Stop)),
    }
}

/// Notes work for the core's VM that its budgets are to pay. Returns whether to [`pay`] now: what is
/// less than a page's work is charged together with what follows, since charging reads counters and
/// sets a deadline, which would cost more than a short call. It belongs to the core, as budgets do.
pub fn owe(guest: Guest, effort: Effort) -> bool {
    let owed = guest.owed.get().and(effort);
    guest.owed.set(owed);
    !owed.is_small()
}

/// Charges the core's budgets for work for its VM, now or soon. A core that has spent one is then
/// held, at the latest before it returns to its guest.
pub fn charge(guest: Guest, effort: Effort) {
    if owe(guest, effort) {
        pay(guest);
    }
}

/// Charges the core's budgets for all that is owed.
#[inline(never)]
pub fn pay(guest: Guest) {
    let owed = guest.owed.take();
    let mut quotas = guest.quotas.borrow_mut();
    // One reading of the clock for all quotas of the core.
    let now = timer::now();
    for entry in &mut quotas.entries {
        // Each quota by its own price: the board file says what a page costs a budget of its event.
        let verdict = entry.charge(&Pmu, owed.cost(&entry.spec), now);
        act(guest, &entry.spec, verdict);
    }
    // A quiet quota had no deadline.
    hold(&guest, &quotas, now);
}

/// Returns whether the core may restart its VM now: once per period. Otherwise it has to be held.
pub fn may_restart(cpu: &Cpu) -> bool {
    let mut quotas = cpu.quotas.borrow_mut();
    let now = timer::now();
    let may = quotas.restart(now);
    hold(cpu, &quotas, now);
    may
}

/// The vCPU is about to run. The first time, its periods begin; later it continues in the running
/// one with what is left of its budget, if anything is.
pub fn start(guest: Guest) {
    let mut quotas = guest.quotas.borrow_mut();
    if quotas.entries.is_empty() {
        return;
    }
    let now = timer::now();
    // Before the deadlines are computed: a core whose vCPU is off has none.
    quotas.is_running = true;
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        // The first start on this core. A budget belongs to the core: a restart of the VM does not
        // refill it.
        if entry.regulator.is_none() {
            let reclaim = entry.spec.reclaim;
            let pool = reclaim.map_or(0, |reclaim| reclaim.pool);
            entry.begin(now, &POOLS[usize::from(pool)]);
            for counter in &entry.counters {
                pmu::configure(counter.number, counter.event);
                if let Some(shadow) = counter.shadow {
                    pmu::configure(shadow, counter.event);
                }
            }
            entry.arm(Events(0), &Pmu);
            // A flag of an earlier use would count as an overflow.
            Pmu.change_overflows(0, entry.mask);
        }
        // Each stop ends this too.
        // Where the interrupt does not arrive, `next_deadline` polls.
        if by_interrupt {
            for counter in &entry.counters {
                Pmu.interrupts(1 << counter.number, 0);
            }
        }
        // Counting begins here; the guest is entered soon after, and EL2's own instructions do not
        // count.
        Pmu.enable(entry.mask, 0);
    }
    // `on_deadline` borrows them again.
    drop(quotas);
    on_deadline(guest, now);
    guest.deadlines.program();
}

/// Logs the totals, because the vCPU has stopped.
///
/// The counters keep their values, and the regulator what was used of the running period: the next
/// start continues there.
pub fn stop(guest: Guest) {
    let mut quotas = guest.quotas.borrow_mut();
    let now = timer::now();
    let by_interrupt = quotas.enforcement.by_interrupt;
    for entry in &mut quotas.entries {
        pmu::stop(entry.mask);
        let counted = entry.counted(&Pmu);
        if let Some(regulator) = &mut entry.regulator {
            // Totals begin at zero again: each record is about the time since the start before it.
            let (throttled, totals) = regulator.stop(counted, now);
            telemetry::record(
                &guest,
                Record::QuotaTotal(QuotaTotal {
                    vm: guest.vm.id,
                    quota: entry.index,
                    by_interrupt,
                    throttled: guest.clock.nanos(throttled),
                    totals,
                }),
            );
        }
    }
    quotas.is_running = false;
    hold(&guest, &quotas, now);
}

/// Handles the PMU's interrupt.
pub fn on_overflow(guest: Guest) {
    let now = timer::now();
    let mut quotas = guest.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        // Several quotas share the interrupt: the flags tell whose counters have overflowed.
        if pmu::take_overflows(entry.mask) != 0 {
            let verdict = entry.look(&Pmu, true, now);
            act(guest, &entry.spec, verdict);
        }
    }
    hold(&guest, &quotas, now);
}

/// Has the core held if a budget is spent, and wakes it when it has to look again.
fn hold(cpu: &Cpu, quotas: &Quotas, now: Instant) {
    cpu.throttled.set(quotas.is_throttled());
    cpu.deadlines.quota.set(quotas.next_deadline(now));
    cpu.deadlines.program();
}

/// Handles a poll, the end of a period, or the start of the vCPU; the caller programs the timer.
pub fn on_deadline(guest: Guest, now: Instant) {
    let vm = guest.vm;
    let mut quotas = guest.quotas.borrow_mut();
    for entry in &mut quotas.entries {
        // The one word that a regulating VM sets, read once per period.
        let shared = &vm.budgets[usize::from(entry.index)];
        // `turn` ends the period if it is over, and begins the next one with the budget that
        // another VM may have set.
        let verdict = match entry.turn(&Pmu, now, shared.set()) {
            Some((report, verdict)) => {
                // An overflow of the period that has ended says nothing about the new one.
                Pmu.change_overflows(0, entry.mask);
                shared.publish(&report);
                let is_spent = report.spent_at.is_some();
                let when_spent = entry.spec.when_spent;
                if is_spent && when_spent == WhenSpent::Interrupt {
                    // The line is high from the moment that the budget is spent to the end of the
                    // period.
                    virq::set_private_line(guest, irq::BUDGET, false);
                }
                if entry.spec.trace || is_spent && when_spent == WhenSpent::Log {
                    let period = report.map(
                        |at| guest.clock.since_reset(at),
                        |lasting| guest.clock.nanos(lasting),
                    );
                    let vm = vm.id;
                    let quota = entry.index;
                    // The record is written where it stays.
                    telemetry::record_at(
                        &guest,
                        now,
                        Record::QuotaPeriod(QuotaPeriod { quota, vm, period }),
                    );
                }
                verdict
            }
            // The period lasts: this is a poll, or the deadline was another quota's.
            None => entry.look(&Pmu, false, now),
        };
        act(guest, &entry.spec, verdict);
    }
    guest.throttled.set(quotas.is_throttled());
    guest.deadlines.quota.set(quotas.next_deadline(now));
}

/// Calls `with` for the started quota of this core with an index in its VM.
///
/// Fails with [`CallError::Absent`] for a quota of another vCPU, or one that has not started.
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
        let regulator = entry.regulator.as_ref()?;
        Some(reply::Quota {
            events: entry.counted(&Pmu).0,
            periods: regulator.index.into(),
            throttled_nanos: cpu.clock.nanos(regulator.throttled).0,
        })
    })
}

/// Returns what a quota allows in its running period.
pub fn terms(cpu: &Cpu, index: u64) -> Result<reply::QuotaTerms, CallError> {
    find(cpu, index, |entry| {
        Some(reply::QuotaTerms {
            budget: entry.regulator.as_ref()?.budget.0,
            period_nanos: entry.spec.period.0,
            event: entry.spec.counted.event,
        })
    })
}

/// Lowers a budget from the next period on.
///
/// For the service `quota`: a guest may only lower its own.
pub fn set(cpu: &Cpu, index: u64, budget: Events) -> Result<(), CallError> {
    let now = timer::now();
    let done = find(cpu, index, |entry| {
        Some(entry.regulator.as_mut()?.set_budget(budget, now))
    })?;
    hold(cpu, &cpu.quotas.borrow(), now);
    done
}

/// A quota of a VM, for another one that may set it.
fn shared(vm: &Vm, index: u64) -> Result<(&Quota, &Shared), CallError> {
    let spec = vm
        .spec
        .quotas
        .get(index as usize)
        .ok_or(CallError::Absent)?;
    Ok((spec, &vm.budgets[index as usize]))
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
///
/// For the service `regulate`. No core is interrupted: the quota's core reads the word when a
/// period ends. The caller has checked that its VM may regulate `vm`.
pub fn set_budget(vm: &Vm, index: u64, budget: Events) -> Result<(), CallError> {
    let (spec, shared) = shared(vm, index)?;
    shared.change(budget, spec.ceiling)
}
