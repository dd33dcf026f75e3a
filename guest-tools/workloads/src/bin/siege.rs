//! Siege: two vCPUs send interrupts without end to a third one, which turns itself off and is
//! turned on again.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::psci::INTERNAL_FAILURE;
use cloison_guest::psci::{self, Affinity, PsciError};
use cloison_guest::{arg, entry, gic, println, smp};

entry!(main);

/// The vCPU that is besieged.
const TARGET: usize = 2;

fn main() {
    // Zero: without end.
    let turns = arg(0, u64::MAX);
    gic::init_distributor();
    if let Err(error) = smp::start(1, besiege) {
        println!("siege: vCPU 1: {error}");
        return;
    }
    let mut done = 0;
    while done < turns {
        gic::send_sgi(1 << TARGET, 1);
        if psci::affinity_info(TARGET) == Ok(Affinity::Off) {
            // It is off, so it can be turned on, once for each turn.
            match smp::start(TARGET, || psci::cpu_off()) {
                Ok(()) => done += 1,
                // The machine turns itself off, and is about to stop this vCPU.
                Err(PsciError(INTERNAL_FAILURE)) => {}
                Err(error) => {
                    println!("siege: vCPU {TARGET}: {error}");
                    return;
                }
            }
        }
    }
    println!("siege: done turns={done}");
    psci::system_off();
}

fn besiege() {
    loop {
        gic::send_sgi(1 << TARGET, 2);
    }
}
