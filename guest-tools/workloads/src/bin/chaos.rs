//! Chaos: three vCPUs that make random calls and accesses at random moments, over many lives of
//! their VM.
//!
//! Seed, life and vCPU determine the steps; the machine determines how they interleave. One vCPU of
//! each life, the anchor, never turns itself off, so that the VM ends only on an order.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::{irq, map, psci as function};
use cloison_guest::mmio::{GICC, GICD};
use cloison_guest::probe::{self, Op};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, call, cpu, entry, gic, println, psci, smp, timer};
use cloison_workloads::{PROFILED, SURVIVOR};
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use spin::Once;

entry!(main);

/// Marks valid counters after it.
const MAGIC: u64 = u64::from_le_bytes(*b"chaotic!");
const VCPUS: usize = 3;
/// Words in a page, and pages of the profile `migrate-check.toml`.
const PAGE_WORDS: usize = 512;
const PAGES: usize = 64;
/// Bytes in a page, and pages of RAM.
const PAGE: u64 = 4096;
const RAM_PAGES: u64 = 4096;
/// First frame after the VM's RAM.
const FOREIGN: u64 = map::RAM + RAM_PAGES * PAGE;

/// Counts of all lives, in memory that survives restarts.
struct Counts {
    lives: &'static AtomicU64,
    steps: &'static AtomicU64,
    corrupt: &'static AtomicU64,
    moved: &'static AtomicU64,
    resets: &'static AtomicU64,
    starts: &'static AtomicU64,
}

static COUNTS: Once<Counts> = Once::new();
/// The pages that move. Each word holds its own position.
static MEMORY: Once<&'static [AtomicU64]> = Once::new();
static ANCHOR: AtomicUsize = AtomicUsize::new(0);
static ANCHOR_IS_UP: AtomicBool = AtomicBool::new(false);

fn main() {
    let (seed, lives) = (args()[0], arg(1, 20));
    let mut ram = Ram::behind_image();
    let memory = ram.take_at(PROFILED, (PAGES * PAGE_WORDS * 8) as u64);
    let [magic, lived, steps, corrupt, moved, resets, starts, ..] = ram.take_at(SURVIVOR, 64)
    else {
        return;
    };
    if magic.load(SeqCst) != MAGIC {
        for count in [lived, steps, corrupt, moved, resets, starts] {
            count.store(0, SeqCst);
        }
        for (position, word) in memory.iter().enumerate() {
            word.store(position as u64, Relaxed);
        }
        println!("chaos: seed={seed} lives={lives} pool={}", pages_taken());
        magic.store(MAGIC, SeqCst);
    }
    // What moved in former lives is home again, and as it was.
    corrupt.fetch_add(
        memory
            .iter()
            .enumerate()
            .map(|(at, word)| wrong(at, word))
            .sum(),
        SeqCst,
    );
    if lived.load(SeqCst) >= lives {
        let [steps, corrupt, moved, resets, starts] =
            [steps, corrupt, moved, resets, starts].map(|count| count.load(SeqCst));
        println!(
            "chaos: done lives={lives} steps={steps} corrupt={corrupt} moved={moved} \
             resets={resets} starts={starts} pool={}",
            pages_taken()
        );
        psci::system_off();
    }
    let life = lived.fetch_add(1, SeqCst) + 1;
    MEMORY.call_once(|| memory);
    COUNTS.call_once(|| Counts {
        lives: lived,
        steps,
        corrupt,
        moved,
        resets,
        starts,
    });
    gic::init_distributor();
    let anchor = life as usize % VCPUS;
    ANCHOR.store(anchor, SeqCst);
    if anchor != 0 {
        while let Err(error) = smp::start(anchor, steps_of_a_life) {
            println!("chaos: life {life}: anchor {anchor}: {error}");
        }
        while !ANCHOR_IS_UP.load(SeqCst) {
            core::hint::spin_loop();
        }
    }
    steps_of_a_life();
    // Returning would turn the VM off.
    psci::cpu_off();
}

/// Returns the number of frames that the VM has from its private pool.
fn pages_taken() -> u64 {
    call::private_pool().map_or(u64::MAX, |pool| pool.taken)
}

