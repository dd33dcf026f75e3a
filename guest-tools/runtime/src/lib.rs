//! Bare-metal runtime for guests of Cloison.
//!
//! A guest is a `no_std` program that is linked with `guest.ld` and names its main function with
//! [`entry!`]`(main)`. Before `main`, the runtime turns on the MMU and the caches (identity map),
//! sets the stack and the vectors, and masks interrupts. When `main` returns, the VM is turned off.
//!
//! | module | contents |
//! | --- | --- |
//! | `arch` | stand-ins for assembly on other machines |
//! | [`boot`] | first instructions, page tables, entry point of secondary vCPUs |
//! | [`exceptions`] | vectors, the interrupt handler, expected faults |
//! | [`cpu`] | the calling vCPU: number, interrupt mask, waiting |
//! | [`device_map`] | where the VM's devices are |
//! | [`mmio`] | device registers |
//! | [`uart`] | the console: [`print!`], [`println!`], input |
//! | [`gic`] | GICv2: interrupts and software-generated interrupts |
//! | [`timer`] | the virtual timer and the clock |
//! | [`pmu`] | the vCPU's own event counters |
//! | [`psci`], [`smp`] | turning vCPUs and the VM on and off |
//! | [`call`], [`segment`] | Cloison's hypercalls; observation segments |
//! | [`model`] | messages to the board model |
//! | [`ram`] | buffers in the RAM after the image |
//! | [`probe`] | accesses and instructions that may fault |
//!
//! Guests run on AArch64 only. On other machines they type-check, so that `cargo check --workspace`
//! and editors work there; assembly is left out, and code that would execute it panics.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

mod arch;
#[allow(unsafe_code)]
pub mod boot;
#[allow(unsafe_code)]
pub mod call;
#[allow(unsafe_code)]
pub mod cpu;
#[allow(unsafe_code)]
pub mod device_map;
#[allow(unsafe_code)]
pub mod exceptions;
#[allow(unsafe_code)]
pub mod gic;
#[allow(unsafe_code)]
pub mod mmio;
#[allow(unsafe_code)]
pub mod model;
#[allow(unsafe_code)]
pub mod pmu;
#[allow(unsafe_code)]
pub mod probe;
#[allow(unsafe_code)]
pub mod psci;
#[allow(unsafe_code)]
pub mod ram;
pub mod segment;
#[allow(unsafe_code)]
pub mod smp;
pub mod timer;
#[allow(unsafe_code)]
pub mod uart;

pub use boot::{arg, args, first_ticks};
pub use cloison_abi as abi;
#[cfg(target_arch = "aarch64")]
pub use core::arch::{asm, global_asm};

/// Defines the function that runs on vCPU 0: `entry!(main)` with `fn main()`.
#[macro_export]
#[allow(unsafe_code)]
macro_rules! entry {
    ($main:path) => {
        /// The program's entry, called by the runtime.
        // SAFETY: the only symbol of this name, with the signature that `boot` declares.
        #[unsafe(export_name = "cloison_guest_main")]
        extern "C" fn __cloison_guest_main() {
            let main: fn() = $main;
            main()
        }
    };
}

// An operating system's programs use `std`'s.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    cpu::mask_interrupts();
    uart::force_unlock();
    println!("guest vCPU {}: {info}", cpu::current());
    psci::system_off()
}
