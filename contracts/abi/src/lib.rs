//! The contract between a guest and Cloison: hypercalls, error codes, the guest's physical map and
//! its devices.
//!
//! Hypercalls follow the SMC Calling Convention (Arm DEN 0028): the function identifier in `w0`,
//! arguments in `x1`–`x6`, results in `x0`–`x3`; `x4`–`x17` are preserved. Cloison uses the
//! *vendor-specific hypervisor service* range (owner 6), 64-bit fast calls.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

pub mod cadence;
pub mod eemi;
pub mod event;
pub mod gicv2;
pub mod map_note;
pub mod model_hint;
pub mod pl011;
pub mod reply;
pub mod virtio;

use num_enum::TryFromPrimitive;
use strum::{Display, IntoStaticStr};

/// Version of this interface. It rises when a call changes its meaning, but not when a call is
/// added.
pub const ABI_VERSION: u64 = 1;

/// The guest's physical (IPA) map `cloison`, which a VM has unless its configuration names another.
/// It is the same on every board, so one guest binary runs on all of them.
pub mod map {
    /// Emulated GICv2 distributor (4 KiB).
    pub const GICD: u64 = 0x0800_0000;
    /// GICv2 CPU interface, first page (the hardware's virtual CPU interface).
    pub const GICC: u64 = 0x0801_0000;
    /// GICv2 CPU interface, second page: GICC_DIR, emulated.
    pub const DEACTIVATE: u64 = GICC + 0x1000;
    /// On boards with a GICv3, the emulated redistributors instead (128 KiB for each vCPU).
    pub const REDISTRIBUTORS: u64 = 0x080a_0000;
    /// Emulated PL011 UART (4 KiB).
    pub const UART: u64 = 0x0900_0000;
    /// The services page (4 KiB; see [`page`](crate::page)), in VMs that have it.
    pub const SERVICES: u64 = 0x0900_1000;
    /// Where RAM starts by convention; a VM's configuration may place more regions elsewhere.
    pub const RAM: u64 = 0x4000_0000;
}

/// Interrupt numbers that a guest sees.
pub mod irq {
    /// The EL1 virtual timer (PPI 27).
    pub const VTIMER: u32 = 27;
    /// High while the budget of a quota with `when_spent = "interrupt"` is spent (PPI 24).
    pub const BUDGET: u32 = 24;
    /// The emulated UART's interrupt (SPI 1) in the map `cloison`.
    pub const UART: u32 = 33;
    /// The doorbell's interrupt (SPI 218), in VMs that have a channel.
    pub const DOORBELL: u32 = 250;
}

/// The services page: Cloison's calls for programs that cannot execute HVC, such as a process at
/// EL0 that maps the page from `/dev/mem`. Calls and results are the same; the core that writes to
/// [`CALL`](page::CALL) makes the call.
///
/// All registers are 64 bits wide and must be accessed as a whole; other accesses read as 0 and are
/// ignored on write. To make a call, write its arguments to [`ARGUMENTS`](page::ARGUMENTS) and its
/// function identifier to `CALL`, then read the status (`x0`) from `CALL` and the results (`x1` to
/// `x3`) from `ARGUMENTS`. A VM has a single set of these registers, so its programs must take
/// turns.
pub mod page {
    /// Read only: [`MAGIC_VALUE`].
    pub const MAGIC: u16 = 0x00;
    /// Read only: [`ABI_VERSION`](crate::ABI_VERSION).
    pub const VERSION: u16 = 0x08;
    /// Read only: the granted services, as bits of [`services`](crate::services).
    pub const SERVICES: u16 = 0x10;
    /// Read only: the VM's number.
    pub const VM: u16 = 0x18;
    /// Read only: the number of the vCPU that reads.
    pub const VCPU: u16 = 0x20;
    /// Read only: the bits of the VM's doorbell that wait, as [`Call::DoorbellTake`] numbers them.
    ///
    /// [`Call::DoorbellTake`]: crate::Call::DoorbellTake
    pub const DOORBELL: u16 = 0x28;
    /// Arguments before a call, results after it: three registers.
    pub const ARGUMENTS: [u16; 3] = [0x40, 0x48, 0x50];
    /// Write: makes the call. Read: the status of the last call.
    pub const CALL: u16 = 0x58;
    /// "cloison" in ASCII, followed by the layout's number.
    pub const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"cloison1");
    /// `compatible` of the page's node in the device tree.
    pub const COMPATIBLE: &str = "cloison,services-1";
}

