//! Images that a board starts one after the other: each says its own checksum when it starts, and
//! resets the machine at its end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Flat, Image, ImageError, ending};
use crate::files::sha256;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::boot::AtEnd;
use cloison_formats::image::{Header, MAGIC, System};
use miette::Diagnostic;
use std::num::NonZeroUsize;
use thiserror::Error;

/// Digits of the checksum that are part of the name.
const DIGITS: usize = 16;

/// Why an image cannot be made one of many.
#[derive(Debug, Error, Diagnostic)]
pub enum NumberedError {
    /// It contains no system.
    #[error("the file is not a system image of this version of Cloison")]
    #[diagnostic(help("make the jobs again with this program"))]
    NoSystem,
    /// Its board has no call that resets it.
    #[error("board `{board}` cannot be reset by its firmware, because it has no PSCI")]
    #[diagnostic(help(
        "only boards that turn themselves off by PSCI (no [power_off] in the board's file) run \
         one image after the other"
    ))]
    NoReset {
        /// The board.
        board: String,
    },
    /// The result is not valid.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Image(#[from] ImageError),
}

/// Returns an image as the one of this number: the system's name ends with the number and the
/// image's checksum, which its first line on the console and its first message of telemetry say,
/// and the machine is reset at the end, `within_s` seconds after its start at the latest. The rest
/// is unchanged.
///
/// The checksum is the start of the SHA-256 of the same image with the number and without the
/// checksum, so that it covers the hypervisor, the configuration and the guests. The same image
/// with another number has another one.
///
/// # Errors
///
/// If the file is no system image, or its board cannot be reset.
pub fn numbered(file: &[u8], number: NonZeroUsize, within_s: u32) -> Result<Image, NumberedError> {
    let (at, system, payload) = parts(file).ok_or(NumberedError::NoSystem)?;
    if system.board.power_off.is_some() {
        return Err(NumberedError::NoReset {
            board: system.board.name,
        });
    }
    let hypervisor = Flat {
        base: 0,
        entry: 0,
        bytes: file[..at].to_vec(),
    };
    let named = |name: String| {
        let system = System {
            name,
            ..system.clone()
        };
        ending(AtEnd::Reset { within_s }, &hypervisor, system, payload)
    };
    let name = format!("{} {number}", system.name);
    let sum = sha256(&named(name.clone())?.bytes);
    Ok(named(format!("{name} {}", &sum[..DIGITS]))?)
}

/// Returns the length of the hypervisor, the system and the guests of an image.
fn parts(file: &[u8]) -> Option<(usize, System, &[u8])> {
    (0..file.len()).step_by(PAGE_SIZE as usize).find_map(|at| {
        let rest = &file[at..];
        if !rest.starts_with(&MAGIC) {
            return None;
        }
        let header = Header::parse(rest, crc32fast::hash).ok()?;
        let system = header.decode(rest, crc32fast::hash).ok()?;
        let payload = header.payload_offset as usize;
        let payload = rest.get(payload..payload + header.payload_len as usize)?;
        Some((at, system, payload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::system_image;
    use crate::image::tests::{hypervisor, system};
    use cloison_formats::addr::PhysAddr;
    use cloison_formats::boot::BootParameters;
    use cloison_formats::image::PowerOff;

    fn number(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).expect("it is not 0")
    }

    #[test]
    fn an_image_says_its_checksum_and_resets_the_machine() {
        let plain = system_image(&hypervisor(), system(), b"8 bytes.").expect("it is valid");
        let [one, same, two] =
            [1, 1, 2].map(|of| numbered(&plain.bytes, number(of), 9).expect("it is valid"));
        assert_eq!(one.bytes, same.bytes);
        assert_ne!(one.system.name, two.system.name);
        let expected = format!("{} 1 ", system().name);
        let sum = one.system.name.strip_prefix(&expected).expect("its number");
        assert_eq!(sum.len(), DIGITS);
        let parameters = |image: &Image| {
            BootParameters::from_bytes(image.bytes[64..96].try_into().expect("32 bytes"))
        };
        assert_eq!(parameters(&plain).at_end, AtEnd::Off);
        assert_eq!(parameters(&one).at_end, AtEnd::Reset { within_s: 9 });
        // Nothing else differs.
        let name = system().name;
        let found = System {
            name,
            ..one.system.clone()
        };
        assert_eq!((found, one.payload()), (system(), plain.payload()));
        // Another guest, and another hypervisor.
        let other = system_image(&hypervisor(), system(), b"9 bytes.").expect("it is valid");
        let mut patched = hypervisor();
        patched.bytes[4999] ^= 1;
        let patched = system_image(&patched, system(), b"8 bytes.").expect("it is valid");
        for other in [other, patched] {
            let other = numbered(&other.bytes, number(1), 9).expect("it is valid");
            assert_ne!(other.system.name, one.system.name);
        }
    }

    #[test]
    fn what_cannot_be_numbered_is_refused() {
        assert!(matches!(
            numbered(&[0; 8192], number(1), 9),
            Err(NumberedError::NoSystem)
        ));
        let mut without = system();
        without.board.power_off = Some(PowerOff {
            page: PhysAddr(0xfe10_0000),
            writes: vec![(0x20, 1)],
        });
        let image = system_image(&hypervisor(), without, b"8 bytes.").expect("it is valid");
        assert!(matches!(
            numbered(&image.bytes, number(1), 9),
            Err(NumberedError::NoReset { .. })
        ));
    }
}
