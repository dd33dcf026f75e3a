//! Physical interrupts: dispatches each to its handler, and the waits in which they are served.
//!
//! A handler takes a [`Guest`] and does not wait; what waits takes a [`Visit`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, gic, power, smmu, timer};
use crate::machine::sysreg;
use crate::vm::cpu::{Due, Guest, Visit};
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::{all, system};
use crate::vm::{console_input, logger, quota, telemetry, virq, vpmu};
use cloison_logic::limit::Topic;
use cloison_logic::messages::Position;
use cloison_logic::power::State;
use cloison_logic::quota::Effort;
use cloison_logic::smmu::Event;
use cloison_logic::vgic::Trigger;
use log::Level;

/// Handles the physical interrupts that are pending, a few at most: other vCPUs could send them
/// without end.
///
/// Those that are left stay pending in the GIC, and interrupt the guest as soon as it runs, or are
/// served at the next such point.
pub fn serve_pending(guest: Guest) {
    for _ in 0..8 {
        let acknowledged = gic::acknowledge();
        if acknowledged & 0x3ff == gic::SPURIOUS {
            return;
        }
        serve(guest, acknowledged);
    }
}

/// Repeats `more` until it returns false, and serves what is pending before each time.
pub fn serve_while(visit: Visit, mut more: impl FnMut() -> bool) {
    serve_pending(*visit);
    while more() {
        serve_pending(*visit);
    }
}

/// Handles one physical interrupt.
pub fn serve(guest: Guest, acknowledged: u32) {
    // Bits 12 to 10 are the sender of a KICK or CALL, which EOIR and DIR need too (Arm IHI 0048B,
    // 4.4.4).
    let id = acknowledged & 0x3ff;
    if id == gic::SPURIOUS {
        return;
    }
    // With EOImode = 1, ending an interrupt drops its priority, and deactivating it is a step
    // apart: what a guest deactivates stays active until then.
    gic::drop_priority(acknowledged);
    match id {
        gic::HYPERVISOR_TIMER => return on_timer(guest),
        // A PMU that is the guest's alone: the interrupt goes to the guest, as a device's.
        _ if guest.pmu_irq == Some(id) && guest.vm.has_pmu_irq() => {
            return virq::raise_private(guest, id);
        }
        _ if guest.pmu_irq == Some(id) => {
            // One interrupt for all counters of the core: each looks at its own flags.
            quota::on_overflow(guest);
            vpmu::on_overflow(guest);
        }
        // Not deactivated here: the guest's EOI does that through its list register.
        gic::VIRTUAL_TIMER => {
            if !virq::timer(guest) {
                virq::fill(guest);
            }
            return;
        }
        gic::KICK => serve_requests(guest),
        gic::CALL => virq::doorbell(guest),
        // Which list registers have ended, and whether there is room, `fill` finds out itself.
        gic::MAINTENANCE => virq::fill(guest),
        _ if system().board.console.irq.0 == id => console_input::receive(guest),
        _ if system().board.smmu.is_some_and(|smmu| smmu.irq.0 == id) => on_refused(guest, id),
        // From a passed-through device: the guest deactivates it, or nobody owns it and it stays
        // active, once.
        _ => return virq::raise(guest, id),
    }
    gic::deactivate(acknowledged);
}

/// Has the SMMU's interrupt arrive on the first core of the VM whose devices it serves.
pub fn init_smmu() {
    let vm = all().iter().find(|vm| !vm.spec.streams.is_empty());
    if let Some((smmu, vm)) = system().board.smmu.zip(vm) {
        gic::route(smmu.irq.0, vm.spec.cores[0].0);
        gic::configure(smmu.irq.0, Trigger::Edge);
        gic::set_enabled(smmu.irq.0, true);
    }
}

/// Reports what the SMMU has refused to the VM's devices: the first of what waits, however much that
/// is. The VM's own core pays.
fn on_refused(guest: Guest, irq: u32) {
    if let Some((event, all)) = smmu::take_events() {
        let Event {
            kind,
            stream,
            access,
            address,
        } = event;
        logger::about(
            guest.vm,
            Level::Warn,
            Topic::Act,
            format_args!(
                ": stream {stream} was refused: {access:?} at {address:#x} (event {kind:#x}, {all} \
                 in all)"
            ),
        );
        quota::charge(guest, Effort::LOOKUP);
    }
    // The SMMU interrupts for the first event of an empty queue only.
    if smmu::has_events() {
        gic::pend(irq);
    }
}

/// Handles a KICK: does what this core's mailbox asks for.
fn serve_requests(guest: Guest) {
    // All requests since the last time: one interrupt may stand for several.
    let requests = mailbox::take(guest.index);
    if requests & Request::Interrupts as u32 != 0 {
        virq::fill(guest);
    }
    if requests & Request::Links as u32 != 0 {
        guest.add_due(Due::LINKS);
    }
    if requests & Request::Power as u32 != 0 {
        // A vCPU that is about to start needs no action here: the parked loop looks at its power
        // state.
        let state = guest.vm.power.state(guest.vcpu);
        // Only noted: the handler may be inside a wait, and the core leaves at its next return to
        // the guest.
        guest.leave.set(state == State::Leaving);
    }
}

/// Between two batches of work for a guest: charges the last one to the core, serves what is
/// pending, and holds the core while a budget is spent. Returns whether to continue, which a vCPU
/// that has to stop does not, nor a core that `is_wanted` for something more urgent.
pub fn pause(visit: Visit, effort: Effort, is_wanted: impl Fn() -> bool) -> bool {
    // Charged before the wait, which then includes this batch.
    quota::charge(*visit, effort);
    loop {
        serve_pending(*visit);
        if visit.leave.get() || is_wanted() {
            return false;
        }
        if !visit.throttled.get() {
            return true;
        }
        // The deadline that ends the period is programmed; its interrupt ends WFI although it is
        // masked.
        aarch64_cpu::asm::wfi();
    }
}

/// Waits until what the VM has written to its UART up to `position` is out, and serves what is
/// pending meanwhile. Does not wait on a core whose vCPU has to stop.
pub fn await_console(visit: Visit, position: Position) {
    let lines = console::lines(visit.vm.id);
    serve_while(visit, || {
        console::send_some();
        // The core that prints may be another one.
        sysreg::let_others_run();
        !lines.is_past(position) && !visit.leave.get()
    });
}

/// Handles the EL2 timer: every deadline that has passed. What may wait becomes
/// [`Due`].
fn on_timer(guest: Guest) {
    let now = timer::now();
    let deadlines = &guest.deadlines;
    if timer::take_passed(&deadlines.end, now) {
        console::print_fatal(format_args!(
            "\n[core {}] the run has not ended in its time\n",
            guest.index
        ));
        power::off()
    }
    // First: the other work may wait for a moment longer.
    if timer::take_passed(&deadlines.quota, now) {
        quota::on_deadline(guest, now);
    }
    if timer::take_passed(&deadlines.lease, now) {
        guest.add_due(Due::LEASE);
    }
    if timer::take_passed(&deadlines.migration, now) {
        guest.add_due(Due::MIGRATION);
    }
    if timer::take_passed(&deadlines.output, now) {
        telemetry::drain(&guest);
    }
    // Before it is deactivated: the timer's line is low by then, unless the next deadline has
    // passed too.
    deadlines.program();
    gic::deactivate(gic::HYPERVISOR_TIMER);
}
