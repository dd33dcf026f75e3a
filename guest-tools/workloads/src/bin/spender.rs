//! Spender: works under a quota, and tries to gain budget: by stopping and starting, by work of EL2
//! on its behalf, and by accesses past the caches.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::psci::{self, Affinity};
use cloison_guest::ram::{LINE_WORDS, Ram};
use cloison_guest::{arg, args, call, entry, model, println, smp, timer};
use cloison_workloads::{PROFILED, SURVIVOR};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use spin::Once;

entry!(main);

/// Marks valid counters after it.
const MAGIC: u64 = u64::from_le_bytes(*b"spender!");
/// Turns of the loop between two looks at what to do.
const CHUNK: u64 = 1000;
/// Chunks after which the guest tries something, so that a budget lasts for about one of them.
const TRY_AFTER: u64 = 20;

/// The guest's attempt, by its second argument.
const RESET: u64 = 1;
const OFF_AND_ON: u64 = 2;
const RESET_BY_SIBLING: u64 = 3;
/// Not a trick: copies pages itself, as many as its first argument says.
const COPY: u64 = 4;
/// Has the hypervisor copy as many, by migrating them back and forth.
const MIGRATE: u64 = 5;
/// Has the hypervisor load its image again, as often as its first argument says.
const RELOAD: u64 = 6;
/// Not a trick: stores to as many lines as its first argument says, in memory twice as large as the
/// shared cache.
const STREAM: u64 = 7;
/// Stores as often to pages that it has made non-cacheable.
const STREAM_UNCACHED: u64 = 8;

/// Words in a page, and pages in `migrate-check.toml`.
const PAGE: usize = 512;
const PAGES: usize = 64;
/// Bytes of the memory for [`STREAM`].
const STREAM_BYTES: u64 = 2 << 20;

/// Survives restarts: magic, when it began, turns done, tries.
static MEMORY: Once<&'static [AtomicU64]> = Once::new();

fn main() {
    let mut ram = Ram::behind_image();
    let pages = ram.take_at(PROFILED, (PAGES * PAGE * 8) as u64);
    let memory = ram.take_at(SURVIVOR, 64);
    if memory[0].load(SeqCst) != MAGIC {
        memory[1].store(timer::now(), SeqCst);
        memory[2].store(0, SeqCst);
        memory[3].store(0, SeqCst);
        memory[0].store(MAGIC, SeqCst);
    }
    MEMORY.call_once(|| memory);
    let sibling: Option<fn()> = match args()[1] {
        COPY | MIGRATE | RELOAD => return move_pages(memory, pages),
        STREAM => return stream(memory, ram.take(STREAM_BYTES)),
        STREAM_UNCACHED => {
            return match call::set_cacheable(PROFILED, PAGES as u64, false) {
                Ok(()) => stream(memory, pages),
                Err(error) => println!("spender: {error:?}"),
            };
        }
        OFF_AND_ON => Some(turn_on_again),
        RESET_BY_SIBLING => Some(reset_when_held),
        _ => None,
    };
    if let Some(program) = sibling
        && let Err(error) = smp::start(1, program)
    {
        println!("spender: vCPU 1: {error}");
        psci::system_off();
    }
    work();
}

fn work() {
    let Some(memory) = MEMORY.get() else { return };
    let (turns, what) = (arg(0, 200_000), args()[1]);
    let (done, tries) = (&memory[2], &memory[3]);
    let mut chunks = 0;
    while done.load(SeqCst) < turns {
        for _ in 0..CHUNK {
            core::hint::spin_loop();
        }
        done.fetch_add(CHUNK, SeqCst);
        chunks += 1;
        if chunks == TRY_AFTER && done.load(SeqCst) < turns {
            match what {
                RESET => {
                    tries.fetch_add(1, SeqCst);
                    psci::system_reset();
                }
                OFF_AND_ON => {
                    tries.fetch_add(1, SeqCst);
                    psci::cpu_off();
                }
                _ => chunks = 0,
            }
        }
    }
    report(memory);
}

fn report(memory: &[AtomicU64]) {
    let ticks = timer::now() - memory[1].load(SeqCst);
    let micros = ticks * 1_000_000 / timer::frequency();
    memory[0].store(0, SeqCst);
    println!(
        "spender: what={} us={micros} tries={}",
        args()[1],
        memory[3].load(SeqCst)
    );
    psci::system_off();
}

/// Moves memory, by copying it or without doing so itself.
fn move_pages(memory: &[AtomicU64], pages: &[AtomicU64]) {
    let (wanted, done, tries) = (arg(0, 1000), &memory[2], &memory[3]);
    while done.load(SeqCst) < wanted {
        tries.fetch_add(1, SeqCst);
        let moved = match args()[1] {
            RELOAD => {
                done.fetch_add(1, SeqCst);
                psci::system_reset()
            }
            MIGRATE => call::migrate(PAGES as u64).and_then(|there| Ok(there + call::restore()?)),
            _ => {
                let (from, to) = pages.split_at(PAGES / 2 * PAGE);
                for (from, to) in from
                    .as_chunks::<LINE_WORDS>()
                    .0
                    .iter()
                    .zip(to.as_chunks::<LINE_WORDS>().0)
                {
                    for word in 0..LINE_WORDS {
                        to[word].store(from[word].load(Relaxed), Relaxed);
                    }
                }
                Ok(PAGES as u64 / 2)
            }
        };
        match moved {
            Ok(moved) => done.fetch_add(moved, SeqCst),
            Err(error) => {
                println!("spender: {error:?}");
                psci::system_off()
            }
        };
    }
    report(memory);
}

/// Stores one word to each line of `buffer`, again and again. What came before counts neither as
/// time nor for the board model.
fn stream(memory: &[AtomicU64], buffer: &[AtomicU64]) {
    let stores = arg(0, 65_536);
    model::begin_region();
    memory[1].store(timer::now(), SeqCst);
    for (line, value) in buffer
        .as_chunks::<LINE_WORDS>()
        .0
        .iter()
        .cycle()
        .zip(0..stores)
    {
        line[0].store(value, Relaxed);
    }
    report(memory);
}

fn turn_on_again() {
    loop {
        if psci::affinity_info(0) == Ok(Affinity::Off) {
            let _ = smp::start(0, work);
        }
    }
}

/// Restarts the VM whenever vCPU 0 has done nothing for 100 µs, until all is done.
fn reset_when_held() {
    let Some(memory) = MEMORY.get() else { return };
    let (turns, limit) = (arg(0, 200_000), timer::micros(100));
    let (mut seen, mut since) = (memory[2].load(SeqCst), timer::now());
    loop {
        let done = memory[2].load(SeqCst);
        if done >= turns || done != seen {
            (seen, since) = (done, timer::now());
        } else if timer::now() - since > limit {
            memory[3].fetch_add(1, SeqCst);
            psci::system_reset();
        }
    }
}
