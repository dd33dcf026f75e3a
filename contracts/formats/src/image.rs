//! The system image: the data after the hypervisor's own code in the boot image.
//!
//! ```text
//! hypervisor code and data   (a whole number of pages)
//! header                     64 bytes, little-endian, this module's `Header`
//! configuration              postcard of `System`
//! padding to a page
//! payload                    guest images, each starting on a page
//! end marker                 8 bytes, `END_MARKER`
//! ```
//!
//! The host writes it after checking everything that can be checked. The hypervisor checks the
//! header, both CRCs and the end marker again, and every number that it uses as an index or an
//! address.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::{Ipa, PAGE_SIZE, PhysAddr, PhysRange};
use crate::channel::{Channel, Doorbell};
use crate::color::{CacheGeometry, ColorSet};
use crate::guest_map::GuestMap;
use crate::ids::{Core, Intid, VcpuIndex, VmId};
use crate::invalid::{Invalid, Part, Rule};
use crate::limits::{MAX_CORES, MAX_IRQ, MAX_VMS};
use crate::link::Link;
use crate::units::{EventId, Events, Nanos, Period};
use alloc::string::String;
use alloc::vec::Vec;
use cloison_abi::services;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// First bytes of the header.
pub const MAGIC: [u8; 8] = *b"CLOISON\0";
/// Last bytes of the system image.
pub const END_MARKER: [u8; 8] = *b"CLOISEND";
/// Most writes that stop the devices of a VM.
pub const MAX_STOPS: usize = 32;
/// Version of the header and of [`System`]. Images of any other version are rejected.
pub const VERSION: u32 = 20;
/// Length of the header in bytes.
pub const HEADER_LEN: usize = 64;

/// The system image's header. All offsets count from the header's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the postcard configuration, which starts at [`HEADER_LEN`].
    pub config_len: u32,
    /// CRC-32 (ISO-HDLC, as in zlib) of the configuration.
    pub config_crc: u32,
    /// Offset of the payload; a multiple of the page size.
    pub payload_offset: u32,
    /// Length of the payload without the end marker.
    pub payload_len: u32,
    /// CRC-32 of the payload.
    pub payload_crc: u32,
}

/// Why a system image is rejected. `Display` is the line that the user sees on the UART.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The magic is missing: no system image follows the hypervisor.
    #[error("no system image after the hypervisor (magic missing); build one with `cloison image`")]
    NoImage,
    /// The image was built for another version of the hypervisor.
    #[error(
        "system image has version {found}, this hypervisor reads version {VERSION}; rebuild it \
         with `cloison image`"
    )]
    Version {
        /// Version of the image.
        found: u32,
    },
    /// A CRC does not match.
    #[error("{what} damaged: CRC {found:#010x}, expected {expected:#010x}")]
    Damaged {
        /// The damaged part, with its verb.
        what: &'static str,
        /// CRC in the header.
        expected: u32,
        /// CRC that was computed.
        found: u32,
    },
    /// The header's lengths are inconsistent.
    #[error("system image header is damaged: its lengths contradict each other")]
    Layout,
    /// The end marker is missing: the image was truncated.
    #[error("system image is truncated: {expected_len} bytes expected, end marker missing")]
    Truncated {
        /// Expected length of the system image, including header and end marker.
        expected_len: u64,
    },
    /// The configuration does not decode.
    #[error(
        "configuration does not decode although its CRC matches; the host tool and the hypervisor \
         differ"
    )]
    Decode,
    /// The configuration decodes but is inconsistent.
    #[error("configuration is inconsistent: {0}")]
    Invalid(Invalid),
}

/// Returns a little-endian word of the header, by its index.
fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(core::array::from_fn(|byte| bytes[index * 4 + byte]))
}

/// Checks a CRC. A CRC finds damage, not malice: who can write the image is trusted.
fn compare(what: &'static str, expected: u32, found: u32) -> Result<(), ImageError> {
    if expected == found {
        Ok(())
    } else {
        Err(ImageError::Damaged {
            what,
            expected,
            found,
        })
    }
}

impl Header {
    /// Reads and checks a header. `crc` computes CRC-32 (ISO-HDLC).
    pub fn parse(bytes: &[u8], crc: impl Fn(&[u8]) -> u32) -> Result<Self, ImageError> {
        if bytes.len() < HEADER_LEN || bytes[..8] != MAGIC {
            return Err(ImageError::NoImage);
        }
        // The version before the CRC: another version may have its CRC elsewhere.
        let found = word(bytes, 2);
        if found != VERSION {
            return Err(ImageError::Version { found });
        }
        compare(
            "system image header is",
            word(bytes, 15),
            crc(&bytes[..HEADER_LEN - 4]),
        )?;
        let header = Self {
            config_len: word(bytes, 3),
            config_crc: word(bytes, 4),
            payload_offset: word(bytes, 5),
            payload_len: word(bytes, 6),
            payload_crc: word(bytes, 7),
        };
        // In 64 bits, so that no sum of two lengths wraps.
        let config_end = HEADER_LEN as u64 + u64::from(header.config_len);
        let start = u64::from(header.payload_offset);
        if start.is_multiple_of(PAGE_SIZE) && start >= config_end {
            Ok(header)
        } else {
            Err(ImageError::Layout)
        }
    }

    /// Returns the length of the whole system image, including the end marker.
    pub fn total_len(&self) -> u64 {
        u64::from(self.payload_offset) + u64::from(self.payload_len) + END_MARKER.len() as u64
    }

