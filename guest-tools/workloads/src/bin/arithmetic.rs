//! Arithmetic: loads operands from a level of the memory, computes, and stores results (the
//! benchmarks of MUCH, table 2).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_benchmarks::random::Random;
use cloison_guest::ram::{LINE, Ram};
use cloison_guest::{arg, args, entry, println, segment};
use cloison_workloads::{PROFILED, id};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// The routines in assembly: their loop has 13 instructions, two loads and a store among them.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // routine(results, mask, steps, state, operands, from): in each step, an operand from a random
    // place and a result of the next line, at first that at `from`, make a new result there.
    // `mask` keeps offsets within half of the buffer; `state` is that of a xorshift generator
    // (Marsaglia, 2003), which is returned. give_way(): on the board model, outside of regions
    // of interest, a core that never waits is interrupted every 100 ms only. A core ignores it.
    global_asm!(
        r#"
    .macro  arithmetic name, operation, result, operand
    .balign 64
    .global \name
\name:
    mov     x6, x5
1:  eor     x3, x3, x3, lsl #13
    eor     x3, x3, x3, lsr #7
    eor     x3, x3, x3, lsl #17
    and     x7, x3, x1
    ldr     \operand, [x4, x7]
    ldr     \result, [x0, x6]
    \operation \result, \result, \operand
    str     \result, [x0, x6]
    add     x6, x6, #64
    and     x6, x6, x1
    subs    x2, x2, #1
    b.ne    1b
    mov     x0, x3
    ret
    .endm

    .section .text.arithmetic, "ax"
    .global give_way
give_way:
    yield
    ret
    arithmetic add_int, add, w8, w9
    arithmetic add_long, add, x8, x9
    arithmetic mul_int, mul, w8, w9
    arithmetic mul_long, mul, x8, x9
    arithmetic div_int, sdiv, w8, w9
    arithmetic div_long, sdiv, x8, x9

    .arch_extension fp
    arithmetic add_float, fadd, s0, s1
    arithmetic add_double, fadd, d0, d1
    arithmetic mul_float, fmul, s0, s1
    arithmetic mul_double, fmul, d0, d1
    arithmetic div_float, fdiv, s0, s1
    arithmetic div_double, fdiv, d0, d1
    .arch_extension nofp

    // CPACR_EL1.FPEN (Arm ARM D19.2.30): floating point at EL1 does not trap. The runtime uses
    // none.
    .global enable_floating_point
enable_floating_point:
    mrs     x0, cpacr_el1
    orr     x0, x0, #(3 << 20)
    msr     cpacr_el1, x0
    isb
    ret
    "#
    );
}

type Routine = unsafe extern "C" fn(
    results: u64,
    mask: u64,
    steps: u64,
    state: u64,
    operands: u64,
    from: u64,
) -> u64;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn add_int(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn add_long(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn add_float(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn add_double(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64)
    -> u64;
    fn mul_int(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn mul_long(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn mul_float(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn mul_double(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64)
    -> u64;
    fn div_int(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn div_long(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn div_float(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64) -> u64;
    fn div_double(results: u64, mask: u64, steps: u64, state: u64, operands: u64, from: u64)
    -> u64;
    /// Lets floating point instructions execute.
    safe fn enable_floating_point();
    safe fn give_way();
}

/// Types of operands by the hundreds of argument 0, operations by its tens: their letters, and the
/// routines.
const ROUTINES: [(&str, [Routine; 3]); 4] = [
    ("I", [add_int, mul_int, div_int]),
    ("L", [add_long, mul_long, div_long]),
    ("F", [add_float, mul_float, div_float]),
    ("D", [add_double, mul_double, div_double]),
];
const OPERATIONS: [&str; 3] = ["ADD", "MUL", "DIV"];
/// Levels of the memory by the ones of argument 0, and the bytes of the buffer: half of a
/// Cortex-A53's L1 data cache, a quarter of its L2, and four times its L2.
const LEVELS: [(&str, u64); 3] = [("DL1", 16 << 10), ("UL2", 256 << 10), ("MEM", 4 << 20)];

/// Steps of a run where the arguments say nothing.
const STEPS: u64 = 8000;
/// Steps of an endless run until it gives way.
const TURN: u64 = 64;
/// What each word of a fresh buffer holds: 1.0 as a double, and in its lower half 1.0 as a float.
const ONES: u64 = 0x3ff0_0000_3f80_0000;

/// A benchmark, by its number.
#[derive(Clone, Copy, Debug)]
struct Benchmark {
    kind: usize,
    operation: usize,
    level: usize,
}

impl Benchmark {
    fn from_number(number: u64) -> Option<Self> {
        let digit = |of: u64, below: usize| usize::try_from(of).ok().filter(|&digit| digit < below);
        let kind = digit(number / 100, ROUTINES.len())?;
        let operation = digit(number / 10 % 10, OPERATIONS.len())?;
        Some(Self {
            kind,
            operation,
            level: digit(number % 10, LEVELS.len())?,
        })
    }
}

/// Makes `steps` steps of a benchmark from a line on, and returns the generator's state after them.
#[allow(unsafe_code)]
fn perform(benchmark: Benchmark, buffer: &[AtomicU64], line: u64, steps: u64, state: u64) -> u64 {
    let half = buffer.len() as u64 * 4;
    let start = buffer.as_ptr().expose_provenance() as u64;
    let routine = ROUTINES[benchmark.kind].1[benchmark.operation];
    // SAFETY: both halves are `half` bytes of atomic words, a power of two; the mask keeps offsets
    // below it and at words' starts; `steps` is not 0, and floating point is enabled.
    unsafe {
        routine(
            start,
            half - 8,
            steps,
            state,
            start + half,
            (line * LINE) & (half - 1),
        )
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, operation, level) = (
            ROUTINES[self.kind].0,
            OPERATIONS[self.operation],
            LEVELS[self.level].0,
        );
        write!(f, "{kind}{operation}_{level}")
    }
}

fn main() {
    let number = args()[0];
    let (steps, seed, runs) = (arg(1, STEPS), args()[2], args()[3]);
    let Some(benchmark) = Benchmark::from_number(number) else {
        println!(
            "arithmetic: {number} is no benchmark: type 0 to 3, operation 0 to 2, level 0 to 2"
        );
        return;
    };
    let bytes = LEVELS[benchmark.level].1;
    let mut ram = Ram::behind_image();
    let buffer = ram.take_at(PROFILED, bytes);
    let [filled, ..] = ram.take(8) else { return };
    // What an earlier life left is as good, and writing 4 MiB takes longer than most runs.
    if filled.load(Relaxed) != bytes {
        buffer.iter().for_each(|word| word.store(ONES, Relaxed));
        filled.store(bytes, Relaxed);
    }
    enable_floating_point();
    let mut state = Random::new(seed).bits() | 1;
    println!("arithmetic: {benchmark} bytes={bytes} steps={steps} seed={seed} runs={runs}");
    if runs == 0 {
        for part in 0.. {
            state = perform(benchmark, buffer, part * TURN, TURN, state);
            give_way();
        }
    }
    for run in 0..runs {
        let measured = segment::measure(id::ARITHMETIC, number as u32, run as u32, || {
            state = perform(benchmark, buffer, 0, steps, state);
        });
        println!("arithmetic: run={run} {measured}");
    }
}
