//! The quotas of a core: their counters, and the state machine of a budget of events per period.
//!
//! The hardware side (counter, overflow interrupt or poll, waiting in EL2) calls this module, which decides. Time is
//! given in ticks of the system counter. Periods lie on a fixed grid from the start, so that a late replenishment
//! does not shift the later ones (MemGuard's regulation, at EL2).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::{Clock, Instant, Ticks};
use alloc::vec::Vec;
use cloison_formats::image::Quota;
use cloison_formats::telemetry::{Period, Totals};
use cloison_formats::units::Events;

/// What the core must do after its counter was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Budget is left: continue.
    Run,
    /// The budget is spent: hold the core until [`Regulator::replenish_at`].
    Throttle,
}

/// A period that ended.
pub type PeriodReport = Period<Instant, Ticks>;

/// One quota on one core.
///
/// ```
/// use cloison_formats::units::Events;
/// use cloison_logic::clock::{Instant, Ticks};
/// use cloison_logic::quota::{Regulator, Verdict};
///
/// // 1,000 events per million ticks, from reset on.
/// let mut quota = Regulator::new(Events(1_000), Ticks::new(1_000_000), Instant::at(0));
/// assert_eq!(quota.check(Events(999), Instant::at(400_000)), Verdict::Run);
/// assert_eq!(quota.check(Events(1_004), Instant::at(400_010)), Verdict::Throttle);
///
/// let report = quota.replenish(Events(1_004), Instant::at(1_000_000)).expect("the period has ended");
/// assert_eq!(report.throttled, Ticks::new(599_990));
/// assert_eq!(quota.totals().max_overshoot, Events(4));
/// ```
#[derive(Clone, Debug)]
pub struct Regulator {
    limit: Events,
    budget: Events,
    next_budget: Events,
    period: Ticks,
    period_end: Instant,
    index: u32,
    throttled_since: Option<Instant>,
    /// Events charged that later periods pay for.
    debt: Events,
    /// The period of the last restart.
    restarted: Option<u32>,
    totals: Totals<Ticks>,
}

impl Regulator {
    /// Creates a quota whose first period starts at `now`. `budget` and `period` must not be zero.
    pub fn new(budget: Events, period: Ticks, now: Instant) -> Self {
        Self {
            limit: budget,
            budget,
            next_budget: budget,
            period,
            period_end: now + period,
            index: 0,
            throttled_since: None,
            debt: Events(0),
            restarted: None,
            totals: Totals::default(),
        }
    }

    /// Returns when the running period ends.
    pub fn replenish_at(&self) -> Instant {
        self.period_end
    }

    /// Returns the budget of the running period.
    pub fn budget(&self) -> Events {
        self.budget
    }

    /// Returns whether the core is held.
    pub fn is_throttled(&self) -> bool {
        self.throttled_since.is_some()
    }

    /// Returns the number of the running period.
    pub fn period_index(&self) -> u32 {
        self.index
    }

    /// Returns the totals so far, without the running period.
    pub fn totals(&self) -> Totals<Ticks> {
        self.totals
    }

    /// The vCPU has stopped. Returns what has been counted since it started; what it has spent of the running period, and
    /// the grid, are kept for its next start, so that a stop gains no budget. Only what the guest has lowered is undone.
    pub fn stop(&mut self) -> Totals<Ticks> {
        self.throttled_since = None;
        self.next_budget = self.limit;
        core::mem::take(&mut self.totals)
    }

    /// Sets the budget from the next period on. A guest may only lower the configured budget.
    pub fn set_budget(&mut self, budget: Events) -> Result<(), Events> {
        if budget.0 == 0 || budget > self.limit {
            return Err(self.limit);
        }
        self.next_budget = budget;
        Ok(())
    }

    /// Charges `cost` events for work that was done on the vCPU's behalf. Returns how many to add to the counter now; later
    /// periods owe the rest.
    pub fn charge(&mut self, counted: Events, cost: Events, now: Instant) -> Events {
        let part = Events(cost.0.min(self.budget.0.saturating_sub(counted.0)));
        self.debt.0 += cost.0 - part.0;
        self.check(Events(counted.0 + part.0), now);
        part
    }