    /// Checks the rest of the image after a parsed header, and decodes the configuration. `image`
    /// starts at the header and is `total_len` bytes long.
    pub fn decode(&self, image: &[u8], crc: impl Fn(&[u8]) -> u32) -> Result<System, ImageError> {
        let expected_len = self.total_len();
        let payload_end = expected_len as usize - END_MARKER.len();
        if image.get(payload_end..expected_len as usize) != Some(&END_MARKER[..]) {
            return Err(ImageError::Truncated { expected_len });
        }
        // In bounds: the header's lengths were compared when it was parsed, and the image is as
        // long as they say.
        let config = &image[HEADER_LEN..HEADER_LEN + self.config_len as usize];
        compare("configuration is", self.config_crc, crc(config))?;
        compare(
            "guest images are",
            self.payload_crc,
            crc(&image[self.payload_offset as usize..payload_end]),
        )?;
        // Last, because decoding allocates: the bytes are known to be those that the host wrote.
        let system: System = postcard::from_bytes(config).map_err(|_| ImageError::Decode)?;
        system
            .validate(self.payload_len)
            .map_err(ImageError::Invalid)?;
        Ok(system)
    }
}

/// The hypervisor's configuration, which it reads at boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// The configuration's name, for the banner and the log.
    pub name: String,
    /// The machine.
    pub board: Board,
    /// Level of the hypervisor's messages.
    pub log_level: LogLevel,
    /// The colors that hold the hypervisor's own text, data, stacks and page tables.
    pub hypervisor_colors: ColorSet,
    /// Bytes of RAM set aside, uncolored, for regions with [`Backing::Contiguous`].
    pub contiguous: u64,
    /// The memory pools.
    pub pools: Vec<Pool>,
    /// The virtual machines; a VM's index is its id.
    pub vms: Vec<Vm>,
    /// Walk the stage-2 tables as the MMU would after building them, log every page, and stop
    /// before any guest runs.
    pub audit: bool,
    /// When this VM is off, stop the others and turn the machine off; `None`: when all are off.
    pub ends_with: Option<VmId>,
    /// The VMs that the console can stop and start, a bit each.
    pub console_manages: u8,
    /// The events whose counts were validated on the machine for which the image is made.
    pub trusted: Vec<EventId>,
    /// Events that this machine counts although its PMCEID0 and PMCEID1 do not say so: bits of
    /// these registers.
    pub announced: [u32; 2],
    /// Memory that VMs share.
    pub channels: Vec<Channel>,
    /// The doorbells of the VMs that have a channel.
    pub doorbells: Vec<Doorbell>,
    /// What joins two VMs each.
    pub links: Vec<Link>,
}

/// Level of the hypervisor's messages on the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// And what is wrong, although the system continues.
    Warn,
    /// And what the system and its VMs do.
    Info,
    /// And details for developers.
    Debug,
    /// And each step.
    Trace,
}

/// The description of a board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Board {
    /// Name, as in `configs/boards/`.
    pub name: String,
    /// MPIDR affinity of each physical core, in the order of core numbers.
    pub cores: Vec<u64>,
    /// The word in reserved RAM that each core polls for its entry address; `None` if PSCI starts
    /// cores.
    pub spin_table: Option<Vec<PhysAddr>>,
    /// Registers that turn the machine off; `None` if PSCI does.
    pub power_off: Option<PowerOff>,
    /// The UART of the console.
    pub console: Uart,
    /// The UART of the telemetry: the console's, if it goes between the lines of text. Without it,
    /// records are only counted as dropped.
    pub telemetry: Option<Uart>,
    /// The interrupt controller.
    pub gic: Gic,
    /// The SMMU, if a VM has streams; no other system touches it.
    pub smmu: Option<Smmu>,
    /// The PMU's overflow interrupt on each core: one PPI, or an SPI for each. Empty if the board
    /// does not wire it; the EL2 timer then polls the quotas.
    pub pmu_irqs: Vec<Intid>,
    /// Whether an event counter's overflow interrupt needs a second counter on the same event,
    /// preset one lower (QEMU before a fix of its overflow timer).
    pub pmu_shadow: bool,
    /// Whether MDCR_EL2.HPMN was shown to keep EL1 from the counters above it.
    pub pmu_splits: bool,
    /// The last-level cache; compared with CCSIDR_EL1 at boot.
    pub llc: CacheGeometry,
    /// RAM that Cloison may manage.
    pub ram: Vec<PhysRange>,
    /// Memories besides the RAM, such as one on the chip. Each counts as one more color: the
    /// `n`-th has the number of the cache's colors plus `n`.
    pub memories: Vec<Memory>,
    /// Parts of `ram` and `memories` that Cloison must not touch (firmware).
    pub reserved: Vec<PhysRange>,
}

/// A memory besides the RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Name in the board file, as pools name it.
    pub name: String,
    /// Where it is: whole pages.
    pub range: PhysRange,
}

/// Registers that turn the machine off when they are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerOff {
    /// The page that contains them.
    pub page: PhysAddr,
    /// Byte offset in the page and 32-bit value of each write, in order.
    pub writes: Vec<(u16, u32)>,
}

/// A UART.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uart {
    /// Its programming model.
    pub kind: UartKind,
    /// Address of the first register.
    pub base: PhysAddr,
    /// Its interrupt (GIC ID), for input.
    pub irq: Intid,
}

/// UART programming models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UartKind {
    /// Arm PrimeCell PL011 (QEMU `virt`).
    Pl011,
    /// Cadence UART (Zynq UltraScale+).
    Cadence,
    /// The Raspberry Pi's mini UART, in the page of the auxiliary peripherals.
    Mini,
}

/// Versions of the interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GicVersion {
    /// GICv2 (Arm IHI 0048B).
    V2,
    /// GICv3 (Arm IHI 0069H), in which an SGI has no source.
    V3,
}

