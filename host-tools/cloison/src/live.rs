//! `cloison inspect --live`: boots a system and verifies, page by page, that stage 2 matches the
//! configuration.
//!
//! The hypervisor only reads its tables back, as the MMU would walk them, and sends their contents.
//! All checks are made here, against the configuration, without any of the allocator's code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Emulation;
use cloison_config::memory;
use cloison_engine::figures::Figures;
use cloison_engine::files;
use cloison_engine::image::Image;
use cloison_engine::qemu::Machine;
use cloison_engine::telemetry::{Pass, Telemetry};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::channel::{self, Member};
use cloison_formats::color::color_of;
use cloison_formats::ids::VmId;
use cloison_formats::image::{Backing, GicVersion, Region, System, Vm};
use cloison_formats::telemetry::{MigrationOutcome, Part};
use miette::{Result, miette};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

mod streams;

/// Maximum number of wrong pages that are listed.
const LISTED: usize = 10;
/// Passes of an audit: as built, after the profiled pages have moved, after they have come back.
const PASSES: usize = 3;
/// Time limit. An audit takes well under a second of guest time; this allows for slow machines.
const LIMIT: Duration = Duration::from_secs(120);

/// The difference of a page from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The color of its frame does not belong to its pool.
    Color {
        /// Color of the frame.
        color: u8,
        /// Name of the pool and its colors.
        pool: String,
    },
    /// Its frame is outside the RAM that Cloison may manage.
    NotRam,
    /// It is a device's page, but maps another address.
    Device {
        /// Address that it should map.
        expected: PhysAddr,
    },
    /// It is memory for DMA, but not at its own address.
    Indirect {
        /// Its own address.
        expected: PhysAddr,
    },
    /// It is in a contiguous region, but does not follow the page before it.
    Scattered {
        /// Address that it should map.
        expected: PhysAddr,
    },
    /// Its frame belongs to the hypervisor.
    Hypervisor,
    /// Its frame is also mapped elsewhere.
    Shared {
        /// Name of the other VM.
        vm: String,
        /// The page in the other VM.
        ipa: Ipa,
    },
    /// A page of a channel has another frame in another VM.
    Channel {
        /// The frame there.
        expected: PhysAddr,
    },
    /// The configuration has no such page.
    Unexpected,
    /// A field of its descriptor differs from its region's.
    Attribute {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The right value.
        expected: u64,
    },
    /// The tables map it twice.
    Twice,
    /// The configuration has it, the tables do not.
    Missing,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Color { color, pool } => write!(f, "color {color} is not one of {pool}"),
            Self::NotRam => f.write_str("the frame is outside the usable RAM"),
            Self::Device { expected } => write!(f, "the device is at {expected}"),
            Self::Scattered { expected } => {
                write!(f, "a contiguous region continues at {expected}")
            }
            Self::Indirect { expected } => {
                write!(f, "memory for DMA is at its own address, {expected}")
            }
            Self::Hypervisor => f.write_str("the frame belongs to the hypervisor"),
            Self::Shared { vm, ipa } => write!(f, "the frame is also mapped by `{vm}` at {ipa}"),
            Self::Channel { expected } => {
                write!(f, "in another VM, the channel has {expected} here")
            }
            Self::Unexpected => f.write_str("no region of the VM has this page"),
            Self::Attribute {
                field,
                found,
                expected,
            } => {
                write!(
                    f,
                    "the descriptor's {field} is {found:#b}, not {expected:#b}"
                )
            }
            Self::Twice => f.write_str("the tables contain this page twice"),
            Self::Missing => f.write_str("the region has this page, but the tables do not"),
        }
    }
}

