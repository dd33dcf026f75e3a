//! Chains of pointers through a buffer's lines.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_benchmarks::random::Random;
use cloison_guest::ram::LINE_WORDS;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Links the lines into one cycle in the order of their reversed numbers, as ramlat does: each line
/// is far from the one before. The number of lines must be a power of two. Returns it.
pub fn link_reversed(buffer: &[AtomicU64]) -> u64 {
    let lines = buffer.len() / LINE_WORDS;
    let unused_bits = usize::BITS - lines.trailing_zeros();
    let at = |step: usize| {
        let reversed = (step % lines).reverse_bits().unbounded_shr(unused_bits);
        &buffer[reversed * LINE_WORDS]
    };
    for step in 0..lines {
        at(step).store(at(step + 1).as_ptr().expose_provenance() as u64, Relaxed);
    }
    lines as u64
}

/// Links the lines into one random cycle (Sattolo, 1986). Returns their number.
pub fn link(buffer: &[AtomicU64], seed: u64) -> u64 {
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
    lines as u64
}