/// Returns 1 if a word of the pages that move does not hold its position.
fn wrong(at: usize, word: &AtomicU64) -> u64 {
    u64::from(word.load(Relaxed) != at as u64)
}

/// The steps of every vCPU until it turns itself off or a life ends.
fn steps_of_a_life() {
    let (Some(counts), Some(memory)) = (COUNTS.get(), MEMORY.get()) else {
        return;
    };
    let me = cpu::current();
    let is_anchor = me == ANCHOR.load(SeqCst);
    if is_anchor {
        ANCHOR_IS_UP.store(true, SeqCst);
    }
    let start = counts.starts.fetch_add(1, SeqCst);
    // The anchor's life is its own; the others start many times in one.
    let life = counts.lives.load(SeqCst);
    let nonce = if is_anchor { 0 } else { start };
    let mut random = Random::new(args()[0] ^ life << 8 ^ nonce << 24 ^ me as u64);
    let steps = arg(2, 400);
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    for _ in 0..steps {
        counts.steps.fetch_add(1, SeqCst);
        let at = random.below((PAGES * PAGE_WORDS) as u64) as usize;
        counts.corrupt.fetch_add(wrong(at, &memory[at]), SeqCst);
        step(&mut random, counts);
        // Not the anchor: the VM would end with the last vCPU.
        if !is_anchor && random.below(32) == 0 {
            return;
        }
        if random.below(4 * steps) == 0 {
            reset(counts);
        }
        for _ in 0..random.below(256) {
            core::hint::spin_loop();
        }
    }
    if is_anchor {
        reset(counts);
    }
}

fn reset(counts: &Counts) -> ! {
    counts.resets.fetch_add(1, SeqCst);
    psci::system_reset()
}

fn step(random: &mut Random, counts: &Counts) {
    match random.below(12) {
        0 | 1 => power(random),
        2 => interrupt(random),
        3 | 4 => distributor(random),
        5 => interface(random),
        6 | 7 => migrate(random, counts),
        8 => cacheability(random),
        9 => other_calls(random),
        10 => foreign(random),
        _ => timer::arm(timer::now() + timer::micros(random.below(50))),
    }
}

/// Turns a vCPU on, or tries to; asks for states.
#[allow(unsafe_code)]
fn power(random: &mut Random) {
    let target = random.below(VCPUS as u64) as usize;
    match random.below(4) {
        // An anchor that has not come up yet must not be turned on by another vCPU: it is on or
        // about to be.
        0 | 1 => {
            let _ = smp::start(target, steps_of_a_life);
        }
        2 => {
            let _ = psci::affinity_info(random.below(8) as usize);
        }
        _ => {
            let target = VCPUS as u64 + random.below(300);
            // SAFETY: the VM has no such vCPU, so nothing starts.
            unsafe {
                call::hvc(
                    function::CPU_ON_64,
                    [target, random.bits(), random.bits(), 0, 0, 0],
                )
            };
        }
    }
}

/// Sends software-generated interrupts, and takes what has arrived by polling: interrupts stay
/// masked.
fn interrupt(random: &mut Random) {
    for _ in 0..random.below(4) {
        let (filter, targets, sgi) = (random.below(4), random.below(8), random.below(16));
        if gic::is_v3() {
            system_register(ICC_SGI1R, (filter & 1) << 40 | sgi << 24 | targets);
        } else {
            GICD.write(0xf00, (filter << 24 | targets << 16 | sgi) as u32);
        }
    }
    for _ in 0..random.below(8) {
        let Some(interrupt) = gic::acknowledge() else {
            break;
        };
        if interrupt.id() == irq::VTIMER {
            timer::disarm();
        }
        gic::end(interrupt);
    }
}

/// Accesses the distributor anywhere, at any width.
#[allow(unsafe_code)]
fn distributor(random: &mut Random) {
    let ops = Op::OF_DEVICES;
    for _ in 0..random.below(8) {
        let offset = if random.below(2) == 0 {
            random.below(0x1000)
        } else {
            random.below(0x400) * 4
        };
        let op = ops[random.below(ops.len() as u64) as usize];
        // SAFETY: a device of this VM, which nothing here depends on.
        let _ = unsafe { probe::access(op, GICD.address(offset), random.bits()) };
    }
    if random.below(4) == 0 {
        gic::init_distributor();
        gic::enable(irq::VTIMER);
    }
}

