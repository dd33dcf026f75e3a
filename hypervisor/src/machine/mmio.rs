//! Device registers: volatile access to the pages that `layout::DEVICES` maps.

use crate::machine::layout;
use cloison_formats::addr::PhysAddr;

/// A page of device registers that is mapped for good. Only this module makes one.
#[derive(Clone, Copy)]
pub struct Registers(u64);

/// Interrupt distributor.
pub const GICD: Registers = Registers(layout::GICD);
/// CPU interface, first page.
pub const GICC: Registers = Registers(layout::GICC);
/// CPU interface, second page.
pub const GICC_DIR: Registers = Registers(layout::GICC_DIR);
/// Virtual interface control.
pub const GICH: Registers = Registers(layout::GICH);
/// Console UART.
pub const CONSOLE: Registers = Registers(layout::CONSOLE);
/// Telemetry UART.
pub const TELEMETRY: Registers = Registers(layout::TELEMETRY);
/// What turns the machine off.
pub const POWER_OFF: Registers = Registers(layout::POWER_OFF);

impl Registers {
    /// The console under the early map, at the address that the image builder has named.
    pub fn early_console(base: PhysAddr) -> Self {
        Self(base.0)
    }

    /// Reads the 32-bit register at `offset`, below 4096.
    #[inline(always)]
    pub fn read(self, offset: u32) -> u32 {
        // SAFETY: the final tables map the pages of `layout` as devices, and the early map the console's gigabyte; each
        // is used only while its map is on. `offset` stays in the page for every caller in this crate.
        unsafe { ((self.0 + u64::from(offset)) as *const u32).read_volatile() }
    }

    /// Writes the 32-bit register at `offset`, below 4096.
    #[inline(always)]
    pub fn write(self, offset: u32, value: u32) {
        // SAFETY: as in `read`.
        unsafe { ((self.0 + u64::from(offset)) as *mut u32).write_volatile(value) }
    }

    /// Writes the byte at `offset`, for the distributor's byte-wide registers.
    #[inline(always)]
    pub fn write_byte(self, offset: u32, value: u8) {
        // SAFETY: as in `read`.
        unsafe { ((self.0 + u64::from(offset)) as *mut u8).write_volatile(value) }
    }
}
