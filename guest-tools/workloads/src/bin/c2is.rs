//! C2IS: repeatedly calls a function that spans 65 text pages (BBProf, section 7.3).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::{arg, entry, println, segment};
use cloison_workloads::id;

entry!(main);

/// Text pages of the function.
const PAGES: u64 = 65;

/// The routines in assembly.
#[allow(unsafe_code)]
mod assembly {
    use super::PAGES;
    use cloison_guest::global_asm;

    // 65 pages of 1024 instructions each; the last instruction is the return. The linker script
    // places the section 512 KiB into the RAM.
    global_asm!(
        r#"
    .section .c2is, "ax"
    .balign 4096
    .global c2is_long_function
c2is_long_function:
    .rept   {pages} * 1024 - 1
    nop
    .endr
    ret
    .global c2is_end                    // the linker script asks for it
c2is_end:
    "#,
        pages = const PAGES,
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// Executes 66559 `nop`s.
    safe fn c2is_long_function();
}

fn main() {
    let runs = arg(0, 1);
    let calls = arg(1, 100);
    let at = c2is_long_function as *const () as u64;
    println!("c2is: pages={PAGES} at={at:#x} calls={calls} runs={runs}");
    for run in 0..runs {
        let measured = segment::measure(id::C2IS, 0, run as u32, || {
            for _ in 0..calls {
                c2is_long_function();
            }
        });
        println!("c2is: run={run} {measured}");
    }
}
