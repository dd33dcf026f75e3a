//! Tests of quotas.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use cloison_formats::ids::VcpuIndex;
use cloison_formats::image::{Counted, WorkCost};
use cloison_formats::units::{EventId, Nanos};
use core::cell::RefCell;
use proptest::prelude::*;
use std::boxed::Box;

mod interleavings;
#[cfg(loom)]
mod models;

/// A tick is a nanosecond.
const CLOCK: Clock = Clock::new(1_000_000_000).expect("in range");

fn spec(vcpu: u8, backstop: bool) -> Quota {
    Quota {
        vcpu: VcpuIndex(vcpu),
        counted: Counted {
            event: EventId::INST_RETIRED,
            weight: 1,
            allowed: false,
        },
        also: None,
        budget: Events(100),
        ceiling: Events(100),
        period: Nanos(1000),
        poll: Nanos(10),
        backstop,
        trace: false,
        exact: true,
        work_cost: WorkCost {
            page: Events(5),
            step: Events(0),
        },
        when_spent: WhenSpent::Throttle,
        reclaim: None,
    }
}

fn assigned(quotas: &[Quota], vcpu: usize, by_interrupt: bool, shadow: bool) -> Quotas {
    let assigned = Quotas::assign(
        quotas,
        vcpu,
        6,
        Enforcement {
            by_interrupt,
            shadow,
        },
        CLOCK,
    );
    Quotas {
        is_running: true,
        ..assigned
    }
}

#[test]
fn a_core_whose_vcpu_is_off_has_no_deadline_and_is_not_held() {
    let mut quotas = assigned(&[spec(0, true)], 0, true, false);
    quotas.entries[0].begin(Instant(0), pool());
    let now = Instant(10);
    let regulator = quotas.entries[0].regulator.as_mut().expect("set above");
    assert_eq!(regulator.check(regulator.budget, now), Verdict::Throttle);
    assert!(quotas.is_throttled() && quotas.next_deadline(now).is_some());
    quotas.is_running = false;
    assert_eq!(
        (quotas.is_throttled(), quotas.next_deadline(now)),
        (false, None)
    );
    quotas.is_running = true;
    assert!(
        quotas.is_throttled(),
        "what is spent of a period belongs to the core"
    );
}

#[test]
fn work_is_charged_in_proportion_and_rounded_up() {
    let costs = |page, step| Quota {
        work_cost: WorkCost {
            page: Events(page),
            step: Events(step),
        },
        ..spec(0, false)
    };
    let [refills, instructions] = [costs(128, 0), costs(2000, 60)];
    let of = |effort: Effort| [effort.cost(&refills).0, effort.cost(&instructions).0];
    assert_eq!(of(Effort::NONE), [0, 0]);
    assert_eq!(of(Effort::PAGE), [128, 2000]);
    assert_eq!(
        of(Effort::PAGE.times(3).and(Effort::LOOKUP.times(16))),
        [400, 3 * 2000 + 250 + 960]
    );
    assert_eq!(of(Effort::LINE.times(1)), [1, 16]);
    assert_eq!(of(Effort::CALL), [0, 240]);
    assert!(
        Effort::CALL.is_small() && !Effort::PAGE.is_small() && !Effort::STEP.times(64).is_small()
    );
    let all = Effort::PAGE
        .times(u64::MAX)
        .and(Effort::LOOKUP.times(u64::MAX));
    assert_eq!(all.cost(&instructions), Events(u64::MAX), "no wrap");
}

/// Returns a quota of `budget` events per `period` nanoseconds.
pub fn terms(budget: u64, period: u64) -> Quota {
    Quota {
        budget: Events(budget),
        period: Nanos(period),
        ..spec(0, false)
    }
}

/// Returns a quota's regulator, whose first period starts at `now`.
pub fn regulator(spec: Quota, now: u64, pool: &'static Pool) -> Regulator {
    Regulator::new(spec, CLOCK.ticks(spec.period), Instant(now), pool)
}

/// A pool that lasts as long as the tests.
pub fn pool() -> &'static Pool {
    Box::leak(Box::default())
}

/// A regulator without a pool.
struct Alone(Regulator);

