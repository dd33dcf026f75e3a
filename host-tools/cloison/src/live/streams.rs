//! The audit of an SMMU: its stream table, and what the devices of each open stream reach.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::Pass;
use cloison_formats::addr::{Ipa, PAGE_SHIFT};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Streams, System};
use cloison_formats::telemetry::{Stage2Run, StreamEntry};
use std::collections::{BTreeMap, HashSet};

/// Bits of an address within the GiB of an entry of the first table.
const GIB_SHIFT: u32 = 30;

/// Returns the first three words of an entry (Arm IHI 0070, 5.2) for a VM: valid, translated by stage
/// 2 alone; the shareability that the device says; and the walk of its tables: 39 bits of 4 KiB pages
/// from level 1, by write-back inner shareable accesses, to 40 bits, with refused accesses recorded.
fn words(vm: VmId) -> [u64; 3] {
    let walk = [
        (0, 25),
        (6, 1),
        (8, 1),
        (10, 1),
        (12, 3),
        (14, 0),
        (16, 2),
        (19, 1),
        (26, 1),
    ];
    let walk = walk
        .into_iter()
        .fold(0, |all, (shift, value)| all | value << shift);
    [
        0b110 << 1 | 1,
        1 << 44,
        (walk << 32) | (u64::from(vm.0) + 1),
    ]
}

/// Returns the pages of runs, with their frames and attributes.
fn pages<'a>(runs: impl Iterator<Item = &'a Stage2Run>) -> BTreeMap<u64, (u32, u64)> {
    let of = |run: &Stage2Run| {
        let (ipa, attributes) = (run.ipa, run.attributes);
        let frames = run.frames.clone().into_iter().zip(0..);
        frames.map(move |(frame, page)| (ipa.page(page).page_number(), (frame, attributes)))
    };
    runs.flat_map(of).collect()
}

/// What a pass says of streams.
pub(super) struct Found {
    /// How many are open.
    pub open: u64,
    /// Pages that their devices reach.
    pub reached: u64,
    /// What is wrong with them.
    pub wrong: Vec<String>,
}

/// Checks the streams of a pass: those of the configuration alone are open, each to the VM's own
/// pages. Devices reach none in the GiB of the virtual CPU interface.
pub(super) fn judge(system: &System, pass: &Pass, own: &HashSet<u32>) -> Found {
    let mut wrong = Vec::new();
    let owner = |stream| {
        let vms = (0..).map(VmId).zip(&system.vms);
        vms.into_iter().find(|(_, vm)| vm.streams.contains(stream))
    };
    for &StreamEntry {
        stream,
        words: found,
    } in &pass.streams
    {
        let Some((id, vm)) = owner(stream) else {
            wrong.push(format!("stream {stream} is open, and no VM has it"));
            continue;
        };
        let root = found[3] >> PAGE_SHIFT;
        let is_own = u32::try_from(root).is_ok_and(|frame| own.contains(&frame));
        if found[..3] != words(id) || found[3] != root << PAGE_SHIFT || !is_own {
            wrong.push(format!(
                "stream {stream} of `{}` has the entry {found:#x?}",
                vm.name
            ));
        }
    }
    for (id, vm) in (0..).map(VmId).zip(&system.vms) {
        let entries = || {
            pass.streams
                .iter()
                .filter(|it| vm.streams.contains(it.stream))
        };
        for stream in (0..Streams::MOST).filter(|&stream| vm.streams.contains(stream)) {
            if entries().filter(|it| it.stream == stream).count() != 1 {
                wrong.push(format!("stream {stream} of `{}` is not open", vm.name));
            }
        }
        let roots: HashSet<u64> = entries().map(|it| it.words[3]).collect();
        if roots.len() > 1 {
            wrong.push(format!(
                "the streams of `{}` have {} roots",
                vm.name,
                roots.len()
            ));
        }
        let apart = vm.map.gicc.0 >> GIB_SHIFT;
        let gib = |page: u64| page >> (GIB_SHIFT - PAGE_SHIFT);
        let of = |runs: &[Stage2Run]| pages(runs.iter().filter(|run| run.vm == id));
        let mut expected = of(&pass.stage2);
        expected.retain(|page, _| gib(*page) != apart && !vm.streams.is_empty());
        let found = of(&pass.devices);
        let differs = |page: &&u64| expected.get(page) != found.get(page);
        if let Some(page) = expected.keys().chain(found.keys()).find(differs) {
            wrong.push(format!(
                "the devices of `{}` do not reach what it has at {}: {:x?} instead of {:x?}",
                vm.name,
                Ipa(0).page(*page),
                found.get(page),
                expected.get(page)
            ));
        }
    }
    let reached = pass.devices.iter().map(|run| run.frames.len() as u64);
    Found {
        open: pass.streams.len() as u64,
        reached: reached.sum(),
        wrong,
    }
}
