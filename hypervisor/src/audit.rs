//! The audit: what stage 2 really maps, page by page, for the host to check.

use crate::telemetry;
use crate::vm;
use alloc::vec::Vec;
use cloison_core::addr::{Ipa, PAGE_SIZE};
use cloison_core::wire::{Frame, MAX_RUN, Stage2Run};

/// Walks every VM's tables and sends each page that they map. Before any guest runs.
pub fn run() {
    let mut pages = 0;
    for vm in vm::all() {
        let mut run = Stage2Run { vm: vm.id, ipa: Ipa(0), frames: Vec::with_capacity(MAX_RUN) };
        vm.stage2.walk(|ipa, frame| {
            let next = run.ipa.0 + run.frames.len() as u64 * PAGE_SIZE;
            if run.frames.len() == MAX_RUN || (ipa.0 != next && !run.frames.is_empty()) {
                let full = Stage2Run { frames: core::mem::take(&mut run.frames), ..run };
                telemetry::send(&Frame::Stage2(full));
            }
            if run.frames.is_empty() {
                run.ipa = ipa;
            }
            run.frames.push(frame.page_number() as u32);
            pages += 1;
        });
        if !run.frames.is_empty() {
            telemetry::send(&Frame::Stage2(run));
        }
    }
    telemetry::send(&Frame::AuditEnd { pages });
}
