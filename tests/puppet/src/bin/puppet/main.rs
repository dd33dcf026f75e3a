//! The puppet: each of its vCPUs asks the fuzzer for a program, executes it, and asks again.
//!
//! It survives what a program does: faults, interrupts, restarts, and being turned off. Without the
//! fuzzer it finds no program and waits.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::irq;
use cloison_guest::gic::Interrupt;
use cloison_guest::{cpu, entry, exceptions, gic, smp, timer};
use cloison_puppet::{LONGEST, OP_WORDS, Op};

#[allow(unsafe_code)]
mod own;

use own::VCPUS;

entry!(main);

fn main() {
    exceptions::on_interrupt(take);
    gic::init_distributor();
    for vcpu in 1..VCPUS {
        // A VM with fewer vCPUs refuses.
        let _ = smp::start(vcpu, serve);
    }
    serve();
}

/// Takes an interrupt. One that would come again at once is disabled.
fn take(interrupt: Interrupt) {
    match interrupt.id() {
        irq::VTIMER => timer::disarm(),
        0..16 => {}
        id => gic::disable(id),
    }
}

/// Executes programs for good.
fn serve() {
    let own = own::lend();
    gic::init_cpu();
    // FP and SIMD: CPACR_EL1.FPEN.
    own.execute(0xd518_1040, [3 << 20, 0, 0, 0]);
    loop {
        own.program[0] = 0;
        own.ask();
        let count = (own.program[0] as usize).min(LONGEST);
        if count == 0 {
            idle();
        }
        for at in 0..count {
            let first = 1 + at * OP_WORDS;
            let words = core::array::from_fn(|word| own.program[first + word]);
            match Op::decode(words) {
                Some(Op::Execute { word, x }) => own.execute(word, x),
                Some(op @ Op::List { .. }) => own.list(op),
                Some(Op::Delay(turns)) => own::delay(turns & 0xffff),
                Some(Op::Start(vcpu)) if vcpu < VCPUS as u64 => {
                    // It may be on already.
                    let _ = smp::start(vcpu as usize, serve);
                }
                Some(Op::Start(_)) | None => {}
            }
        }
    }
}

/// Waits some microseconds: an interrupt ends each wait.
fn idle() {
    gic::enable(irq::VTIMER);
    timer::arm(timer::now() + timer::micros(20));
    cpu::wait_for_interrupt();
    timer::disarm();
}
