//! Watches the EL2 image that ships, from outside: a QEMU plugin that counts coverage, feeds guests
//! with programs, and compares what the hypervisor does with what it promises.
//!
//! The plugin's callbacks serve several [`Instrument`](instrument::Instrument)s. All vCPUs share one
//! thread, under `-icount`, so that a run repeats exactly.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![deny(unsafe_code)]

pub mod blocks;
pub mod coverage;
#[cfg(feature = "plugin")]
#[allow(unsafe_code)]
mod entry;
pub mod fuzz;
pub mod install;
pub mod instrument;
pub mod oracle;
mod processor;
pub mod prover;
pub mod ways;
