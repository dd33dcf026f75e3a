//! What the workloads share: their numbers in the HEM log, and where their fixed buffers lie.
#![no_std]
#![forbid(unsafe_code)]

use cloison_guest::abi::map;

/// Numbers under which observation segments are logged.
pub mod id {
    #![allow(missing_docs)]
    pub const INTERF: u32 = 1;
    pub const STAIRCASE: u32 = 2;
    pub const C2IS: u32 = 3;
    pub const MATRIX_COPY: u32 = 4;
    pub const LATENCY: u32 = 5;
}

/// IPA of the buffers that page profiles name: 256 pages into the RAM.
pub const PROFILED: u64 = map::RAM + (1 << 20);
/// IPA of the counter that survives restarts.
pub const SURVIVOR: u64 = map::RAM + (8 << 20);
