//! The quotas of a core: their counters, and the state machine of a budget of events per period.
//!
//! The hardware side (counter, overflow interrupt or poll, waiting in EL2) calls this module, which decides. Time is
//! given in ticks of the system counter. Periods lie on a fixed grid from the start, so that a late replenishment
//! does not shift the later ones (MemGuard's regulation, at EL2).
//!
//! A quota that is not exact is *quiet* while little is used: its counter is set to overflow after half a budget, and
//! nobody looks before. Whatever was counted since the last look bounds what the running period has used, so it is charged
//! to that period: the budget holds in every period. The price is that the first busy period after a quiet time ends up to
//! half a budget early.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::{Clock, Instant, Ticks};
use crate::reclaim::Pool;
use alloc::vec::Vec;
use cloison_formats::image::{Quota, Reclaim, WhenSpent};
use cloison_formats::telemetry::{Period, Totals};
use cloison_formats::units::{EventId, Events};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the core must do after its counters were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Budget is left: continue.
    Run,
    /// Budget is left, and another number of events from the next look: set the counters again.
    Rearm,
    /// The budget has just been spent, and the core runs on: do what is configured.
    Spent,
    /// The budget is spent: hold the core until [`Regulator::replenish_at`].
    Throttle,
}

/// A period that ended, and what follows for the next one.
type Turn = (PeriodReport, Verdict);

/// A period that ended.
pub type PeriodReport = Period<Instant, Ticks>;

/// One quota on one core.
#[derive(Clone, Debug)]
pub struct Regulator {
    spec: Quota,
    period: Ticks,
    pool: &'static Pool,
    /// What the vCPU has lowered its budget to.
    own: Option<Events>,
    /// Allowed in the running period, without what was given and with what was reclaimed.
    pub budget: Events,
    reclaimed: Events,
    period_end: Instant,
    /// Number of the running period, or of the one in which somebody looked last.
    pub index: u32,
    quiet: bool,
    spent_at: Option<Instant>,
    /// Events charged that later periods pay for.
    debt: Events,
    /// The period of the last restart.
    restarted: Option<u32>,
    /// What the totals already contain of what the counters show.
    noted: Events,
    /// How long the core was held, and the totals, without the running period.
    pub throttled: Ticks,
    /// See there.
    pub totals: Totals,
}

impl Regulator {
    /// Creates a quota whose first period starts at `now`; with a pool, on the grid that begins at reset.
    pub fn new(spec: Quota, period: Ticks, now: Instant, pool: &'static Pool) -> Self {
        let into = spec.reclaim.map_or(0, |_| now.count() % period.count());
        let period_end = Instant::at(now.count() - into) + period;
        let exact = spec.exact || spec.backstop || spec.trace || spec.reclaim.is_some();
        let new = Self {
            spec: Quota { exact, ..spec },
            period,
            pool,
            own: None,
            budget: spec.budget,
            reclaimed: Events(0),
            period_end,
            index: 0,
            quiet: !exact,
            spent_at: None,
            debt: Events(0),
            restarted: None,
            noted: Events(0),
            throttled: Ticks::default(),
            totals: Totals::default(),
        };
        if new.spec.reclaim.is_some() {
            pool.give(new.epoch(), 0);
        }
        new
    }

    /// Returns when the running period ends; `None` while nobody has to look.
    pub fn replenish_at(&self) -> Option<Instant> {
        (!self.quiet).then_some(self.period_end)
    }

    /// Returns how many events may happen until somebody has to look, as `counted` have happened.
    pub fn ahead(&self, counted: Events) -> Events {
        let until = if self.quiet { self.half() } else { self.budget };
        if self.spent_at.is_some() {
            Events(u32::MAX.into())
        } else {
            Events(until.0.saturating_sub(counted.0))
        }
    }

    fn half(&self) -> Events {
        Events(self.budget.0.div_ceil(2))
    }

