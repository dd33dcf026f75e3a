//! Devices behind the board's SMMU: which streams a VM has, and what follows for its pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::devices::read_streams;
use crate::document::{Context, Table};
use crate::problem::Problem;
use crate::scene::PoolUse;
use cloison_abi::services;
use cloison_formats::guest_map::GuestMap;
use cloison_formats::image::{Backing, Region, Streams, System};
use std::ops::Range;

/// Bits of the addresses within a GiB: a root table has an entry for each.
const GIB_SHIFT: u32 = 30;

/// The devices of a VM that the SMMU guards.
#[derive(Default)]
pub(crate) struct Guarded {
    /// Their streams.
    streams: Streams,
    /// Where the first of them is passed through.
    pub span: Option<Range<usize>>,
}

impl Guarded {
    /// Adds a region's.
    pub fn add(&mut self, streams: Streams, span: &Range<usize>) {
        if !streams.is_empty() {
            self.streams.0 |= streams.0;
            self.span.get_or_insert(span.clone());
        }
    }
}

/// Reads `streams`: those of its devices that a VM has. Without it, it has all.
pub(crate) fn read(table: &Table<'_>, guarded: &Guarded) -> Streams {
    let Some(field) = table.optional("streams") else {
        return guarded.streams;
    };
    let Some(wanted) = read_streams(&field) else {
        return guarded.streams;
    };
    let missing = (0..Streams::MOST)
        .find(|&stream| wanted.contains(stream) && !guarded.streams.contains(stream));
    if let Some(stream) = missing {
        let has: Vec<String> = (0..Streams::MOST)
            .filter(|&stream| guarded.streams.contains(stream))
            .map(|stream| stream.to_string())
            .collect();
        let error = field.error(format!("no device of the VM has stream {stream}"));
        let help = if has.is_empty() {
            "leave it out: the board file names no stream of the devices that the VM has".to_owned()
        } else {
            format!(
                "the board file gives its devices the streams {}",
                has.join(", ")
            )
        };
        field.push(error.label("not behind the SMMU").help(help));
    }
    wanted
}

/// Checks that no page can move or change under a device: while the tables refuse it, a device's
/// access is lost, and not repeated as a vCPU's.
pub(crate) fn check_still(
    table: &Table<'_>,
    guarded: &Guarded,
    granted: u32,
    target: Option<&PoolUse>,
) {
    if guarded.span.is_none() {
        return;
    }
    let message = "the VM's devices may hold any page of it, so that none can move or change";
    let help = "a device does not repeat an access that it makes meanwhile: leave this out, or give \
                the device to another VM";
    if let Some(target) = target {
        let error = table.error(&target.field, target.span.clone(), message);
        table.push(error.label("moves pages").help(help));
    }
    if granted & services::PROFILE != 0
        && let Some(field) = table.optional("services")
    {
        let error = field.error(message);
        field.push(error.label("`profile` changes pages").help(help));
    }
}

/// Warns of RAM that the VM's devices do not reach: what is in one GiB with the interrupt
/// controller's CPU interface, which they must not reach.
pub(crate) fn check_reach(
    table: &Table<'_>,
    guarded: &Guarded,
    map: &GuestMap,
    regions: &[Region],
    spans: &[Range<usize>],
) {
    let apart = map.gicc.0 >> GIB_SHIFT;
    let is_apart = |region: &Region| {
        let last = region.ipa.page(u64::from(region.pages)).0 - 1;
        (region.ipa.0 >> GIB_SHIFT..=last >> GIB_SHIFT).contains(&apart)
            && !matches!(region.backing, Backing::Device(_))
    };
    let mut each = regions.iter().zip(spans);
    if guarded.span.is_some()
        && let Some((region, span)) = each.find(|(region, _)| is_apart(region))
    {
        let message = format!(
            "the VM's devices do not reach region `{}`: {:#x}..{:#x} has the CPU interface of its \
             interrupt controller",
            region.name,
            apart << GIB_SHIFT,
            (apart + 1) << GIB_SHIFT
        );
        let error = table.error("ipa", span.clone(), message);
        table.push(error.label("in the same GiB").help(
            "devices must not reach that interface, which is another one for each core: place the \
             region in another GiB, or name another `map`",
        ));
    }
}

/// A VM with devices behind the SMMU.
pub(crate) struct Owner<'a> {
    /// Its name.
    pub name: &'a str,
    /// The path of its table.
    pub path: &'a str,
    /// Where the first of the devices is passed through.
    pub span: Range<usize>,
}

/// Checks that one VM alone has devices behind the SMMU.
pub(crate) fn check_between<'a>(context: &Context, mut owners: impl Iterator<Item = Owner<'a>>) {
    if let (Some(first), Some(second)) = (owners.next(), owners.next()) {
        let message = format!(
            "`{}` and `{}` have devices behind the SMMU; one VM can",
            first.name, second.name
        );
        let field = format!("{}.region", second.path);
        context.push(
            Problem::error(&context.file, field, second.span, message)
                .label("the second VM")
                .also(first.span, "the first")
                .help("give all of them to one VM"),
        );
    }
}

/// Has the machine use its SMMU if a VM has streams; no other system touches it.
pub(crate) fn connect(system: &mut System, board: &mut BoardFile) {
    if system.vms.iter().all(|vm| vm.streams.is_empty()) {
        system.board.smmu = None;
    } else if let Some(emulation) = &mut board.emulation
        && let Some(property) = &emulation.smmu
    {
        emulation.machine = format!("{},{property}", emulation.machine);
    }
    board.board.smmu = system.board.smmu;
}
