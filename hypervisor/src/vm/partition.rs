//! A VM's property: its configuration, address space, devices and the state of its vCPUs.
//!
//! A VM owns its cores for good.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::stage2::Stage2;
use crate::machine::sysreg::Patience;
use crate::vm::mailbox::{self, Request};
use alloc::vec::Vec;
use buddy_system_allocator::FrameAllocator as Buddy;
use cloison_abi::reply::{self, Change, Colors};
use cloison_abi::{CallError, irq};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::channel::{Channel, Member, Rights, Trigger};
use cloison_formats::color::ColorSet;
use cloison_formats::ids::VmId;
use cloison_formats::image::{self, Backing, GuestPmu, System, WhenSpent};
use cloison_logic::clock::Ticks;
use cloison_logic::console::LineBuffer;
use cloison_logic::doorbell::Doorbell;
use cloison_logic::features::Features;
use cloison_logic::lease::Lease;
use cloison_logic::limit::Limiter;
use cloison_logic::pool::{FrameAllocator, PoolState};
use cloison_logic::power::{Power, State};
use cloison_logic::quota::{self, Effort};
use cloison_logic::services_page::Mailbox;
use cloison_logic::vgic::{Banked, Distributor, Shared};
use cloison_logic::vuart::Uart;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use spin::Once;
use spin::mutex::TicketMutex;

/// How a vCPU starts that CPU_ON turns on.
///
/// Written by the core that turns the vCPU on, between `Power::claim` and `Power::publish`; read by
/// the vCPU's core after `Power::enter`.
#[derive(Default)]
pub struct Vcpu {
    /// Where.
    pub entry: AtomicU64,
    /// With what in `x0`.
    pub context: AtomicU64,
}

/// A page that is not in its region's pool. It keeps its home frame meanwhile, so that moving back
/// cannot fail.
#[derive(Clone, Copy)]
pub struct Away {
    /// Address of the page.
    pub ipa: Ipa,
    /// Its frame in its region's pool, kept for moving back.
    pub home: PhysAddr,
    /// Its frame in the other pool.
    pub frame: PhysAddr,
    /// Its mark in stage 2.
    pub mark: u8,
}

/// What has been changed of a VM's pages.
pub struct Pages {
    /// Those that are away; never more than the first capacity.
    pub away: Vec<Away>,
    /// A list that is being carried out; never longer than the first capacity.
    pub list: Vec<u64>,
    /// How many are not cacheable.
    pub uncached: Cell<u64>,
}

/// What the configuration says of a VM's doorbell.
#[derive(Clone, Copy)]
pub struct Bell {
    /// When its interrupt is pending.
    pub trigger: Trigger,
    /// The time of as many of its calls as may interrupt peers at once.
    pub room: Ticks,
    /// After what time it may make one more.
    pub interval: Ticks,
}

/// How often a VM has called its peers since boot.
#[derive(Default)]
pub struct Rings {
    /// Calls that have interrupted a peer.
    pub passed: AtomicU64,
    /// Calls that its rate has refused.
    pub refused: AtomicU64,
}

/// A virtual machine.
pub struct Vm {
    /// Index in the configuration.
    pub id: VmId,
    /// Its configuration.
    pub spec: &'static image::Vm,
    /// Its IPA space.
    pub stage2: Stage2,
    /// Its view of the CPU.
    pub features: Features,
    /// The interrupt of its vCPUs' PMUs, if it has them and the board wires one.
    pub pmu_irq: Option<u32>,
    /// The part of the emulated distributor that needs no lock.
    pub distributor: Distributor,
    /// Its shared interrupts.
    pub spis: TicketMutex<Shared>,
    /// Its emulated UART and the line of text that is being collected.
    pub uart: TicketMutex<(Uart, LineBuffer)>,
    /// Its services page, if it has one.
    pub mailbox: TicketMutex<Mailbox>,
    /// What has been changed of its pages. The holder of the lock may change more.
    pub pages: TicketMutex<Pages>,
    /// How long a program may keep what it has changed. The lock is held for a moment at a time,
    /// also within that of `pages`.
    pub lease: TicketMutex<Lease>,
    /// The power states of its vCPUs.
    pub power: Power,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// Runs of its campaign that are over.
    pub runs: AtomicU32,
    /// Whether an access to an emulated device was refused and reported: once in all its lives.
    pub has_refused: AtomicBool,
    /// Whether an access to memory that it does not have was reported: once in all its lives.
    pub has_strayed: AtomicBool,
    /// Whether one of its vCPUs was reported to make no progress in this life.
    pub is_stuck: AtomicBool,
    /// What others know of its quotas, and change.
    pub budgets: Vec<quota::Shared>,
    /// What the hypervisor still says about it.
    pub messages: Limiter,
    /// What its peers have sent it.
    pub doorbell: Doorbell,
    /// Its doorbell's terms, if it has a channel.
    pub bell: Option<Bell>,
    /// Its calls that have interrupted peers.
    pub pace: Limiter,
    /// How many there were.
    pub rings: Rings,
    /// The VMs that it may call, a bit each.
    pub peers: u8,
    /// The core that its peers' calls interrupt, as a bit: the one that lists the doorbell's
    /// interrupt, as far as is known.
    pub called: AtomicU16,
    /// Whether it has a link.
    pub has_links: bool,
    /// Held where its pages move, and where another VM's core accesses one. Not waited with.
    pub still: TicketMutex<(), Patience>,
}

