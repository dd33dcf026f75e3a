//! Requests and a held core under loom: cores post requests, and one core waits for its interrupt
//! and takes them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::clock::Instant;
use crate::power::tests::models::{Bell, check};
use crate::power::{Power, Requests, State};
use crate::quota::{Verdict, tests as quota};
use cloison_formats::units::Events;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::thread;
use std::cell::Cell;

/// Requests: to start or stop the vCPU, and to look for interrupts.
const POWER: u32 = 1;
const INTERRUPTS: u32 = 2;

/// A core as others see it.
struct Core {
    requests: Requests,
    /// Its interrupt, where it looks for it and where it waits for it.
    interrupt: AtomicBool,
    bell: Bell,
    power: Power,
    /// What others write before they ask it to look; in the second model, the time.
    written: [AtomicU64; 2],
}

fn core() -> Arc<Core> {
    let requests = Requests(AtomicU32::new(0));
    let power = Power::loading();
    power.publish(0);
    power.enter(0).expect("pending");
    let (interrupt, bell) = (AtomicBool::new(false), Bell::default());
    Arc::new(Core {
        requests,
        interrupt,
        bell,
        power,
        written: core::array::from_fn(|_| AtomicU64::new(0)),
    })
}

/// Two cores write and then ask a third one to look: it looks after each has written, and sees what
/// that wrote.
fn every_request_arrives(post: fn(&Requests, u32), take: fn(&Core) -> u32) {
    let core = core();
    let others = [(0, POWER), (1, INTERRUPTS)].map(|(which, request)| {
        let core = core.clone();
        thread::spawn(move || {
            core.written[which].store(1, Relaxed);
            post(&core.requests, request);
            core.interrupt.swap(true, Relaxed);
        })
    });
    let mut served = 0;
    while served != 3 {
        while !core.interrupt.swap(false, Relaxed) {
            thread::yield_now();
        }
        let requests = take(&core);
        for which in (0..2).filter(|which| requests >> which & 1 == 1) {
            assert_eq!(core.written[which].load(Relaxed), 1, "it looked too early");
        }
        served |= requests;
    }
    others
        .into_iter()
        .for_each(|other| other.join().expect("no assertions"));
}

#[test]
fn loom_every_request_arrives() {
    check("requests", || {
        every_request_arrives(Requests::post, |core| core.requests.take())
    });
}

#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn loom_finds_a_request_that_is_cleared_unseen() {
    check("planted: read, then clear", || {
        every_request_arrives(Requests::post, |core| {
            let requests = core.requests.0.load(Acquire);
            core.requests.0.store(0, Release);
            requests
        });
    });
}

#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn loom_finds_an_interrupt_that_is_acknowledged_too_late() {
    check("planted: take, then acknowledge", || {
        every_request_arrives(Requests::post, |core| {
            let requests = core.requests.take();
            core.interrupt.store(false, Relaxed);
            requests
        });
    });
}

#[test]
#[should_panic(expected = "it looked too early")]
fn loom_finds_a_request_that_overtakes_what_was_written() {
    check("planted: post without release", || {
        let post = |requests: &Requests, request| _ = requests.0.fetch_or(request, Relaxed);
        every_request_arrives(post, |core| core.requests.take());
    });
}

/// How a core is held.
type Hold = fn(&Cell<bool>, &Cell<bool>, &mut dyn FnMut()) -> bool;

/// A core whose budget is spent is asked to look for interrupts, and then to stop, while its period
/// ends or does not: it runs no guest before the period's end, and stops whether it is held or not.
fn a_held_core_waits_and_stops(hold: Hold, period_ends: bool) {
    const PERIOD: u64 = 100;
    let core = core();
    let held = {
        let core = core.clone();
        thread::spawn(move || {
            let now = || Instant(core.written[0].load(Relaxed));
            let mut regulator = quota::regulator(quota::terms(10, PERIOD), 0, quota::pool());
            assert_eq!(regulator.check(Events(10), now()), Verdict::Throttle);
            let (throttled, leave) = (Cell::new(true), Cell::new(false));
            let mut serve = || {
                core.bell.wait();
                regulator.replenish(Events(10), now(), None);
                throttled.set(regulator.is_throttled());
                if core.requests.take() & POWER != 0 {
                    leave.set(core.power.state(0) == State::Leaving);
                }
            };
            while !hold(&throttled, &leave, &mut serve) {
                assert!(
                    now() >= Instant(PERIOD),
                    "the guest runs before its period is over"
                );
                serve();
            }
            core.power.leave(0);
        })
    };
    let timer = {
        let core = core.clone();
        thread::spawn(move || {
            if period_ends {
                core.written[0].store(PERIOD, Relaxed);
                core.bell.ring();
            }
        })
    };
    core.requests.post(INTERRUPTS);
    core.bell.ring();
    while core.power.stop(0) != State::Off {
        core.requests.post(POWER);
        core.bell.ring();
        thread::yield_now();
    }
    [held, timer]
        .into_iter()
        .for_each(|thread| thread.join().expect("its assertions"));
}

/// As `vm::life::hold` does.
fn hold(throttled: &Cell<bool>, leave: &Cell<bool>, serve: &mut dyn FnMut()) -> bool {
    while throttled.get() && !leave.get() {
        serve();
    }
    leave.get()
}

#[test]
fn loom_a_held_core_waits_for_its_period_and_stops() {
    for period_ends in [true, false] {
        check("hold", move || {
            a_held_core_waits_and_stops(hold, period_ends)
        });
    }
}

#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn loom_finds_a_held_core_that_does_not_stop() {
    check("planted: held until the period ends", || {
        let deaf: Hold = |throttled, leave, serve| {
            while throttled.get() {
                serve();
            }
            leave.get()
        };
        a_held_core_waits_and_stops(deaf, false);
    });
}

#[test]
#[should_panic(expected = "the guest runs before its period is over")]
fn loom_finds_a_core_that_any_interrupt_releases() {
    check("planted: held until an interrupt", || {
        let weak: Hold = |throttled, leave, serve| {
            if throttled.get() {
                serve();
            }
            leave.get()
        };
        a_held_core_waits_and_stops(weak, false);
    });
}
