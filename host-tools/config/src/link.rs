//! The `[[link]]` tables: devices of virtio by which two VMs are joined.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::channel::{Others, find_vm};
use crate::document::{Field, Given, Table};
use crate::names::name;
use crate::page::page_ipa;
use crate::region::check_addresses;
use cloison_abi::irq;
use cloison_formats::addr::Ipa;
use cloison_formats::channel::Channel;
use cloison_formats::ids::{Intid, VmId};
use cloison_formats::image::{Backing, Region};
use cloison_formats::limits::MAX_IRQ;
use cloison_formats::link::{Link, LinkEnd, LinkKind};
use std::ops::Range;

/// Maximum number of links: each pair of VMs could have one.
const MOST_LINKS: usize = 28;

/// What the links of a configuration are checked against.
pub(crate) struct Scope<'a> {
    pub others: &'a Others<'a>,
    pub channels: &'a [Channel],
}

/// Reads all links.
pub(crate) fn read(root: &Table<'_>, scope: &Scope<'_>) -> Vec<Link> {
    let mut all: Vec<Link> = Vec::new();
    let mut names: Vec<(String, Range<usize>)> = Vec::new();
    for (index, table) in root.tables("link").into_iter().enumerate() {
        if index == MOST_LINKS {
            let message = format!("more than {MOST_LINKS} links");
            let error = root.error("link", table.span(), message);
            root.push(error.label("one too many").help("leave links out"));
            break;
        }
        let link = read_link(table, scope, &all, &mut names);
        all.extend(link);
    }
    all
}

fn read_link(
    mut table: Table<'_>,
    scope: &Scope<'_>,
    before: &[Link],
    names: &mut Vec<(String, Range<usize>)>,
) -> Option<Link> {
    let name = name(&mut table, "link").map(|(name, span)| (name.to_owned(), span));
    if let Some((name, span)) = &name {
        if let Some((_, first)) = names.iter().find(|(other, _)| other == name) {
            let message = format!("there are two links called `{name}`");
            let error = table.error("name", span.clone(), message).label("again");
            let error = error.also(first.clone(), "first here");
            table.push(error.help("messages tell links apart by name: give each its own"));
        }
        names.push((name.clone(), span.clone()));
    }
    let help = "say what the VMs see: kind = \"net\", \"console\" or \"vsock\"";
    let kind = table.required_value("kind", help, |field| {
        field.one_of(
            "kind of link",
            &LinkKind::ALL.map(|kind| (kind.name(), kind)),
        )
    });
    let tables = table.tables("end");
    let count = tables.len();
    let mut ends: Vec<(LinkEnd, Range<usize>)> = Vec::new();
    for end in tables {
        ends.extend(read_end(&end, scope, before, &ends));
    }
    table.finish_ref();
    if count != 2 {
        let error = table.error("end", table.span(), "a link joins two VMs");
        let label = format!("{count} [[link.end]]");
        let help = "write two: vm = \"...\", ipa = 0x0a00_0000, interrupt = 48";
        table.push(error.label(label).help(help));
        return None;
    }
    let kind = kind?.value;
    if kind == LinkKind::Vsock {
        check_only(&table, &ends, scope, before)?;
    }
    let ends: Vec<LinkEnd> = ends.into_iter().map(|(end, _)| end).collect();
    Some(Link {
        name: name?.0,
        kind,
        ends: ends.try_into().ok()?,
    })
}

fn read_end(
    table: &Table<'_>,
    scope: &Scope<'_>,
    before: &[Link],
    ends: &[(LinkEnd, Range<usize>)],
) -> Option<(LinkEnd, Range<usize>)> {
    let help = "name one of the VMs: vm = \"...\"";
    let vm = table.required_value("vm", help, |field| find_vm(field, scope.others));
    let help = "say where the VM has the device's registers, one page: ipa = 0x0a00_0000";
    let ipa = table.required_value("ipa", help, page_ipa);
    let help = "give the device an interrupt: interrupt = 48";
    let number = table.required_value("interrupt", help, |field| {
        let most = u64::from(MAX_IRQ) - 1;
        field.integer_in(32..=most, "a shared interrupt, 32 to 1019")
    });
    table.finish_ref();
    let (vm, ipa, number) = (vm?, ipa?, number?);
    if let Some((_, first)) = ends.iter().find(|(other, _)| other.vm == vm.value) {
        let error = vm.field.error("the VM is at both ends");
        let error = error.label("again").also(first.clone(), "first here");
        vm.field.push(error.help("a link joins two VMs"));
        return None;
    }
    let span = vm.field.span();
    let vm = vm.value;
    let end = LinkEnd {
        vm,
        ipa: ipa.value,
        irq: Intid(number.value as u32),
    };
    check_place(table, &ipa, &end, scope, before)?;
    check_interrupt(&number.field, &end, scope, before)?;
    Some((end, span))
}

