//! Flood: prints without end, with bytes in each line that would move a terminal's cursor or make
//! it answer, and has the hypervisor print.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::CallError;
use cloison_guest::{arg, args, call, entry, println};

entry!(main);

/// Text that fills a line.
const FILLER: &str = "the quick brown fox jumps over the lazy dog, the quick brown fox jumps over \
                      the lazy dog again";

/// Pages that it wants moved at once: more than its pool is to have.
const PAGES: u64 = 2;
/// Lines end within a title.
const TITLE: u64 = 1;

fn main() {
    let [lines, _, moves, what] = args();
    let full = (0..moves)
        .filter(|_| call::migrate(PAGES) == Err(CallError::PoolFull))
        .count();
    if moves > 0 {
        println!("flood: moves={moves} full={full}");
    }
    // Asks where the cursor is, or begins a title and does not end it.
    let sequence = if what == TITLE { "\x1b]0;" } else { "\x1b[6n" };
    let filler = &FILLER[..(arg(1, 64) as usize).min(FILLER.len())];
    let mut line = 0u64;
    while lines == 0 || line < lines {
        line += 1;
        // Takes the last letter back.
        println!("flood {line} {sequence}{filler}!\x08");
    }
    println!("flood: done lines={line}");
}