impl Alone {
    fn new(terms: Quota, now: u64) -> Self {
        Self(regulator(terms, now, pool()))
    }

    fn check(&mut self, counted: u64, now: u64) -> Verdict {
        self.0.check(Events(counted), Instant(now))
    }

    fn replenish(&mut self, counted: u64, now: u64) -> Option<PeriodReport> {
        self.0.replenish(Events(counted), Instant(now), None)
    }

    /// Returns how many events were added to the count.
    fn charge(&mut self, counted: u64, cost: u64, now: u64) -> u64 {
        self.0
            .charge(Events(counted), Events(cost), Instant(now))
            .0
            .0
            - counted
    }

    fn pay(&mut self, now: u64) -> u64 {
        self.0.pay(Instant(now)).0.0
    }

    fn stop(&mut self, counted: u64, now: u64) -> Totals {
        self.0.stop(Events(counted), Instant(now)).1
    }

    fn is_throttled(&self) -> bool {
        self.0.is_throttled()
    }

    fn owes(&self) -> bool {
        self.0.debt != Events(0)
    }

    fn budget(&self) -> u64 {
        self.0.budget.0
    }

    fn totals(&self) -> Totals {
        self.0.totals
    }
}

/// Six counters.
#[derive(Clone, Debug, Default)]
struct Fake(RefCell<[u32; 6]>);

impl Fake {
    /// Counts events. Returns whether the counter overflows.
    fn count(&self, counter: u32, events: u32) -> bool {
        let mut counters = self.0.borrow_mut();
        let (value, overflows) = counters[counter as usize].overflowing_add(events);
        counters[counter as usize] = value;
        overflows
    }
}

impl Counters for Fake {
    fn get(&self, counter: u32) -> u32 {
        self.0.borrow()[counter as usize]
    }

    fn set(&self, counter: u32, value: u32) {
        self.0.borrow_mut()[counter as usize] = value;
    }
}

/// A quota of a core, started at 0, with its counters set.
fn started(spec: Quota) -> (Quotas, Fake) {
    let (mut quotas, counters) = (assigned(&[spec], 0, true, false), Fake::default());
    let entry = &mut quotas.entries[0];
    entry.begin(Instant(0), pool());
    entry.arm(Events(0), &counters);
    (quotas, counters)
}

#[test]
fn counters_are_taken_from_the_top_for_the_own_vcpu() {
    let quotas = [spec(0, false), spec(1, false), spec(0, true)];
    let plain = assigned(&quotas, 0, true, false);
    let of = |quotas: &Quotas| {
        let first = |entry: &Entry| {
            (
                entry.index,
                entry.counters[0].number,
                entry.counters[0].shadow,
            )
        };
        quotas.entries.iter().map(first).collect::<Vec<_>>()
    };
    assert_eq!(of(&plain), [(0, 5, None), (2, 4, None)]);
    assert_eq!(plain.reserved(), 2);
    let shadowed = assigned(&quotas, 0, true, true);
    assert_eq!(of(&shadowed), [(0, 5, Some(4)), (2, 3, Some(2))]);
    assert_eq!((shadowed.reserved(), shadowed.entries[1].mask), (4, 0b1100));
    assert_eq!(
        of(&assigned(&quotas, 0, false, true)),
        of(&plain),
        "polling needs no shadow"
    );
    assert_eq!(of(&assigned(&quotas, 2, true, true)), []);
}

#[test]
fn a_counter_overflows_when_the_budget_is_spent() {
    let (mut quotas, counters) = started(spec(0, false));
    let entry = &mut quotas.entries[0];
    assert!(!counters.count(5, 99) && counters.count(5, 4));
    assert_eq!(entry.counted(&counters), Events(103));
    assert_eq!(entry.look(&counters, true, Instant(10)), Verdict::Throttle);
    assert_eq!(
        entry.counted(&counters),
        Events(103),
        "what was counted survives that the counter is set"
    );
    let (report, verdict) = entry.turn(&counters, Instant(1000), None).expect("due");
    assert_eq!(
        (report.events, verdict, entry.counted(&counters)),
        (Events(103), Verdict::Run, Events(0))
    );
    assert!(!counters.count(5, 99) && counters.count(5, 1));
    let largest = Quota {
        budget: Events(u32::MAX.into()),
        ..spec(0, false)
    };
    let (_, counters) = started(largest);
    assert!(!counters.count(5, u32::MAX - 1) && counters.count(5, 1));
}

