//! Flood: prints without end, with bytes in each line that would move a terminal's cursor or make it answer.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::{arg, args, entry, println};

entry!(main);

/// Text that fills a line.
const FILLER: &str = "the quick brown fox jumps over the lazy dog, the quick brown fox jumps over the lazy dog again";

fn main() {
    let lines = args()[0];
    let filler = &FILLER[..(arg(1, 64) as usize).min(FILLER.len())];
    let mut line = 0u64;
    while lines == 0 || line < lines {
        line += 1;
        // Asks where the cursor is, and takes the last letter back.
        println!("flood {line} \x1b[6n{filler}!\x08");
    }
    println!("flood: done lines={line}");
}