impl GicVersion {
    /// Returns the most cores that a board can have: a GICv2 has eight CPU interfaces, and an SGI of a
    /// GICv3 goes to a list of 16 (IHI 0069, 12.2.18).
    pub const fn most_cores(self) -> usize {
        match self {
            Self::V2 => 8,
            Self::V3 => MAX_CORES,
        }
    }
}

/// A GICv2 with the virtualization extensions, or a GICv3. The second pages of a GICv2 are listed
/// separately because the ZCU102 places them 64 KiB after the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gic {
    /// Distributor.
    pub gicd: PhysAddr,
    /// The redistributors of a GICv3 (IHI 0069, 12.1), in the order of the cores, of 128 KiB each.
    /// The pages below are then the distributor's: a GICv3 has system registers instead.
    pub gicr: Option<PhysAddr>,
    /// CPU interface, first page.
    pub gicc: PhysAddr,
    /// CPU interface, second page (GICC_DIR).
    pub gicc_dir: PhysAddr,
    /// Virtual interface control.
    pub gich: PhysAddr,
    /// Virtual CPU interface, first page.
    pub gicv: PhysAddr,
    /// Virtual CPU interface, second page (GICV_DIR).
    pub gicv_dir: PhysAddr,
    /// Whether the GIC does not sample a level interrupt again when a guest's EOI deactivates it
    /// through a list register (as in QEMU). The hypervisor then deactivates the virtual
    /// timer's interrupt.
    pub mediated_timer: bool,
    /// How many interrupts it has: their IDs are below.
    pub interrupts: u32,
}

impl Gic {
    /// Returns its version.
    pub const fn version(&self) -> GicVersion {
        if self.gicr.is_some() {
            GicVersion::V3
        } else {
            GicVersion::V2
        }
    }
}

/// An SMMUv3 (Arm IHI 0070), which translates and limits the accesses of devices to memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Smmu {
    /// Address of its registers: two times 64 KiB.
    pub base: PhysAddr,
    /// The interrupt of its event queue.
    pub irq: Intid,
}

/// The streams of an SMMU: the numbers by which it knows devices, a bit each. The table of the
/// hypervisor has as many; all others are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams(pub u64);

impl Streams {
    /// How many there can be.
    pub const MOST: u32 = 64;

    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether this stream is one of them.
    pub const fn contains(self, stream: u32) -> bool {
        stream < Self::MOST && self.0 >> stream & 1 != 0
    }
}

/// A pool of colored pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Name in the configuration.
    pub name: String,
    /// Private or shared.
    pub kind: PoolKind,
    /// Its colors; of a pool of another memory, the color that stands for this memory.
    pub colors: ColorSet,
    /// Maximum number of pages taken from it for regions and migration together; `None`: all pages
    /// of its colors.
    pub limit: Option<u32>,
}

/// Whether a pool belongs to one VM (PVT) or may be used by several (SH).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolKind {
    /// Private: colors that no other pool has.
    Pvt,
    /// Shared.
    Sh,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// Name, as the console prints it.
    pub name: String,
    /// Physical cores; the index is the vCPU number.
    pub cores: Vec<Core>,
    /// Where its emulated devices are.
    pub map: GuestMap,
    /// Memory and devices.
    pub regions: Vec<Region>,
    /// The image that is loaded when the VM starts or restarts.
    pub image: Image,
    /// Additional modules that are loaded with it: an initial RAM disk, a device tree.
    pub modules: Vec<Module>,
    /// `x0`–`x3` of vCPU 0 at its first instruction.
    pub args: [u64; 4],
    /// Services granted: bits of `cloison_abi::services`.
    pub services: u32,
    /// The VMs that it can stop and start, a bit each; never itself.
    pub manages: u8,
    /// The VMs whose quotas it can set, a bit each; never itself.
    pub regulates: u8,
    /// Effect of a forbidden access.
    pub on_fault: OnFault,
    /// Physical SPIs that belong to this VM, with the same numbers.
    pub irqs: Vec<Intid>,
    /// Budgets of its cores.
    pub quotas: Vec<Quota>,
    /// Events counted in an observation segment: at most 6 minus the counters that the quotas of
    /// the same core use.
    pub hems: Vec<EventId>,
    /// Whether it has a PMU, with the counters that neither its quotas nor its segments use.
    pub pmu: GuestPmu,
    /// Whether its guest has the services page (`cloison_abi::page`).
    pub services_page: bool,
    /// Whether its RAM is cleared when it starts and restarts.
    pub scrub: bool,
    /// Index of the pool to which its pages can move.
    pub target: Option<u8>,
    /// Maximum number of pages that can be there at a time.
    pub away: u32,
    /// Its page profile, if it has one.
    pub profile: Option<Profile>,
    /// Its campaign, if it has one.
    pub campaign: Option<Campaign>,
    /// What ends its devices' accesses to memory, in this order.
    pub stops: Vec<Stop>,
    /// The streams of its devices: they find the VM's memory at the guest's addresses.
    pub streams: Streams,
    /// What it may ask of the board's firmware, if anything.
    pub firmware: Option<FirmwareAccess>,
}

/// What a VM may ask of the board's firmware (EEMI, UG1200): by number, of the devices that are
/// passed to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareAccess {
    /// Nodes, which have power.
    pub nodes: Vec<u32>,
    /// Clocks.
    pub clocks: Vec<u32>,
    /// Resets.
    pub resets: Vec<u32>,
}

/// Maximum length of each list of [`FirmwareAccess`].
pub const MAX_FIRMWARE_NUMBERS: usize = 64;

/// A write to a register that ends a passed-through device's own accesses to memory. A device that
/// continued after its VM's life would follow descriptors that the next life overwrites, to any
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Address of the register, of 32 bits.
    pub at: PhysAddr,
    /// Value to write.
    pub value: u32,
}

