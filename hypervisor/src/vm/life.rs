//! The life of VMs and their vCPUs: start, restart, end.
//!
//! vCPUs are off, about to start, or on. A VM that stops or restarts first makes all its other
//! vCPUs leave their guest (`Power::stop`), and waits for them. The VM's first core carries out
//! orders from other VMs and the console, charged to its budgets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, power, smmu, timer};
use crate::machine::mmio;
use crate::machine::mmu::Stack;
use crate::machine::registers::{CNTV_CTL_EL0, ELR_EL2, Readable, Writeable};
use crate::machine::{early, handover, sysreg};
use crate::vm::cpu::{self, Cpu, Due, Visit};
use crate::vm::mailbox::{self, Request};
use crate::vm::migrate::{self, Pace, Work};
use crate::vm::partition::{Vm, all, system};
use crate::vm::{
    doorbell, guest_registers, hem, interrupts, link, logger, quota, telemetry, uart, virq, vpmu,
};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::channel::Member;
use cloison_formats::ids::Core;
use cloison_formats::telemetry::{Record, StackUse, VmState};
use cloison_logic::console::LineBuffer;
use cloison_logic::limit::Topic;
use cloison_logic::power::{Doom, Order, Start, State};
use cloison_logic::quota::Effort;
use core::fmt;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Relaxed},
};
use log::Level;

/// Set by the first core that turns the machine off: two VMs may end at once.
static TURNING_OFF: AtomicBool = AtomicBool::new(false);

/// Copies the VM's initial contents from the system image into its memory.
fn load_image(work: Work) {
    for part in work.vm.spec.loaded() {
        // In pages of the guest, in order: the stage-2 tables say which frame has each.
        let mut done = 0;
        while done < u64::from(part.len)
            // Paid before the page is loaded. A core whose vCPU has to stop loads no more: another
            // vCPU or an order is about to end this life.
            && work.pause(Effort::PAGE)
            && let Some(page) = work.vm.stage2.mapping(part.load.page(done / PAGE_SIZE))
        {
            let from = u64::from(part.offset) + done;
            // SAFETY: a frame of this VM, whose vCPUs are off; this core runs only them, or has
            // entered no guest yet.
            unsafe { work.cpu.windows.load(page.frame, from) };
            done += PAGE_SIZE;
        }
    }
    // The image was written as data, which instruction caches do not observe by themselves.
    sysreg::invalidate_instruction_caches();
}

/// Pages cleaned or cleared between two pauses.
const CLEANED: u64 = 8;

/// Removes the VM's RAM from all caches: what a former life left there would later overwrite, or
/// hide, what the next one stores with its caches off. With `scrub`, clears the RAM as well. The
/// channels to which it may write come last, and are cleared as the configuration says.
fn clean_memory(work: Work) {
    let vm = work.vm;
    for region in vm.ram() {
        clean(work, region.ipa, region.pages, vm.spec.scrub);
    }
    for (ipa, channel) in vm.written() {
        clean(work, ipa, channel.pages, channel.is_cleared);
    }
}

/// Ends what the VM's devices do to memory by themselves: its next life overwrites the descriptors
/// that they follow.
fn stop_devices(vm: &Vm) {
    let own = system().stops().enumerate();
    for (number, (_, stop)) in own.filter(|(_, (of, _))| *of == vm.id) {
        // SAFETY: the number of one of them, and guests have run.
        let page = unsafe { mmio::stop(number) };
        let register = &page[(stop.at.0 % PAGE_SIZE) as usize / 4];
        register.set(stop.value);
        // The device has the write before what follows: a read does not overtake it.
        register.get();
    }
    if !vm.spec.streams.is_empty() && !smmu::cut() {
        complain_of_smmu(vm);
    }
}

/// The SMMU does not do in time what concerns the streams of this VM, and no other's.
fn complain_of_smmu(vm: &Vm) {
    let message = format_args!(": the SMMU does not answer; its devices may still use its memory");
    logger::about(vm, Level::Error, Topic::End, message);
}

/// Clears all channels before any guest runs, each where the first VM that may write sees it.
pub fn clear_channels(cpu: &'static Cpu) {
    for channel in &system().channels {
        if let Some(Member { vm, ipa, .. }) = channel.writer() {
            let work = Work::at_boot(cpu, &all()[vm.index()]);
            clean(work, *ipa, channel.pages, true);
        }
    }
}

