//! QEMU's handles of registers, by the registers' names.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_qemu::guest::Register;

/// Handles of `N` registers, none where QEMU has not named it.
#[derive(Clone, Copy, Debug)]
pub struct Handles<const N: usize> {
    names: &'static [&'static [u8]; N],
    /// The handles, in the order of the names.
    pub of: [Option<Register>; N],
}

impl<const N: usize> Handles<N> {
    /// Returns a table without handles, for the registers with these names.
    pub const fn new(names: &'static [&'static [u8]; N]) -> Self {
        Self {
            names,
            of: [None; N],
        }
    }

    /// Records QEMU's handle of the register with this name. Some versions leave out the level in
    /// the names of some.
    pub fn learn(&mut self, name: &[u8], register: Register) {
        let is = |known: &[u8]| known == name || known.strip_suffix(b"_EL1") == Some(name);
        if let Some(place) = self.names.iter().position(|known| is(known)) {
            self.of[place] = Some(register);
        }
    }

    /// Returns the first register that QEMU lacks.
    pub fn missing(&self) -> Option<&'static str> {
        let place = self.of.iter().position(|handle| handle.is_none())?;
        std::str::from_utf8(self.names[place]).ok()
    }
}
