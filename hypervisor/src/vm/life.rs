//! Virtual machines: memory, images, and the life of their vCPUs.
//!
//! A VM owns its cores for good. Its vCPUs are off, about to start, or on; each core changes only its own vCPU's state,
//! except that `CPU_ON` and a restart move one from off to about-to-start. A VM that stops or restarts first has all
//! its other vCPUs leave their guest (`Request::Stop`), and waits for them.

use crate::devices::{console, gic, power};
use crate::exits::exceptions;
use crate::machine::stage2::{Page, Stage2, TableSource};
use crate::machine::sysreg;
use crate::vm::cpu::{self, Cpu, Request};
use crate::vm::{hem, migrate, quota, telemetry, virq, vpmu};
use alloc::string::String;
use alloc::vec::Vec;
use buddy_system_allocator::FrameAllocator as Buddy;
use cloison_abi::{CallError, map};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::color::ColorSet;
use cloison_formats::image::{self, Backing, OnFault, System};
use cloison_formats::telemetry::{Record, VmState};
use cloison_logic::console::{Action, InputSwitch, LineBuffer};
use cloison_logic::pool::{FrameAllocator, PoolState};
use cloison_logic::services_page::Mailbox;
use cloison_logic::vgic::{Distributor, Shared};
use cloison_logic::vuart::Pl011;
use core::convert::Infallible;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use spin::Once;
use spin::mutex::TicketMutex;

/// A vCPU's power state, as PSCI's AFFINITY_INFO names it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Power {
    /// On.
    On = 0,
    /// Off.
    Off = 1,
    /// Asked to start.
    OnPending = 2,
}

/// What other cores need to know of a vCPU.
pub struct Vcpu {
    power: AtomicU8,
    entry: AtomicU64,
    context: AtomicU64,
}

/// A virtual machine.
pub struct Vm {
    /// Position in the configuration.
    pub id: u8,
    /// The configuration.
    pub spec: image::Vm,
    /// Its IPA space.
    pub stage2: Stage2,
    /// The hypervisor deactivates the virtual timer's interrupt (`image::Gic::mediated_timer`).
    pub mediated_timer: bool,
    /// The interrupt of its vCPUs' PMUs, where it has them and the board wires one.
    pub pmu_irq: Option<u32>,
    /// The part of the emulated distributor that needs no lock.
    pub distributor: Distributor,
    /// Its shared interrupts.
    pub spis: TicketMutex<Shared>,
    /// Its emulated PL011 and the line that is being collected.
    pub uart: TicketMutex<(Pl011, LineBuffer)>,
    /// Its services page, if it has one.
    pub mailbox: TicketMutex<Mailbox>,
    /// Its migrated pages.
    pub migration: TicketMutex<migrate::Migration>,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// vCPUs that have been turned on and have not turned themselves off.
    online: AtomicU32,
    /// Runs of its campaign that are over.
    pub runs: AtomicU32,
    /// One vCPU at a time ends or restarts the VM.
    ending: AtomicBool,
    /// Stopped for good.
    pub dead: AtomicBool,
}

/// The memory that VMs live on.
pub struct Memory {
    /// Frames by color.
    pub frames: FrameAllocator,
    /// Pools, in the configuration's order.
    pub pools: Vec<PoolState>,
    /// Contiguous, uncolored memory, in pages.
    pub contiguous: Buddy<32>,
}

static MEMORY: Once<TicketMutex<Memory>> = Once::new();
static VMS: Once<Vec<Vm>> = Once::new();
static ENDS_WITH: AtomicU32 = AtomicU32::new(u32::MAX);
static ALIVE: AtomicU32 = AtomicU32::new(0);
static TURNING_OFF: AtomicBool = AtomicBool::new(false);
static CONSOLE_INPUT: TicketMutex<Option<(console::Uart, InputSwitch)>> = TicketMutex::new(None);
static CONSOLE_IRQ: AtomicU32 = AtomicU32::new(u32::MAX);

/// The memory, once [`create`] has run.
pub fn memory() -> &'static TicketMutex<Memory> {
    MEMORY.get().expect("created at boot, before any guest runs")
}

/// All VMs, once [`create`] has run.
pub fn all() -> &'static [Vm] {
    VMS.get().map_or(&[], Vec::as_slice)
}

