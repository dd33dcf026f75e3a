//! Builds the VMs: their memory, stage-2 tables and devices.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{gic, smmu, timer};
use crate::machine::registers::*;
use crate::machine::stage2::{Kind, Stage2, TableSource};
use crate::vm::partition::{self, Bell, Memory, Pages, Rings, Vcpu, Vm};
use crate::vm::{link, uart};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use cloison_abi::{irq, list};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::channel::{Channel, Rights};
use cloison_formats::ids::VmId;
use cloison_formats::image::{Backing, System};
use cloison_logic::doorbell::Doorbell;
use cloison_logic::features::Features;
use cloison_logic::features::without_gic;
use cloison_logic::limit::Limiter;
use cloison_logic::pool::PoolError;
use cloison_logic::power::Power;
use cloison_logic::services_page::Mailbox;
use cloison_logic::vgic::{Distributor, Shared, Source};
use core::cell::Cell;
use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};
use spin::mutex::TicketMutex;

/// Returns the page ranges that stage 2 maps for a VM, to compute the number of its tables.
///
/// First page number and number of pages of each range, which do not overlap: the image's check has
/// seen to it.
pub fn mapped_ranges(system: &System, id: VmId) -> impl Iterator<Item = (u64, u64)> + Clone {
    // The guest's CPU interface needs tables too.
    let vm = &system.vms[id.index()];
    let gicv = (!gic::IS_V3).then_some((vm.map.gicc.page_number(), 1));
    let channels = system.channels_of(id);
    let seen = channels.filter(|(_, member)| member.rights != Rights::None);
    vm.regions
        .iter()
        .map(|region| (region.ipa.page_number(), u64::from(region.pages)))
        .chain(seen.map(|(channel, member)| (member.ipa.page_number(), channel.pages.into())))
        .chain(gicv)
}

/// Frames that an SMMU needs, besides a VM's tables: of the streams, of its queues, and the root of
/// what its VM's devices reach.
pub const SMMU_FRAMES: u32 = 3;

/// Builds the memory of all VMs; boot core only, once.
///
/// # Errors
/// Why a VM could not be built.
pub fn create(
    system: &'static System,
    mut memory: Memory,
    mut tables: TableSource,
) -> Result<(), String> {
    let mut vms = Vec::with_capacity(system.vms.len());
    // In the order of the configuration: the same image gets the same frames at each boot.
    for (id, spec) in system.vms.iter().enumerate() {
        // The VMID is the number + 1, so that no VM has 0.
        let stage2 = Stage2::new(&mut tables, id as u8);
        for region in &spec.regions {
            let failed = |why: String| {
                format!(
                    "VM {}: region {} did not fit: {why}",
                    spec.name, region.name
                )
            };
            let pages = u64::from(region.pages);
            let kind = if region.executable {
                Kind::Memory
            } else {
                Kind::Data
            };
            let (kind, first) = match region.backing {
                // Single frames of the pool's colors.
                Backing::Pool(pool) => {
                    let Memory { frames, pools, .. } = &mut memory;
                    let pool = &mut pools[usize::from(pool)];
                    let place = |batch: &mut [_]| pool.allocate_many(frames, batch);
                    let result = stage2.map(&mut tables, region.ipa, pages, kind, place);
                    let name = &pool.spec.name;
                    result.map_err(|error| failed(format!("pool {name}: {error}")))?;
                    continue;
                }
                Backing::Contiguous => {
                    // The buddy allocator aligns what it returns to the next power of two.
                    let number = memory.contiguous.alloc(pages as usize);
                    let number = number
                        .ok_or_else(|| failed(format!("no {pages} contiguous pages left")))?;
                    (kind, PhysAddr(number as u64 * PAGE_SIZE))
                }
                // `execute` in the configuration does not matter here: device registers are never
                // executable.
                Backing::Device(pa) => (Kind::Device, pa),
                Backing::Direct => (kind, region.identity().start),
            };
            map_range(&stage2, &mut tables, region.ipa, pages, kind, first);
        }
        // The guest's CPU interface is the hardware's virtual one, except for its second page,
        // which traps.
        if !gic::IS_V3 {
            map_range(
                &stage2,
                &mut tables,
                spec.map.gicc,
                1,
                Kind::Device,
                system.board.gic.gicv,
            );
        }

        let cores = spec.cores.len() as u8;
        let mut spis = Shared::empty();
        // Emulated. The SPIs of passed-through devices have their numbers in the VM too.
        spis.own(spec.map.uart.irq.0, Source::Emulated);
        let bell = system.doorbell(VmId(id as u8));
        if bell.is_some() {
            spis.own(irq::DOORBELL, Source::Emulated);
        }
        spec.irqs
            .iter()
            .for_each(|irq| spis.own(irq.0, Source::Physical));
        let links = system.links_of(VmId(id as u8));
        let has_links = links.clone().next().is_some();
        links.for_each(|(_, link, end)| spis.own(link.ends[end].irq.0, Source::Emulated));
        vms.push(Vm {
            id: VmId(id as u8),
            spec,
            stage2,
            // Computed once, because the registers are constant and their reads trap.
            features: Features::new(spec.pmu, feature_register),
            pmu_irq: spec.pmu_irq(system.board.guest_pmu_irq()).map(|irq| irq.0),
            // Its two parts: what cores change by atomics, and the SPIs under a lock.
            distributor: Distributor::new(cores, &spis),
            spis: TicketMutex::new(spis),
            uart: TicketMutex::new(uart::fresh(spec)),
            mailbox: TicketMutex::new(Mailbox::default()),
            pages: TicketMutex::new(Pages {
                // As many as can move at a time by the configuration; EL2 allocates nothing while
                // guests run.
                away: Vec::with_capacity(spec.away as usize),
                list: Vec::with_capacity(list::LONGEST as usize),
                uncached: Cell::new(0),
            }),
            lease: TicketMutex::default(),
            // vCPU 0 is claimed until its image is loaded: no order can start it before.
            power: Power::loading(),
            vcpus: spec.cores.iter().map(|_| Vcpu::default()).collect(),
            runs: AtomicU32::new(0),
            has_refused: AtomicBool::new(false),
            has_strayed: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            // A word for each quota, for the VMs that regulate this one.
            budgets: spec.quotas.iter().map(|_| Default::default()).collect(),
            messages: Limiter::default(),
            doorbell: Doorbell::default(),
            bell: bell.map(|bell| {
                let interval = timer::clock().ticks(bell.interval);
                Bell {
                    trigger: bell.trigger,
                    room: interval.times(bell.burst.into()),
                    interval,
                }
            }),
            pace: Limiter::default(),
            rings: Rings::default(),
            peers: system.peers(VmId(id as u8)),
            called: AtomicU16::new(1 << spec.cores[0].0),
            has_links,
            still: TicketMutex::new(()),
        });
    }
    // After all regions: a system without channels has the frames that it had before there were
    // any.
    for channel in &system.channels {
        connect(channel, &vms, &mut memory, &mut tables)
            .map_err(|why| format!("channel {} did not fit: {why}", channel.name))?;
    }
    if let Some(vm) = vms.iter().find(|vm| !vm.spec.streams.is_empty()) {
        let (entries, queues) = (tables.take(), tables.take());
        // Without the virtual CPU interface: which core's a device would reach, nobody says.
        let space = vm.stage2.for_devices(&mut tables, vm.spec.map.gicc);
        smmu::init(entries, queues, &space, vm.spec.streams)
            .ok_or("the SMMU does not answer, or lacks stage 2")?;
    }
    link::init(system);
    // From here on, other modules find the VMs; the memory stays for migrations.
    partition::init(vms, memory);
    Ok(())
}

