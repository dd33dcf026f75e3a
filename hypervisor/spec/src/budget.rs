//! What a budget of instructions lets through (docs/architecture.md, "Budgets"; SPECIFICATION.md, B1).
//!
//! The observer counts the instructions that a core executes at EL1 and EL0 itself. Where periods
//! begin is not known to it. A time of length *L* touches at most *L* / period + 2 periods, and in each
//! the core may execute the budget and [`OVERSHOOT`] events. That holds for all times up to now if
//! it holds for a bucket that this rate empties, and that never holds more than two such portions. The
//! observer's clock may be late by as much as the core executes in a period: that is a third portion.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::charge::Work;
use crate::rules::{Checked, Difference, Rule};
use cloison_formats::image::{Quota, System, WhenSpent};

/// INST_RETIRED (Arm ARM DDI 0487, D13.12).
const INST_RETIRED: u16 = 0x08;
/// Events that may be on their way when a budget is spent.
pub const OVERSHOOT: u64 = 8;
/// Longest visit to EL2 that copies no pages, in instructions (SPECIFICATION.md, T1).
const VISIT: u64 = 1_500;
/// Portions that the bucket holds.
const PORTIONS: u128 = 3;

/// What a core executed, with the budget that allows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// The quota.
    quota: Quota,
    /// Events beyond the budget that a poll may miss.
    late: u64,
    /// The quota's number among those of its vCPU, and of its VM.
    index: u64,
    number: u64,
    /// The budget that the vCPU has set for its life, if it has.
    own: Option<u64>,
    /// The budget that the configuration gives, or a VM that regulates this one.
    given: u64,
    /// The largest portion so far: periods that run have it still.
    largest: u64,
    /// Events times the period.
    level: u128,
    /// The time up to which the bucket was emptied, in nanoseconds.
    at: u64,
}

impl Bucket {
    /// Returns the bucket of a vCPU, if it has a budget of instructions that an interrupt holds.
    pub fn of(system: &System, vm: usize, vcpu: usize) -> Option<Self> {
        let board = &system.board;
        let is_counted = |(_, (_, quota)): &(usize, (usize, &Quota))| {
            let holds = matches!(quota.when_spent, WhenSpent::Throttle | WhenSpent::Stop);
            quota.counted.event.0 == INST_RETIRED
                // A core that shares budgets may have more than its own in a period.
                && quota.reclaim.is_none()
                && holds
                && !board.pmu_irqs.is_empty()
        };
        let quotas = system.vms[vm].quotas.iter().enumerate();
        let own = quotas.filter(|(_, quota)| quota.vcpu.index() == vcpu);
        let (index, (number, quota)) = own.enumerate().find(is_counted)?;
        // A shared interrupt may not arrive, which each core finds out at boot. Then the poll interval
        // bounds the overshoot (B2), at one event per nanosecond, and a visit's length (T1).
        let is_private = board.guest_pmu_irq().is_some();
        let late = if is_private { 0 } else { quota.poll.0 + VISIT };
        let mut bucket = Self {
            late,
            index: index as u64,
            number: number as u64,
            own: None,
            given: quota.budget.0,
            largest: 0,
            level: 0,
            at: 0,
            quota: *quota,
        };
        bucket.largest = bucket.portion();
        Some(bucket)
    }

    fn weight(&self) -> u64 {
        u64::from(self.quota.counted.weight.max(1))
    }

    /// Returns the events that one period may have: budget, overshoot, and what a poll may miss.
    fn portion(&self) -> u64 {
        let budget = self.own.map_or(self.given, |own| own.min(self.given));
        budget / self.weight() + self.late + OVERSHOOT
    }

    fn changed(&mut self) {
        self.largest = self.largest.max(self.portion());
    }

    /// Follows a call that sets a quota of its vCPU (docs/calls.md, `QuotaSet`): from the next period
    /// on, this budget is in force.
    pub fn set(&mut self, index: u64, budget: u64) {
        if index == self.index {
            self.own = Some(budget);
            self.changed();
        }
    }

    /// Follows a call by which another VM sets a quota of this one, by its number in the VM
    /// (docs/calls.md, `BudgetSet`). Where it is not known yet whether the call succeeds, the budget
    /// may be higher, and never lower.
    pub fn set_by_other(&mut self, number: u64, budget: u64, is_done: bool) {
        let budget = budget.min(self.quota.ceiling.0);
        if number == self.number && (is_done || budget > self.given) {
            self.given = budget;
            self.changed();
        }
    }

    /// Follows a call of which not everything is known: another VM may have set any budget.
    pub fn may_be_set_by_other(&mut self) {
        self.given = self.quota.ceiling.0;
        self.changed();
    }

    /// What the vCPU has set holds no longer: it starts again, since it sets it for one life, or may
    /// have set any other one.
    pub fn release(&mut self) {
        self.own = None;
        self.changed();
    }

    /// Adds what EL2 has done for the guest.
    pub fn charge(&mut self, work: Work) {
        let events = work.cost(&self.quota) / self.weight();
        self.level += u128::from(events) * u128::from(self.quota.period.0);
    }

