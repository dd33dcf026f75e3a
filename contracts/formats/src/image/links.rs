//! The links of a system: which devices its VMs have by them, and their rules.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Backing, Region, System};
use crate::ids::VmId;
use crate::invalid::{Invalid, Part, Rule};
use crate::link::{Link, LinkEnd};
use alloc::string::String;
use cloison_abi::irq;

impl LinkEnd {
    /// Returns the page of its registers, as a region of its VM.
    pub fn place(&self) -> Region {
        Region {
            name: String::new(),
            ipa: self.ipa,
            pages: 1,
            backing: Backing::Contiguous,
            executable: false,
        }
    }
}

impl System {
    /// Iterates over the links that a VM has, with their numbers and the number of its end.
    pub fn links_of(&self, vm: VmId) -> impl Iterator<Item = (usize, &Link, usize)> + Clone {
        let links = self.links.iter().enumerate();
        links.filter_map(move |(index, link)| Some((index, link, link.end(vm)?)))
    }

    /// Checks a link, also against those before it.
    pub(crate) fn validate_link(&self, index: usize) -> Result<(), Invalid> {
        let part = Part::Link(index);
        let [one, other] = &self.links[index].ends;
        part.check(one.vm != other.vm, Rule::LinkVm, one.vm.0)?;
        for end in [one, other] {
            let vm = self.vms.get(end.vm.index());
            let Some(vm) = vm else {
                return part.check(false, Rule::LinkVm, end.vm.0);
            };
            let place = end.place();
            self.validate_place(part, &vm.map, &place)?;
            let channels = self.channels_of(end.vm);
            let seen = channels.filter_map(|(channel, member)| channel.seen_by(member));
            let before = self.links_of(end.vm).filter(|(other, ..)| *other < index);
            let others = before.map(|(_, link, nth)| link.ends[nth]);
            let pages = others.clone().map(|other| other.place());
            let all = vm.regions.iter().cloned().chain(seen).chain(pages);
            for (other, region) in all.enumerate() {
                part.check(!region.overlaps(&place), Rule::Overlap, other as u64)?;
            }
            let bell = self.doorbell(end.vm).map(|_| irq::DOORBELL);
            let mut taken = vm
                .irqs
                .iter()
                .chain([&vm.map.uart.irq])
                .map(|irq| irq.0)
                .chain(others.map(|other| other.irq.0))
                .chain(bell);
            let is_free = (32..256).contains(&end.irq.0) && taken.all(|own| own != end.irq.0);
            part.check(is_free, Rule::LinkInterrupt, end.irq.0)?;
        }
        Ok(())
    }
}
