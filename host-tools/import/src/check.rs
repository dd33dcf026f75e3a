//! Lets `cloison check` look at what was made, and removes what it refuses, with its reason: no rule
//! of the configuration language is repeated here.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::Draft;
use crate::request::Target;
use crate::source::Sources;
use crate::system::{Adapted, Region, RegionBacking};
use crate::{list, write};
use cloison_abi::map;
use cloison_config::{BoardFile, Checked, Errors, Problem};

/// How often it is checked again.
const ROUNDS: usize = 24;

/// A region of registers of this size is of many devices.
const PERMISSIVE: u64 = 1 << 20;

/// Something in a configuration that can be left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Region { vm: usize, region: usize },
    Interrupt { vm: usize, index: usize },
}

/// Removes what the check refuses until it refuses nothing that can be removed.
pub fn settle(
    draft: &mut Draft,
    adapted: &mut Adapted,
    sources: &Sources,
    from: &str,
    board: &BoardFile,
    target: &Target<'_>,
) -> Result<Checked, Errors> {
    let check = |adapted: &Adapted, draft: &Draft| {
        let entries = list::entries(&draft.notes, sources);
        (target.check)(write::configuration(adapted, sources, from, &entries))
    };
    for _ in 0..ROUNDS {
        drop_empty(draft, adapted);
        let errors = match check(adapted, draft) {
            Ok(checked) => return Ok(checked),
            Err(errors) => errors,
        };
        let mut parts: Vec<(Part, &Problem)> = errors
            .problems()
            .iter()
            .filter(|problem| problem.is_error())
            .filter_map(|problem| Some((part(problem.field(), adapted)?, problem)))
            .collect();
        // Regions first: with a device goes its interrupt.
        if parts
            .iter()
            .any(|(part, _)| matches!(part, Part::Region { .. }))
        {
            parts.retain(|(part, _)| matches!(part, Part::Region { .. }));
        }
        parts.sort_by(|(a, _), (b, _)| b.cmp(a));
        parts.dedup_by(|(a, _), (b, _)| a == b);
        // What overlaps a region that goes may stay.
        let going: Vec<Part> = parts.iter().map(|(part, _)| part.clone()).collect();
        parts.retain(|(part, _)| !overlaps_an_earlier(part, &going, adapted));
        if parts.is_empty() {
            return Err(errors);
        }
        for (part, problem) in parts {
            remove(draft, adapted, &part, problem, board);
        }
    }
    check(adapted, draft)
}

/// Removes VMs without memory, and pools that nobody uses.
fn drop_empty(draft: &mut Draft, adapted: &mut Adapted) {
    let is_memory = |region: &Region| matches!(region.backing, RegionBacking::Pool { .. });
    adapted.vms.retain(|vm| {
        let has_memory = vm.regions.iter().any(is_memory);
        if !has_memory {
            let next = "give it a region of memory that a pool can back";
            draft.note(
                vm.place,
                format!("VM {}", vm.name),
                "it has no memory",
                next,
            );
        }
        has_memory
    });
    for index in (0..adapted.pools.len()).rev() {
        let backings = || adapted.vms.iter().flat_map(|vm| &vm.regions);
        let uses = |region: &Region| matches!(region.backing, RegionBacking::Pool { pool, .. } if pool == index);
        if backings().any(uses) {
            continue;
        }
        adapted.pools.remove(index);
        for region in adapted.vms.iter_mut().flat_map(|vm| &mut vm.regions) {
            if let RegionBacking::Pool { pool, .. } = &mut region.backing {
                *pool -= usize::from(*pool > index);
            }
        }
    }
}

/// Returns whether a region overlaps one before it that is also going.
fn overlaps_an_earlier(part: &Part, going: &[Part], adapted: &Adapted) -> bool {
    let Part::Region { vm, region } = *part else {
        return false;
    };
    let regions = &adapted.vms[vm].regions;
    let this = &regions[region];
    going.iter().any(|other| match *other {
        Part::Region { vm: of, region: at } => {
            let other = &regions.get(at).filter(|_| of == vm && at < region);
            other.is_some_and(|other| {
                other.ipa < this.ipa.saturating_add(this.size)
                    && this.ipa < other.ipa.saturating_add(other.size)
            })
        }
        Part::Interrupt { .. } => false,
    })
}

/// Returns the part that a field of the configuration is of.
fn part(field: &str, adapted: &Adapted) -> Option<Part> {
    let (name, rest) = field.strip_prefix("vm[")?.split_once(']')?;
    let vm = adapted.vms.iter().position(|vm| vm.name == name)?;
    if let Some(rest) = rest.strip_prefix(".region[") {
        let (name, _) = rest.split_once(']')?;
        let regions = &adapted.vms[vm].regions;
        let region = regions.iter().position(|region| region.name == name)?;
        return Some(Part::Region { vm, region });
    }
    let index = rest.strip_prefix(".interrupts[")?.strip_suffix(']')?;
    let index = index.parse().ok()?;
    Some(Part::Interrupt { vm, index })
}

fn remove(
    draft: &mut Draft,
    adapted: &mut Adapted,
    part: &Part,
    problem: &Problem,
    board: &BoardFile,
) {
    let next = problem.fix().unwrap_or("nothing").to_owned();
    match *part {
        Part::Region { vm, region } => {
            let vm = &mut adapted.vms[vm];
            let region = vm.regions.remove(region);
            let subject = format!("{} of {} at {:#x}", region.name, vm.name, region.ipa);
            let map = vm.map.as_ref();
            let at = map.map_or(map::UART, |(_, map)| map.uart.base.0);
            let next = if is_uart(&region, board, at) {
                match map {
                    Some((name, _)) => {
                        format!("nothing: its map, `{name}`, has an emulated UART at {at:#x}")
                    }
                    None => format!(
                        "use the emulated UART, a PL011 at {at:#x}, interrupt 33, or name a `map` \
                         with another"
                    ),
                }
            } else if region.size >= PERMISSIVE
                && matches!(region.backing, RegionBacking::Device(_))
            {
                "write a region for each device in it that the VM needs".to_owned()
            } else {
                next
            };
            draft.note(region.place, subject, problem.message(), next);
            // A device that is not there does not interrupt.
            vm.interrupts
                .retain(|interrupt| interrupt.region != Some(region.of));
        }
        Part::Interrupt { vm, index } => {
            let vm = &mut adapted.vms[vm];
            if index < vm.interrupts.len() {
                let interrupt = vm.interrupts.remove(index);
                let subject = format!("interrupt {} of {}", interrupt.number, vm.name);
                draft.note(interrupt.place, subject, problem.message(), next);
            }
        }
    }
}

/// Returns whether a region has a UART that the hypervisor has itself, or that it emulates.
fn is_uart(region: &Region, board: &BoardFile, emulated: u64) -> bool {
    let RegionBacking::Device(pa) = region.backing else {
        return false;
    };
    if region.size >= PERMISSIVE {
        return false;
    }
    let has = |start: u64, at: u64| (start..start.saturating_add(region.size)).contains(&at);
    let board = &board.board;
    let own = board.telemetry.iter().chain([&board.console]);
    own.into_iter().any(|uart| has(pa, uart.base.0)) || has(region.ipa, emulated)
}
