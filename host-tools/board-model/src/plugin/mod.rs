//! The plugin: QEMU's callbacks, the model between them, and guest time.
//!
//! All vCPUs share one thread (`-accel tcg,thread=single`), and all callbacks run on it, so the
//! model needs no lock. QEMU's main loop and a small thread of the plugin only read the clock,
//! which consists of atomic words.
//!
//! The modules for unsafe code talk to QEMU; what they offer is safe.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bounds;
#[allow(unsafe_code)]
mod callbacks;
mod count;
mod counters;
#[allow(unsafe_code)]
mod cpu;
#[allow(unsafe_code)]
mod entry;
#[allow(unsafe_code)]
mod ffi;
mod handles;
mod install;
#[allow(unsafe_code)]
mod internals;
#[allow(unsafe_code)]
mod listener;
#[allow(unsafe_code)]
mod machine;
mod model;
mod monitors;
mod profile;
#[allow(unsafe_code)]
mod qemu;
mod regions;
mod registers;
mod state;
mod time;
mod translation;
#[allow(unsafe_code)]
mod version;
mod visits;
