//! The checks, one module for each part of a board.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod cores;
pub mod cpu;
pub mod devices;
pub mod gic;
mod gicv3;
pub mod interrupt;
pub mod memory;
pub mod pmu;
pub mod uarts;
