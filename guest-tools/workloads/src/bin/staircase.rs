//! Staircase: five groups of pages, each read more often than the one before (BBProf, section 7.2).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::ram::{LINE_WORDS, PAGE, Ram};
use cloison_guest::{arg, entry, println, segment};
use cloison_workloads::{PROFILED, id};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// Pages of the buffer.
const PAGES: u64 = 100;
/// Number of phases, and how many more pages each skips than the one before.
const PHASES: u64 = 5;
const STEP: u64 = PAGES / PHASES;
/// Iterations per phase at full scale.
const ITERATIONS: u64 = 200;

fn main() {
    let runs = arg(0, 1);
    let scale = arg(1, 1);
    let iterations = (ITERATIONS / scale).max(1);
    let buffer = Ram::behind_image().take_at(PROFILED, PAGES * PAGE);
    for (index, word) in buffer.iter().enumerate() {
        word.store(index as u64, Relaxed);
    }
    println!(
        "staircase: pages={PAGES} at={PROFILED:#x} phases={PHASES} iterations={iterations} \
         runs={runs}"
    );
    for run in 0..runs {
        let mut sum = 0;
        let measured = segment::measure(id::STAIRCASE, 0, run as u32, || {
            for phase in 0..PHASES {
                let part = &buffer[(phase * STEP * PAGE / 8) as usize..];
                for _ in 0..iterations {
                    sum += read(part);
                }
            }
        });
        println!("staircase: run={run} {measured} sum={sum:#x}");
    }
}

/// Loads one word from each cache line. Returns their sum.
fn read(part: &[AtomicU64]) -> u64 {
    part.chunks_exact(LINE_WORDS)
        .fold(0, |sum, line| sum + line[0].load(Relaxed))
}
