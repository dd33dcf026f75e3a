//! Links: devices of virtio whose other side is a device in another VM, and the wire between them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`queue`] | the device's side of a split virtqueue: every word of it is a guest's claim |
//! | [`wire`] | one direction of a link: chains of the sender's queue to those of the receiver's |
//! | [`registers`] | the registers of a device, and what a driver has set up |
//!
//! The sender's core copies, piece by piece, from the memory of one VM to that of the other. Both
//! ends of a direction are under its lock:
//!
//! ```text
//! sender notifies     lock, wire.step(memory); nothing to fill: wire.waits = true
//! receiver notifies   lock, take wire.waits; release, wake the sender's VM
//! either resets       lock, wire.leave(end), take wire.waits; release, wake
//! ```
//!
//! A crate for this side in `no_std` that reads memory through its user's code was not to be found:
//! `virtio-queue` needs `std` and memory that is mapped for good, `virtio-drivers` is the other
//! side.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod queue;
pub mod registers;
pub mod wire;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