/// Function identifier of SMCCC_VERSION (Arm DEN 0028).
pub const SMCCC_VERSION: u32 = 0x8000_0000;

/// PSCI function identifiers (Arm DEN 0022), by HVC or SMC.
pub mod psci {
    /// Returns the version of PSCI.
    pub const VERSION: u32 = 0x8400_0000;
    /// Suspends the calling vCPU until an interrupt: with 32-bit arguments.
    pub const CPU_SUSPEND_32: u32 = 0x8400_0001;
    /// [`CPU_SUSPEND_32`] with 64-bit arguments.
    pub const CPU_SUSPEND_64: u32 = 0xC400_0001;
    /// Turns the calling vCPU off. Does not return.
    pub const CPU_OFF: u32 = 0x8400_0002;
    /// Turns a vCPU on: its affinity, its entry point, and its first x0.
    pub const CPU_ON_32: u32 = 0x8400_0003;
    /// [`CPU_ON_32`] with 64-bit arguments.
    pub const CPU_ON_64: u32 = 0xC400_0003;
    /// Returns whether a vCPU is on (0), off (1) or about to start (2).
    pub const AFFINITY_INFO_32: u32 = 0x8400_0004;
    /// [`AFFINITY_INFO_32`] with 64-bit arguments.
    pub const AFFINITY_INFO_64: u32 = 0xC400_0004;
    /// Returns whether a Trusted OS has to be migrated: 2, there is none.
    pub const MIGRATE_INFO_TYPE: u32 = 0x8400_0006;
    /// Ends the VM, from any of its vCPUs.
    pub const SYSTEM_OFF: u32 = 0x8400_0008;
    /// Restarts the VM.
    pub const SYSTEM_RESET: u32 = 0x8400_0009;
    /// Returns whether there is a function, by its identifier.
    pub const FEATURES: u32 = 0x8400_000A;
    /// The functions that a guest can call.
    pub const ALL: [u32; 12] = [
        VERSION,
        CPU_SUSPEND_32,
        CPU_SUSPEND_64,
        CPU_OFF,
        CPU_ON_32,
        CPU_ON_64,
        AFFINITY_INFO_32,
        AFFINITY_INFO_64,
        MIGRATE_INFO_TYPE,
        SYSTEM_OFF,
        SYSTEM_RESET,
        FEATURES,
    ];

    /// The call has done what it says.
    pub const SUCCESS: i64 = 0;
    /// There is no such function.
    pub const NOT_SUPPORTED: i64 = -1;
    /// There is no such vCPU or affinity level.
    pub const INVALID_PARAMETERS: i64 = -2;
    /// The caller may not do this.
    pub const DENIED: i64 = -3;
    /// The vCPU is on.
    pub const ALREADY_ON: i64 = -4;
    /// The vCPU is about to start.
    pub const ON_PENDING: i64 = -5;
    /// The call came too late or too early: the VM is about to end.
    pub const INTERNAL_FAILURE: i64 = -6;
    /// The entry point is not in RAM, or not aligned.
    pub const INVALID_ADDRESS: i64 = -9;
}