/// A page that differs from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Name of the VM.
    pub vm: String,
    /// Address of the page.
    pub ipa: Ipa,
    /// The frame that backs it, if there is one.
    pub frame: Option<PhysAddr>,
    /// The difference.
    pub fault: Fault,
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.vm, self.ipa)?;
        if let Some(frame) = self.frame {
            write!(f, " -> {frame}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// Result of the verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Pages that were read back and checked, in the first of the passes: each checks as many.
    pub checked: u64,
    /// Pages whose frame is not allowed for their region.
    pub outside: u64,
    /// Configured pages that are not in the tables.
    pub missing: u64,
    /// Mapped pages that are not configured, or occur twice.
    pub unexpected: u64,
    /// Frames that are mapped more than once, other than those of channels.
    pub shared: u64,
    /// Frames of channels: each mapped in the VMs of its channel, with their rights.
    pub channel_frames: u64,
    /// Pages with another memory type, shareability or right than their region's.
    pub attributes_wrong: u64,
    /// Profiled pages that were away in the second pass.
    pub moved: u64,
    /// The hypervisor's own frames without its colors.
    pub hypervisor_outside: u64,
    /// Number of the hypervisor's own frames.
    pub hypervisor_frames: u64,
    /// Pages that EL2 maps for itself, read back from its own tables.
    pub own_pages: u64,
    /// Those of them with a forbidden right or frame.
    pub own_pages_wrong: u64,
    /// Open streams of the SMMU.
    pub streams: u64,
    /// Pages that their devices reach.
    pub reached: u64,
    /// Every wrong page.
    pub offenders: Vec<Offender>,
    /// Contradictions in the system as a whole.
    pub contradictions: Vec<String>,
}

impl Audit {
    /// Adds a wrong page, and counts it with those of its kind.
    fn add(&mut self, vm: &str, ipa: Ipa, frame: Option<PhysAddr>, fault: Fault) {
        *match fault {
            Fault::Color { .. }
            | Fault::NotRam
            | Fault::Device { .. }
            | Fault::Scattered { .. }
            | Fault::Indirect { .. }
            | Fault::Hypervisor => &mut self.outside,
            Fault::Shared { .. } | Fault::Channel { .. } => &mut self.shared,
            Fault::Unexpected | Fault::Twice => &mut self.unexpected,
            Fault::Attribute { .. } => &mut self.attributes_wrong,
            Fault::Missing => &mut self.missing,
        } += 1;
        self.offenders.push(Offender {
            vm: vm.to_owned(),
            ipa,
            frame,
            fault,
        });
    }
}

/// Compares the tables that the hypervisor read back with the configuration.
pub fn judge(system: &System, telemetry: &Telemetry) -> Audit {
    let mut audit = Audit::default();
    let Some(boot) = &telemetry.boot else {
        audit
            .contradictions
            .push("the board sent no Boot message".to_owned());
        return audit;
    };
    audit
        .contradictions
        .extend(contradictions(system, telemetry));
    let own: HashSet<u32> = boot.hypervisor_frames.iter().copied().collect();
    audit.hypervisor_frames = own.len() as u64;
    for &frame in &own {
        let pa = PhysAddr(0).page(u64::from(frame));
        if !boot.hypervisor_colors.contains(color_of(pa, boot.colors)) {
            audit.hypervisor_outside += 1;
        }
    }
    // The pages that are in their VM's PVT pool in the second pass.
    let mut away: HashSet<(VmId, u64)> = HashSet::new();
    for (_, record) in telemetry.migrations() {
        let page = (record.vm, record.ipa.page_number());
        match record.outcome {
            MigrationOutcome::Moved => _ = away.insert(page),
            MigrationOutcome::RolledBack => _ = away.remove(&page),
            MigrationOutcome::Restored | MigrationOutcome::PoolFull => {}
        }
    }
    audit.moved = away.len() as u64;
    for (number, pass) in telemetry.passes.iter().enumerate() {
        let none = HashSet::new();
        judge_pass(
            system,
            boot.colors,
            pass,
            &own,
            if number == 1 { &away } else { &none },
            &mut audit,
        );
        if number == 0 {
            audit.checked = pass.pages();
        }
    }
    audit
}

/// Checks one pass over the tables; the pages in `away` must be in their VM's PVT pool.
fn judge_pass(
    system: &System,
    colors: u32,
    pass: &Pass,
    own: &HashSet<u32>,
    away: &HashSet<(VmId, u64)>,
    audit: &mut Audit,
) {
    judge_own_pages(system, pass, own, audit);
    let streams::Found {
        open,
        reached,
        wrong,
    } = streams::judge(system, pass, own);
    (audit.streams, audit.reached) = (open, reached);
    audit.contradictions.extend(wrong);
    let mut review = Review {
        system,
        colors,
        own,
        away,
        seen: HashSet::new(),
        owners: HashMap::new(),
        starts: HashMap::new(),
        shared: HashMap::new(),
        sharers: HashMap::new(),
        audit,
    };
    for run in &pass.stage2 {
        let Some(vm) = system.vms.get(run.vm.index()) else {
            review.audit.contradictions.push(format!(
                "the board sent tables of VM {}, which is not configured",
                run.vm
            ));
            continue;
        };
        for (index, &frame) in run.frames.iter().enumerate() {
            let page = Page {
                id: run.vm,
                vm,
                ipa: run.ipa.page(index as u64),
                frame,
                attributes: run.attributes,
            };
            review.judge(&page);
        }
    }
    review.judge_missing();
    review.audit.channel_frames = review.sharers.len() as u64;
}

/// A page that a VM's tables map.
struct Page<'a> {
    id: VmId,
    vm: &'a Vm,
    ipa: Ipa,
    frame: u32,
    attributes: u64,
}

impl Page<'_> {
    const fn key(&self) -> (VmId, u64) {
        (self.id, self.ipa.page_number())
    }

    fn address(&self) -> PhysAddr {
        PhysAddr(0).page(u64::from(self.frame))
    }
}

