//! Device registers by address: the only volatile accesses of the runtime.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::device_map;
use cloison_abi::cadence::Cadence;
use cloison_abi::gicv2::{Gicc, Gicd};
use cloison_abi::map;
use cloison_abi::pl011::Pl011;

/// A block of device registers in the guest's physical map.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    base: u64,
}

/// The interrupt distributor in the map `cloison`.
pub const GICD: Device = Device { base: map::GICD };
/// The interrupt controller's CPU interface in the map `cloison`.
pub const GICC: Device = Device { base: map::GICC };
/// The console UART (PL011) in the map `cloison`.
pub const UART: Device = Device { base: map::UART };

/// The interrupt distributor, by its registers' names.
pub(crate) fn gicd() -> &'static Gicd {
    // SAFETY: the page of this device, which is mapped for good and holds no memory that Rust knows
    // of.
    unsafe { &*core::ptr::with_exposed_provenance(device_map::gicd() as usize) }
}

/// The interrupt controller's CPU interface, by its registers' names.
pub(crate) fn gicc() -> &'static Gicc {
    // SAFETY: the page of this device, which is mapped for good and holds no memory that Rust knows
    // of.
    unsafe { &*core::ptr::with_exposed_provenance(device_map::gicc() as usize) }
}

/// The frame of a vCPU's redistributor with its private interrupts, on a GICv3.
pub(crate) fn redistributor(vcpu: usize) -> &'static Gicd {
    let frame = device_map::gicc() as usize + vcpu * 0x2_0000 + 0x1_0000;
    // SAFETY: as for `gicd`: a page of registers.
    unsafe { &*core::ptr::with_exposed_provenance(frame) }
}

/// The UART as a PL011, by its registers' names.
pub(crate) fn pl011() -> &'static Pl011 {
    // SAFETY: the page of this device, which is mapped for good and holds no memory that Rust knows
    // of.
    unsafe { &*core::ptr::with_exposed_provenance(device_map::uart() as usize) }
}

/// The UART as a Zynq UltraScale+'s, by its registers' names.
pub(crate) fn cadence() -> &'static Cadence {
    // SAFETY: the page of this device, which is mapped for good and holds no memory that Rust knows
    // of.
    unsafe { &*core::ptr::with_exposed_provenance(device_map::uart() as usize) }
}

impl Device {
    /// Returns a device that the VM's configuration passes through at the IPA `base`, which must be
    /// in the range that the runtime maps as devices: below [`map::RAM`].
    ///
    /// # Safety
    /// The device does no DMA, or only into memory that Rust does not know of.
    pub const unsafe fn passed_through(base: u64) -> Self {
        assert!(base < map::RAM, "only the first GiB is mapped as devices");
        Self { base }
    }

    /// Returns the VM's interrupt distributor.
    pub(crate) fn distributor() -> Self {
        Self {
            base: device_map::gicd(),
        }
    }

    /// Returns the address of the register at `offset`.
    pub const fn address(self, offset: u64) -> u64 {
        self.base + offset
    }

    /// Reads a 32-bit register.
    pub fn read(self, offset: u64) -> u32 {
        // SAFETY: the only devices are the constants above and those that `passed_through` vouches
        // for; none of their registers is memory that Rust knows of. An offset without a
        // register faults and ends in `exceptions`.
        unsafe {
            core::ptr::with_exposed_provenance::<u32>(self.address(offset) as usize).read_volatile()
        }
    }

    /// Writes a 32-bit register.
    pub fn write(self, offset: u64, value: u32) {
        // SAFETY: as for `read`. The constants do no DMA, and the caller of `passed_through`
        // answers for the others.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u32>(self.address(offset) as usize)
                .write_volatile(value)
        }
    }

    /// Writes a 64-bit register.
    pub fn write_double(self, offset: u64, value: u64) {
        // SAFETY: as for `write`: the caller of `passed_through` answers for what the device does.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u64>(self.address(offset) as usize)
                .write_volatile(value)
        }
    }

    /// Writes an 8-bit field of a byte-accessible register.
    pub fn write_byte(self, offset: u64, value: u8) {
        // SAFETY: as for `write`: a register of a device that does no DMA into memory that Rust
        // knows of.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(self.address(offset) as usize)
                .write_volatile(value)
        }
    }
}