/// Removes pages of a VM from all caches, or clears them.
fn clean(work: Work, ipa: Ipa, pages: u32, clears: bool) {
    let windows = &work.cpu.windows;
    let pages = u64::from(pages);
    let batches = |page: &u64| {
        !page.is_multiple_of(CLEANED) || work.pause(Effort::PAGE.times(CLEANED.min(pages - page)))
    };
    for page in (0..pages).take_while(batches) {
        match work.vm.stage2.mapping(ipa.page(page)) {
            // SAFETY: a frame of this VM, whose vCPUs are off, or of a channel.
            Some(page) if clears => unsafe { windows.clear(page.frame) },
            Some(page) => windows.flush(page.frame),
            None => {}
        }
    }
}

/// Loads a VM's image and asks its first vCPU to start.
pub fn start(cpu: &'static Cpu, vm: &'static Vm) {
    let work = Work::at_boot(cpu, vm);
    if vm.spec.scrub {
        clean_memory(work);
    }
    load_image(work);
    // Publishes what was loaded: the core that enters the vCPU reads its state first.
    vm.power.publish(0);
    mailbox::ask(vm.spec.cores[0], Request::Power);
}

/// Abandons what the core was doing and waits for requests.
pub fn park() -> ! {
    // SAFETY: the callers of `park` hold no borrow or lock.
    unsafe { handover::continue_on_empty_stack(parked) }
}

/// Runs between guests: starts the core's vCPU when requested, handles interrupts, sends telemetry.
extern "C" fn parked() -> ! {
    let cpu = cpu::this();
    if cpu.vm.is_none() {
        // No interrupt is routed here.
        while !telemetry::drain(cpu) {}
        power::idle()
    }
    let visit = Visit::begin();
    loop {
        settle(visit);
        let power = &visit.vm.power;
        // Only vCPU 0's core takes orders: two cores never work on one VM's life.
        if visit.vcpu == 0
            && let Some(order) = power.take_order()
        {
            obey(visit, order);
        }
        // `enter` leaves a vCPU pending while an order waits: the order is for the life that would
        // begin.
        if let Some(start) = power.enter(visit.vcpu) {
            enter_vcpu(visit, start);
        }
        let due = visit.due.take();
        // A vCPU that is on sends for one that is off.
        if due.has(Due::LINKS) {
            link::wake(visit.vm);
        }
        if due.has(Due::LEASE) {
            end_lease(visit);
            continue;
        }
        visit.deadlines.program();
        // An interrupt that is pending ends WFI even if it is masked, so none that arrives after
        // `settle` is slept through.
        aarch64_cpu::asm::wfi();
    }
}

/// Ends the VM's lease, if it has run out, on the core of a vCPU that is off. The core's periods
/// run only meanwhile: a budget paces this work as it would the vCPU's. A vCPU that is to start, or
/// an order, comes first.
fn end_lease(visit: Visit) {
    if visit.vm.lease.lock().is_due(timer::now()) {
        quota::start(*visit);
        let work = Work {
            pace: Pace::Idle(visit),
            ..Work::new(visit)
        };
        work.on_lease_deadline();
        quota::stop(*visit);
    }
}

/// Does what has become due for the running vCPU's VM.
#[cold]
#[inline(never)]
fn do_due(visit: Visit) {
    let due = visit.due.take();
    let work = Work::new(visit);
    if due.has(Due::LEASE) && work.pause(Effort::NONE) {
        work.on_lease_deadline();
    }
    if due.has(Due::MIGRATION) && work.pause(Effort::NONE) {
        work.on_deadline();
    }
    if due.has(Due::LINKS) && work.pause(Effort::NONE) {
        link::send_all(visit);
    }
    interrupts::serve_pending(*visit);
}

/// Sends what the core has to send now, and serves what is pending meanwhile. No vCPU is off, and
/// none starts again, before that: nothing is lost when the machine turns off, and no number of
/// restarts fills the core's rings. What the core adds meanwhile does not keep it here.
fn settle(visit: Visit) {
    let records = visit.ring.borrow().end();
    let messages = console::messages(visit.index);
    let last = messages.end();
    let is_past = || visit.ring.borrow().is_past(records) && messages.is_past(last);
    interrupts::serve_while(visit, || !telemetry::drain(&visit) && !is_past());
    // Repeated requests to leave have been obeyed, too.
    visit.leave.set(false);
}