/// A VM's PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestPmu {
    /// It has none.
    None,
    /// The hypervisor handles each access.
    Emulated,
    /// The guest accesses the hardware.
    Direct,
}

/// Repeated runs of a VM for each of several sets of events (MUCH, section III: sub-experiments).
/// Each time the VM turns itself off, it is restarted, until all runs are done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// The sub-experiments: the events counted in a run's observation segment, instead of
    /// [`Vm::hems`].
    pub sub_experiments: Vec<Vec<EventId>>,
    /// Runs of each sub-experiment.
    pub runs: u32,
    /// Index of the guest's argument to which the number of runs so far is added, so that each run
    /// has another input or seed.
    pub vary: Option<u8>,
}

impl Campaign {
    /// Returns the sub-experiment and its run that follow after `done` runs in total: they take
    /// turns.
    pub fn next(&self, done: u32) -> Option<(u32, u32)> {
        let sets = self.sub_experiments.len() as u32;
        // No sub-experiment: no next run.
        (done.checked_div(sets)? < self.runs).then(|| (done % sets, done / sets))
    }
}

/// The hypervisor's reaction when a guest accesses memory that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFault {
    /// The guest takes a synchronous external abort, as on hardware where nothing responds.
    Abort,
    /// The VM is killed.
    Kill,
}

/// A range of a VM's IPA space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Name in the configuration; profiles refer to it.
    pub name: String,
    /// First IPA.
    pub ipa: Ipa,
    /// Length in pages.
    pub pages: u32,
    /// Its memory or device.
    pub backing: Backing,
    /// Whether the guest may execute what is there; never a device's registers.
    pub executable: bool,
}

/// The memory or device of a region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Backing {
    /// Pages of the pool with this index.
    Pool(u8),
    /// Physically contiguous, uncolored memory.
    Contiguous,
    /// A device's registers, passed through.
    Device(PhysAddr),
    /// RAM of every color at the region's own addresses: the IPA is the physical address, so that a
    /// device of the VM finds it where its driver says.
    Direct,
}

/// Bytes of the payload that are in a VM's memory when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// Offset in the payload; a multiple of the page size.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// IPA of the first byte; a multiple of the page size.
    pub load: Ipa,
}

/// A guest image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// Offset in the payload; a multiple of the page size.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// IPA of the first byte; a multiple of the page size.
    pub load: Ipa,
    /// IPA of the first instruction.
    pub entry: Ipa,
}

/// A budget of events per period on one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// The vCPU (not the physical core) that it applies to.
    pub vcpu: VcpuIndex,
    /// The event that is counted.
    pub counted: Counted,
    /// A second event: the budget is one of the weighted sum.
    pub also: Option<Counted>,
    /// Events allowed per period.
    pub budget: Events,
    /// The largest budget that a VM which regulates this one may set.
    pub ceiling: Events,
    /// The period.
    pub period: Period,
    /// Poll interval, if there is no overflow interrupt or `backstop` is set.
    pub poll: Nanos,
    /// Poll even with an overflow interrupt, in case that comes late.
    pub backstop: bool,
    /// Log every period, not only the totals.
    pub trace: bool,
    /// Whether each period is counted apart. Otherwise, the core does not check the counter at a
    /// period's end as long as half the budget lasts.
    pub exact: bool,
    /// Costs of the hypervisor's work for the guest in this budget.
    pub work_cost: WorkCost,
    /// The effect of a spent budget.
    pub when_spent: WhenSpent,
    /// The pool with which it shares its unused budget.
    pub reclaim: Option<Reclaim>,
}

impl Quota {
    /// Returns what it counts.
    pub fn counted(&self) -> impl Iterator<Item = Counted> {
        [Some(self.counted), self.also].into_iter().flatten()
    }
}

/// Costs of the hypervisor's work for a guest in a budget, in its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkCost {
    /// Of work on one page: moved, changed, loaded, cleaned.
    pub page: Events,
    /// Of one step: EL2 reads an entry of a list, or the descriptor of a page.
    pub step: Events,
}

/// An event that a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The event.
    pub event: EventId,
    /// Cost of one event in the budget.
    pub weight: u16,
    /// The configuration allows it without a verdict ([`System::trusted`]).
    pub allowed: bool,
}

/// The effect of a spent budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenSpent {
    /// The core waits until the period ends.
    Throttle,
    /// The period is logged, and the core runs on.
    Log,
    /// The vCPU gets the interrupt `cloison_abi::irq::BUDGET` until the period ends, and runs on.
    Interrupt,
    /// The VM is stopped.
    Stop,
}

/// A quota's share in a pool. Cores give to the pool the budget that they do not expect to use, and
/// take from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaim {
    /// The pool, below [`MAX_VMS`]; quotas of the same pool have the same period.
    pub pool: u8,
    /// The part of its budget that the core keeps in each period, independent of its use in the
    /// period before; not zero.
    pub guarantee: Events,
}

/// A VM's page profile: which pages matter, and when they move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The pages, the most important one first, each once.
    pub pages: Vec<Ipa>,
    /// Number of the most important pages that the hypervisor moves by itself.
    pub top: u32,
    /// Time from the VM's start to that move; `None`: only at the guest's request.
    pub after: Option<Nanos>,
}