/// A pass over all VMs' tables that is being checked.
struct Review<'a> {
    system: &'a System,
    colors: u32,
    /// The hypervisor's own frames.
    own: &'a HashSet<u32>,
    away: &'a HashSet<(VmId, u64)>,
    /// The pages so far.
    seen: HashSet<(VmId, u64)>,
    /// The pages that map a frame, by its address.
    owners: HashMap<u64, (VmId, Ipa)>,
    /// The starts of contiguous regions, by their VM and position.
    starts: HashMap<(VmId, usize), PhysAddr>,
    /// The frame of each page of a channel, by the channel's and the page's number.
    shared: HashMap<(usize, u64), PhysAddr>,
    /// The page of a channel that a frame has.
    sharers: HashMap<u64, (usize, u64)>,
    audit: &'a mut Audit,
}

impl Review<'_> {
    fn judge(&mut self, page: &Page<'_>) {
        if !self.seen.insert(page.key()) {
            return self.offend(page, Fault::Twice);
        }
        if self.own.contains(&page.frame) {
            return self.offend(page, Fault::Hypervisor);
        }
        match expected(self.system, page.id, page.vm, page.ipa) {
            None => self.offend(page, Fault::Unexpected),
            // Every VM has the virtual CPU interface: the hardware shows each core its own.
            Some(Expected::Gicv(expected)) => {
                if page.address() != expected {
                    self.offend(page, Fault::Device { expected });
                }
                self.judge_attributes(page, Content::Device);
            }
            Some(Expected::Region(position, region)) => {
                self.judge_attributes(page, Content::of(region));
                self.judge_frame(page, position, region);
                self.judge_owner(page);
            }
            Some(Expected::Channel(channel, member)) => {
                self.judge_attributes(page, Content::Channel(member.rights));
                self.judge_shared(page, channel, member);
            }
        }
    }

    fn judge_attributes(&mut self, page: &Page<'_>, content: Content) {
        if let Some(fault) = wrong_attribute(content, page.attributes) {
            self.offend(page, fault);
        }
    }

    /// Checks the frame of a region's page, or of the PVT pool if the page is away.
    fn judge_frame(&mut self, page: &Page<'_>, position: usize, region: &Region) {
        let pa = page.address();
        let start = match region.backing {
            Backing::Contiguous => {
                let offset = page.ipa.0 - region.ipa.0;
                *self
                    .starts
                    .entry((page.id, position))
                    .or_insert(PhysAddr(pa.0.saturating_sub(offset)))
            }
            _ => pa,
        };
        let mut region = region.clone();
        if let Some(target) = page.vm.target
            && self.away.contains(&page.key())
        {
            region.backing = Backing::Pool(target);
        }
        if let Some(fault) = wrong_frame(self.system, self.colors, &region, page.ipa, pa, start) {
            self.offend(page, fault);
        }
    }

    /// Checks the frame of a page of a channel: the same in all of its VMs, and of no other page.
    fn judge_shared(&mut self, page: &Page<'_>, channel: usize, member: &Member) {
        let pa = page.address();
        let spec = &self.system.channels[channel];
        let Some(region) = spec.seen_by(member) else {
            return;
        };
        let key = (channel, page.ipa.page_number() - region.ipa.page_number());
        let first = *self.shared.entry(key).or_insert(pa);
        let fault = if first != pa {
            Some(Fault::Channel { expected: first })
        } else {
            wrong_frame(self.system, self.colors, &region, page.ipa, pa, pa)
        };
        if let Some(fault) = fault {
            return self.offend(page, fault);
        }
        if *self.sharers.entry(pa.0).or_insert(key) != key || self.owners.contains_key(&pa.0) {
            let vm = spec.name.clone();
            self.offend(page, Fault::Shared { vm, ipa: page.ipa })
        }
    }

    /// Checks that no other page has the frame.
    fn judge_owner(&mut self, page: &Page<'_>) {
        let pa = page.address();
        if let Some(&(channel, _)) = self.sharers.get(&pa.0) {
            let vm = self.system.channels[channel].name.clone();
            return self.offend(page, Fault::Shared { vm, ipa: page.ipa });
        }
        let Some(&(other, ipa)) = self.owners.get(&pa.0) else {
            self.owners.insert(pa.0, (page.id, page.ipa));
            return;
        };
        let vm = self.system.vms.get(other.index());
        let vm = vm.map_or_else(String::new, |vm| vm.name.clone());
        self.offend(page, Fault::Shared { vm, ipa });
    }

    /// Finds the configured pages that no table has.
    fn judge_missing(&mut self) {
        for (id, vm) in (0..).map(VmId).zip(&self.system.vms) {
            let channels = self.system.channels_of(id);
            let seen = channels.filter_map(|(channel, member)| channel.seen_by(member));
            let regions = vm
                .regions
                .iter()
                .cloned()
                .chain(seen)
                .map(|region| (region.ipa, u64::from(region.pages)));
            let gicv2 = self.system.board.gic.version() == GicVersion::V2;
            for (start, pages) in regions.chain(gicv2.then_some((vm.map.gicc, 1))) {
                for ipa in (0..pages).map(|page| start.page(page)) {
                    if !self.seen.contains(&(id, ipa.page_number())) {
                        self.audit.add(&vm.name, ipa, None, Fault::Missing);
                    }
                }
            }
        }
    }

    fn offend(&mut self, page: &Page<'_>, fault: Fault) {
        self.audit
            .add(&page.vm.name, page.ipa, Some(page.address()), fault);
    }
}

