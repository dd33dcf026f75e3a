//! The formats and units that the hypervisor and the host share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`addr`] | physical and intermediate physical addresses as types |
//! | [`bits`] | bit masks as sets of numbers |
//! | [`blank`] | values of zeros for fixtures, on the host alone |
//! | [`channel`] | memory that VMs share, and their doorbells |
//! | [`link`] | what joins two VMs by devices of virtio |
//! | [`color`] | page colors, color sets, cache geometry |
//! | [`ids`] | cores, vCPUs, VMs, interrupts |
//! | [`units`] | events, cycles, periods |
//! | [`boot`] | the boot parameters in the hypervisor's first page |
//! | [`guest_map`] | where a VM's emulated devices are |
//! | [`image`] | the system image: header, configuration, payload |
//! | [`invalid`] | why the configuration in a system image is rejected |
//! | [`limits`] | maximum numbers of cores, VMs and list registers |
//! | [`telemetry`] | the telemetry stream of the second UART: HEM records and others |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod bits;
pub mod blank;
pub mod boot;
pub mod channel;
pub mod color;
pub mod guest_map;
pub mod ids;
pub mod image;
pub mod invalid;
pub mod limits;
pub mod link;
pub mod telemetry;
pub mod units;
