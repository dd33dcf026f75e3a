//! A guest's traps: emulated devices, system registers, and accesses to memory that it does not
//! have.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::gic;
use crate::exits::hypercall;
use crate::machine::registers::*;
use crate::machine::stage2::Page;
use crate::vm::cpu::{Guest, Visit};
use crate::vm::guest_registers::{GuestRegisters, enter_el1, set_wait_trap, skip_instruction};
use crate::vm::{interrupts, life, link, logger, telemetry, uart, virq, vpmu};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::guest_map::MapDevice;
use cloison_formats::image::{GuestPmu, OnFault};
use cloison_formats::telemetry::{ExitReason, Record};
use cloison_logic::instruction::{Refusal, Transfer};
use cloison_logic::limit::Topic;
use cloison_logic::syndrome::{
    self, Access, Attempt, DataAbort, Encoding, Fault, FeatureRead, Syndrome, SystemAccess, Trap,
    Vector, Width,
};
use cloison_logic::vpmu::Register;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use log::Level;

/// Handles a synchronous exception from the guest, except HVC, with ESR_EL2. The vectors call it
/// themselves: a function between them and this one would cost each trap five instructions.
pub extern "C" fn synchronous(registers: &mut GuestRegisters, esr: u64) {
    let visit = Visit::begin();
    // ELR_EL2, FAR_EL2 and HPFAR_EL2 keep their values until the return: interrupts are
    // masked at EL2, so that no other exception overwrites them.
    match Trap::decode(esr) {
        Trap::DataAbort(abort) => {
            // The distributor first: its registers are accessed far more often than those of other
            // devices.
            if !distributor(*visit, registers, abort) {
                data_abort(visit, registers, abort);
            }
        }
        Trap::Feature(read) => feature(*visit, registers, read),
        // Passing on the decoded trap would cost every exit; decoding it again only costs these.
        _ => dispatch_cold(visit, registers, esr),
    }
}

/// Handles the traps that are rare, or that take long anyway. It is not inlined: the registers that
/// it needs would have to be saved at each trap.
#[inline(never)]
fn dispatch_cold(visit: Visit, registers: &mut GuestRegisters, esr: u64) {
    match Trap::decode(esr) {
        Trap::Smc => {
            visit.count_exit(ExitReason::Hypercall);
            // Unlike with HVC, the return address of a trapped SMC is the SMC itself.
            skip_instruction();
            if let Some(registers) = registers.x.first_chunk_mut() {
                hypercall::dispatch(visit, registers);
            }
        }
        Trap::SystemRegister(access) => {
            visit.count_exit(ExitReason::SystemRegister);
            system_register(*visit, registers, access);
        }
        // Device registers are never executable, so that no fetch from one is emulated.
        Trap::InstructionAbort(fault) => {
            visit.count_exit(ExitReason::Memory);
            refused_by_stage2(visit, fault, Attempt::Fetch);
        }
        // WFI (HCR_EL2.TWI), which traps only while the core has something to send: the guest's
        // idle time is the time to send it.
        // It is executed again, and then waits.
        Trap::Wait => {
            visit.count_exit(ExitReason::Wait);
            uart::print_unfinished_line(*visit);
            // Until nothing is left to send, the next one traps too.
            set_wait_trap(!telemetry::drain(&visit));
        }
        _ => {
            visit.count_exit(ExitReason::Other);
            undefined(*visit);
        }
    }
}

/// Returns the IPA of a stage-2 abort: its page is in HPFAR_EL2, and its offset in FAR_EL2.
fn fault_ipa() -> Ipa {
    syndrome::fault_ipa(HPFAR_EL2.get(), FAR_EL2.get())
}

/// Handles an access to the emulated distributor. Returns whether the distributor allows it.
fn distributor(guest: Guest, registers: &mut GuestRegisters, abort: DataAbort) -> bool {
    let ipa = fault_ipa();
    // A syndrome without an access (ISV = 0) is for `data_abort`, which reads the instruction.
    let Some(access) = abort.access() else {
        return false;
    };
    if gic::IS_V3 {
        return distributor_v3(guest, registers, abort, access, ipa);
    }
    if ipa.page_base() != guest.vm.spec.map.gicd {
        return false;
    }
    guest.count_exit(ExitReason::Distributor);
    let offset = ipa.0 as u16 & 0xfff;
    let done = if abort.is_write() {
        virq::write(
            guest,
            offset,
            access.width(),
            register_value(registers, access.register()) as u32,
        )
    } else {
        virq::read(guest, offset, access.width())
            .map(|value| load(registers, access, u64::from(value)))
    };
    // Refused, the access is tried as one to any device, and reported there.
    if done.is_some() {
        skip_instruction();
    }
    done.is_some()
}