/// What a page of a guest holds, from which the attributes of its descriptor follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Registers of a device.
    Device,
    /// Memory that the guest may not execute.
    Data,
    /// Memory that the guest may execute.
    Code,
    /// Memory of a channel, which it may not execute.
    Channel(channel::Rights),
}

impl Content {
    fn of(region: &Region) -> Self {
        match region.backing {
            Backing::Device(_) => Self::Device,
            _ if region.executable => Self::Code,
            _ => Self::Data,
        }
    }
}

/// Returns the first field of a stage-2 descriptor (Arm ARM DDI 0487, D8.3) that is not what it
/// must be.
fn wrong_attribute(content: Content, attributes: u64) -> Option<Fault> {
    // Device-nGnRE, or Normal write-back; readable and, unless a channel is read-only here,
    // writable; devices are outer shareable whatever SH says.
    let (memory, shareability) = match content {
        Content::Device => (0b0001, 0b00),
        Content::Data | Content::Code | Content::Channel(_) => (0b1111, 0b11),
    };
    let access = match content {
        Content::Channel(channel::Rights::Read) => 0b01,
        _ => 0b11,
    };
    let never_executed = content != Content::Code;
    [
        ("memory type", 2, 4, memory),
        ("access permission", 6, 2, access),
        ("shareability", 8, 2, shareability),
        ("access flag", 10, 1, 1),
        ("execute-never bits", 53, 2, u64::from(never_executed) << 1),
    ]
    .into_iter()
    .map(|(field, shift, width, expected)| {
        (field, attributes >> shift & ((1 << width) - 1), expected)
    })
    .find_map(|(field, found, expected)| {
        (found != expected).then_some(Fault::Attribute {
            field,
            found,
            expected,
        })
    })
}

/// What EL2 may do with a page of its address space.
struct Rights {
    write: bool,
    execute: bool,
}

impl Rights {
    /// Returns what a stage-1 descriptor of EL2 allows, by AP and XN.
    const fn of(attributes: u64) -> Self {
        Self {
            write: attributes >> 7 & 1 == 0,
            execute: attributes >> 54 & 1 == 0,
        }
    }
}

/// Checks EL2's own address space: no page is writable and executable, not even at two addresses;
/// there is a gap below each stack; everything it writes or executes is on its own frames; no guest
/// page is mapped.
fn judge_own_pages(system: &System, pass: &Pass, own: &HashSet<u32>, audit: &mut Audit) {
    let pages = || {
        pass.stage1.iter().flat_map(|run| {
            run.frames
                .iter()
                .zip(0..)
                .map(move |(&frame, index)| (run.va + index * PAGE_SIZE, frame, run))
        })
    };
    let writable: HashSet<u32> = pages()
        .filter(|(.., run)| Rights::of(run.attributes).write)
        .map(|(_, frame, _)| frame)
        .collect();
    let mapped: HashSet<u64> = pages().map(|(va, ..)| va).collect();
    for (va, frame, run) in pages() {
        audit.own_pages += 1;
        let is_own = own.contains(&frame);
        let rights = Rights::of(run.attributes);
        // The index in MAIR_EL2: 0 for devices, 1 for write-back, 2 for non-cacheable memory.
        let memory = (run.attributes >> 2 & 7, run.attributes >> 8 & 3);
        let wrong = match run.part {
            _ if rights.execute && writable.contains(&frame) => Some("is writable and executable"),
            Part::Devices if memory != (0, 0) => Some("is a device mapped as memory"),
            Part::Payload if memory != (2, 3) => {
                Some("is a guest image that is cached or not shareable")
            }
            Part::Image | Part::Tables | Part::Stacks if memory != (1, 3) => {
                Some("is not cached and shareable")
            }
            Part::Trampoline => Some("is the trampoline, which the last core has run"),
            Part::Image if !is_own => Some("is on a frame that is not the hypervisor's"),
            Part::Image => None,
            _ if rights.execute => Some("is executable but not text"),
            Part::Tables | Part::Stacks if !is_own => {
                Some("is on a frame that is not the hypervisor's")
            }
            Part::Payload if rights.write => Some("is a writable guest image"),
            Part::Windows => Some("is a window left open"),
            Part::Stacks if va == run.va && mapped.contains(&(va - PAGE_SIZE)) => {
                Some("is a stack without a gap below")
            }
            Part::Tables | Part::Stacks | Part::Payload | Part::Devices => None,
        };
        if let Some(wrong) = wrong {
            audit.own_pages_wrong += 1;
            audit.contradictions.push(format!(
                "the hypervisor's page {va:#x} (frame {frame:#x}) {wrong}"
            ));
        }
    }
    let stacks = pass
        .stage1
        .iter()
        .filter(|run| run.part == Part::Stacks)
        .count();
    let cores = system.board.cores.len();
    if stacks != cores {
        audit.contradictions.push(format!(
            "{cores} cores have {stacks} stacks with gaps between them"
        ));
    }
}