#[test]
fn a_sum_of_two_events_overflows_before_it_is_spent() {
    let second = Counted {
        event: EventId(0x18),
        weight: 3,
        allowed: false,
    };
    let (mut quotas, counters) = started(Quota {
        also: Some(second),
        ..spec(0, false)
    });
    let entry = &mut quotas.entries[0];
    assert_eq!(entry.mask, 0b11_0000);
    let (mut first, mut other, mut looks) = (0, 0, 0);
    // Two of the first for each of the second: five per round.
    loop {
        let overflows = [counters.count(5, 2), counters.count(4, 1)];
        (first, other) = (first + 2, other + 1);
        assert_eq!(entry.counted(&counters), Events(first + 3 * other));
        if overflows.contains(&true) {
            looks += 1;
            if entry.look(&counters, true, Instant(10)) == Verdict::Throttle {
                break;
            }
        }
        assert!(first + 3 * other < 110);
    }
    assert!(
        (100..=105).contains(&(first + 3 * other)),
        "{first} + 3 x {other}"
    );
    assert!(looks <= 8, "each look halves what is left: {looks}");
}

#[test]
fn a_poll_comes_before_the_end_of_the_period_unless_the_core_is_held() {
    let mut quotas = assigned(&[spec(0, true)], 0, true, false);
    assert_eq!(quotas.next_deadline(Instant(0)), None);
    quotas.entries[0].begin(Instant(0), pool());
    assert_eq!(quotas.next_deadline(Instant(500)), Some(Instant(510)));
    assert_eq!(quotas.next_deadline(Instant(995)), Some(Instant(1000)));
    let regulator = quotas.entries[0].regulator.as_mut().expect("set above");
    regulator.check(Events(100), Instant(600));
    assert!(quotas.is_throttled());
    assert_eq!(quotas.next_deadline(Instant(600)), Some(Instant(1000)));
    quotas.entries[0].spec.backstop = false;
    assert_eq!(quotas.next_deadline(Instant(600)), Some(Instant(1000)));
}

#[test]
fn throttles_at_the_budget_and_runs_again_after_the_period() {
    let mut quota = Alone::new(terms(100, 1000), 50);
    assert_eq!(quota.check(99, 500), Verdict::Run);
    assert_eq!(quota.check(103, 600), Verdict::Throttle);
    assert!(quota.is_throttled());
    assert_eq!(quota.replenish(103, 1049), None);
    let report = quota.replenish(103, 1050).expect("the period is over");
    assert_eq!(
        report,
        PeriodReport {
            index: 0,
            events: Events(103),
            budget: Events(100),
            reclaimed: Events(0),
            spent_at: Some(Instant(600)),
            due: Instant(1050),
            throttled: Ticks(450)
        }
    );
    assert!(!quota.is_throttled());
    assert_eq!(quota.totals().max_overshoot, Events(3));
    assert_eq!(quota.check(1, 1051), Verdict::Run);
}

#[test]
fn the_log_has_nanoseconds_since_reset() {
    let clock = Clock::new(500_000_000).expect("in range");
    let report = PeriodReport {
        index: 3,
        events: Events(7),
        budget: Events(5),
        reclaimed: Events(0),
        spent_at: Some(Instant(100)),
        due: Instant(150),
        throttled: Ticks(50),
    };
    let logged = report.map(|at| clock.since_reset(at), |lasting| clock.nanos(lasting));
    assert_eq!(
        (logged.index, logged.events, logged.budget),
        (3, Events(7), Events(5))
    );
    assert_eq!(
        (logged.spent_at, logged.due, logged.throttled),
        (Some(Nanos(200)), Nanos(300), Nanos(100))
    );
}

