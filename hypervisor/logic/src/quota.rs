//! The quotas of a core: their counters, and the state machine of a budget of events per period.
//!
//! The hardware side (counter, overflow interrupt or poll, waiting in EL2) calls this module, which
//! decides. Time is given in ticks of the system counter. Periods lie on a fixed grid from the
//! start, so that a late replenishment does not shift the later ones (MemGuard's regulation, at
//! EL2).
//!
//! A quota that is not exact is *quiet* while the guest uses little: its counter overflows after
//! half a budget, and the core does not read it before. The events since the last reading bound the
//! events of the running period, so they are charged to that period: the budget holds in every
//! period. The price is that the first busy period after a quiet time ends up to half a budget
//! early.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::{AtomicU32, AtomicU64};
use crate::clock::{Clock, Instant, Ticks};
use crate::reclaim::Pool;
use alloc::vec::Vec;
use cloison_abi::CallError;
use cloison_formats::image::{Quota, Reclaim, WhenSpent};
use cloison_formats::telemetry::{Period, Totals};
use cloison_formats::units::{EventId, Events};
use core::mem::take;
use core::sync::atomic::Ordering::Relaxed;

/// Work of EL2 for a guest, in the units in which budgets pay for it.
///
/// The guest's counters do not see EL2's work, so it is charged: for the lines of memory that EL2
/// reads, fills or writes back, and for its steps. An entry of a list takes one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effort {
    /// Lines of memory, of 64 bytes.
    lines: u64,
    /// Look-ups and calls. Both saturate: a guest may ask for any amount of work.
    steps: u64,
}

impl Effort {
    /// No work.
    pub const NONE: Self = Self { lines: 0, steps: 0 };
    /// Work on a page: 64 lines read and 64 filled, and written back.
    pub const PAGE: Self = Self {
        lines: 128,
        steps: 0,
    };
    /// A call whose data are in the hypervisor's own part of the shared cache.
    pub const CALL: Self = Self { lines: 0, steps: 4 };
    /// A call that logs a record.
    pub const RECORD: Self = Self { lines: 6, steps: 8 };
    /// A line read.
    pub const LINE: Self = Self { lines: 1, steps: 0 };
    /// An entry looked at whose line is paid for.
    pub const STEP: Self = Self { lines: 0, steps: 1 };
    /// An entry or a descriptor looked at: at worst, no two are in the same line.
    pub const LOOKUP: Self = Self { lines: 1, steps: 1 };

    /// Returns `count` times this effort.
    pub const fn times(self, count: u64) -> Self {
        Self {
            lines: self.lines.saturating_mul(count),
            steps: self.steps.saturating_mul(count),
        }
    }

    /// Returns this and another effort together.
    pub const fn and(self, other: Self) -> Self {
        Self {
            lines: self.lines.saturating_add(other.lines),
            steps: self.steps.saturating_add(other.steps),
        }
    }

    /// Returns whether it is less than the work on a page: a charge for each such effort would cost
    /// as much as the effort itself.
    pub const fn is_small(self) -> bool {
        self.lines < Self::PAGE.lines && self.steps < Self::PAGE.lines / 2
    }

    /// Returns what it costs a budget. Rounded up: many small efforts must not be free
    /// (`work_is_charged_in_proportion_and_rounded_up`).
    pub fn cost(self, spec: &Quota) -> Events {
        let lines = spec
            .work_cost
            .page
            .0
            .saturating_mul(self.lines)
            .div_ceil(Self::PAGE.lines);
        Events(lines.saturating_add(spec.work_cost.step.0.saturating_mul(self.steps)))
    }
}

/// The result of a check of the counters: the core's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Budget is left: continue.
    Run,
    /// Budget is left, and the next check is after another number of events: set the counters
    /// again.
    Rearm,
    /// The budget has just been spent, and the core continues: carry out the configured effect.
    Spent,
    /// The budget is spent: hold the core until [`Regulator::replenish_at`].
    Throttle,
}

/// A period that ended, and what follows for the next one.
type Turn = (PeriodReport, Verdict);

/// A period that ended.
pub type PeriodReport = Period<Instant, Ticks>;