    /// Returns whether the core is held.
    pub fn is_throttled(&self) -> bool {
        self.spec.when_spent == WhenSpent::Throttle && self.spent_at.is_some()
    }

    /// The vCPU has stopped. Returns what has been counted since it started; what it has spent of the running period, and
    /// the grid, are kept for its next start, so that a stop gains no budget. Only what the guest has lowered is undone.
    pub fn stop(&mut self, counted: Events, now: Instant) -> (Ticks, Totals) {
        if self.quiet {
            self.wake(now);
            self.totals.events.0 += counted.0 - self.noted.0;
            self.noted = counted;
        }
        self.spent_at = None;
        self.own = None;
        (
            core::mem::take(&mut self.throttled),
            core::mem::take(&mut self.totals),
        )
    }

    /// Sets the budget from the next period on. A guest may only lower the configured budget.
    pub fn set_budget(&mut self, budget: Events, now: Instant) -> Result<(), Events> {
        if budget.0 == 0 || budget > self.spec.budget {
            return Err(self.spec.budget);
        }
        self.wake(now);
        self.own = Some(budget);
        Ok(())
    }

    /// Charges `cost` events for work that was done on the vCPU's behalf. Returns the count with what is paid now; later
    /// periods owe the rest.
    pub fn charge(&mut self, counted: Events, cost: Events, now: Instant) -> (Events, Verdict) {
        let part = cost.0.min(self.budget.0.saturating_sub(counted.0));
        self.debt.0 += cost.0 - part;
        let counted = Events(counted.0 + part);
        (counted, self.check(counted, now))
    }

    /// Returns whether a period that has just begun owes something.
    pub fn owes(&self) -> bool {
        self.debt.0 != 0
    }

    /// Pays what a new period can. Returns its count.
    pub fn pay(&mut self, now: Instant) -> (Events, Verdict) {
        let debt = core::mem::take(&mut self.debt);
        self.charge(Events(0), debt, now)
    }

    /// Checks the events counted since the period started.
    pub fn check(&mut self, counted: Events, now: Instant) -> Verdict {
        let before = (self.quiet, self.budget);
        if self.quiet && counted >= self.half() {
            self.wake(now);
        }
        if counted >= self.budget && self.spent_at.is_none() {
            self.spend(counted, now);
            if self.spent_at.is_some() && !self.is_throttled() {
                return Verdict::Spent;
            }
        }
        match (self.is_throttled(), before == (self.quiet, self.budget)) {
            (true, _) => Verdict::Throttle,
            (false, false) => Verdict::Rearm,
            (false, true) => Verdict::Run,
        }
    }

    /// The budget is spent, unless the pool has something.
    #[cold]
    fn spend(&mut self, counted: Events, now: Instant) {
        if self.spec.reclaim.is_some() {
            let wanted =
                (counted.0 - self.budget.0).saturating_add((self.spec.budget.0 / 8).max(1));
            let taken = self
                .pool
                .take(self.epoch(), wanted.min(u32::MAX.into()) as u32);
            self.budget.0 += u64::from(taken);
            self.reclaimed.0 += u64::from(taken);
        }
        if counted >= self.budget {
            self.spent_at = Some(now);
        }
    }

    /// The running period's number in its pool.
    fn epoch(&self) -> u32 {
        (self.period_end.count() / self.period.count()) as u32
    }

    /// Ends a quiet time: periods are counted again, from the running one on.
    fn wake(&mut self, now: Instant) {
        if core::mem::take(&mut self.quiet) && now >= self.period_end {
            let passed = self.pass(now);
            self.totals.histogram.quiet += passed;
        }
    }

    /// Advances to the period that `now` is in. Returns how many have passed: at least one, which is over.
    fn pass(&mut self, now: Instant) -> u64 {
        let mut passed = 1;
        self.period_end = self.period_end + self.period;
        if self.period_end <= now {
            // Rare: the division stays off the path of a period that ends in time.
            let missed = now.since(self.period_end).count() / self.period.count() + 1;
            self.period_end = self.period_end + self.period.times(missed);
            self.debt.0 = self
                .debt
                .0
                .saturating_sub(self.budget.0.saturating_mul(missed));
            passed += missed;
        }
        self.index = self.index.wrapping_add(passed as u32);
        self.totals.periods += passed;
        passed
    }

