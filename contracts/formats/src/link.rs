//! Links: each joins two VMs by a device of virtio in each of them. The hypervisor is the wire.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::Ipa;
use crate::ids::{Intid, VmId};
use alloc::string::String;
use cloison_abi::virtio::{FIRST_CID, feature};
use serde::{Deserialize, Serialize};

/// A link between two VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Name in the configuration.
    pub name: String,
    /// What each of its VMs sees.
    pub kind: LinkKind,
    /// Its two ends, in two VMs.
    pub ends: [LinkEnd; 2],
}

/// The device of a link in one of its VMs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The VM.
    pub vm: VmId,
    /// The page of its registers.
    pub ipa: Ipa,
    /// Its interrupt: an SPI of the emulated distributor.
    pub irq: Intid,
}

/// What has passed in one direction of a link since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Frames, or pieces of a console's text, that have arrived.
    pub frames: u64,
    /// Bytes that were copied, also those of frames that were lost then.
    pub bytes: u64,
    /// Frames that were lost: nobody received, or they did not fit.
    pub lost: u64,
    /// How often a sender found no room at the receiver.
    pub waits: u64,
}

/// The devices by which a link joins VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum LinkKind {
    /// Network devices, between which Ethernet frames travel.
    Net = 1,
    /// Consoles, between which bytes travel.
    Console = 3,
    /// Socket devices, between which packets of connections travel.
    Vsock = 19,
}

impl LinkKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Net, Self::Console, Self::Vsock];

    /// Returns its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Console => "console",
            Self::Vsock => "vsock",
        }
    }

    /// Returns the features that its devices have, in halves.
    pub const fn features(self) -> [u32; 2] {
        let low = match self {
            Self::Net => feature::NET_MAC | feature::NET_STATUS,
            Self::Console | Self::Vsock => 0,
        };
        [low, feature::VERSION_1]
    }
}

impl Link {
    /// Returns which end of the link a VM has.
    pub fn end(&self, vm: VmId) -> Option<usize> {
        self.ends.iter().position(|end| end.vm == vm)
    }
}

/// Returns the Ethernet address of an end of the link with this number, the first byte lowest: one
/// that no maker assigns.
pub const fn mac(link: u8, end: u8) -> u64 {
    u64::from_le_bytes([0x02, b'c', b'l', 0, link, end, 0, 0])
}

/// Returns the address (CID) that a VM has on its link of sockets.
pub const fn cid(vm: VmId) -> u64 {
    FIRST_CID + vm.0 as u64
}