/// One quota on one core.
///
/// Invariant: no period has more than its budget, except for the events until the core has noticed
/// that (property test `no_period_has_more_than_its_budget`).
#[derive(Clone, Debug)]
pub struct Regulator {
    spec: Quota,
    period: Ticks,
    /// Where unused events are given to other cores; without `reclaim`, a pool that is not used.
    pool: &'static Pool,
    /// The lower budget that the vCPU has set.
    own: Option<Events>,
    /// Events allowed in the running period, without those given and with those reclaimed.
    pub budget: Events,
    /// Events taken from the pool in the running period. They are part of `budget`.
    reclaimed: Events,
    /// End of the running period, on the grid of the first start. While the quota is quiet, that of
    /// the last period that was looked at.
    period_end: Instant,
    /// Number of the running period, or of the period of the last check.
    pub index: u32,
    /// Whether the counter is set for half a budget, and no timer for the period's end.
    quiet: bool,
    /// When the budget of the running period was spent, if it was.
    spent_at: Option<Instant>,
    /// Charged events for which later periods pay.
    debt: Events,
    /// The period of the last restart.
    restarted: Option<u32>,
    /// Events in the counters that the totals already contain.
    noted: Events,
    /// How long the core was held, without the running period.
    pub throttled: Ticks,
    /// The totals, without the running period.
    pub totals: Totals,
}

