//! Virtual interrupts: connects the emulated distributor with the GIC's list registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::gic;
use crate::machine::mmio::GICH;
use crate::machine::registers::{Readable, Writeable};
use crate::vm::cpu::Cpu;
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::{Vm, system};
use cloison_abi::gicv2::GICH_HCR;
use cloison_abi::irq;
use cloison_formats::bits::ones;
use cloison_formats::image::WhenSpent;
use cloison_formats::limits::LIST_REGISTERS;
use cloison_logic::syndrome::Width;
use cloison_logic::vgic::{Banked, Distributor, PhysicalGic, Refused, Shared, Trigger, Vcpus};
use core::ops::DerefMut;

/// Offset of GICD_TYPER, a constant that is read without accessing any state.
const TYPER: u16 = 4;

/// The GIC as used by `cloison_logic::vgic`, for one VM on the running core.
#[derive(Clone, Copy)]
struct Physical<'a> {
    vm: &'a Vm,
}

impl PhysicalGic for Physical<'_> {
    fn distributor(&self) -> &Distributor {
        &self.vm.distributor
    }
    fn lock(&self) -> impl DerefMut<Target = Shared> {
        self.vm.spis.lock()
    }
    fn done(&self) -> u32 {
        (GICH.elrsr[0].get() | GICH.eisr[0].get()) & ((1 << LIST_REGISTERS) - 1)
    }
    fn get(&self, index: usize) -> u32 {
        GICH.lr[index % LIST_REGISTERS].get()
    }
    fn set(&self, index: usize, value: u32) {
        GICH.lr[index % LIST_REGISTERS].set(value);
    }
    fn underflow(&self, on: bool) {
        GICH.hcr
            .write(GICH_HCR::EN::SET + GICH_HCR::UIE.val(on.into()));
    }
    fn pending(&self, group: usize) -> u32 {
        gic::pending(group)
    }
    fn deactivate(&self, irq: u32) {
        gic::deactivate(irq);
    }
    fn enable(&self, irq: u32, on: bool) {
        gic::enable(irq, on);
    }
    fn route(&self, irq: u32, vcpu: u8) {
        if let Some(&core) = self.vm.spec.cores.get(usize::from(vcpu)) {
            gic::route(irq, core);
        }
    }
    fn configure(&self, irq: u32, trigger: Trigger) {
        gic::configure(irq, trigger);
    }
}

/// Tells the cores of these vCPUs to check their interrupts. Returns whether the running core is among them.
fn kick(cpu: &Cpu, vm: &Vm, vcpus: Vcpus) -> bool {
    let mut own = false;
    for vcpu in ones(vcpus.0) {
        match vm.spec.cores.get(vcpu as usize) {
            Some(&core) if usize::from(core) == cpu.index => own = true,
            Some(&core) => mailbox::ask(core, Request::Interrupts),
            None => {}
        }
    }
    own
}

/// Changes the vCPU's part of the distributor, and tells the vCPUs that `change` returns to check their interrupts.
fn update(cpu: &Cpu, change: impl FnOnce(&mut Banked, &Physical<'static>) -> Vcpus) {
    let Some(vm) = cpu.vm else { return };
    if let Some(banked) = cpu.virq.borrow_mut().as_mut() {
        kick(cpu, vm, change(banked, &Physical { vm }));
    }
}

/// Fills the list registers with waiting interrupts.
pub fn fill(cpu: &Cpu) {
    update(cpu, Banked::fill);
}

/// Puts the virtual timer's interrupt, whose priority has been dropped, into a list register; the guest's EOI deactivates it.
pub fn timer(cpu: &'static Cpu) {
    let Some(vm) = cpu.vm else { return };
    let listed = cpu
        .virq
        .borrow_mut()
        .as_mut()
        .is_some_and(|banked| banked.inject_timer(&Physical { vm }));
    if !listed {
        fill(cpu);
    }
}

/// Handles an interrupt of a passed-through device.
pub fn raise(cpu: &Cpu, vm: &Vm, irq: u32) {
    let vcpus = vm.spis.lock().raise(irq, &vm.distributor);
    if kick(cpu, vm, vcpus) {
        fill(cpu);
    }
}

/// Handles a private interrupt that is passed through to the vCPU.
pub fn raise_private(cpu: &Cpu, irq: u32) {
    update(cpu, |banked, gic| {
        banked.raise(irq);
        banked.fill(gic)
    });
}

/// Handles a guest's read of its distributor.
pub fn read(cpu: &Cpu, vm: &Vm, offset: u16, width: Width) -> Result<u32, Refused> {
    if offset == TYPER && width == Width::Word {
        return Ok(vm.distributor.type_register());
    }
    let virq = cpu.virq.borrow();
    let Some(banked) = virq.as_ref() else {
        return Ok(0);
    };
    banked.read(&Physical { vm }, offset, width)
}

/// Handles a guest's write to its distributor.
pub fn write(cpu: &Cpu, vm: &Vm, offset: u16, width: Width, value: u32) -> Result<(), Refused> {
    let mut virq = cpu.virq.borrow_mut();
    let Some(banked) = virq.as_mut() else {
        return Ok(());
    };
    let others = banked.write(&Physical { vm }, offset, width, value)?;
    kick(cpu, vm, others);
    Ok(())
}

/// Sets the level of an emulated device's line.
pub fn set_line(cpu: &Cpu, vm: &Vm, irq: u32, high: bool) {
    let vcpus = vm.spis.lock().set_line(irq, high, &vm.distributor);
    if kick(cpu, vm, vcpus) {
        fill(cpu);
    }
}

/// Sets the level of a private line of this vCPU.
pub fn set_private_line(cpu: &Cpu, irq: u32, high: bool) {
    update(cpu, |banked, gic| {
        if banked.set_line(irq, high) {
            banked.fill(gic)
        } else {
            Vcpus(0)
        }
    });
}

/// Resets enables and list registers when a vCPU starts. SGIs that were sent to it since it was turned on stay pending.
pub fn start(cpu: &Cpu, vm: &Vm) {
    let told = vm
        .spec
        .quotas
        .iter()
        .any(|quota| quota.when_spent == WhenSpent::Interrupt);
    let counters = vm.pmu_irq.map_or(0, |irq| 1 << irq);
    let physical = if vm.has_pmu_irq() { counters } else { 0 };
    let emulated = counters & !physical | u32::from(told) << irq::BUDGET;
    let mediated = system().board.gic.mediated_timer;
    cpu.virq
        .borrow_mut()
        .get_or_insert_with(|| Banked::new(cpu.vcpu as u8, emulated, physical, mediated));
    stop(cpu);
    fill(cpu);
}

/// Returns a vCPU's interrupts to the VM when it stops.
pub fn stop(cpu: &Cpu) {
    // First return what the core has listed to the distributor, then empty the interface.
    update(cpu, Banked::reset);
    gic::reset_virtual_interface();
}

/// Resets the interrupts of a whole VM, whose vCPUs have stopped.
pub fn reset_vm(vm: &Vm) {
    vm.spis.lock().reset(&Physical { vm });
    vm.distributor.reset();
}
