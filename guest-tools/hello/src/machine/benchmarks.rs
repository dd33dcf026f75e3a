//! Benchmarks whose counts are known: those of the same names in `configs/validation`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::loaded::{BLOCK, BUFFER_BLOCKS};
use core::arch::global_asm;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Turns of the branches.
const TURNS: u64 = 100_000;

/// A benchmark.
pub struct Benchmark {
    /// Its name in `configs/validation`.
    pub name: &'static str,
    /// Bytes of the buffer that it uses.
    pub bytes: u64,
    /// What it does with the buffer, at its address.
    pub run: fn(u64),
}

/// All benchmarks.
pub const ALL: [Benchmark; 4] = [
    Benchmark {
        name: "nothing",
        bytes: 0,
        run: |_| (),
    },
    Benchmark {
        name: "load-stream",
        bytes: BUFFER_BLOCKS * BLOCK,
        // SAFETY: reads the buffer.
        run: |buffer| unsafe { hello_load_lines(buffer, BUFFER_BLOCKS * BLOCK / LINE) },
    },
    Benchmark {
        name: "store-stream",
        bytes: BUFFER_BLOCKS * BLOCK,
        // SAFETY: writes to the buffer, which nothing else uses.
        run: |buffer| unsafe { hello_store_lines(buffer, BUFFER_BLOCKS * BLOCK / LINE) },
    },
    Benchmark {
        name: "branches",
        bytes: 0,
        run: |_| hello_branches(TURNS),
    },
];

unsafe extern "C" {
    /// Loads 8 bytes of each line: 3 instructions a line, and one.
    fn hello_load_lines(address: u64, lines: u64);
    /// Stores 8 bytes to each line: as many instructions.
    fn hello_store_lines(address: u64, lines: u64);
    /// Branches: 7 instructions a turn, and 3.
    safe fn hello_branches(turns: u64);
}

// The same instructions as those of the workload `known-counts`.
global_asm!(
    r#"
    .section .text.benchmarks, "ax"
    .balign 64
    .global hello_load_lines
hello_load_lines:
    ldr     x2, [x0], #64
    subs    x1, x1, #1
    b.ne    hello_load_lines
    ret

    .balign 64
    .global hello_store_lines
hello_store_lines:
    str     xzr, [x0], #64
    subs    x1, x1, #1
    b.ne    hello_store_lines
    ret

    .balign 64
    .global hello_branches
hello_branches:
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
    "#
);