/// Starts a vCPU at its entry, with EL1 as after a reset and nothing of an earlier life: registers,
/// interrupts, counters and timers.
fn enter_vcpu(visit: Visit, start: Start) -> ! {
    let vm = visit.vm;
    let slot = &vm.vcpus[visit.vcpu];
    let (entry, arguments) = match start {
        Start::Boot => (vm.spec.image.entry.0, vm.first_arguments()),
        // Relaxed: `publish` released what `power_on` stored here, and `enter` has acquired it.
        Start::CpuOn => (
            slot.entry.load(Relaxed),
            [slot.context.load(Relaxed), 0, 0, 0],
        ),
    };
    // Counts are those of one life of the vCPU.
    visit.exits.take();
    guest_registers::reset_guest_registers(vm, visit.vcpu, entry);
    virq::start(*visit);
    hem::reset(&visit);
    vpmu::reset(*visit);
    if start == Start::Boot {
        record_state(visit, vm, VmState::Started);
        doorbell::open(*visit);
        migrate::arm(*visit);
        // Its memory is loaded: what its devices find there is this life's.
        if !vm.spec.streams.is_empty() && !smmu::open() {
            complain_of_smmu(vm);
        }
    }
    quota::start(*visit);
    // A budget that an earlier life has spent holds this one too: it belongs to the core.
    hold(visit);
    // SAFETY: `reset_guest_registers` has set the vCPU's entry and EL1 state; nothing here is
    // borrowed.
    unsafe { handover::enter_guest(&arguments) }
}

/// The last step before the core returns to its guest. Holds the core as long as a budget is spent:
/// interrupts for its VM are taken and kept in list registers meanwhile. Then does what has become
/// due, which may spend a budget again. Does not return where the vCPU has to stop.
#[inline(always)]
pub fn hold(visit: Visit) {
    // Without branches in between: each return to the guest passes here.
    if visit.throttled.get() | visit.leave.get() | (visit.due.get() != Due::default()) {
        hold_longer(visit);
    }
}

/// As [`hold`], where there is something to do.
#[cold]
fn hold_longer(visit: Visit) {
    loop {
        // A request to stop ends the hold: the VM's end does not wait for a period.
        while visit.throttled.get() && !visit.leave.get() {
            interrupts::serve_pending(*visit);
            if visit.throttled.get() {
                // Here it costs no guest time.
                telemetry::drain(&visit);
                aarch64_cpu::asm::wfi();
            }
        }
        if visit.leave.get() {
            leave(visit)
        }
        if visit.due.get() == Due::default() {
            return;
        }
        do_due(visit);
    }
}

/// Logs a change of a VM's state.
fn record_state(visit: Visit, vm: &Vm, state: VmState) {
    telemetry::record(&visit, Record::VmState { vm: vm.id, state });
}

/// Logs how often the running vCPU's life has entered EL2, by cause.
fn record_exits(visit: Visit) {
    let vm = visit.vm.id;
    let counts = visit.exits.get();
    telemetry::record(&visit, Record::Exits { vm, counts });
}

/// The running vCPU's life ends: what it has counted is noted, and nothing of it is left on its
/// core.
fn wind_up(visit: Visit) {
    quota::stop(*visit);
    hem::reset(&visit);
    vpmu::reset(*visit);
    virq::stop(*visit);
    // The virtual timer would otherwise interrupt a core whose vCPU is off.
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
    visit.deadlines.clear();
    // A lease is the VM's and may end on this core later; the move of profiled pages is for the
    // life that ends here.
    visit.due.set(visit.due.get().without(Due::MIGRATION));
    uart::print_unfinished_line(*visit);
    record_exits(visit);
}

/// Stops the running vCPU: its core parks. The caller has seen to it that no borrow or lock is
/// held.
pub fn leave(visit: Visit) -> ! {
    wind_up(visit);
    be_off(visit)
}

/// What is left to do for a vCPU that has been wound up, and will not start again by itself.
fn be_off(visit: Visit) -> ! {
    settle(visit);
    // The last step, after everything has been sent: the core that waits for this vCPU may turn the
    // machine off.
    visit.vm.power.leave(visit.vcpu);
    park()
}

/// The running vCPU turns itself off (PSCI CPU_OFF); with the last one the VM ends.
///
/// `Power::cpu_off` decides in one step which vCPU is the last.
pub fn cpu_off(visit: Visit) -> ! {
    if visit.vm.power.cpu_off(visit.vcpu) {
        end(visit, Doom::Off)
    } else {
        leave(visit)
    }
}

