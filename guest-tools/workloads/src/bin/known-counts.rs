//! Known counts: benchmarks whose event counts follow from their instructions and from caches that
//! are empty at first.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::irq;
use cloison_guest::ram::{LINE, PAGE, Ram};
use cloison_guest::{arg, cpu, entry, exceptions, gic, println, probe, segment, timer};
use cloison_workloads::{PROFILED, chain, id};
use core::sync::atomic::AtomicU64;

entry!(main);

// The sizes are those of `configs/validation/cortex-a53.toml`, which says what each benchmark
// counts.

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
/// Bytes of a vector that is added.
const VECTOR: u64 = 1 << 20;
/// Microseconds for which the core is idle.
const IDLE: u64 = 5_000;
/// Microseconds for which the core is busy: twice, so that the difference has no part of what is
/// around them.
const BUSY: u64 = 4_000;
const BUSY_LONGER: u64 = 10_000;
/// Exceptions that are taken.
const FAULTS: u64 = 10_000;
/// An address that no translation table of the guest maps.
const UNMAPPED: u64 = 1 << 38;

/// The routines in assembly: their comments give the instructions of a call.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // load_lines(address, lines): 3 lines + 1. store_lines: the same. load_pages(address, pages): 4
    // pages + 1. chase(address, turns): 10 turns + 1. branches(turns): 7 turns + 3.
    // long_function(): 65 536. load_across(address, lines): 4 lines + 1. prefetch_lines,
    // zero_lines: the same. write_lines(address, lines): 6 lines + 1. add_vectors(address,
    // pairs): 6 pairs + 5.
    global_asm!(concat!(
        r#"
    .section .text.known_counts, "ax"
"#,
        cloison_assembly::load_lines!("load_lines"),
        cloison_assembly::store_lines!("store_lines"),
        r#"    .balign 64
    .global load_pages
load_pages:
    ldr     x2, [x0]
    add     x0, x0, #4096
    subs    x1, x1, #1
    b.ne    load_pages
    ret

    .balign 64
    .global load_across
load_across:
    ldr     x2, [x0, #60]
    add     x0, x0, #64
    subs    x1, x1, #1
    b.ne    load_across
    ret

    .balign 64
    .global prefetch_lines
prefetch_lines:
    prfm    pldl1keep, [x0]
    add     x0, x0, #64
    subs    x1, x1, #1
    b.ne    prefetch_lines
    ret

    .balign 64
    .global write_lines
write_lines:
    stp     xzr, xzr, [x0], #16
    stp     xzr, xzr, [x0], #16
    stp     xzr, xzr, [x0], #16
    stp     xzr, xzr, [x0], #16
    subs    x1, x1, #1
    b.ne    write_lines
    ret

    .balign 64
    .global zero_lines
zero_lines:
    dc      zva, x0
    add     x0, x0, #64
    subs    x1, x1, #1
    b.ne    zero_lines
    ret

    // The vectors are 1 MiB apart, and some lines more, so that they are never in the same set of a
    // cache at once. Half of each line is written: a core that writes whole lines may do so without
    // reading them.
    .balign 64
    .global add_vectors
add_vectors:
    add     x3, x0, #0x100, lsl #12
    add     x3, x3, #21 * 64
    add     x4, x0, #0x200, lsl #12
    add     x4, x4, #42 * 64
1:  ldr     x5, [x0], #16
    ldr     x6, [x3], #16
    add     x5, x5, x6
    str     x5, [x4], #16
    subs    x1, x1, #1
    b.ne    1b
    ret

    .balign 64
    .global chase_lines
chase_lines:
    .rept   8
    ldr     x0, [x0]
    .endr
    subs    x1, x1, #1
    b.ne    chase_lines
    ret

"#,
        cloison_assembly::branches!("branches"),
        r#"    .balign 64
    .global long_function
long_function:
    .rept   64 * 1024 - 1
    nop
    .endr
    ret
    "#
    ));
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn load_lines(address: u64, lines: u64);
    fn store_lines(address: u64, lines: u64);
    fn load_pages(address: u64, pages: u64);
    /// Loads 8 bytes across the end of each line.
    fn load_across(address: u64, lines: u64);
    fn prefetch_lines(address: u64, lines: u64);
    /// Writes all of each line.
    fn write_lines(address: u64, lines: u64);
    /// Zeros each line by DC ZVA, whose blocks are as long as lines on all boards.
    fn zero_lines(address: u64, lines: u64);
    /// Adds two vectors of 1 MiB at most into a third: the first of each pair of words.
    fn add_vectors(address: u64, pairs: u64);
    fn chase_lines(address: u64, turns: u64);
    /// Branches, `turns` times; at least once.
    safe fn branches(turns: u64);
    /// Executes 65535 `nop`s.
    safe fn long_function();
}