/// Cloison's own calls: `0xC600_0000 + n`.
///
/// ```
/// use cloison_abi::Call;
///
/// assert_eq!(Call::from_id(0xC600_0009), Some(Call::Time));
/// assert_eq!(Call::from_id(0x8400_0000), None); // PSCI's
/// assert_eq!(<&str>::from(Call::SegmentBegin), "segment_begin");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, TryFromPrimitive)]
#[strum(serialize_all = "snake_case")]
#[repr(u32)]
pub enum Call {
    /// `() -> (ABI_VERSION, SERVICES granted, VM id, vCPU id)`. Always allowed.
    Identify = 0xC600_0000,
    /// `(workload, sub_experiment, run) -> 0`: starts the observation segment on the calling vCPU
    /// and resets its configured HEMs to zero. Service [`services::HEM`].
    SegmentBegin = 0xC600_0001,
    /// `() -> (0, cycles)`: ends the segment and logs one HEM record. Service [`services::HEM`].
    SegmentEnd = 0xC600_0002,
    /// `(k) -> (0, pages moved)`: moves the `k` most important pages of the VM's profile into its
    /// PVT pool, all or none: if the pool is exhausted, nothing moves. Service
    /// [`services::MIGRATE`].
    Migrate = 0xC600_0003,
    /// `() -> (0, pages moved)`: moves every migrated page back to its region's pool. Service
    /// [`services::MIGRATE`].
    Restore = 0xC600_0004,
    /// `(ipa) -> 0`: moves one page, named by the IPA of its first byte, to the PVT pool. Service
    /// [`services::MIGRATE`].
    MigratePage = 0xC600_0005,
    /// `(quota index) -> (0, events this period, periods so far, total nanoseconds throttled)` of
    /// the calling vCPU's core. Service [`services::QUOTA`].
    QuotaRead = 0xC600_0006,
    /// `(quota index, budget in events) -> 0`: sets the budget from the next period on; never above
    /// the configured budget. Service [`services::QUOTA`].
    QuotaSet = 0xC600_0007,
    /// `(event index) -> (0, count, overflowed, event)`: the count of one HEM in the running
    /// segment, or else in the last one, and the event's number. Service [`services::HEM`].
    HemRead = 0xC600_0008,
    /// `() -> (0, nanoseconds since reset)`. Always allowed.
    Time = 0xC600_0009,
    /// `(ipa, pages, cacheable) -> 0`: makes these pages of RAM non-cacheable (0) or cacheable
    /// again (1), until the VM ends or restarts. A page keeps the setting when it migrates, and
    /// its contents are preserved. Service [`services::PROFILE`].
    SetCacheability = 0xC600_000A,
    /// `(index) -> (0, ipa, pages, colors)`: one of the VM's regions of RAM and devices, in
    /// configuration order. `colors` has a bit for each color that the pages may have, and is 0
    /// for a device. Always allowed.
    Region = 0xC600_000B,
    /// `() -> (0, colors, maximum number of pages, pages taken)`: the pool to which the VM's pages
    /// can move. Service [`services::MIGRATE`].
    PrivatePool = 0xC600_000C,
    /// `(ipa) -> (0, color, flags)`: the color of a page of RAM, and bits of [`page_flags`]. Always
    /// allowed.
    PageState = 0xC600_000D,
    /// `(quota index) -> (0, budget in force, period in nanoseconds, event)`: what a quota of the
    /// calling vCPU's core allows in the running period. Service [`services::QUOTA`].
    QuotaTerms = 0xC600_000E,
    /// `(VM) -> (0, life and flags, name, name)`: the state and name of a VM, by its number
    /// ([`reply::VmInfo`]). Service [`services::MANAGE`] or [`services::REGULATE`].
    VmRead = 0xC600_000F,
    /// `(VM, change) -> 0`: orders a VM that the caller's configuration names to stop (0), start
    /// (1) or restart (2). The order is carried out after the call returns: [`Call::VmRead`] then
    /// reports the new state. An order that changes nothing is no error. Service
    /// [`services::MANAGE`].
    VmOrder = 0xC600_0010,
    /// `(VM, quota index) -> (0, budget, events in the last whole period, periods)`: a quota of a
    /// VM that the caller's configuration names ([`reply::Budget`]). Service
    /// [`services::REGULATE`].
    BudgetRead = 0xC600_0011,
    /// `(VM, quota index, budget in events) -> 0`: sets the budget from that quota's next period
    /// on, for all lives of its VM; never above the configured ceiling. Service
    /// [`services::REGULATE`].
    BudgetSet = 0xC600_0012,
    /// `() -> (0, number of event counters, PMCEID0_EL0, PMCEID1_EL0)`: the counters of the calling
    /// vCPU. They are the event counters from 0 up, the cycle counter [`CYCLE_COUNTER`], and the
    /// common events as the two registers name them. Service [`services::COUNTERS`], as for all
    /// calls that follow. A counter that the vCPU does not have is [`CallError::Absent`].
    Counters = 0xC600_0013,
    /// `(counter) -> (0, event)`: the event of a counter, in the format of
    /// [`Call::CounterEventSet`].
    CounterEvent = 0xC600_0014,
    /// `(counter, event) -> 0`: sets the event of a counter: the PMU event in bits 0 to 15, and
    /// PMEVTYPER's filters in bits 28 to 31 (31: not at EL1, 30: not at EL0). The cycle counter
    /// counts CPU_CYCLES (0x11) and nothing else. The counter's value and its enable bit do not
    /// change.
    CounterEventSet = 0xC600_0015,
    /// `(counter) -> (0, value, overflowed)`: a counter's value ([`reply::Counter`]).
    CounterRead = 0xC600_0016,
    /// `(counter, value) -> 0`: sets a counter's value, and clears its overflow flag. Event
    /// counters have 32 bits, the cycle counter 64.
    CounterSet = 0xC600_0017,
    /// `(mask) -> 0`: enables these counters, a bit each, and disables all others. A mask with a
    /// counter that the vCPU does not have is [`CallError::Denied`] here and in the next two.
    CounterEnable = 0xC600_0018,
    /// `(mask) -> 0`: inhibits these counters: they do not count, even if they are enabled. All
    /// other counters are no longer inhibited. All change at the same time.
    CounterInhibit = 0xC600_0019,
    /// `(mask) -> (0, enabled, inhibited, overflowed)`: the counters, a bit each
    /// ([`reply::CounterMasks`]). Clears the overflow flags of those in the mask after they
    /// have been read.
    CounterMasks = 0xC600_001A,
    /// `(workload, sub_experiment, run) -> 0`: logs a HEM record with the values of the vCPU's
    /// enabled event counters (the first six) and of its cycle counter. The log marks it as made by
    /// the guest.
    CounterRecord = 0xC600_001B,
    /// `(list, count, lease) -> (0, pages moved)`: moves the pages of a [`list`] to the pool of
    /// [`Call::PrivatePool`], all or none. Pages that are there already stay. With the lease,
    /// they move back when it ends; without it (0), at [`Call::Restore`] or
    /// [`Call::ReturnPages`], or when the VM restarts. Service [`services::MIGRATE`].
    MovePages = 0xC600_001C,
    /// `(list, count, lease) -> (0, pages moved)`: moves pages of a [`list`] back to their regions'
    /// pools. Only pages that were moved with this lease move, or without one (0). Service
    /// [`services::MIGRATE`].
    ReturnPages = 0xC600_001D,
    /// `(list, count, lease) -> (0, pages changed)`: makes each page of a [`list`] cacheable, or
    /// non-cacheable where its entry lacks [`list::CACHED`], all or none. When the lease ends, all
    /// pages of the VM are cacheable again. Service [`services::PROFILE`].
    CachePages = 0xC600_001E,
    /// `(lease, nanoseconds) -> (0, lease)`: takes the VM's lease (0) or renews it, for this time
    /// from now, at most [`lease::LONGEST_NANOS`]; 0 nanoseconds end it. It also ends when it is
    /// not renewed in time, and when the VM ends or restarts. Its pages then move back, and all
    /// pages of the VM are cacheable again: a killed program leaves nothing behind. One program at
    /// a time has the lease ([`CallError::Taken`]), and [`Call::SetCacheability`] is refused
    /// meanwhile. Each lease has a new number. Service [`services::MIGRATE`] or
    /// [`services::PROFILE`].
    Lease = 0xC600_001F,
    /// `(VM, bit, life) -> 0`: sets a bit ([`doorbell::BITS`]) of the doorbell of a VM with which
    /// the caller has a channel. Unless it was set, the VM gets the interrupt [`irq::DOORBELL`].
    /// With a life ([`Call::Peer`]), only that life is called; 0 is any. Always allowed, as the
    /// next three.
    DoorbellRing = 0xC600_0020,
    /// `(mask) -> (0, bits, life)`: takes these bits of the VM's own doorbell: returns which of
    /// them waited, and clears them. Bit [`doorbell::PEERS`]` + n` says that VM `n` has started or
    /// ended.
    DoorbellTake = 0xC600_0021,
    /// `(VM) -> (0, life)`: the life of a VM with which the caller has a channel. Each start and
    /// each end of a VM has a new number, which is odd while it runs ([`reply::Peer`]).
    Peer = 0xC600_0022,
    /// `(index) -> (0, ipa, pages, flags)`: one of the VM's channels ([`reply::Channel`]).
    Channel = 0xC600_0023,
    /// `(index) -> (0, ipa, flags)`: one of the VM's links ([`reply::Link`]). Always allowed, as the
    /// next one.
    Link = 0xC600_0024,
    /// `(index, direction) -> (0, frames, bytes, lost)`: what has passed on one of the VM's links
    /// since boot, from it (0) or to it (1) ([`reply::Traffic`]).
    LinkTraffic = 0xC600_0025,
}

