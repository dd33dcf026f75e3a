//! Interf: cache-allocating stores, one per line, over a buffer (BBProf, section 7.1).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::irq;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::ram::{LINE_WORDS, Ram};
use cloison_guest::{arg, args, cpu, entry, exceptions, println, timer};
use cloison_workloads::PROFILED;
use core::sync::atomic::Ordering::Relaxed;

entry!(main);

fn handler(interrupt: Interrupt) {
    if interrupt.id() == irq::VTIMER {
        timer::disarm();
    }
}

/// Sleeps while a neighbor starts up.
fn sleep(millis: u64) {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    let end = timer::now() + timer::micros(millis * 1000);
    timer::arm(end);
    cpu::wait_until(|| timer::now() >= end);
    timer::disarm();
    cpu::mask_interrupts();
}

fn main() {
    let buffer = Ram::behind_image().take_at(PROFILED, arg(0, 420 * 1024));
    let iterations = args()[1];
    println!(
        "interf: buffer={} B at={PROFILED:#x} iterations={iterations}",
        buffer.len() * 8
    );
    if args()[2] > 0 {
        sleep(args()[2]);
    }
    let start = timer::now();
    let mut done = 0u64;
    while iterations == 0 || done < iterations {
        for line in buffer.chunks_exact(LINE_WORDS) {
            line[0].store(done, Relaxed);
        }
        done += 1;
    }
    println!(
        "interf: done iterations={done} ticks={}",
        timer::now() - start
    );
}
