//! Replies of Cloison's calls: `x1` to `x3` after a call that succeeded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::event::EventId;
use crate::page_flags;
use core::fmt;
use num_enum::{FromPrimitive, TryFromPrimitive};
use strum::Display;

/// Defines replies whose fields are `x1` to `x3` in order, and the conversions in both directions.
macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl From<$name> for [u64; 3] {
            #[inline]
            fn from(reply: $name) -> Self {
                let mut registers = [0; 3];
                for (register, value) in registers.iter_mut().zip([$(reply.$field.into_register()),*]) {
                    *register = value;
                }
                registers
            }
        }

        impl From<[u64; 3]> for $name {
            #[inline]
            fn from(registers: [u64; 3]) -> Self {
                let mut values = registers.into_iter();
                Self { $($field: Register::from_register(values.next().unwrap_or(0)),)* }
            }
        }
    )*};
}

/// A value in one register.
trait Register {
    fn into_register(self) -> u64;
    fn from_register(register: u64) -> Self;
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Register for $kind {
            #[inline]
            fn into_register(self) -> u64 {
                u64::from(self)
            }
            #[inline]
            fn from_register(register: u64) -> Self {
                register as Self
            }
        }
    )*};
}

numbers! { u32 u64 }

impl Register for bool {
    #[inline]
    fn into_register(self) -> u64 {
        self.into()
    }
    #[inline]
    fn from_register(register: u64) -> Self {
        register != 0
    }
}

/// Implements [`Register`] for types around a number.
macro_rules! newtypes {
    ($($kind:ty)*) => {$(
        impl Register for $kind {
            #[inline]
            fn into_register(self) -> u64 {
                self.0.into()
            }
            #[inline]
            fn from_register(register: u64) -> Self {
                Self(register as _)
            }
        }
    )*};
}

newtypes! { Colors EventId }

/// A set of colors, one bit each.
///
/// ```
/// use cloison_abi::reply::Colors;
///
/// assert_eq!(Colors(0b1_0000_1111).to_string(), "0-3,8");
/// assert_eq!(Colors(0).to_string(), "none");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colors(pub u64);

/// Formats the set as configurations do: `0-3,8`.
impl fmt::Display for Colors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ranges(self.0, f)
    }
}

/// Writes a set of numbers, one bit each, as configurations do: `0-3,8`, or `none`.
///
/// # Errors
/// The formatter's.
pub fn write_ranges(mut set: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if set == 0 {
        return f.write_str("none");
    }
    let mut separator = "";
    while set != 0 {
        let first = set.trailing_zeros();
        let last = first + (set >> first).trailing_ones() - 1;
        write!(f, "{separator}{first}")?;
        if last > first {
            write!(f, "-{last}")?;
        }
        // The carry clears the range.
        set &= set.wrapping_add(1 << first);
        separator = ",";
    }
    Ok(())
}

