//! The first and the last instructions of functions that count.
//!
//! What the library itself does is not counted: the counters are stopped as a whole in the first
//! five instructions, and are started in the last three. Neither part accesses memory, which could
//! be counted as an access to a cache, and all of it is in one line of the instruction cache. A
//! program that reads registers itself has to stop and start counters too: the library's addition
//! is to look whether there is a PMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cores::{Way, has_to_freeze, with};
use cloison_epapi::{Error, Library};
use core::ffi::c_int;

/// Calls `f` with the calling core's library, while the counters are stopped. Returns what it
/// returns, or PAPI's code.
pub fn stopped(f: impl FnOnce(&mut Library<Way>) -> Result<c_int, Error>) -> c_int {
    with(|core| {
        // What has no registers is stopped by a call.
        let is_called = has_to_freeze(core.library.counters());
        if is_called {
            core.library.frozen(f)
        } else {
            f(&mut core.library)
        }
    })
    .unwrap_or_else(Error::code)
}

/// Exports a function that counts, around one that does what it should while the counters are
/// stopped.
#[cfg(all(target_arch = "aarch64", not(target_os = "linux")))]
macro_rules! counting {
    ($($exported:ident = $inner:ident($($argument:ident: $kind:ty),*): $what:literal;)*) => {$(
        // Without a PMU its registers are undefined: then `inner` calls the hypervisor. By the
        // calling convention x16 is nobody's.
        core::arch::global_asm!(
            concat!(".section .text.", stringify!($exported), ", \"ax\""),
            ".balign 64",
            concat!(".global ", stringify!($exported)),
            concat!(".type ", stringify!($exported), ", %function"),
            concat!(stringify!($exported), ":"),
            "mrs x16, id_aa64dfr0_el1",
            "and x16, x16, #0xf00",
            "cbz x16, 1f",
            "mov w16, #{stopped}",
            "msr pmcr_el0, x16",
            "isb",
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "bl {inner}",
            "ldp x29, x30, [sp], #16",
            "mov w16, #{counting}",
            "msr pmcr_el0, x16",
            "isb",
            "ret",
            "1: b {inner}",
            concat!(".size ", stringify!($exported), ", . - ", stringify!($exported)),
            ".text",
            inner = sym $inner,
            stopped = const cloison_epapi::pmuv3::STOPPED,
            counting = const cloison_epapi::pmuv3::COUNTING,
        );

        unsafe extern "C" {
            #[doc = $what]
            ///
            /// # Safety
            /// Pointers are null, or valid for what PAPI's documentation says.
            pub fn $exported($($argument: $kind),*) -> core::ffi::c_int;
        }
    )*};
}

/// Exports a function that counts, in a process: the kernel or the hypervisor stops the counters,
/// by calls.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
macro_rules! counting {
    ($($exported:ident = $inner:ident($($argument:ident: $kind:ty),*): $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// Pointers are null, or valid for what PAPI's documentation says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exported($($argument: $kind),*) -> core::ffi::c_int {
            // SAFETY: the caller keeps what this function promises about pointers.
            unsafe { $inner($($argument),*) }
        }
    )*};
}

/// Exports a function that counts, on machines where a simulated PMU does.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! counting {
    ($($exported:ident = $inner:ident($($argument:ident: $kind:ty),*): $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// Pointers are null, or valid for what PAPI's documentation says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exported($($argument: $kind),*) -> core::ffi::c_int {
            use cloison_epapi::Counters;
            let _ = $crate::cores::simulation::pmu(|pmu| pmu.freeze());
            // SAFETY: the caller keeps what this function promises about pointers.
            let status = unsafe { $inner($($argument),*) };
            let _ = $crate::cores::simulation::pmu(|pmu| pmu.thaw());
            status
        }
    )*};
}

pub(crate) use counting;
