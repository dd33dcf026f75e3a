//! The hello image: the first thing that is booted on a new board. It compares the board with its board
//! file, and prints a line for each claim.
//!
//! It needs EL2 and one UART that works. All else is accessed so that a fault is an answer, and each
//! wait is bounded: a wrong claim makes a line, and nothing hangs. The hypervisor has no part in it,
//! and it is no part of the hypervisor.
//!
//! - [`start`]: from the boot loader's jump to Rust. [`exceptions`]: the vectors.
//! - [`run`]: from the claims to the last line.
//! - [`checks`]: the parts of a board.
//! - [`console`], [`report`]: the UARTs, and the log's lines.
//! - [`power`]: firmware calls, and the end.
//! - [`machine`]: the loaded image, and accesses that may fault.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod checks;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
#[allow(unsafe_code, reason = "assembly")]
mod exceptions;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod power;
#[cfg(target_os = "none")]
mod report;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
#[allow(unsafe_code, reason = "assembly")]
mod start;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::abandon(format_args!("{info}"))
}

/// On the machine that builds, this is no program: it is checked there, so that editors work.
#[cfg(not(target_os = "none"))]
fn main() {}