replies! {
    /// After [`Call::SegmentEnd`](crate::Call::SegmentEnd).
    SegmentEnd {
        /// PMCCNTR_EL0 over the segment.
        cycles: u64,
    }

    /// After [`Call::Migrate`](crate::Call::Migrate), [`Call::Restore`](crate::Call::Restore),
    /// [`Call::MigratePage`](crate::Call::MigratePage) and the calls with a [`list`](crate::list).
    Moved {
        /// Pages that moved, or changed.
        pages: u64,
    }

    /// After [`Call::Lease`](crate::Call::Lease).
    Lease {
        /// Its number, never 0.
        number: u64,
    }

    /// State of a quota on the calling vCPU's core: after
    /// [`Call::QuotaRead`](crate::Call::QuotaRead).
    Quota {
        /// Events counted so far in the running period.
        events: u64,
        /// Periods since the core's vCPU first started.
        periods: u64,
        /// Total time throttled, in nanoseconds.
        throttled_nanos: u64,
    }

    /// Terms of a quota on the calling vCPU's core: after
    /// [`Call::QuotaTerms`](crate::Call::QuotaTerms).
    QuotaTerms {
        /// Events allowed in the running period.
        budget: u64,
        /// Length of a period, in nanoseconds.
        period_nanos: u64,
        /// PMU event number.
        event: EventId,
    }

    /// A quota of another VM: after [`Call::BudgetRead`](crate::Call::BudgetRead).
    Budget {
        /// Events allowed from the next period on, unless the VM itself has lowered it.
        budget: u64,
        /// Events in the last whole period.
        events: u32,
        /// Periods since the core's vCPU first started.
        periods: u32,
    }

    /// The count of one HEM in a segment: after [`Call::HemRead`](crate::Call::HemRead).
    Hem {
        /// Events counted.
        count: u32,
        /// The counter has overflowed: the count lacks a multiple of 2^32.
        overflowed: bool,
        /// PMU event number.
        event: EventId,
    }

    /// The counters of a vCPU: after [`Call::Counters`](crate::Call::Counters).
    Counters {
        /// Number of event counters.
        counters: u32,
        /// PMCEID0_EL0: the common events 0 to 31 in the lower half, 0x4000 to 0x401f in the upper
        /// one, a bit each.
        low: u64,
        /// PMCEID1_EL0: the common events 32 to 63 in the lower half, 0x4020 to 0x403f in the upper
        /// one.
        high: u64,
    }

    /// A counter: after [`Call::CounterRead`](crate::Call::CounterRead).
    Counter {
        /// Its value.
        value: u64,
        /// It has overflowed since its flag was cleared.
        overflowed: bool,
    }

    /// A vCPU's counters, a bit each: after [`Call::CounterMasks`](crate::Call::CounterMasks).
    CounterMasks {
        /// Those that are enabled.
        enabled: u32,
        /// Those that do not count although they may be enabled.
        inhibited: u32,
        /// Those that have overflowed.
        overflowed: u32,
    }

    /// After [`Call::Time`](crate::Call::Time).
    Time {
        /// Time since reset, in nanoseconds of the system counter.
        nanos: u64,
    }

    /// A region of the VM: after [`Call::Region`](crate::Call::Region).
    Region {
        /// First address, as seen by the guest's kernel.
        ipa: u64,
        /// Length in pages of 4 KiB.
        pages: u64,
        /// Colors that its pages may have; none for a device.
        colors: Colors,
    }

    /// The bits taken from the VM's doorbell: after
    /// [`Call::DoorbellTake`](crate::Call::DoorbellTake).
    Taken {
        /// Those that waited.
        bits: u64,
        /// The life of the VM itself.
        life: u64,
    }

    /// Another VM of a channel: after [`Call::Peer`](crate::Call::Peer).
    Peer {
        /// Its life; odd while it runs.
        life: u64,
    }

    /// A channel of the VM: after [`Call::Channel`](crate::Call::Channel).
    Channel {
        /// First address, as seen by the guest's kernel; 0 if it sees none of it.
        ipa: u64,
        /// Length in pages of 4 KiB.
        pages: u32,
        /// Bits 0 and 1: nothing (0), read (1), read and write (2). From bit 8 on: the VMs in the
        /// channel, a bit each.
        flags: u32,
    }

    /// A link of the VM: after [`Call::Link`](crate::Call::Link).
    Link {
        /// Address of its device, as seen by the guest's kernel.
        ipa: u64,
        /// Bits 0 to 7: the number that virtio has for the kind of device; 8 to 15: the VM at the
        /// other end; 16: this VM's driver runs; 17: the other VM's driver runs.
        flags: u32,
    }

    /// What has passed on a link in one direction, since boot: after
    /// [`Call::LinkTraffic`](crate::Call::LinkTraffic).
    Traffic {
        /// Frames, or pieces of a console's text, that have arrived.
        frames: u64,
        /// Bytes that were copied, also those of frames that were lost then.
        bytes: u64,
        /// Frames that were lost: nobody received, or they did not fit.
        lost: u64,
    }

    /// The pool to which the VM's pages can move: after
    /// [`Call::PrivatePool`](crate::Call::PrivatePool).
    PrivatePool {
        /// Colors of the pool.
        colors: Colors,
        /// Maximum number of pages.
        pages: u64,
        /// Pages in use.
        taken: u64,
    }
}

impl Channel {
    /// Returns whether the VM may read its memory.
    pub const fn is_readable(self) -> bool {
        self.flags & 3 != 0
    }

    /// Returns whether the VM may write its memory.
    pub const fn is_writable(self) -> bool {
        self.flags & 3 == 2
    }

    /// Returns whether a VM is in it.
    pub const fn has(self, vm: u64) -> bool {
        vm < 8 && self.flags >> (8 + vm) & 1 == 1
    }
}

/// The state of a page: after [`Call::PageState`](crate::Call::PageState).
///
/// ```
/// use cloison_abi::reply::PageState;
///
/// let state = PageState { color: 12, private: true, cached: false };
/// assert_eq!(<[u64; 3]>::from(state), [12, 3, 0]);
/// assert_eq!(PageState::from([12, 3, 0]), state);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageState {
    /// Color of the frame that holds the page.
    pub color: u8,
    /// The page is in the private pool.
    pub private: bool,
    /// The page is cacheable.
    pub cached: bool,
}

