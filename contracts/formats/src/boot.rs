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

/// Set in the last word if the firmware has no PSCI.
pub const NO_PSCI: u64 = 1;
/// Set in the last word if the machine is reset at the end of the run.
pub const RESET: u64 = 2;
/// The first bit of the last word's number of seconds after which it is reset at the latest.
pub const SECONDS: u32 = 32;

/// What happens to the machine when the system has ended, or cannot continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtEnd {
    /// It is turned off.
    #[default]
    Off,
    /// It is reset, so that its boot loader can start the next image. The firmware must have PSCI.
    Reset {
        /// So many seconds after the start at the latest, also if the system has not ended.
        within_s: u32,
    },
}

/// The boot parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootParameters {
    /// The console's UART; `None` in an image that the image builder has not completed.
    pub console: Option<(UartKind, PhysAddr)>,
    /// Whether the firmware has PSCI.
    pub psci: bool,
    /// What happens at the end.
    pub at_end: AtEnd,
}

/// The numbers of the UART kinds.
pub const KINDS: [(u64, UartKind); 3] = [
    (1, UartKind::Pl011),
    (2, UartKind::Cadence),
    (3, UartKind::Mini),
];

impl BootParameters {
    /// Reads the parameters: the magic, the console's base and kind, and [`NO_PSCI`], [`RESET`] and
    /// the seconds, each of 8 bytes, little-endian. The hypervisor's first instructions read the base. An
    /// unknown kind of console gives `None`.
    pub fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let word =
            |index: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[index * 8 + byte]));
        let kind = KINDS.iter().find(|(number, _)| *number == word(2));
        Self {
            console: kind.map(|&(_, kind)| (kind, PhysAddr(word(1)))),
            psci: word(3) & NO_PSCI == 0,
            at_end: match word(3) & RESET {
                0 => AtEnd::Off,
                _ => AtEnd::Reset {
                    within_s: (word(3) >> SECONDS) as u32,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_four_words_of_which_the_first_is_not_read() {
        let bytes = |kind: u64, flags: u64| {
            let mut bytes = [0xee; LEN];
            bytes[8..16].copy_from_slice(&0x900_0000_u64.to_le_bytes());
            bytes[16..24].copy_from_slice(&kind.to_le_bytes());
            bytes[24..].copy_from_slice(&flags.to_le_bytes());
            bytes
        };
        for (number, kind) in KINDS {
            let read = BootParameters::from_bytes(&bytes(number, 0));
            assert_eq!(read.console, Some((kind, PhysAddr(0x900_0000))));
            assert!(read.psci && read.at_end == AtEnd::Off);
        }
        assert_eq!(
            BootParameters::from_bytes(&bytes(1, RESET | 7 << SECONDS)).at_end,
            AtEnd::Reset { within_s: 7 }
        );
        let other = BootParameters::from_bytes(&bytes(0, NO_PSCI));
        assert_eq!(
            other,
            BootParameters {
                console: None,
                psci: false,
                at_end: AtEnd::Off
            }
        );
    }
}
