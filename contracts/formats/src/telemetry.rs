//! The telemetry stream: what the hypervisor sends on the second UART.
//! `cloison_engine::telemetry::wire` decodes it.
//!
//! Each message is a postcard payload followed by its CRC-32 (ISO-HDLC, little-endian),
//! COBS-encoded and terminated by a zero byte. A reader that joins late or loses bytes finds the
//! next message after the next zero byte.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::{Ipa, PhysAddr};
use crate::color::ColorSet;
use crate::ids::{Core, VcpuIndex, VmId};
use crate::image::PoolKind;
use crate::link::Traffic;
use crate::units::{Cycles, EventId, Events, Nanos};
use alloc::string::String;
use alloc::vec::Vec;
use crc::{CRC_32_ISO_HDLC, Crc, Table};
use postcard::ser_flavors::{Cobs, Slice, crc::CrcModifier};
use serde::{Deserialize, Serialize};

/// Version of the messages below, which the first message of a stream contains.
pub const VERSION: u16 = 10;
/// Maximum number of events in a HEM record.
pub const MAX_HEMS: usize = 6;
/// Maximum length of an encoded message, including its terminating zero byte.
pub const MAX_MESSAGE: usize = 4096;
/// Starts an encoded message where it is sent between text, which never contains this byte (STX).
pub const STARTS: u8 = 2;
/// Maximum number of pages in a [`Stage2Run`], so that it fits in [`MAX_MESSAGE`].
pub const MAX_RUN: usize = 128;

static CRC32: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The first message: the system that sends the stream.
    Boot(BootInfo),
    /// A pool, after all regions were allocated.
    Pool(PoolInfo),
    /// A VM; its id is its position among the messages of this kind.
    Vm(VmInfo),
    /// Consecutive pages read back from a VM's stage-2 tables (audit).
    Stage2(Stage2Run),
    /// The end of one pass of the audit: over the tables as built, after the profiled pages have
    /// moved, after they have come back.
    AuditEnd {
        /// Number of pages in all `Stage2` messages of the pass.
        pages: u64,
    },
    /// Something that happened while guests ran.
    Entry(Entry),
    /// Consecutive pages of the hypervisor's own address space, read back from its tables (audit).
    Stage1(Stage1Run),
    /// An entry of the SMMU's stream table that does not cut its stream, read back (audit).
    Stream(StreamEntry),
    /// Consecutive pages that devices of a VM reach, read back from the tables of its streams
    /// (audit).
    Device(Stage2Run),
}

/// An entry of the SMMU's stream table (Arm IHI 0070, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Number of the stream.
    pub stream: u32,
    /// The first half of the entry; the other half is 0.
    pub words: [u64; 4],
}

/// The system that sends the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootInfo {
    /// Version of the format: [`VERSION`].
    pub version: u16,
    /// The configuration's name.
    pub system: String,
    /// The board's name.
    pub board: String,
    /// Page colors, from CCSIDR_EL1.
    pub colors: u32,
    /// The hypervisor's own colors.
    pub hypervisor_colors: ColorSet,
    /// Number of frames that hold the hypervisor's text, data, stacks, heap and page tables. They
    /// use its colors in turn, lowest first.
    pub hypervisor_pages: u32,
    /// Page numbers of these frames; empty except in an audit.
    pub hypervisor_frames: Vec<u32>,
    /// CNTFRQ_EL0 in hertz.
    pub timer_hz: u64,
}

/// A pool's state at boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Name of the pool.
    pub name: String,
    /// PVT or SH.
    pub kind: PoolKind,
    /// Colors of the pool.
    pub colors: ColorSet,
    /// Number of pages taken of each color, in the order of `colors`.
    pub used: Vec<u32>,
    /// Number of pages that exist of each color, in the same order.
    pub total: Vec<u32>,
}

/// A VM at boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmInfo {
    /// Name of the VM.
    pub name: String,
    /// Physical core of each vCPU.
    pub cores: Vec<Core>,
    /// Number of mapped pages.
    pub pages: u32,
    /// Events that its quotas count although no verdict trusts them (`allow_untrusted`).
    pub untrusted: Vec<EventId>,
}

/// Consecutive IPA pages with the same attributes, and the frames that back them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage2Run {
    /// Id of the VM.
    pub vm: VmId,
    /// IPA of the first page.
    pub ipa: Ipa,
    /// The bits of the pages' descriptors apart from the address: memory type, shareability,
    /// rights.
    pub attributes: u64,
    /// Physical page numbers, at most [`MAX_RUN`].
    pub frames: Vec<u32>,
}