/// Why a VM could not be built.
pub struct BuildError {
    vm: String,
    region: String,
    why: String,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VM {}: region {} did not fit: {}", self.vm, self.region, self.why)
    }
}

/// Page ranges that stage 2 maps for a VM, for counting its tables.
pub fn mapped_ranges(vm: &image::Vm) -> impl Iterator<Item = (u64, u64)> + Clone {
    let gicv = core::iter::once((Ipa(map::GICC).page_number(), 2));
    vm.regions.iter().map(|region| (region.ipa.page_number(), u64::from(region.pages))).chain(gicv)
}

/// Builds all VMs' memory. Boot core, once.
pub fn create(system: System, mut memory: Memory, mut tables: TableSource) -> Result<System, BuildError> {
    let gic = system.board.gic;
    let mut vms = Vec::with_capacity(system.vms.len());
    for (id, spec) in system.vms.iter().enumerate() {
        let stage2 = Stage2::new(&mut tables, id as u8);
        for region in &spec.regions {
            let failed = |why: String| BuildError { vm: spec.name.clone(), region: region.name.clone(), why };
            let pages = u64::from(region.pages);
            let first = match region.backing {
                Backing::Pool(pool) => {
                    let Memory { frames, pools, .. } = &mut memory;
                    let pool = &mut pools[usize::from(pool)];
                    stage2
                        .map(&mut tables, region.ipa, pages, false, |batch| pool.allocate_many(frames, batch))
                        .map_err(|error| failed(alloc::format!("pool {}: {error}", pool.spec().name)))?;
                    continue;
                }
                Backing::Contiguous => match memory.contiguous.alloc(pages as usize) {
                    Some(number) => PhysAddr(number as u64 * PAGE_SIZE),
                    None => return Err(failed(alloc::format!("no {pages} contiguous pages left"))),
                },
                Backing::Device(pa) => pa,
            };
            let device = matches!(region.backing, Backing::Device(_));
            map_range(&stage2, &mut tables, region.ipa, pages, device, first);
        }
        // The guest's CPU interface is the hardware's virtual one.
        map_range(&stage2, &mut tables, Ipa(map::GICC), 1, true, gic.gicv);
        map_range(&stage2, &mut tables, Ipa(map::GICC).page(1), 1, true, gic.gicv_dir);

        let cores = spec.cores.len() as u8;
        let mut spis = Shared::new(cores);
        spis.own(cloison_abi::irq::UART, false);
        for &irq in &spec.irqs {
            spis.own(irq, true);
        }
        vms.push(Vm {
            id: id as u8,
            spec: spec.clone(),
            stage2,
            mediated_timer: gic.mediated_timer,
            pmu_irq: system.board.pmu_irq.filter(|_| spec.pmu),
            distributor: Distributor::new(cores),
            spis: TicketMutex::new(spis),
            uart: TicketMutex::new((Pl011::new(), LineBuffer::new())),
            mailbox: TicketMutex::new(Mailbox::default()),
            migration: TicketMutex::new(migrate::Migration::new(spec)),
            vcpus: spec
                .cores
                .iter()
                .map(|_| Vcpu {
                    power: AtomicU8::new(Power::Off as u8),
                    entry: AtomicU64::new(0),
                    context: AtomicU64::new(0),
                })
                .collect(),
            online: AtomicU32::new(0),
            runs: AtomicU32::new(0),
            ending: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        });
    }
    ENDS_WITH.store(system.ends_with.map_or(u32::MAX, u32::from), Ordering::Relaxed);
    ALIVE.store(vms.len() as u32, Ordering::Relaxed);
    VMS.call_once(|| vms);
    MEMORY.call_once(|| TicketMutex::new(memory));
    Ok(system)
}

/// Maps consecutive frames.
fn map_range(stage2: &Stage2, tables: &mut TableSource, ipa: Ipa, pages: u64, device: bool, first: PhysAddr) {
    let mut next = first;
    let Ok(()) = stage2.map(tables, ipa, pages, device, |batch| {
        for frame in batch {
            *frame = next;
            next = next.page(1);
        }
        Ok::<(), Infallible>(())
    });
}

