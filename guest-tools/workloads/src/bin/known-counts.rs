//! Known counts: benchmarks whose event counts follow from their instructions and from caches that are empty at first.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_benchmarks::random::Random;
use cloison_guest::ram::{LINE, LINE_WORDS, PAGE, Ram};
use cloison_guest::{arg, entry, println, probe, segment};
use cloison_workloads::{PROFILED, id};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

// The sizes are those of `configs/validation/cortex-a53.toml`, which says what each benchmark counts.

/// Bytes of the buffer: four times the L2 of a Cortex-A53.
const BUFFER: u64 = 4 << 20;
/// Loads per iteration of the chase.
const UNROLL: u64 = 8;
/// Rounds through a chain that fits the L1, and through one that fits the L2.
const ROUNDS_L1: u64 = 1000;
const ROUNDS_L2: u64 = 10;
/// Calls of the long function.
const CALLS: u64 = 4;
/// Iterations of the branches.
const TURNS: u64 = 100_000;
/// Exceptions that are taken.
const FAULTS: u64 = 10_000;
/// An address that no translation table of the guest maps.
const UNMAPPED: u64 = 1 << 38;

/// The routines in assembly: their comments give the instructions of a call.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // load_lines(address, lines): 3 lines + 1. store_lines: the same. load_pages(address, pages): 4 pages + 1.
    // chase(address, turns): 10 turns + 1. branches(turns): 7 turns + 3. long_function(): 65 536.
    global_asm!(
        r#"
    .section .text.known_counts, "ax"
    .balign 64
load_lines:
    ldr     x2, [x0], #64
    subs    x1, x1, #1
    b.ne    load_lines
    ret

    .balign 64
store_lines:
    str     xzr, [x0], #64
    subs    x1, x1, #1
    b.ne    store_lines
    ret

    .balign 64
load_pages:
    ldr     x2, [x0]
    add     x0, x0, #4096
    subs    x1, x1, #1
    b.ne    load_pages
    ret

    .balign 64
chase_lines:
    .rept   8
    ldr     x0, [x0]
    .endr
    subs    x1, x1, #1
    b.ne    chase_lines
    ret

    .balign 64
branches:
    mov     x9, x30
1:  b       2f
    nop
2:  tbz     x0, #63, 3f
    nop
3:  cbz     x0, 4f
4:  bl      5f
    subs    x0, x0, #1
    b.ne    1b
    mov     x30, x9
    ret
5:  ret

    .balign 64
long_function:
    .rept   64 * 1024 - 1
    nop
    .endr
    ret
    "#
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn load_lines(address: u64, lines: u64);
    fn store_lines(address: u64, lines: u64);
    fn load_pages(address: u64, pages: u64);
    fn chase_lines(address: u64, turns: u64);
    /// Branches, `turns` times; at least once.
    safe fn branches(turns: u64);
    /// Executes 65535 `nop`s.
    safe fn long_function();
}

/// A benchmark's name, and what it does with the buffer.
type Benchmark = (&'static str, fn(&[AtomicU64]));

/// The benchmarks; their numbers are those of the sub-experiments in the log.
const BENCHMARKS: [Benchmark; 10] = [
    ("nothing", |_| ()),
    ("load-stream", |buffer| on(buffer, BUFFER / LINE, load_lines)),
    ("store-stream", |buffer| on(buffer, BUFFER / LINE, store_lines)),
    ("chase-l1", |buffer| on(buffer, lines(CHAIN_L1) * ROUNDS_L1 / UNROLL, chase_lines)),
    ("chase-l2", |buffer| on(buffer, lines(CHAIN_L2) * ROUNDS_L2 / UNROLL, chase_lines)),
    ("chase-memory", |buffer| on(buffer, lines(BUFFER) / UNROLL, chase_lines)),
    ("long-function", |_| (0..CALLS).for_each(|_| long_function())),
    ("branches", |_| branches(TURNS)),
    ("pages", |buffer| on(buffer, BUFFER / PAGE, load_pages)),
    ("exceptions", |_| (0..FAULTS).for_each(|_| fault())),
];

/// Bytes of the chains of pointers, by the benchmark that follows them.
const CHAIN_L1: u64 = 16 << 10;
const CHAIN_L2: u64 = 256 << 10;

const fn lines(bytes: u64) -> u64 {
    bytes / LINE
}

/// Calls a routine with the buffer's address.
#[allow(unsafe_code)]
fn on(buffer: &[AtomicU64], times: u64, routine: unsafe extern "C" fn(u64, u64)) {
    // SAFETY: the routines access one word of each line, of each page, or along a chain that `link` laid; all are in the
    // buffer, whose words are atomic, and every `times` is at least 1.
    unsafe { routine(buffer.as_ptr().expose_provenance() as u64, times) }
}

/// Takes an exception to EL1, and returns from it.
#[allow(unsafe_code)]
fn fault() {
    // SAFETY: nothing is at this address.
    let read = unsafe { probe::read(UNMAPPED) };
    assert!(read.is_err(), "{UNMAPPED:#x} is mapped");
}

fn main() {
    let runs = arg(0, 1);
    let buffer = Ram::behind_image().take_at(PROFILED, BUFFER);
    println!("known-counts: benchmarks={} runs={runs}", BENCHMARKS.len());
    for (number, (name, benchmark)) in BENCHMARKS.iter().enumerate() {
        for run in 0..runs {
            match *name {
                "chase-l1" => link(&buffer[..(CHAIN_L1 / 8) as usize], run),
                "chase-l2" => link(&buffer[..(CHAIN_L2 / 8) as usize], run),
                "chase-memory" => link(buffer, run),
                _ => {}
            }
            let measured = segment::measure(id::KNOWN_COUNTS, number as u32, run as u32, || benchmark(buffer));
            println!("known-counts: benchmark={name} run={run} {measured}");
        }
    }
}

/// Links the lines into one random cycle (Sattolo, 1986).
fn link(buffer: &[AtomicU64], seed: u64) {
    let lines = buffer.len() / LINE_WORDS;
    let first = |line: usize| &buffer[line * LINE_WORDS];
    for line in 0..lines {
        first(line).store(first(line).as_ptr().expose_provenance() as u64, Relaxed);
    }
    let mut random = Random::new(seed);
    for line in (1..lines).rev() {
        let other = random.below(line as u64) as usize;
        let swapped = first(line).swap(first(other).load(Relaxed), Relaxed);
        first(other).store(swapped, Relaxed);
    }
}
