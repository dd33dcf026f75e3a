//! The board model: caches, memory and clocks of a board, for QEMU's TCG.
//!
//! Stock QEMU has no caches, so it shows no interference. The model sends each access of a guest
//! through the caches of a [`Board`], and gives each core a clock that accounts for it. All modules
//! except [`plugin`] are safe code independent of QEMU: traces can be run through [`Hierarchy`]
//! alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![deny(unsafe_code)]

pub mod banks;
pub mod board;
pub mod cache;
pub mod calendar;
pub mod clock;
pub mod cluster;
pub mod decode;
pub mod dram;
pub mod events;
pub mod geometry;
pub mod hierarchy;
pub mod issue;
pub mod plugin;
pub mod pmu;
pub mod prefetch;
pub mod profile;
pub mod refresh;
pub mod search;
pub mod statistics;
pub mod streaming;
pub mod tlb;
pub mod visits;
pub mod walk;

pub use board::{Board, BoardError};
pub use events::{Counts, Event};
pub use hierarchy::Hierarchy;