#[test]
fn a_guest_lowers_its_budget_but_never_raises_it() {
    let mut quota = Alone::new(terms(100, 10), 0);
    assert_eq!(
        quota.0.set_budget(Events(101), Instant(0)),
        Err(CallError::Invalid)
    );
    assert_eq!(
        quota.0.set_budget(Events(0), Instant(0)),
        Err(CallError::Invalid)
    );
    assert_eq!(quota.0.set_budget(Events(40), Instant(0)), Ok(()));
    assert_eq!(quota.budget(), 100, "not before the next period");
    quota.replenish(0, 10);
    assert_eq!(quota.budget(), 40);
    assert_eq!(quota.0.set_budget(Events(100), Instant(0)), Ok(()));
}

#[test]
fn a_stop_gains_no_budget() {
    let mut quota = Alone::new(terms(100, 1000), 0);
    quota.0.set_budget(Events(40), Instant(0)).expect("lower");
    assert_eq!(quota.check(100, 300), Verdict::Throttle);
    assert_eq!(
        quota.stop(100, 300),
        Totals::default(),
        "no period has ended"
    );
    // Started again in the same period: still spent, until the period that began at 0 ends.
    assert!(!quota.is_throttled());
    assert_eq!(quota.replenish(100, 999), None);
    assert_eq!(quota.check(100, 999), Verdict::Throttle);
    let report = quota.replenish(100, 1000).expect("the period has ended");
    assert_eq!((report.events, report.throttled), (Events(100), Ticks(1)));
    assert_eq!(quota.budget(), 100, "the former life had lowered it");
    // Stopped for several periods: the grid is as old as the core.
    assert_eq!(quota.stop(0, 1000).periods, 1);
    assert!(quota.replenish(7, 5500).is_some());
    assert_eq!(
        (quota.0.replenish_at(), quota.0.index),
        (Some(Instant(6000)), 5)
    );
    assert_eq!(quota.totals().periods, 4);
}

#[test]
fn work_for_the_guest_is_paid_for_by_later_periods_too() {
    let mut quota = Alone::new(terms(100, 1000), 0);
    assert_eq!(quota.charge(30, 50, 100), 50);
    assert!(!quota.is_throttled() && !quota.owes());
    // 20 are left of 250: the next two periods are spent before they begin, the third one has 70
    // left.
    assert_eq!(quota.charge(80, 250, 200), 20);
    assert!(quota.is_throttled() && quota.owes());
    for end in [1000, 2000] {
        assert!(quota.replenish(100, end).is_some());
        assert_eq!(quota.pay(end), 100);
        assert!(quota.is_throttled());
    }
    assert!(quota.replenish(100, 3000).is_some());
    assert_eq!(quota.pay(3000), 30);
    assert!(!quota.is_throttled() && !quota.owes());
    assert_eq!(
        (quota.totals().events, quota.totals().overshoot),
        (Events(300), Events(0))
    );
    // Periods in which the vCPU was off pay as well.
    quota.charge(30, 370, 3500);
    quota.stop(100, 3600);
    assert!(quota.replenish(100, 6500).is_some());
    assert_eq!((quota.pay(6500), quota.owes()), (100, false));
}

#[test]
fn a_core_restarts_its_vm_once_per_period() {
    let mut quotas = assigned(&[spec(0, false), spec(0, false)], 0, true, false);
    assert!(quotas.restart(Instant(0)), "no period has begun");
    for (entry, period) in quotas.entries.iter_mut().zip([1000, 3000]) {
        entry.regulator = Some(regulator(terms(100, period), 0, pool()));
    }
    assert!(quotas.restart(Instant(500)) && !quotas.is_throttled());
    let end_periods = |quotas: &mut Quotas, now| {
        for regulator in quotas
            .entries
            .iter_mut()
            .filter_map(|entry| entry.regulator.as_mut())
        {
            regulator.replenish(Events(0), Instant(now), None);
        }
    };
    for now in [600, 1000, 2999] {
        end_periods(&mut quotas, now);
        assert!(
            !quotas.restart(Instant(now)) && quotas.is_throttled(),
            "the longer period has not ended"
        );
    }
    end_periods(&mut quotas, 3000);
    assert!(!quotas.is_throttled() && quotas.restart(Instant(3000)));
    assert!(!quotas.restart(Instant(3999)));
}