impl System {
    /// Iterates over what stops the devices of all VMs, with the VM of each.
    pub fn stops(&self) -> impl Iterator<Item = (VmId, Stop)> + '_ {
        let numbered = (0..).map(VmId).zip(&self.vms);
        numbered.flat_map(|(id, vm)| vm.stops.iter().map(move |stop| (id, *stop)))
    }

    /// Iterates over the RAM that regions have at its own addresses.
    pub fn direct(&self) -> impl Iterator<Item = PhysRange> + '_ {
        let regions = self.vms.iter().flat_map(|vm| &vm.regions);
        regions
            .filter(|region| region.backing == Backing::Direct)
            .map(Region::identity)
    }

    /// Checks all rules on which the hypervisor relies and that nothing else checks: indices are in
    /// range, images are inside the payload.
    ///
    /// # Errors
    ///
    /// The first rule that the system breaks.
    pub fn validate(&self, payload_len: u32) -> Result<(), Invalid> {
        // The board first: everything else refers to its cores, colors and memory.
        let all = self.board.validate()?;
        let own = self.hypervisor_colors;
        Part::System.check(
            !own.is_empty() && own.without(all).is_empty(),
            Rule::OwnColors,
            own.len(),
        )?;
        Part::System.check(
            (1..=MAX_VMS).contains(&self.vms.len()),
            Rule::Vms,
            self.vms.len() as u64,
        )?;
        // VM 0 exists, so that no choice is fine too.
        let last = self.ends_with.unwrap_or_default();
        Part::System.check(last.index() < self.vms.len(), Rule::EndsWith, last.0)?;
        // Masks have a bit for each VM.
        let exist = |vms: u8| u32::from(vms) >> self.vms.len() == 0;
        Part::System.check(
            exist(self.console_manages),
            Rule::Manages,
            self.console_manages,
        )?;
        // A pool may also have a memory.
        let all = ColorSet::first(all.len() + self.board.memories.len() as u32);
        for (index, pool) in self.pools.iter().enumerate() {
            self.validate_pool(index, pool, all)?;
        }
        for (index, vm) in self.vms.iter().enumerate() {
            let id = VmId(index as u8);
            let part = Part::Vm(id);
            for (vms, rule) in [(vm.manages, Rule::Manages), (vm.regulates, Rule::Regulates)] {
                // No VM manages or regulates itself.
                part.check(exist(vms) && vms >> index & 1 == 0, rule, vms)?;
            }
            self.validate_vm(part, vm)?;
            for region in 0..vm.regions.len() {
                // Each against those before it, so that each pair is compared once.
                let part = Part::Region { vm: id, region };
                self.validate_region(part, &vm.map, &vm.regions[..=region])?;
            }
            vm.validate_loaded(part, payload_len)?;
            vm.validate_stops(part)?;
            self.validate_streams(part, vm)?;
            vm.validate_firmware(part)?;
        }
        for index in 0..self.channels.len() {
            self.validate_channel(index)?;
        }
        for index in 0..self.links.len() {
            self.validate_link(index)?;
        }
        Ok(())
    }

    /// Checks the streams of a VM. EL2 has one VM's faults to report, on that VM's own core. No page
    /// of it moves or changes: a device does not repeat an access that the tables refuse meanwhile.
    fn validate_streams(&self, part: Part, vm: &Vm) -> Result<(), Invalid> {
        if vm.streams.is_empty() {
            return Ok(());
        }
        let with = self.vms.iter().filter(|vm| !vm.streams.is_empty());
        let is_alone = self.board.smmu.is_some() && with.count() == 1;
        part.check(is_alone, Rule::Streams, vm.streams.0)?;
        let is_still = vm.target.is_none() && vm.services & services::PROFILE == 0;
        part.check(is_still, Rule::StreamsMove, vm.streams.0)
    }

    /// Checks a pool, also against those before it. That no pool has a color of the hypervisor's,
    /// and no VM one of a private pool that is another's, is what isolation by color rests on.
    fn validate_pool(&self, index: usize, pool: &Pool, all: ColorSet) -> Result<(), Invalid> {
        let part = Part::Pool(index);
        let colors = pool.colors;
        part.check(
            !colors.is_empty() && colors.without(all).is_empty(),
            Rule::Colors,
            colors.len(),
        )?;
        let clash = colors.and(self.hypervisor_colors);
        part.check(
            clash.is_empty(),
            Rule::HypervisorColor,
            clash.0.trailing_zeros(),
        )?;
        for (other_index, other) in self.pools[..index].iter().enumerate() {
            // Two SH pools may overlap; a PVT pool overlaps none.
            let shared = pool.kind == PoolKind::Sh && other.kind == PoolKind::Sh;
            part.check(
                shared || colors.and(other.colors).is_empty(),
                Rule::PrivateColor,
                other_index as u64,
            )?;
        }
        let uses = |vm: &&Vm| {
            vm.target.is_some_and(|target| usize::from(target) == index)
                || vm
                    .regions
                    .iter()
                    .any(|region| region.backing == Backing::Pool(index as u8))
        };
        let users = self.vms.iter().filter(uses).count();
        part.check(
            pool.kind == PoolKind::Sh || users <= 1,
            Rule::PrivatePool,
            users as u64,
        )
    }

    /// Checks the last of a VM's `regions`, also against those before it.
    fn validate_region(
        &self,
        part: Part,
        map: &GuestMap,
        regions: &[Region],
    ) -> Result<(), Invalid> {
        let Some((region, before)) = regions.split_last() else {
            return Ok(());
        };
        self.validate_place(part, map, region)?;
        for (index, other) in before.iter().enumerate() {
            part.check(!other.overlaps(region), Rule::Overlap, index as u64)?;
        }
        let len = u64::from(region.pages) * PAGE_SIZE;
        match region.backing {
            Backing::Pool(pool) => {
                part.check(usize::from(pool) < self.pools.len(), Rule::NoPool, pool)
            }
            Backing::Contiguous => Ok(()),
            Backing::Device(start) => {
                let device = PhysRange { start, len };
                // A guest that could map RAM as a device would reach other VMs' memory, and with
                // EL2's own devices the isolation itself.
                let is_taken = self.board.ranges().any(|bank| bank.overlaps(&device))
                    || self.board.own_devices().any(|own| own.overlaps(&device));
                let is_there = device.end().0 <= 1 << PA_BITS;
                let is_free = start.is_page_aligned() && is_there && !is_taken;
                part.check(is_free, Rule::Device, start.0)?;
                // Counts this region too, so that one is right.
                let owners = self
                    .vms
                    .iter()
                    .filter(|vm| vm.devices().any(|own| own.overlaps(&device)))
                    .count();
                part.check(owners == 1, Rule::DeviceTwice, start.0)
            }
            Backing::Direct => {
                let memory = region.identity();
                let board = &self.board;
                let is_ram = board.ram.iter().any(|bank| bank.covers(&memory));
                let is_reserved = board.reserved.iter().any(|range| range.overlaps(&memory));
                // This region is one of them.
                let owners = self
                    .direct()
                    .filter(|other| other.overlaps(&memory))
                    .count();
                let is_free = is_ram && !is_reserved && owners == 1;
                part.check(is_free, Rule::Direct, memory.start.0)
            }
        }
    }

    /// Checks where a VM sees memory or a device.
    pub(crate) fn validate_place(
        &self,
        part: Part,
        map: &GuestMap,
        region: &Region,
    ) -> Result<(), Invalid> {
        let start = region.ipa;
        let len = u64::from(region.pages) * PAGE_SIZE;
        part.check(start.is_page_aligned() && len > 0, Rule::Empty, start.0)?;
        part.check(
            start
                .0
                .checked_add(len)
                .is_some_and(|end| end <= 1 << IPA_BITS),
            Rule::IpaSpace,
            start.0,
        )?;
        for (_, page) in map.devices() {
            part.check(!region.contains(page), Rule::Emulated, page.0)?;
        }
        Ok(())
    }

    /// Checks what a VM is granted, apart from its memory.
    fn validate_vm(&self, part: Part, vm: &Vm) -> Result<(), Invalid> {
        part.check(!vm.cores.is_empty(), Rule::VmCores, 0u64)?;
        for &core in &vm.cores {
            let uses = self
                .vms
                .iter()
                .flat_map(|vm| &vm.cores)
                .filter(|&&other| other == core)
                .count();
            part.check(
                // A core has one vCPU: there is no scheduler.
                core.index() < self.board.cores.len() && uses == 1,
                Rule::Core,
                core.0,
            )?;
        }
        for &irq in &vm.irqs {
            let shared = 32..self.board.gic.interrupts;
            let is_free = shared.contains(&irq.0) && self.board.own_irqs(irq) == 0;
            part.check(is_free, Rule::Interrupt, irq.0)?;
            let grants = self
                .vms
                .iter()
                .flat_map(|vm| &vm.irqs)
                .filter(|&&other| other == irq)
                .count();
            part.check(grants == 1, Rule::InterruptTwice, irq.0)?;
        }
        vm.validate_map(part)?;
        for quota in &vm.quotas {
            self.validate_quota(part, quota, vm.cores.len())?;
        }
        let is_alone = vm.quotas.is_empty() && vm.segment_counters() == 0 || self.board.pmu_splits;
        part.check(
            vm.pmu != GuestPmu::Direct || is_alone,
            Rule::DirectPmu,
            vm.quotas.len() as u64,
        )?;
        let both = vm.pmu != GuestPmu::None && vm.services & services::COUNTERS != 0;
        part.check(!both, Rule::PmuAndCounters, vm.services)?;
        let target = vm.target.map_or(0, usize::from);
        part.check(
            vm.target.is_none() || target < self.pools.len(),
            Rule::NoPool,
            target as u64,
        )?;
        let Some(profile) = &vm.profile else {
            return Ok(());
        };
        part.check(
            vm.target.is_some(),
            Rule::ProfilePool,
            profile.pages.len() as u64,
        )?;
        for &page in &profile.pages {
            let exists = vm.regions.iter().any(|region| region.contains(page));
            part.check(page.is_page_aligned() && exists, Rule::ProfilePage, page.0)?;
        }
        Ok(())
    }

    /// Checks a quota. Its events must be trusted on the machine for which the image was made,
    /// unless the configuration allows one without a verdict.
    fn validate_quota(&self, part: Part, quota: &Quota, vcpus: usize) -> Result<(), Invalid> {
        let is_used = quota.vcpu.index() < vcpus && quota.period.0 > 0 && quota.budget.0 > 0;
        let is_bounded = quota.budget <= quota.ceiling
            && quota.ceiling.0 <= u32::MAX.into()
            && quota.counted().all(|counted| counted.weight > 0);
        part.check(is_used && is_bounded, Rule::Quota, quota.vcpu.0)?;
        for Counted { event, allowed, .. } in quota.counted() {
            part.check(
                allowed || self.trusted.contains(&event),
                Rule::Untrusted,
                event.0,
            )?;
        }
        let Some(Reclaim { pool, guarantee }) = quota.reclaim else {
            return Ok(());
        };
        let mates = self
            .vms
            .iter()
            .flat_map(|vm| &vm.quotas)
            .filter(|mate| mate.reclaim.is_some_and(|own| own.pool == pool));
        // Cores of one pool must begin their periods together.
        let alike = mates
            .map(|mate| mate.period)
            .all(|period| period == quota.period);
        let is_kept = guarantee.0 > 0 && guarantee <= quota.budget;
        let is_whole = usize::from(pool) < MAX_VMS && is_kept && quota.exact && alike;
        part.check(is_whole, Rule::Reclaim, pool)
    }

    /// Returns the number of event counters that the core with the most needs: for quotas and
    /// segments, and one for a guest that accesses its PMU itself. MDCR_EL2.HPMN, which separates
    /// such a guest's counters, cannot be 0.
    pub fn counters(&self) -> usize {
        let each = self.board.counters_per_event();
        let of = |(vm, vcpu): (&Vm, usize)| {
            let own = vm.quotas.iter().filter(|quota| quota.vcpu.index() == vcpu);
            let counted: usize = own.map(|quota| quota.counted().count()).sum();
            counted * each + vm.segment_counters() + usize::from(vm.pmu == GuestPmu::Direct)
        };
        let vcpus = self
            .vms
            .iter()
            .flat_map(|vm| (0..vm.cores.len()).map(move |vcpu| (vm, vcpu)));
        vcpus.map(of).max().unwrap_or(0)
    }
}

