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
        gic::VIRTUAL_TIMER => virq::timer(cpu),
        gic::SPURIOUS => {}
        gic::KICK => {
            gic::drop_priority(acknowledged);
            gic::deactivate(acknowledged);
            serve_requests(cpu);
        }
        gic::HYPERVISOR_TIMER => {
            gic::drop_priority(acknowledged);
            on_timer(cpu);
            gic::deactivate(acknowledged);
        }
        gic::MAINTENANCE => {
            gic::drop_priority(acknowledged);
            virq::fill(cpu);
            gic::deactivate(acknowledged);
        }
        _ if cpu.pmu_irq == Some(id) => {
            gic::drop_priority(acknowledged);
            quota::on_overflow(cpu);
            vpmu::on_overflow(cpu);
            gic::deactivate(acknowledged);
        }
        _ if console_input::is_interrupt(id) => {
            gic::drop_priority(acknowledged);
            console_input::receive(cpu);
            gic::deactivate(acknowledged);
        }
        _ => {
            // From a passed-through device: the guest deactivates it, or nobody owns it and it stays active, once.
            gic::drop_priority(acknowledged);
            if let Some(vm) = cpu.vm {
                virq::raise(cpu, vm, id);
            }
        }
    }
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