/// Handles an access to the emulated distributor or a redistributor on a board with a GICv3.
#[inline(always)]
fn distributor_v3(
    guest: Guest,
    registers: &mut GuestRegisters,
    abort: DataAbort,
    access: Access,
    ipa: Ipa,
) -> bool {
    let Some(at) = virq::place(guest, ipa) else {
        return false;
    };
    guest.count_exit(ExitReason::Distributor);
    let stored = abort
        .is_write()
        .then(|| register_value(registers, access.register()));
    let Some(value) = virq::access(guest, at, access, stored) else {
        return false;
    };
    if stored.is_none() {
        load(registers, access, value);
    }
    skip_instruction();
    true
}

/// Completes a load from an emulated device that returned `value`, truncated to the access's width.
///
/// The device's value has no bits beyond the width, so that only a load with sign extension needs a
/// computation.
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

/// Writes a general register of the guest, as a load or MRS that has trapped does.
fn set_register(registers: &mut GuestRegisters, register: u8, value: u64) {
    // 31 is the zero register.
    if let Some(slot) = registers.x.get_mut(usize::from(register)) {
        *slot = value;
    }
}

/// Returns a general register of the guest, as a store or MSR that has trapped reads it: 31 is the
/// zero register, never SP.
fn register_value(registers: &GuestRegisters, register: u8) -> u64 {
    registers.x.get(usize::from(register)).copied().unwrap_or(0)
}

/// Handles a data abort at stage 2 that the distributor has not served: an access to another
/// emulated device, or to a page that the VM does not have, or not now.
#[inline(never)]
fn data_abort(visit: Visit, registers: &mut GuestRegisters, abort: DataAbort) {
    let ipa = fault_ipa();
    let is_write = abort.is_write();
    let attempt = if is_write {
        Attempt::Write
    } else {
        Attempt::Read
    };
    // A walk of the guest's own tables that reaches a device is no access of an instruction: there
    // is no register to load or store.
    // A device that this VM does not have is forbidden memory like any other, and the hardware has
    // the CPU interface.
    let spec = visit.vm.spec;
    let has = |device: &MapDevice| match device {
        MapDevice::CpuInterface => false,
        // A GICv3 has no such page.
        MapDevice::Deactivate if gic::IS_V3 => false,
        MapDevice::Services => spec.services_page,
        _ => true,
    };
    let device = spec.map.device(ipa.page_base()).filter(has);
    let device = device.or_else(|| link::at(visit.vm, ipa.page_base()));
    let device = device.filter(|_| !abort.is_walk());
    let Some(device) = device else {
        visit.count_exit(ExitReason::Memory);
        return refused_by_stage2(visit, abort.fault(), attempt);
    };
    visit.count_exit(ExitReason::Device);
    // The syndrome describes loads and stores of one general register without write-back. For the
    // others, EL2 reads the instruction.
    let done = if let Some(access) = abort.access() {
        emulate(visit, registers, device, access, is_write).map(|()| skip_instruction())
    } else if let Some(word) = fetch(*visit) {
        // The traps that it makes skip the instruction.
        undescribed(registers, is_write, word)
    } else {
        // Executed again, it faults by itself, or can be read.
        return life::hold(visit);
    };
    let Err(refusal) = done else { return };
    deny(
        visit,
        attempt,
        &visit.vm.has_refused,
        format_args!("device register {ipa}, refused for its {refusal}"),
    );
}

