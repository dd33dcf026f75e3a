//! The audit: sends what the tables really map, page by page, for the host to check.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::layout;
use crate::machine::mmu;
use crate::vm::cpu::Cpu;
use crate::vm::{migrate, partition, telemetry};
use alloc::vec::Vec;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr};
use cloison_formats::telemetry::{MAX_RUN, Message, Part, Stage1Run, Stage2Run};
use cloison_logic::own_frames::OwnFrames;

/// Sends the tables as they are built, once the profiled pages have moved, and once these have come back. To be called
/// when all cores are up, before any guest runs.
pub fn run(cpu: &Cpu, frames: &OwnFrames, ttbr: PhysAddr) {
    pass(frames, ttbr);
    for vm in partition::all() {
        let moved = vm.spec.profile.as_ref().map(|profile| migrate::top(cpu, vm, profile.pages.len() as u64));
        log::debug!("VM {}: moved for the audit: {moved:?}", vm.spec.name);
    }
    pass(frames, ttbr);
    for vm in partition::all() {
        let back = migrate::restore_all(cpu, vm);
        log::debug!("VM {}: moved back: {back:?}", vm.spec.name);
    }
    pass(frames, ttbr);
}

/// Walks all tables and sends each page that they map.
fn pass(frames: &OwnFrames, ttbr: PhysAddr) {
    let mut run: Option<Stage1Run> = None;
    mmu::walk(frames, ttbr, |va, frame, attributes| {
        let next = Stage1Run { va, part: part(va), attributes, frames: Vec::new() };
        let open = run.get_or_insert_with(|| next.clone());
        let follows = open.va + open.frames.len() as u64 * PAGE_SIZE == va && open.frames.len() < MAX_RUN;
        if !(follows && (open.part, open.attributes) == (next.part, next.attributes)) {
            telemetry::send(&Message::Stage1(core::mem::replace(open, next)));
        }
        open.frames.push(frame.page_number() as u32);
    });
    run.into_iter().for_each(|last| telemetry::send(&Message::Stage1(last)));
    guests();
}

fn part(va: u64) -> Part {
    match va {
        layout::IMAGE..layout::ARENA => Part::Image,
        layout::ARENA..layout::DEVICES => Part::Tables,
        layout::DEVICES..layout::WINDOW => Part::Devices,
        layout::WINDOW..layout::PAYLOAD => Part::Windows,
        layout::PAYLOAD..layout::STACKS => Part::Payload,
        layout::STACKS.. => Part::Stacks,
        _ => Part::Trampoline,
    }
}

fn guests() {
    let mut pages = 0;
    for vm in partition::all() {
        let mut run: Option<Stage2Run> = None;
        vm.stage2.walk(|ipa, frame, attributes| {
            let next = Stage2Run { vm: vm.id, ipa, attributes, frames: Vec::new() };
            let open = run.get_or_insert_with(|| next.clone());
            let follows = open.ipa.page(open.frames.len() as u64) == ipa && open.frames.len() < MAX_RUN;
            if !(follows && open.attributes == attributes) {
                telemetry::send(&Message::Stage2(core::mem::replace(open, next)));
            }
            open.frames.push(frame.page_number() as u32);
            pages += 1;
        });
        run.into_iter().for_each(|last| telemetry::send(&Message::Stage2(last)));
    }
    telemetry::send(&Message::AuditEnd { pages });
}
