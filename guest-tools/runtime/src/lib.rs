//! Bare-metal runtime for guests of Cloison.
//!
//! A guest is a `no_std` program linked with `guest.ld`, that says [`entry!`]`(main)`. Before `main` the runtime has
//! turned on the MMU and the caches (identity map), set the stack and the vectors, and masked interrupts. When `main`
//! returns, the VM is turned off.
//!
//! | module | what for |
//! | --- | --- |
//! | [`boot`] | first instructions, page tables, secondary vCPUs' way in |
//! | [`exceptions`] | vectors, the interrupt handler, expected faults |
//! | [`cpu`] | the calling vCPU: number, interrupt mask, waiting |
//! | [`mmio`] | device registers |
//! | [`uart`] | the console: [`print!`], [`println!`], input |
//! | [`gic`] | GICv2: interrupts and software-generated interrupts |
//! | [`timer`] | the virtual timer and the clock |
//! | [`pmu`] | the vCPU's own event counters |
//! | [`psci`], [`smp`] | turning vCPUs and the VM on and off |
//! | [`call`], [`segment`] | Cloison's hypercalls; observation segments |
//! | [`model`] | what the board model is told |
//! | [`ram`] | buffers in the RAM behind the image |
//! | [`probe`] | accesses and instructions that may fault |
#![no_std]

pub mod boot;
pub mod call;
pub mod cpu;
pub mod exceptions;
pub mod gic;
pub mod mmio;
pub mod model;
pub mod pmu;
pub mod probe;
pub mod psci;
pub mod ram;
pub mod segment;
pub mod smp;
pub mod timer;
pub mod uart;

pub use boot::{arg, args, first_ticks};
pub use cloison_abi as abi;

use core::panic::PanicInfo;

/// Names the function that runs on vCPU 0: `entry!(main)` with `fn main()`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        /// The program's entry, called by the runtime.
        // SAFETY: the only symbol of this name; its signature is what `boot` declares.
        #[unsafe(export_name = "cloison_guest_main")]
        extern "C" fn __cloison_guest_main() {
            let main: fn() = $main;
            main()
        }
    };
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    cpu::mask_interrupts();
    uart::force_unlock();
    println!("guest vCPU {}: {info}", cpu::current());
    psci::system_off()
}