/// The bits of a doorbell.
pub mod doorbell {
    /// How many bits peers can set, from 0 up.
    pub const BITS: u64 = 32;
    /// The bit for changes of VM 0's life; that of VM `n` is `n` above.
    pub const PEERS: u32 = 32;
    /// All bits of a doorbell.
    pub const ALL: u64 = (1 << 40) - 1;
}

/// Lists of pages, for [`Call::MovePages`], [`Call::ReturnPages`] and [`Call::CachePages`].
///
/// A list is an array of 64-bit words in the VM's own RAM, aligned to 8 bytes, within one page: a
/// process knows the address of one of its pages, but not that the next one follows it. Each word
/// is the IPA of a page. The words ascend, so that no page occurs twice. EL2 reads the list once,
/// before it changes anything; later writes to the list have no effect.
///
/// If such a call fails, `x1` is the index of the wrong entry, or [`NO_ENTRY`](list::NO_ENTRY).
pub mod list {
    /// Maximum number of entries: one page of them.
    pub const LONGEST: u64 = 512;
    /// Bit of an entry of [`CachePages`](crate::Call::CachePages): the caches may hold the page.
    pub const CACHED: u64 = 1 << 0;
    /// Value of `x1` when no entry caused the error.
    pub const NO_ENTRY: u64 = u64::MAX;
}

