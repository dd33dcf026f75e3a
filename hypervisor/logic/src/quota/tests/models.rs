//! Budgets under loom: cores share unused ones, and one VM sets another's, at the same time. Beside
//! each model is one with a bug that the search must find.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::power::tests::models::check;
use loom::sync::Arc;
use loom::thread;

/// Events given in the first period, and in the second.
const GIVEN: [u32; 2] = [10, 3];
const PERIOD: u32 = 7;

/// How events are given to a pool.
type Give = fn(&Pool, u32, u32);
/// How they are taken from it.
type Take = fn(&Pool, u32, u32) -> u32;

/// Three cores take from one pool in the same period: together no more than was given, and what no
/// core has taken is left.
fn each_event_is_taken_once(take: Take) {
    let pool = Arc::new(Pool::default());
    pool.give(PERIOD, GIVEN[0]);
    let others = [4, 5].map(|wanted| {
        let pool = pool.clone();
        thread::spawn(move || take(&pool, PERIOD, wanted))
    });
    let mut taken = take(&pool, PERIOD, 6);
    for other in others {
        taken += other.join().expect("no assertions");
    }
    let left = pool.take(PERIOD, u32::MAX);
    assert_eq!(taken + left, GIVEN[0], "an event was taken twice, or lost");
}

#[test]
fn loom_each_event_of_a_pool_is_taken_once() {
    check("taking", || each_event_is_taken_once(Pool::take));
}

#[test]
#[should_panic(expected = "an event was taken twice, or lost")]
fn loom_finds_events_that_two_cores_take() {
    check("planted: look, then take", || {
        each_event_is_taken_once(|pool, period, wanted| {
            let (open, left) = pool.state();
            let taken = if open == period { left.min(wanted) } else { 0 };
            pool.set((open, left - taken));
            taken
        });
    });
}

/// A core is still in one period while two others open the next one: nobody takes in a period what
/// was given in another.
fn no_event_changes_its_period(give: Give) {
    let pool = Arc::new(Pool::default());
    pool.give(PERIOD, GIVEN[0]);
    let late = {
        let pool = pool.clone();
        thread::spawn(move || pool.take(PERIOD, 6))
    };
    let early = [1, 2].map(|part| {
        let pool = pool.clone();
        thread::spawn(move || {
            give(&pool, PERIOD + 1, part);
            pool.take(PERIOD + 1, 2)
        })
    });
    let taken: u32 = early
        .into_iter()
        .map(|core| core.join().expect("no assertions"))
        .sum();
    let rest = pool.take(PERIOD + 1, u32::MAX);
    assert!(late.join().expect("no assertions") <= GIVEN[0]);
    assert_eq!(taken + rest, GIVEN[1], "events of another period");
}

#[test]
fn loom_no_event_of_a_pool_changes_its_period() {
    check("periods", || no_event_changes_its_period(Pool::give));
}

#[test]
#[should_panic(expected = "events of another period")]
fn loom_finds_a_period_that_is_opened_twice() {
    check("planted: look whether it is open, then open it", || {
        no_event_changes_its_period(|pool, period, events| {
            let (open, left) = pool.state();
            let kept = if open == period { left } else { 0 };
            pool.set((period, kept + events));
        });
    });
}

/// Two regulators of one pool end their periods at the same time and then count all that they may:
/// together no more than both bring.
fn two_regulators_keep_their_sum(take: Take) {
    const BUDGET: u64 = 8;
    let pool: &'static Pool = Box::leak(Box::new(Pool::default()));
    let cores = [0, 4].map(|counted| {
        let reclaim = Some(Reclaim {
            pool: 0,
            guarantee: Events(1),
        });
        let spec = Quota {
            reclaim,
            ..terms(BUDGET, 100)
        };
        let mut regulator = regulator(spec, 0, pool);
        thread::spawn(move || {
            let now = Instant(100);
            regulator
                .replenish(Events(counted), now, None)
                .expect("due");
            // It counts more than it kept, and the pool helps.
            let wanted = (regulator.spec.budget.0 / 8).max(1) as u32;
            regulator.budget.0 += u64::from(take(pool, regulator.epoch(), wanted));
            regulator.check(regulator.budget, now);
            regulator.budget.0
        })
    });
    let may: u64 = cores
        .into_iter()
        .map(|core| core.join().expect("no assertions"))
        .sum();
    // The pool's open period is the one after that of the regulators' numbers.
    let (_, left) = pool.state();
    assert!(
        may + u64::from(left) <= 2 * BUDGET,
        "{may} and {left} are more than both bring"
    );
}

#[test]
fn loom_regulators_that_share_keep_their_sum() {
    check("sharing", || two_regulators_keep_their_sum(Pool::take));
}

#[test]
#[should_panic(expected = "are more than both bring")]
fn loom_finds_regulators_that_exceed_their_sum() {
    check("planted: take, then note it", || {
        two_regulators_keep_their_sum(|pool, period, wanted| {
            let (open, left) = pool.state();
            let taken = if open == period { left.min(wanted) } else { 0 };
            pool.set((open, left - taken));
            taken
        });
    });
}

/// What a core publishes of its quota, and how another VM reads it.
struct Published {
    shared: Shared,
    /// The same in two words, for the planted bug.
    apart: [AtomicU32; 2],
}

/// A core publishes two periods while another VM reads: it sees one of them, or none, as a whole,
/// and never an earlier one after a later one.
fn a_period_is_read_whole(
    publish: fn(&Published, &PeriodReport),
    read: fn(&Published) -> (u32, u32),
) {
    let published = Arc::new(Published {
        shared: Shared::default(),
        apart: Default::default(),
    });
    let core = {
        let published = published.clone();
        thread::spawn(move || {
            for index in 0..2 {
                let report = PeriodReport {
                    index,
                    events: Events(u64::from(index + 1) * 100),
                    budget: Events(1000),
                    reclaimed: Events(0),
                    spent_at: None,
                    due: Instant(0),
                    throttled: Ticks(0),
                };
                publish(&published, &report);
            }
        })
    };
    let mut last = 0;
    for _ in 0..2 {
        let (events, periods) = read(&published);
        assert_eq!(events, periods * 100, "of two periods");
        assert!(periods >= last, "an earlier period after a later one");
        last = periods;
    }
    core.join().expect("no assertions");
    assert_eq!(read(&published), (200, 2));
}

#[test]
fn loom_a_period_is_read_whole() {
    check("publishing", || {
        a_period_is_read_whole(
            |published, report| published.shared.publish(report),
            |published| published.shared.last(),
        );
    });
}

#[test]
#[should_panic(expected = "of two periods")]
fn loom_finds_a_period_that_is_published_in_parts() {
    check("planted: events and number apart", || {
        a_period_is_read_whole(
            |published, report| {
                published.apart[0].store(report.events.0 as u32, Relaxed);
                published.apart[1].store(report.index + 1, Relaxed);
            },
            |published| {
                let [events, periods] = published.apart.each_ref().map(|word| word.load(Relaxed));
                (events, periods)
            },
        );
    });
}