/// Carries out a load or store of one register of the guest, from or to an emulated device.
fn emulate(
    visit: Visit,
    registers: &mut GuestRegisters,
    device: MapDevice,
    access: Access,
    is_write: bool,
) -> Result<(), Refusal> {
    let offset = fault_ipa().0 as u16 & 0xfff;
    let width = access.width();
    let stored = register_value(registers, access.register());
    let is_whole = width == Width::Double;
    // Registers of the distributor and the UART have 32 bits, those of the services page 64.
    let loaded = match (device, is_write) {
        // What the distributor allows has been done already.
        (MapDevice::Distributor, _) => return Err(Refusal::WidthOrAlignment),
        (MapDevice::Uart, _) if is_whole => return Err(Refusal::WidthOrAlignment),
        // The bus reads the whole register; the access gets its bytes.
        (MapDevice::Uart, false) => {
            let register = uart::read(*visit, offset & !3);
            access.loaded((register >> (8 * (offset & 3))).into())
        }
        (MapDevice::Uart, true) => {
            // The access ends after the line is printed, so a guest whose vCPUs take turns has its
            // lines in order.
            if let Some(position) = uart::write(*visit, offset, access.stored(stored) as u32) {
                interrupts::await_console(visit, position);
                life::hold(visit);
            }
            return Ok(());
        }
        (MapDevice::Deactivate, true) => {
            // Which interrupt was deactivated is not known later, if it is in no list register.
            if offset == 0 && width == Width::Word {
                virq::deactivate(*visit, stored as u32);
            }
            return Ok(());
        }
        (MapDevice::Link(number), false) => {
            access.loaded(link::read(*visit, number, offset, width))
        }
        (MapDevice::Link(number), true) => {
            link::write(visit, number, offset, width, stored as u32);
            // What it has sent may have spent a budget.
            life::hold(visit);
            return Ok(());
        }
        // GICC_DIR is write-only (IHI 0048B, 4.4.15).
        (MapDevice::Deactivate, false) => 0,
        // Less than a register of the services page reads as zero, and is not written.
        (_, false) => {
            if is_whole {
                hypercall::page_read(*visit, offset)
            } else {
                0
            }
        }
        (_, true) => {
            if is_whole {
                hypercall::page_write(visit, offset, stored);
            }
            return Ok(());
        }
    };
    set_register(registers, access.register(), loaded);
    Ok(())
}

/// Carries out a load or store that the syndrome does not describe, as its instruction does: as one
/// trap, or two, that the processor had described. A trap that is refused ends it; the guest has
/// taken its abort then.
///
/// The handlers are entered as by a trap: with a second caller, none of them would be part of
/// [`synchronous`], and each trap would pay for that.
fn undescribed(registers: &mut GuestRegisters, is_write: bool, word: u32) -> Result<(), Refusal> {
    // `word` is what the guest's memory holds now; the trap was caused by what it held then.
    // `matches` compares the two by what the hardware has recorded: the address and the direction.
    let transfer = Transfer::decode(word)?;
    let pc = ELR_EL2.get();
    let mut at = FAR_EL2.get();
    let page = at / PAGE_SIZE;
    let base = register_value(registers, transfer.base);
    if !transfer.matches(base, at, is_write) {
        return Err(Refusal::ChangedInstruction);
    }
    for access in transfer.accesses.into_iter().flatten() {
        // As the hardware would have set them, had it trapped this register's access alone.
        // HPFAR_EL2 is right already: the page is the same.
        ELR_EL2.set(pc);
        // A device's last registers do nothing when accessed, so the first half may have been.
        if at / PAGE_SIZE != page {
            return Err(Refusal::WidthOrAlignment);
        }
        // EL2 may write its own syndrome registers: nothing else reads them before the next
        // exception.
        FAR_EL2.set(at);
        synchronous(registers, DataAbort::syndrome(access, is_write));
        // The instruction is not skipped where the guest has taken an abort. An instruction that
        // aborts does not write its base register back.
        if ELR_EL2.get() != pc.wrapping_add(4) {
            return Ok(());
        }
        at += access.width().bytes();
    }
    // A load without write-back may have loaded the base register itself.
    if transfer.write_back != 0 {
        set_register(
            registers,
            transfer.base,
            base.wrapping_add(transfer.write_back),
        );
    }
    Ok(())
}

/// Reads the instruction at which the guest was interrupted, if its own tables and stage 2 have it
/// now.
fn fetch(guest: Guest) -> Option<u32> {
    let pc = ELR_EL2.get();
    // Another vCPU may change the tables or the page meanwhile. The word is then another one, but
    // always from the VM's own RAM, because stage 2 is looked up here.
    // The guest's own tables first, as the MMU walks them, then stage 2. A page that is being moved
    // has no mapping now: the guest repeats the access.
    let page = guest.vm.stage2.mapping(translate(pc)?)?;
    Some(guest.windows.word(page.frame, pc))
}

