//! Boots from the first line of Rust to the start of the VMs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, gic, pmu, power, timer};
use crate::machine::registers::{self, *};
use crate::machine::{early, heap, layout, mmu, stage2, sysreg};
use crate::start::{audit, build};
use crate::vm::partition::{self, Memory};
use crate::vm::{console_input, cpu, guest_registers, interrupts, life, logger, telemetry};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use buddy_system_allocator::FrameAllocator as Buddy;
use cloison_formats::addr::{PhysAddr, PhysRange};
use cloison_formats::boot::AtEnd;
use cloison_formats::color::CacheGeometry;
use cloison_formats::ids::VmId;
use cloison_formats::image::{Board, GuestPmu, Header, Quota, System};
use cloison_formats::telemetry::{BootInfo, Message, PoolInfo, VERSION, VmInfo};
use cloison_logic::clock::Ticks;
use cloison_logic::features::is_coherent;
use cloison_logic::own_frames::OwnFrames;
use cloison_logic::placement::{set_aside, tables_needed};
use cloison_logic::pool::{FrameAllocator, PoolState};
use cloison_logic::quota::Enforcement;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The windows of all cores; set before the secondary ones start.
static WINDOWS: AtomicU64 = AtomicU64::new(0);
/// How many cores are initialized. Cores start one after the other, so that each waits for one
/// increment.
static CORES_UP: AtomicU32 = AtomicU32::new(0);

/// Prints why the system cannot run, and turns the machine off.
///
/// To be called while no guest runs: the text is printed at once. A system that cannot run as
/// configured is not run in part.
fn refuse(why: core::fmt::Arguments) -> ! {
    console::print(format_args!("cloison: {why}"));
    power::off()
}

/// Boots the first core, which now has a stack, a heap and a console.
pub fn boot_core(loaded: &early::Loaded) -> ! {
    heap::init_early();
    // The boot parameters need neither the heap nor the configuration; the console that they
    // describe is how every later failure is reported.
    let parameters = early::parameters();
    power::init_early(&parameters);
    console::init_early(&parameters);
    check_coherency();
    // The clock is needed by each wait that follows.
    timer::init().unwrap_or_else(|hz| {
        refuse(format_args!(
            "the system counter runs at {hz} Hz by CNTFRQ_EL0; Cloison needs 1 MHz to 4 GHz"
        ))
    });
    // The image is an allegation too: a boot loader may have cut it, or left another one's end. Its
    // checksums are verified before anything in it is used.
    let bytes = loaded.behind;
    // The header's sums and lengths first: `decode` reads as far as they say.
    let header =
        Header::parse(bytes, sysreg::crc32).unwrap_or_else(|error| refuse(format_args!("{error}")));
    let system = header
        .decode(bytes, sysreg::crc32)
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    // Until here, the macros of `log` print nothing: failures are printed by `refuse`.
    logger::init(system.log_level);
    check_machine(&system);
    run(loaded, header, partition::init_system(system))
}

/// Refuses a core on which no lock would work.
fn check_coherency() {
    let implementer = MIDR_EL1.read(MIDR_EL1::Implementer);
    let part = MIDR_EL1.read(MIDR_EL1::PartNum);
    // Read only on a core that has them: elsewhere, these encodings (CPUACTLR_EL1 and CPUECTLR_EL1
    // of the Cortex-A53 and -A72) may be undefined.
    let controls = || [S3_1_C15_C2_0.get(), S3_1_C15_C2_1.get()];
    if !is_coherent(implementer, part, controls) {
        let core = registers::affinity();
        console::print_fatal(format_args!(
            "cloison: the firmware left CPUECTLR_EL1.SMPEN of the core with MPIDR {core:#x} \
             clear: not coherent\n"
        ));
        power::off();
    }
}

