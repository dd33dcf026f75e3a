//! Physical interrupts: dispatches each to its handler.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, gic, timer};
use crate::vm::cpu::Cpu;
use crate::vm::mailbox::{self, Request};
use crate::vm::migrate::Work;
use crate::vm::partition::Vm;
use crate::vm::{console_input, quota, telemetry, virq, vpmu};
use cloison_logic::messages::Position;

/// Handles the physical interrupts that are pending, a few at most: other vCPUs could send them without end.
pub fn serve_pending(cpu: &'static Cpu) {
    for acknowledged in (0..8)
        .map(|_| gic::acknowledge())
        .take_while(|number| number & 0x3ff != gic::SPURIOUS)
    {
        serve(cpu, acknowledged);
    }
}

/// Repeats `more` until it returns false, and serves what is pending before each time.
pub fn serve_while(cpu: &'static Cpu, mut more: impl FnMut() -> bool) {
    serve_pending(cpu);
    while more() {
        serve_pending(cpu);
    }
}

/// Handles one physical interrupt.
pub fn serve(cpu: &'static Cpu, acknowledged: u32) {
    let id = acknowledged & 0x3ff;
    if id == gic::SPURIOUS {
        return;
    }
    gic::drop_priority(acknowledged);
    match id {
        gic::HYPERVISOR_TIMER => return on_timer(cpu),
        _ if cpu.pmu_irq == Some(id) && cpu.vm.is_some_and(Vm::has_pmu_irq) => {
            return virq::raise_private(cpu, id);
        }
        _ if cpu.pmu_irq == Some(id) => {
            quota::on_overflow(cpu);
            vpmu::on_overflow(cpu);
        }
        gic::VIRTUAL_TIMER => return virq::timer(cpu),
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
        cpu.leave
            .set(cpu.vm.is_some_and(|vm| vm.power.is_leaving(cpu.vcpu)));
    }
}

/// Between two batches of work for a guest: charges `pages` of it to the core, serves what is pending, and holds the core
/// while a budget is spent. Returns whether to continue, which a vCPU that has to stop does not.
pub fn pause(cpu: &'static Cpu, pages: u64) -> bool {
    quota::charge(cpu, pages);
    loop {
        serve_pending(cpu);
        if !cpu.throttled.get() || cpu.leave.get() {
            return !cpu.leave.get();
        }
        aarch64_cpu::asm::wfi();
    }
}

/// Waits until what a VM has written to its UART up to `position` is out, and serves what is pending meanwhile. Does not
/// wait on a core whose vCPU has to stop.
pub fn await_console(cpu: &'static Cpu, vm: &Vm, position: Position) {
    serve_while(cpu, || {
        console::send_some();
        !console::is_out(vm.id, position) && !cpu.leave.get()
    });
}

/// Handles the EL2 timer: every deadline that has passed.
fn on_timer(cpu: &'static Cpu) {
    let now = timer::now();
    if timer::has_passed(&cpu.deadlines.quota, now) {
        quota::on_deadline(cpu, now);
    }
    let ends = timer::has_passed(&cpu.deadlines.lease, now);
    let moves = timer::has_passed(&cpu.deadlines.migration, now);
    if moves {
        cpu.deadlines.migration.set(None);
    }
    if timer::has_passed(&cpu.deadlines.output, now) {
        telemetry::drain(cpu);
    }
    cpu.deadlines.program();
    gic::deactivate(gic::HYPERVISOR_TIMER);
    // Last, because it pauses, and the timer has to be able to interrupt meanwhile.
    let Some(vm) = cpu.vm else { return };
    let work = Work {
        cpu,
        vm,
        pause: &|pages| pause(cpu, pages),
    };
    if ends {
        work.on_lease_deadline();
    }
    if moves && pause(cpu, 0) {
        work.on_deadline();
    }
}
