//! The virtual PMU: `cloison_logic::vpmu` on this core's counters that no quota uses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::vm::cpu::{Cpu, Guest};
use crate::vm::partition::system;
use crate::vm::virq;
use cloison_abi::{Call, CallError};
use cloison_formats::image::GuestPmu;
use cloison_logic::vpmu::{PhysicalPmu, Register};

/// Handles a guest's access to its PMU.
pub fn access(guest: Guest, register: Register, write: Option<u64>) -> u64 {
    // The physical counters are this core's own, and the vCPU never leaves it: nothing is saved or
    // loaded when it enters.
    let value = guest.vpmu.borrow_mut().access(&Pmu, register, write);
    // A write can set or clear an overflow flag or its enable, and with it the interrupt line.
    if write.is_some() {
        set_line(guest);
    }
    match register {
        // The events that the image announces besides the CPU's: those that the board model counts.
        Register::CommonEvents(which) => value | u64::from(system().announced[which as usize & 1]),
        _ => value,
    }
}

/// Handles a PMU interrupt that may be the guest's.
pub fn on_overflow(guest: Guest) {
    match guest.vm.spec.pmu {
        GuestPmu::Emulated => set_line(guest),
        // The guest shall not raise the interrupt of its quotas: its own would come without end.
        GuestPmu::Direct => Pmu.interrupts(0, guest.vpmu.borrow().all()),
        GuestPmu::None => {}
    }
}

/// Gives the line of the guest's overflow interrupt the level that its flags have.
fn set_line(guest: Guest) {
    // Also without an interrupt in the VM: `line` adjusts the physical enables.
    let high = guest.vpmu.borrow().line(&Pmu);
    if let Some(irq) = guest.vm.pmu_irq {
        virq::set_private_line(guest, irq, high);
    }
}

/// Stops all of the guest's counters, because the vCPU starts or stops.
///
/// A VM that has neither a PMU nor the counter service has no counters to stop.
pub fn reset(guest: Guest) {
    let spec = guest.vm.spec;
    if spec.has_counters() {
        // The service has no switch for all counters.
        let is_on = spec.pmu == GuestPmu::None;
        guest.vpmu.borrow_mut().reset(&Pmu, is_on);
        if spec.pmu == GuestPmu::Direct {
            pmu::hand_over();
        }
    }
}

/// Serves a call of the counter service.
pub fn serve(cpu: &Cpu, call: Call, arguments: [u64; 3]) -> Result<[u64; 3], CallError> {
    // No event is charged here; the caller charges each call.
    let [x1, x2, x3] = cpu.vpmu.borrow_mut().serve(&Pmu, call, arguments)?;
    let [low, high] = if call == Call::Counters {
        system().announced.map(u64::from)
    } else {
        [0; 2]
    };
    Ok([x1, x2 | low, x3 | high])
}