    /// Ends the running period if it is due. `counted` is what was counted in it; counting must then restart from zero.
    /// Missed periods are counted as periods without events. `set` is the budget that a VM has set which may.
    pub fn replenish(
        &mut self,
        counted: Events,
        now: Instant,
        set: Option<Events>,
    ) -> Option<PeriodReport> {
        if self.quiet || now < self.period_end {
            return None;
        }
        let held_at = self.spent_at.filter(|_| self.is_throttled());
        let throttled = held_at.map_or(Ticks::default(), |since| now.since(since));
        let spent_at = self.spent_at.take();
        let (index, budget, reclaimed, due) =
            (self.index, self.budget, self.reclaimed, self.period_end);
        let overshoot = Events(counted.0.saturating_sub(budget.0));
        let totals = &mut self.totals;
        totals.spent_periods += u64::from(spent_at.is_some());
        totals.events.0 += counted.0 - core::mem::take(&mut self.noted).0;
        totals.overshoot.0 += overshoot.0;
        totals.max_overshoot = totals.max_overshoot.max(overshoot);
        totals.reclaimed.0 += reclaimed.0;
        totals.histogram.add(counted, budget);
        self.throttled = Ticks::new(self.throttled.count() + throttled.count());
        let next = set.unwrap_or(self.spec.budget);
        self.budget = self.own.map_or(next, |own| own.min(next));
        let passed = self.pass(now);
        if let Some(Reclaim { guarantee, .. }) = self.spec.reclaim {
            self.share(if passed == 1 { counted } else { Events(0) }, guarantee);
        }
        self.quiet = !self.spec.exact && counted < self.half() && !self.owes();
        Some(PeriodReport {
            index,
            events: counted,
            budget,
            reclaimed,
            spent_at,
            due,
            throttled,
        })
    }

    /// Gives what a new period is not expected to use, which is as much as the last one.
    fn share(&mut self, expected: Events, guarantee: Events) {
        self.reclaimed = Events(0);
        let kept = expected.max(guarantee).min(self.budget);
        let given = (self.budget.0 - kept.0) as u32;
        self.totals.given.0 += u64::from(given);
        self.budget = kept;
        self.pool.give(self.epoch(), given);
    }
}

/// How a board's cores detect that a budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// By the PMU's overflow interrupt; otherwise by polling.
    pub by_interrupt: bool,
    /// Whether each counter needs a second one for that (`Board::pmu_shadow`).
    pub shadow: bool,
}

/// A counter of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its number.
    pub number: u32,
    /// What it counts.
    pub event: EventId,
    /// What one event costs the budget.
    pub weight: u64,
    /// A second counter on the same event, preset one lower.
    pub shadow: Option<u32>,
    /// Its value when it was set last.
    preset: u32,
}

/// A quota on its core.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Index in the VM's configuration.
    pub index: u8,
    /// Its configuration.
    pub spec: Quota,
    /// Its period.
    pub period: Ticks,
    /// Its poll interval.
    pub poll: Ticks,
    /// Its counters: one, or two for a weighted sum.
    pub counters: Vec<Counter>,
    /// What was counted or charged in the period before its counters were set.
    base: Events,
    /// `None` before the vCPU's first start. It then belongs to the core: no stop or restart gains a budget.
    pub regulator: Option<Regulator>,
}

impl Entry {
    /// Returns its counters as a bit mask.
    pub fn mask(&self) -> u32 {
        let bits = |counter: &Counter| {
            1 << counter.number | counter.shadow.map_or(0, |shadow| 1 << shadow)
        };
        self.counters.iter().map(bits).sum()
    }