/// Returns the ends that a VM has of links.
fn ends_of(links: &[Link], vm: VmId) -> impl Iterator<Item = (&Link, &LinkEnd)> {
    links
        .iter()
        .filter_map(move |link| Some((link, &link.ends[link.end(vm)?])))
}

/// Checks that no VM has another link of sockets: kernels drive one such device, and a VM has one
/// address for all.
fn check_only(
    table: &Table<'_>,
    ends: &[(LinkEnd, Range<usize>)],
    scope: &Scope<'_>,
    before: &[Link],
) -> Option<()> {
    for (end, span) in ends {
        let mut links = ends_of(before, end.vm).map(|(link, _)| link);
        if let Some(first) = links.find(|link| link.kind == LinkKind::Vsock) {
            let vm = &scope.others.vms[end.vm.index()].vm.name;
            let message = format!("VM `{vm}` has a link of kind vsock, `{}`", first.name);
            let error = table.error("end", span.clone(), message).label("another");
            let help = "a kernel drives one such device: join these two by kind = \"net\"";
            table.push(error.help(help));
            return None;
        }
    }
    Some(())
}

/// Returns the page of a device's registers, as a region of its VM.
fn place_of(end: &LinkEnd) -> Region {
    Region {
        name: String::new(),
        ipa: end.ipa,
        pages: 1,
        backing: Backing::Contiguous,
        executable: false,
    }
}

/// Checks that nothing else of the VM is where it has the device.
fn check_place(
    table: &Table<'_>,
    ipa: &Given<'_, Ipa>,
    end: &LinkEnd,
    scope: &Scope<'_>,
    before: &[Link],
) -> Option<()> {
    let spec = &scope.others.vms[end.vm.index()];
    let place = place_of(end);
    check_addresses(table, &spec.taken, &place, &ipa.field.span())?;
    let regions = spec.vm.regions.iter();
    let own = regions.map(|region| (region.name.clone(), region.clone()));
    let channels = scope.channels.iter().filter_map(|channel| {
        let member = channel.member(end.vm)?;
        Some((channel.name.clone(), channel.seen_by(member)?))
    });
    let links = ends_of(before, end.vm).map(|(link, other)| (link.name.clone(), place_of(other)));
    let mut all = own.chain(channels).chain(links);
    let Some((name, other)) = all.find(|(_, other)| other.overlaps(&place)) else {
        return Some(());
    };
    let message = format!("the device is where VM `{}` has `{name}`", spec.vm.name);
    let error = ipa.field.error(message).label("not free");
    let free = other.ipa.page(other.pages.into());
    let help = format!("the first free address after `{name}` is {free}");
    ipa.field.push(error.help(help));
    None
}

/// Checks that nothing else of the VM has the device's interrupt.
fn check_interrupt(
    field: &Field<'_>,
    end: &LinkEnd,
    scope: &Scope<'_>,
    before: &[Link],
) -> Option<()> {
    let spec = &scope.others.vms[end.vm.index()];
    let mut channels = scope.channels.iter();
    let has_bell = channels.any(|channel| channel.member(end.vm).is_some());
    let link = ends_of(before, end.vm).find(|(_, other)| other.irq == end.irq);
    let owner = if spec.vm.map.uart.irq == end.irq {
        "its emulated UART's".to_owned()
    } else if has_bell && end.irq.0 == irq::DOORBELL {
        "its doorbell's".to_owned()
    } else if spec.vm.irqs.contains(&end.irq) {
        "a passed-through device's".to_owned()
    } else if let Some((link, _)) = link {
        format!("link `{}`'s", link.name)
    } else {
        return Some(());
    };
    let message = format!("interrupt {} of VM `{}` is {owner}", end.irq, spec.vm.name);
    let error = field.error(message).label("taken");
    field.push(error.help("give the device another one, from 32 to 255"));
    None
}
