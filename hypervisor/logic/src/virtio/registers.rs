//! The registers of a link's device (virtio 1.2, 4.2.2), and what its driver has set up.
//!
//! ```text
//! trapped read    value = registers.read(offset, seen)
//! trapped write   match registers.write(offset, value) { change of queues: wire.join, wire.leave }
//! ```
//!
//! Reasons for interrupts are apart ([`Reasons`]): the core of the peer adds to them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::{MOST, Queue, Role, Setup};
use crate::atomic::AtomicU32;
use cloison_abi::virtio::offset::{self, *};
use cloison_abi::virtio::{self, feature, interrupt, status};
use cloison_formats::link::LinkKind;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Maximum number of queues of a device.
pub const QUEUES: usize = Role::ALL.len();
/// Reasons for an interrupt.
const ALL: u32 = interrupt::USED | interrupt::CONFIGURATION;

/// Why a device has an interrupt, and whether it needs a reset. Any core may add to it.
#[derive(Debug, Default)]
pub struct Reasons(AtomicU32);

impl Reasons {
    /// Adds reasons. Returns whether one of them is new.
    pub fn add(&self, reasons: u32) -> bool {
        self.0.fetch_or(reasons, AcqRel) & reasons != reasons
    }

    /// The driver has handled some.
    pub fn handled(&self, reasons: u32) {
        self.0.fetch_and(!(reasons & ALL), AcqRel);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.store(0, Release);
    }

    /// Returns what waits for the driver. The line of the interrupt is high while that is not 0.
    pub fn waiting(&self) -> u32 {
        self.0.load(Acquire) & ALL
    }

    /// Returns whether the device needs a reset.
    pub fn needs_reset(&self) -> u32 {
        self.0.load(Acquire) & status::NEEDS_RESET
    }
}

/// What a device shows besides its own registers.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// [`Reasons::needs_reset`].
    pub needs_reset: u32,
    /// How often the peer's driver has started or ended. Odd while it runs.
    pub turns: u32,
    /// The Ethernet address ([`cloison_formats::link::mac`]).
    pub mac: u64,
    /// The address of sockets ([`cloison_formats::link::cid`]).
    pub cid: u64,
}

/// What follows from a write.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The driver has reset the device.
    Reset,
    /// The driver runs: its queues are to be used.
    Started([Option<Queue>; QUEUES]),
    /// A queue is no longer used.
    Left(Role),
}

/// The registers of a device.
#[derive(Clone, Debug)]
pub struct Registers {
    kind: LinkKind,
    status: u32,
    features: [u32; 2],
    /// Which half of the features is shown, and which is set.
    shown: usize,
    set: usize,
    /// The selected queue.
    selected: usize,
    setups: [Setup; QUEUES],
    /// Which queues the driver has made ready.
    ready: [bool; QUEUES],
}

impl Registers {
    /// Creates a device in its reset state.
    pub fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            status: 0,
            features: [0; 2],
            shown: 0,
            set: 0,
            selected: 0,
            setups: [Setup::default(); QUEUES],
            ready: [false; QUEUES],
        }
    }

    /// Resets the device. Returns whether a driver ran.
    pub fn reset(&mut self) -> bool {
        let ran = self.runs();
        *self = Self::new(self.kind);
        ran
    }

    /// Returns whether a driver runs.
    fn runs(&self) -> bool {
        self.status & status::DRIVER_OK != 0
    }

    /// Returns a register. Offsets without one read as 0.
    pub fn read(&self, offset: u16, seen: Seen) -> u32 {
        match offset {
            offset::MAGIC => virtio::MAGIC,
            offset::VERSION => virtio::VERSION,
            DEVICE_ID => self.kind as u32,
            DEVICE_FEATURES => self.kind.features().get(self.shown).copied().unwrap_or(0),
            // Sockets alone have events.
            QUEUE_SIZE_MAX
                if self.selected < QUEUES - usize::from(self.kind != LinkKind::Vsock) =>
            {
                MOST.into()
            }
            QUEUE_READY => self.ready.get(self.selected).map_or(0, |&is| is.into()),
            STATUS => self.status | seen.needs_reset,
            GENERATION => seen.turns,
            _ => 0,
        }
    }

    /// Returns the device's configuration, which has eight bytes.
    pub fn configuration(&self, seen: Seen) -> u64 {
        match self.kind {
            // The link is up while the peer's driver runs.
            LinkKind::Net => seen.mac | u64::from(seen.turns & 1) << 48,
            LinkKind::Console => 0,
            LinkKind::Vsock => seen.cid,
        }
    }

    /// Writes a register. Offsets without one ignore it.
    pub fn write(&mut self, offset: u16, value: u32) -> Change {
        match offset {
            DEVICE_FEATURES_SELECT => self.shown = value as usize,
            DRIVER_FEATURES_SELECT => self.set = value as usize,
            QUEUE_SELECT => self.selected = value as usize,
            QUEUE_READY => return self.ready(value & 1 != 0),
            STATUS => return self.progress(value),
            _ => {
                if let Some(register) = self.stored(offset) {
                    *register = value;
                }
            }
        }
        Change::None
    }

    /// Returns a register that only keeps what the driver writes, until that is in use.
    fn stored(&mut self, offset: u16) -> Option<&mut u32> {
        if offset == DRIVER_FEATURES {
            // What has been agreed stays.
            let is_open = self.status & status::FEATURES_OK == 0;
            return self.features.get_mut(self.set).filter(|_| is_open);
        }
        let is_ready = *self.ready.get(self.selected)?;
        let setup = self.setups.get_mut(self.selected).filter(|_| !is_ready)?;
        if offset == QUEUE_SIZE {
            return Some(&mut setup.size);
        }
        let index = offset.checked_sub(QUEUE_DESCRIPTORS)? / 4;
        setup.registers.get_mut(usize::from(index))
    }

    /// Returns the queue for a role, if what the driver has set up can be one.
    fn queue(&self, role: Role) -> Option<Queue> {
        let mut queue = Queue::new(role, &self.setups[role as usize])?;
        // A legacy driver has no count of buffers in a frame's header (5.1.6.1).
        if self.kind == LinkKind::Net && self.features[1] & feature::VERSION_1 == 0 {
            queue.omits = 2;
        }
        Some(queue)
    }

    /// The driver makes the selected queue ready, if it can be one, or ends its use.
    fn ready(&mut self, is: bool) -> Change {
        let Some(&role) = Role::ALL.get(self.selected) else {
            return Change::None;
        };
        self.ready[self.selected] = is && self.queue(role).is_some();
        if is { Change::None } else { Change::Left(role) }
    }

    /// The driver reports its progress (3.1.1).
    fn progress(&mut self, value: u32) -> Change {
        if value == 0 {
            return Change::Reset;
        }
        let ran = self.runs();
        // No bit is cleared without a reset, also not by a driver that writes each alone.
        let mut status = self.status | value & 0xff & !status::NEEDS_RESET;
        // Features are agreed where the device has them all.
        let [low, high] = self.kind.features();
        if self.features[0] & !low != 0 || self.features[1] & !high != 0 {
            status &= !status::FEATURES_OK;
        }
        if status & status::FEATURES_OK == 0 {
            status &= !status::DRIVER_OK;
        }
        self.status = status;
        if ran || !self.runs() {
            return Change::None;
        }
        Change::Started(Role::ALL.map(|role| {
            let queue = self.queue(role);
            queue.filter(|_| self.ready[role as usize])
        }))
    }
}
