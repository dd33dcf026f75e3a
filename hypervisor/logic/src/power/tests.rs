//! Tests of the power states, step by step and, under `--cfg loom`, in all interleavings.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[cfg(loom)]
pub mod models;
#[cfg(loom)]
mod requests;
#[cfg(not(loom))]
mod steps;
