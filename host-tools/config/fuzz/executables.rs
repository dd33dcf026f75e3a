//! Fuzz target: any ELF file is refused, or can be loaded and started.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

#[path = "../tests/executables/files.rs"]
mod files;

use files::{HEADER, PROGRAM_HEADER};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| {
    files::check(data);
});

// The fuzzer's own changes, or else a change in a good file's headers: most of what it makes from
// nothing is no ELF file.
fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
    let good = files::good();
    if seed % 16 > 0 || good.len() > most {
        return fuzzer_mutate(data, size, most);
    }
    data[..good.len()].copy_from_slice(&good);
    let headers = HEADER + 4 * PROGRAM_HEADER;
    let at = HEADER / 4 + (seed as usize / 16) % (headers - HEADER / 4);
    fuzzer_mutate(&mut data[at..headers], headers - at, headers - at);
    good.len()
});