    /// Starts the regulator.
    pub fn begin(&mut self, now: Instant, pool: &'static Pool) {
        self.regulator = Some(Regulator::new(self.spec, self.period, now, pool));
    }

    /// Returns the events since the period started.
    pub fn counted(&self, counters: &impl Counters) -> Events {
        let events = |counter: &Counter| {
            u64::from(counters.get(counter.number).wrapping_sub(counter.preset))
                .saturating_mul(counter.weight)
        };
        Events(
            self.counters
                .iter()
                .map(events)
                .fold(self.base.0, u64::saturating_add),
        )
    }

    /// Sets the counters, so that one overflows before more than the regulator allows has happened. `counted` has been
    /// counted so far.
    pub fn arm(&mut self, counted: Events, counters: &impl Counters) {
        self.base = counted;
        let ahead = self
            .regulator
            .as_ref()
            .map_or(Events(0), |regulator| regulator.ahead(counted));
        // Each of two may use its half: what the other one leaves of its half is shared out at the next overflow.
        let each = if self.counters.len() == 1 {
            ahead.0
        } else {
            ahead.0 / 2
        };
        for counter in &mut self.counters {
            let events = if counter.weight == 1 {
                each
            } else {
                each / counter.weight
            };
            counter.preset = 0u32.wrapping_sub(events.clamp(1, u32::MAX.into()) as u32);
            counters.set(counter.number, counter.preset);
            if let Some(shadow) = counter.shadow {
                counters.set(shadow, counter.preset.wrapping_sub(1));
            }
        }
    }

    /// Looks at the counters: one has `overflowed`, or it is time to poll.
    pub fn look(&mut self, counters: &impl Counters, overflowed: bool, now: Instant) -> Verdict {
        let counted = self.counted(counters);
        let Some(regulator) = &mut self.regulator else {
            return Verdict::Run;
        };
        let verdict = regulator.check(counted, now);
        if overflowed || verdict != Verdict::Run {
            self.arm(counted, counters);
        }
        verdict
    }

    /// Charges work that was done on the vCPU's behalf.
    pub fn charge(&mut self, counters: &impl Counters, cost: Events, now: Instant) -> Verdict {
        let counted = self.counted(counters);
        let Some(regulator) = &mut self.regulator else {
            return Verdict::Run;
        };
        let (counted, verdict) = regulator.charge(counted, cost, now);
        self.arm(counted, counters);
        verdict
    }

    /// Ends the running period if it is due, and begins the next one.
    pub fn turn(
        &mut self,
        counters: &impl Counters,
        now: Instant,
        set: Option<Events>,
    ) -> Option<Turn> {
        let counted = self.counted(counters);
        let regulator = self.regulator.as_mut()?;
        let report = regulator.replenish(counted, now, set)?;
        let (counted, verdict) = if regulator.owes() {
            regulator.pay(now)
        } else {
            (Events(0), Verdict::Run)
        };
        self.arm(counted, counters);
        Some((report, verdict))
    }
}

/// The core's event counters.
pub trait Counters {
    /// Returns a counter's value.
    fn get(&self, counter: u32) -> u32;
    /// Sets a counter's value.
    fn set(&self, counter: u32, value: u32);
}

/// The quotas of one core.
#[derive(Clone, Debug)]
pub struct Quotas {
    /// The quotas in configuration order.
    pub entries: Vec<Entry>,
    /// How a spent budget is detected.
    pub enforcement: Enforcement,
}

