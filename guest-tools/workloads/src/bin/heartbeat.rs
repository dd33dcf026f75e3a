//! Heartbeat: checks the VM's memory at every beat of a timer, to show that neighbors did no harm.
//! Takes the bits of its doorbell, if it has one.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::checksum::fnv1a;
use cloison_benchmarks::random::Random;
use cloison_guest::abi::{doorbell, irq};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, call, cpu, entry, exceptions, println, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

static EXPIRED: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    match interrupt.id() {
        irq::VTIMER => {
            timer::disarm();
            EXPIRED.fetch_add(1, Relaxed);
        }
        irq::DOORBELL => drop(call::doorbell_take(doorbell::ALL)),
        _ => {}
    }
}

fn main() {
    let period = timer::micros(arg(0, 10_000));
    let buffer = Ram::behind_image().take(arg(1, 64 * 1024));
    let beats = args()[2];
    let every = arg(3, 1);

    let mut random = Random::new(0x68_6561_7274);
    for word in buffer {
        word.store(random.bits(), Relaxed);
    }
    let sum = || fnv1a(buffer.iter().map(|word| word.load(Relaxed)));
    let checksum = sum();
    println!(
        "heartbeat: period={period} ticks buffer={} B checksum {checksum:#018x}",
        buffer.len() * 8
    );

    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    if call::channel(0).is_ok() {
        gic::enable(irq::DOORBELL);
    }
    cpu::unmask_interrupts();

    let (mut corrupt, mut late, mut worst) = (0u64, 0u64, 0u64);
    let mut next = timer::now() + period;
    let mut beat = 0;
    while beats == 0 || beat < beats {
        timer::arm(next);
        cpu::wait_until(|| EXPIRED.load(Relaxed) > beat);
        worst = worst.max(timer::now() - next);
        beat += 1;
        let found = sum();
        if found != checksum {
            corrupt += 1;
            println!("heartbeat {beat} checksum {found:#018x} CORRUPT");
        } else if beat.is_multiple_of(every) {
            println!("heartbeat {beat} checksum {found:#018x} ok");
        }
        next += period;
        let now = timer::now();
        if next <= now {
            late += 1;
            next = now + period;
        }
    }
    println!("heartbeat: done beats={beat} corrupt={corrupt} late={late} worst={worst} ticks");
}
