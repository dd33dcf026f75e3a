//! The processor, as this image uses it.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[allow(unsafe_code, reason = "accesses and instructions that may fault")]
pub mod access;
#[allow(unsafe_code, reason = "routines in assembly")]
pub mod benchmarks;
#[allow(unsafe_code, reason = "a global allocator")]
pub mod heap;
#[allow(unsafe_code, reason = "what follows the image as a slice")]
pub mod loaded;
#[allow(unsafe_code, reason = "system registers by name")]
pub mod registers;
pub mod time;
