//! The board model in a real QEMU: what guests observe of it, and the same counts from a reference
//! simulator.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod audit;
mod common;
mod pycachesim;
mod qemu;
mod stream;