/// The memory from which VMs are built.
pub struct Memory {
    /// Frames by color.
    pub frames: FrameAllocator,
    /// Pools in configuration order.
    pub pools: Vec<PoolState>,
    /// Contiguous, uncolored memory, in pages.
    pub contiguous: Buddy<32>,
}

/// What the image says: read-only from boot on.
static SYSTEM: Once<System> = Once::new();
/// The VMs, which are never added or removed, and the memory. No core works on pages with its lock.
static VMS: Once<(Vec<Vm>, TicketMutex<Memory>)> = Once::new();

/// Sets what the image says, and returns it; boot core only, once.
pub fn init_system(system: System) -> &'static System {
    SYSTEM.call_once(|| system)
}

/// Returns what the image says, once [`init_system`] has run.
pub fn system() -> &'static System {
    SYSTEM.get().expect("read at boot, before any VM is built")
}

/// Sets the VMs and their memory; boot core only, once.
pub fn init(vms: Vec<Vm>, memory: Memory) {
    VMS.call_once(|| (vms, TicketMutex::new(memory)));
}

/// Returns the memory, once [`init`] has run.
pub fn memory() -> &'static TicketMutex<Memory> {
    &VMS.get().expect("created at boot, before any guest runs").1
}

/// Returns all VMs, once [`init`] has run.
pub fn all() -> &'static [Vm] {
    VMS.get().map_or(&[], |(vms, _)| vms)
}

/// Returns the VM and vCPU that own a physical core.
///
/// At most one: the image's check lets no core belong to two VMs.
pub fn owner(core: usize) -> Option<(&'static Vm, usize)> {
    all().iter().find_map(|vm| {
        vm.spec
            .cores
            .iter()
            .position(|&own| own.index() == core)
            .map(|vcpu| (vm, vcpu))
    })
}

impl Vm {
    /// Asks an off vCPU to start; `Err` with its state where it cannot.
    pub fn power_on(&self, vcpu: usize, entry: Ipa, context: u64) -> Result<(), State> {
        // From here to `publish`, no other vCPU can turn this one on.
        self.power.claim(vcpu)?;
        self.vcpus[vcpu].entry.store(entry.0, Relaxed);
        self.vcpus[vcpu].context.store(context, Relaxed);
        self.power.publish(vcpu);
        mailbox::ask(self.spec.cores[vcpu], Request::Power);
        Ok(())
    }

    /// Orders the VM, from outside, to change its life. Its first core is interrupted once per
    /// order, however often the VM is ordered. Returns the work that the order makes and that
    /// no budget of the VM's own pays: the first core carries the order out, and pays for it if
    /// it has a budget that can hold it.
    pub fn order(&self, change: Change) -> Result<Effort, CallError> {
        if !self.power.order(change)? {
            return Ok(Effort::NONE);
        }
        mailbox::ask(self.spec.cores[0], Request::Power);
        let pays =
            |quota: &image::Quota| quota.vcpu.0 == 0 && quota.when_spent == WhenSpent::Throttle;
        // A stop loads and cleans nothing. With a budget that holds it, the first core pays for its
        // own work.
        if change == Change::Stop || self.spec.quotas.iter().any(pays) {
            return Ok(Effort::NONE);
        }
        Ok(self.rebirth())
    }

