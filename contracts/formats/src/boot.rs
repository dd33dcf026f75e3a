//! The boot parameters in the hypervisor's first page, which it needs before it can read the
//! configuration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::addr::PhysAddr;
use crate::image::UartKind;

/// Offset of the boot parameters in the hypervisor's image, behind the arm64 Image header.
pub const OFFSET: usize = 64;
/// Their first bytes.
pub const MAGIC: [u8; 8] = *b"CLOIBOOT";
/// Their length in bytes.
pub const LEN: usize = 32;

/// The boot parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootParameters {
    /// The console's UART; `None` in an image that the image builder has not completed.
    pub console: Option<(UartKind, PhysAddr)>,
    /// Whether the firmware has PSCI.
    pub psci: bool,
}

/// The numbers of the UART kinds.
pub const KINDS: [(u64, UartKind); 3] = [
    (1, UartKind::Pl011),
    (2, UartKind::Cadence),
    (3, UartKind::Mini),
];

impl BootParameters {
    /// Reads the parameters: the magic, the console's base and kind, and 1 if there is no PSCI,
    /// each of 8 bytes, little-endian. The hypervisor's first instructions read the base. An
    /// unknown kind of console gives `None`.
    pub fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let word =
            |index: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[index * 8 + byte]));
        let kind = KINDS.iter().find(|(number, _)| *number == word(2));
        Self {
            console: kind.map(|&(_, kind)| (kind, PhysAddr(word(1)))),
            psci: word(3) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_four_words_of_which_the_first_is_not_read() {
        let bytes = |kind: u64, no_psci: u64| {
            let mut bytes = [0xee; LEN];
            bytes[8..16].copy_from_slice(&0x900_0000_u64.to_le_bytes());
            bytes[16..24].copy_from_slice(&kind.to_le_bytes());
            bytes[24..].copy_from_slice(&no_psci.to_le_bytes());
            bytes
        };
        for (number, kind) in KINDS {
            let read = BootParameters::from_bytes(&bytes(number, 0));
            assert_eq!(read.console, Some((kind, PhysAddr(0x900_0000))));
            assert!(read.psci);
        }
        let other = BootParameters::from_bytes(&bytes(0, 1));
        assert_eq!(
            other,
            BootParameters {
                console: None,
                psci: false
            }
        );
    }
}
