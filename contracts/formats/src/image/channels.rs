//! The channels of a system: who sees what of them, and their rules.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Backing, PoolKind, Region, System};
use crate::channel::{Channel, Doorbell, Member, Rights};
use crate::ids::VmId;
use crate::invalid::{Invalid, Part, Rule};
use alloc::string::String;
use cloison_abi::irq;

impl Channel {
    /// Returns what a member sees of it, as a region of its VM.
    pub fn seen_by(&self, member: &Member) -> Option<Region> {
        (member.rights != Rights::None).then(|| Region {
            name: String::new(),
            ipa: member.ipa,
            pages: self.pages,
            backing: Backing::Pool(self.pool),
            executable: false,
        })
    }
}

impl System {
    /// Iterates over the channels that a VM has, with the member that it is.
    pub fn channels_of(&self, vm: VmId) -> impl Iterator<Item = (&Channel, &Member)> + Clone {
        self.channels
            .iter()
            .filter_map(move |channel| Some((channel, channel.member(vm)?)))
    }

    /// Returns the doorbell of a VM.
    pub fn doorbell(&self, vm: VmId) -> Option<&Doorbell> {
        self.doorbells.iter().find(|bell| bell.vm == vm)
    }

    /// Returns the VMs that a VM may call, a bit each: those with which it has a channel.
    pub fn peers(&self, vm: VmId) -> u8 {
        let members = self
            .channels_of(vm)
            .flat_map(|(channel, _)| &channel.members);
        let others = members.filter(|member| member.vm != vm);
        others.fold(0, |mask, other| mask | 1 << (other.vm.0 & 7))
    }

    /// Checks a channel, also against those before it, and the doorbells of its members.
    pub(crate) fn validate_channel(&self, index: usize) -> Result<(), Invalid> {
        let part = Part::Channel(index);
        let channel = &self.channels[index];
        let pool = self.pools.get(usize::from(channel.pool));
        // A private pool has the colors of one VM, and nobody else writes into its sets.
        let is_shared = pool.is_some_and(|pool| pool.kind == PoolKind::Sh);
        part.check(is_shared, Rule::ChannelPool, channel.pool)?;
        let members = channel.members.len() as u64;
        part.check(channel.writer().is_some(), Rule::ChannelWriter, members)?;
        for (nth, member) in channel.members.iter().enumerate() {
            let vm = self.vms.get(member.vm.index());
            let is_twice = channel.members[..nth]
                .iter()
                .any(|other| other.vm == member.vm);
            part.check(vm.is_some() && !is_twice, Rule::ChannelMember, member.vm.0)?;
            let bell = self.doorbell(member.vm);
            let is_paced = bell.is_some_and(|bell| bell.burst > 0 && bell.interval.0 > 0);
            let is_free = vm.is_some_and(|vm| {
                let mut taken = vm.irqs.iter().chain([&vm.map.uart.irq]);
                taken.all(|own| own.0 != irq::DOORBELL)
            });
            part.check(is_paced && is_free, Rule::Doorbell, member.vm.0)?;
            let (Some(vm), Some(seen)) = (vm, channel.seen_by(member)) else {
                continue;
            };
            self.validate_place(part, &vm.map, &seen)?;
            let earlier = self.channels[..index]
                .iter()
                .filter_map(|other| other.seen_by(other.member(member.vm)?));
            for (other, region) in vm.regions.iter().cloned().chain(earlier).enumerate() {
                part.check(!region.overlaps(&seen), Rule::Overlap, other as u64)?;
            }
        }
        Ok(())
    }
}