#[test]
fn nobody_looks_while_little_is_used() {
    let (mut quotas, counters) = started(Quota {
        exact: false,
        ..spec(0, false)
    });
    assert_eq!(quotas.next_deadline(Instant(0)), None);
    let entry = &mut quotas.entries[0];
    assert!(!counters.count(5, 49));
    assert_eq!(entry.turn(&counters, Instant(7200), None), None);
    assert!(counters.count(5, 1), "after half the budget");
    // All 50 may have happened in the running period, so 50 are left of it.
    assert_eq!(entry.look(&counters, true, Instant(7300)), Verdict::Rearm);
    assert!(!counters.count(5, 49) && counters.count(5, 1));
    assert_eq!(
        entry.look(&counters, true, Instant(7400)),
        Verdict::Throttle
    );
    assert_eq!(quotas.next_deadline(Instant(7400)), Some(Instant(8000)));
    let entry = &mut quotas.entries[0];
    let (report, _) = entry.turn(&counters, Instant(8000), None).expect("due");
    assert_eq!(
        (report.index, report.events, report.throttled),
        (7, Events(100), Ticks(600))
    );
    // A busy period is followed by one that is counted from its start, and a quiet one by quiet.
    assert_eq!(quotas.next_deadline(Instant(8000)), Some(Instant(9000)));
    let entry = &mut quotas.entries[0];
    counters.count(5, 10);
    assert!(entry.turn(&counters, Instant(9000), None).is_some());
    counters.count(5, 20);
    assert_eq!(quotas.next_deadline(Instant(9000)), None);
    // Nothing of a quiet time is lost when the vCPU stops.
    let entry = &mut quotas.entries[0];
    let counted = entry.counted(&counters);
    let totals = entry
        .regulator
        .as_mut()
        .expect("started")
        .stop(counted, Instant(20_500))
        .1;
    assert_eq!(
        (totals.periods, totals.events, totals.spent_periods),
        (20, Events(130), 1)
    );
    assert_eq!(
        (totals.histogram.quiet, totals.histogram.used),
        (18, [1, 0, 0, 0, 0, 0, 0, 0, 1])
    );
    // In its next life, the running period has what is left of it.
    assert!(entry.turn(&counters, Instant(20_900), None).is_none());
    let (report, _) = entry.turn(&counters, Instant(21_000), None).expect("due");
    let totals = entry
        .regulator
        .as_mut()
        .expect("started")
        .stop(Events(0), Instant(21_000))
        .1;
    assert_eq!(
        (report.events, totals.events),
        (Events(20), Events(0)),
        "counted once"
    );
}

#[test]
fn a_restart_wakes_a_quiet_quota() {
    let (mut quotas, _) = started(Quota {
        exact: false,
        ..spec(0, false)
    });
    assert!(quotas.restart(Instant(100)));
    assert!(!quotas.restart(Instant(200)) && quotas.is_throttled());
    assert_eq!(
        quotas.next_deadline(Instant(200)),
        Some(Instant(1000)),
        "it is not held for ever"
    );
}

#[test]
fn a_budget_that_does_not_throttle_reports_once_per_period() {
    let (mut quotas, counters) = started(Quota {
        when_spent: WhenSpent::Log,
        ..spec(0, false)
    });
    let entry = &mut quotas.entries[0];
    assert!(counters.count(5, 100));
    assert_eq!(entry.look(&counters, true, Instant(10)), Verdict::Spent);
    assert!(!counters.count(5, 1000), "no overflow again soon");
    assert_eq!(entry.look(&counters, false, Instant(20)), Verdict::Run);
    let (report, _) = entry.turn(&counters, Instant(1000), None).expect("due");
    assert_eq!(
        (report.events, report.spent_at, report.throttled),
        (Events(1100), Some(Instant(10)), Ticks(0))
    );
    assert!(
        quotas.restart(Instant(1100)) && quotas.restart(Instant(1200)),
        "it holds nobody back"
    );
}