    /// Returns whether a period that has just begun owes something.
    #[inline]
    pub fn owes(&self) -> bool {
        self.debt.0 != 0
    }

    /// Pays what a new period can. Returns how many events to add to its counter.
    pub fn pay(&mut self, now: Instant) -> Events {
        let debt = core::mem::take(&mut self.debt);
        self.charge(Events(0), debt, now)
    }

    /// Checks the events counted since the period started.
    #[inline]
    pub fn check(&mut self, counted: Events, now: Instant) -> Verdict {
        if counted < self.budget {
            return Verdict::Run;
        }
        self.throttled_since.get_or_insert(now);
        Verdict::Throttle
    }

    /// Ends the running period if it is due. `counted` is the value of its counter, which must then restart from zero.
    /// Missed periods are counted as periods without events.
    #[inline]
    pub fn replenish(&mut self, counted: Events, now: Instant) -> Option<PeriodReport> {
        if now < self.period_end {
            return None;
        }
        let throttled_at = self.throttled_since.take();
        let throttled = throttled_at.map_or(Ticks::default(), |since| now.since(since));
        let report = PeriodReport {
            index: self.index,
            events: counted,
            budget: self.budget,
            throttled_at,
            due: self.period_end,
            throttled,
        };
        let overshoot = Events(counted.0.saturating_sub(self.budget.0));
        let totals = &mut self.totals;
        totals.throttled_periods += u32::from(throttled_at.is_some());
        totals.throttled = totals.throttled + throttled;
        totals.events.0 += counted.0;
        totals.overshoot.0 += overshoot.0;
        totals.max_overshoot = totals.max_overshoot.max(overshoot);
        let mut passed = 1;
        self.period_end = self.period_end + self.period;
        if self.period_end <= now {
            // Rare: the division stays off the path of a period that ends in time.
            let missed = now.since(self.period_end).count() / self.period.count() + 1;
            self.period_end = self.period_end + self.period.times(missed);
            self.debt.0 = self.debt.0.saturating_sub(self.next_budget.0.saturating_mul(missed));
            passed += missed;
        }
        self.index = self.index.wrapping_add(passed as u32);
        totals.periods = totals.periods.wrapping_add(passed as u32);
        self.budget = self.next_budget;
        Some(report)
    }
}

/// How a board's cores detect that a budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// By the PMU's overflow interrupt; otherwise by polling.
    pub by_interrupt: bool,
    /// Whether each quota needs a second counter for that (`Board::pmu_shadow`).
    pub shadow: bool,
}

/// A quota on its core.
#[derive(Debug)]
pub struct Entry {
    /// Index in the VM's configuration.
    pub index: u8,
    /// Its configuration.
    pub spec: Quota,
    /// Its period.
    pub period: Ticks,
    /// Its poll interval.
    pub poll: Ticks,
    /// The counter that counts its event.
    pub counter: u32,
    /// A second counter on the same event, preset one lower.
    pub shadow: Option<u32>,
    /// `None` before the vCPU's first start. It then belongs to the core: no stop or restart gains a budget.
    pub regulator: Option<Regulator>,
    /// Value of the counter at the start of the period.
    pub preset: u32,
}

impl Entry {
    /// Returns its counters as a bit mask.
    #[inline]
    pub fn mask(&self) -> u64 {
        1 << self.counter | self.shadow.map_or(0, |shadow| 1 << shadow)
    }

    /// Returns the events since the period started, given the counter's value.
    #[inline]
    pub fn counted(&self, shown: u32) -> Events {
        Events(u64::from(shown.wrapping_sub(self.preset)))
    }

    /// Sets the counter's initial value, `budget` before its overflow, and returns it.
    #[inline]
    pub fn preset_for(&mut self, budget: Events) -> u32 {
        self.preset = 0u32.wrapping_sub(budget.0.min(u64::from(u32::MAX)) as u32);
        self.preset
    }
}

