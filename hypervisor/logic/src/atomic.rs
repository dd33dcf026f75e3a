//! Atomic words: the processor's or, in models of concurrent cores, loom's.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