/// Handles a stage-2 fault. If the page is mapped (again) or being moved, the access is repeated
/// once it is there; on any other page the guest takes an external abort, or its VM is killed.
fn refused_by_stage2(visit: Visit, fault: Fault, attempt: Attempt) {
    let vm = visit.vm;
    let ipa = fault_ipa();
    loop {
        match vm.stage2.page(ipa) {
            // Only a translation fault can be due to a page being moved; RAM allows all other
            // accesses.
            Page::Mapped(_) if fault == Fault::Translation => return life::hold(visit),
            Page::Mapped(_) | Page::Absent => break,
            // Another core moves the page. Until it is there, this one serves interrupts: what its
            // budgets and other cores want of it does not wait for the move.
            Page::Moving => interrupts::serve_pending(*visit),
        }
    }
    deny(
        visit,
        attempt,
        &vm.has_strayed,
        format_args!("forbidden IPA {ipa}"),
    );
}

/// Makes the guest take an external abort, which is reported unless `is_reported` already, or kills
/// its VM.
fn deny(visit: Visit, attempt: Attempt, is_reported: &AtomicBool, what: fmt::Arguments) {
    let vm = visit.vm;
    // Before EL1's registers are overwritten: they tell of the exception before this one.
    watch(*visit, Some(attempt));
    let far = FAR_EL2.get();
    let verb = match attempt {
        Attempt::Fetch => "instruction fetch",
        Attempt::Read => "read",
        Attempt::Write => "write",
    };
    let what = format_args!("{verb} of {what} (virtual address {far:#x})");
    if vm.spec.on_fault == OnFault::Kill {
        life::kill(visit, what);
    }
    // Once for each kind: a guest could fill the console with these messages otherwise.
    if !is_reported.swap(true, Relaxed) {
        logger::about(
            vm,
            Level::Warn,
            Topic::Act,
            format_args!(" takes an abort at {:#x}: {what}", ELR_EL2.get()),
        );
    }
    // The guest's handler finds the address where the architecture puts it.
    FAR_EL1.set(far);
    inject(Syndrome::external_abort(attempt, vector()));
}

/// Makes the guest take an exception for an instruction that does not exist.
///
/// EC 0, as for an unallocated encoding. The guest's handler cannot tell a register that EL2 hides
/// from one that the CPU does not have.
fn undefined(guest: Guest) {
    watch(guest, None);
    inject(Syndrome::UNDEFINED);
}

/// Faults in a row after which a vCPU counts as stuck.
const STUCK: u32 = 1000;

/// Reports, once in a VM's life, a vCPU that makes no progress: its exception vectors cannot be
/// fetched, or it has taken one fault again and again. `attempt` was refused; without one, the
/// instruction is undefined.
///
/// EL1's registers tell of the exception before this one. Its return address is that of this one
/// only if the guest has neither returned elsewhere nor taken another exception meanwhile.
fn watch(guest: Guest, attempt: Option<Attempt>) {
    let Guest { cpu, vm } = guest;
    let at = ELR_EL2.get();
    let vbar = VBAR_EL1.get();
    // The exception before this one, which the guest may not have handled yet.
    let pc = ELR_EL1.get();
    let esr = ESR_EL1.get();
    let far = FAR_EL1.get();
    // A guest whose VBAR_EL1 points to nothing faults at its vector, and again at the vector of
    // that fault. No handler of its can report it.
    // ESR_EL1 is 0 before the first exception.
    let has_no_vectors =
        attempt == Some(Attempt::Fetch) && at.wrapping_sub(vbar) < syndrome::VECTORS && esr != 0;
    // A handler that returns and runs into the same fault has the same address in both; one fault
    // elsewhere begins the count again.
    cpu.faults.set(if at == pc {
        cpu.faults.get().saturating_add(1)
    } else {
        0
    });
    if (has_no_vectors || cpu.faults.get() >= STUCK) && !vm.is_stuck.swap(true, Relaxed) {
        let what = format_args!(
            " makes no progress: vCPU {} faults at PC {pc:#x} (ESR {esr:#x}, FAR {far:#x}), with \
             vectors at {vbar:#x}",
            cpu.vcpu
        );
        logger::about(vm, Level::Warn, Topic::Act, what);
        let vm = vm.id;
        telemetry::record(cpu, Record::Stuck { vm, pc, esr, far });
    }
}