/// Checks the hardware against the image's assumptions.
fn check_machine(system: &System) {
    use CLIDR_EL1::{Ctype1, Ctype2, Ctype3, Ctype4, Ctype5, Ctype6, Ctype7};
    // The last level of cache is the last one that CLIDR_EL1 reports as data or unified. CCSIDR_EL1
    // shows the cache that CSSELR_EL1 selects, after an ISB.
    let kinds =
        [Ctype1, Ctype2, Ctype3, Ctype4, Ctype5, Ctype6, Ctype7].map(|kind| CLIDR_EL1.read(kind));
    CSSELR_EL1.write(CSSELR_EL1::Level.val(CacheGeometry::last_level(kinds)));
    sysreg::isb();
    let found = CacheGeometry::from_ccsidr(
        CCSIDR_EL1.read(CCSIDR_EL1::LineSize),
        CCSIDR_EL1.read(CCSIDR_EL1::AssociativityWithoutCCIDX),
        CCSIDR_EL1.read(CCSIDR_EL1::NumSetsWithoutCCIDX),
    );
    // Colors follow from the geometry: with another cache, VMs would share sets.
    if found != system.board.llc {
        refuse(format_args!(
            "board {} promises a last-level cache of {:?}, CCSIDR_EL1 says {found:?}; use the \
             board file of this machine",
            system.board.name, system.board.llc
        ));
    }
    if system.board.gic.version() != gic::VERSION {
        refuse(format_args!(
            "this hypervisor is for the other version of the GIC: build one for board {}",
            system.board.name
        ));
    }
    // Quotas and HEMs of the core that needs most; each event has a counter for good.
    let needed = system.counters();
    let counters = pmu::counters();
    if needed > counters as usize {
        refuse(format_args!(
            "a core's quotas and HEM events need {needed} event counters, its PMU has {counters}"
        ));
    }
    // The windows clear guests' pages in steps of this size.
    if !DCZID_EL0.matches_all(DCZID::ALL::Bytes64) {
        refuse(format_args!("DC ZVA does not clear 64 bytes on this CPU"));
    }
}

/// Moves the hypervisor to frames of its colors, builds the VMs, starts the other cores, and then
/// the VMs. The order matters: the frames are chosen before the first VM gets any, and no core
/// starts before the tables are final.
fn run(loaded: &early::Loaded, header: Header, system: &'static System) -> ! {
    let board = &system.board;
    let colors = board.llc.colors().unwrap_or(1);
    // The frames that are chosen next may be in any gigabyte of the RAM; the first map has only
    // those of the image.
    map_ram(board);
    let header_at = loaded.header();
    let payload = PhysRange {
        start: PhysAddr(header_at.0 + u64::from(header.payload_offset)),
        len: header.payload_len.into(),
    };
    // From the first byte of the hypervisor to the end of the system image. It is reserved for
    // good, because a restarted VM is loaded from it.
    let loaded = PhysRange {
        start: loaded.base,
        len: header_at.0 + header.total_len() - loaded.base.0,
    };
    let mut frames = own_frames(system, colors, loaded);
    // Frames of the hypervisor's colors for all tables that stage 2 will need: none is allocated
    // later.
    let vms = (0..system.vms.len()).map(|id| VmId(id as u8));
    let tables = vms.map(|id| tables_needed(build::mapped_ranges(system, id)));
    let stage2_frames = tables.sum::<u32>() + board.smmu.map_or(0, |_| build::SMMU_FRAMES);
    let built = build_tables(system, &mut frames, payload, stage2_frames);
    // Only now is it known how many frames were needed. Their formula does not skip anything, and
    // the image is where the boot loader put it: a range in the way of either is an error.
    let own = PhysRange {
        start: loaded.start,
        len: frames.span().end().0 - loaded.start.0,
    };
    let reserved = board.reserved.iter().copied();
    if let Some(taken) = reserved
        .chain(system.direct())
        .find(|taken| taken.overlaps(&own))
    {
        refuse(format_args!(
            "the hypervisor, from {} to {}, runs into reserved or direct memory at {}",
            own.start,
            own.end(),
            taken.start
        ));
    }
    // SAFETY: the frames are in the board's RAM, which has just been mapped; the other cores have
    // not been started.
    unsafe { early::continue_on_copy(&built) };
    // From here on the hypervisor runs on its own colors; the loaded copy is only read for guest
    // images.
    // SAFETY: the final tables, which are on, map this much after the image for the heap only.
    unsafe { heap::extend(built.heap as usize) };
    // The devices have other addresses in the final map than in the early one.
    power::init_final(board);
    let console = console::init_final(board.console.kind);
    if let Some(line) = console::init_telemetry(board) {
        telemetry::init(line);
    }
    logger::always(format_args!(
        "Cloison {} on {}: {}, {colors} colors, own colors {}, {} VMs",
        env!("CARGO_PKG_VERSION"),
        board.name,
        system.name,
        system.hypervisor_colors,
        system.vms.len()
    ));

    // Never freed: the stage-2 tables of all VMs refer to it.
    let frames: &'static OwnFrames = Box::leak(Box::new(frames));
    let memory = guest_memory(system, colors, loaded, frames.span());
    let tables = stage2::TableSource {
        frames,
        next: built.stage2_first,
        end: built.stage2_first + stage2_frames,
    };
    // Errors name the VM and the region. Nothing has to be undone, because no core runs a guest
    // yet.
    build::create(system, memory, tables).unwrap_or_else(|error| refuse(format_args!("{error}")));
    // Before any other core runs, so that the stream begins with `Boot`, the pools and the VMs.
    describe(system, colors, frames);
    gic::init_distributor();
    let passed = system.vms.iter().flat_map(|vm| &vm.irqs);
    if let Some(irq) = passed.max().filter(|irq| irq.0 >= gic::interrupts()) {
        refuse(format_args!("no interrupt {irq}, which a VM has"));
    }
    // A former user of the machine may have left translations with the same VMIDs.
    sysreg::tlbi_guests();
    // Read by each core when it starts; that it is started orders the two.
    WINDOWS.store(built.windows, Relaxed);
    // The boot core counts too: it is the first one up.
    core_up(own_number(system));
    start_secondaries(system, built.trampoline);
    // Only now: each core that starts executes on the trampoline for a few instructions.
    mmu::unmap_trampoline(frames, built.ttbr, built.trampoline);
    let cpu = cpu::this();
    if system.audit {
        audit::run(cpu, frames, built.ttbr);
        logger::always(format_args!("audit done; turning the machine off"));
        power::off();
    }
    // Input interrupts a core, so it comes after all cores have their interrupt interfaces.
    console_input::init(console);
    interrupts::init_smmu();
    // From now on, messages wait for their turn at the console: a core that prints does not hold up
    // its guest.
    logger::QUEUES.store(true, Relaxed);
    // All channels before the first VM: none reads what was there before.
    life::clear_channels(cpu);
    // In the order of the configuration. A VM whose first core is another one runs while the next
    // VM is loaded.
    for vm in partition::all() {
        life::start(cpu, vm);
    }
    life::park()
}

