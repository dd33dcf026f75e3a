//! Fits a foreign system to a board: cores, colors, memory, devices.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cores;
use crate::draft::{Backing, Colors, Draft, DraftImage, DraftRegion, DraftVm, Sharing};
use crate::images;
use crate::names::Names;
use crate::request::Options;
use crate::source::{Place, Sources};
use crate::system::{Adapted, Pool, Region, RegionBacking, Vm};
use cloison_abi::map;
use cloison_config::BoardFile;
use cloison_config::memory::{Account, IMAGE_BYTES};
use cloison_config::problem::count;
use cloison_config::quantity::show_size;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::{Color, ColorSet};
use cloison_formats::guest_map::GuestMap;
use cloison_formats::image::IPA_BITS;
use cloison_formats::limits::{MAX_IRQ, MAX_VMS};

/// Where memory may not be, because the usual map has devices there; to whole large pages.
const HOLE: (u64, u64) = (map::GICD, 0x0920_0000);
/// What sizes of memory are rounded to if they must shrink.
const LARGE_PAGE: u64 = 2 << 20;
/// The largest device that is passed through: windows of buses are larger, and the hypervisor has
/// tables for 3.5 GiB in all.
const LARGEST_DEVICE: u64 = 1 << 30;
/// What the system image may take beside [`IMAGE_BYTES`]: a Debian kernel.
const KERNEL_BYTES: u64 = 48 << 20;
/// The PPI of the virtual timer, which every VM has.
const VIRTUAL_TIMER: u64 = 27;

/// Fits a draft to a board.
pub fn adapt(
    draft: &mut Draft,
    board: &BoardFile,
    sources: &Sources,
    options: &Options,
    maps: &[(String, GuestMap)],
) -> Adapted {
    let mut names = Names::default();
    drop_surplus(draft);
    let cores = cores::assign(draft, board);
    let mut vms: Vec<DraftVm> = std::mem::take(&mut draft.vms);
    let colors = ColorSet::first(board.colors);
    let hypervisor = prepare_colors(draft, &mut vms, colors, options, board);
    let mut adapted = Adapted {
        name: names.system(&draft.name),
        board: board.board.name.clone(),
        hypervisor,
        pools: Vec::new(),
        vms: Vec::new(),
    };
    let mut scene = Scene {
        pools: Vec::new(),
        all: colors.without(hypervisor),
        sources,
        options,
        maps,
    };
    for (vm, cores) in vms.iter().zip(cores) {
        let name = names.unique(&vm.name, "vm");
        if cores.is_empty() {
            let what = format!("VM {}", vm.name);
            let next = "give it cores in the source, or import it for a larger board";
            draft.note(vm.place, what, "no core is left for it", next);
            continue;
        }
        adapted
            .vms
            .push(adapt_vm(draft, vm, name, cores, &mut scene));
    }
    adapted.pools = scene.pools;
    drop_shared_interrupts(draft, &mut adapted);
    name_pools(&mut adapted, &vms, hypervisor);
    fit_memory(draft, &mut adapted, board);
    adapted
}

/// Drops VMs beyond the most that there can be.
fn drop_surplus(draft: &mut Draft) {
    let surplus = draft.vms.split_off(draft.vms.len().min(MAX_VMS));
    for vm in surplus {
        let reason = format!("a system has at most {MAX_VMS} VMs");
        draft.note(
            vm.place,
            format!("VM {}", vm.name),
            reason,
            "join VMs, or leave some out",
        );
    }
}

