//! The audit: sends what the tables really map, page by page, for the host to check.

use crate::machine::layout;
use crate::machine::mmu;
use crate::vm::{partition, telemetry};
use aarch64_paging::descriptor::El23Attributes as Attr;
use alloc::vec::Vec;
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::telemetry::{MAX_RUN, Message, Part, Stage1Run, Stage2Run};
use cloison_logic::own_frames::OwnFrames;

/// Walks EL2's own tables and sends each page that they map.
pub fn own(frames: &OwnFrames, ttbr: PhysAddr) {
    let mut run: Option<Stage1Run> = None;
    mmu::walk(frames, ttbr, |va, frame, attributes| {
        let next = Stage1Run {
            va,
            part: part(va),
            writable: !attributes.contains(Attr::READ_ONLY),
            executable: !attributes.contains(Attr::XN),
            frames: Vec::new(),
        };
        if let Some(open) = &mut run {
            let follows = open.va + open.frames.len() as u64 * PAGE_SIZE == va && open.frames.len() < MAX_RUN;
            let alike = (open.part, open.writable, open.executable) == (next.part, next.writable, next.executable);
            if !(follows && alike) {
                let full = core::mem::replace(open, next);
                telemetry::send(&Message::Stage1(full));
            }
            open.frames.push(frame.page_number() as u32);
        } else {
            run = Some(Stage1Run { frames: alloc::vec![frame.page_number() as u32], ..next });
        }
    });
    if let Some(last) = run {
        telemetry::send(&Message::Stage1(last));
    }
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

/// Walks every VM's tables and sends each page that they map. To be called before any guest runs.
pub fn run() {
    let mut pages = 0;
    for vm in partition::all() {
        let mut run = Stage2Run { vm: vm.id, ipa: Ipa(0), frames: Vec::with_capacity(MAX_RUN) };
        vm.stage2.walk(|ipa, frame| {
            let next = run.ipa.0 + run.frames.len() as u64 * PAGE_SIZE;
            if run.frames.len() == MAX_RUN || (ipa.0 != next && !run.frames.is_empty()) {
                let full = Stage2Run { frames: core::mem::take(&mut run.frames), ..run };
                telemetry::send(&Message::Stage2(full));
            }
            if run.frames.is_empty() {
                run.ipa = ipa;
            }
            run.frames.push(frame.page_number() as u32);
            pages += 1;
        });
        if !run.frames.is_empty() {
            telemetry::send(&Message::Stage2(run));
        }
    }
    telemetry::send(&Message::AuditEnd { pages });
}