#[test]
fn another_vm_sets_a_budget_up_to_the_ceiling() {
    let (mut quotas, counters) = started(spec(0, false));
    let (entry, shared) = (&mut quotas.entries[0], Shared::default());
    assert_eq!((shared.set(), shared.last()), (None, (0, 0)));
    for wrong in [0, 151, 1 << 32, u64::MAX] {
        assert_eq!(
            shared.change(Events(wrong), Events(150)),
            Err(CallError::Invalid)
        );
    }
    shared
        .change(Events(150), Events(150))
        .expect("the ceiling");
    counters.count(5, 30);
    let (report, _) = entry
        .turn(&counters, Instant(1000), shared.set())
        .expect("due");
    shared.publish(&report);
    assert_eq!(shared.last(), (30, 1));
    let regulator = entry.regulator.as_mut().expect("started");
    assert_eq!(regulator.budget, Events(150));
    // The VM itself can only lower it further, and not for its next life.
    regulator
        .set_budget(Events(90), Instant(1500))
        .expect("lower");
    entry
        .turn(&counters, Instant(2000), shared.set())
        .expect("due");
    assert_eq!(
        entry.regulator.as_ref().expect("started").budget,
        Events(90)
    );
    entry
        .regulator
        .as_mut()
        .expect("started")
        .stop(Events(0), Instant(2500));
    entry
        .turn(&counters, Instant(3000), shared.set())
        .expect("due");
    assert_eq!(
        entry.regulator.as_ref().expect("started").budget,
        Events(150)
    );
}

#[test]
fn what_a_core_does_not_use_another_one_takes() {
    let pool = pool();
    let sharing = |guarantee, now| {
        let reclaim = Some(Reclaim {
            pool: 0,
            guarantee: Events(guarantee),
        });
        regulator(
            Quota {
                reclaim,
                ..terms(100, 1000)
            },
            now,
            pool,
        )
    };
    let (mut idle, mut busy) = (sharing(20, 1300), sharing(100, 1700));
    assert_eq!(
        (idle.replenish_at(), busy.replenish_at()),
        (Some(Instant(2000)), Some(Instant(2000)))
    );
    idle.replenish(Events(5), Instant(2000), None).expect("due");
    busy.replenish(Events(100), Instant(2000), None)
        .expect("due");
    assert_eq!(
        (idle.budget, busy.budget),
        (Events(20), Events(100)),
        "80 are given"
    );
    let mut counted = 100;
    while busy.check(Events(counted), Instant(2500)) == Verdict::Rearm {
        counted = busy.budget.0;
    }
    assert_eq!((counted, busy.is_throttled()), (180, true));
    assert_eq!(idle.check(Events(20), Instant(2600)), Verdict::Throttle);
    let report = busy
        .replenish(Events(180), Instant(3000), None)
        .expect("due");
    assert_eq!((report.budget, report.reclaimed), (Events(180), Events(80)));
    idle.replenish(Events(20), Instant(3000), None)
        .expect("due");
    let totals = [idle.totals, busy.totals].map(|totals| (totals.given.0, totals.reclaimed.0));
    assert_eq!(totals, [(160, 0), (0, 80)]);
}

