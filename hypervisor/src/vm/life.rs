//! The life of VMs and their vCPUs: start, restart, end.
//!
//! vCPUs are off, about to start, or on. A VM that stops or restarts first makes all its other vCPUs leave their guest
//! (`Request::Stop`), and waits for them.

use crate::devices::{gic, power};
use crate::machine::registers::{CNTV_CTL_EL0, ELR_EL2, Readable, Writeable};
use crate::machine::stage2::Page;
use crate::machine::{handover, sysreg};
use crate::vm::cpu::{self, Cpu};
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::{Power, Vcpu, Vm, all};
use crate::vm::uart::{self, Rest};
use crate::vm::{guest_registers, hem, interrupts, migrate, quota, telemetry, virq, vpmu};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::OnFault;
use cloison_formats::telemetry::{Record, VmState};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static ENDS_WITH: AtomicU32 = AtomicU32::new(u32::MAX);
static ALIVE: AtomicU32 = AtomicU32::new(0);
static TURNING_OFF: AtomicBool = AtomicBool::new(false);

/// Copies the VM's initial contents from the system image into its memory.
fn load_image(cpu: &Cpu, vm: &Vm) {
    for part in vm.spec.loaded() {
        let mut done = 0;
        while done < u64::from(part.len) {
            let Page::Mapped(frame) = vm.stage2.page(part.load.page(done / PAGE_SIZE)) else {
                break;
            };
            cpu.windows.load(frame, u64::from(part.offset) + done);
            done += PAGE_SIZE;
        }
    }
    sysreg::invalidate_instruction_caches();
}

/// Sets the number of VMs, and the VM with which the machine turns off; boot core only, once.
pub fn init(ends_with: Option<u8>, vms: usize) {
    ENDS_WITH.store(ends_with.map_or(u32::MAX, u32::from), Ordering::Relaxed);
    ALIVE.store(vms as u32, Ordering::Relaxed);
}

/// Loads a VM's image and asks its first vCPU to start.
pub fn start(cpu: &Cpu, vm: &Vm) {
    load_image(cpu, vm);
    let started = vm.power_on(0, vm.spec.image.entry, 0);
    debug_assert!(started.is_ok(), "a VM starts with all its vCPUs off");
}

/// Abandons what the core was doing and waits for requests.
pub fn park() -> ! {
    handover::abandon_stack(parked)
}

/// Runs between guests: starts the core's vCPU when requested, handles interrupts, sends telemetry.
extern "C" fn parked() -> ! {
    let cpu = cpu::this();
    loop {
        if let Some(vm) = cpu.vm {
            let slot = &vm.vcpus[cpu.vcpu];
            if cpu.leave.take() {
                // Asked to stop before it started.
                let (pending, off) = (Power::OnPending as u8, Power::Off as u8);
                let _ = slot.power.compare_exchange(pending, off, Ordering::AcqRel, Ordering::Acquire);
            }
            if slot.power.load(Ordering::Acquire) == Power::OnPending as u8 {
                enter_vcpu(cpu, vm, slot);
            }
        }
        telemetry::pump(cpu, || true);
        aarch64_cpu::asm::wfi();
        interrupts::serve(cpu, gic::acknowledge());
    }
}

fn enter_vcpu(cpu: &'static Cpu, vm: &'static Vm, slot: &Vcpu) -> ! {
    let entry = slot.entry.load(Ordering::Relaxed);
    let first = cpu.vcpu == 0;
    let arguments = if first { vm.first_arguments() } else { [slot.context.load(Ordering::Relaxed), 0, 0, 0] };
    slot.power.store(Power::On as u8, Ordering::Release);
    cpu.clear_exits();
    guest_registers::reset_guest_registers(vm, cpu.vcpu, entry);
    virq::start(cpu, vm);
    hem::reset(cpu);
    vpmu::reset(cpu, vm);
    if first {
        telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Started });
        migrate::arm(cpu, vm);
    }
    quota::start(cpu);
    handover::enter(&arguments)
}

/// Stops the running vCPU: its core parks. The caller must hold no borrow or lock.
pub fn leave(cpu: &'static Cpu) -> ! {
    if let Some(vm) = cpu.vm {
        quota::stop(cpu);
        hem::reset(cpu);
        vpmu::reset(cpu, vm);
        virq::stop(cpu, vm);
        CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
        cpu.deadlines.clear();
        uart::print_unfinished_line(cpu, vm);
        telemetry::record(cpu, Record::Exits { vm: vm.id, counts: cpu.exits() });
        telemetry::flush(cpu);
        cpu.leave.set(false);
        vm.vcpus[cpu.vcpu].power.store(Power::Off as u8, Ordering::Release);
    }
    park()
}

/// Turns off the running vCPU (PSCI CPU_OFF); the VM ends with its last one.
pub fn cpu_off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if vm.online.fetch_sub(1, Ordering::AcqRel) == 1 {
        end(cpu, vm, VmState::Off)
    }
    leave(cpu)
}