/// The quotas of one core.
#[derive(Debug)]
pub struct Quotas {
    /// The quotas in configuration order.
    pub entries: Vec<Entry>,
    /// How a spent budget is detected.
    pub enforcement: Enforcement,
}

impl Quotas {
    /// Returns those of a VM's quotas that apply to `vcpu`, with counters from the highest of `counters` down.
    pub fn assign(quotas: &[Quota], vcpu: usize, counters: u32, enforcement: Enforcement, clock: Clock) -> Self {
        let mut next = counters;
        let mut take = || {
            next = next.saturating_sub(1);
            next
        };
        let own = quotas.iter().enumerate().filter(|(_, quota)| usize::from(quota.vcpu) == vcpu);
        let mut entry = |(index, spec): (usize, &Quota)| Entry {
            index: index as u8,
            spec: *spec,
            period: clock.ticks(spec.period),
            poll: clock.ticks(spec.poll),
            counter: take(),
            shadow: (enforcement.by_interrupt && enforcement.shadow).then(&mut take),
            regulator: None,
            preset: 0,
        };
        let entries = own.map(&mut entry).collect();
        Self { entries, enforcement }
    }

    /// Returns the number of counters that the quotas use.
    pub fn reserved(&self) -> u32 {
        self.entries.iter().map(|entry| entry.mask().count_ones()).sum()
    }

    /// Returns whether the timer must check a quota's counter between the ends of its periods.
    #[inline]
    pub fn is_polled(&self, entry: &Entry) -> bool {
        !self.enforcement.by_interrupt || entry.spec.backstop
    }

