//! The virtual PMU: `cloison_logic::vpmu` on the counters of this core that no quota has.

use crate::devices::pmu;
use crate::machine::sysreg;
use crate::vm::cpu::Cpu;
use crate::vm::partition::Vm;
use crate::vm::virq;
use cloison_logic::vpmu::{Host, Register};

/// This core's physical PMU.
struct Physical;

impl Host for Physical {
    fn counter(&self, counter: u32) -> u32 {
        pmu::count(counter)
    }
    fn set_counter(&self, counter: u32, value: u32) {
        pmu::preset(counter, value);
    }
    fn set_type(&self, counter: u32, value: u32) {
        pmu::set_type(counter, value);
    }
    fn cycles(&self) -> u64 {
        sysreg::read!("pmccntr_el0")
    }
    fn set_cycles(&self, value: u64) {
        sysreg::write!("pmccntr_el0", value);
    }
    fn set_cycle_filter(&self, value: u32) {
        sysreg::write!("pmccfiltr_el0", u64::from(value));
    }
    fn enable(&self, on: u32, off: u32) {
        sysreg::write!("pmcntenclr_el0", u64::from(off));
        sysreg::write!("pmcntenset_el0", u64::from(on));
        sysreg::isb();
    }
    fn interrupts(&self, on: u32, off: u32) {
        sysreg::write!("pmintenclr_el1", u64::from(off));
        sysreg::write!("pmintenset_el1", u64::from(on));
        sysreg::isb();
    }
    fn overflows(&self) -> u32 {
        sysreg::read!("pmovsclr_el0") as u32
    }
    fn change_overflows(&self, set: u32, clear: u32) {
        sysreg::write!("pmovsclr_el0", u64::from(clear));
        sysreg::write!("pmovsset_el0", u64::from(set));
        sysreg::isb();
    }
    fn allow_user(&self, value: u32) {
        sysreg::write!("pmuserenr_el0", u64::from(value));
    }
    fn identity(&self) -> u32 {
        sysreg::read!("pmcr_el0") as u32
    }
    fn common_events(&self, which: u32) -> u64 {
        if which == 0 { sysreg::read!("pmceid0_el0") } else { sysreg::read!("pmceid1_el0") }
    }
}

/// A guest's access to its PMU.
pub fn access(cpu: &Cpu, vm: &Vm, register: Register, write: Option<u64>) -> u64 {
    let value = cpu.vpmu.borrow_mut().access(&Physical, register, write);
    if write.is_some() {
        set_line(cpu, vm);
    }
    value
}

/// The PMU's interrupt may be the guest's.
pub fn on_overflow(cpu: &Cpu) {
    if let Some(vm) = cpu.vm.filter(|vm| vm.spec.pmu) {
        set_line(cpu, vm);
    }
}

fn set_line(cpu: &Cpu, vm: &Vm) {
    let high = cpu.vpmu.borrow().line(&Physical);
    if let Some(irq) = vm.pmu_irq {
        virq::set_private_line(cpu, vm, irq, high);
    }
}

/// The vCPU starts or stops: nothing of its counts.
pub fn reset(cpu: &Cpu, vm: &Vm) {
    if vm.spec.pmu {
        cpu.vpmu.borrow_mut().reset(&Physical);
    }
}
