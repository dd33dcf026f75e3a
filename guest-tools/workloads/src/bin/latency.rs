//! Latency: chases pointers through a buffer in random order; each load returns the address of the
//! next one.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::ram::{LINE, Ram};
use cloison_guest::{arg, args, entry, println, segment};
use cloison_workloads::{PROFILED, chain, id};

entry!(main);

/// Loads per iteration of the loop, so that counting costs little.
const UNROLL: u64 = 8;

/// The routines in assembly.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // `chase(address, turns)`: 8 dependent loads per iteration. Returns the address that the last
    // one loaded.
    global_asm!(
        r#"
    .section .text.chase, "ax"
    .balign 64
    .global chase
chase:
    .rept   8
    ldr     x0, [x0]
    .endr
    subs    x1, x1, #1
    b.ne    chase
    ret
    "#
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn chase(address: u64, turns: u64) -> u64;
}

#[allow(unsafe_code)]
fn main() {
    let bytes = arg(0, 256 * 1024).next_multiple_of(LINE * UNROLL);
    let rounds = arg(1, 100);
    let seed = args()[2];
    let runs = arg(3, 1);
    let buffer = Ram::behind_image().take_at(PROFILED, bytes);
    let lines = chain::link(buffer, seed);
    let accesses = lines * rounds;
    println!("latency: buffer={bytes} B lines={lines} rounds={rounds} seed={seed} runs={runs}");
    let start = buffer.as_ptr().expose_provenance() as u64;
    for run in 0..runs {
        let mut end = 0;
        let measured = segment::measure(id::LATENCY, 0, run as u32, || {
            // SAFETY: the first word of each line holds the address of another line's, in one cycle
            // over all of them; the words are atomic.
            end = unsafe { chase(start, accesses / UNROLL) };
        });
        let thousandths = measured.ticks * 1000 / accesses;
        // Complete rounds of one cycle end where they began.
        let verdict = if end == start { "ok" } else { "WRONG" };
        println!(
            "latency: run={run} {measured} per access {}.{:03} ticks {verdict}",
            thousandths / 1000,
            thousandths % 1000
        );
    }
}
