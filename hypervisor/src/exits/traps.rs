//! A guest's traps: emulated devices, system registers, and accesses to memory that it does not have.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::exits::hypercall;
use crate::machine::registers::*;
use crate::machine::stage2::Page;
use crate::vm::cpu::Cpu;
use crate::vm::guest_registers::{GuestRegisters, enter_el1, skip_instruction};
use crate::vm::partition::Vm;
use crate::vm::{interrupts, life, uart, virq, vpmu};
use cloison_abi::map;
use cloison_formats::addr::Ipa;
use cloison_formats::image::{GuestPmu, OnFault};
use cloison_formats::telemetry::ExitReason;
use cloison_logic::syndrome::{
    self, Access, Attempt, DataAbort, Encoding, Fault, FeatureRead, Syndrome, SystemAccess, Trap,
    Vector, Width,
};
use cloison_logic::vpmu::Register;

/// Handles a synchronous exception from the guest.
pub fn dispatch(cpu: &'static Cpu, registers: &mut GuestRegisters) {
    let Some(vm) = cpu.vm else { return };
    let esr = ESR_EL2.get();
    match Trap::decode(esr) {
        Trap::Hypercall => {
            cpu.count_exit(ExitReason::Hypercall);
            hypercall::dispatch(cpu, vm, registers);
        }
        Trap::DataAbort(abort) => {
            if !distributor(cpu, vm, registers, abort) {
                data_abort(cpu, vm, registers, abort);
            }
        }
        Trap::Feature(read) => feature(cpu, vm, registers, read),
        // Passing on the decoded trap would cost every exit; decoding it again only costs these.
        _ => dispatch_cold(cpu, vm, registers, esr),
    }
}

#[inline(never)]
fn dispatch_cold(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters, esr: u64) {
    match Trap::decode(esr) {
        Trap::Smc => {
            cpu.count_exit(ExitReason::Hypercall);
            // Unlike with HVC, the return address of a trapped SMC is the SMC itself.
            skip_instruction();
            hypercall::dispatch(cpu, vm, registers);
        }
        Trap::SystemRegister(access) => {
            cpu.count_exit(ExitReason::SystemRegister);
            system_register(cpu, vm, registers, access);
        }
        Trap::InstructionAbort(fault) => {
            cpu.count_exit(ExitReason::Memory);
            refused_by_stage2(cpu, vm, fault, Attempt::Fetch);
        }
        // It is executed again, and then waits.
        Trap::Wait => {
            cpu.count_exit(ExitReason::Wait);
            uart::print_unfinished_line(cpu, vm);
        }
        _ => {
            cpu.count_exit(ExitReason::Other);
            inject(Syndrome::UNDEFINED);
        }
    }
}

fn fault_ipa() -> Ipa {
    syndrome::fault_ipa(HPFAR_EL2.get(), FAR_EL2.get())
}

/// Handles an access to the emulated distributor. Returns whether the distributor allows it.
fn distributor(
    cpu: &'static Cpu,
    vm: &'static Vm,
    registers: &mut GuestRegisters,
    abort: DataAbort,
) -> bool {
    let (Some(access), ipa) = (abort.access(), fault_ipa()) else {
        return false;
    };
    if ipa.page_base().0 != map::GICD {
        return false;
    }
    cpu.count_exit(ExitReason::Distributor);
    let offset = ipa.0 as u16 & 0xfff;
    let done = if abort.is_write() {
        virq::write(
            cpu,
            vm,
            offset,
            access.width(),
            register_value(registers, access.register()) as u32,
        )
    } else {
        virq::read(cpu, vm, offset, access.width())
            .map(|value| load(registers, access, u64::from(value)))
    };
    if done.is_ok() {
        skip_instruction();
    }
    done.is_ok()
}

/// Completes a load from an emulated device that returned `value`, truncated to the access's width.
fn load(registers: &mut GuestRegisters, access: Access, value: u64) {
    set_register(
        registers,
        access.register(),
        if access.sign_extend() {
            access.loaded(value)
        } else {
            value
        },
    );
}

fn set_register(registers: &mut GuestRegisters, register: u8, value: u64) {
    // 31 is the zero register.
    if let Some(slot) = registers.x.get_mut(usize::from(register)) {
        *slot = value;
    }
}

fn register_value(registers: &GuestRegisters, register: u8) -> u64 {
    registers.x.get(usize::from(register)).copied().unwrap_or(0)
}

#[inline(never)]
fn data_abort(
    cpu: &'static Cpu,
    vm: &'static Vm,
    registers: &mut GuestRegisters,
    abort: DataAbort,
) {
    if let Some(access) = abort.access()
        && emulated_device(cpu, vm, registers, access, abort.is_write())
    {
        cpu.count_exit(ExitReason::Device);
        skip_instruction();
        return;
    }
    cpu.count_exit(ExitReason::Memory);
    refused_by_stage2(
        cpu,
        vm,
        abort.fault(),
        if abort.is_write() {
            Attempt::Write
        } else {
            Attempt::Read
        },
    );
}

