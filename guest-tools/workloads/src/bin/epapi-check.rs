//! ePAPI check: all vCPUs count with PAPI at once, and one is interrupted when an event reaches a
//! threshold.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_epapi::preset::{PAPI_L1_DCH, PAPI_NULL, PAPI_TOT_CYC, PAPI_TOT_INS};
use cloison_epapi::{Error, PAPI_VER_CURRENT};
use cloison_guest::cpu::MAX_VCPUS;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{arg, args, cpu, entry, exceptions, println, smp};
use core::hint::black_box;
use core::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

entry!(main);

/// Events after which the handler is called.
const THRESHOLD: i32 = 20_000;

static DONE: AtomicUsize = AtomicUsize::new(0);
/// Failed checks of each vCPU.
static WRONG: [AtomicU64; MAX_VCPUS] = [const { AtomicU64::new(0) }; MAX_VCPUS];
/// The event set of each vCPU.
static SETS: [AtomicI64; MAX_VCPUS] = [const { AtomicI64::new(-1) }; MAX_VCPUS];
/// Calls of the handler, and the PMU's interrupt.
static HANDLED: AtomicU64 = AtomicU64::new(0);
static INTERRUPT: AtomicU64 = AtomicU64::new(0);

/// The functions as C calls them.
#[allow(unsafe_code)]
mod papi {
    use super::{HANDLED, SeqCst};
    use core::ffi::{c_int, c_longlong, c_void};
    use core::ptr::null_mut;
    use epapi::{low, more};

    pub fn create(set: &mut c_int) -> c_int {
        // SAFETY: the pointer is that of a variable.
        unsafe { low::ePAPI_create_eventset(set) }
    }

    pub fn start(set: c_int) -> c_int {
        // SAFETY: it has no pointer.
        unsafe { low::ePAPI_start(set) }
    }

    pub fn stop(set: c_int, values: &mut [i64; 3]) -> c_int {
        // SAFETY: the pointer is that of a variable with room for all events of the set.
        unsafe { low::ePAPI_stop(set, values.as_mut_ptr()) }
    }

    /// # Safety
    /// It may be called at any time.
    unsafe extern "C" fn handler(_: c_int, _: *mut c_void, vector: c_longlong, _: *mut c_void) {
        HANDLED.fetch_add(if vector == 1 { 1 } else { 1 << 32 }, SeqCst);
    }

    pub fn overflow(set: c_int, event: c_int, threshold: c_int) -> c_int {
        more::ePAPI_overflow(set, event, threshold, 0, Some(handler))
    }

    pub fn interrupt() -> c_int {
        // SAFETY: the handler above may be called at any time.
        unsafe { more::ePAPI_interrupt(null_mut(), null_mut()) }
    }
}

/// A loop of a few instructions per iteration.
#[inline(never)]
fn work(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Counts a known relation of work again and again, while all other vCPUs do the same.
fn count(rounds: u64) {
    let me = cpu::current();
    let wrong = |what: u64| {
        WRONG[me].fetch_or(what, SeqCst);
    };
    let mut set = PAPI_NULL;
    if papi::create(&mut set) != 0 {
        return wrong(1);
    }
    SETS[me].store(set.into(), SeqCst);
    for event in [PAPI_TOT_INS, PAPI_TOT_CYC, PAPI_L1_DCH] {
        if epapi::low::ePAPI_add_event(set, event) != 0 {
            wrong(2);
        }
    }
    let counted = |turns: u64| {
        let mut values = [-1; 3];
        let started = papi::start(set);
        work(turns);
        if started != 0 || papi::stop(set, &mut values) != 0 {
            wrong(4);
        }
        values
    };
    let (once, twice) = (counted(1000)[0], counted(2000)[0]);
    let turn = (twice - once) / 1000;
    let beside = once - 1000 * turn;
    for round in 1..=rounds {
        let turns = 100 * round + me as u64;
        let [instructions, cycles, _] = counted(turns);
        if instructions != beside + turn * turns as i64 || cycles < instructions {
            wrong(8);
        }
        // The sets of other vCPUs are none of this one's.
        for other in (0..MAX_VCPUS).filter(|other| *other != me) {
            let theirs = SETS[other].load(SeqCst) as i32;
            if theirs != PAPI_NULL && papi::start(theirs) != Error::NoEventSet.code() {
                wrong(16);
            }
        }
    }
}

fn other() {
    count(arg(1, 40));
    DONE.fetch_add(1, SeqCst);
}

fn handler(interrupt: Interrupt) {
    if u64::from(interrupt.id()) == INTERRUPT.load(SeqCst) {
        papi::interrupt();
    }
}

/// Lets the PMU interrupt, and compares the calls of the handler with what was counted.
fn overflow() {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(args()[2] as u32);
    INTERRUPT.store(args()[2], SeqCst);
    cpu::unmask_interrupts();
    let set = SETS[0].load(SeqCst) as i32;
    let armed = papi::overflow(set, PAPI_TOT_INS, THRESHOLD);
    let started = papi::start(set);
    while HANDLED.load(SeqCst) < 10 {
        work(100);
    }
    let mut values = [0; 3];
    let stopped = papi::stop(set, &mut values);
    let handled = HANDLED.load(SeqCst);
    println!(
        "epapi-check: armed={armed} started={started} stopped={stopped} handled={handled} \
         counted={}",
        values[0]
    );
}

fn main() {
    let vcpus = arg(0, 1) as usize;
    let initialized = epapi::low::ePAPI_library_init(PAPI_VER_CURRENT);
    for vcpu in 1..vcpus {
        smp::start(vcpu, other).expect("it is off");
    }
    count(arg(1, 40));
    // Nothing wakes this vCPU, so it does not wait for an interrupt.
    while DONE.load(SeqCst) + 1 < vcpus {
        cpu::give_way();
    }
    let wrong = WRONG.iter().fold(0, |all, wrong| all | wrong.load(SeqCst));
    println!("epapi-check: vcpus={vcpus} initialized={initialized:#x} wrong={wrong}");
    if args()[2] != 0 && wrong == 0 {
        overflow();
    }
    println!("epapi-check: done");
}