/// Adds all RAM to the early map.
fn map_ram(board: &Board) {
    for range in &board.ram {
        // The early map has blocks of 1 GiB.
        let mut gigabyte = range.start.0;
        while gigabyte < range.end().0 {
            // SAFETY: a gigabyte of the board's RAM; the other cores have not been started.
            unsafe { early::map_identity(PhysAddr(gigabyte)) };
            // The first byte of the next one; banks need not begin at a multiple.
            gigabyte = (gigabyte | 0x3fff_ffff) + 1;
        }
    }
}

/// Returns the frames of the hypervisor's colors that follow what was loaded.
fn own_frames(system: &System, colors: u32, loaded: PhysRange) -> OwnFrames {
    // The copy stays in the bank of RAM into which the image was loaded: that is RAM for certain.
    let holds = |bank: &&PhysRange| bank.covers(&loaded);
    let Some(&bank) = system.board.ram.iter().find(holds) else {
        refuse(format_args!(
            "loaded at {}, which is not in the RAM of board {}",
            loaded.start, system.board.name
        ));
    };
    // From the end of the image upward: frames are a formula, so that the whole range has to be
    // RAM.
    OwnFrames::new(system.hypervisor_colors, colors, loaded.end(), bank)
}

/// Builds the final tables.
fn build_tables(
    system: &System,
    frames: &mut OwnFrames,
    payload: PhysRange,
    stage2_frames: u32,
) -> mmu::Built {
    let board = &system.board;
    let cores = board.cores.len();
    let ram = board.ram.iter().map(|bank| bank.len).sum();
    // Lists that grow at run time get their capacity at boot: nothing is allocated later.
    let lists = system.vms.iter().map(|vm| layout::list_bytes(vm.away));
    let [second, third, fourth] = gic::other_pages(&board.gic);
    let mut devices = vec![
        Some(board.gic.gicd),
        second,
        third,
        fourth,
        Some(board.console.base.page_base()),
        board.telemetry.map(|uart| uart.base.page_base()),
        board.power_off.as_ref().map(|off| off.page),
        board.smmu.map(|smmu| smmu.base),
        board.smmu.map(|smmu| PhysAddr(smmu.base.0 + 0x1_0000)),
    ];
    devices.extend((0..layout::REDISTRIBUTOR_PAGES as u64).map(|frame| gic::frame(board, frame)));
    devices.extend(system.stops().map(|(_, stop)| Some(stop.at.page_base())));
    let plan = mmu::Plan {
        devices: &devices,
        payload,
        cores,
        heap: layout::heap_extension(cores, ram) + lists.sum::<u64>(),
        stage2_frames,
        image: &early::image(),
    };
    mmu::build(frames, &plan)
}