/// Limits all colors to those of the board, and sets some apart for the hypervisor.
fn prepare_colors(
    draft: &mut Draft,
    vms: &mut [DraftVm],
    all: ColorSet,
    options: &Options,
    board: &BoardFile,
) -> ColorSet {
    let mut masks: Vec<(Colors, Sharing)> = Vec::new();
    for vm in vms.iter_mut() {
        for region in &mut vm.regions {
            let Backing::Memory { colors, sharing } = &mut region.backing else {
                continue;
            };
            let Some(wanted) = *colors else { continue };
            let lost = ColorSet(wanted.mask).without(all);
            if !lost.is_empty() {
                let reason = format!(
                    "the cache of {} has {} colors: there is no {lost}",
                    board.board.name, board.colors
                );
                let next = "choose a board with a larger cache, or divide its colors again";
                draft.note(wanted.place, "colors", reason, next);
            }
            let kept = ColorSet(wanted.mask).and(all);
            *colors = (!kept.is_empty()).then_some(Colors {
                mask: kept.0,
                place: wanted.place,
            });
            masks.extend(colors.map(|colors| (colors, *sharing)));
        }
    }
    let used = masks.iter().fold(0, |used, (colors, _)| used | colors.mask);
    let given = options
        .hypervisor_colors
        .or(draft.hypervisor_colors.map(|colors| colors.mask))
        .map(|mask| ColorSet(mask).and(all))
        .filter(|mask| !mask.is_empty());
    let free = all.without(ColorSet(used));
    let highest = |colors: ColorSet| ColorSet(1_u64 << (63 - colors.0.leading_zeros()));
    let own = given.unwrap_or_else(|| {
        if !free.is_empty() {
            return highest(free);
        }
        let shared = masks
            .iter()
            .filter(|(_, sharing)| *sharing == Sharing::Shared);
        let largest = shared
            .max_by_key(|(colors, _)| colors.mask.count_ones())
            .or(masks
                .iter()
                .max_by_key(|(colors, _)| colors.mask.count_ones()));
        largest.map_or(all, |(colors, _)| highest(ColorSet(colors.mask)))
    });
    for vm in vms {
        for region in &mut vm.regions {
            if let Backing::Memory {
                colors: Some(colors),
                ..
            } = &mut region.backing
            {
                take_for_hypervisor(draft, colors, own);
            }
        }
    }
    own
}

/// Takes the hypervisor's colors from a region's.
fn take_for_hypervisor(draft: &mut Draft, colors: &mut Colors, own: ColorSet) {
    let (before, lost) = (ColorSet(colors.mask), ColorSet(colors.mask).and(own));
    let left = before.without(own);
    if lost.is_empty() || left.is_empty() {
        return;
    }
    let reason = format!(
        "the hypervisor needs colors that no VM has, and the VMs have all: {lost} of {before} is \
         the hypervisor's"
    );
    let next = "choose another one with --hypervisor-colors, such as one of a VM that matters less";
    draft.note(colors.place, "colors", reason, next);
    colors.mask = left.0;
}

/// What all VMs are adapted with.
struct Scene<'a> {
    pools: Vec<Pool>,
    /// The colors that the hypervisor leaves.
    all: ColorSet,
    sources: &'a Sources,
    options: &'a Options,
    /// The maps that a guest can see.
    maps: &'a [(String, GuestMap)],
}

fn adapt_vm(
    draft: &mut Draft,
    vm: &DraftVm,
    name: String,
    cores: Vec<u64>,
    scene: &mut Scene<'_>,
) -> Vm {
    let mut names = Names::default();
    let map = map_of(draft, vm, scene.maps);
    let mut regions = Vec::new();
    for (of, region) in vm.regions.iter().enumerate() {
        match region.backing {
            Backing::Memory { colors, sharing } => {
                let pool = pool_of(&mut scene.pools, colors, scene.all);
                let region = &moved(draft, region, vm);
                for (ipa, size) in pieces(draft, region, map.is_none().then_some(HOLE)) {
                    regions.push(Region {
                        name: names.unique(region.name.as_deref().unwrap_or("ram"), "ram"),
                        place: region.place,
                        ipa,
                        size,
                        wanted: size,
                        backing: RegionBacking::Pool {
                            pool,
                            is_reserved: sharing == Sharing::Apart,
                        },
                        execute: region.execute,
                        of,
                    });
                }
            }
            Backing::Device(pa) => {
                let name = names.unique(region.name.as_deref().unwrap_or("device"), "device");
                regions.extend(device(draft, region, pa, name, of));
            }
        }
    }
    let mut interrupts = vm.interrupts.clone();
    interrupts.retain(|interrupt| is_possible(draft, interrupt.number, interrupt.place));
    interrupts.sort_by_key(|interrupt| interrupt.number);
    interrupts.dedup_by_key(|interrupt| interrupt.number);
    let image = images::find(draft, vm, &name, scene.sources, scene.options);
    if image.has_tree() {
        // Linux is loaded into the first one.
        regions.sort_by_key(|region| std::cmp::Reverse(weight(region)));
    }
    Vm {
        name,
        origin: vm.name.clone(),
        place: vm.place,
        cores,
        interrupts,
        map,
        image,
        regions,
        remarks: vm.remarks.clone(),
    }
}

