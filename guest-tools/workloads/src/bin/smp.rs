//! Smp: turns all vCPUs on, passes software-generated interrupts around a ring, turns them off, and
//! one on again.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::gic::{self, Interrupt};
use cloison_guest::psci::{self, Affinity};
use cloison_guest::{arg, cpu, entry, exceptions, println, smp};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

entry!(main);

/// The interrupt that is passed around.
const TOKEN: u32 = 3;
/// Rounds of the ring.
const LAPS: u64 = 10;

static VCPUS: AtomicUsize = AtomicUsize::new(0);
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// Tokens received by each vCPU, and tokens from the wrong sender.
static GOT: [AtomicU64; smp::MOST] = [const { AtomicU64::new(0) }; smp::MOST];
static STRAY: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    let (me, vcpus) = (cpu::current(), VCPUS.load(SeqCst));
    if interrupt.id() != TOKEN
        || interrupt
            .source()
            .is_some_and(|from| from != (me + vcpus - 1) % vcpus)
    {
        STRAY.fetch_add(1, SeqCst);
        return;
    }
    let laps = GOT[me].fetch_add(1, SeqCst) + 1;
    if me != 0 || laps < LAPS {
        pass_on();
    }
}

fn pass_on() {
    gic::send_sgi(1 << ((cpu::current() + 1) % VCPUS.load(SeqCst)), TOKEN);
}

fn ready() {
    gic::init_cpu();
    gic::enable(TOKEN);
    cpu::unmask_interrupts();
}

fn other() {
    ready();
    println!("smp: vCPU {} is on", cpu::current());
    STARTED.fetch_add(1, SeqCst);
    cpu::wait_until(|| GOT[cpu::current()].load(SeqCst) >= LAPS);
}

fn again() {
    println!("smp: vCPU {} is on again", cpu::current());
    STARTED.fetch_add(1, SeqCst);
}

fn main() {
    let vcpus = arg(0, 2) as usize;
    VCPUS.store(vcpus, SeqCst);
    smp::make_room(vcpus);
    match psci::version() {
        Ok((major, minor)) => println!("smp: vcpus={vcpus} PSCI {major}.{minor}"),
        Err(error) => println!("smp: vcpus={vcpus} {error}"),
    }
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    ready();
    println!("smp: vCPU 0 is on");
    let mut problems = 0;
    for other_cpu in 1..vcpus {
        if let Err(error) = smp::start(other_cpu, other) {
            println!("smp: vCPU {other_cpu}: {error}");
            return;
        }
    }
    wait_for(|| STARTED.load(SeqCst) == vcpus - 1);
    pass_on();
    cpu::wait_until(|| GOT[0].load(SeqCst) >= LAPS);
    for off in 1..vcpus {
        wait_for(|| psci::affinity_info(off) == Ok(Affinity::Off));
    }
    if vcpus > 1 {
        let last = vcpus - 1;
        if let Err(error) = smp::start(last, again) {
            println!("smp: vCPU {last} again: {error}");
            problems += 1;
        } else {
            wait_for(|| {
                STARTED.load(SeqCst) == vcpus && psci::affinity_info(last) == Ok(Affinity::Off)
            });
        }
        // A running vCPU cannot be turned on.
        problems += usize::from(smp::start(0, again).is_ok());
    }
    problems += GOT[..vcpus]
        .iter()
        .filter(|got| got.load(SeqCst) != LAPS)
        .count();
    problems += STRAY.load(SeqCst) as usize;
    if problems == 0 {
        println!("smp: ok");
    } else {
        println!("smp: {problems} problems, stray={STRAY:?} got={GOT:?}");
    }
}

/// Waits for something that another vCPU does without an interrupt.
fn wait_for(mut done: impl FnMut() -> bool) {
    while !done() {
        core::hint::spin_loop();
    }
}