/// Consecutive pages of EL2's address space with the same purpose and the same rights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage1Run {
    /// Virtual address of the first page.
    pub va: u64,
    /// Purpose of the pages.
    pub part: Part,
    /// The bits of the pages' descriptors apart from the address.
    pub attributes: u64,
    /// Physical page numbers, at most [`MAX_RUN`].
    pub frames: Vec<u32>,
}

/// Purpose of a part of EL2's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Text, data and heap.
    Image,
    /// Translation tables.
    Tables,
    /// Device registers.
    Devices,
    /// Windows onto guest pages; empty while no core uses one.
    Windows,
    /// The guest images as they were loaded.
    Payload,
    /// Stacks, each with an unmapped page below.
    Stacks,
    /// The page that runs while the MMU changes tables, at its physical address.
    Trampoline,
}

/// An entry of the log: a record with its core and time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Physical core that wrote it.
    pub core: Core,
    /// Time since reset, in nanoseconds of the system counter.
    pub at: Nanos,
    /// The record.
    pub record: Record,
}

/// Something that happened while guests ran. No variant owns heap memory: records are written on
/// run-time paths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// One run of one observation segment.
    Hem(HemRecord),
    /// One page was moved (or a plan failed: see `outcome`).
    Migration(MigrationRecord),
    /// A quota period ended: with `trace`, and if the budget was spent and that is only logged.
    QuotaPeriod(QuotaPeriod),
    /// A quota's totals, when its vCPU stopped.
    QuotaTotal(QuotaTotal),
    /// A VM changed its state.
    VmState {
        /// VM id.
        vm: VmId,
        /// The new state.
        state: VmState,
    },
    /// The core's ring was full: this many records were lost since its last record that was sent.
    Dropped {
        /// Lost records.
        count: u32,
    },
    /// Why and how often a VM's cores entered the hypervisor, when the VM stopped.
    Exits {
        /// VM id.
        vm: VmId,
        /// Number of entries by [`ExitReason`].
        counts: [u64; ExitReason::ALL.len()],
    },
    /// The console accepts no more bytes, and has lost this many since reset.
    ConsoleLost(u32),
    /// The deepest use of one of the hypervisor's stacks, when the machine turns itself off.
    StackUse(StackUse),
    /// A vCPU makes no progress: its exception vectors cannot be fetched, or it takes one fault
    /// again and again.
    Stuck {
        /// VM id.
        vm: VmId,
        /// Where it took the exception (ELR_EL1).
        pc: u64,
        /// Why (ESR_EL1).
        esr: u64,
        /// The address that it accessed (FAR_EL1), if ESR_EL1 tells of an abort.
        far: u64,
    },
    /// What has passed on a link: at most one each 100 ms for each direction, when something is
    /// sent, and one when the VM that sends ends or restarts.
    Link {
        /// Number of the link in the configuration.
        link: u8,
        /// Id of the VM that sends.
        vm: VmId,
        /// Totals since boot.
        traffic: Traffic,
    },
    /// How a VM has called its peers, when it ends or restarts.
    Doorbells {
        /// VM id.
        vm: VmId,
        /// Calls since boot that interrupted a peer.
        passed: u64,
        /// Calls since boot that its rate refused.
        refused: u64,
    },
}

/// The deepest use of one of the hypervisor's stacks since reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackUse {
    /// The core whose stack it is; `None` for the one on which the first core boots.
    pub core: Option<Core>,
    /// Bytes that were used.
    pub used: u32,
    /// Bytes that there are.
    pub size: u32,
}

/// Why a core entered the hypervisor from a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// HVC or SMC.
    Hypercall,
    /// An access to the emulated distributor.
    Distributor,
    /// An access to the emulated UART or to the services page.
    Device,
    /// A system register that is emulated or rejected.
    SystemRegister,
    /// A page that was being moved, or that the VM does not have.
    Memory,
    /// WFI after an unfinished line on the console.
    Wait,
    /// Anything else that the guest executed.
    Other,
    /// The virtual timer's interrupt.
    Timer,
    /// Another interrupt.
    Interrupt,
}