/// Returns the map that a guest was built for, if it is not the usual one. A kernel finds the
/// devices in its device tree.
fn map_of(
    draft: &mut Draft,
    vm: &DraftVm,
    maps: &[(String, GuestMap)],
) -> Option<(String, GuestMap)> {
    if !matches!(vm.image, DraftImage::File { .. }) {
        return None;
    }
    let at = vm.distributor.or(draft.distributors.first().copied())?;
    if at == map::GICD {
        return None;
    }
    let found = maps.iter().find(|(_, map)| map.gicd.0 == at);
    if found.is_none() {
        let reason = format!(
            "no map has an interrupt distributor at {at:#x}: the VM sees it at {:#x}",
            map::GICD
        );
        let next = "describe where the guest expects its devices in a map (docs/configuration.md)";
        draft.note(vm.place, format!("VM {}", vm.name), reason, next);
    }
    found.cloned()
}

/// Returns how good a region is for a kernel: memory by its size, then devices in their order.
const fn weight(region: &Region) -> u64 {
    match region.backing {
        RegionBacking::Pool {
            is_reserved: false, ..
        } => region.size,
        RegionBacking::Pool { .. } => 1,
        RegionBacking::Device(_) => 0,
    }
}

/// Returns whether an interrupt can be one of a VM's; the virtual timer's, every VM has.
fn is_possible(draft: &mut Draft, number: u64, place: Place) -> bool {
    if (32..MAX_IRQ.into()).contains(&number) {
        return true;
    }
    if number != VIRTUAL_TIMER {
        let reason = "only shared interrupts, 32 to 1019, are passed on";
        let next = "poll the device, or use the virtual timer, interrupt 27, which every VM has";
        draft.note(place, format!("interrupt {number}"), reason, next);
    }
    false
}

/// Returns the pool with these colors, or with all that the hypervisor leaves.
fn pool_of(pools: &mut Vec<Pool>, colors: Option<Colors>, all: ColorSet) -> usize {
    let wanted = colors.map_or(all, |colors| ColorSet(colors.mask));
    if let Some(found) = pools.iter().position(|pool| pool.colors == wanted) {
        return found;
    }
    pools.push(Pool {
        name: String::new(),
        is_private: false,
        colors: wanted,
        place: colors.map(|colors| colors.place),
    });
    pools.len() - 1
}

/// Returns a region of memory where the VM's addresses reach: a kernel runs wherever its memory is.
fn moved(draft: &mut Draft, region: &DraftRegion, vm: &DraftVm) -> DraftRegion {
    let ends = region.ipa.saturating_add(region.size);
    let is_alone = vm
        .regions
        .iter()
        .filter(|other| matches!(other.backing, Backing::Memory { .. }))
        .all(|other| other.ipa >= region.ipa);
    let is_free = matches!(vm.image, DraftImage::Kernel { .. } | DraftImage::Debian) && is_alone;
    let mut region = region.clone();
    if ends > 1 << IPA_BITS && is_free {
        let reason = format!(
            "a VM's addresses have {IPA_BITS} bits: the memory at {:#x} is at {:#x} here",
            region.ipa,
            map::RAM
        );
        draft.note(region.place, "memory", reason, "nothing");
        region.ipa = map::RAM;
    }
    region
}

/// Returns the parts of a region of memory that are whole pages beside the emulated devices.
fn pieces(draft: &mut Draft, region: &DraftRegion, hole: Option<(u64, u64)>) -> Vec<(u64, u64)> {
    let ipa = region
        .ipa
        .checked_next_multiple_of(PAGE_SIZE)
        .unwrap_or(u64::MAX);
    let end = region.ipa.saturating_add(region.size) / PAGE_SIZE * PAGE_SIZE;
    if end <= ipa {
        let reason = format!("{} are less than a page", show_size(region.size));
        draft.note(
            region.place,
            "memory",
            reason,
            "make it larger, or remove it",
        );
        return Vec::new();
    }
    if end - ipa != region.size {
        let reason = format!("memory is whole pages: {} here", show_size(end - ipa));
        draft.note(region.place, "memory", reason, "align its address and size");
    }
    let Some((hole, after)) = hole.filter(|(hole, after)| *hole < end && ipa < *after) else {
        return vec![(ipa, end - ipa)];
    };
    let reason =
        format!("{hole:#x} to {after:#x} are not memory: every VM's emulated devices are there");
    let next = "link the guest elsewhere if it uses them; 0x40000000 is the usual place";
    draft.note(region.place, "memory", reason, next);
    let parts = [(ipa, hole), (after.max(ipa), end)];
    parts
        .into_iter()
        .filter(|(start, end)| start < end)
        .map(|(start, end)| (start, end - start))
        .collect()
}

