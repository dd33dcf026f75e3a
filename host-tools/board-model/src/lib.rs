//! The board model: caches, memory and clocks of a board, for QEMU's TCG.
//!
//! A stock QEMU has no caches, so nothing there shows interference. The model gives each access of a guest its way
//! through the caches of a [`Board`], and each core a clock that pays for it. All modules but [`plugin`] are safe code
//! that knows nothing of QEMU: traces can be run through [`Hierarchy`] alone.

#![deny(unsafe_code)]

pub mod board;
pub mod cache;
pub mod clock;
pub mod decode;
pub mod dram;
pub mod events;
pub mod geometry;
pub mod hierarchy;
pub mod plugin;
pub mod pmu;

pub use board::{Board, BoardError};
pub use events::{Counts, Event};
pub use hierarchy::Hierarchy;