impl Regulator {
    /// Creates a quota whose first period starts at `now`; with a pool, on the grid that begins at
    /// reset.
    pub fn new(spec: Quota, period: Ticks, now: Instant, pool: &'static Pool) -> Self {
        // Cores that share budgets must agree on the periods: theirs begin at multiples since
        // reset.
        let into = spec.reclaim.map_or(0, |_| now.0 % period.0);
        let period_end = Instant(now.0 - into) + period;
        // Each of these needs every period: a poll, a record, or a share at its beginning.
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

    /// Returns when the running period ends; `None` while the quota is quiet.
    pub fn replenish_at(&self) -> Option<Instant> {
        (!self.quiet).then_some(self.period_end)
    }

    /// Returns how many events may happen until the next check, after `counted` events.
    pub fn ahead(&self, counted: Events) -> Events {
        let until = if self.quiet { self.half() } else { self.budget };
        if self.spent_at.is_some() {
            // Once spent, nothing is left to enforce in this period: the counter must not interrupt
            // again.
            Events(u32::MAX.into())
        } else {
            Events(until.0.saturating_sub(counted.0))
        }
    }

    /// Returns half of the budget, rounded up, so that a budget of one event has a half too.
    fn half(&self) -> Events {
        Events(self.budget.0.div_ceil(2))
    }

    /// Returns whether the core is held.
    pub fn is_throttled(&self) -> bool {
        self.spec.when_spent == WhenSpent::Throttle && self.spent_at.is_some()
    }

    /// Records that the vCPU has stopped. Returns the time held and the totals since it started.
    /// The events of the running period and the grid are kept for its next start, so that a stop
    /// gains no budget. The budget that the guest has lowered is the configured one again.
    pub fn stop(&mut self, counted: Events, now: Instant) -> (Ticks, Totals) {
        if self.quiet {
            self.wake(now);
            self.totals.events.0 += counted.0.saturating_sub(self.noted.0);
            self.noted = counted;
        }
        self.spent_at = None;
        // The next life of the vCPU has not lowered anything.
        self.own = None;
        (take(&mut self.throttled), take(&mut self.totals))
    }

    /// Sets the budget from the next period on. A guest may only lower the configured budget.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `budget` is above that one, or 0.
    pub fn set_budget(&mut self, budget: Events, now: Instant) -> Result<(), CallError> {
        if budget.0 == 0 || budget > self.spec.budget {
            return Err(CallError::Invalid);
        }
        // The new budget holds from the next period on, so the end of this one must be timed.
        self.wake(now);
        self.own = Some(budget);
        Ok(())
    }

    /// Charges `cost` events for work on the vCPU's behalf. Returns the count with the events that
    /// are paid now; later periods owe the rest.
    pub fn charge(&mut self, counted: Events, cost: Events, now: Instant) -> (Events, Verdict) {
        // No period pays more than its budget, so a large charge holds the core for several periods
        // instead of being forgotten (`work_for_the_guest_is_paid_for_by_later_periods_too`).
        let part = cost.0.min(self.budget.0.saturating_sub(counted.0));
        self.debt.0 += cost.0 - part;
        let counted = Events(counted.0 + part);
        (counted, self.check(counted, now))
    }

    /// Pays as much of the debt as a new period can. Returns the period's count.
    pub fn pay(&mut self, now: Instant) -> (Events, Verdict) {
        let debt = take(&mut self.debt);
        self.charge(Events(0), debt, now)
    }

    /// Checks the events counted since the period started.
    pub fn check(&mut self, counted: Events, now: Instant) -> Verdict {
        // Both decide after how many events the counter overflows: a change of one means that it
        // must be set again.
        let before = (self.quiet, self.budget);
        if self.quiet && counted >= self.half() {
            self.wake(now);
        }
        if counted >= self.budget && self.spent_at.is_none() {
            // May take more from the pool instead; then `spent_at` stays `None`, and `budget` has
            // changed.
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
                // The events over the budget, and an eighth of the budget more: a core that took
                // single events would stop at each of them.
                (counted.0 - self.budget.0).saturating_add((self.spec.budget.0 / 8).max(1));
            let taken = self
                .pool
                // The pool answers for this period only: a core whose period ended late gets
                // nothing of the next one.
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
        (self.period_end.0 / self.period.0) as u32
    }

    /// Ends a quiet time: periods are counted again, from the running one on.
    fn wake(&mut self, now: Instant) {
        if take(&mut self.quiet) && now >= self.period_end {
            let passed = self.pass(now);
            self.totals.histogram.quiet += passed;
        }
    }

    /// Advances to the period of `now`. Returns how many periods have passed, at least one.
    fn pass(&mut self, now: Instant) -> u64 {
        let mut passed = 1;
        self.period_end = self.period_end + self.period;
        if self.period_end <= now {
            // Rare: the division stays off the path of a period that ends in time.
            let missed = now.since(self.period_end).0 / self.period.0 + 1;
            self.period_end = self.period_end + self.period.times(missed);
            // Periods that passed unnoticed had no events, so each could pay its whole budget.
            let paid = self.budget.0.saturating_mul(missed);
            self.debt.0 = self.debt.0.saturating_sub(paid);
            passed += missed;
        }
        self.index = self.index.wrapping_add(passed as u32);
        self.totals.periods += passed;
        passed
    }

    /// Ends the running period if it is due. `counted` are its events; counting must then restart
    /// from zero. Missed periods are counted as periods without events. `set` is the budget that a
    /// regulating VM has set.
    pub fn replenish(
        &mut self,
        counted: Events,
        now: Instant,
        set: Option<Events>,
    ) -> Option<PeriodReport> {
        if self.quiet || now < self.period_end {
            return None;
        }
        // Only a core that was held was throttled; the other effects let it run.
        let held_at = self.spent_at.filter(|_| self.is_throttled());
        let throttled = held_at.map_or(Ticks::default(), |since| now.since(since));
        let report = PeriodReport {
            index: self.index,
            events: counted,
            budget: self.budget,
            reclaimed: self.reclaimed,
            spent_at: self.spent_at.take(),
            due: self.period_end,
            throttled,
        };
        // What happened after the budget was spent, until the core stopped; of a quota that lets
        // the core run, all of the rest of the period.
        let overshoot = Events(counted.0.saturating_sub(self.budget.0));
        let totals = &mut self.totals;
        totals.spent_periods += u64::from(report.spent_at.is_some());
        totals.events.0 += counted.0.saturating_sub(take(&mut self.noted).0);
        totals.overshoot.0 += overshoot.0;
        totals.max_overshoot = totals.max_overshoot.max(overshoot);
        totals.reclaimed.0 += self.reclaimed.0;
        totals.histogram.add(counted, self.budget);
        self.throttled = Ticks(self.throttled.0 + throttled.0);
        // The regulating VM's word first; a guest can only lower what that allows.
        let next = set.unwrap_or(self.spec.budget);
        self.budget = self.own.map_or(next, |own| own.min(next));
        let passed = self.pass(now);
        if let Some(Reclaim { guarantee, .. }) = self.spec.reclaim {
            // If periods were missed, the last one had no events.
            let expected = if passed == 1 { counted } else { Events(0) };
            self.share(expected, guarantee);
        }
        // A quiet counter overflows after half a budget, and all events since its last reading are
        // charged to the period of the overflow: no period can use more than its budget unseen.
        self.quiet = !self.spec.exact && counted < self.half() && self.debt == Events(0);
        Some(report)
    }

    /// Gives the events that a new period is not expected to use. It is expected to use as many as
    /// the last one.
    fn share(&mut self, expected: Events, guarantee: Events) {
        self.reclaimed = Events(0);
        // At least the guarantee, at most the budget: a core never gives more than it has.
        let kept = expected.max(guarantee).min(self.budget);
        let given = (self.budget.0 - kept.0) as u32;
        self.totals.given.0 += u64::from(given);
        self.budget = kept;
        self.pool.give(self.epoch(), given);
    }
}

/// How a board's cores detect that a budget is spent.
#[derive(Clone, Copy, Debug)]
pub struct Enforcement {
    /// By the PMU's overflow interrupt; otherwise by polling.
    pub by_interrupt: bool,
    /// Whether each counter needs a second one for that (`Board::pmu_shadow`).
    pub shadow: bool,
}

/// A counter of a quota.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Its number.
    pub number: u32,
    /// The event that it counts.
    pub event: EventId,
    /// Cost of one event in the budget.
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
    /// All of them, with the second ones, as a bit mask.
    pub mask: u32,
    /// Events counted or charged in the period before its counters were set.
    base: Events,
    /// `None` before the vCPU's first start. It then belongs to the core: no stop or restart gains
    /// a budget.
    pub regulator: Option<Regulator>,
}

impl Entry {
    /// Starts the regulator.
    pub fn begin(&mut self, now: Instant, pool: &'static Pool) {
        self.regulator = Some(Regulator::new(self.spec, self.period, now, pool));
    }

