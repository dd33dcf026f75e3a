//! The claims: what a board file says of its board, as bytes after the hello image.
//!
//! ```text
//! magic      8 bytes, `CLOIHELO`
//! version    4 bytes, little-endian, as the next two
//! length     4 bytes: of the claims
//! CRC-32     4 bytes: of the claims
//! claims     postcard of `Claims`
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::CRC;
use alloc::string::String;
use alloc::vec::Vec;
use cloison_formats::addr::PhysRange;
use cloison_formats::image::Board;
use cloison_formats::units::EventId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// First bytes of the claims.
const MAGIC: [u8; 8] = *b"CLOIHELO";
/// Version of [`Claims`].
const VERSION: u32 = 2;
/// Bytes before the claims.
const HEADER: usize = 20;

/// Where an image boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// On the board.
    Board,
    /// In QEMU, which leaves out some of the board's interrupts.
    Emulator,
}

/// What a board file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// The board, as the hypervisor gets it.
    pub board: Board,
    /// Where the image boots: it makes the CRC of the two differ.
    pub place: Place,
    /// Name of the CPU.
    pub cpu: String,
    /// Event counters of each core.
    pub counters: u32,
    /// The events of the CPU's table.
    pub events: Vec<EventId>,
    /// All CPUs with a table.
    pub cpus: Vec<Cpu>,
    /// The devices that VMs may have.
    pub devices: Vec<Device>,
    /// The calls that guests may be given.
    pub firmware: Firmware,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its registers.
    pub range: PhysRange,
    /// What clocks it.
    pub clock: Clock,
}

/// What clocks a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// Something that is always on, as far as the board file says.
    Always,
    /// The firmware, on request.
    Firmware,
}

/// The firmware's calls that guests may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Firmware {
    /// None.
    None,
    /// Those of a ZynqMP (UG1200).
    Eemi,
}

/// A CPU with an event table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its name.
    pub name: String,
    /// MIDR_EL1 of any variant and revision: these fields are 0.
    pub midr: u64,
}

/// Why bytes are no claims. `Display` is what the user sees on the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClaimsError {
    /// The magic is missing.
    #[error("no claims follow the image; write one with `cloison board hello`")]
    None,
    /// They are of another version.
    #[error("the claims have version {0}, this image reads version {VERSION}")]
    Version(u32),
    /// The bytes end before the claims do.
    #[error("the image is truncated: {0} bytes of claims expected")]
    Truncated(u32),
    /// The CRC does not match, or the claims do not decode.
    #[error("the claims are damaged: copy the image again")]
    Damaged,
}

/// Returns the claims as bytes.
///
/// # Errors
///
/// If they have no binary form.
pub fn encode(claims: &Claims) -> Result<Vec<u8>, postcard::Error> {
    let body = postcard::to_allocvec(claims)?;
    let mut bytes = MAGIC.to_vec();
    for word in [VERSION, body.len() as u32, CRC.checksum(&body)] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads claims from the start of `bytes`, which may be longer. Also returns their CRC, which names
/// them in the log.
///
/// # Errors
///
/// If `bytes` does not start with whole claims.
pub fn decode(bytes: &[u8]) -> Result<(Claims, u32), ClaimsError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(ClaimsError::None);
    }
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map(u32::from_le_bytes).ok_or(ClaimsError::Damaged)
    };
    let (version, length, expected) = (word(8)?, word(12)?, word(16)?);
    if version != VERSION {
        return Err(ClaimsError::Version(version));
    }
    let body = bytes[HEADER..]
        .get(..length as usize)
        .ok_or(ClaimsError::Truncated(length))?;
    if CRC.checksum(body) != expected {
        return Err(ClaimsError::Damaged);
    }
    let claims = postcard::from_bytes(body).map_err(|_| ClaimsError::Damaged)?;
    Ok((claims, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::blank::blank;

    fn claims() -> Claims {
        Claims {
            board: blank(),
            place: Place::Board,
            cpu: "cortex-a53".into(),
            counters: 6,
            events: [EventId(0x11)].to_vec(),
            cpus: Vec::new(),
            devices: Vec::new(),
            firmware: Firmware::None,
        }
    }

    #[test]
    fn claims_are_read_as_they_were_written_and_damage_is_found() {
        let mut bytes = encode(&claims()).expect("they have a form");
        let whole = bytes.len();
        bytes.extend([0; 9]);
        let (read, sum) = decode(&bytes).expect("they are whole");
        assert_eq!(read, claims());
        assert_eq!(bytes[16..20], sum.to_le_bytes());
        assert_eq!(decode(&bytes[1..]), Err(ClaimsError::None));
        let length = (whole - HEADER) as u32;
        assert_eq!(
            decode(&bytes[..whole - 1]),
            Err(ClaimsError::Truncated(length))
        );
        assert_eq!(decode(&bytes[..10]), Err(ClaimsError::Damaged));
        for at in HEADER..whole {
            bytes[at] ^= 4;
            assert_eq!(decode(&bytes), Err(ClaimsError::Damaged), "byte {at}");
            bytes[at] ^= 4;
        }
        bytes[8] = 9;
        assert_eq!(decode(&bytes), Err(ClaimsError::Version(9)));
    }
}
