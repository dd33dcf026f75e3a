//! The links of a system: which devices its VMs have by them, and their rules.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{IPA_BITS, System};
use crate::ids::VmId;
use crate::invalid::{Invalid, Part, Rule};
use crate::limits::MAX_IRQ;
use crate::link::Link;
use cloison_abi::irq;

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
            let Some(vm) = self.vms.get(end.vm.index()) else {
                return part.check(false, Rule::LinkVm, end.vm.0);
            };
            let channels = self.channels_of(end.vm);
            let seen = channels.filter_map(|(channel, member)| channel.seen_by(member));
            let mut regions = vm.regions.iter().cloned().chain(seen);
            let before = self
                .links_of(end.vm)
                .take_while(|(other, ..)| *other < index);
            let mut others = before.map(|(_, link, nth)| &link.ends[nth]);
            let is_placed = end.ipa.is_page_aligned()
                && end.ipa.0 < 1 << IPA_BITS
                && vm.map.device(end.ipa).is_none()
                && !regions.any(|region| region.contains(end.ipa))
                && others.clone().all(|other| other.ipa != end.ipa);
            part.check(is_placed, Rule::LinkPlace, end.ipa.0)?;
            let bell = self.doorbell(end.vm).is_some() && end.irq.0 == irq::DOORBELL;
            let is_free = (32..MAX_IRQ).contains(&end.irq.0)
                && !bell
                && !vm.irqs.contains(&end.irq)
                && vm.map.uart.irq != end.irq
                && others.all(|other| other.irq != end.irq);
            part.check(is_free, Rule::LinkInterrupt, end.irq.0)?;
        }
        Ok(())
    }
}