/// Stops all vCPUs of a VM except the running one, and waits until they have left their guest. None
/// of them can be turned on meanwhile: the VM is ending, or doomed.
///
/// Requests are repeated until the vCPU is off. Meanwhile this core serves its own interrupts, so
/// that two cores that wait for each other make progress.
fn stop_others(visit: Visit, vm: &Vm) {
    visit.deadlines.migration.set(None);
    for (vcpu, &core) in vm.spec.cores.iter().enumerate() {
        while core.index() != visit.index && vm.power.stop(vcpu) != State::Off {
            mailbox::ask(core, Request::Power);
            for _ in 0..100 {
                interrupts::serve_pending(*visit);
                sysreg::let_others_run();
            }
        }
    }
}

/// Ends the running vCPU's VM.
pub fn end(visit: Visit, why: Doom) -> ! {
    if !visit.vm.power.end(Some(why)) {
        // Another vCPU of the VM ends it and waits for this one.
        leave(visit)
    }
    stop_others(visit, visit.vm);
    // No vCPU of the VM can use its pages any more. They stay where they are, since no life
    // follows; the lease ends.
    Work::new(visit).reset(false);
    finish(visit);
    leave(visit)
}

/// Carries out an order on the VM's first core, which runs no guest.
///
/// `Power::take_order` has claimed vCPU 0 and begun the end in the same step, so that no other core
/// starts or ends the VM meanwhile. Never returns: the core parks, or starts the next life.
fn obey(visit: Visit, order: Order) -> ! {
    stop_others(visit, visit.vm);
    let work = Work::new(visit);
    quota::start(*visit);
    if order == Order::Stop {
        work.reset(false);
        finish(visit);
        quota::stop(*visit);
        be_off(visit)
    }
    // A stream of orders costs at most one restart per period, as a guest that restarts itself.
    while !quota::may_restart(&visit) && work.pause(Effort::NONE) {}
    if order == Order::Restart {
        record_state(visit, visit.vm, VmState::Restarted);
    } else {
        // A VM that has ended begins its campaign again.
        visit.vm.runs.store(0, Relaxed);
    }
    renew(visit, |visit| quota::stop(*visit))
}

/// Prints the last line of a VM whose other vCPUs have stopped.
fn print_end(visit: Visit) {
    if let Some(position) = uart::print_rest(visit.vm, LineBuffer::flush) {
        interrupts::await_console(visit, position);
    }
}

/// Ends what a VM whose vCPUs have stopped does without them. Peers may leave what its next life
/// would find, until they know.
fn cut_off(visit: Visit) {
    doorbell::close(visit);
    link::reset_all(visit);
    stop_devices(visit.vm);
}

/// Ends a VM whose other vCPUs have stopped; there is no next life.
fn finish(visit: Visit) {
    let vm = visit.vm;
    cut_off(visit);
    // Before the VM counts as dead: its last line is printed with its name, and before the message
    // that it has ended.
    print_end(visit);
    let (state, is) = match vm.power.bury() {
        Doom::Killed => (VmState::Killed, "killed"),
        Doom::Off => (VmState::Off, "off"),
        Doom::Stopped => (VmState::Stopped, "stopped"),
    };
    record_state(visit, vm, state);
    logger::about(vm, Level::Info, Topic::End, format_args!(" is {is}"));
    // An order may wait for this.
    mailbox::ask(vm.spec.cores[0], Request::Power);
    // Of VMs that end at the same time, at least one finds all dead (`Power::bury`); more than one
    // may, so that `turn_off` lets only the first continue.
    let is_last = all().iter().all(|vm| vm.power.is_dead());
    if is_last || system().ends_with == Some(vm.id) {
        turn_off(visit)
    }
}

/// Handles the running vCPU's VM turning itself off: it ends, or its campaign continues.
pub fn off(visit: Visit) -> ! {
    let vm = visit.vm;
    if let Some(campaign) = &vm.spec.campaign {
        let done = vm.runs.load(Relaxed) + 1;
        if campaign.next(done).is_some() {
            await_restart(visit);
            vm.runs.store(done, Relaxed);
            begin_again(visit)
        }
    }
    end(visit, Doom::Off)
}

/// Restarts the running vCPU's VM; other VMs are not affected.
pub fn restart(visit: Visit) -> ! {
    await_restart(visit);
    begin_again(visit)
}

/// Holds the core while its budgets allow no further restart in the running period.
fn await_restart(visit: Visit) {
    while !quota::may_restart(&visit) {
        hold(visit);
    }
}

