//! The virtual PMU: `cloison_logic::vpmu` on this core's counters that no quota uses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu;
use crate::machine::registers::*;
use crate::machine::sysreg;
use crate::vm::cpu::Cpu;
use crate::vm::partition::Vm;
use crate::vm::virq;
use cloison_logic::quota::Counters;
use cloison_logic::vpmu::{PhysicalPmu, Register};

/// This core's physical PMU.
pub struct Physical;

impl Counters for Physical {
    fn get(&self, counter: u32) -> u32 {
        pmu::count(counter)
    }
    fn set(&self, counter: u32, value: u32) {
        pmu::preset(counter, value);
    }
}

impl PhysicalPmu for Physical {
    fn set_type(&self, counter: u32, value: u32) {
        pmu::set_type(counter, value);
    }
    fn cycles(&self) -> u64 {
        PMCCNTR_EL0.get()
    }
    fn set_cycles(&self, value: u64) {
        PMCCNTR_EL0.set(value);
    }
    fn set_cycle_filter(&self, value: u32) {
        PMCCFILTR_EL0.set(u64::from(value));
    }
    fn enable(&self, on: u32, off: u32) {
        PMCNTENCLR_EL0.set(u64::from(off));
        PMCNTENSET_EL0.set(u64::from(on));
        sysreg::isb();
    }
    fn interrupts(&self, on: u32, off: u32) {
        PMINTENCLR_EL1.set(u64::from(off));
        PMINTENSET_EL1.set(u64::from(on));
        sysreg::isb();
    }
    fn overflows(&self) -> u32 {
        PMOVSCLR_EL0.get() as u32
    }
    fn change_overflows(&self, set: u32, clear: u32) {
        PMOVSCLR_EL0.set(u64::from(clear));
        PMOVSSET_EL0.set(u64::from(set));
        sysreg::isb();
    }
    fn allow_user(&self, value: u32) {
        PMUSERENR_EL0.set(u64::from(value));
    }
    fn identity(&self) -> u32 {
        PMCR_EL0.get() as u32
    }
    fn common_events(&self, which: u32) -> u64 {
        if which == 0 { PMCEID0_EL0.get() } else { PMCEID1_EL0.get() }
    }
}

/// Handles a guest's access to its PMU.
pub fn access(cpu: &Cpu, vm: &Vm, register: Register, write: Option<u64>) -> u64 {
    let value = cpu.vpmu.borrow_mut().access(&Physical, register, write);
    if write.is_some() {
        set_line(cpu, vm);
    }
    match register {
        Register::CommonEvents(which) => value | u64::from(vm.announced[which as usize & 1]),
        _ => value,
    }
}

/// Handles a PMU interrupt that may be the guest's.
pub fn on_overflow(cpu: &Cpu) {
    cpu.vm.filter(|vm| vm.spec.pmu).into_iter().for_each(|vm| set_line(cpu, vm));
}

fn set_line(cpu: &Cpu, vm: &Vm) {
    let high = cpu.vpmu.borrow().line(&Physical);
    vm.pmu_irq.into_iter().for_each(|irq| virq::set_private_line(cpu, irq, high));
}

/// Stops all of the guest's counters, because the vCPU starts or stops.
pub fn reset(cpu: &Cpu, vm: &Vm) {
    if vm.spec.pmu {
        cpu.vpmu.borrow_mut().reset(&Physical);
    }
}
