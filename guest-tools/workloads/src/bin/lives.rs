//! Lives: a VM of two vCPUs that restarts from either one while the other turns itself off, is
//! turned on, or is killed.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::psci::{self, Affinity};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, entry, println, smp};
use cloison_workloads::SURVIVOR;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

entry!(main);

/// Marks a valid counter after it.
const MAGIC: u64 = u64::from_le_bytes(*b"lives of");
/// In no region of the VM.
const FOREIGN: u64 = 0x9000_0000;

static OTHER_IS_UP: AtomicBool = AtomicBool::new(false);
static GO: AtomicBool = AtomicBool::new(false);
static KILL: AtomicBool = AtomicBool::new(false);
static LIFE: AtomicU64 = AtomicU64::new(0);

fn main() {
    let (lives, kill_from) = (arg(0, 100), args()[1]);
    let mut ram = Ram::behind_image();
    let [magic, count, refused, ..] = ram.take_at(SURVIVOR, 64) else {
        return;
    };
    if magic.load(SeqCst) != MAGIC {
        count.store(0, SeqCst);
        refused.store(0, SeqCst);
        magic.store(MAGIC, SeqCst);
    }
    let life = count.fetch_add(1, SeqCst) + 1;
    LIFE.store(life, SeqCst);
    if life > lives {
        // The last life: vCPU 1 turns vCPU 0 on again, which then says what was found.
        if smp::start(1, turn_the_first_on).is_err() {
            refused.fetch_add(1, SeqCst);
        }
        REFUSED.store(refused.load(SeqCst), SeqCst);
        psci::cpu_off();
    }
    // Of a new life every vCPU but the first is off, whichever restarted the VM.
    if smp::start(1, other).is_err() {
        refused.fetch_add(1, SeqCst);
        psci::system_reset();
    }
    if kill_from != 0 && life >= kill_from {
        KILL.store(true, SeqCst);
        while !OTHER_IS_UP.load(SeqCst) {
            core::hint::spin_loop();
        }
        GO.store(true, SeqCst);
        delay(life);
        println!(
            "lives: read {:#x}",
            ram.take_at(FOREIGN, 64)[0].load(SeqCst)
        );
        psci::system_off();
    }
    match life % 3 {
        0 => {
            GO.store(true, SeqCst);
            delay(life);
            psci::system_reset()
        }
        1 => {
            GO.store(true, SeqCst);
            loop {
                core::hint::spin_loop();
            }
        }
        _ => loop {
            // Turned on as soon as it is off, until it restarts the VM.
            GO.store(true, SeqCst);
            let _ = smp::start(1, other);
        },
    }
}

static REFUSED: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);

/// The task of vCPU 1 in most lives.
fn other() {
    OTHER_IS_UP.store(true, SeqCst);
    while !GO.load(SeqCst) {
        core::hint::spin_loop();
    }
    let life = LIFE.load(SeqCst);
    match life % 3 {
        _ if KILL.load(SeqCst) => {
            delay(life.wrapping_mul(5));
            psci::system_reset()
        }
        0 if life.is_multiple_of(2) => psci::cpu_off(),
        2 if TURNS.fetch_add(1, SeqCst) < 3 => psci::cpu_off(),
        _ => {
            delay(life.wrapping_mul(7));
            psci::system_reset()
        }
    }
}

/// A little time, other in each life.
fn delay(life: u64) {
    for _ in 0..life.wrapping_mul(0x9e37_79b9) % 257 {
        core::hint::spin_loop();
    }
}

fn turn_the_first_on() {
    while psci::affinity_info(0) != Ok(Affinity::Off) {
        core::hint::spin_loop();
    }
    // Its context is its number, not the first argument of the VM.
    if let Err(error) = smp::start(0, report) {
        println!("lives: vCPU 0: {error}");
        psci::system_off();
    }
}

fn report() {
    println!(
        "lives: done lives={} refused={}",
        LIFE.load(SeqCst),
        REFUSED.load(SeqCst)
    );
    psci::system_off();
}