/// Bounds of [`Call::Lease`].
pub mod lease {
    /// Longest time for which the lease can be taken or renewed, in nanoseconds: one hour.
    pub const LONGEST_NANOS: u64 = 3_600_000_000_000;
}

/// Number of the cycle counter among a vCPU's counters, and of its bit in masks of them.
pub const CYCLE_COUNTER: u32 = 31;

impl Call {
    /// Returns the services that grant the call, as bits of [`services`]: one of them is enough. 0
    /// if the call is always allowed.
    pub const fn services(self) -> u32 {
        match self {
            Self::Identify | Self::Time | Self::Region | Self::PageState => 0,
            // A channel is the permission.
            Self::DoorbellRing | Self::DoorbellTake | Self::Peer | Self::Channel => 0,
            Self::Link | Self::LinkTraffic => 0,
            Self::SegmentBegin | Self::SegmentEnd | Self::HemRead => services::HEM,
            Self::Migrate
            | Self::Restore
            | Self::MigratePage
            | Self::PrivatePool
            | Self::MovePages
            | Self::ReturnPages => services::MIGRATE,
            Self::SetCacheability | Self::CachePages => services::PROFILE,
            Self::Lease => services::MIGRATE | services::PROFILE,
            Self::QuotaRead | Self::QuotaSet | Self::QuotaTerms => services::QUOTA,
            Self::VmRead => services::MANAGE | services::REGULATE,
            Self::VmOrder => services::MANAGE,
            Self::BudgetRead | Self::BudgetSet => services::REGULATE,
            Self::Counters
            | Self::CounterEvent
            | Self::CounterEventSet
            | Self::CounterRead
            | Self::CounterSet
            | Self::CounterEnable
            | Self::CounterInhibit
            | Self::CounterMasks
            | Self::CounterRecord => services::COUNTERS,
        }
    }