proptest! {
    /// Whatever a vCPU does, in no period of the grid does it count more than its budget: quiet or
    /// not, in one life or several, from one counter or two.
    #[test]
    fn no_period_has_more_than_its_budget(
        exact: bool,
        second in prop::option::of(1u16..5),
        steps in prop::collection::vec((0u64..700, 0u32..40, 0u32..10, 0u8..20), 1..300),
    ) {
        const BUDGET: u64 = 100;
        let also = second.map(|weight| Counted {
            event: EventId(1),
            weight,
            allowed: false,
        });
        let (mut quotas, counters) = started(Quota {
            exact,
            also,
            ..spec(0, false)
        });
        let (mut now, mut period, mut used, mut total) = (0, 0, 0, 0);
        let weight = second.map_or(0, u64::from);
        for (wait, first, other, kind) in steps {
            now += wait;
            let entry = &mut quotas.entries[0];
            if now / 1000 > period {
                (period, used) = (now / 1000, 0);
            }
            entry.turn(&counters, Instant(now), None);
            let counts = [
                (5, first, 1),
                (4, if second.is_some() { other } else { 0 }, weight),
            ];
            for (counter, events, weight) in counts {
                for _ in 0..events {
                    if quotas.is_throttled() {
                        break;
                    }
                    let overflows = counters.count(counter, 1);
                    (used, total) = (used + weight, total + weight);
                    if overflows {
                        quotas.entries[0].look(&counters, true, Instant(now));
                    }
                }
            }
            // The last event may weigh more than was left.
            prop_assert!(used < BUDGET + weight.max(1), "{used} in period {period}");
            let entry = &mut quotas.entries[0];
            if kind == 0 {
                let counted = entry.counted(&counters);
                entry
                    .regulator
                    .as_mut()
                    .expect("started")
                    .stop(counted, Instant(now));
                entry.look(&counters, false, Instant(now));
            } else if kind == 1 {
                quotas.restart(Instant(now));
            }
            if quotas.is_throttled() {
                prop_assert!(
                    quotas.next_deadline(Instant(now)).is_some(),
                    "held for ever"
                );
            }
        }
        prop_assert!(total <= (period + 1) * (BUDGET + 4));
    }

    /// Whatever is charged, in all periods together no more is counted than they allow, and all of
    /// it is paid for.
    #[test]
    fn no_charge_is_lost(
        steps in prop::collection::vec((1u64..2500, 0u64..60, 0u64..500), 1..200),
    ) {
        const BUDGET: u64 = 100;
        let mut quota = Alone::new(terms(BUDGET, 1000), 0);
        let (mut now, mut counter, mut spent) = (0, 0, 0);
        for (wait, work, charge) in steps {
            // Work starts only while budget is left, as the core is held otherwise.
            if quota.check(counter, now) == Verdict::Run {
                counter += work;
                spent += work + charge;
                counter += quota.charge(counter, charge, now);
            }
            now += wait;
            if quota.replenish(counter, now).is_some() {
                counter = quota.pay(now);
            }
            prop_assert!(counter < BUDGET + 60);
            prop_assert!(
                spent <= (now / 1000 + 1) * (BUDGET + 59) + 500,
                "{spent} events by {now}"
            );
        }
        prop_assert!(quota.totals().max_overshoot.0 < 60);
    }

    /// Whatever a guest does to stop and start again, it counts no more events than the periods
    /// that it has seen allow, and what it spends in one step beyond.
    #[test]
    fn no_sequence_of_stops_gains_events(
        steps in prop::collection::vec((1u64..400, 1u64..60, any::<bool>()), 1..200),
    ) {
        const BUDGET: u64 = 100;
        let mut quota = Alone::new(terms(BUDGET, 1000), 0);
        let (mut now, mut counter, mut spent) = (0, 0, 0);
        for (wait, work, stops) in steps {
            if quota.check(counter, now) == Verdict::Run {
                counter += work;
                spent += work;
            }
            now += wait;
            if stops {
                quota.stop(counter, now);
            }
            if quota.replenish(counter, now).is_some() {
                counter = 0;
            }
            prop_assert!(
                spent <= (now / 1000 + 1) * (BUDGET + 59),
                "{spent} events by {now}"
            );
        }
    }

    /// However late the replenishments are, they stay on the grid, and no event or period is lost.
    #[test]
    fn the_grid_holds(
        period in 1u64..10_000,
        budget in 1u64..1000,
        steps in prop::collection::vec((1u64..50_000, 0u64..2000), 1..100),
    ) {
        let mut quota = Alone::new(terms(budget, period), 0);
        let (mut now, mut events, mut over) = (0, 0, 0);
        for (step, counted) in steps {
            now += step;
            quota.check(counted, now);
            if quota.replenish(counted, now).is_some() {
                events += counted;
                over += counted.saturating_sub(budget);
            }
            let end = quota.0.replenish_at().expect("exact").0;
            prop_assert!(end > now && end <= now + period);
            prop_assert_eq!(end % period, 0);
            prop_assert_eq!(u64::from(quota.0.index), now / period);
        }
        prop_assert_eq!(quota.totals().events.0, events);
        prop_assert_eq!(quota.totals().overshoot.0, over);
    }
}
