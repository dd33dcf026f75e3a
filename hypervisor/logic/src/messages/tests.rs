//! Tests of the ring of messages, step by step and, under `--cfg loom`, in all interleavings.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[cfg(loom)]
pub mod models;
#[cfg(not(loom))]
mod steps;
