//! QEMU as a plugin meets it: its callbacks, its CPUs' registers and memory, and what else the
//! plugins need of it, for every version from 10.0 on.
//!
//! A plugin names itself and its installation with [`plugin!`], and does its work as a
//! [`Listener`](listener::Listener). All vCPUs share one thread, and all callbacks run on it. What
//! the modules for unsafe code offer is safe.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod callbacks;
#[allow(unsafe_code)]
pub mod cpu;
#[allow(unsafe_code)]
pub mod entry;
#[allow(unsafe_code)]
pub mod ffi;
#[allow(unsafe_code)]
pub mod guest;
#[allow(unsafe_code)]
pub mod internals;
#[allow(unsafe_code)]
pub mod listener;
#[allow(unsafe_code)]
pub mod machine;
mod parts;
#[allow(unsafe_code)]
mod version;
