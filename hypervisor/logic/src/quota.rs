//! The state machine behind a quota: a budget of events per period on one core.
//!
//! The hardware side (counter, overflow interrupt or poll, the wait in EL2) asks and tells; this module decides. Time
//! comes in as nanoseconds of the system counter; periods lie on a fixed grid from the start, so that a late
//! replenishment does not shift the ones after it (MemGuard's regulation, at EL2).

use cloison_formats::telemetry::QuotaTotal;
use cloison_formats::units::{Events, Nanos, Period};

/// What the core has to do after a look at its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is budget left: go on.
    Run,
    /// The budget is spent: hold the core until [`Regulator::replenish_at`].
    Throttle,
}

/// A period that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodReport {
    /// Its number, from 0.
    pub index: u32,
    /// Events counted in it.
    pub events: Events,
    /// The budget that was in force.
    pub budget: Events,
    /// When the core was stopped; zero where the budget lasted.
    pub throttled_at: Nanos,
    /// When the period was due to end.
    pub due: Nanos,
    /// How long the core was held.
    pub throttled: Nanos,
}

/// One quota on one core.
#[derive(Clone, Debug)]
pub struct Regulator {
    limit: Events,
    budget: Events,
    next_budget: Events,
    period: Period,
    period_end: Nanos,
    index: u32,
    throttled_since: Option<Nanos>,
    totals: QuotaTotal,
}

impl Regulator {
    /// A quota whose first period starts `now`. `budget` and `period` must not be zero.
    pub fn new(budget: Events, period: Period, now: Nanos) -> Self {
        Self {
            limit: budget,
            budget,
            next_budget: budget,
            period,
            period_end: Nanos(now.0 + period.0),
            index: 0,
            throttled_since: None,
            totals: QuotaTotal::default(),
        }
    }

    /// When the running period ends.
    pub fn replenish_at(&self) -> Nanos {
        self.period_end
    }

    /// The budget in force.
    pub fn budget(&self) -> Events {
        self.budget
    }

    /// Whether the core is being held.
    pub fn is_throttled(&self) -> bool {
        self.throttled_since.is_some()
    }

    /// Number of the running period.
    pub fn period_index(&self) -> u32 {
        self.index
    }

    /// What has been counted so far, without the running period.
    pub fn totals(&self) -> QuotaTotal {
        self.totals
    }

    /// Sets the budget from the next period on. A guest may only lower what its configuration says.
    pub fn set_budget(&mut self, budget: Events) -> Result<(), Events> {
        if budget.0 == 0 || budget > self.limit {
            return Err(self.limit);
        }
        self.next_budget = budget;
        Ok(())
    }

    /// Judges the events counted since the period began.
    pub fn check(&mut self, counted: Events, now: Nanos) -> Verdict {
        if counted < self.budget {
            return Verdict::Run;
        }
        self.throttled_since.get_or_insert(now);
        Verdict::Throttle
    }

    /// Ends the running period if its time has come: `counted` is what its counter shows. The counter must start again
    /// from zero. Periods that passed unseen are counted as periods without events.
    pub fn replenish(&mut self, counted: Events, now: Nanos) -> Option<PeriodReport> {
        if now < self.period_end {
            return None;
        }
        let throttled_at = self.throttled_since.take();
        let throttled = Nanos(throttled_at.map_or(0, |since| now.0 - since.0));
        let report = PeriodReport {
            index: self.index,
            events: counted,
            budget: self.budget,
            throttled_at: throttled_at.unwrap_or_default(),
            due: self.period_end,
            throttled,
        };
        let overshoot = Events(counted.0.saturating_sub(self.budget.0));
        let totals = &mut self.totals;
        totals.throttled_periods += u32::from(throttled.0 > 0);
        totals.throttled.0 += throttled.0;
        totals.events.0 += counted.0;
        totals.overshoot.0 += overshoot.0;
        totals.max_overshoot = totals.max_overshoot.max(overshoot);
        let passed = (now.0 - self.period_end.0) / self.period.0 + 1;
        self.period_end.0 += passed * self.period.0;
        self.index = self.index.wrapping_add(passed as u32);
        totals.periods = self.index;
        self.budget = self.next_budget;
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn throttles_at_the_budget_and_runs_again_after_the_period() {
        let mut quota = Regulator::new(Events(100), Nanos(1000), Nanos(50));
        assert_eq!(quota.check(Events(99), Nanos(500)), Verdict::Run);
        assert_eq!(quota.check(Events(103), Nanos(600)), Verdict::Throttle);
        assert!(quota.is_throttled());
        assert_eq!(quota.replenish(Events(103), Nanos(1049)), None);
        let report = quota.replenish(Events(103), Nanos(1050)).expect("the period is over");
        assert_eq!(
            report,
            PeriodReport {
                index: 0,
                events: Events(103),
                budget: Events(100),
                throttled_at: Nanos(600),
                due: Nanos(1050),
                throttled: Nanos(450)
            }
        );
        assert!(!quota.is_throttled());
        assert_eq!(quota.totals().max_overshoot, Events(3));
        assert_eq!(quota.check(Events(1), Nanos(1051)), Verdict::Run);
    }

    #[test]
    fn a_guest_lowers_its_budget_but_never_raises_it() {
        let mut quota = Regulator::new(Events(100), Nanos(10), Nanos(0));
        assert_eq!(quota.set_budget(Events(101)), Err(Events(100)));
        assert_eq!(quota.set_budget(Events(0)), Err(Events(100)));
        assert_eq!(quota.set_budget(Events(40)), Ok(()));
        assert_eq!(quota.budget(), Events(100), "not before the next period");
        quota.replenish(Events(0), Nanos(10));
        assert_eq!(quota.budget(), Events(40));
        assert_eq!(quota.set_budget(Events(100)), Ok(()));
    }

    proptest! {
        /// However late the replenishments come, they stay on the grid and no event or period is lost.
        #[test]
        fn the_grid_holds(period in 1u64..10_000, budget in 1u64..1000, steps in prop::collection::vec((1u64..50_000, 0u64..2000), 1..100)) {
            let mut quota = Regulator::new(Events(budget), Nanos(period), Nanos(0));
            let (mut now, mut events, mut over) = (0, 0, 0);
            for (step, counted) in steps {
                now += step;
                quota.check(Events(counted), Nanos(now));
                if quota.replenish(Events(counted), Nanos(now)).is_some() {
                    events += counted;
                    over += counted.saturating_sub(budget);
                }
                prop_assert!(quota.replenish_at().0 > now && quota.replenish_at().0 <= now + period);
                prop_assert_eq!(quota.replenish_at().0 % period, 0);
                prop_assert_eq!(u64::from(quota.period_index()), now / period);
            }
            prop_assert_eq!(quota.totals().events.0, events);
            prop_assert_eq!(quota.totals().overshoot.0, over);
        }
    }
}
