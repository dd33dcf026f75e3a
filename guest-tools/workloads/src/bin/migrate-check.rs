//! Migrate check: two vCPUs continuously write and check pages while those pages migrate back and
//! forth.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::{CallError, irq};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::ram::{PAGE, Ram};
use cloison_guest::{arg, call, cpu, entry, exceptions, println, smp, timer};
use cloison_workloads::PROFILED;
use cloison_workloads::stamps::{PAGE_WORDS, Stamps};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use spin::Once;

entry!(main);

/// Software-generated interrupts: a ping, and its answer.
const PING: u32 = 1;
const PONG: u32 = 2;

/// The counts of one vCPU; the handler on that vCPU is the only other writer.
struct Counts {
    /// Wrong words, failed calls, and unexpected interrupts.
    errors: AtomicU64,
    sgis_sent: AtomicU64,
    sgis_received: AtomicU64,
    /// A ping of this vCPU has not been answered yet.
    waiting: AtomicBool,
    ticks_seen: AtomicU64,
    ticks_expected: AtomicU64,
}

static COUNTS: [Counts; 2] = [const {
    Counts {
        errors: AtomicU64::new(0),
        sgis_sent: AtomicU64::new(0),
        sgis_received: AtomicU64::new(0),
        waiting: AtomicBool::new(false),
        ticks_seen: AtomicU64::new(0),
        ticks_expected: AtomicU64::new(0),
    }
}; 2];

static PERIOD: AtomicU64 = AtomicU64::new(0);
/// The pages of vCPU 1.
static SECOND_HALF: Once<&'static [AtomicU64]> = Once::new();
static SECOND_RUNS: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);
static SECOND_DONE: AtomicBool = AtomicBool::new(false);

fn mine() -> &'static Counts {
    &COUNTS[cpu::current() % 2]
}

fn send(id: u32) {
    mine().sgis_sent.fetch_add(1, SeqCst);
    gic::send_sgi(1 << (1 - cpu::current() % 2), id);
}

fn handler(interrupt: Interrupt) {
    let mine = mine();
    match interrupt.id() {
        irq::VTIMER if timer::now() >= timer::deadline() => {
            mine.ticks_seen.fetch_add(1, SeqCst);
            timer::rearm(timer::deadline() + PERIOD.load(SeqCst));
        }
        PING => {
            mine.sgis_received.fetch_add(1, SeqCst);
            send(PONG);
        }
        PONG if mine.waiting.swap(false, SeqCst) => {
            mine.sgis_received.fetch_add(1, SeqCst);
        }
        _ => {
            mine.errors.fetch_add(1, SeqCst);
        }
    }
}

fn ping() {
    if !mine().waiting.swap(true, SeqCst) {
        send(PING);
    }
}

/// Makes one pass over a vCPU's pages and pings the other vCPU after each page.
fn pass(half: &mut Stamps) {
    let wrong = half.pass(ping);
    mine().errors.fetch_add(wrong, SeqCst);
}

/// Enables interrupts and the timer on the calling vCPU. Returns when the timer's first period
/// began.
fn begin() -> u64 {
    gic::init_cpu();
    for id in [irq::VTIMER, PING, PONG] {
        gic::enable(id);
    }
    let start = timer::now();
    timer::arm(start + PERIOD.load(SeqCst));
    cpu::unmask_interrupts();
    start
}

/// Waits for `done`, at most one second.
fn settle(mut done: impl FnMut() -> bool) {
    let limit = timer::now() + timer::frequency();
    while !done() && timer::now() < limit {
        core::hint::spin_loop();
    }
}

/// Stops the timer at a moment when every due tick has been seen, or after one second.
fn end(start: u64) {
    let mine = mine();
    settle(|| {
        cpu::without_interrupts(|| {
            // Stop the timer before reading the clock, so that no tick can fall between the two.
            timer::disarm();
            let expected = (timer::now() - start) / PERIOD.load(SeqCst);
            mine.ticks_expected.store(expected, SeqCst);
            let all = mine.ticks_seen.load(SeqCst) == expected;
            if !all {
                timer::arm(timer::deadline());
            }
            all
        })
    });
    timer::disarm();
}

fn second() {
    let Some(words) = SECOND_HALF.get() else {
        return;
    };
    let mut half = Stamps::new(words);
    let start = begin();
    SECOND_RUNS.store(true, SeqCst);
    while !STOP.load(SeqCst) {
        pass(&mut half);
    }
    pass(&mut half);
    settle(|| !mine().waiting.load(SeqCst));
    end(start);
    SECOND_DONE.store(true, SeqCst);
    // vCPU 0 may still send pings.
    cpu::wait_until(|| false);
}

fn main() {
    let pages = arg(0, 64);
    let rounds = arg(1, 100);
    PERIOD.store(timer::micros(arg(2, 1000)), SeqCst);
    let buffer = Ram::behind_image().take_at(PROFILED, pages * PAGE);
    let (first_half, second_half) = buffer.split_at(pages as usize / 2 * PAGE_WORDS);
    SECOND_HALF.call_once(|| second_half);
    println!("migrate-check: pages={pages} at={PROFILED:#x} rounds={rounds}");

    exceptions::on_interrupt(handler);
    gic::init_distributor();
    let mut half = Stamps::new(first_half);
    if let Err(error) = smp::start(1, second) {
        println!("migrate-check: vCPU 1: {error}");
        return;
    }
    let start = begin();
    while !SECOND_RUNS.load(SeqCst) {
        pass(&mut half);
    }

    let (mut done, mut moved, mut failed) = (0, 0, None);
    while done < rounds && failed.is_none() {
        let both = call::migrate(pages).and_then(|there| {
            pass(&mut half);
            call::restore().map(|back| (there, back))
        });
        pass(&mut half);
        match both {
            Ok((there, back)) => {
                if (there, back) != (pages, pages) {
                    mine().errors.fetch_add(1, SeqCst);
                }
                moved += there + back;
                done += 1;
            }
            Err(error) => failed = Some(error),
        }
    }
    // After a failed plan, nothing may be left in the pool.
    let left = failed.and_then(|_| call::restore().ok());
    pass(&mut half);
    settle(|| !mine().waiting.load(SeqCst));
    STOP.store(true, SeqCst);
    settle(|| SECOND_DONE.load(SeqCst));
    let stuck = !SECOND_DONE.load(SeqCst);
    end(start);
    cpu::mask_interrupts();

    let sum = |field: fn(&Counts) -> &AtomicU64| {
        COUNTS
            .iter()
            .map(|counts| field(counts).load(SeqCst))
            .sum::<u64>()
    };
    let errors = sum(|counts| &counts.errors) + u64::from(stuck);
    match failed {
        Some(CallError::PoolFull) => println!(
            "migrate-check: pool full after {done} rounds intact={} left={}",
            if errors == 0 { "yes" } else { "no" },
            left.unwrap_or(0)
        ),
        Some(error) => println!("migrate-check: call failed after {done} rounds: {error:?}"),
        None => {}
    }
    println!(
        "migrate-check: rounds={done} errors={errors} sgis sent={} received={} ticks expected={} \
         seen={} moved={moved}",
        sum(|counts| &counts.sgis_sent),
        sum(|counts| &counts.sgis_received),
        sum(|counts| &counts.ticks_expected),
        sum(|counts| &counts.ticks_seen),
    );
}
