//! Leases on changed pages: calls with lists, the deadline, restarts and starts of vCPUs meet on
//! the cores of a VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Held, Lock};
use crate::clock::Instant;
use crate::lease::Lease;
use crate::power::tests::models::{check, running};
use crate::power::{Power, Start, State};
use cloison_abi::CallError;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use std::vec::Vec;

/// When the first lease ends.
const END: Instant = Instant(10);
/// When a later one ends.
const LATER: Instant = Instant(100);

/// A VM: the pages that are away with a lease, the lease, and the time. The locks are those of
/// `vm::partition::Vm`, and are taken in the same order.
struct Vm {
    away: Lock<Vec<u64>>,
    lease: Mutex<Lease>,
    now: AtomicU64,
    /// The page's entry in stage 2: 1 while it is away.
    entry: AtomicU64,
    power: Arc<Power>,
}

impl Vm {
    /// Creates a VM with a lease until [`END`] with which a page is away. Returns the lease's
    /// number too.
    fn new() -> (Arc<Self>, u64) {
        let mut lease = Lease::default();
        let number = lease.take(END).expect("free");
        let vm = Self {
            away: Lock::new(Vec::from([1])),
            lease: Mutex::new(lease),
            now: AtomicU64::new(0),
            entry: AtomicU64::new(1),
            power: running([true, false]),
        };
        (Arc::new(vm), number)
    }

    /// The time that all cores read. It does not run by itself: the model lets it pass.
    fn now(&self) -> Instant {
        Instant(self.now.load(Acquire))
    }

    fn pass(&self, until: Instant) {
        self.now.store(until.0, Release);
    }

    /// Moves the lease's pages back, and ends it.
    fn undo(&self, pages: &mut Vec<u64>) {
        pages.clear();
        self.entry.store(0, Release);
        self.lease().end();
    }

    /// The lease's lock is waited for, because it is held for a few steps only.
    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().expect("no thread panics with it")
    }

    /// The pages' lock is tried, as in `vm::migrate::Work::pages`: its holder may pause.
    fn pages(&self) -> Result<Held<'_, Vec<u64>>, CallError> {
        self.away.try_lock().ok_or(CallError::Busy)
    }

    /// As `vm::migrate::Work::end_due`.
    fn end_due(&self) -> bool {
        let Ok(mut pages) = self.pages() else {
            return false;
        };
        if !self.lease().is_due(self.now()) {
            return true;
        }
        self.undo(&mut pages);
        true
    }

    /// The core's deadline for the lease, which it sets again where another call changes pages.
    fn on_deadline(&self, end_due: fn(&Self) -> bool) {
        while !end_due(self) {
            thread::yield_now();
        }
    }

    /// Moves a page with the lease, as `vm::migrate::Work::listed` does.
    fn move_page(&self, number: u64) -> Result<(), CallError> {
        let mut pages = self.pages()?;
        self.lease().check(number, self.now())?;
        pages.push(2);
        Ok(())
    }

    /// Takes a lease, as `vm::migrate::Work::lease` does.
    fn take(&self) -> Result<u64, CallError> {
        if !self.end_due() {
            return Err(CallError::Busy);
        }
        self.lease().take(LATER)
    }

    /// The VM's life ends, as `vm::migrate::Work::reset` sees to it.
    fn reset(&self) {
        loop {
            if let Ok(mut pages) = self.pages() {
                return self.undo(&mut pages);
            }
            thread::yield_now();
        }
    }
}

/// A program moves a page while its lease runs out on another core: afterwards no page is away.
fn no_page_outlives_its_lease(move_page: fn(&Vm, u64) -> Result<(), CallError>) {
    let (vm, number) = Vm::new();
    let other = {
        let vm = vm.clone();
        thread::spawn(move || {
            vm.pass(END);
            vm.on_deadline(Vm::end_due);
        })
    };
    let moved = move_page(&vm, number);
    other.join().expect("no assertions");
    assert!(matches!(
        moved,
        Ok(()) | Err(CallError::Busy | CallError::Expired)
    ));
    let away = vm.away.try_lock().expect("free").len();
    assert_eq!(away, 0, "a page outlives its lease");
}

#[test]
fn loom_no_page_outlives_its_lease() {
    check("lists and leases", || {
        no_page_outlives_its_lease(Vm::move_page)
    });
}

#[test]
#[should_panic(expected = "a page outlives its lease")]
fn loom_finds_a_lease_that_is_checked_too_early() {
    check("planted: check the lease, then lock the pages", || {
        no_page_outlives_its_lease(|vm, number| {
            vm.lease().check(number, vm.now())?;
            vm.pages()?.push(2);
            Ok(())
        });
    });
}

