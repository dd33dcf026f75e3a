//! The life of VMs and their vCPUs: start, restart, end.
//!
//! vCPUs are off, about to start, or on. A VM that stops or restarts first makes all its other vCPUs leave their guest
//! (`Power::stop`), and waits for them. What others order the VM to do, its first core does, charged to its budgets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, gic, power};
use crate::machine::registers::{CNTV_CTL_EL0, ELR_EL2, Readable, Writeable};
use crate::machine::stage2::Page;
use crate::machine::{handover, sysreg};
use crate::vm::cpu::{self, Cpu};
use crate::vm::mailbox::{self, Request};
use crate::vm::migrate::{self, Pause, Work};
use crate::vm::partition::{Vm, all, system};
use crate::vm::{guest_registers, hem, interrupts, quota, telemetry, uart, virq, vpmu};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::Backing;
use cloison_formats::telemetry::{Record, VmState};
use cloison_logic::console::LineBuffer;
use cloison_logic::power::{Doom, Order, Start, State};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

static TURNING_OFF: AtomicBool = AtomicBool::new(false);

/// Copies the VM's initial contents from the system image into its memory.
fn load_image(cpu: &Cpu, vm: &Vm, pause: Pause) {
    for part in vm.spec.loaded() {
        let mut done = 0;
        while done < u64::from(part.len) && pause(1) {
            let Page::Mapped(page) = vm.stage2.page(part.load.page(done / PAGE_SIZE)) else {
                break;
            };
            // SAFETY: a frame of this VM, whose vCPUs are off; this core runs only them, or has entered no guest yet.
            unsafe { cpu.windows.load(page.frame, u64::from(part.offset) + done) };
            done += PAGE_SIZE;
        }
    }
    sysreg::invalidate_instruction_caches();
}

/// Pages cleaned or cleared between two pauses.
const CLEANED: u64 = 8;

/// Removes the VM's RAM from all caches: what a former life left there would later overwrite, or hide, what the next one
/// stores with its caches off. With `scrub`, clears the RAM as well.
fn clean_memory(cpu: &Cpu, vm: &Vm, pause: Pause) {
    for region in vm
        .spec
        .regions
        .iter()
        .filter(|region| !matches!(region.backing, Backing::Device(_)))
    {
        let pages = u64::from(region.pages);
        let batches =
            |page: &u64| !page.is_multiple_of(CLEANED) || pause(CLEANED.min(pages - page));
        for page in (0..pages).take_while(batches) {
            match vm.stage2.page(region.ipa.page(page)) {
                Page::Mapped(page) if vm.spec.scrub => {
                    // SAFETY: a frame of this VM, whose vCPUs are off.
                    unsafe { cpu.windows.clear(page.frame) };
                }
                Page::Mapped(page) => cpu.windows.flush(page.frame),
                Page::Absent | Page::Moving => {}
            }
        }
    }
}

/// Loads a VM's image and asks its first vCPU to start.
pub fn start(cpu: &Cpu, vm: &Vm) {
    if vm.spec.scrub {
        clean_memory(cpu, vm, &|_| true);
    }
    load_image(cpu, vm, &|_| true);
    vm.power.publish(0);
    mailbox::ask(vm.spec.cores[0], Request::Power);
}

/// Abandons what the core was doing and waits for requests.
pub fn park() -> ! {
    // SAFETY: the callers of `park` hold no borrow or lock.
    unsafe { handover::abandon_stack(parked) }
}

/// Runs between guests: starts the core's vCPU when requested, handles interrupts, sends telemetry.
extern "C" fn parked() -> ! {
    let cpu = cpu::this();
    loop {
        settle(cpu);
        if let Some(vm) = cpu.vm {
            if cpu.vcpu == 0
                && let Some(order) = vm.power.take_order()
            {
                obey(cpu, vm, order);
            }
            if let Some(start) = vm.power.enter(cpu.vcpu) {
                enter_vcpu(cpu, vm, start);
            }
        }
        cpu.deadlines.program();
        aarch64_cpu::asm::wfi();
    }
}

/// Sends what the core has to send, and serves what is pending meanwhile. No vCPU is off, and none starts again, before
/// that: nothing is lost when the machine turns off, and no number of restarts fills the core's rings.
fn settle(cpu: &'static Cpu) {
    interrupts::serve_while(cpu, || !telemetry::drain(cpu));
    // Whoever has asked repeatedly for a vCPU to leave has been obeyed.
    cpu.leave.set(false);
}