/// Takes the frames of a channel, and maps them in each VM that sees them, with its rights.
fn connect(
    channel: &Channel,
    vms: &[Vm],
    memory: &mut Memory,
    tables: &mut TableSource,
) -> Result<(), PoolError> {
    let Memory { frames, pools, .. } = memory;
    let mut shared = vec![PhysAddr(0); channel.pages as usize];
    pools[usize::from(channel.pool)].allocate_many(frames, &mut shared)?;
    for member in &channel.members {
        // Never executable: a peer could otherwise write a VM's instructions.
        let kind = match member.rights {
            Rights::None => continue,
            Rights::Read => Kind::ReadOnly,
            Rights::Write => Kind::Data,
        };
        let mut rest = &shared[..];
        let stage2 = &vms[member.vm.index()].stage2;
        stage2.map(tables, member.ipa, channel.pages.into(), kind, |batch| {
            let (next, others) = rest.split_at(batch.len());
            batch.copy_from_slice(next);
            rest = others;
            Ok(())
        })?;
    }
    Ok(())
}

/// Maps consecutive frames.
///
/// Cannot fail: the frames are given, and the tables were counted.
fn map_range(
    stage2: &Stage2,
    tables: &mut TableSource,
    ipa: Ipa,
    pages: u64,
    kind: Kind,
    first: PhysAddr,
) {
    let mut next = first;
    let Ok(()) = stage2.map::<Infallible>(tables, ipa, pages, kind, |batch| {
        for slot in batch {
            *slot = next;
            next = next.page(1);
        }
        Ok(())
    });
}

/// Reads the CPU's own feature register S3_0_C0_C`crm`_`op2`.
///
/// The others count as 0: the guest sees none of the features that they describe.
fn feature_register(crm: u8, op2: u8) -> u64 {
    match (crm, op2) {
        // A guest sees a GICv3's system registers only where it has them.
        (4, 0) if gic::IS_V3 => ID_AA64PFR0_EL1.get(),
        (4, 0) => without_gic(ID_AA64PFR0_EL1.get()),
        (5, 0) => ID_AA64DFR0_EL1.get(),
        (6, 0) => ID_AA64ISAR0_EL1.get(),
        (6, 1) => ID_AA64ISAR1_EL1.get(),
        (7, 0) => ID_AA64MMFR0_EL1.get(),
        (7, 1) => ID_AA64MMFR1_EL1.get(),
        (7, 2) => ID_AA64MMFR2_EL1.get(),
        _ => 0,
    }
}