/// The VM and vCPU that own a physical core.
pub fn owner(core: usize) -> Option<(&'static Vm, usize)> {
    all().iter().find_map(|vm| vm.spec.cores.iter().position(|&own| usize::from(own) == core).map(|vcpu| (vm, vcpu)))
}

impl Vm {
    /// A vCPU's power state.
    pub fn power(&self, vcpu: usize) -> Power {
        match self.vcpus[vcpu].power.load(Ordering::Acquire) {
            0 => Power::On,
            2 => Power::OnPending,
            _ => Power::Off,
        }
    }

    /// Asks an off vCPU to start; `Err` with its state where it is not off.
    pub fn power_on(&self, vcpu: usize, entry: Ipa, context: u64) -> Result<(), Power> {
        let slot = &self.vcpus[vcpu];
        let claimed = slot.power.compare_exchange(Power::Off as u8, u8::MAX, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_err() {
            return Err(self.power(vcpu));
        }
        slot.entry.store(entry.0, Ordering::Relaxed);
        slot.context.store(context, Ordering::Relaxed);
        self.online.fetch_add(1, Ordering::AcqRel);
        slot.power.store(Power::OnPending as u8, Ordering::Release);
        cpu::ask(self.spec.cores[vcpu], Request::Start);
        Ok(())
    }

    /// Copies what the VM starts with from the system image into its memory.
    fn load_image(&self, cpu: &Cpu) {
        for part in self.spec.loaded() {
            let mut done = 0;
            while done < u64::from(part.len) {
                let Page::Mapped(frame) = self.stage2.page(part.load.page(done / PAGE_SIZE)) else {
                    break;
                };
                cpu.windows.load(frame, u64::from(part.offset) + done);
                done += PAGE_SIZE;
            }
        }
        sysreg::invalidate_instruction_caches();
    }

    /// What vCPU 0 finds in its registers.
    fn first_arguments(&self) -> [u64; 4] {
        let mut arguments = self.spec.args;
        let vary = self.spec.campaign.as_ref().and_then(|campaign| campaign.vary);
        if let Some(argument) = vary.and_then(|vary| arguments.get_mut(usize::from(vary))) {
            *argument = argument.wrapping_add(u64::from(self.runs.load(Ordering::Relaxed)));
        }
        arguments
    }

    /// Prints what its guest has written of a line: all there will be of it, or because the guest has paused.
    pub fn print_rest(&self, ends: bool) {
        let line = &mut self.uart.lock().1;
        if let Some(part) = if ends { line.flush() } else { line.pause() } {
            console::print_guest(self.id, &self.spec.name, &part);
        }
    }

    /// Whether a page is in one of the VM's regions of RAM.
    pub fn has_ram(&self, ipa: Ipa) -> bool {
        self.spec.regions.iter().any(|region| region.contains(ipa) && !matches!(region.backing, Backing::Device(_)))
    }
}

/// The `index`-th region of a VM: its first IPA, its length in pages, and the colors that its pages may have.
pub fn region(vm: &Vm, index: u64) -> Result<[u64; 3], CallError> {
    let region = usize::try_from(index).ok().and_then(|index| vm.spec.regions.get(index)).ok_or(CallError::Absent)?;
    let memory = memory().lock();
    let colors = match region.backing {
        Backing::Pool(pool) => memory.pools[usize::from(pool)].spec().colors,
        Backing::Contiguous => ColorSet::first(memory.frames.colors()),
        Backing::Device(_) => ColorSet::EMPTY,
    };
    Ok([region.ipa.0, u64::from(region.pages), colors.0])
}

/// Loads a VM's image and asks its first vCPU to start.
pub fn start(cpu: &Cpu, vm: &Vm) {
    vm.load_image(cpu);
    let started = vm.power_on(0, vm.spec.image.entry, 0);
    debug_assert!(started.is_ok(), "a VM starts with all its vCPUs off");
}

/// What a core does between guests: starts its vCPU when asked to, serves interrupts, sends telemetry.
pub extern "C" fn parked() -> ! {
    let cpu = cpu::this();
    loop {
        if let Some(vm) = cpu.vm {
            let slot = &vm.vcpus[cpu.vcpu];
            if cpu.leave.take() {
                // Asked to stop before it had started.
                let (pending, off) = (Power::OnPending as u8, Power::Off as u8);
                let _ = slot.power.compare_exchange(pending, off, Ordering::AcqRel, Ordering::Acquire);
            }
            if slot.power.load(Ordering::Acquire) == Power::OnPending as u8 {
                enter_vcpu(cpu, vm, slot);
            }
        }
        telemetry::pump(cpu, || true);
        aarch64_cpu::asm::wfi();
        virq::physical(cpu, gic::acknowledge());
    }
}

fn enter_vcpu(cpu: &'static Cpu, vm: &'static Vm, slot: &Vcpu) -> ! {
    let entry = slot.entry.load(Ordering::Relaxed);
    let first = cpu.vcpu == 0;
    let arguments = if first { vm.first_arguments() } else { [slot.context.load(Ordering::Relaxed), 0, 0, 0] };
    slot.power.store(Power::On as u8, Ordering::Release);
    cpu.clear_exits();
    crate::exits::traps::reset_guest_registers(vm, cpu.vcpu, entry);
    virq::start(cpu, vm);
    hem::reset(cpu);
    vpmu::reset(cpu, vm);
    if first {
        telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Started });
        migrate::arm(cpu, vm);
    }
    quota::start(cpu);
    exceptions::enter(&arguments)
}

