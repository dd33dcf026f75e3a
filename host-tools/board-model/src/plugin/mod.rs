//! The plugin: QEMU's callbacks, the model between them, and guest time.
//!
//! All vCPUs share one thread (`-accel tcg,thread=single`), and all callbacks run on it, so the
//! model needs no lock. QEMU's main loop and a small thread of the plugin only read the clock,
//! which consists of atomic words.
//!
//! The modules for unsafe code talk to QEMU; what they offer is safe.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bounds;
mod count;
mod counters;
#[allow(unsafe_code)]
mod entry;
mod handles;
mod install;
mod model;
mod monitors;
mod profile;
mod regions;
mod registers;
mod state;
mod time;
mod translation;
mod visits;
