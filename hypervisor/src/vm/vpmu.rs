//! The virtual PMU: `cloison_logic::vpmu` on this core's counters that no quota uses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu::{self, Pmu};
use crate::vm::cpu::Cpu;
use crate::vm::partition::{Vm, system};
use crate::vm::virq;
use cloison_abi::{Call, CallError};
use cloison_formats::image::GuestPmu;
use cloison_logic::vpmu::{PhysicalPmu, Register};

/// Handles a guest's access to its PMU.
pub fn access(cpu: &Cpu, vm: &Vm, register: Register, write: Option<u64>) -> u64 {
    let value = cpu.vpmu.borrow_mut().access(&Pmu, register, write);
    if write.is_some() {
        set_line(cpu, vm);
    }
    match register {
        Register::CommonEvents(which) => value | u64::from(system().announced[which as usize & 1]),
        _ => value,
    }
}

/// Handles a PMU interrupt that may be the guest's.
pub fn on_overflow(cpu: &Cpu) {
    match (cpu.vm, cpu.vm.map(|vm| vm.spec.pmu)) {
        (Some(vm), Some(GuestPmu::Emulated)) => set_line(cpu, vm),
        // The guest shall not raise the interrupt of its quotas: its own would come without end.
        (_, Some(GuestPmu::Direct)) => Pmu.interrupts(0, cpu.vpmu.borrow().all()),
        _ => {}
    }
}

fn set_line(cpu: &Cpu, vm: &Vm) {
    let high = cpu.vpmu.borrow().line(&Pmu);
    vm.pmu_irq
        .into_iter()
        .for_each(|irq| virq::set_private_line(cpu, irq, high));
}

/// Stops all of the guest's counters, because the vCPU starts or stops.
pub fn reset(cpu: &Cpu, vm: &Vm) {
    if vm.spec.has_counters() {
        // The service has no switch for all counters.
        cpu.vpmu
            .borrow_mut()
            .reset(&Pmu, vm.spec.pmu == GuestPmu::None);
        if vm.spec.pmu == GuestPmu::Direct {
            pmu::hand_over();
        }
    }
}

/// Serves a call of the counter service.
pub fn serve(cpu: &Cpu, call: Call, arguments: [u64; 3]) -> Result<[u64; 3], CallError> {
    let [x1, x2, x3] = cpu.vpmu.borrow_mut().serve(&Pmu, call, arguments)?;
    let [low, high] = if call == Call::Counters {
        system().announced.map(u64::from)
    } else {
        [0; 2]
    };
    Ok([x1, x2 | low, x3 | high])
}