/// Handles an access to the UART or the services page. Returns whether it was one.
fn emulated_device(
    cpu: &'static Cpu,
    vm: &'static Vm,
    registers: &mut GuestRegisters,
    access: Access,
    is_write: bool,
) -> bool {
    let ipa = fault_ipa();
    let offset = ipa.0 as u16 & 0xfff;
    match (ipa.page_base().0, is_write) {
        (map::UART, false) => {
            // The bus reads the whole register; the access gets its bytes.
            let value = uart::read(cpu, vm, offset & !3) >> (8 * (offset & 3));
            set_register(
                registers,
                access.register(),
                access.loaded(u64::from(value)),
            );
        }
        (map::UART, true) => {
            let value = access.stored(register_value(registers, access.register()));
            // The access ends after the line is printed, so a guest whose vCPUs take turns has its lines in order.
            if let Some(position) = uart::write(cpu, vm, offset, value as u32) {
                interrupts::await_console(cpu, vm, position);
                life::hold(cpu);
            }
        }
        (map::SERVICES, _) if vm.spec.services_page => {
            let whole = access.width() == Width::Double;
            if is_write && whole {
                hypercall::page_write(
                    cpu,
                    vm,
                    offset,
                    register_value(registers, access.register()),
                );
            } else if !is_write {
                let value = if whole {
                    hypercall::page_read(cpu, vm, offset)
                } else {
                    0
                };
                set_register(registers, access.register(), value);
            }
        }
        _ => return false,
    }
    true
}

/// Handles a stage-2 fault. If the page is mapped (again) or being moved, the access is repeated once it is there; on
/// any other page the guest takes an external abort, or its VM is killed.
fn refused_by_stage2(cpu: &'static Cpu, vm: &'static Vm, fault: Fault, attempt: Attempt) {
    let (ipa, far) = (fault_ipa(), FAR_EL2.get());
    loop {
        match vm.stage2.page(ipa) {
            // Only a translation fault can be due to a page being moved; RAM allows all other accesses.
            Page::Mapped(_) if fault == Fault::Translation => return life::hold(cpu),
            Page::Mapped(_) | Page::Absent => break,
            Page::Moving => interrupts::serve_pending(cpu),
        }
    }
    if vm.spec.on_fault == OnFault::Kill {
        let what = ["instruction fetch", "read", "write"][attempt as usize];
        life::kill(
            cpu,
            format_args!("{what} of forbidden IPA {ipa} (virtual address {far:#x})"),
        );
    }
    FAR_EL1.set(far);
    inject(Syndrome::external_abort(attempt, vector()));
}

fn vector() -> Vector {
    Vector::from_mode(SPSR_EL2.read(SPSR_EL2::M))
}

/// Makes the guest take a synchronous exception to EL1 with this syndrome (Arm ARM DDI 0487, D1.3).
fn inject(syndrome: Syndrome) {
    ESR_EL1.set(syndrome.0);
    ELR_EL1.set(ELR_EL2.get());
    SPSR_EL1.set(SPSR_EL2.get());
    enter_el1(VBAR_EL1.get().wrapping_add(vector() as u64));
}

const PMUSERENR_EL0: Encoding = Encoding::new(3, 3, 9, 14, 0);
const ACTLR_EL1: Encoding = Encoding::new(3, 0, 1, 0, 1);

/// Handles a read of a feature register. Here it needs no frame.
#[inline(never)]
fn feature(cpu: &Cpu, vm: &Vm, registers: &mut GuestRegisters, read: FeatureRead) {
    cpu.count_exit(ExitReason::SystemRegister);
    set_register(registers, read.register, vm.features.get(read));
    skip_instruction();
}

fn system_register(cpu: &Cpu, vm: &Vm, registers: &mut GuestRegisters, access: SystemAccess) {
    let SystemAccess {
        encoding,
        register,
        is_read,
    } = access;
    let pmu = Some(encoding)
        .filter(|_| vm.spec.pmu != GuestPmu::None)
        .and_then(Register::decode);
    match (encoding, is_read, pmu) {
        (_, _, Some(found)) => {
            let value = vpmu::access(
                cpu,
                vm,
                found,
                (!is_read).then(|| register_value(registers, register)),
            );
            if is_read {
                set_register(registers, register, value);
            }
        }
        // EL1's debug registers and ACTLR are not implemented. Kernels disable EL0's access to the PMU before they
        // check whether there is one.
        (Encoding { op0: 2, op1: 0, .. } | ACTLR_EL1 | PMUSERENR_EL0, true, _) => {
            set_register(registers, register, 0)
        }
        (Encoding { op0: 2, op1: 0, .. } | ACTLR_EL1 | PMUSERENR_EL0, false, _) => {}
        // DC ISW, CSW and CISW. Set/way operations would affect other VMs' lines, so they are not executed. Memory is
        // coherent between a VM's vCPUs without them; a guest that turns its caches off must first maintain them by
        // address.
        (
            Encoding {
                op0: 1,
                op1: 0,
                crn: 7,
                crm: 6 | 10 | 14,
                op2: 2,
            },
            ..,
        ) => {}
        _ => return inject(Syndrome::UNDEFINED),
    }
    skip_instruction();
}
