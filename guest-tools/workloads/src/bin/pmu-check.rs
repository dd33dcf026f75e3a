//! PMU check: the VM's counters count known work, raise interrupts, and end where the hypervisor's
//! begin.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::event::EventId;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{arg, args, cpu, entry, exceptions, pmu, println};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// The PMU's interrupt; 0 if the board has none.
static INTERRUPT: AtomicU64 = AtomicU64::new(0);
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
static OVERFLOWED: AtomicU64 = AtomicU64::new(0);

const ALL: u64 = u32::MAX as u64;

fn handler(interrupt: Interrupt) {
    if u64::from(interrupt.id()) == INTERRUPT.load(Relaxed) {
        INTERRUPTS.fetch_add(1, Relaxed);
        OVERFLOWED.fetch_or(pmu::take_overflows(), Relaxed);
    }
}

/// A loop of about four instructions per iteration.
fn work(turns: u64) {
    for turn in 0..turns {
        core::hint::black_box(turn);
    }
}

fn main() {
    INTERRUPT.store(args()[0], Relaxed);
    let turns = arg(1, 100_000);
    let counters = pmu::counters();
    let last = counters - 1;

    // Twice the work counts twice as much, and nothing counts while all counters are off.
    let counted = |turns: u64| {
        pmu::configure(last, EventId::INST_RETIRED, 0);
        pmu::set_cycles(0);
        pmu::start(1 << last | pmu::CYCLES);
        pmu::enable();
        work(turns);
        pmu::disable();
        let count = pmu::count(last);
        work(turns);
        (count, pmu::cycles(), pmu::count(last) - count)
    };
    let (once, cycles, idle) = counted(turns);
    let (twice, ..) = counted(2 * turns);
    println!(
        "pmu-check: counters={counters} once={once} twice={twice} cycles={cycles} idle={idle}"
    );

    // Nothing exists beyond the last counter, whatever is written.
    let mut leaked = 0;
    for beyond in counters..31 {
        pmu::configure(beyond, EventId::INST_RETIRED, 0x1234);
        leaked += u64::from(pmu::count(beyond) != 0 || pmu::event(beyond) != 0);
    }
    pmu::start(ALL);
    pmu::interrupts(0, ALL);
    leaked += u64::from(pmu::started() != pmu::CYCLES | ((1 << counters) - 1));
    pmu::stop(ALL);
    pmu::interrupts(0, ALL);
    pmu::take_overflows();
    pmu::disable();

    let irq = args()[0] as u32;
    if irq != 0 {
        exceptions::on_interrupt(handler);
        gic::init_distributor();
        gic::init_cpu();
        gic::enable(irq);
        cpu::unmask_interrupts();
        pmu::enable();
        // An overflow flag set by software, for a counter whose interrupt is disabled and for one
        // whose interrupt is enabled.
        pmu::pretend_overflow(1);
        work(1000);
        let early = INTERRUPTS.load(Relaxed);
        pmu::interrupts(1, 0);
        cpu::wait_until(|| INTERRUPTS.load(Relaxed) >= 1);
        let by_software = (INTERRUPTS.load(Relaxed), OVERFLOWED.swap(0, Relaxed));
        // A real overflow, of the cycle counter.
        pmu::interrupts(pmu::CYCLES, 1);
        pmu::set_cycles(u64::MAX - turns);
        pmu::start(pmu::CYCLES);
        while INTERRUPTS.load(Relaxed) < 2 {
            work(100);
        }
        work(turns);
        let (interrupts, overflowed) = (INTERRUPTS.load(Relaxed), OVERFLOWED.load(Relaxed));
        println!(
            "pmu-check: early={early} software={} flags={:#x} interrupts={interrupts} \
             overflowed={overflowed:#x}",
            by_software.0, by_software.1
        );
    }
    println!("pmu-check: leaked={leaked} done");
}