impl ExitReason {
    /// All reasons, in declaration order.
    pub const ALL: [Self; 9] = {
        use ExitReason::*;
        [
            Hypercall,
            Distributor,
            Device,
            SystemRegister,
            Memory,
            Wait,
            Other,
            Timer,
            Interrupt,
        ]
    };
}

/// Counts of one observation segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HemRecord {
    /// VM id.
    pub vm: VmId,
    /// vCPU in the VM.
    pub vcpu: VcpuIndex,
    /// The guest's number for the workload.
    pub workload: u32,
    /// Sub-experiment number.
    pub sub_experiment: u32,
    /// Run number.
    pub run: u32,
    /// Cycles of the segment, at EL1 and EL0 only: of PMCCNTR_EL0, or of a 32-bit event counter
    /// where the guest has the cycle counter.
    pub cycles: Cycles,
    /// Number of entries of `events` and `counts` that are used.
    pub len: u8,
    /// Events that were counted.
    pub events: [EventId; MAX_HEMS],
    /// The counts (32-bit counters).
    pub counts: [u32; MAX_HEMS],
    /// Bit `i`: the counter of event `i` overflowed during the segment;
    /// [`HemRecord::CYCLES_OVERFLOWED`].
    pub overflowed: u8,
    /// The guest has counted this itself, with counters that it can set to any value.
    pub by_guest: bool,
}

impl HemRecord {
    /// The bit of `overflowed` that says that `cycles` lacks a multiple of 2^32.
    pub const CYCLES_OVERFLOWED: u8 = 1 << 7;
}

/// The move of one page.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationRecord {
    /// VM id.
    pub vm: VmId,
    /// Address of the page.
    pub ipa: Ipa,
    /// Its frame before the move.
    pub from: PhysAddr,
    /// Its frame after the move.
    pub to: PhysAddr,
    /// Time from the first change of the page table to the last barrier, in nanoseconds.
    pub took: Nanos,
    /// Its result.
    pub outcome: MigrationOutcome,
}

/// The result of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationOutcome {
    /// Moved to the PVT pool.
    Moved,
    /// Moved back to its region's pool.
    Restored,
    /// The PVT pool could not hold the whole plan: `from` equals `to`, and no page of the plan has
    /// moved.
    PoolFull,
    /// Moved, then moved back because a later page of the same plan found the pool full.
    RolledBack,
}

/// One period of one quota.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaPeriod {
    /// Index of the quota in its VM.
    pub quota: u8,
    /// VM id.
    pub vm: VmId,
    /// The period; times by the system counter.
    pub period: LoggedPeriod,
}

/// A period in the log.
pub type LoggedPeriod = Period<Nanos, Nanos>;

/// A period of a quota that ended, with instants of type `I` and durations of type `D`: ticks while
/// it is decided, nanoseconds in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period<I, D> {
    /// Number of the period since the vCPU first started.
    pub index: u32,
    /// Events counted in the period.
    pub events: Events,
    /// Budget that applied in the period, with what was reclaimed.
    pub budget: Events,
    /// Events taken from the pool of unused budgets.
    pub reclaimed: Events,
    /// Time when the budget was spent; `None` if it lasted.
    pub spent_at: Option<I>,
    /// Time when the period was due to end.
    pub due: I,
    /// How long the core was held in the hypervisor.
    pub throttled: D,
}

impl<I, D> Period<I, D> {
    /// Returns it with other types of instants and durations.
    pub fn map<J, E>(self, at: impl Fn(I) -> J, lasting: impl FnOnce(D) -> E) -> Period<J, E> {
        Period {
            index: self.index,
            events: self.events,
            budget: self.budget,
            reclaimed: self.reclaimed,
            spent_at: self.spent_at.map(&at),
            due: at(self.due),
            throttled: lasting(self.throttled),
        }
    }
}

/// A quota's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuotaTotal {
    /// VM id.
    pub vm: VmId,
    /// Index of the quota in its VM.
    pub quota: u8,
    /// Whether the budget is enforced by overflow interrupt (otherwise by polling).
    pub by_interrupt: bool,
    /// How long its core was held.
    pub throttled: Nanos,
    /// The totals.
    pub totals: Totals,
}

/// The totals of a quota since its vCPU started, without the running period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of periods that ended.
    pub periods: u64,
    /// Number of periods in which the budget was spent.
    pub spent_periods: u64,
    /// Total number of events.
    pub events: Events,
    /// Maximum overshoot in one period.
    pub max_overshoot: Events,
    /// Total overshoot.
    pub overshoot: Events,
    /// Total taken from the pool of unused budgets.
    pub reclaimed: Events,
    /// Total given to it.
    pub given: Events,
    /// Numbers of periods by use and overshoot.
    pub histogram: Histogram,
}