/// Returns the memory that VMs can have: all but the reserved ranges, the loaded image and the
/// hypervisor's own colors.
fn guest_memory(system: &System, colors: u32, loaded: PhysRange, own: PhysRange) -> Memory {
    let mut reserved = system.board.reserved.clone();
    reserved.extend(system.direct());
    // The hypervisor's own frames need no exclusion from the pools: no pool has their colors.
    // Contiguous memory has all colors, so that it must avoid them.
    reserved.push(loaded);
    let mut contiguous = Buddy::<32>::new();
    if system.contiguous > 0 {
        let taken = [&reserved[..], &[own]].concat();
        // Contiguous memory has all colors. It is set aside before the pools count their frames.
        let Some(range) = set_aside(&system.board.ram, &taken, system.contiguous) else {
            refuse(format_args!(
                "no {} contiguous bytes of RAM",
                system.contiguous
            ));
        };
        contiguous.add_frame(
            range.start.page_number() as usize,
            range.end().page_number() as usize,
        );
        reserved.push(range);
    }
    let mut frames = FrameAllocator::new(colors, &system.board.ram, &reserved);
    // Each memory besides the RAM is one more color.
    for memory in &system.board.memories {
        frames.add(1, &[memory.range], &reserved);
    }
    Memory {
        frames,
        pools: system.pools.iter().cloned().map(PoolState::new).collect(),
        contiguous,
    }
}

/// Sends a description of what was built as telemetry.
fn describe(system: &System, colors: u32, frames: &OwnFrames) {
    // The list of the hypervisor's frames is long, and only an audit compares it.
    let audited = if system.audit { frames.taken() } else { 0 };
    telemetry::send(&Message::Boot(BootInfo {
        version: VERSION,
        system: system.name.clone(),
        board: system.board.name.clone(),
        colors,
        hypervisor_colors: system.hypervisor_colors,
        hypervisor_pages: frames.taken(),
        hypervisor_frames: (0..audited)
            .map(|number| frames.frame(number).page_number() as u32)
            .collect(),
        timer_hz: CNTFRQ_EL0.get(),
    }));
    let memory = partition::memory().lock();
    for pool in &memory.pools {
        let spec = &pool.spec;
        let total = |color| memory.frames.total(color);
        // By color, and of all pools that have it: frames do not know their pool.
        let used = |color| total(color) - memory.frames.available(color);
        telemetry::send(&Message::Pool(PoolInfo {
            name: spec.name.clone(),
            kind: spec.kind,
            colors: spec.colors,
            used: spec.colors.iter().map(used).collect(),
            total: spec.colors.iter().map(total).collect(),
        }));
    }
    for vm in partition::all() {
        let mut untrusted = Vec::new();
        for counted in vm.spec.quotas.iter().flat_map(Quota::counted) {
            // Named at each boot: a budget of such an event may bound nothing.
            if counted.allowed {
                let event = counted.event;
                log::warn!(
                    "VM {}: a quota counts {event}, which no verdict trusts",
                    vm.spec.name
                );
                untrusted.push(event);
            }
        }
        telemetry::send(&Message::Vm(VmInfo {
            name: vm.spec.name.clone(),
            cores: vm.spec.cores.clone(),
            pages: vm.spec.regions.iter().map(|region| region.pages).sum(),
            untrusted,
        }));
    }
}

/// Returns the number of the running core, from its MPIDR.
fn own_number(system: &System) -> usize {
    let own = registers::affinity();
    let Some(number) = system.board.cores.iter().position(|&mpidr| mpidr == own) else {
        refuse(format_args!(
            "board {} has no core with MPIDR {own:#x}, which this one has",
            system.board.name
        ));
    };
    number
}

