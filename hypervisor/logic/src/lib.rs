//! The hypervisor's pure logic: decisions that need no hardware, so that they run and are tested on
//! the host.
//!
//! | module | contents |
//! | --- | --- |
//! | `atomic` | atomic words, which models replace |
//! | [`clock`] | instants and lengths in ticks, and their conversion |
//! | [`own_frames`] | the frames of the hypervisor itself |
//! | [`placement`] | room for contiguous memory; how many stage-2 tables a VM needs |
//! | [`power`] | power states of vCPUs: start, stop, restart, end; requests from core to core |
//! | [`pool`] | frame allocation per color; PVT and SH pools |
//! | [`quota`] | a core's quotas: their counters, and the state machine of a budget per period |
//! | [`reclaim`] | the pool of unused budgets that cores share |
//! | [`doorbell`] | the bits by which VMs call each other |
//! | [`eemi`] | which calls of a ZynqMP's firmware a VM may make |
//! | [`lease`] | how long a program may keep its changes of its VM's pages |
//! | [`features`] | what a guest reads from the feature registers |
//! | [`instruction`] | loads and stores that the syndrome does not describe |
//! | [`segment`] | the counters of an observation segment, and its record |
//! | [`ring`] | records that wait for the telemetry UART |
//! | [`services_page`] | the registers through which programs at EL0 make calls |
//! | [`smmu`] | the table, commands and events of an SMMUv3 |
//! | [`syndrome`] | why a core entered EL2, and the syndrome that a guest sees instead |
//! | [`virtio`] | the devices and the wire of links between VMs |
//! | [`vgic`] | a VM's GICv2 distributor and the list registers |
//! | [`vpmu`] | a vCPU's PMU |
//! | [`vuart`] | a VM's UART |
//! | [`console`] | guests' lines and messages on the console, and the selection of its input |
//! | [`messages`] | the hypervisor's messages that wait for the console |
//! | [`limit`] | how many messages of the hypervisor a VM may cause |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod atomic;
pub mod clock;
pub mod console;
pub mod doorbell;
pub mod eemi;
pub mod features;
pub mod instruction;
pub mod lease;
pub mod limit;
pub mod messages;
#[cfg(test)]
#[cfg(loom)]
mod models;
pub mod own_frames;
pub mod placement;
pub mod pool;
pub mod power;
pub mod quota;
pub mod reclaim;
pub mod ring;
pub mod segment;
pub mod services_page;
pub mod smmu;
pub mod syndrome;
pub mod vgic;
pub mod virtio;
pub mod vpmu;
pub mod vuart;
