//! C2IS as a Linux program: repeatedly calls a function that spans 65 text pages (BBProf, section
//! 7.3).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;

/// The long function.
#[allow(unsafe_code)]
mod assembly {
    // 65 pages of 1024 instructions each; the last instruction is the return.
    std::arch::global_asm!(
        ".pushsection .text.c2is, \"ax\"",
        ".balign 4096",
        ".global c2is_long_function",
        "c2is_long_function:",
        ".rept 65 * 1024 - 1",
        "nop",
        ".endr",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        /// Executes 66559 `nop`s.
        pub safe fn c2is_long_function();
    }
}

fn main() -> ExitCode {
    let calls = std::env::args()
        .nth(1)
        .map_or(Ok(20), |calls| calls.parse());
    let Ok(calls) = calls else {
        eprintln!("usage: bbprof-c2is [CALLS]");
        return ExitCode::FAILURE;
    };
    black_box(calling)(calls);
    println!("c2is: calls={calls}");
    ExitCode::SUCCESS
}

/// The observation segment.
#[inline(never)]
fn calling(calls: u32) {
    for _ in 0..calls {
        assembly::c2is_long_function();
    }
}