impl Vm {
    /// Returns whether its guest has counters, from a PMU or from calls.
    pub fn has_counters(&self) -> bool {
        self.pmu != GuestPmu::None || self.services & services::COUNTERS != 0
    }

    /// Returns the interrupt of its PMU, given the interrupt that the board has for guests' PMUs. A
    /// direct PMU has none if the VM has quotas, which use the same interrupt.
    pub fn pmu_irq(&self, of_board: Option<Intid>) -> Option<Intid> {
        let has = self.pmu == GuestPmu::Emulated
            || self.pmu == GuestPmu::Direct && self.quotas.is_empty();
        of_board.filter(|_| has)
    }

    /// Returns the number of event counters that its observation segments need on each core. One of
    /// them counts cycles where the guest has the cycle counter.
    pub fn segment_counters(&self) -> usize {
        let sets = self
            .campaign
            .iter()
            .flat_map(|campaign| &campaign.sub_experiments)
            .chain([&self.hems]);
        let cycles = self.has_counters() && self.services & services::HEM != 0;
        sets.map(Vec::len).max().unwrap_or(0) + usize::from(cycles)
    }

    /// Iterates over the devices that are passed through to the VM.
    pub fn devices(&self) -> impl Iterator<Item = PhysRange> + '_ {
        self.regions
            .iter()
            .filter_map(|region| match region.backing {
                Backing::Device(start) => Some(PhysRange {
                    start,
                    len: u64::from(region.pages) * PAGE_SIZE,
                }),
                _ => None,
            })
    }

    /// Checks the writes that stop devices: EL2 has a page for each.
    fn validate_stops(&self, part: Part) -> Result<(), Invalid> {
        for stop in &self.stops {
            let is_own = self.devices().any(|own| own.contains(stop.at));
            let is_word = stop.at.0.is_multiple_of(4);
            let is_known = self.stops.len() <= MAX_STOPS && is_own && is_word;
            part.check(is_known, Rule::Stop, stop.at.0)?;
        }
        Ok(())
    }

    /// Checks what it may ask of the firmware: EL2 looks through a list at each call.
    fn validate_firmware(&self, part: Part) -> Result<(), Invalid> {
        let access = self.firmware.iter();
        let lists = access.flat_map(|access| [&access.nodes, &access.clocks, &access.resets]);
        for list in lists {
            part.check(
                list.len() <= MAX_FIRMWARE_NUMBERS,
                Rule::Firmware,
                list.len() as u64,
            )?;
        }
        Ok(())
    }

    /// Iterates over everything that is loaded before the VM starts.
    pub fn loaded(&self) -> impl Iterator<Item = Module> + '_ {
        let Image {
            offset, len, load, ..
        } = self.image;
        core::iter::once(Module { offset, len, load }).chain(self.modules.iter().copied())
    }

    /// Checks its map: EL2 finds a device by its page, and maps the CPU interface.
    fn validate_map(&self, part: Part) -> Result<(), Invalid> {
        for (device, page) in self.map.devices() {
            let is_there = page.is_page_aligned() && page.0 < 1 << IPA_BITS;
            let is_found = self.map.device(page) == Some(device);
            part.check(is_there && is_found, Rule::Map, page.0)?;
        }
        let irq = self.map.uart.irq;
        let is_free = (32..MAX_IRQ).contains(&irq.0) && !self.irqs.contains(&irq);
        part.check(is_free, Rule::UartInterrupt, irq.0)
    }

    /// Checks what is loaded: inside the payload, page by page, and in one region of RAM. EL2
    /// copies whole pages, so that both offsets are multiples of the page size.
    fn validate_loaded(&self, part: Part, payload_len: u32) -> Result<(), Invalid> {
        for Module { offset, len, load } in self.loaded() {
            let is_inside = offset
                .checked_add(len)
                .is_some_and(|end| end <= payload_len);
            part.check(
                u64::from(offset).is_multiple_of(PAGE_SIZE) && is_inside,
                Rule::Payload,
                offset,
            )?;
            let end = load.page_number() + u64::from(len).div_ceil(PAGE_SIZE);
            let fits = |region: &Region| {
                !matches!(region.backing, Backing::Device(_))
                    && load >= region.ipa
                    && end <= region.end()
            };
            let fits = len == 0 || self.regions.iter().any(fits);
            part.check(load.is_page_aligned() && fits, Rule::LoadAddress, load.0)?;
        }
        Ok(())
    }
}