/// Returns a device's region, of whole pages.
fn device(
    draft: &mut Draft,
    region: &DraftRegion,
    pa: u64,
    name: String,
    of: usize,
) -> Option<Region> {
    let (before, behind) = (pa % PAGE_SIZE, region.ipa % PAGE_SIZE);
    let size = before
        .checked_add(region.size)
        .and_then(|size| size.checked_next_multiple_of(PAGE_SIZE));
    let Some(size) = size.filter(|_| before == behind && region.size > 0) else {
        let reason = "registers are passed through in whole pages";
        let next = "give both addresses the same offset in a page";
        draft.note(region.place, format!("device {pa:#x}"), reason, next);
        return None;
    };
    if size > LARGEST_DEVICE {
        let reason = format!(
            "{} are more than the hypervisor's tables can map beside memory",
            show_size(size)
        );
        let next = "pass through the part that the guest uses";
        draft.note(region.place, format!("device {pa:#x}"), reason, next);
        return None;
    }
    if size != region.size {
        let reason = format!(
            "registers are passed through in whole pages: {} here",
            show_size(size)
        );
        let next = "make sure that nothing else is in these pages";
        draft.note(region.place, format!("device {pa:#x}"), reason, next);
    }
    Some(Region {
        name,
        place: region.place,
        ipa: region.ipa - behind,
        size,
        wanted: size,
        backing: RegionBacking::Device(pa - before),
        execute: true,
        of,
    })
}

/// Leaves each interrupt to the first VM that has it.
fn drop_shared_interrupts(draft: &mut Draft, adapted: &mut Adapted) {
    let mut taken: Vec<u64> = Vec::new();
    for vm in &mut adapted.vms {
        vm.interrupts.retain(|interrupt| {
            let is_free = !taken.contains(&interrupt.number);
            if !is_free {
                let next = "give the device and its interrupt to one of them";
                let subject = format!("interrupt {}", interrupt.number);
                draft.note(
                    interrupt.place,
                    subject,
                    "an interrupt belongs to one VM",
                    next,
                );
            }
            is_free
        });
        taken.extend(vm.interrupts.iter().map(|interrupt| interrupt.number));
    }
}

/// Decides which pools are private, and names them all.
fn name_pools(adapted: &mut Adapted, vms: &[DraftVm], hypervisor: ColorSet) {
    let users = |index: usize| -> Vec<&str> {
        let uses = |region: &Region| matches!(region.backing, RegionBacking::Pool { pool, .. } if pool == index);
        let all = adapted.vms.iter();
        all.filter(|vm| vm.regions.iter().any(uses))
            .map(|vm| vm.name.as_str())
            .collect()
    };
    let is_shared = |pool: &Pool| {
        vms.iter()
            .flat_map(|vm| &vm.regions)
            .any(|region| match region.backing {
                Backing::Memory {
                    colors: Some(colors),
                    sharing,
                } => {
                    sharing == Sharing::Shared
                        && ColorSet(colors.mask).without(hypervisor) == pool.colors
                }
                _ => false,
            })
    };
    let pools = &adapted.pools;
    let is_private: Vec<bool> = pools
        .iter()
        .enumerate()
        .map(|(index, pool)| {
            let mut others = pools
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let is_alone = others.all(|(_, other)| other.colors.and(pool.colors).is_empty());
            is_alone && users(index).len() == 1 && pool.place.is_some() && !is_shared(pool)
        })
        .collect();
    let is_only = is_private.iter().filter(|is_private| **is_private).count() == 1;
    let mut names = Names::default();
    let wanted: Vec<String> = (0..pools.len())
        .map(|index| match (is_private[index], is_only) {
            (true, true) => names.unique("private", "pool"),
            (true, false) => names.unique(users(index).first().unwrap_or(&"pool"), "pool"),
            (false, _) => names.unique("shared", "pool"),
        })
        .collect();
    for ((pool, name), is_private) in adapted.pools.iter_mut().zip(wanted).zip(is_private) {
        (pool.name, pool.is_private) = (name, is_private);
    }
}

/// Shrinks memory that the board does not have, and finds memory for workloads.
fn fit_memory(draft: &mut Draft, adapted: &mut Adapted, board: &BoardFile) {
    let image = IMAGE_BYTES
        + adapted.vms.iter().map(|vm| vm.image.bytes()).sum::<u64>()
        + if adapted.vms.iter().any(|vm| vm.image.is_debian()) {
            KERNEL_BYTES
        } else {
            0
        };
    let image = image.next_multiple_of(1 << 20);
    let account = Account::of_board(&board.board, board.colors, image);
    // Memory that shrinks may no longer be where a workload is loaded.
    shrink(adapted, &account);
    adapted.vms.iter_mut().for_each(images::make_room);
    shrink(adapted, &account);
    for vm in &adapted.vms {
        for region in vm
            .regions
            .iter()
            .filter(|region| region.size != region.wanted)
        {
            let reason = format!(
                "{} instead of {}: {} has {} in {}",
                show_size(region.size),
                show_size(region.wanted),
                board.board.name,
                show_size(account.total() * PAGE_SIZE),
                count(account.colors() as usize, "color"),
            );
            let next = "give colors to the VMs in another way, or choose a board with more RAM";
            draft.note(region.place, format!("memory of {}", vm.name), reason, next);
        }
    }
}

