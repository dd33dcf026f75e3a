//! The registers of a link's device (virtio 1.2, 4.2.2), and what its driver has set up.
//!
//! ```text
//! trapped read    value = registers.read(offset, seen)
//! trapped write   match registers.write(offset, value) { change of queues: wire.join, wire.leave }
//! ```
//!
//! Reasons for interrupts are apart ([`Reasons`]): the core of the peer adds to them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::{MOST, Queue, Setup, Violation};
use crate::atomic::AtomicU32;
use cloison_abi::virtio::offset::{self, *};
use cloison_abi::virtio::{self, feature, interrupt, status};
use cloison_formats::link::LinkKind;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Number of queues of a device.
pub const QUEUES: usize = 2;
/// The maker of the devices, as a number that no other has.
const VENDOR: u32 = u32::from_le_bytes(*b"Clsn");

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
        let both = interrupt::USED | interrupt::CONFIGURATION;
        self.0.fetch_and(!(reasons & both), AcqRel);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.store(0, Release);
    }

    /// Returns what waits for the driver. The line of the interrupt is high while that is not 0.
    pub fn waiting(&self) -> u32 {
        self.0.load(Acquire) & (interrupt::USED | interrupt::CONFIGURATION)
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
    /// The Ethernet address.
    pub mac: [u8; 6],
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
    Left(usize),
    /// The device needs a reset.
    Broken(Violation),
}

/// The registers of a device.
#[derive(Clone, Debug)]
pub struct Registers {
    kind: LinkKind,
    status: u32,
    features: u64,
    /// Which half of the features is shown, and which is set.
    shown: u32,
    set: u32,
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
            features: 0,
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
            VENDOR_ID => VENDOR,
            DEVICE_FEATURES => half(self.kind.features(), self.shown),
            QUEUE_SIZE_MAX if self.selected < QUEUES => MOST.into(),
            QUEUE_READY => self.ready.get(self.selected).map_or(0, |&is| is.into()),
            STATUS => self.status | seen.needs_reset,
            SHARED_LENGTH..=0xbf => u32::MAX,
            GENERATION => seen.turns,
            _ => 0,
        }
    }

    /// Returns a byte of the device's configuration.
    pub fn configuration(&self, index: u16, seen: Seen) -> u8 {
        match (self.kind, index) {
            (LinkKind::Net, 0..6) => seen.mac[usize::from(index)],
            // The link is up while the peer's driver runs.
            (LinkKind::Net, 6) => (seen.turns & 1) as u8,
            _ => 0,
        }
    }

    /// Writes a register. Offsets without one ignore it.
    pub fn write(&mut self, offset: u16, value: u32) -> Change {
        match offset {
            DEVICE_FEATURES_SELECT => self.shown = value,
            DRIVER_FEATURES_SELECT => self.set = value,
            // What has been agreed stays.
            DRIVER_FEATURES if self.status & status::FEATURES_OK == 0 => {
                replace_half(&mut self.features, self.set, value);
            }
            QUEUE_SELECT => self.selected = value as usize,
            QUEUE_READY => return self.ready(value & 1 != 0),
            STATUS => return self.progress(value),
            _ => self.set_up(offset, value),
        }
        Change::None
    }

    /// Writes a register of the selected queue, unless it is in use.
    fn set_up(&mut self, offset: u16, value: u32) {
        let Some(setup) = self.setups.get_mut(self.selected) else {
            return;
        };
        let half = u32::from(offset & 4 != 0);
        match offset & !4 {
            _ if self.ready[self.selected] => {}
            _ if offset == QUEUE_SIZE => setup.size = value,
            QUEUE_DESCRIPTORS => replace_half(&mut setup.descriptors, half, value),
            QUEUE_DRIVER => replace_half(&mut setup.driver, half, value),
            QUEUE_DEVICE => replace_half(&mut setup.device, half, value),
            _ => {}
        }
    }

    /// The driver makes the selected queue ready, or ends its use.
    fn ready(&mut self, is: bool) -> Change {
        let Some(ready) = self.ready.get_mut(self.selected) else {
            return Change::None;
        };
        match (is, Queue::new(self.setups[self.selected])) {
            (true, Err(violation)) => Change::Broken(violation),
            (true, Ok(_)) => {
                *ready = true;
                Change::None
            }
            (false, _) => {
                *ready = false;
                Change::Left(self.selected)
            }
        }
    }

    /// The driver reports its progress (3.1.1).
    fn progress(&mut self, value: u32) -> Change {
        if value == 0 {
            return Change::Reset;
        }
        let ran = self.runs();
        let mut status = value & 0xff & !status::NEEDS_RESET;
        // Features are agreed where the device has them all, and the version is among them.
        let lacks = self.features & !self.kind.features() | !self.features & feature::VERSION_1;
        if lacks != 0 {
            status &= !status::FEATURES_OK;
        }
        if status & status::FEATURES_OK == 0 {
            status &= !status::DRIVER_OK;
        }
        // No bit is cleared without a reset.
        self.status |= status;
        if ran || !self.runs() {
            return Change::None;
        }
        Change::Started(core::array::from_fn(|queue| {
            let is_ready = self.ready[queue];
            is_ready
                .then(|| Queue::new(self.setups[queue]).ok())
                .flatten()
        }))
    }
}

/// Returns a half of a number: the low one is 0, the high one 1.
fn half(number: u64, half: u32) -> u32 {
    match half {
        0 => number as u32,
        1 => (number >> 32) as u32,
        _ => 0,
    }
}

/// Replaces a half of a number.
fn replace_half(number: &mut u64, half: u32, value: u32) {
    let value = u64::from(value);
    match half {
        0 => *number = *number & !0xffff_ffff | value,
        1 => *number = *number & 0xffff_ffff | value << 32,
        _ => {}
    }
}
