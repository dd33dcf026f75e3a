//! Stand-ins for assembly, so that guests type-check on machines without these instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Replaces `core::arch::asm!` on machines without these instructions.
#[cfg(not(target_arch = "aarch64"))]
#[macro_export]
macro_rules! asm {
    ($($tokens:tt)*) => {
        panic!("guests run on AArch64")
    };
}

/// Replaces `core::arch::global_asm!` on machines without these instructions.
#[cfg(not(target_arch = "aarch64"))]
#[macro_export]
macro_rules! global_asm {
    ($($tokens:tt)*) => {};
}
