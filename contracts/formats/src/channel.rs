//! Channels: memory that several VMs share, and the doorbells by which they call each other.
//!
//! A VM in a channel has one doorbell, whatever the number of its channels: an interrupt, and a bit
//! for each message of its peers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::Ipa;
use crate::ids::VmId;
use crate::units::Nanos;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Memory that several VMs share, by which they also are each other's peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Name in the configuration.
    pub name: String,
    /// Index of the pool that has its frames: never a private one.
    pub pool: u8,
    /// Length in pages.
    pub pages: u32,
    /// Its VMs, each once.
    pub members: Vec<Member>,
    /// Whether its memory is cleared when a VM that may write to it starts again.
    pub is_cleared: bool,
}

/// A VM in a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The VM.
    pub vm: VmId,
    /// What it may do with the memory.
    pub rights: Rights,
    /// First IPA at which it sees the memory; without rights, it does not.
    pub ipa: Ipa,
}

/// What a VM may do with a channel's memory. No VM executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Rights {
    /// Nothing: it has the doorbell alone.
    None = 0,
    /// Read it.
    Read = 1,
    /// Read and write it.
    Write = 2,
}

/// The doorbell of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doorbell {
    /// The VM.
    pub vm: VmId,
    /// When its interrupt is pending.
    pub trigger: Trigger,
    /// How many calls of this VM may interrupt its peers at once.
    pub burst: u32,
    /// After what time it may make one more.
    pub interval: Nanos,
}

/// When the interrupt of a doorbell is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// As long as bits wait.
    Level,
    /// When a bit arrives.
    Edge,
}

impl Channel {
    /// Returns the member that a VM is.
    pub fn member(&self, vm: VmId) -> Option<&Member> {
        self.members.iter().find(|member| member.vm == vm)
    }

    /// Returns the first of those that may write. A valid channel has one.
    pub fn writer(&self) -> Option<&Member> {
        let writes = |member: &&Member| member.rights == Rights::Write;
        self.members.iter().find(writes)
    }
}
