//! Quota check: a busy guest whose timer also expires while its core is throttled; no interrupt may
//! be lost.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::irq;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{arg, args, call, cpu, entry, exceptions, println, timer};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

entry!(main);

static INTERVAL: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicBool = AtomicBool::new(false);
static ARMED: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Interrupts that arrived before the timer's deadline.
static SPURIOUS: AtomicU64 = AtomicU64::new(0);
/// The longest time from the deadline to the handler, in ticks.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// How often the line was high that says that the budget is spent.
static SPENT: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    if interrupt.id() == irq::BUDGET {
        SPENT.fetch_add(1, Relaxed);
        // It stays high until the period ends.
        gic::disable(irq::BUDGET);
    }
    if interrupt.id() != irq::VTIMER {
        return;
    }
    let now = timer::now();
    match now.checked_sub(timer::deadline()) {
        None => {
            SPURIOUS.fetch_add(1, Relaxed);
        }
        Some(late) => {
            HANDLED.fetch_add(1, Relaxed);
            LATEST.fetch_max(late, Relaxed);
            if STOP.load(Relaxed) {
                timer::disarm();
            } else {
                ARMED.fetch_add(1, Relaxed);
                timer::rearm(now + INTERVAL.load(Relaxed));
            }
        }
    }
}

fn main() {
    let periods = arg(0, 1000);
    INTERVAL.store(timer::micros(arg(1, 300)), Relaxed);
    let before = match call::quota_read(0) {
        Ok(state) => state,
        Err(error) => {
            println!("quota-check: no quota to check: {error:?}");
            return;
        }
    };
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    let told = args()[2] != 0;
    if told {
        gic::enable(irq::BUDGET);
    }
    println!(
        "quota-check: periods={periods} interval={} ticks",
        INTERVAL.load(Relaxed)
    );
    ARMED.fetch_add(1, Relaxed);
    timer::arm(timer::now() + INTERVAL.load(Relaxed));
    cpu::unmask_interrupts();

    let (mut failed, mut period) = (None, before.periods);
    let after = loop {
        for _ in 0..2000 {
            core::hint::spin_loop();
        }
        match call::quota_read(0) {
            Ok(state) if state.periods - before.periods < periods => {
                if told && state.periods != period {
                    period = state.periods;
                    gic::enable(irq::BUDGET);
                }
            }
            Ok(state) => break state,
            Err(error) => {
                failed = Some(error);
                break before;
            }
        }
    };
    STOP.store(true, Relaxed);
    // The last interrupt may still be pending while the core is throttled.
    let limit = timer::now() + timer::frequency();
    while HANDLED.load(Relaxed) < ARMED.load(Relaxed) && timer::now() < limit {
        core::hint::spin_loop();
    }
    cpu::mask_interrupts();
    if let Some(error) = failed {
        println!("quota-check: QuotaRead failed in the middle: {error:?}");
    }
    println!(
        "quota-check: armed={} handled={} spurious={} latest={} ticks",
        ARMED.load(Relaxed),
        HANDLED.load(Relaxed),
        SPURIOUS.load(Relaxed),
        LATEST.load(Relaxed)
    );
    println!(
        "quota-check: spent={} periods={} events={} throttled_ns={}",
        SPENT.load(Relaxed),
        after.periods - before.periods,
        after.events,
        after.throttled_nanos - before.throttled_nanos
    );
}