    /// Returns whether a budget is spent, so that the core must be held.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.entries.iter().any(|entry| entry.regulator.as_ref().is_some_and(Regulator::is_throttled))
    }

    /// The core is about to restart its VM. Returns whether it may; where it has done so in a running period already, it is
    /// held until that period's end.
    pub fn restart(&mut self, now: Instant) -> bool {
        let mut may = true;
        for regulator in self.entries.iter_mut().filter_map(|entry| entry.regulator.as_mut()) {
            if regulator.restarted == Some(regulator.index) {
                regulator.throttled_since.get_or_insert(now);
                may = false;
            }
        }
        for regulator in self.entries.iter_mut().filter_map(|entry| entry.regulator.as_mut()).filter(|_| may) {
            regulator.restarted = Some(regulator.index);
        }
        may
    }

    /// Returns when the core must check its quotas next; `None` if none is active.
    #[inline]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let due = |entry: &Entry| {
            let regulator = entry.regulator.as_ref()?;
            let replenish = regulator.replenish_at();
            if !self.is_polled(entry) || regulator.is_throttled() {
                Some(replenish)
            } else {
                Some(replenish.min(now + entry.poll))
            }
        };
        self.entries.iter().filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::units::{EventId, Nanos};

    /// A tick is a nanosecond.
    const CLOCK: Clock = Clock::new(1_000_000_000).expect("in range");

    fn spec(vcpu: u8, backstop: bool) -> Quota {
        Quota {
            vcpu,
            event: EventId::INST_RETIRED,
            budget: Events(100),
            period: Nanos(1000),
            poll: Nanos(10),
            backstop,
            trace: false,
            page_cost: Events(5),
        }
    }

    fn assigned(quotas: &[Quota], vcpu: usize, by_interrupt: bool, shadow: bool) -> Quotas {
        Quotas::assign(quotas, vcpu, 6, Enforcement { by_interrupt, shadow }, CLOCK)
    }

    #[test]
    fn counters_are_taken_from_the_top_for_the_own_vcpu() {
        let quotas = [spec(0, false), spec(1, false), spec(0, true)];
        let plain = assigned(&quotas, 0, true, false);
        let of = |quotas: &Quotas| quotas.entries.iter().map(|e| (e.index, e.counter, e.shadow)).collect::<Vec<_>>();
        assert_eq!(of(&plain), [(0, 5, None), (2, 4, None)]);
        assert_eq!(plain.reserved(), 2);
        let shadowed = assigned(&quotas, 0, true, true);
        assert_eq!(of(&shadowed), [(0, 5, Some(4)), (2, 3, Some(2))]);
        assert_eq!((shadowed.reserved(), shadowed.entries[1].mask()), (4, 0b1100));
        assert_eq!(of(&assigned(&quotas, 0, false, true)), of(&plain), "polling needs no shadow");
        assert_eq!(of(&assigned(&quotas, 2, true, true)), []);
    }

    #[test]
    fn a_counter_overflows_when_the_budget_is_spent() {
        let mut quotas = assigned(&[spec(0, false)], 0, true, false);
        let entry = &mut quotas.entries[0];
        let first = entry.preset_for(Events(100));
        assert_eq!(first.wrapping_add(100), 0);
        assert_eq!(entry.counted(first.wrapping_add(103)), Events(103));
        assert_eq!(entry.preset_for(Events(u64::MAX)), 1, "a budget beyond the counter is as much as it holds");
    }

    #[test]
    fn a_poll_comes_before_the_end_of_the_period_unless_the_core_is_held() {
        let mut quotas = assigned(&[spec(0, true)], 0, true, false);
        assert_eq!(quotas.next_deadline(Instant::at(0)), None);
        quotas.entries[0].regulator = Some(Regulator::new(Events(100), Ticks::new(1000), Instant::at(0)));
        assert_eq!(quotas.next_deadline(Instant::at(500)), Some(Instant::at(510)));
        assert_eq!(quotas.next_deadline(Instant::at(995)), Some(Instant::at(1000)));
        let regulator = quotas.entries[0].regulator.as_mut().expect("set above");
        regulator.check(Events(100), Instant::at(600));
        assert!(quotas.is_throttled());
        assert_eq!(quotas.next_deadline(Instant::at(600)), Some(Instant::at(1000)));
        quotas.entries[0].spec.backstop = false;
        assert_eq!(quotas.next_deadline(Instant::at(600)), Some(Instant::at(1000)));
    }
    use proptest::prelude::*;

    #[test]
    fn throttles_at_the_budget_and_runs_again_after_the_period() {
        let mut quota = Regulator::new(Events(100), Ticks::new(1000), Instant::at(50));
        assert_eq!(quota.check(Events(99), Instant::at(500)), Verdict::Run);
        assert_eq!(quota.check(Events(103), Instant::at(600)), Verdict::Throttle);
        assert!(quota.is_throttled());
        assert_eq!(quota.replenish(Events(103), Instant::at(1049)), None);
        let report = quota.replenish(Events(103), Instant::at(1050)).expect("the period is over");
        assert_eq!(
            report,
            PeriodReport {
                index: 0,
                events: Events(103),
                budget: Events(100),
                throttled_at: Some(Instant::at(600)),
                due: Instant::at(1050),
                throttled: Ticks::new(450)
            }
        );
        assert!(!quota.is_throttled());
        assert_eq!(quota.totals().max_overshoot, Events(3));
        assert_eq!(quota.check(Events(1), Instant::at(1051)), Verdict::Run);
    }

    #[test]
    fn the_log_has_nanoseconds_since_reset() {
        let clock = Clock::new(500_000_000).expect("in range");
        let report = PeriodReport {
            index: 3,
            events: Events(7),
            budget: Events(5),
            throttled_at: Some(Instant::at(100)),
            due: Instant::at(150),
            throttled: Ticks::new(50),
        };
        let logged = report.map(|at| clock.since_reset(at), |lasting| clock.nanos(lasting));
        assert_eq!((logged.index, logged.events, logged.budget), (3, Events(7), Events(5)));
        assert_eq!((logged.throttled_at, logged.due, logged.throttled), (Some(Nanos(200)), Nanos(300), Nanos(100)));
        let totals = Totals { throttled: Ticks::new(9), periods: 4, ..Totals::default() };
        let logged = totals.map(|lasting| clock.nanos(lasting));
        assert_eq!((logged.throttled, logged.periods), (Nanos(18), 4));
    }

    #[test]
    fn a_guest_lowers_its_budget_but_never_raises_it() {
        let mut quota = Regulator::new(Events(100), Ticks::new(10), Instant::at(0));
        assert_eq!(quota.set_budget(Events(101)), Err(Events(100)));
        assert_eq!(quota.set_budget(Events(0)), Err(Events(100)));
        assert_eq!(quota.set_budget(Events(40)), Ok(()));
        assert_eq!(quota.budget(), Events(100), "not before the next period");
        quota.replenish(Events(0), Instant::at(10));
        assert_eq!(quota.budget(), Events(40));
        assert_eq!(quota.set_budget(Events(100)), Ok(()));
    }

    #[test]
    fn a_stop_gains_no_budget() {
        let mut quota = Regulator::new(Events(100), Ticks::new(1000), Instant::at(0));
        quota.set_budget(Events(40)).expect("lower");
        assert_eq!(quota.check(Events(100), Instant::at(300)), Verdict::Throttle);
        assert_eq!(quota.stop(), Totals::default(), "no period has ended");
        // Started again in the same period: still spent, until the period that began at 0 ends.
        assert!(!quota.is_throttled());
        assert_eq!(quota.replenish(Events(100), Instant::at(999)), None);
        assert_eq!(quota.check(Events(100), Instant::at(999)), Verdict::Throttle);
        let report = quota.replenish(Events(100), Instant::at(1000)).expect("the period has ended");
        assert_eq!((report.events, report.throttled), (Events(100), Ticks::new(1)));
        assert_eq!(quota.budget(), Events(100), "the former life had lowered it");
        // Stopped for several periods: the grid is as old as the core.
        assert_eq!(quota.stop().periods, 1);
        assert!(quota.replenish(Events(7), Instant::at(5500)).is_some());
        assert_eq!((quota.replenish_at(), quota.period_index()), (Instant::at(6000), 5));
        assert_eq!(quota.totals().periods, 4);
    }

    #[test]
    fn work_for_the_guest_is_paid_for_by_later_periods_too() {
        let mut quota = Regulator::new(Events(100), Ticks::new(1000), Instant::at(0));
        assert_eq!(quota.charge(Events(30), Events(50), Instant::at(100)), Events(50));
        assert!(!quota.is_throttled() && !quota.owes());
        // 20 are left of 250: the next two periods are spent before they begin, the third one has 70 left.
        assert_eq!(quota.charge(Events(80), Events(250), Instant::at(200)), Events(20));
        assert!(quota.is_throttled() && quota.owes());
        for end in [1000, 2000] {
            assert!(quota.replenish(Events(100), Instant::at(end)).is_some());
            assert_eq!(quota.pay(Instant::at(end)), Events(100));
            assert!(quota.is_throttled());
        }
        assert!(quota.replenish(Events(100), Instant::at(3000)).is_some());
        assert_eq!(quota.pay(Instant::at(3000)), Events(30));
        assert!(!quota.is_throttled() && !quota.owes());
        assert_eq!((quota.totals().events, quota.totals().overshoot), (Events(300), Events(0)));
        // Periods in which the vCPU was off pay as well.
        quota.charge(Events(30), Events(370), Instant::at(3500));
        quota.stop();
        assert!(quota.replenish(Events(100), Instant::at(6500)).is_some());
        assert_eq!((quota.pay(Instant::at(6500)), quota.owes()), (Events(100), false));
    }

    #[test]
    fn a_core_restarts_its_vm_once_per_period() {
        let mut quotas = assigned(&[spec(0, false), spec(0, false)], 0, true, false);
        assert!(quotas.restart(Instant::at(0)), "no period has begun");
        for (entry, period) in quotas.entries.iter_mut().zip([1000, 3000]) {
            entry.regulator = Some(Regulator::new(Events(100), Ticks::new(period), Instant::at(0)));
        }
        assert!(quotas.restart(Instant::at(500)) && !quotas.is_throttled());
        let end_periods = |quotas: &mut Quotas, now| {
            for regulator in quotas.entries.iter_mut().filter_map(|entry| entry.regulator.as_mut()) {
                regulator.replenish(Events(0), Instant::at(now));
            }
        };
        for now in [600, 1000, 2999] {
            end_periods(&mut quotas, now);
            assert!(!quotas.restart(Instant::at(now)) && quotas.is_throttled(), "the longer period has not ended");
        }
        end_periods(&mut quotas, 3000);
        assert!(!quotas.is_throttled() && quotas.restart(Instant::at(3000)));
        assert!(!quotas.restart(Instant::at(3999)));
    }

    proptest! {
        /// Whatever is charged, in all periods together no more is counted than they allow, and all of it is paid for.
        #[test]
        fn no_charge_is_lost(steps in prop::collection::vec((1u64..2500, 0u64..60, 0u64..500), 1..200)) {
            const BUDGET: u64 = 100;
            let mut quota = Regulator::new(Events(BUDGET), Ticks::new(1000), Instant::at(0));
            let (mut now, mut counter, mut spent) = (0, 0, 0);
            for (wait, work, charge) in steps {
                // Work starts only while budget is left, as the core is held otherwise.
                if quota.check(Events(counter), Instant::at(now)) == Verdict::Run {
                    counter += work;
                    spent += work + charge;
                    counter += quota.charge(Events(counter), Events(charge), Instant::at(now)).0;
                }
                now += wait;
                if quota.replenish(Events(counter), Instant::at(now)).is_some() {
                    counter = quota.pay(Instant::at(now)).0;
                }
                prop_assert!(counter < BUDGET + 60);
                prop_assert!(spent <= (now / 1000 + 1) * (BUDGET + 59) + 500, "{spent} events by {now}");
            }
            prop_assert!(quota.totals().max_overshoot.0 < 60);
        }

        /// Whatever a guest does to stop and start again, it counts no more events than the periods that it has seen
        /// allow, and what it spends in one step beyond.
        #[test]
        fn no_sequence_of_stops_gains_events(steps in prop::collection::vec((1u64..400, 1u64..60, any::<bool>()), 1..200)) {
            const BUDGET: u64 = 100;
            let mut quota = Regulator::new(Events(BUDGET), Ticks::new(1000), Instant::at(0));
            let (mut now, mut counter, mut spent) = (0, 0, 0);
            for (wait, work, stops) in steps {
                if quota.check(Events(counter), Instant::at(now)) == Verdict::Run {
                    counter += work;
                    spent += work;
                }
                now += wait;
                if stops {
                    quota.stop();
                }
                if quota.replenish(Events(counter), Instant::at(now)).is_some() {
                    counter = 0;
                }
                prop_assert!(spent <= (now / 1000 + 1) * (BUDGET + 59), "{spent} events by {now}");
            }
        }

        /// However late the replenishments are, they stay on the grid, and no event or period is lost.
        #[test]
        fn the_grid_holds(period in 1u64..10_000, budget in 1u64..1000, steps in prop::collection::vec((1u64..50_000, 0u64..2000), 1..100)) {
            let mut quota = Regulator::new(Events(budget), Ticks::new(period), Instant::at(0));
            let (mut now, mut events, mut over) = (0, 0, 0);
            for (step, counted) in steps {
                now += step;
                quota.check(Events(counted), Instant::at(now));
                if quota.replenish(Events(counted), Instant::at(now)).is_some() {
                    events += counted;
                    over += counted.saturating_sub(budget);
                }
                prop_assert!(quota.replenish_at().count() > now && quota.replenish_at().count() <= now + period);
                prop_assert_eq!(quota.replenish_at().count() % period, 0);
                prop_assert_eq!(u64::from(quota.period_index()), now / period);
            }
            prop_assert_eq!(quota.totals().events.0, events);
            prop_assert_eq!(quota.totals().overshoot.0, over);
        }
    }
}