impl From<PageState> for [u64; 3] {
    fn from(state: PageState) -> Self {
        let private = if state.private {
            page_flags::PRIVATE
        } else {
            0
        };
        let uncached = if state.cached {
            0
        } else {
            page_flags::UNCACHED
        };
        [state.color.into(), private | uncached, 0]
    }
}

impl From<[u64; 3]> for PageState {
    fn from([color, flags, _]: [u64; 3]) -> Self {
        Self {
            color: color as u8,
            private: flags & page_flags::PRIVATE != 0,
            cached: flags & page_flags::UNCACHED == 0,
        }
    }
}

/// How a VM's life can be changed from outside ([`Call::VmOrder`](crate::Call::VmOrder)).
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, TryFromPrimitive)]
#[repr(u64)]
pub enum Change {
    /// End it.
    Stop = 0,
    /// Start it, if it has ended.
    Start = 1,
    /// Start it again, whether it runs or has ended.
    Restart = 2,
}

/// Whether a VM runs, as others see it.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, FromPrimitive)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Life {
    /// It runs.
    Running = 0,
    /// It is about to start, to end or to restart.
    #[num_enum(default)]
    Changing = 1,
    /// It has turned itself off.
    Off = 2,
    /// It was stopped from outside.
    Stopped = 3,
    /// The hypervisor has ended it, for a forbidden access for example.
    Killed = 4,
}

/// Maximum length of a VM's name in bytes: two registers.
pub const LONGEST_NAME: usize = 16;

/// A VM as others see it: after [`Call::VmRead`](crate::Call::VmRead).
///
/// ```
/// use cloison_abi::reply::{Life, VmInfo};
///
/// let info = VmInfo::new("rtos", Life::Stopped, true);
/// assert_eq!(<[u64; 3]>::from(info), [0x103, 0x736f_7472, 0]);
/// assert_eq!(VmInfo::from([0x103, 0x736f_7472, 0]), info);
/// assert_eq!(info.name(), "rtos");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmInfo {
    /// Whether it runs.
    pub life: Life,
    /// Whether the caller may stop and start it.
    pub managed: bool,
    name: [u8; LONGEST_NAME],
}

impl VmInfo {
    /// Describes a VM. A name that is too long is cut.
    pub fn new(name: &str, life: Life, managed: bool) -> Self {
        let mut bytes = [0; LONGEST_NAME];
        bytes
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(to, from)| *to = from);
        Self {
            life,
            managed,
            name: bytes,
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        let end = self
            .name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(LONGEST_NAME);
        core::str::from_utf8(&self.name[..end]).unwrap_or_default()
    }
}

impl From<VmInfo> for [u64; 3] {
    fn from(info: VmInfo) -> Self {
        let name = u128::from_le_bytes(info.name);
        [
            info.life as u64 | u64::from(info.managed) << 8,
            name as u64,
            (name >> 64) as u64,
        ]
    }
}

impl From<[u64; 3]> for VmInfo {
    fn from([state, low, high]: [u64; 3]) -> Self {
        let name = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        Self {
            life: Life::from(state as u8),
            managed: state >> 8 & 1 == 1,
            name,
        }
    }
}

/// The VM and vCPU that made the call, as the hypervisor reports them: `x0` to `x3` after
/// [`Call::Identify`](crate::Call::Identify), the only call whose `x0` is not a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the interface ([`ABI_VERSION`](crate::ABI_VERSION)).
    pub version: u64,
    /// Granted services: bits of [`services`](crate::services).
    pub services: u32,
    /// The VM's number.
    pub vm: u64,
    /// The calling vCPU's number.
    pub vcpu: u64,
}

impl From<Identity> for [u64; 4] {
    #[inline]
    fn from(identity: Identity) -> Self {
        [
            identity.version,
            identity.services.into(),
            identity.vm,
            identity.vcpu,
        ]
    }
}

impl From<[u64; 4]> for Identity {
    #[inline]
    fn from([version, services, vm, vcpu]: [u64; 4]) -> Self {
        Self {
            version,
            services: services as u32,
            vm,
            vcpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_keep_the_order_of_their_registers() {
        let hem = Hem {
            count: 7,
            overflowed: true,
            event: EventId(0x17),
        };
        assert_eq!(<[u64; 3]>::from(hem), [7, 1, 0x17]);
        assert_eq!(Hem::from([7, 1, 0x17]), hem);
        assert_eq!(<[u64; 3]>::from(Moved { pages: 9 }), [9, 0, 0]);
        let identity = Identity {
            version: 1,
            services: 5,
            vm: 2,
            vcpu: 3,
        };
        assert_eq!(Identity::from(<[u64; 4]>::from(identity)), identity);
    }
}
