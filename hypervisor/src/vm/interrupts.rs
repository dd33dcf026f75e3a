//! Physical interrupts: dispatches each to its handler.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{gic, timer};
use crate::vm::cpu::Cpu;
use crate::vm::mailbox::{self, Request};
use crate::vm::{console_input, migrate, quota, telemetry, virq, vpmu};

/// Handles one physical interrupt.
pub fn serve(cpu: &'static Cpu, acknowledged: u32) {
    let id = acknowledged & 0x3ff;
    match id {
        gic::VIRTUAL_TIMER => return virq::timer(cpu),
        gic::SPURIOUS => return,
        _ => gic::drop_priority(acknowledged),
    }
    match id {
        gic::HYPERVISOR_TIMER => on_timer(cpu),
        _ if cpu.pmu_irq == Some(id) => {
            quota::on_overflow(cpu);
            vpmu::on_overflow(cpu);
        }
        gic::KICK => serve_requests(cpu),
        gic::MAINTENANCE => virq::fill(cpu),
        _ if console_input::is_interrupt(id) => console_input::receive(cpu),
        // From a passed-through device: the guest deactivates it, or nobody owns it and it stays active, once.
        _ => return cpu.vm.into_iter().for_each(|vm| virq::raise(cpu, vm, id)),
    }
    gic::deactivate(acknowledged);
}

fn serve_requests(cpu: &'static Cpu) {
    let requests = mailbox::take(cpu.index);
    if requests & Request::Interrupts as u32 != 0 {
        virq::fill(cpu);
    }
    if requests & Request::Power as u32 != 0 {
        // A vCPU that is about to start needs no action here: the parked loop looks at its power state.
        cpu.leave.set(cpu.vm.is_some_and(|vm| vm.power.is_leaving(cpu.vcpu)));
    }
}

/// Handles the EL2 timer: every deadline that has passed.
fn on_timer(cpu: &'static Cpu) {
    let now = timer::now();
    if cpu.deadlines.quota.has_passed(now) {
        quota::on_deadline(cpu, now);
    }
    if cpu.deadlines.migration.has_passed(now) {
        cpu.deadlines.migration.set(None);
        migrate::on_deadline(cpu);
    }
    if cpu.deadlines.output.has_passed(now) {
        telemetry::drain(cpu);
    }
    cpu.deadlines.program();
}
