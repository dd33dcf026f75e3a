//! What a configuration lets VMs say to each other: its channels and links, in a line each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::quantity::show_size;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::channel::Rights;
use cloison_formats::ids::VmId;
use cloison_formats::image::System;
use cloison_formats::link::{LinkKind, cid};

/// Returns a line for each channel and each link.
pub fn between(system: &System) -> Vec<String> {
    let name = |vm: VmId| system.vms[vm.index()].name.as_str();
    let channels = system.channels.iter().map(|channel| {
        let members: Vec<String> = channel
            .members
            .iter()
            .map(|member| match member.rights {
                Rights::None => format!("{} sees nothing", name(member.vm)),
                Rights::Read => format!("{} reads at {}", name(member.vm), member.ipa),
                Rights::Write => format!("{} writes at {}", name(member.vm), member.ipa),
            })
            .collect();
        format!(
            "channel {}: {} of pool {}; {}",
            channel.name,
            show_size(u64::from(channel.pages) * PAGE_SIZE),
            system.pools[usize::from(channel.pool)].name,
            members.join(", ")
        )
    });
    let links = system.links.iter().map(|link| {
        let [first, second] = link.ends.each_ref().map(|end| {
            let cid = match link.kind {
                LinkKind::Vsock => format!(", CID {}", cid(end.vm)),
                LinkKind::Net | LinkKind::Console => String::new(),
            };
            let (vm, at, interrupt) = (name(end.vm), end.ipa, end.irq);
            format!("{vm} at {at}, interrupt {interrupt}{cid}")
        });
        format!(
            "link {}: {}, which shares no page; {first}; {second}",
            link.name,
            link.kind.name()
        )
    });
    channels.chain(links).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_engine::{configuration, installation};

    #[test]
    fn each_channel_and_each_link_has_a_line() {
        let path = installation::root().join("tests/configs/budgets/payer.toml");
        let checked = configuration::load(&path, None).expect("a good one");
        let lines = between(&checked.system);
        let expected = [
            "channel both: 4 KiB of pool shared; payer writes at 0x60000000, other reads at \
             0x60000000",
            "link wire: net, which shares no page; payer at 0xc000000, interrupt 100; other at \
             0xc000000, interrupt 100",
        ];
        assert_eq!(lines, expected);
        let path = installation::root().join("tests/configs/links.toml");
        let checked = configuration::load(&path, None).expect("a good one");
        let lines = between(&checked.system);
        let sockets = "link sockets: vsock, which shares no page; left at 0xa003000, interrupt 51, \
                       CID 3; right at 0xa003000, interrupt 51, CID 4";
        assert_eq!(lines.last().map(String::as_str), Some(sockets));
    }
}
