//! Uptime: does the same work at once and after a long sleep, to show that the hypervisor's clock
//! does not drift.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::irq;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::psci::{self, Affinity};
use cloison_guest::{arg, cpu, entry, exceptions, println, smp, timer};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

entry!(main);

static EXPIRED: AtomicU64 = AtomicU64::new(0);
/// Duration of the work, in ticks.
static TOOK: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    if interrupt.id() == irq::VTIMER {
        timer::disarm();
        EXPIRED.fetch_add(1, SeqCst);
    }
}

fn main() {
    let seconds = arg(0, 86_400);
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    let first = timed();
    sleep(seconds * timer::frequency());
    let then = timed();
    println!("uptime: seconds={seconds} first={first} then={then} ticks");
}

/// Has vCPU 1 work, and returns the ticks that it took. This vCPU sleeps meanwhile.
fn timed() -> u64 {
    if let Err(error) = smp::start(1, work) {
        println!("uptime: vCPU 1: {error}");
        psci::system_off();
    }
    loop {
        sleep(timer::micros(1000));
        if psci::affinity_info(1) == Ok(Affinity::Off) {
            return TOOK.load(SeqCst);
        }
    }
}

fn work() {
    let began = timer::now();
    for _ in 0..arg(1, 200_000) {
        core::hint::spin_loop();
    }
    TOOK.store(timer::now() - began, SeqCst);
}

fn sleep(ticks: u64) {
    let before = EXPIRED.load(SeqCst);
    timer::arm(timer::now() + ticks);
    cpu::wait_until(|| EXPIRED.load(SeqCst) > before);
}