/// Returns the vector at which the interrupted mode takes a synchronous exception to EL1.
fn vector() -> Vector {
    Vector::from_mode(SPSR_EL2.read(SPSR_EL2::M))
}

/// Makes the guest take a synchronous exception to EL1 with this syndrome (Arm ARM DDI 0487, D1.3).
fn inject(syndrome: Syndrome) {
    ESR_EL1.set(syndrome.0);
    // The preferred return address is the instruction that trapped, as for any synchronous
    // exception (Arm ARM DDI 0487, D1.3).
    ELR_EL1.set(ELR_EL2.get());
    SPSR_EL1.set(SPSR_EL2.get());
    // EL2 returns to the vector instead of the instruction that trapped.
    enter_el1(VBAR_EL1.get().wrapping_add(vector() as u64), SPSR_EL2.get());
}

/// Enables of EL0 at the PMU, by its encoding: op0, op1, CRn, CRm and op2.
const PMUSERENR_EL0: Encoding = Encoding::new(3, 3, 9, 14, 0);
/// Auxiliary controls, whose meaning is up to the implementation.
const ACTLR_EL1: Encoding = Encoding::new(3, 0, 1, 0, 1);
/// A GICv3's registers that trap: a software-generated interrupt, a deactivation, and the choice of
/// system registers (Arm IHI 0069H, 12.2).
const ICC_SGI1R_EL1: Encoding = Encoding::new(3, 0, 12, 11, 5);
const ICC_DIR_EL1: Encoding = Encoding::new(3, 0, 12, 11, 1);
const ICC_SRE_EL1: Encoding = Encoding::new(3, 0, 12, 12, 5);

/// Handles a read of a feature register. Here it needs no frame.
#[inline(never)]
fn feature(guest: Guest, registers: &mut GuestRegisters, read: FeatureRead) {
    guest.count_exit(ExitReason::SystemRegister);
    set_register(registers, read.register, guest.vm.features.get(read));
    skip_instruction();
}

/// Handles a trapped MRS, MSR or system instruction, other than reads of feature registers. What is
/// neither emulated nor harmless to ignore is undefined for the guest.
fn system_register(guest: Guest, registers: &mut GuestRegisters, access: SystemAccess) {
    let SystemAccess {
        encoding,
        register,
        is_read,
    } = access;
    let pmu = match guest.vm.spec.pmu {
        GuestPmu::None => None,
        _ => Register::decode(encoding),
    };
    let value = match (pmu, encoding) {
        // Only with a PMU in the configuration: otherwise these registers are undefined like any
        // other.
        (Some(found), _) => {
            let write = (!is_read).then(|| register_value(registers, register));
            vpmu::access(guest, found, write)
        }
        // EL1's debug registers, which have these CRn, and ACTLR are not implemented. Kernels
        // disable EL0's access to the PMU before they check whether there is one.
        (
            _,
            Encoding {
                op0: 2,
                op1: 0,
                crn: 0 | 1 | 7,
                ..
            }
            | ACTLR_EL1
            | PMUSERENR_EL0,
        ) => 0,
        // DC ISW, CSW and CISW. Set/way operations would affect other VMs' lines, so they are not
        // executed. Memory is coherent between a VM's vCPUs without them; a guest that
        // turns its caches off must first maintain them by address.
        (
            _,
            Encoding {
                op0: 1,
                op1: 0,
                crn: 7,
                crm: 6 | 10 | 14,
                op2: 2,
            },
        ) => 0,
        (_, ICC_SGI1R_EL1) if gic::IS_V3 && !is_read => {
            virq::send(guest, register_value(registers, register));
            0
        }
        (_, ICC_DIR_EL1) if gic::IS_V3 && !is_read => {
            virq::deactivate(guest, register_value(registers, register) as u32);
            0
        }
        // Fixed at 1: system registers, no bypass.
        (_, ICC_SRE_EL1) if gic::IS_V3 => 7,
        // What is not named above is refused, so that a register of a later architecture that traps
        // is, too.
        _ => return undefined(guest),
    };
    if is_read {
        set_register(registers, register, value);
    }
    skip_instruction();
}