/// Stops the running vCPU: its core parks. The caller has seen to it that no borrow or lock is held.
pub fn leave(cpu: &'static Cpu) -> ! {
    if let Some(vm) = cpu.vm {
        quota::stop(cpu);
        hem::reset(cpu);
        vpmu::reset(cpu, vm);
        virq::stop(cpu, vm);
        sysreg::write!("cntv_ctl_el0", 0);
        cpu.deadlines.clear();
        crate::exits::traps::print_unfinished_line(cpu, vm);
        telemetry::record(cpu, Record::Exits { vm: vm.id, counts: cpu.exits() });
        telemetry::flush(cpu);
        cpu.leave.set(false);
        vm.vcpus[cpu.vcpu].power.store(Power::Off as u8, Ordering::Release);
    }
    exceptions::park()
}

/// The running vCPU turns itself off (PSCI CPU_OFF); with the last one the VM ends.
pub fn cpu_off(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if vm.online.fetch_sub(1, Ordering::AcqRel) == 1 {
        end(cpu, vm, VmState::Off)
    }
    leave(cpu)
}

/// Has a VM's vCPUs, but for the running one, leave their guest, and waits until they have.
fn stop_others(cpu: &Cpu, vm: &Vm) {
    // Until a whole round finds them off: one that runs may still have turned another on.
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
        cpu::ask(core, Request::Stop);
        for _ in 0..1000 {
            core::hint::spin_loop();
        }
    }
}

/// Ends the running vCPU's VM.
pub fn end(cpu: &'static Cpu, vm: &'static Vm, state: VmState) -> ! {
    if vm.ending.swap(true, Ordering::AcqRel) {
        // Another vCPU of the VM is at it and waits for this one.
        leave(cpu)
    }
    stop_others(cpu, vm);
    migrate::restore_cacheability(cpu, vm);
    vm.print_rest(true);
    vm.dead.store(true, Ordering::Release);
    telemetry::record(cpu, Record::VmState { vm: vm.id, state });
    log::info!("VM {} is {state}", vm.spec.name);
    let last = ALIVE.fetch_sub(1, Ordering::AcqRel) == 1;
    if last || ENDS_WITH.load(Ordering::Relaxed) == u32::from(vm.id) {
        turn_off(cpu)
    }
    leave(cpu)
}

/// The running vCPU's VM turns itself off: it ends, or its campaign goes on.
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