    /// Adds what the core has executed, as of a time in nanoseconds.
    ///
    /// # Errors
    ///
    /// It is more than the budget allows.
    pub fn add(&mut self, events: u64, now: u64) -> Checked {
        let period = u128::from(self.quota.period.0);
        let passed = u128::from(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        // When in this time it executed is not known.
        // In events times nanoseconds, so that nothing is rounded.
        self.level += u128::from(events) * period;
        let paid = passed * u128::from(self.portion());
        self.level = self.level.saturating_sub(paid);
        // What is less than a page's work waits.
        let owed = Work::waiting().cost(&self.quota) / self.weight();
        let held = PORTIONS * u128::from(self.largest) + u128::from(owed);
        if self.level <= held * period {
            return Ok(());
        }
        let over = self.level / period;
        Err(Difference::new(
            Rule::Period,
            "instructions at EL1 and EL0, with the costs of calls",
            format!("at most {held} within periods of {period} ns"),
            format!("{over} beyond what the time before allows"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use cloison_formats::image::Reclaim;
    use cloison_formats::units::Events;
    use proptest::prelude::*;

    fn bucket() -> Bucket {
        Bucket::of(&fixture::system(), 0, 0).expect("a budget of instructions")
    }

    proptest! {
        /// Wherever a period's budget is used in it, and wherever periods begin.
        #[test]
        fn a_core_that_keeps_to_its_budget_passes(
            offset in 0u64..10_000,
            bursts in proptest::collection::vec((0u64..10_000, 0u64..=1008), 1..200),
        ) {
            let mut bucket = bucket();
            for (period, (at, events)) in bursts.iter().enumerate() {
                let now = offset + period as u64 * 10_000 + at;
                prop_assert_eq!(bucket.add(*events, now), Ok(()));
            }
        }

        #[test]
        fn a_core_that_exceeds_it_a_little_is_found(extra in 11u64..100) {
            let mut bucket = bucket();
            let found = (0..400u64).find(|period| bucket.add(1008 + extra, period * 10_000).is_err());
            prop_assert!(found.is_some());
        }
    }

    #[test]
    fn a_lower_budget_is_kept_after_what_the_earlier_one_left() {
        let mut bucket = bucket();
        bucket.set(1, 10); // another quota
        bucket.set(0, 92);
        assert_eq!(bucket.add(1008, 0), Ok(()));
        let found = (1..200u64).find(|period| bucket.add(200, period * 10_000).is_err());
        assert!(found.is_some_and(|period| period < 40), "{found:?}");
        // It may be the configured one again.
        bucket.release();
        bucket.level = 0;
        assert!((201..400).all(|period| bucket.add(1008, period * 10_000).is_ok()));
        bucket.set(0, 92);
        let found = (400..600u64).find(|period| bucket.add(200, period * 10_000).is_err());
        assert!(found.is_some());
        // A life later, the budget is the configured one.
        bucket.release();
        bucket.level = 0;
        assert!((601..800).all(|period| bucket.add(1008, period * 10_000).is_ok()));
    }

    #[test]
    fn a_budget_that_another_vm_sets_is_kept() {
        let mut bucket = bucket();
        bucket.set_by_other(0, 92, false);
        assert_eq!(bucket.given, 1000, "not before it is done");
        bucket.set_by_other(0, 92, true);
        let exceeds = |bucket: &mut Bucket, first: u64, events| {
            (first..first + 200).any(|period| bucket.add(events, period * 10_000).is_err())
        };
        assert!(!exceeds(&mut bucket, 1, 100));
        assert!(exceeds(&mut bucket, 300, 200));
        bucket.level = 0;
        bucket.set_by_other(0, u64::MAX, false);
        assert!(!exceeds(&mut bucket, 600, 1008));
    }

    #[test]
    fn calls_are_paid_for() {
        let mut system = fixture::system();
        system.vms[0].quotas[0].work_cost.step.0 = 60;
        let exceeds = |calls: u64| {
            let mut bucket = Bucket::of(&system, 0, 0).expect("a budget of instructions");
            (1..300u64).any(|period| {
                (0..calls).for_each(|_| bucket.charge(Work { lines: 0, steps: 4 }));
                bucket.add(500, period * 10_000).is_err()
            })
        };
        assert!(!exceeds(2) && exceeds(3));
    }

    #[test]
    fn a_shared_interrupt_may_not_arrive() {
        let mut system = fixture::system();
        system.board.pmu_irqs.fill(cloison_formats::ids::Intid(175));
        system.vms[0].quotas[0].poll.0 = 500;
        let mut bucket = Bucket::of(&system, 0, 0).expect("a budget of instructions");
        for period in 0..400 {
            assert_eq!(bucket.add(1000 + 500, period * 10_000), Ok(()));
        }
    }

    #[test]
    fn only_budgets_of_instructions_that_hold_are_checked() {
        let mut system = fixture::system();
        assert_eq!(Bucket::of(&system, 0, 1), None);
        system.vms[0].quotas[0].when_spent = WhenSpent::Log;
        assert_eq!(Bucket::of(&system, 0, 0), None);
        system.vms[0].quotas[0] = fixture::quota();
        system.vms[0].quotas[0].reclaim = Some(Reclaim {
            pool: 0,
            guarantee: Events(1),
        });
        assert_eq!(Bucket::of(&system, 0, 0), None);
    }
}