/// Begins the next life of the running vCPU's VM on this core. Where another vCPU is already ending
/// the VM, this one leaves instead.
fn begin_again(visit: Visit) -> ! {
    let vm = visit.vm;
    // A VM that another vCPU ends has no next life; one that another vCPU restarts gets one only.
    if !vm.power.end(None) {
        leave(visit)
    }
    stop_others(visit, vm);
    record_state(visit, vm, VmState::Restarted);
    renew(visit, wind_up)
}

/// Gives a VM whose other vCPUs have stopped its devices, translations and image as at its first
/// start, and starts it. The rest of its RAM stays, or is cleared with
/// `scrub`. `end` ends what the core still does for the former life.
fn renew(visit: Visit, end: fn(Visit)) -> ! {
    let vm = visit.vm;
    cut_off(visit);
    let work = Work::new(visit);
    // What is pending comes first, here and below: the steps that follow are long.
    work.pause(Effort::NONE);
    logger::about(vm, Level::Info, Topic::Act, format_args!(" restarts"));
    work.pause(Effort::NONE);
    // The pages move home first, so that a restarted VM has its frames as at its first start.
    work.reset(true);
    clean_memory(work);
    load_image(work);
    // Combined translations of the former life's own tables are of no use to the next one.
    sysreg::tlbi_vm();
    print_end(visit);
    end(visit);
    // What follows is long as well.
    interrupts::serve_pending(*visit);
    // Its line is low afterwards, whatever arrives for it: then the distributor may forget the
    // line's level.
    *vm.uart.lock() = uart::fresh(vm.spec);
    // A vCPU without progress is reported once in each life.
    vm.is_stuck.store(false, Relaxed);
    virq::reset_vm(vm);
    settle(visit);
    // From here on this core may be told to start its vCPU again.
    // Doomed meanwhile: killed, ordered to stop, or the machine turns off.
    if !vm.power.restart() {
        finish(visit);
        be_off(visit)
    }
    // The first core need not be this one: any vCPU may restart its VM.
    mailbox::ask(vm.spec.cores[0], Request::Power);
    park()
}

/// Kills the running vCPU's VM and logs the reason.
///
/// The message is formatted before the VM's end: `why` may refer to registers of the guest.
pub fn kill(visit: Visit, why: fmt::Arguments) -> ! {
    let message = format_args!(" killed at {:#x}: {why}", ELR_EL2.get());
    logger::about(visit.vm, Level::Warn, Topic::End, message);
    end(visit, Doom::Killed)
}

/// Logs how deep the hypervisor's stacks were ever used.
///
/// Called last: the stacks of all cores have had their deepest use, except this one's.
fn record_stacks(visit: Visit) {
    let cores =
        (0..system().board.cores.len()).map(|core| (Some(Core(core as u8)), Stack::of_core(core)));
    for (core, stack) in core::iter::once((None, early::boot_stack())).chain(cores) {
        // Stacks were cleared at boot and grow down: the lowest word that is not zero is the
        // deepest use.
        // A page at a time, with pending interrupts served in between.
        let first = (0..stack.pages).find_map(|page| {
            interrupts::serve_pending(*visit);
            stack.first_used(page)
        });
        let size = stack.pages * PAGE_SIZE;
        let used = first.map_or(0, |first| size - first);
        telemetry::record(
            &visit,
            Record::StackUse(StackUse {
                core,
                used: used as u32,
                size: size as u32,
            }),
        );
    }
}

/// Stops all VMs and turns the machine off.
fn turn_off(visit: Visit) -> ! {
    // The other core waits for this vCPU to leave.
    if TURNING_OFF.swap(true, AcqRel) {
        leave(visit)
    }
    for vm in all() {
        // No VM starts from here on, whatever order waits.
        vm.power.doom();
        stop_others(visit, vm);
    }
    quota::stop(*visit);
    record_exits(visit);
    // VMs that did not end by themselves: their last lines, and their state in the log.
    for vm in all().iter().filter(|vm| !vm.power.is_dead()) {
        uart::print_rest(vm, LineBuffer::flush);
        link::log_all(visit, vm);
        doorbell::log(visit, vm);
        record_state(visit, vm, VmState::Stopped);
    }
    interrupts::serve_while(visit, console::send_some);
    logger::always(format_args!("all VMs are off; turning the machine off"));
    // The ring may be full.
    settle(visit);
    record_stacks(visit);
    // All of it, to the last byte: no VM adds to it any more.
    interrupts::serve_while(visit, || !telemetry::drain(&visit));
    power::off()
}