/// One program's lease has run out, and another program takes the next one while the deadline is
/// handled on another core: the new lease lasts, and the old number changes nothing.
fn the_next_lease_lasts(end_due: fn(&Vm) -> bool) {
    let (vm, old) = Vm::new();
    vm.pass(END);
    let deadline = {
        let vm = vm.clone();
        thread::spawn(move || vm.on_deadline(end_due))
    };
    let late = {
        let vm = vm.clone();
        thread::spawn(move || vm.move_page(old))
    };
    let mut taken = vm.take();
    deadline.join().expect("no assertions");
    let late = late.join().expect("no assertions");
    assert!(matches!(late, Err(CallError::Busy | CallError::Expired)));
    if taken == Err(CallError::Busy) {
        taken = vm.take();
    }
    let number = taken.expect("nobody else takes one");
    assert_eq!(
        vm.lease().check(number, vm.now()),
        Ok(()),
        "a lease ended before its time"
    );
    assert!(vm.away.try_lock().expect("free").is_empty());
}

#[test]
fn loom_the_next_lease_lasts() {
    check("leases", || the_next_lease_lasts(Vm::end_due));
}

#[test]
#[should_panic(expected = "a lease ended before its time")]
fn loom_finds_a_deadline_that_ends_the_next_lease() {
    check(
        "planted: look whether it is due, then lock the pages",
        || {
            the_next_lease_lasts(|vm| {
                if !vm.lease().is_due(vm.now()) {
                    return true;
                }
                let Ok(mut pages) = vm.pages() else {
                    return false;
                };
                vm.undo(&mut pages);
                true
            });
        },
    );
}

/// A VM restarts while the core of a vCPU that is off ends the lease: the next life has its pages
/// at home and no lease, and can take one.
fn the_next_life_has_its_pages(reset: fn(&Vm)) {
    let (vm, _) = Vm::new();
    vm.pass(END);
    let idle = {
        let vm = vm.clone();
        thread::spawn(move || vm.end_due())
    };
    assert!(vm.power.end(None));
    assert_eq!(vm.power.stop(1), State::Off);
    reset(&vm);
    assert!(vm.power.restart(), "not doomed");
    assert_eq!(vm.power.enter(0), Some(Start::Boot));
    let entry = vm.entry.load(Acquire);
    assert_eq!(entry, 0, "the next life begins before its pages are back");
    vm.lease().take(LATER).expect("no lease of the former life");
    idle.join().expect("no assertions");
    assert!(vm.lease().until == Some(LATER));
}

#[test]
fn loom_the_next_life_has_its_pages() {
    check("restarts and leases", || {
        the_next_life_has_its_pages(Vm::reset)
    });
}

#[test]
#[should_panic(expected = "the next life begins before its pages are back")]
fn loom_finds_a_restart_that_leaves_the_pages_to_another_core() {
    check("planted: the core that ends the lease does it all", || {
        the_next_life_has_its_pages(|vm| {
            if let Ok(mut pages) = vm.pages() {
                vm.undo(&mut pages);
            }
        });
    });
}

/// What a core does between two pages, given whether something more urgent waits. Returns whether
/// to continue.
type Pause = fn(&dyn Fn() -> bool) -> bool;

/// The core of a vCPU that is off ends a lease, and its budget is spent for good: a start of the
/// vCPU does not wait for that.
fn a_start_comes_before_a_lease(pause: Pause) {
    let (vm, _) = Vm::new();
    vm.pass(END);
    let core = {
        let vm = vm.clone();
        thread::spawn(move || {
            while vm.power.enter(1).is_none() {
                if vm.lease().is_due(vm.now()) && pause(&|| vm.power.is_wanted(1)) {
                    vm.end_due();
                }
                thread::yield_now();
            }
        })
    };
    vm.power.claim(1).expect("off");
    vm.power.publish(1);
    core.join().expect("no assertions");
    assert_eq!(vm.power.state(1), State::On);
}

#[test]
fn loom_a_start_comes_before_a_lease() {
    // As `vm::interrupts::pause` does where a budget is spent.
    check("idle cores", || {
        a_start_comes_before_a_lease(|is_wanted| {
            while !is_wanted() {
                thread::yield_now();
            }
            false
        });
    });
}

/// It waits for ever, which loom says in its own way.
#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn loom_finds_a_start_that_waits_for_a_lease() {
    check("planted: held until the budget is there", || {
        a_start_comes_before_a_lease(|is_wanted| {
            loop {
                let _ = is_wanted();
                thread::yield_now();
            }
        });
    });
}