    /// Returns the work on all pages of a VM that starts again: its RAM is cleaned, and its image
    /// loaded.
    fn rebirth(&self) -> Effort {
        let ram = self.ram().map(|region| region.pages.into());
        let loaded = self.spec.loaded();
        let loaded = loaded.map(|part| u64::from(part.len).div_ceil(PAGE_SIZE));
        let shared = self.written().map(|(_, channel)| channel.pages.into());
        Effort::PAGE.times(ram.chain(loaded).chain(shared).sum())
    }

    /// Returns the initial registers of vCPU 0.
    pub fn first_arguments(&self) -> [u64; 4] {
        let mut arguments = self.spec.args;
        if let Some(campaign) = &self.spec.campaign
            && let Some(vary) = campaign.vary
            && let Some(argument) = arguments.get_mut(usize::from(vary))
        {
            *argument = argument.wrapping_add(self.runs.load(Relaxed).into());
        }
        arguments
    }

    /// Returns its regions of RAM.
    pub fn ram(&self) -> impl Iterator<Item = &'static image::Region> {
        self.spec
            .regions
            .iter()
            .filter(|region| !matches!(region.backing, Backing::Device(_)))
    }

    /// Returns the channels to which it may write, and where it sees them.
    pub fn written(&self) -> impl Iterator<Item = (Ipa, &'static Channel)> + use<> {
        let channels = system().channels_of(self.id);
        let writes = |member: &Member| member.rights == Rights::Write;
        channels
            .filter_map(move |(channel, member)| writes(member).then_some((member.ipa, channel)))
    }

    /// Returns whether `pages` pages from `ipa` on are all in one of the VM's regions of RAM.
    pub fn is_all_ram(&self, ipa: Ipa, pages: u64) -> bool {
        // Both numbers are a guest's: nothing may wrap.
        let end = ipa.0.saturating_add(pages.saturating_mul(PAGE_SIZE));
        let last = Ipa(end.saturating_sub(1));
        self.ram()
            .any(|region| region.contains(ipa) && region.contains(last))
    }

    /// Keeps cores from accessing its pages for links, until what is returned is dropped.
    pub fn keep_off(&self) -> Option<impl Drop> {
        self.has_links.then(|| self.still.lock())
    }

    /// Returns whether its guest takes the PMU's interrupt as the hardware raises it.
    pub fn has_pmu_irq(&self) -> bool {
        self.spec.pmu == GuestPmu::Direct && self.pmu_irq.is_some()
    }

    /// Returns the private interrupts of one of its vCPUs.
    pub fn private_interrupts(&self, vcpu: usize) -> Banked {
        // Every vCPU has this interrupt, even if only one has such a quota.
        let told = self
            .spec
            .quotas
            .iter()
            .any(|quota| quota.when_spent == WhenSpent::Interrupt);
        let counters = self.pmu_irq.map_or(0, |irq| 1 << irq);
        let physical = if self.has_pmu_irq() { counters } else { 0 };
        let emulated = counters & !physical | u32::from(told) << irq::BUDGET;
        Banked::new(
            vcpu as u8,
            emulated,
            physical,
            system().board.gic.mediated_timer,
        )
    }

    /// Returns whether a page is in one of the VM's regions of RAM.
    pub fn has_ram(&self, ipa: Ipa) -> bool {
        self.is_all_ram(ipa, 1)
    }
}

/// Returns the `index`-th region of a VM.
pub fn region(vm: &Vm, index: u64) -> Result<reply::Region, CallError> {
    let region = vm
        .spec
        .regions
        .get(index as usize)
        .ok_or(CallError::Absent)?;
    let memory = memory().lock();
    let colors = match region.backing {
        Backing::Pool(pool) => memory.pools[usize::from(pool)].spec.colors,
        Backing::Contiguous | Backing::Direct => ColorSet::first(memory.frames.colors),
        Backing::Device(_) => ColorSet::EMPTY,
    };
    Ok(reply::Region {
        ipa: region.ipa.0,
        pages: region.pages.into(),
        colors: Colors(colors.0),
    })
}