/// `msr icc_sgi1r_el1, x0`.
const ICC_SGI1R: u32 = 0xd518_cba0;
/// The same for other registers of a GICv3: EOIR1, DIR, PMR, IAR1 and HPPIR1, which are read, and
/// CTLR.
const INTERFACE: [u32; 6] = [
    0xd518_cc20,
    0xd518_cb20,
    0xd518_4600,
    0xd538_cc00,
    0xd538_cc40,
    0xd518_cc80,
];

/// Accesses a system register of a GICv3.
#[allow(unsafe_code)]
fn system_register(instruction: u32, value: u64) {
    // SAFETY: changes which interrupts arrive, and all of them are masked.
    let _ = unsafe { probe::execute(instruction, value) };
}

/// Acknowledges and ends interrupts in the wrong order, and writes nonsense.
fn interface(random: &mut Random) {
    for _ in 0..random.below(8) {
        if gic::is_v3() {
            let number = random.below(INTERFACE.len() as u64);
            system_register(INTERFACE[number as usize], random.below(1024));
            continue;
        }
        match random.below(6) {
            0 => GICC.write(0x10, random.below(1024) as u32),
            1 => GICC.write(0x1000, random.below(1024) as u32),
            2 => GICC.write(0x04, random.below(256) as u32),
            3 => _ = GICC.read(0x0c),
            4 => _ = GICC.read(0x18),
            _ => GICC.write(0x00, random.below(1024) as u32),
        }
    }
    gic::init_cpu();
}

fn migrate(random: &mut Random, counts: &Counts) {
    let moved = match random.below(8) {
        0..3 => call::migrate(random.below(PAGES as u64 + 2)),
        3..6 => call::migrate_page(map::RAM + random.below(RAM_PAGES + 1) * PAGE).map(|()| 1),
        _ => call::restore(),
    };
    counts.moved.fetch_add(moved.unwrap_or(0), SeqCst);
}

/// Changes pages of data only: locks in a page that is not cached may wait for ever.
fn cacheability(random: &mut Random) {
    let first = random.below(PAGES as u64 + 1);
    let pages = random.below(PAGES as u64 + 1 - first.min(PAGES as u64));
    let _ = call::set_cacheable(PROFILED + first * PAGE, pages, random.below(2) == 0);
}

#[allow(unsafe_code)]
fn other_calls(random: &mut Random) {
    match random.below(8) {
        0 => _ = call::identify(),
        1 => _ = call::time(),
        2 => _ = call::segment_begin(random.below(4) as u32, 0, 0),
        3 => _ = call::segment_end(),
        4 => _ = call::hem_read(random.below(3)),
        5 => _ = call::quota_read(random.below(2)),
        6 => println!(
            "chaos: vCPU {} in life {}",
            cpu::current(),
            COUNTS.get().map_or(0, |counts| counts.lives.load(SeqCst))
        ),
        _ => {
            // SAFETY: not a function that exists.
            _ = unsafe {
                call::hvc(
                    0xc600_0100 | random.bits() as u32 & 0xff,
                    [random.bits(); 6],
                )
            }
        }
    }
}

/// Accesses what the VM does not have, and executes what traps.
#[allow(unsafe_code)]
fn foreign(random: &mut Random) {
    /// `dc isw`, `dc csw`, `mrs pmcr_el0`, `mrs id_aa64pfr0_el1`, `msr actlr_el1`, and `yield`,
    /// which does not trap.
    const TRAPPED: [u32; 6] = [
        0xd508_7640,
        0xd508_7a40,
        0xd53b_9c00,
        0xd538_0400,
        0xd518_1020,
        0xd503_203f,
    ];
    let address = FOREIGN + random.below(1 << 27) * 8;
    // SAFETY: past the VM's RAM there is nothing; the instructions change x0 at most.
    unsafe {
        match random.below(4) {
            0 => _ = probe::access(Op::LoadDouble, address, 0),
            1 => _ = probe::access(Op::StoreWord, address, random.bits()),
            2 => _ = probe::jump(address, 0, 0),
            _ => _ = probe::execute(TRAPPED[random.below(TRAPPED.len() as u64) as usize], 0),
        }
    }
}