/// Restarts the running vCPU's VM; the other VMs do not notice.
pub fn restart(cpu: &'static Cpu, vm: &'static Vm) -> ! {
    if vm.ending.swap(true, Ordering::AcqRel) {
        leave(cpu)
    }
    stop_others(cpu, vm);
    telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Restarted });
    log::info!("VM {} restarts", vm.spec.name);
    // The pages go home first, so that a restarted VM finds its memory as at its first start.
    let _ = migrate::restore_all(cpu, vm);
    migrate::restore_cacheability(cpu, vm);
    virq::stop(cpu, vm);
    virq::reset_vm(vm);
    vm.print_rest(true);
    *vm.uart.lock() = (Pl011::new(), LineBuffer::new());
    vm.load_image(cpu);
    vm.online.store(1, Ordering::Release);
    vm.ending.store(false, Ordering::Release);
    // This vCPU's own way out comes last: it may be the one that starts again.
    vm.vcpus[0].entry.store(vm.spec.image.entry.0, Ordering::Relaxed);
    vm.vcpus[0].context.store(0, Ordering::Relaxed);
    if cpu.vcpu == 0 {
        quota::stop(cpu);
        hem::reset(cpu);
        crate::exits::traps::print_unfinished_line(cpu, vm);
        sysreg::write!("cntv_ctl_el0", 0);
        cpu.deadlines.clear();
        vm.vcpus[0].power.store(Power::OnPending as u8, Ordering::Release);
        exceptions::park()
    }
    vm.vcpus[0].power.store(Power::OnPending as u8, Ordering::Release);
    cpu::ask(vm.spec.cores[0], Request::Start);
    leave(cpu)
}

/// Stops the running vCPU's VM for good, and says why.
pub fn kill(cpu: &'static Cpu, why: fmt::Arguments) -> ! {
    match cpu.vm {
        Some(vm) => {
            log::warn!("VM {} killed at {:#x}: {why}", vm.spec.name, sysreg::read!("elr_el2"));
            end(cpu, vm, VmState::Killed)
        }
        None => exceptions::park(),
    }
}

/// What the configuration says about a forbidden access: `true` to kill.
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
    if cpu.vm.is_some() {
        quota::stop(cpu);
    }
    if let Some(vm) = cpu.vm {
        telemetry::record(cpu, Record::Exits { vm: vm.id, counts: cpu.exits() });
    }
    for vm in all().iter().filter(|vm| !vm.dead.load(Ordering::Acquire)) {
        vm.print_rest(true);
        telemetry::record(cpu, Record::VmState { vm: vm.id, state: VmState::Stopped });
    }
    telemetry::flush(cpu);
    log::info!("all VMs are off; turning the machine off");
    power::off()
}

/// Takes console input from now on; it goes to the first VM until switched.
pub fn init_console_input(uart: console::Uart, irq: u32) {
    *CONSOLE_INPUT.lock() = Some((uart, InputSwitch::new(all().len() as u8)));
    CONSOLE_IRQ.store(irq, Ordering::Relaxed);
    gic::route(irq, 0);
    gic::enable(irq, true);
    uart.enable_input();
}

/// Whether this is the console's interrupt.
pub fn is_console_input(irq: u32) -> bool {
    CONSOLE_IRQ.load(Ordering::Relaxed) == irq
}

/// Serves the console's receive interrupt.
pub fn on_console_input(cpu: &'static Cpu) {
    let mut guard = CONSOLE_INPUT.lock();
    let Some((uart, switch)) = guard.as_mut() else { return };
    uart.acknowledge_input();
    while let Some(byte) = uart.receive() {
        match switch.push(byte) {
            Action::Deliver(vm, byte) => deliver(cpu, &all()[usize::from(vm)], byte),
            Action::Switched(vm) => {
                console::print(format_args!("[console] input goes to {}\n", all()[usize::from(vm)].spec.name));
            }
            Action::Help => {
                let mut text = String::from("[console] Ctrl-T, then: n the next VM, ? this help, Ctrl-T a Ctrl-T");
                for (index, vm) in all().iter().enumerate() {
                    let _ = write!(text, ", {} {}", index + 1, vm.spec.name);
                }
                console::print(format_args!("{text}\n"));
            }
            Action::None => {}
        }
    }
}

fn deliver(cpu: &'static Cpu, vm: &Vm, byte: u8) {
    let mut uart = vm.uart.lock();
    // A guest that does not read loses input, as on a real UART whose FIFO overruns.
    let _ = uart.0.push_rx(byte);
    // Under the lock: two cores must not report the line's level in the wrong order.
    virq::set_line(cpu, vm, cloison_abi::irq::UART, uart.0.line_level());
}
