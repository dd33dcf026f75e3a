//! Why the configuration in a system image is rejected: the broken rule, the part that breaks it,
//! and a number.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ids::VmId;
use core::fmt;

/// A rule that a system breaks. `Display` is one line.
///
/// Small and without text, so that the hypervisor can report it before anything else works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The part that breaks the rule.
    pub part: Part,
    /// The rule.
    pub rule: Rule,
    /// The number that breaks it; the rule says what it counts or identifies.
    pub number: u64,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parts have indices here, not names: what a name is may be the damage.
        match self.part {
            Part::System => f.write_str("system: ")?,
            Part::Pool(pool) => write!(f, "pool {pool}: ")?,
            Part::Vm(vm) => write!(f, "VM {vm}: ")?,
            Part::Channel(channel) => write!(f, "channel {channel}: ")?,
            Part::Link(link) => write!(f, "link {link}: ")?,
            Part::Region { vm, region } => write!(f, "VM {vm}, region {region}: ")?,
        }
        self.rule.write(f, self.number)
    }
}

/// A part of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its board, or what is not in another part.
    System,
    /// The pool with this index.
    Pool(usize),
    /// The VM with this index.
    Vm(VmId),
    /// The channel with this index.
    Channel(usize),
    /// The link with this index.
    Link(usize),
    /// A region of a VM.
    Region {
        /// Index of the VM.
        vm: VmId,
        /// Index of the region in the VM.
        region: usize,
    },
}

impl Part {
    /// Returns the error that this part breaks `rule` unless the rule `holds`.
    ///
    /// A chain of checks reads as a list of rules; the first broken one is reported.
    pub(crate) fn check(
        self,
        holds: bool,
        rule: Rule,
        number: impl Into<u64>,
    ) -> Result<(), Invalid> {
        let broken = || Invalid {
            part: self,
            rule,
            number: number.into(),
        };
        holds.then_some(()).ok_or_else(broken)
    }
}

/// Defines the rules, each with what is reported if it is broken.
macro_rules! rules {
    ($($name:ident: $text:literal,)*) => {
        /// A rule for a part of a system. Each variant's text says how it is broken; `{0}`
        /// is the number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            fn write(self, f: &mut fmt::Formatter<'_>, number: u64) -> fmt::Result {
                match self { $(Self::$name => write!(f, $text, number),)* }
            }
        }
    };
}

rules! {
    BoardCores: "its board has {0} cores, not 1 to 8, or with a GICv3 1 to 16",
    Interrupts: "its GIC has {0} interrupts, more than 1020",
    SpinTable:
        "the {0} words of the spin table are not one for each core, aligned and in reserved \
         memory",
    PowerOff:
        "the write at offset {0:#x} that turns the machine off is not to an aligned word of its \
         page",
    PmuInterrupts: "the PMU's interrupts are not one for each of the {0} cores",
    PmuInterrupt:
        "the PMU's interrupt {0} is neither a private one nor a shared one of a single core, or \
         is used otherwise",
    Cache: "a cache of {0} bytes with this geometry gives no usable colors",
    OwnColors: "its hypervisor has {0} colors; it needs at least one, and only the cache's",
    Colors: "has {0} colors; it needs at least one, and only the board's",
    Vms: "has {0} VMs, not 1 to 8",
    EndsWith: "ends with VM {0}, which does not exist",
    Manages: "manages VMs {0:#b}, which do not all exist, or include itself",
    HypervisorColor: "holds color {0} of the hypervisor",
    PrivateColor: "shares colors with pool {0}, and one of the two is private",
    PrivatePool: "is private, and {0} VMs use it",
    VmCores: "has {0} cores, not at least one",
    Core: "core {0} does not exist or is used twice",
    Empty: "is empty, or its start {0:#x} is not on a page",
    IpaSpace: "starts at {0:#x} and ends beyond the IPA space",
    Overlap: "overlaps region {0}",
    NoPool: "names pool {0}, which does not exist",
    Emulated: "overlaps the device at {0:#x} of the VM's map",
    Map:
        "its map has a device at {0:#x}, which is not on a page, is on another one's, or is beyond \
         the IPA space",
    UartInterrupt: "its UART's interrupt {0} is not a shared one, or is a device's",
    Device:
        "its device at {0:#x} is not on a page, ends above 40 bits, overlaps memory, or includes \
         one of the hypervisor's own",
    DeviceTwice: "its device at {0:#x} also belongs to another VM",
    Stop:
        "the register at {0:#x} that stops a device is not a word of the VM's own devices, or one \
         of too many",
    Streams: "has streams {0:#x}, and so has another VM, or the board has no SMMU",
    StreamsMove: "has streams {0:#x}, and pages that can move or change under their devices",
    Firmware: "it may ask the firmware about {0} things of a kind",
    Direct:
        "its memory at {0:#x} is not free RAM there: it leaves a bank, is reserved, or is also \
         another region's",
    Payload:
        "the guest image at {0:#x} of the payload is not on a page, or ends beyond the payload",
    LoadAddress:
        "the guest image loaded at {0:#x} is not on a page, or in no region that can hold it",
    Interrupt: "interrupt {0} is not a shared one of the board, or is the hypervisor's own",
    InterruptTwice: "interrupt {0} is granted twice",
    Quota:
        "the quota of vCPU {0} has no budget, weight or period, or its ceiling is below, or \
         there is no such vCPU",
    Untrusted:
        "a quota counts event {0:#x}, which no verdict trusts and the configuration does not \
         allow",
    Reclaim:
        "a quota guarantees nothing or more than its budget, is not exact, or has another \
         period than those it shares pool {0} with",
    Regulates: "regulates VMs {0:#b}, which do not all exist, or include itself",
    DirectPmu:
        "has a direct PMU beside {0} quotas or beside segments, and the board does not keep \
         their counters apart",
    PmuAndCounters: "has a PMU and also, among its services {0:#x}, the counters",
    ProfilePool: "its profile has {0} pages, but no pool for them to move to",
    ChannelPool: "its pool {0} is private, or does not exist",
    ChannelMember: "VM {0} is in it twice, or does not exist",
    ChannelWriter: "has {0} VMs, of which none may write",
    Doorbell:
        "its VM {0} has no doorbell with a rate, or has a device with the interrupt of the \
         doorbell",
    LinkVm: "VM {0} is at both of its ends, or does not exist",
    LinkPlace:
        "its device at {0:#x} is not on a page, is beyond the IPA space, or is where its VM has \
         something else",
    LinkInterrupt:
        "its interrupt {0} is not a shared one, or is another device's in its VM",
    ProfilePage: "its profile names a page at {0:#x}, where no region has one",
}
