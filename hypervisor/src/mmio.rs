//! Device registers: volatile access to the pages that `layout::DEVICES` maps.

/// A page of device registers at a fixed virtual address.
#[derive(Clone, Copy)]
pub struct Registers(u64);

impl Registers {
    /// The registers at `va`.
    ///
    /// # Safety
    /// `va` is one of the device pages of `layout`, or the console's physical base under the early map.
    pub const unsafe fn new(va: u64) -> Self {
        Self(va)
    }

    /// Reads the 32-bit register at `offset`, below 4096.
    #[inline(always)]
    pub fn read(self, offset: u32) -> u32 {
        // SAFETY: `new`'s contract; `offset` stays in the page for every caller in this crate.
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
