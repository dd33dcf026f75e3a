//! The audit: sends what the tables really map, page by page, for the host to check.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::smmu;
use crate::machine::layout;
use crate::machine::mmu::{self, Visitor};
use crate::vm::cpu::Cpu;
use crate::vm::migrate::Work;
use crate::vm::partition::{self, Vm};
use crate::vm::telemetry;
use alloc::vec::Vec;
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::ids::VmId;
use cloison_formats::telemetry::{MAX_RUN, Message, Part, Stage1Run, Stage2Run, StreamEntry};
use cloison_logic::own_frames::OwnFrames;

/// Sends the tables as they are built, once the profiled pages have moved, and once these have come
/// back. To be called when all cores are up, before any guest runs.
///
/// The tables are read as the MMU reads them, not from what was meant to be mapped: the host
/// compares the two. `ttbr` is the root of EL2's own tables.
pub fn run(cpu: &'static Cpu, frames: &OwnFrames, ttbr: PhysAddr) {
    // As while the VM lives: the audit is of what its devices reach then.
    smmu::open();
    pass(frames, ttbr);
    for vm in partition::all() {
        if let Some(profile) = &vm.spec.profile {
            // All pages of the profile, not only those that the configuration moves: the audit sees
            // each in its other frame.
            let moved = Work::at_boot(cpu, vm).top(profile.pages.len() as u64);
            // An error is no reason to stop: the pass shows the host which pages moved.
            log::debug!("VM {}: moved for the audit: {moved:?}", vm.spec.name);
        }
    }
    send_records(cpu);
    // In this pass, profiled pages must be in their VM's private pool, and nothing else may differ.
    pass(frames, ttbr);
    for vm in partition::all() {
        let back = Work::at_boot(cpu, vm).restore_all();
        log::debug!("VM {}: moved back: {back:?}", vm.spec.name);
    }
    send_records(cpu);
    // Now all must be as in the first pass.
    pass(frames, ttbr);
}

/// Sends the records of the pages that have moved, before what is read back.
fn send_records(cpu: &Cpu) {
    // Waits for the UART, since no guest runs: nothing may be lost.
    while !telemetry::drain(cpu) {}
}

/// Walks all tables and sends each page that they map.
fn pass(frames: &OwnFrames, ttbr: PhysAddr) {
    send_runs(
        |visit| mmu::walk(frames, ttbr, visit),
        |va, attributes, frames| {
            Message::Stage1(Stage1Run {
                va,
                part: part(va),
                attributes,
                frames,
            })
        },
    );
    let run = |vm| {
        move |ipa, attributes, frames| Stage2Run {
            vm,
            ipa: Ipa(ipa),
            attributes,
            frames,
        }
    };
    let each = |vm: &Vm| {
        let run = run(vm.id);
        send_runs(
            |visit| vm.stage2.walk(visit),
            |ipa, attributes, frames| Message::Stage2(run(ipa, attributes, frames)),
        )
    };
    let pages = partition::all().iter().map(each).sum();
    let mut sent = None;
    smmu::walk(|stream, words| {
        telemetry::send(&Message::Stream(StreamEntry { stream, words }));
        // The pages below the root that the entry names, once.
        if sent.replace(words[3]) != Some(words[3]) {
            let run = run(VmId((words[2] as u8).wrapping_sub(1)));
            send_runs(
                |visit| mmu::walk(frames, PhysAddr(words[3]), visit),
                |ipa, attributes, frames| Message::Device(run(ipa, attributes, frames)),
            );
        }
    });
    telemetry::send(&Message::AuditEnd { pages });
}

/// Sends the pages that `walk` visits, in order of address: those that follow each other and have
/// the same attributes as one message. Returns how many there are.
fn send_runs(
    walk: impl FnOnce(&mut Visitor),
    message: impl Fn(u64, u64, Vec<u32>) -> Message,
) -> u64 {
    let mut pages = 0;
    // The run that has not been sent yet: its first address, its attributes, and its frames.
    let mut run = None;
    let send = |(start, attributes, frames)| telemetry::send(&message(start, attributes, frames));
    walk(&mut |address, frame, attributes| {
        let ends = |(start, same, frames): &mut (u64, u64, Vec<u32>)| {
            // A run ends at a gap, at a change of attributes, or at its greatest length. Frames
            // need not be consecutive: coloring scatters them.
            let next = *start + frames.len() as u64 * PAGE_SIZE;
            address != next || *same != attributes || frames.len() == MAX_RUN
        };
        run.take_if(ends).into_iter().for_each(send);
        run.get_or_insert_with(|| (address, attributes, Vec::new()))
            .2
            .push(frame.page_number() as u32);
        pages += 1;
    });
    run.into_iter().for_each(send);
    pages
}

/// Returns the part of EL2's address space that has an address. What is in no part of the layout is
/// the trampoline's identity page.
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