/// Numbers of periods by what was used in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// By the share of the budget that was used, in eighths; the last one: all of it.
    pub used: [u64; 9],
    /// By overshoot: none, 1, 2 to 3, 4 to 7, 8 to 15 events, more.
    pub overshoot: [u64; 6],
    /// Periods without a check at their end, because less than half a budget was used since the
    /// last check.
    pub quiet: u64,
}

impl Histogram {
    /// Counts a period.
    pub fn add(&mut self, used: Events, budget: Events) {
        let share = (used.0.saturating_mul(8) / budget.0.max(1)).min(8);
        self.used[share as usize] += 1;
        let over = used.0.saturating_sub(budget.0);
        self.overshoot[(64 - over.leading_zeros()).min(5) as usize] += 1;
    }
}

/// A VM's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmState {
    /// Its first instruction is about to run.
    Started,
    /// It restarts after PSCI SYSTEM_RESET.
    Restarted,
    /// It turned itself off by PSCI SYSTEM_OFF, or its last vCPU did.
    Off,
    /// The hypervisor killed it.
    Killed,
    /// It was stopped from outside, or because the VM named by `ends_with` is off.
    Stopped,
}

/// Encodes a message into `buffer`. Returns the bytes to send, including the terminating zero byte;
/// `None` if it does not fit.
///
/// ```
/// use cloison_formats::telemetry::{Message, encode};
///
/// let mut buffer = [0; 64];
/// let sent = encode(&Message::AuditEnd { pages: 3 }, &mut buffer).expect("it fits");
/// assert_eq!(sent, [0x07, 0x04, 0x03, 0x41, 0x86, 0xbc, 0xbc, 0x00]);
/// ```
pub fn encode<'a>(frame: &Message, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let flavor = CrcModifier::new(Cobs::try_new(Slice::new(buffer)).ok()?, CRC32.digest());
    postcard::serialize_with_flavor(frame, flavor)
        .ok()
        .map(|sent: &mut [u8]| &*sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_does_not_fit_is_refused() {
        assert_eq!(encode(&Message::AuditEnd { pages: 512 }, &mut [0; 6]), None);
        let sent = [0x07, 0x04, 0x03, 0x41, 0x86, 0xbc, 0xbc, 0x00];
        assert_eq!(
            encode(&Message::AuditEnd { pages: 3 }, &mut [0; 8]),
            Some(&sent[..])
        );
    }

    #[test]
    fn a_period_is_in_the_class_of_its_use_and_of_its_overshoot() {
        let classes = |used, budget| {
            let mut histogram = Histogram::default();
            histogram.add(Events(used), Events(budget));
            let class = |counts: &[u64]| {
                assert_eq!(counts.iter().sum::<u64>(), 1);
                counts.iter().position(|count| *count == 1)
            };
            let both = (class(&histogram.used), class(&histogram.overshoot));
            (both.0.expect("one"), both.1.expect("one"))
        };
        for (used, expected) in [
            (0, (0, 0)),
            (99, (0, 0)),
            (100, (1, 0)),
            (799, (7, 0)),
            (800, (8, 0)),
            (801, (8, 1)),
            (802, (8, 2)),
            (803, (8, 2)),
            (804, (8, 3)),
            (808, (8, 4)),
            (815, (8, 4)),
            (816, (8, 5)),
            (u64::MAX, (8, 5)),
        ] {
            assert_eq!(classes(used, 800), expected, "{used}");
        }
        assert_eq!(classes(0, 0), (0, 0));
        let mut histogram = Histogram::default();
        (0..3).for_each(|_| histogram.add(Events(1), Events(8)));
        assert_eq!((histogram.used[1], histogram.overshoot[0]), (3, 3));
    }

    #[test]
    fn a_period_is_mapped_field_by_field() {
        let period = Period {
            index: 1,
            events: Events(2),
            budget: Events(3),
            reclaimed: Events(4),
            spent_at: Some(5),
            due: 6,
            throttled: 7,
        };
        let mapped = period.map(|at| at * 10, |lasting| lasting * 100);
        assert_eq!(
            mapped,
            Period {
                spent_at: Some(50),
                due: 60,
                throttled: 700,
                ..period
            }
        );
    }
}