/// Makes all other vCPUs of a VM leave their guest, and waits until they have.
fn stop_others(cpu: &Cpu, vm: &Vm) {
    // Until a whole round finds them off: a running one may still have turned another one on.
    let mut found = true;
    while found {
        found = false;
        for (vcpu, &core) in vm.spec.cores.iter().enumerate() {
            if usize::from(core) != cpu.index && vm.power(vcpu) != Power::Off {
                found = true;
                stop_and_wait(vm, vcpu, core);
            }
        }
    }
}

fn stop_and_wait(vm: &Vm, vcpu: usize, core: u8) {
    while vm.power(vcpu) != Power::Off {
        mailbox::ask(core, Request::Stop);
        for _ in 0..1000 {
            core::hint::spin_loop();
        }
    }
}

/// Ends the running vCPU's VM.
pub fn end(cpu: &'static Cpu, vm: &'static Vm, state: VmState) -> ! {
    if vm.ending.swap(true, Ordering::AcqRel) {
        // Another vCPU of the VM is already doing that and waits for this one.
        leave(cpu)
    }
    stop_others(cpu, vm);
    migrate::restore_cacheability(cpu, vm);
    uart::print_rest(vm, Rest::End);
    vm.dead.store(true, Ordering::Release);
    telemetry::record(cpu, Record::VmState { vm: vm.id, state });
    log::info!("VM {} is {state}", vm.spec.name);
    let last = ALIVE.fetch_sub(1, Ordering::AcqRel) == 1;
    if last || ENDS_WITH.load(Ordering::Relaxed) == u32::from(vm.id) {
        turn_off(cpu)
    }
    leave(cpu)
}

/// Handles the running vCPU's VM turning itself off: it ends, or its campaign continues.
pub fn off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if let Some(campaign) = &vm.spec.campaign {
        let done = vm.runs.load(Ordering::Relaxed) + 1;
        if campaign.next(done).is_some() {
            vm.runs.store(done, Ordering::Relaxed);
            restart(cpu, vm)
        }
    }
    end(cpu, vm, VmState::Off)
}

/// Restarts the running vCPU's VM; other VMs are not affected.
pub fn restart(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if vm.ending.swap(true, Ordering::AcqRel) {
        leave(cpu)
    }
    stop_others(cpu, vm);
    telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Restarted });
    log::info!("VM {} restarts", vm.spec.name);
    // The pages move home first, so that a restarted VM finds its memory as at its first start.
    let _ = migrate::restore_all(cpu, vm);
    migrate::restore_cacheability(cpu, vm);
    virq::stop(cpu, vm);
    virq::reset_vm(vm);
    uart::print_rest(vm, Rest::End);
    *vm.uart.lock() = Default::default();
    load_image(cpu, vm);
    vm.online.store(1, Ordering::Release);
    vm.ending.store(false, Ordering::Release);
    // This vCPU stops last: it may be the one that starts again.
    vm.vcpus[0].entry.store(vm.spec.image.entry.0, Ordering::Relaxed);
    vm.vcpus[0].context.store(0, Ordering::Relaxed);
    if cpu.vcpu == 0 {
        quota::stop(cpu);
        hem::reset(cpu);
        uart::print_unfinished_line(cpu, vm);
        CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
        cpu.deadlines.clear();
        vm.vcpus[0].power.store(Power::OnPending as u8, Ordering::Release);
        park()
    }
    vm.vcpus[0].power.store(Power::OnPending as u8, Ordering::Release);
    mailbox::ask(vm.spec.cores[0], Request::Start);
    leave(cpu)
}

/// Kills the running vCPU's VM and logs the reason.
pub fn kill(cpu: &'static Cpu, why: fmt::Arguments) -> ! {
    match cpu.vm {
        Some(vm) => {
            log::warn!("VM {} killed at {:#x}: {why}", vm.spec.name, ELR_EL2.get());
            end(cpu, vm, VmState::Killed)
        }
        None => park(),
    }
}

/// Returns whether the configuration says that a forbidden access kills the VM.
pub fn kills(vm: &Vm) -> bool {
    vm.spec.on_fault == OnFault::Kill
}

/// Stops all VMs and turns the machine off.
fn turn_off(cpu: &'static Cpu) -> ! {
    if TURNING_OFF.swap(true, Ordering::AcqRel) {
        leave(cpu)
    }
    for vm in all() {
        stop_others(cpu, vm);
    }
    if let Some(vm) = cpu.vm {
        quota::stop(cpu);
        telemetry::record(cpu, Record::Exits { vm: vm.id, counts: cpu.exits() });
    }
    for vm in all().iter().filter(|vm| !vm.dead.load(Ordering::Acquire)) {
        uart::print_rest(vm, Rest::End);
        telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Stopped });
    }
    telemetry::flush(cpu);
    log::info!("all VMs are off; turning the machine off");
    power::off()
}
