//! PAPI for bare-metal guests in C: `libepapi.a` and `include/epapi.h`.
//!
//! Each core has its own [`Library`](cloison_epapi::Library), so that no call waits for another
//! core. Functions that count stop the counters in their first two instructions and start them in
//! their last ones, without an access to memory in between that would be counted (`shim`).
//! docs/papi.md describes the interface.
//!
//! | module | contents |
//! | --- | --- |
//! | `cores` | the library of the calling core |
//! | `shim` | the first and the last instructions of functions that count |
//! | `pointers` | arguments from C |
//! | [`high`], [`low`], [`events`], [`more`] | the exported functions |
//!
//! On other machines than AArch64 a simulated PMU counts, for tests.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std)]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod cores;
#[allow(unsafe_code)]
pub mod events;
#[allow(unsafe_code)]
pub mod high;
#[allow(unsafe_code)]
pub mod low;
#[allow(unsafe_code)]
pub mod more;
#[allow(unsafe_code)]
mod pointers;
#[allow(unsafe_code)]
mod shim;

#[cfg(all(target_os = "none", feature = "standalone"))]
#[panic_handler]
#[allow(unsafe_code)]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: a breakpoint is an exception, which the program's vectors report. 0xe9a says who
        // raised it.
        unsafe { core::arch::asm!("brk #0xe9a", options(nomem, nostack)) };
    }
}