fn contradictions(system: &System, telemetry: &Telemetry) -> Vec<String> {
    let mut found = vec![];
    if let Some(boot) = &telemetry.boot {
        if boot.system != system.name {
            found.push(format!(
                "the board runs `{}`, not `{}`",
                boot.system, system.name
            ));
        }
        if system.board.llc.colors() != Ok(boot.colors) {
            found.push(format!(
                "the board has {} colors, unlike its description",
                boot.colors
            ));
        }
        if boot.hypervisor_colors != system.hypervisor_colors {
            found.push(format!(
                "the hypervisor holds the colors {}, but {} are configured",
                boot.hypervisor_colors, system.hypervisor_colors
            ));
        }
        if boot.hypervisor_frames.is_empty() {
            found.push("the hypervisor reports no frame as its own".to_owned());
        }
    }
    let passes = telemetry.passes.len();
    if passes != PASSES || telemetry.passes.iter().any(|pass| pass.end.is_none()) {
        found.push(format!(
            "the audit did not end: {passes} of {PASSES} passes"
        ));
    }
    for pass in &telemetry.passes {
        let (sent, arrived) = (pass.end.unwrap_or(0), pass.pages());
        if sent != arrived {
            found.push(format!(
                "{sent} pages were read back, but {arrived} arrived"
            ));
        }
    }
    found.extend(
        telemetry
            .problems
            .iter()
            .map(|(offset, problem)| format!("telemetry, byte {offset}: {problem}")),
    );
    if telemetry.dropped() > 0 {
        found.push(format!(
            "{} telemetry records were dropped",
            telemetry.dropped()
        ));
    }
    found
}

enum Expected<'a> {
    Region(usize, &'a Region),
    /// A page of a channel, by its number.
    Channel(usize, &'a Member),
    Gicv(PhysAddr),
}

fn expected<'a>(system: &'a System, id: VmId, vm: &'a Vm, ipa: Ipa) -> Option<Expected<'a>> {
    if let Some((position, region)) = vm
        .regions
        .iter()
        .enumerate()
        .find(|(_, region)| region.contains(ipa))
    {
        return Some(Expected::Region(position, region));
    }
    for (number, channel) in system.channels.iter().enumerate() {
        if let Some(member) = channel.member(id)
            && channel
                .seen_by(member)
                .is_some_and(|seen| seen.contains(ipa))
        {
            return Some(Expected::Channel(number, member));
        }
    }
    (ipa == vm.map.gicc && system.board.gic.version() == GicVersion::V2)
        .then_some(Expected::Gicv(system.board.gic.gicv))
}

/// Returns what is wrong with the frame `pa` of the page `ipa` of `region`; `start` is the frame of
/// a contiguous region's first page.
fn wrong_frame(
    system: &System,
    colors: u32,
    region: &Region,
    ipa: Ipa,
    pa: PhysAddr,
    start: PhysAddr,
) -> Option<Fault> {
    let offset = ipa.0 - region.ipa.0;
    let in_ram = memory::manages(&system.board, pa);
    match region.backing {
        Backing::Pool(index) => {
            let color = memory::color_of(&system.board, pa, colors);
            match system.pools.get(usize::from(index)) {
                Some(pool) if pool.colors.contains(color) => (!in_ram).then_some(Fault::NotRam),
                Some(pool) => {
                    let pool = format!("pool `{}` ({})", pool.name, pool.colors);
                    Some(Fault::Color {
                        color: color.0,
                        pool,
                    })
                }
                None => Some(Fault::Unexpected),
            }
        }
        Backing::Contiguous => {
            let expected = PhysAddr(start.0 + offset);
            if pa != expected {
                return Some(Fault::Scattered { expected });
            }
            (!in_ram).then_some(Fault::NotRam)
        }
        Backing::Direct => {
            let expected = PhysAddr(ipa.0);
            if pa != expected {
                return Some(Fault::Indirect { expected });
            }
            (!in_ram).then_some(Fault::NotRam)
        }
        Backing::Device(base) => {
            let expected = PhysAddr(base.0 + offset);
            (pa != expected).then_some(Fault::Device { expected })
        }
    }
}

impl Audit {
    /// Returns whether every page is as configured.
    pub fn holds(&self) -> bool {
        self.checked > 0
            && self.offenders.is_empty()
            && self.contradictions.is_empty()
            && self.hypervisor_outside == 0
    }

    /// Adds the figures, by the names in `docs/figures.md`.
    pub fn figures(&self, figures: &mut Figures) {
        figures
            .count("pages_checked", self.checked)
            .count("pages_outside", self.outside)
            .count("pages_missing", self.missing)
            .count("pages_unexpected", self.unexpected)
            .count("frames_shared", self.shared)
            .count("channel_frames", self.channel_frames)
            .count("attributes_wrong", self.attributes_wrong)
            .count("pages_moved", self.moved)
            .count("hypervisor_frames", self.hypervisor_frames)
            .count("hypervisor_frames_outside", self.hypervisor_outside)
            .count("own_pages_checked", self.own_pages)
            .count("own_pages_wrong", self.own_pages_wrong)
            .count("streams_open", self.streams)
            .count("pages_reached_by_devices", self.reached);
    }

    /// Returns an error that lists all differences, if there are any.
    pub fn verdict(&self) -> Result<()> {
        if self.holds() {
            return Ok(());
        }
        let mut lines: Vec<String> = self.contradictions.iter().take(LISTED).cloned().collect();
        if self.checked == 0 {
            lines.push("no page was read back".to_owned());
        }
        if self.hypervisor_outside > 0 {
            lines.push(format!(
                "{} of the hypervisor's {} frames do not have its colors",
                self.hypervisor_outside, self.hypervisor_frames
            ));
        }
        lines.extend(self.offenders.iter().take(LISTED).map(Offender::to_string));
        if self.offenders.len() > LISTED {
            lines.push(format!("... and {} more", self.offenders.len() - LISTED));
        }
        Err(miette!(
            help = "the image does not match its configuration; do not rely on its isolation",
            "stage 2 is not as configured: {} pages checked, {} outside their pool, {} missing, {} unexpected, {} frames \
             shared, {} with wrong attributes\n{}",
            self.checked,
            self.outside,
            self.missing,
            self.unexpected,
            self.shared,
            self.attributes_wrong,
            lines.join("\n")
        ))
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pages read back from stage 2: {} outside their pool, {} missing, {} unexpected, \
             {} frames shared, {} with wrong attributes; {} frames shared by channels with their \
             rights; {} pages moved and came back; {} of the hypervisor's own {} frames outside \
             its colors; {} pages of EL2 read back, {} with wrong rights",
            self.checked,
            self.outside,
            self.missing,
            self.unexpected,
            self.shared,
            self.attributes_wrong,
            self.channel_frames,
            self.moved,
            self.hypervisor_outside,
            self.hypervisor_frames,
            self.own_pages,
            self.own_pages_wrong
        )?;
        if self.streams > 0 {
            let (streams, reached) = (self.streams, self.reached);
            write!(f, "; {streams} streams open, to {reached} pages")?;
        }
        Ok(())
    }
}