impl Board {
    /// Checks the board and returns all colors of its cache.
    fn validate(&self) -> Result<ColorSet, Invalid> {
        let part = Part::System;
        let cores = self.cores.len();
        part.check(
            (1..=self.gic.version().most_cores()).contains(&cores),
            Rule::BoardCores,
            cores as u64,
        )?;
        part.check(
            self.gic.interrupts <= MAX_IRQ,
            Rule::Interrupts,
            self.gic.interrupts,
        )?;
        if let Some(words) = &self.spin_table {
            // EL2 stores to these words when it starts a core: no VM may have their page.
            let is_reserved =
                |word: &PhysAddr| self.reserved.iter().any(|range| range.contains(*word));
            let are_usable = words
                .iter()
                .all(|word| word.0.is_multiple_of(8) && is_reserved(word));
            part.check(
                words.len() == cores && are_usable,
                Rule::SpinTable,
                words.len() as u64,
            )?;
        }
        for &(at, _) in self.power_off.iter().flat_map(|off| &off.writes) {
            // The page is mapped as a device at EL2; a write beyond it would hit another one.
            part.check(at.is_multiple_of(4) && at < 0x1000, Rule::PowerOff, at)?;
        }
        part.check(
            self.pmu_irqs.is_empty() || self.pmu_irqs.len() == cores,
            Rule::PmuInterrupts,
            cores as u64,
        )?;
        for &irq in &self.pmu_irqs {
            let users = match irq.0 {
                // A private interrupt has the same number on all cores; 25 to 27 are the GIC's
                // maintenance and the timers that EL2 uses.
                16..25 | 28..32 => cores,
                // A shared one is that of a single core.
                shared if (32..self.gic.interrupts).contains(&shared) => 1,
                _ => 0,
            };
            part.check(self.own_irqs(irq) == users, Rule::PmuInterrupt, irq.0)?;
        }
        let invalid = |_| Invalid {
            part,
            rule: Rule::Cache,
            number: self.llc.size,
        };
        self.llc.colors().map(ColorSet::first).map_err(invalid)
    }