/// Shrinks the largest regions until each color has the pages that all its pools take from it. A
/// pool takes as many from each of its colors.
fn shrink(adapted: &mut Adapted, account: &Account) {
    let pools: Vec<ColorSet> = adapted.pools.iter().map(|pool| pool.colors).collect();
    for color in 0..account.colors() {
        let color = Color(color as u8);
        let room = account.pages_of(ColorSet::EMPTY.with(color));
        let mut all: Vec<(&mut Region, u64)> = adapted
            .vms
            .iter_mut()
            .flat_map(|vm| &mut vm.regions)
            .filter_map(|region| match region.backing {
                RegionBacking::Pool { pool, .. } if pools[pool].contains(color) => {
                    Some((region, u64::from(pools[pool].len())))
                }
                _ => None,
            })
            .collect();
        let parts: Vec<u64> = all
            .iter()
            .map(|(region, colors)| (region.size / PAGE_SIZE).div_ceil(*colors))
            .collect();
        let Some(limit) = level(parts, room) else {
            continue;
        };
        for (region, colors) in &mut all {
            let most = limit.saturating_mul(*colors).saturating_mul(PAGE_SIZE);
            if region.size > most {
                let whole = most / LARGE_PAGE * LARGE_PAGE;
                region.size = if whole > 0 {
                    whole
                } else {
                    most.max(PAGE_SIZE)
                };
            }
        }
    }
}

/// Returns to what the largest of these numbers must shrink so that their sum is at most `room`;
/// nothing if it is.
fn level(mut numbers: Vec<u64>, room: u64) -> Option<u64> {
    let sum = numbers
        .iter()
        .fold(0_u64, |sum, number| sum.saturating_add(*number));
    if sum <= room {
        return None;
    }
    numbers.sort_unstable();
    let mut left = room;
    for (at, number) in numbers.iter().enumerate() {
        let each = left / (numbers.len() - at) as u64;
        if *number > each {
            return Some(each);
        }
        left -= number;
    }
    None
}

/// Returns the board that a draft is for: the smallest of those with its interrupt distributor that
/// has its cores and memory, or the largest.
pub fn choose<'a>(
    draft: &mut Draft,
    boards: &'a [BoardFile],
    default: &str,
) -> Option<&'a BoardFile> {
    let address = |board: &BoardFile| board.board.gic.gicd.0;
    // A VM may see a distributor elsewhere than where the board has it; the first one is most often
    // where both have it.
    let mut fitting: Vec<&BoardFile> = draft
        .distributors
        .iter()
        .map(|at| {
            boards
                .iter()
                .filter(|board| address(board) == *at)
                .collect()
        })
        .find(|found: &Vec<_>| !found.is_empty())
        .unwrap_or_default();
    if fitting.is_empty() {
        let default = boards.iter().find(|board| board.board.name == default)?;
        let like = |board: &&BoardFile| address(board) == address(default);
        fitting = boards.iter().filter(like).collect();
        if let (Some(vm), Some(at)) = (draft.vms.first(), draft.distributors.first()) {
            let (place, at) = (vm.place, *at);
            let reason = format!(
                "no board of Cloison has its interrupt distributor at {at:#x}: this is for QEMU's \
                 virtual board"
            );
            let next = "write a board file (docs/porting.md) and import with --board";
            draft.note(place, "board", reason, next);
        }
    }
    let ram = |board: &BoardFile| board.board.ram.iter().map(|range| range.len).sum::<u64>();
    let wanted: u64 = draft
        .vms
        .iter()
        .flat_map(|vm| &vm.regions)
        .filter(|region| matches!(region.backing, Backing::Memory { .. }))
        .fold(IMAGE_BYTES + KERNEL_BYTES, |sum, region| {
            sum.saturating_add(region.size)
        });
    let cores = cores::needed(draft);
    fitting.sort_by_key(|board| (board.board.cores.len(), ram(board)));
    let found = fitting
        .iter()
        .find(|board| board.board.cores.len() >= cores && ram(board) >= wanted)
        .or_else(|| {
            fitting
                .iter()
                .find(|board| board.board.cores.len() >= cores)
        })
        .or(fitting.last());
    found.copied()
}