fn enter_vcpu(cpu: &'static Cpu, vm: &'static Vm, start: Start) -> ! {
    let slot = &vm.vcpus[cpu.vcpu];
    let (entry, arguments) = match start {
        Start::Boot => (vm.spec.image.entry.0, vm.first_arguments()),
        Start::CpuOn => (
            slot.entry.load(Ordering::Relaxed),
            [slot.context.load(Ordering::Relaxed), 0, 0, 0],
        ),
    };
    cpu.exits.take();
    guest_registers::reset_guest_registers(vm, cpu.vcpu, entry);
    virq::start(cpu, vm);
    hem::reset(cpu);
    vpmu::reset(cpu, vm);
    if start == Start::Boot {
        telemetry::record(
            cpu,
            Record::VmState {
                vm: vm.id,
                state: VmState::Started,
            },
        );
        migrate::arm(cpu, vm);
    }
    quota::start(cpu);
    hold(cpu);
    // SAFETY: `reset_guest_registers` has set the vCPU's entry and EL1 state; nothing here is borrowed.
    unsafe { handover::enter(&arguments) }
}

/// Holds the core as long as a budget is spent. Interrupts for its VM are taken and kept in list registers meanwhile. Does
/// not return where the vCPU has to stop.
pub fn hold(cpu: &'static Cpu) {
    while cpu.throttled.get() && !cpu.leave.get() {
        aarch64_cpu::asm::wfi();
        interrupts::serve(cpu, gic::acknowledge());
    }
    if cpu.leave.get() {
        leave(cpu)
    }
}

/// The running vCPU's life ends: what it has counted is noted, and nothing of it is left on its core.
fn wind_up(cpu: &Cpu, vm: &Vm) {
    quota::stop(cpu);
    hem::reset(cpu);
    vpmu::reset(cpu, vm);
    virq::stop(cpu);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
    cpu.deadlines.clear();
    uart::print_unfinished_line(cpu, vm);
    telemetry::record(
        cpu,
        Record::Exits {
            vm: vm.id,
            counts: cpu.exits.get(),
        },
    );
}

/// Stops the running vCPU: its core parks. The caller has seen to it that no borrow or lock is held.
pub fn leave(cpu: &'static Cpu) -> ! {
    if let Some(vm) = cpu.vm {
        wind_up(cpu, vm);
        be_off(cpu, vm);
    }
    park()
}

/// What is left to do for a vCPU that has been wound up, and will not start again by itself.
fn be_off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    settle(cpu);
    vm.power.leave(cpu.vcpu);
    park()
}

/// The running vCPU turns itself off (PSCI CPU_OFF); with the last one the VM ends.
pub fn cpu_off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if vm.power.cpu_off(cpu.vcpu) {
        end(cpu, vm, Doom::Off)
    } else {
        leave(cpu)
    }
}

/// Has a VM's vCPUs, but for the running one, leave their guest, and waits until they have. No more of them can be turned
/// on meanwhile: the VM is ending, or doomed.
fn stop_others(cpu: &'static Cpu, vm: &Vm) {
    cpu.deadlines.migration.set(None);
    for (vcpu, &core) in vm
        .spec
        .cores
        .iter()
        .enumerate()
        .filter(|&(_, &core)| usize::from(core) != cpu.index)
    {
        while vm.power.stop(vcpu) != State::Off {
            mailbox::ask(core, Request::Power);
            for _ in 0..100 {
                interrupts::serve_pending(cpu);
                sysreg::let_others_run();
            }
        }
    }
}

/// Ends the running vCPU's VM.
pub fn end(cpu: &'static Cpu, vm: &'static Vm, why: Doom) -> ! {
    if !vm.power.end(Some(why)) {
        // Another vCPU of the VM is at it and waits for this one.
        leave(cpu)
    }
    stop_others(cpu, vm);
    Work {
        cpu,
        vm,
        pause: &|pages| interrupts::pause(cpu, pages),
    }
    .reset(false);
    finish(cpu, vm);
    leave(cpu)
}

/// Carries out an order on the VM's first core, which runs no guest.
fn obey(cpu: &'static Cpu, vm: &'static Vm, order: Order) -> ! {
    stop_others(cpu, vm);
    let pause: Pause = &|pages| interrupts::pause(cpu, pages);
    quota::start(cpu);
    if order == Order::Stop {
        Work { cpu, vm, pause }.reset(false);
        finish(cpu, vm);
        quota::stop(cpu);
        be_off(cpu, vm)
    }
    while !quota::may_restart(cpu) && pause(0) {}
    if order == Order::Restart {
        telemetry::record(
            cpu,
            Record::VmState {
                vm: vm.id,
                state: VmState::Restarted,
            },
        );
    } else {
        vm.runs.store(0, Ordering::Relaxed);
    }
    renew(cpu, vm, |cpu, _| quota::stop(cpu))
}

