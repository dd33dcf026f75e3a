//! What the hello image is given and what it prints, shared by the image and the host.
//!
//! | module | contents |
//! | --- | --- |
//! | [`claims`] | what a board file says of its board, as bytes after the image |
//! | [`mod@line`] | a line of the log: what was checked, expected and found |
//! | [`early`] | what the image prints where it cannot check anything |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod claims;
pub mod early;
pub mod line;

use crc::{CRC_32_ISO_HDLC, Crc};

/// CRC-32 as in zlib: of the claims, and of each line.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// What the second UART sends: a line by which a reader knows its port.
pub const TELEMETRY_LINE: &str = "cloison hello: this is the telemetry's port\r\n";