/// A benchmark's name, and what it does with the buffer.
type Benchmark = (&'static str, fn(&[AtomicU64]));

/// The benchmarks; their numbers are those of the sub-experiments in the log.
const BENCHMARKS: [Benchmark; 18] = [
    ("nothing", |_| ()),
    ("load-stream", |buffer| {
        on(buffer, BUFFER / LINE, load_lines)
    }),
    ("store-stream", |buffer| {
        on(buffer, BUFFER / LINE, store_lines)
    }),
    ("chase-l1", |buffer| {
        on(buffer, lines(CHAIN_L1) * ROUNDS_L1 / UNROLL, chase_lines)
    }),
    ("chase-l2", |buffer| {
        on(buffer, lines(CHAIN_L2) * ROUNDS_L2 / UNROLL, chase_lines)
    }),
    ("chase-memory", |buffer| {
        on(buffer, lines(BUFFER) / UNROLL, chase_lines)
    }),
    ("long-function", |_| {
        (0..CALLS).for_each(|_| long_function())
    }),
    ("branches", |_| branches(TURNS)),
    ("pages", |buffer| on(buffer, BUFFER / PAGE, load_pages)),
    ("exceptions", |_| (0..FAULTS).for_each(|_| fault())),
    ("vector-add", |buffer| on(buffer, VECTOR / 16, add_vectors)),
    ("unaligned", |buffer| {
        on(buffer, BUFFER / LINE - 1, load_across)
    }),
    ("prefetch", |buffer| {
        on(buffer, BUFFER / LINE, prefetch_lines)
    }),
    ("idle", |_| idle()),
    ("busy", |_| busy(BUSY)),
    ("busy-longer", |_| busy(BUSY_LONGER)),
    ("whole-lines", |buffer| {
        on(buffer, BUFFER / LINE, write_lines)
    }),
    ("zero-lines", |buffer| on(buffer, BUFFER / LINE, zero_lines)),
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
    // SAFETY: the routines access words of each line or page, of the vectors, or along a chain that
    // `link` laid; all are in the buffer, whose words are atomic, and every `times` is at least
    // 1.
    unsafe { routine(buffer.as_ptr().expose_provenance() as u64, times) }
}

/// Takes an exception to EL1, and returns from it.
#[allow(unsafe_code)]
fn fault() {
    // SAFETY: nothing is at this address.
    let read = unsafe { probe::read(UNMAPPED) };
    assert!(read.is_err(), "{UNMAPPED:#x} is mapped");
}

/// Waits until the timer's interrupt is pending. Interrupts are masked, so that no handler runs.
fn idle() {
    let until = timer::now() + timer::micros(IDLE);
    timer::arm(until);
    while timer::now() < until {
        cpu::wait_for_interrupt();
    }
    timer::disarm();
}

/// Looks at the clock until a time has passed.
fn busy(micros: u64) {
    let until = timer::now() + timer::micros(micros);
    while timer::now() < until {}
}

fn main() {
    let runs = arg(0, 1);
    let buffer = Ram::behind_image().take_at(PROFILED, BUFFER);
    exceptions::on_interrupt(|_| timer::disarm());
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    println!("known-counts: benchmarks={} runs={runs}", BENCHMARKS.len());
    for (number, (name, benchmark)) in BENCHMARKS.iter().enumerate() {
        for run in 0..runs {
            let linked = match *name {
                "chase-l1" => (CHAIN_L1 / 8) as usize,
                "chase-l2" => (CHAIN_L2 / 8) as usize,
                "chase-memory" => buffer.len(),
                _ => 0,
            };
            chain::link(&buffer[..linked], run);
            // An emulator that translates the loop now does not do so between the start of a
            // segment and of the wait.
            busy(0);
            let measured = segment::measure(id::KNOWN_COUNTS, number as u32, run as u32, || {
                benchmark(buffer)
            });
            // The timer's interrupt is still pending, and would end the next wait at once.
            cpu::unmask_interrupts();
            cpu::mask_interrupts();
            println!("known-counts: benchmark={name} run={run} {measured}");
        }
    }
}