/// Prints what the VM, whose vCPUs but for the running one have stopped, has left unfinished.
fn print_end(cpu: &'static Cpu, vm: &Vm) {
    if let Some(position) = uart::print_rest(vm, LineBuffer::flush) {
        interrupts::await_console(cpu, vm, position);
    }
}

/// The VM's vCPUs but for the running one have stopped, and there is no next life.
fn finish(cpu: &'static Cpu, vm: &'static Vm) {
    print_end(cpu, vm);
    let (state, is) = match vm.power.bury() {
        Doom::Killed => (VmState::Killed, "killed"),
        Doom::Off => (VmState::Off, "off"),
        Doom::Stopped => (VmState::Stopped, "stopped"),
    };
    telemetry::record(cpu, Record::VmState { vm: vm.id, state });
    log::info!("VM {} is {is}", vm.spec.name);
    // An order may wait for this.
    mailbox::ask(vm.spec.cores[0], Request::Power);
    let is_last = all().iter().all(|vm| vm.power.is_dead());
    if is_last || system().ends_with == Some(vm.id) {
        turn_off(cpu)
    }
}

/// Handles the running vCPU's VM turning itself off: it ends, or its campaign continues.
pub fn off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if let Some(campaign) = &vm.spec.campaign {
        let done = vm.runs.load(Ordering::Relaxed) + 1;
        if campaign.next(done).is_some() {
            await_restart(cpu);
            vm.runs.store(done, Ordering::Relaxed);
            begin_again(cpu, vm)
        }
    }
    end(cpu, vm, Doom::Off)
}

/// Restarts the running vCPU's VM; other VMs are not affected.
pub fn restart(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    await_restart(cpu);
    begin_again(cpu, vm)
}

/// Holds the core while its budgets allow no further restart in the running period.
fn await_restart(cpu: &'static Cpu) {
    while !quota::may_restart(cpu) {
        hold(cpu);
    }
}

fn begin_again(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if !vm.power.end(None) {
        leave(cpu)
    }
    stop_others(cpu, vm);
    telemetry::record(
        cpu,
        Record::VmState {
            vm: vm.id,
            state: VmState::Restarted,
        },
    );
    renew(cpu, vm, wind_up)
}

/// Makes a VM, whose vCPUs but for the running one have stopped, as it was at its first start, and starts it. `end` ends
/// what the core still does for the former life.
fn renew(cpu: &'static Cpu, vm: &'static Vm, end: fn(&Cpu, &Vm)) -> ! {
    log::info!("VM {} restarts", vm.spec.name);
    // The pages move home first, so that a restarted VM finds its memory as at its first start.
    let pause: Pause = &|pages| interrupts::pause(cpu, pages);
    pause(0);
    Work { cpu, vm, pause }.reset(true);
    clean_memory(cpu, vm, pause);
    load_image(cpu, vm, pause);
    sysreg::tlbi_vm();
    print_end(cpu, vm);
    end(cpu, vm);
    // Its line is low afterwards, whatever arrives for it: then the distributor may forget the line's level.
    *vm.uart.lock() = Default::default();
    virq::reset_vm(vm);
    settle(cpu);
    // From here on this core may be told to start its vCPU again.
    if vm.power.restart().is_err() {
        finish(cpu, vm);
        be_off(cpu, vm)
    }
    mailbox::ask(vm.spec.cores[0], Request::Power);
    park()
}

/// Kills the running vCPU's VM and logs the reason.
pub fn kill(cpu: &'static Cpu, why: fmt::Arguments) -> ! {
    match cpu.vm {
        Some(vm) => {
            log::warn!("VM {} killed at {:#x}: {why}", vm.spec.name, ELR_EL2.get());
            end(cpu, vm, Doom::Killed)
        }
        None => park(),
    }
}

/// Stops all VMs and turns the machine off.
fn turn_off(cpu: &'static Cpu) -> ! {
    if TURNING_OFF.swap(true, Ordering::AcqRel) {
        leave(cpu)
    }
    for vm in all() {
        vm.power.doom();
        stop_others(cpu, vm);
    }
    if let Some(vm) = cpu.vm {
        quota::stop(cpu);
        telemetry::record(
            cpu,
            Record::Exits {
                vm: vm.id,
                counts: cpu.exits.get(),
            },
        );
    }
    for vm in all().iter().filter(|vm| !vm.power.is_dead()) {
        uart::print_rest(vm, LineBuffer::flush);
        telemetry::record(
            cpu,
            Record::VmState {
                vm: vm.id,
                state: VmState::Stopped,
            },
        );
    }
    interrupts::serve_while(cpu, console::send_some);
    log::info!("all VMs are off; turning the machine off");
    settle(cpu);
    power::off()
}