    /// Returns whether these services grant the call.
    pub const fn is_granted(self, granted: u32) -> bool {
        self.services() == 0 || self.services() & granted != 0
    }

    /// Returns the call with this function identifier, if Cloison has one.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::try_from(id).ok()
    }
}

/// The value of `x0` after a call that failed.
///
/// ```
/// use cloison_abi::CallError;
///
/// assert_eq!(CallError::try_from(-4), Ok(CallError::PoolFull));
/// assert!(CallError::try_from(0).is_err());
/// assert_eq!(CallError::PoolFull.to_string(), "PoolFull");
/// ```
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, TryFromPrimitive)]
#[repr(i64)]
pub enum CallError {
    /// No such function (SMCCC's own code).
    NotSupported = -1,
    /// The VM's configuration does not grant the service, or does not name the VM; or a mask has a
    /// counter that is not the caller's.
    Denied = -2,
    /// An argument is out of range.
    Invalid = -3,
    /// The pool has too few free pages; nothing was moved.
    PoolFull = -4,
    /// Another migration, change of cacheability, or order to stop or start this VM is in progress.
    Busy = -5,
    /// The VM has no page profile, or no such pool, channel or link, the core has no such quota, HEM
    /// or counter, or the machine no such VM.
    Absent = -6,
    /// `SegmentEnd` without `SegmentBegin`, or `SegmentBegin` twice.
    Sequence = -7,
    /// There is no [`list`] of pages at this address: it is not in one page of the VM's RAM, or has
    /// no or too many entries.
    List = -8,
    /// This is not the VM's lease, or no longer; or the called VM has another life.
    Expired = -9,
    /// Another program has the VM's lease, or has moved this page with it.
    Taken = -10,
    /// The VM does not run.
    Off = -11,
    /// The VM has called its peers more often than its configuration allows: try again later.
    TooOften = -12,
}

/// Flags of a page, as returned by [`Call::PageState`].
pub mod page_flags {
    /// The page is in the PVT pool.
    pub const PRIVATE: u64 = 1 << 0;
    /// The page is not cacheable.
    pub const UNCACHED: u64 = 1 << 1;
}

/// Services that a VM's configuration can grant, as bits.
pub mod services {
    /// HEM log: observation segments and HEM reads.
    pub const HEM: u32 = 1 << 0;
    /// Page migration between the VM's pools.
    pub const MIGRATE: u32 = 1 << 1;
    /// Reading and lowering the VM's own quotas.
    pub const QUOTA: u32 = 1 << 2;
    /// Making the VM's own pages non-cacheable, to find out which ones matter.
    pub const PROFILE: u32 = 1 << 3;
    /// Listing all VMs, and stopping, starting and restarting those that the VM's configuration
    /// names.
    pub const MANAGE: u32 = 1 << 4;
    /// Reading and setting the quotas of the VMs that the VM's configuration names.
    pub const REGULATE: u32 = 1 << 5;
    /// Event counters without a PMU: those that neither a quota nor a HEM uses.
    pub const COUNTERS: u32 = 1 << 6;
}
