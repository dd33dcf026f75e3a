//! QEMU's handles of registers, by the registers' names.
// SPDX-License-Identifier: MIT OR Apache-2.0

use libc::c_void;

/// Handles of `N` registers, each null where QEMU has not named it.
#[derive(Clone, Copy, Debug)]
pub struct Handles<const N: usize> {
    names: &'static [&'static [u8]; N],
    /// The handles, in the order of the names.
    pub of: [*mut c_void; N],
}

impl<const N: usize> Handles<N> {
    /// Returns a table without handles, for the registers with these names.
    pub const fn new(names: &'static [&'static [u8]; N]) -> Self {
        Self {
            names,
            of: [std::ptr::null_mut(); N],
        }
    }

    /// Records QEMU's handle of the register with this name.
    pub fn learn(&mut self, name: &[u8], handle: *mut c_void) {
        if let Some(place) = self.names.iter().position(|known| *known == name) {
            self.of[place] = handle;
        }
    }

    /// Returns the first register that QEMU lacks.
    pub fn missing(&self) -> Option<&'static str> {
        let place = self.of.iter().position(|handle| handle.is_null())?;
        std::str::from_utf8(self.names[place]).ok()
    }
}
