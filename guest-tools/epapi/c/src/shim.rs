//! The first and the last instructions of functions that count.
//!
//! What the library itself does is not counted: the counters are stopped in the first five instructions, and what was
//! counting, or is to count from now on, starts in the last but two. Neither part accesses memory, which could be counted as
//! an access to a cache, and all of it is in one line of the instruction cache. A program that reads registers itself has to
//! stop and start counters too: the library's addition is to look whether there is a PMU, and which counters are on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cores::{Way, with};
use cloison_epapi::{Error, Library};
use core::ffi::c_int;

/// What a function returns while the counters are stopped: in `x0` and `x1`.
#[repr(C)]
pub struct Outcome {
    /// PAPI's return code.
    pub status: i64,
    /// The counters to start, as bits.
    pub on: u64,
}

/// Calls `f` while the counters are stopped, of which `on` counted.
pub fn stopped(on: u64, f: impl FnOnce(&mut Library<Way>) -> Result<c_int, Error>) -> Outcome {
    let mut after = on;
    let result = with(|core| {
        let (result, on) = core.library.while_frozen(on as u32, f);
        after = on.into();
        result
    });
    Outcome { status: result.unwrap_or_else(Error::code).into(), on: after }
}

/// Exports a function that counts: `inner` gets its arguments and, in the next register, the counters that counted.
#[cfg(target_arch = "aarch64")]
macro_rules! counting {
    ($($exported:ident = $inner:ident($($argument:ident: $kind:ty),*) $on:literal: $what:literal;)*) => {$(
        // By the calling convention x0 to x7 are arguments, of which `$on` is the first that C's caller does not use.
        // Without a PMU its registers are undefined: then `inner` says so.
        core::arch::global_asm!(
            concat!(".section .text.", stringify!($exported), ", \"ax\""),
            ".balign 64",
            concat!(".global ", stringify!($exported)),
            concat!(".type ", stringify!($exported), ", %function"),
            concat!(stringify!($exported), ":"),
            concat!("mrs ", $on, ", id_aa64dfr0_el1"),
            concat!("and ", $on, ", ", $on, ", #0xf00"),
            concat!("cbz ", $on, ", 1f"),
            concat!("mrs ", $on, ", pmcntenset_el0"),
            concat!("msr pmcntenclr_el0, ", $on),
            "isb",
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "bl {inner}",
            "ldp x29, x30, [sp], #16",
            "msr pmcntenset_el0, x1",
            "isb",
            "ret",
            "1: b {inner}",
            concat!(".size ", stringify!($exported), ", . - ", stringify!($exported)),
            ".text",
            inner = sym $inner,
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

/// Exports a function that counts, on machines where a simulated PMU does.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! counting {
    ($($exported:ident = $inner:ident($($argument:ident: $kind:ty),*) $on:literal: $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// Pointers are null, or valid for what PAPI's documentation says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $exported($($argument: $kind),*) -> core::ffi::c_int {
            use cloison_epapi::Counters;
            let on = $crate::cores::simulation::pmu(|pmu| pmu.freeze()).unwrap_or(0);
            // SAFETY: the caller keeps what this function promises about pointers.
            let outcome = unsafe { $inner($($argument,)* on.into()) };
            let _ = $crate::cores::simulation::pmu(|pmu| pmu.thaw(outcome.on as u32));
            outcome.status as core::ffi::c_int
        }
    )*};
}

pub(crate) use counting;