/// Boots an image whose system has `audit` set, and checks the tables that it sends.
pub fn boot_and_judge(image: &Image, board: &Emulation) -> Result<Audit> {
    let scratch = files::scratch()?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let outcome = Machine::new(board, &file).limit(LIMIT).run()?;
    let tail = || {
        let lines: Vec<&str> = outcome.console.lines().collect();
        format!(
            "the console's last lines were:\n{}\n{}",
            lines[lines.len().saturating_sub(10)..].join("\n"),
            outcome.errors
        )
    };
    if !outcome.exit.is_clean() {
        return Err(miette!(
            help = tail(),
            "the board did not finish the audit: {}",
            outcome.exit
        ));
    }
    let telemetry = Telemetry::parse(&outcome.telemetry);
    if telemetry.boot.is_none() {
        return Err(miette!(help = tail(), "the board sent no telemetry"));
    }
    Ok(judge(&image.system, &telemetry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_config::board::BoardFile;
    use cloison_engine::installation;
    use cloison_formats::addr::PhysRange;
    use cloison_formats::blank::blank;
    use cloison_formats::color::ColorSet;
    use cloison_formats::guest_map::GuestMap;
    use cloison_formats::ids::Core;
    use cloison_formats::image::{Board, Image as GuestImage, LogLevel, Pool, PoolKind};
    use cloison_formats::telemetry::{BootInfo, Stage1Run, Stage2Run, VERSION};

    const RAM: u64 = 0x4000_0000;
    const DEVICE: u64 = 0x0a00_0000;
    /// Bits of stage-1 descriptors.
    const READ_ONLY: u64 = 1 << 7;
    const XN: u64 = 1 << 54;
    /// Stage-2 descriptors: write-back, inner shareable, writable; Device-nGnRE, writable, never
    /// executed.
    const GUEST_RAM: u64 = 0x7ff;
    const GUEST_DEVICE: u64 = 0x4c7 | XN;

    fn region(name: &str, ipa: u64, pages: u32, backing: Backing) -> Region {
        Region {
            name: name.into(),
            ipa: Ipa(ipa),
            pages,
            backing,
            executable: true,
        }
    }

    fn vm(name: &str, core: u8, regions: Vec<Region>) -> Vm {
        Vm {
            name: name.into(),
            cores: vec![Core(core)],
            map: GuestMap::CLOISON,
            regions,
            image: GuestImage {
                offset: 0,
                len: 0,
                load: Ipa(RAM),
                entry: Ipa(RAM),
            },
            ..blank()
        }
    }

    fn system() -> System {
        let pool = |name: &str, colors| Pool {
            name: name.into(),
            kind: PoolKind::Pvt,
            colors,
            limit: None,
        };
        let at = PhysAddr;
        let configs = installation::root().join("configs");
        let file = BoardFile::load(&configs.join("boards/virt.toml"), &configs);
        System {
            name: "two".into(),
            board: Board {
                cores: vec![0, 1],
                telemetry: None,
                pmu_irqs: vec![],
                ram: vec![PhysRange {
                    start: at(RAM),
                    len: 1 << 28,
                }],
                reserved: vec![PhysRange {
                    start: at(RAM),
                    len: 1 << 20,
                }],
                ..file.expect("a shipped board").board
            },
            log_level: LogLevel::Info,
            hypervisor_colors: ColorSet(1),
            contiguous: 1 << 20,
            pools: vec![
                pool("left", ColorSet(0b0110)),
                pool("right", ColorSet(0b1000)),
            ],
            vms: vec![
                vm(
                    "one",
                    0,
                    vec![
                        region("ram", RAM, 2, Backing::Pool(0)),
                        region("dma", 0x5000_0000, 2, Backing::Contiguous),
                    ],
                ),
                vm(
                    "two",
                    1,
                    vec![
                        region("ram", RAM, 1, Backing::Pool(1)),
                        region("io", 0x0b00_0000, 1, Backing::Device(PhysAddr(DEVICE))),
                    ],
                ),
            ],
            audit: true,
            ..blank()
        }
    }

    /// Returns what a correct board sends for [`system`].
    fn sent() -> Telemetry {
        let run = |vm, ipa, frames: &[u32]| {
            let attributes = if ipa < RAM { GUEST_DEVICE } else { GUEST_RAM };
            Stage2Run {
                vm,
                ipa: Ipa(ipa),
                attributes,
                frames: frames.to_vec(),
            }
        };
        let own = |va, part, writable, executable, frames: &[u32]| Stage1Run {
            va,
            part,
            attributes: 0x703
                | if part == Part::Payload {
                    2 << 2
                } else {
                    1 << 2
                }
                | if writable { 0 } else { READ_ONLY }
                | if executable { 0 } else { XN },
            frames: frames.to_vec(),
        };
        let stage2 = vec![
            run(VmId(0), GuestMap::CLOISON.gicc.0, &[0x8040]),
            run(VmId(0), RAM, &[0x41001, 0x41012]),
            run(VmId(0), 0x5000_0000, &[0x42000, 0x42001]),
            run(VmId(1), GuestMap::CLOISON.gicc.0, &[0x8040]),
            run(VmId(1), RAM, &[0x41003]),
            run(VmId(1), 0x0b00_0000, &[0x0a000]),
        ];
        Telemetry {
            boot: Some(BootInfo {
                version: VERSION,
                system: "two".into(),
                board: "virt".into(),
                colors: 16,
                hypervisor_colors: ColorSet(1),
                hypervisor_pages: 4,
                hypervisor_frames: vec![0x41010, 0x41020, 0x41030, 0x41040],
                timer_hz: 1,
            }),
            passes: vec![
                Pass {
                    stage1: vec![
                        own(0x40_0000_0000, Part::Image, false, true, &[0x41010]),
                        own(0x40_0000_1000, Part::Image, true, false, &[0x41020]),
                        own(0x60_0000_0000, Part::Payload, false, false, &[0x40300]),
                        own(0x68_0000_1000, Part::Stacks, true, false, &[0x41030]),
                        own(0x68_0000_9000, Part::Stacks, true, false, &[0x41040]),
                    ],
                    end: Some(
                        stage2
                            .iter()
                            .map(|run: &Stage2Run| run.frames.len() as u64)
                            .sum()
                    ),
                    stage2,
                    ..Pass::default()
                };
                PASSES
            ],
            ..Telemetry::default()
        }
    }

    #[track_caller]
    fn only_fault(change: impl FnOnce(&mut Telemetry)) -> Fault {
        let mut telemetry = sent();
        change(&mut telemetry);
        let audit = judge(&system(), &telemetry);
        assert!(!audit.holds());
        audit.verdict().expect_err("a fault is an error");
        assert_eq!(audit.contradictions, Vec::<String>::new());
        let mut offenders = audit.offenders;
        assert_eq!(offenders.len(), 1, "{offenders:?}");
        offenders.remove(0).fault
    }

    #[test]
    fn a_faultless_board_passes() {
        let audit = judge(&system(), &sent());
        assert_eq!(audit.offenders, []);
        assert!(audit.holds(), "{audit:?}");
        assert_eq!(
            (audit.checked, audit.hypervisor_frames, audit.own_pages),
            (8, 4, 15)
        );
    }

    #[test]
    fn each_fault_is_found() {
        let wrong = only_fault(|sent| sent.passes[0].stage2[1].frames[0] = 0x41003 + 0x10);
        assert!(matches!(wrong, Fault::Color { color: 3, .. }), "{wrong:?}");
        assert_eq!(
            only_fault(|sent| sent.passes[0].stage2[1].frames[0] = 0x40001),
            Fault::NotRam,
            "reserved"
        );
        assert_eq!(
            only_fault(|sent| sent.passes[0].stage2[1].frames[0] = 0x60001),
            Fault::NotRam,
            "no RAM there"
        );
        let wrong = only_fault(|sent| sent.passes[0].stage2[2].frames[1] = 0x42005);
        assert_eq!(
            wrong,
            Fault::Scattered {
                expected: PhysAddr(0x4200_1000)
            }
        );
        let wrong = only_fault(|sent| sent.passes[0].stage2[5].frames[0] = 0x0a001);
        assert_eq!(
            wrong,
            Fault::Device {
                expected: PhysAddr(DEVICE)
            }
        );
        let wrong = only_fault(|sent| sent.passes[0].stage2[3].frames[0] = 0x8011);
        assert_eq!(
            wrong,
            Fault::Device {
                expected: PhysAddr(0x0804_0000)
            }
        );
        assert_eq!(
            only_fault(|sent| sent.passes[0].stage2[4].frames[0] = 0x41010),
            Fault::Hypervisor
        );
        let wrong = only_fault(|sent| sent.passes[0].stage2[1].frames[1] = 0x41001);
        assert_eq!(
            wrong,
            Fault::Shared {
                vm: "one".into(),
                ipa: Ipa(RAM)
            }
        );
        let wrong = only_fault(|sent| {
            sent.passes[0].stage2.push(Stage2Run {
                vm: VmId(1),
                ipa: Ipa(0x7000_0000),
                attributes: GUEST_RAM,
                frames: vec![0x41013],
            });
            sent.passes[0].end = Some(9);
        });
        assert_eq!(wrong, Fault::Unexpected);
        for (bits, field) in [
            (1 << 2, "memory type"),
            (1 << 6, "access permission"),
            (1 << 8, "shareability"),
            (1 << 10, "access flag"),
            (XN, "execute-never bits"),
        ] {
            for (pass, run) in [(0, 4), (1, 4), (2, 5)] {
                let wrong = only_fault(|sent| sent.passes[pass].stage2[run].attributes ^= bits);
                assert!(
                    matches!(wrong, Fault::Attribute { field: found, .. } if found == field),
                    "{wrong:?}"
                );
            }
        }
        let wrong = only_fault(|sent| {
            let again = sent.passes[0].stage2[4].clone();
            sent.passes[0].stage2.push(again);
            sent.passes[0].end = Some(9);
        });
        assert_eq!(wrong, Fault::Twice);
        let wrong = only_fault(|sent| {
            sent.passes[0].stage2.remove(4);
            sent.passes[0].end = Some(7);
        });
        assert_eq!(wrong, Fault::Missing);
    }

    #[test]
    fn a_system_that_contradicts_its_configuration_fails() {
        let fails = |change: fn(&mut Telemetry)| {
            let mut telemetry = sent();
            change(&mut telemetry);
            assert!(!judge(&system(), &telemetry).holds());
        };
        fails(|sent| sent.boot = None);
        fails(|sent| sent.passes[0].end = None);
        fails(|sent| sent.passes[0].end = Some(7));
        fails(|sent| {
            sent.boot
                .iter_mut()
                .for_each(|boot| boot.hypervisor_frames.push(0x41011))
        });
        fails(|sent| {
            sent.boot
                .iter_mut()
                .for_each(|boot| boot.hypervisor_frames.clear())
        });
        fails(|sent| {
            sent.boot
                .iter_mut()
                .for_each(|boot| boot.hypervisor_colors = ColorSet(2))
        });
        fails(|sent| sent.boot.iter_mut().for_each(|boot| boot.colors = 8));
        fails(|sent| *sent = Telemetry::default());
        fails(|sent| sent.passes[0].stage1.clear());
        fails(|sent| sent.passes[0].stage1[0].attributes &= !READ_ONLY);
        fails(|sent| sent.passes[0].stage1[1].attributes &= !XN);
        fails(|sent| sent.passes[0].stage1[1].attributes ^= 1 << 2);
        fails(|sent| sent.passes[0].stage1[1].attributes ^= 1 << 8);
        fails(|sent| sent.passes[0].stage1[2].attributes ^= 3 << 2);
        fails(|sent| sent.passes[0].stage1[0].part = Part::Trampoline);
        fails(|sent| _ = sent.passes.pop());
        fails(|sent| sent.passes[2].stage1[0].attributes &= !READ_ONLY);
        fails(|sent| sent.passes[0].stage1[1].frames[0] = 0x41010);
        fails(|sent| sent.passes[0].stage1[1].frames[0] = 0x41001);
        fails(|sent| sent.passes[0].stage1[2].attributes &= !READ_ONLY);
        fails(|sent| sent.passes[0].stage1[2].attributes &= !XN);
        fails(|sent| sent.passes[0].stage1[2].part = Part::Windows);
        fails(|sent| sent.passes[0].stage1[3].va = 0x60_0000_1000);
        fails(|sent| sent.passes[0].stage1[3].part = Part::Tables);
    }
}