impl Quotas {
    /// Returns those of a VM's quotas that apply to `vcpu`, with counters from the highest of `counters` down.
    pub fn assign(
        quotas: &[Quota],
        vcpu: usize,
        counters: u32,
        enforcement: Enforcement,
        clock: Clock,
    ) -> Self {
        let mut next = counters;
        let mut take = || {
            next = next.saturating_sub(1);
            next
        };
        let own = quotas
            .iter()
            .enumerate()
            .filter(|(_, quota)| usize::from(quota.vcpu) == vcpu);
        let mut entry = |(index, spec): (usize, &Quota)| Entry {
            index: index as u8,
            spec: *spec,
            period: clock.ticks(spec.period),
            poll: clock.ticks(spec.poll),
            counters: spec
                .counted()
                .map(|counted| Counter {
                    number: take(),
                    event: counted.event,
                    weight: counted.weight.into(),
                    shadow: (enforcement.by_interrupt && enforcement.shadow).then(&mut take),
                    preset: 0,
                })
                .collect(),
            base: Events(0),
            regulator: None,
        };
        let mut entries: Vec<Entry> = own.map(&mut entry).collect();
        // Without the interrupt, only the end of a period tells.
        entries
            .iter_mut()
            .for_each(|entry| entry.spec.exact |= !enforcement.by_interrupt);
        Self {
            entries,
            enforcement,
        }
    }

    /// Returns the number of counters that the quotas use.
    pub fn reserved(&self) -> u32 {
        self.entries
            .iter()
            .map(|entry| entry.mask().count_ones())
            .sum()
    }

    /// Returns whether a budget is spent, so that the core must be held.
    pub fn is_throttled(&self) -> bool {
        self.entries.iter().any(|entry| {
            entry
                .regulator
                .as_ref()
                .is_some_and(Regulator::is_throttled)
        })
    }

    /// The core is about to restart its VM. Returns whether it may; where it has done so in a running period already, it is
    /// held until that period's end.
    pub fn restart(&mut self, now: Instant) -> bool {
        let mut may = true;
        for regulator in self.throttling() {
            regulator.wake(now);
            if regulator.restarted == Some(regulator.index) {
                regulator.spent_at.get_or_insert(now);
                may = false;
            }
        }
        for regulator in self.throttling().filter(|_| may) {
            regulator.restarted = Some(regulator.index);
        }
        may
    }

    fn throttling(&mut self) -> impl Iterator<Item = &mut Regulator> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.regulator.as_mut())
            .filter(|regulator| regulator.spec.when_spent == WhenSpent::Throttle)
    }

    /// Returns when the core must check its quotas next; `None` if nothing is due.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let due = |entry: &Entry| {
            let regulator = entry.regulator.as_ref()?;
            let replenish = regulator.replenish_at()?;
            let polled = !self.enforcement.by_interrupt || entry.spec.backstop;
            if !polled || regulator.spent_at.is_some() {
                Some(replenish)
            } else {
                Some(replenish.min(now + entry.poll))
            }
        };
        self.entries.iter().filter_map(due).min()
    }
}

/// What other cores may know of a quota, and set.
#[derive(Debug, Default)]
pub struct Shared {
    /// 0: nobody has.
    set: AtomicU32,
    /// Events in the last whole period, and number of periods.
    last: AtomicU64,
}

impl Shared {
    /// Returns the budget that was set, if one was.
    pub fn set(&self) -> Option<Events> {
        let set = self.set.load(Ordering::Relaxed);
        (set != 0).then_some(Events(set.into()))
    }

    /// Sets the budget from the next period on.
    ///
    /// # Errors
    /// The ceiling, where `budget` is above it, or 0.
    pub fn change(&self, budget: Events, ceiling: Events) -> Result<(), Events> {
        let fits = u32::try_from(budget.0)
            .ok()
            .filter(|&events| events != 0 && budget <= ceiling);
        fits.map(|events| self.set.store(events, Ordering::Relaxed))
            .ok_or(ceiling)
    }

    /// Notes a period that ended.
    pub fn publish(&self, report: &PeriodReport) {
        let events = report.events.0.min(u32::MAX.into());
        self.last.store(
            events << 32 | u64::from(report.index.wrapping_add(1)),
            Ordering::Relaxed,
        );
    }

    /// Returns the events in the last period that was noted, and the number of periods up to it.
    pub fn last(&self) -> (u32, u32) {
        let last = self.last.load(Ordering::Relaxed);
        ((last >> 32) as u32, last as u32)
    }
}

#[cfg(test)]
pub(crate) mod tests;
