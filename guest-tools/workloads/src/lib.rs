//! Code shared by the workloads: their numbers in the HEM log, their fixed addresses, and the loop
//! that runs a benchmark.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

pub mod chain;
pub mod stamping;
pub mod stamps;

use cloison_benchmarks::{Kernel, Size};
use cloison_guest::abi::map;
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, println, segment};

/// Workload numbers of observation segments in the HEM log.
pub mod id {
    #![allow(missing_docs)]
    pub const INTERF: u32 = 1;
    pub const STAIRCASE: u32 = 2;
    pub const C2IS: u32 = 3;
    pub const MATRIX_COPY: u32 = 4;
    pub const LATENCY: u32 = 5;
    pub const DISPARITY: u32 = 6;
    pub const SEGMENTATION: u32 = 7;
    pub const MATMUL: u32 = 8;
    pub const CACHEABILITY_CHECK: u32 = 9;
    pub const MEMORY: u32 = 10;
    pub const KNOWN_COUNTS: u32 = 11;
    pub const ARITHMETIC: u32 = 12;
    pub const FRAMES: u32 = 13;
    pub const CHANNEL: u32 = 14;
}

/// IPA of the buffers named by page profiles: 256 pages into the RAM.
pub const PROFILED: u64 = map::RAM + (1 << 20);
/// IPA of the counter that survives restarts.
pub const SURVIVOR: u64 = map::RAM + (8 << 20);

/// Runs a benchmark according to its arguments: size of the input, number of runs, seed. Each run
/// is a segment.
pub fn repeat<K: Kernel>(id: u32) {
    let (number, runs, seed) = (arg(0, 1), arg(1, 1), args()[2]);
    let Some(size) = Size::from_number(number) else {
        println!("{}: sizes are 1, 2 and 3, not {number}", K::NAME);
        return;
    };
    let kernel = K::new(size);
    let memory = Ram::behind_image().take_words_at(PROFILED, kernel.words());
    let bytes = memory.len() * 4;
    println!(
        "{}: size={number} input={kernel} bytes={bytes} at={PROFILED:#x} runs={runs} seed={seed}",
        K::NAME
    );
    kernel.prepare(memory, seed);
    let mut first = None;
    for run in 0..runs {
        let measured = segment::measure(id, number as u32, run as u32, || kernel.run(memory));
        let checksum = kernel.checksum(memory);
        let verdict = if *first.get_or_insert(checksum) == checksum {
            "ok"
        } else {
            "WRONG"
        };
        println!(
            "{}: run={run} {measured} checksum={checksum:#018x} {verdict}",
            K::NAME
        );
    }
}
