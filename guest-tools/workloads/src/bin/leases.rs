//! Leases: lets leases run out while its core is held or off, and orders another VM to stop that
//! does the same.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::reply::{Change, Life};
use cloison_guest::abi::{Call, list};
use cloison_guest::psci::{self, Affinity};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, call, entry, println, smp, timer};
use cloison_workloads::PROFILED;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

entry!(main);

/// The guest's task, by its first argument.
/// Takes a lease, and works until its budget has been spent for long.
const HELD: u64 = 0;
/// Lowers its budget, takes a lease, and makes the hypervisor do more than the budget pays for.
const OWING: u64 = 1;
/// vCPU 1 takes a lease and turns itself off; vCPU 0 turns it on again after the lease has run out.
const SECOND_OFF: u64 = 2;
/// Takes the shortest lease again and again.
const SHORTEST: u64 = 3;
/// vCPU 0 takes a lease and turns itself off; vCPU 1 works without end.
const FIRST_OFF: u64 = 4;
/// Orders VM 0 to stop, and waits until it has.
const ORDERS: u64 = 5;

/// Words of a page, and pages that change their cacheability.
const PAGE: usize = 512;
const PAGES: usize = 8;

/// vCPU 1 has been turned on a second time.
static SECOND_LIFE: AtomicBool = AtomicBool::new(false);

fn lease() {
    if let Err(error) = call::lease(0, arg(1, 20_000) * 1000) {
        println!("leases: lease: {error:?}");
    }
}

/// Turns of a loop between two looks at the time: QEMU ends a block at each look.
const SPINS: usize = 200;

fn wait(micros: u64) {
    let end = timer::now() + timer::micros(micros);
    while timer::now() < end {
        (0..SPINS).for_each(|_| core::hint::spin_loop());
    }
}

fn main() {
    let lasting = arg(2, 1_000_000);
    let began = timer::now();
    match args()[0] {
        HELD => {
            lease();
            wait(lasting);
        }
        OWING => {
            let lowered = call::quota_set(0, 1);
            lease();
            let changed = call::listed(Call::CachePages, uncached_list(), PAGES as u64, 1);
            println!("leases: lowered={lowered:?} changed={changed:?}");
        }
        SECOND_OFF => {
            turn_on(lease);
            while psci::affinity_info(1) != Ok(Affinity::Off) {
                wait(10);
            }
            wait(lasting);
            turn_on(|| SECOND_LIFE.store(true, SeqCst));
            while !SECOND_LIFE.load(SeqCst) && timer::now() - began < timer::micros(20 * lasting) {
                wait(10);
            }
            println!("leases: second={}", u64::from(SECOND_LIFE.load(SeqCst)));
        }
        SHORTEST => {
            let mut taken = 0;
            while timer::now() - began < timer::micros(lasting) {
                taken += u64::from(call::lease(0, 1000).is_ok());
                wait(3);
            }
            println!("leases: taken={taken}");
        }
        FIRST_OFF => {
            turn_on(|| wait(3_600_000_000));
            lease();
            psci::cpu_off();
        }
        ORDERS => {
            wait(lasting);
            let ordered = call::vm_order(0, Change::Stop);
            let asked = timer::now();
            let is_stopped = || call::vm_read(0).is_ok_and(|vm| vm.life == Life::Stopped);
            while !is_stopped() && timer::now() - asked < timer::micros(5 * lasting) {
                wait(10);
            }
            println!(
                "leases: ordered={ordered:?} stopped={}",
                u64::from(is_stopped())
            );
        }
        _ => println!("leases: the first argument is 0 to 5"),
    }
    println!("leases: done");
}

fn turn_on(program: fn()) {
    if let Err(error) = smp::start(1, program) {
        println!("leases: vCPU 1: {error}");
    }
}

/// Writes a list of pages that are to be uncached. Returns its address.
fn uncached_list() -> u64 {
    let mut ram = Ram::behind_image();
    let list: &[AtomicU64] = ram.take_at(PROFILED, (PAGE * 8) as u64);
    for (entry, page) in list.iter().zip(1..=PAGES as u64) {
        entry.store(
            (PROFILED + page * (PAGE as u64) * 8) & !list::CACHED,
            Relaxed,
        );
    }
    PROFILED
}