    /// Returns the events since the period started.
    pub fn counted(&self, counters: &impl Counters) -> Events {
        let events = |counter: &Counter| {
            // Modulo 2^32: the difference is right also after the overflow.
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

    /// Sets the counters, so that one overflows before more than the regulator allows has happened.
    /// `counted` has been counted so far.
    pub fn arm(&mut self, counted: Events, counters: &impl Counters) {
        self.base = counted;
        let ahead = self
            .regulator
            .as_ref()
            .map_or(Events(0), |regulator| regulator.ahead(counted));
        // Each of two may use its half: what the other one leaves of its half is shared out at the
        // next overflow.
        let each = if self.counters.len() == 1 {
            ahead.0
        } else {
            ahead.0 / 2
        };
        for counter in &mut self.counters {
            // The division is slow, and most weights are 1.
            let events = if counter.weight == 1 {
                each
            } else {
                each / counter.weight
            };
            // An event counter has 32 bits and overflows from 2^32 - 1 to 0, so `preset` is the
            // two's complement. At least one event is left: a counter set to 0 would overflow only
            // after 2^32.
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
        // An overflow needs a new preset even while the budget lasts: of two events, one may have
        // used up its half.
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
        // The paid events are in `base` from now on, as if the counters had counted them.
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
        let (counted, verdict) = if regulator.debt == Events(0) {
            (Events(0), Verdict::Run)
        } else {
            regulator.pay(now)
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
#[derive(Debug)]
pub struct Quotas {
    /// The quotas in configuration order.
    pub entries: Vec<Entry>,
    /// How a spent budget is detected.
    pub enforcement: Enforcement,
    /// Whether the core's vCPU runs, or the core works for it. Otherwise its counters and its
    /// deadlines are off.
    pub is_running: bool,
}

impl Quotas {
    /// Returns those of a VM's quotas that apply to `vcpu`, with counters from the highest of
    /// `counters` down.
    pub fn assign(
        quotas: &[Quota],
        vcpu: usize,
        counters: u32,
        enforcement: Enforcement,
        clock: Clock,
    ) -> Self {
        // From the top down: MDCR_EL2.HPMN reserves the counters from HPMN up for EL2 (Arm ARM,
        // MDCR_EL2).
        let mut next = counters;
        let mut number = || {
            next = next.saturating_sub(1);
            next
        };
        let own = quotas
            .iter()
            .enumerate()
            .filter(|(_, quota)| quota.vcpu.index() == vcpu);
        let entry = |(index, spec): (usize, &Quota)| {
            let shadowed = enforcement.by_interrupt && enforcement.shadow;
            let counters: Vec<Counter> = spec
                .counted()
                .map(|counted| Counter {
                    number: number(),
                    event: counted.event,
                    weight: counted.weight.into(),
                    shadow: shadowed.then(&mut number),
                    preset: 0,
                })
                .collect();
            let bits = |counter: &Counter| {
                1 << counter.number | counter.shadow.map_or(0, |shadow| 1 << shadow)
            };
            Entry {
                index: index as u8,
                spec: Quota {
                    // Without the interrupt, only the end of a period tells.
                    exact: spec.exact || !enforcement.by_interrupt,
                    ..*spec
                },
                period: clock.ticks(spec.period),
                poll: clock.ticks(spec.poll),
                mask: counters.iter().map(bits).sum(),
                counters,
                base: Events(0),
                regulator: None,
            }
        };
        Self {
            entries: own.map(entry).collect(),
            enforcement,
            is_running: false,
        }
    }

    /// Returns the number of counters that the quotas use.
    pub fn reserved(&self) -> u32 {
        self.entries
            .iter()
            .map(|entry| entry.mask.count_ones())
            .sum()
    }

    /// Returns whether a budget is spent, so that the core must be held. A core whose vCPU is off
    /// is not.
    pub fn is_throttled(&self) -> bool {
        self.is_running
            && self.entries.iter().any(|entry| {
                entry
                    .regulator
                    .as_ref()
                    .is_some_and(Regulator::is_throttled)
            })
    }

    /// Prepares the restart of the core's VM. Returns whether the core may restart it now. A core
    /// that has restarted it in the running period already is held until the period's end. A VM
    /// that only restarts itself thus costs EL2 one start per period
    /// (`a_core_restarts_its_vm_once_per_period`).
    pub fn restart(&mut self, now: Instant) -> bool {
        let mut may = true;
        for regulator in self.throttling() {
            regulator.wake(now);
            if regulator.restarted == Some(regulator.index) {
                // Held as if the budget were spent, which ends with the period.
                regulator.spent_at.get_or_insert(now);
                may = false;
            }
        }
        for regulator in self.throttling().filter(|_| may) {
            regulator.restarted = Some(regulator.index);
        }
        may
    }

    /// Returns the quotas that can hold the core: the others let it run, and so limit no restart.
    fn throttling(&mut self) -> impl Iterator<Item = &mut Regulator> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.regulator.as_mut())
            .filter(|regulator| regulator.spec.when_spent == WhenSpent::Throttle)
    }

    /// Returns when the core must check its quotas next; `None` if nothing is due, or the vCPU is
    /// off.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if !self.is_running {
            return None;
        }
        let due = |entry: &Entry| {
            let regulator = entry.regulator.as_ref()?;
            // A quiet quota has no deadline: its counter's overflow ends the quiet time.
            let replenish = regulator.replenish_at()?;
            let polled = !self.enforcement.by_interrupt || entry.spec.backstop;
            // Once the budget is spent, only the period's end matters.
            let polls = polled && regulator.spent_at.is_none();
            Some(if polls {
                replenish.min(now + entry.poll)
            } else {
                replenish
            })
        };
        self.entries.iter().filter_map(due).min()
    }
}

/// The part of a quota that other cores read and set.
///
/// Relaxed is enough: each word stands for itself, and no other memory depends on it.
#[derive(Debug, Default)]
pub struct Shared {
    /// The budget that a regulating VM has set; 0: none has.
    set: AtomicU32,
    /// Events in the last whole period, and number of periods.
    // One word, so that a reader never combines the events of one period with the number of
    // another.
    last: AtomicU64,
}

impl Shared {
    /// Returns the budget that was set, if one was.
    pub fn set(&self) -> Option<Events> {
        let set = self.set.load(Relaxed);
        (set != 0).then_some(Events(set.into()))
    }

    /// Sets the budget from the next period on.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if `budget` is above the ceiling, or 0.
    pub fn change(&self, budget: Events, ceiling: Events) -> Result<(), CallError> {
        match u32::try_from(budget.0) {
            Ok(events @ 1..) if budget <= ceiling => {
                self.set.store(events, Relaxed);
                Ok(())
            }
            _ => Err(CallError::Invalid),
        }
    }

    /// Notes a period that ended.
    pub fn publish(&self, report: &PeriodReport) {
        let events = report.events.0.min(u32::MAX.into());
        self.last.store(
            events << 32 | u64::from(report.index.wrapping_add(1)),
            Relaxed,
        );
    }

    /// Returns the events in the last period that was noted, and the number of periods up to it.
    pub fn last(&self) -> (u32, u32) {
        let last = self.last.load(Relaxed);
        ((last >> 32) as u32, last as u32)
    }
}

#[cfg(test)]
pub(crate) mod tests;