    /// Iterates over the RAM and the other memories.
    pub fn ranges(&self) -> impl Iterator<Item = &PhysRange> {
        let others = self.memories.iter().map(|memory| &memory.range);
        self.ram.iter().chain(others)
    }

    /// Returns whether the telemetry goes between the lines of the console.
    pub fn is_mixed(&self) -> bool {
        self.telemetry
            .is_some_and(|uart| uart.base == self.console.base)
    }

    /// Returns how many of the hypervisor's own devices have this interrupt.
    fn own_irqs(&self, irq: Intid) -> usize {
        let uarts = self.telemetry.iter().chain([&self.console]);
        uarts
            .map(|uart| &uart.irq)
            .chain(&self.pmu_irqs)
            .chain(self.smmu.iter().map(|smmu| &smmu.irq))
            .filter(|&&own| own == irq)
            .count()
    }

    /// Returns the number of event counters that each event of a quota takes.
    pub fn counters_per_event(&self) -> usize {
        // Without an interrupt, quotas are polled, and the second counter is not needed.
        if self.pmu_shadow && !self.pmu_irqs.is_empty() {
            2
        } else {
            1
        }
    }

    /// Returns the interrupt of a guest's PMU: that of the board, if it is private to each core.
    pub fn guest_pmu_irq(&self) -> Option<Intid> {
        self.pmu_irqs.first().copied().filter(|irq| irq.0 < 32)
    }

    /// Iterates over the devices that the hypervisor keeps for itself. Where the GIC's pages are 64
    /// KiB apart, each range covers the whole 64 KiB. GICH has two ranges; the second contains one
    /// part for each core.
    pub fn own_devices(&self) -> impl Iterator<Item = PhysRange> {
        let gic = &self.gic;
        // Some boards repeat each 4 KiB page over 64 KiB: a guest with one of the copies would have
        // the registers.
        let apart = gic.gicc_dir.0.wrapping_sub(gic.gicc.0);
        let granule = if apart == 0x1_0000 || gic.gicr.is_some() {
            0x1_0000
        } else {
            PAGE_SIZE
        };
        let frames = gic.gicr.map_or(0, |_| 2 * self.cores.len() as u64);
        let redistributors = (0..frames).filter_map(move |frame| {
            let base = gic.gicr?;
            Some(PhysRange {
                start: PhysAddr(base.0.wrapping_add(frame << 16)),
                len: 1 << 16,
            })
        });
        let gic = [
            gic.gicd,
            gic.gicc,
            gic.gicc_dir,
            gic.gich,
            PhysAddr(gic.gich.0.wrapping_add(granule)),
            gic.gicv,
            gic.gicv_dir,
        ];
        let uarts = self.telemetry.iter().chain([&self.console]);
        let others = uarts
            .map(|uart| uart.base)
            .chain(self.power_off.iter().map(|off| off.page));
        let range = |start: PhysAddr, len: u64| PhysRange {
            // Whole pages, because stage 2 maps pages.
            start: PhysAddr(start.0 & !(len - 1)),
            len,
        };
        let smmu = self.smmu.iter().map(|smmu| PhysRange {
            start: smmu.base,
            len: 0x2_0000,
        });
        gic.into_iter()
            .map(move |page| range(page, granule))
            .chain(redistributors)
            .chain(others.map(move |page| range(page, PAGE_SIZE)))
            .chain(smmu)
    }
}

/// Bits of a physical address that stage 2 gives (VTCR_EL2.PS). A descriptor ignores those above 48,
/// so a device beyond could be anything.
pub const PA_BITS: u32 = 40;

/// Bits of a guest's physical address space: 39, so that stage 2 starts at level 1 with one table.
pub const IPA_BITS: u32 = 39;

impl Region {
    /// Returns the number of the page after the last one.
    fn end(&self) -> u64 {
        self.ipa.page_number() + u64::from(self.pages)
    }

    /// Returns whether the two regions share a page.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.ipa.page_number() < other.end() && other.ipa.page_number() < self.end()
    }

    /// Returns whether `ipa` is in the region.
    pub fn contains(&self, ipa: Ipa) -> bool {
        ipa >= self.ipa && ipa.page_number() < self.end()
    }

    /// Returns the physical memory that has the region's addresses.
    pub fn identity(&self) -> PhysRange {
        PhysRange {
            start: PhysAddr(self.ipa.0),
            len: u64::from(self.pages) * PAGE_SIZE,
        }
    }
}

mod channels;
mod links;
#[cfg(test)]
mod tests;
