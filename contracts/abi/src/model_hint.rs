//! The HINT instructions by which guests and EL2 talk to the board model (docs/board-model.md). The
//! architecture keeps their numbers free, and CPUs execute them as NOP.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The region of interest begins, with the caches as they are.
pub const BEGIN_WARM: u32 = 112;
/// The region of interest ends.
pub const END: u32 = 113;
/// The cacheability of some pages changed: physical address in `x0`, length in bytes in `x1`, and
/// in `x2` zero if caches may hold them.
pub const CACHEABILITY: u32 = 114;
/// The region of interest begins, with empty caches.
pub const BEGIN_COLD: u32 = 115;
