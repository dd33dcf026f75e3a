//! Blocks of device registers at the addresses where EL2 maps them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::layout;
use cloison_abi::gicv2::Gicd;
#[cfg(not(feature = "gicv3"))]
use cloison_abi::gicv2::{Gicc, GiccDeactivate, Gich};
use cloison_formats::addr::PAGE_SIZE;
use core::marker::PhantomData;
use core::ops::Deref;
use tock_registers::registers::ReadWrite;

/// A block of device registers that is mapped as long as it is used.
pub struct Mapped<T>(u64, PhantomData<fn() -> T>);

impl<T> Mapped<T> {
    /// The block at this address.
    ///
    /// # Safety
    /// The page there must be mapped as a device and show the registers that `T` describes,
    /// whenever the block is used.
    pub const unsafe fn new(address: u64) -> Self {
        Self(address, PhantomData)
    }
}

impl<T> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Mapped<T> {}

impl<T> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the creator of the block guarantees that the address is mapped, and `T` consists
        // of volatile registers.
        unsafe { &*(self.0 as *const T) }
    }
}

/// A page of registers that only the board file describes.
pub type Page = [ReadWrite<u32>; 1024];

/// Interrupt distributor.
// SAFETY: the final tables map this page permanently, as `layout` says, and nothing uses it before
// they are on.
pub const GICD: Mapped<Gicd> = unsafe { Mapped::new(layout::GICD) };
#[cfg(not(feature = "gicv3"))]
/// CPU interface, first page.
// SAFETY: the final tables map this page permanently, as `layout` says; no use before.
pub const GICC: Mapped<Gicc> = unsafe { Mapped::new(layout::GICC) };
#[cfg(not(feature = "gicv3"))]
/// CPU interface, second page.
// SAFETY: the final tables map this page permanently, as `layout` says; no use before.
pub const GICC_DIR: Mapped<GiccDeactivate> = unsafe { Mapped::new(layout::GICC_DIR) };
#[cfg(not(feature = "gicv3"))]
/// Virtual interface control.
// SAFETY: the final tables map this page permanently, as `layout` says; no use before.
pub const GICH: Mapped<Gich> = unsafe { Mapped::new(layout::GICH) };
#[cfg(feature = "gicv3")]
/// GICD_IROUTER of a GICv3, instead of a CPU interface.
// SAFETY: the final tables map these two pages permanently, as `layout` says; no use before.
pub const ROUTES: Mapped<[ReadWrite<u64>; 1024]> = unsafe { Mapped::new(layout::GICC) };

#[cfg(feature = "gicv3")]
/// Returns the first page of a frame of a GICv3's redistributors.
pub fn redistributor<T>(frame: usize) -> Mapped<T> {
    let frame = frame.min(layout::REDISTRIBUTOR_PAGES - 1) as u64;
    // SAFETY: the final tables map this page permanently for the core that asks; no use before.
    unsafe { Mapped::new(layout::REDISTRIBUTORS + frame * PAGE_SIZE) }
}

/// The SMMU, first page.
// SAFETY: the final tables map this page permanently in a system with an SMMU, as `layout` says; no
// other use.
pub const SMMU: Mapped<Page> = unsafe { Mapped::new(layout::SMMU) };
/// The first page after 64 KiB of the SMMU's registers, with the indices of its event queue.
// SAFETY: as for `SMMU`.
pub const SMMU_EVENTS: Mapped<Page> = unsafe { Mapped::new(layout::SMMU_EVENTS) };
/// Returns the page of the register of one of `System::stops`.
///
/// # Safety
/// There must be so many; no use before the final tables, which map a page for each, are on.
pub const unsafe fn stop(number: usize) -> Mapped<Page> {
    // SAFETY: as the caller answers for.
    unsafe { Mapped::new(layout::STOPS + number as u64 * PAGE_SIZE) }
}

/// Registers that turn the machine off.
// SAFETY: the final tables map this page permanently, as `layout` says; no use before.
pub const POWER_OFF: Mapped<Page> = unsafe { Mapped::new(layout::POWER_OFF) };