/// Initializes a core, before any guest runs.
fn core_up(index: usize) {
    let board = &partition::system().board;
    let owner = partition::owner(index);
    let irq = board.pmu_irqs.get(index).map(|irq| irq.0);
    // The core's number is that of its GIC CPU interface: interrupts are routed by it.
    gic::init_core(index as u8, irq).unwrap_or_else(|gic::NoAnswer| {
        refuse(format_args!(
            "the redistributor of core {index} does not answer, or is another core's: correct \
             [gic] gicr in the file of board {}",
            board.name
        ))
    });
    // First with all counters below HPMN, so that the overflow interrupt can be tried on one of
    // them.
    pmu::init_core(pmu::counters(), GuestPmu::None);
    let by_interrupt = irq.is_some_and(|irq| pmu::raises_interrupt(|| gic::is_pending(irq)));
    let enforcement = Enforcement {
        by_interrupt,
        shadow: board.pmu_shadow,
    };
    let windows = WINDOWS.load(Relaxed);
    // From here on `cpu::this` works, and with it messages that name their core.
    cpu::init(index, windows, owner, enforcement, irq);
    if let Some(irq) = irq.filter(|_| !by_interrupt) {
        log::warn!(
            "the PMU's overflow interrupt {irq} does not arrive: the budgets of this core are \
             polled"
        );
    }
    // All that confines a guest is set before SErrors are taken, and before any guest is entered.
    guest_registers::init_core();
    // An SError that firmware has left pending is fatal here; later a guest would be blamed for it.
    sysreg::take_pending_serror();
    // The division of the counters follows from the owner's quotas, which `cpu::init` has read.
    let pmu = owner.map_or(GuestPmu::None, |(vm, _)| vm.spec.pmu);
    pmu::init_core(cpu::this().vpmu.borrow().counters, pmu);
    // Firmware may have left the EL2 timer on.
    CNTHP_CTL_EL2.write(CNTHP_CTL_EL2::ENABLE::CLEAR);
    if let AtEnd::Reset { within_s } = early::parameters().at_end {
        let cpu = cpu::this();
        let time = Ticks(CNTFRQ_EL0.get()).times(within_s.into());
        cpu.deadlines.end.set(Some(timer::now() + time));
        cpu.deadlines.program();
    }
    // Pairs with the load in `start_secondaries`: what this core has initialized is visible to the
    // one that waits. SEV ends its WFE.
    CORES_UP.fetch_add(1, Release);
    sysreg::dsb_ish();
    aarch64_cpu::asm::sev();
}

/// Starts the other cores, one after the other.
fn start_secondaries(system: &System, trampoline: PhysAddr) {
    let own = own_number(system);
    let cores = system.board.cores.len();
    // SAFETY: the final tables are on; this core is on the boot stack, and no other one has been
    // started.
    (0..cores).for_each(|core| unsafe { mmu::Stack::of_core(core).clear() });
    // The counter's events end WFE if no core does. Each guest starts without them.
    CNTKCTL_EL1.write(CNTKCTL_EL1::EVNTEN::SET + CNTKCTL_EL1::EVNTI.val(14));
    for index in 0..cores {
        // A core that no VM owns stays off under PSCI; with a spin table it would keep polling
        // memory.
        if index == own || system.board.spin_table.is_none() && partition::owner(index).is_none() {
            continue;
        }
        // Cores start one at a time: `STARTING` and the trampoline serve one core, and its report
        // is the next increment.
        let before = CORES_UP.load(Acquire);
        let entry = trampoline.0 + early::SECONDARY_OFFSET;
        // SAFETY: the trampoline's second entry sets up tables and stack.
        let started =
            unsafe { power::start_core(&system.board, index, entry, &cpu::this().windows) };
        if let Err(code) = started {
            refuse(format_args!(
                "core {index} does not start: PSCI CPU_ON says {code}"
            ));
        }
        let started = timer::now();
        while CORES_UP.load(Acquire) == before {
            // Far longer than any takes, even in an emulator on a busy host.
            if timer::now().since(started).0 > 5 * CNTFRQ_EL0.get() {
                refuse(format_args!(
                    "core {index} was started and does not come up"
                ));
            }
            aarch64_cpu::asm::wfe();
        }
    }
}

/// Entry point of a secondary core, on its stack under the final tables.
///
/// Called by `secondary_entry` in `start::boot` with the number that `power::STARTING` had.
pub extern "C" fn secondary_main(index: usize) -> ! {
    check_coherency();
    core_up(index);
    life::park()
}
