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

global_asm!(concat!(
    "    .section .text.benchmarks, \"ax\"\n",
    cloison_assembly::load_lines!("hello_load_lines"),
    cloison_assembly::store_lines!("hello_store_lines"),
    cloison_assembly::branches!("hello_branches"),
));
