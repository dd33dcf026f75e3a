//! The system image as bytes: the reverse of what the hypervisor reads in `cloison_formats::image`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{END_MARKER, HEADER_LEN, Header, MAGIC, System, VERSION};

/// Returns the header's 64 bytes, with their CRC.
pub fn header_bytes(header: &Header) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    let words =
        [VERSION, header.config_len, header.config_crc, header.payload_offset, header.payload_len, header.payload_crc];
    for (slot, word) in bytes[8..32].chunks_exact_mut(4).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    let header_crc = crc32fast::hash(&bytes[..HEADER_LEN - 4]);
    bytes[HEADER_LEN - 4..].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Builds a complete system image: header, configuration, payload and end marker.
///
/// `payload` must already place each guest image on a page boundary, where
/// [`Image::offset`](cloison_formats::image::Image::offset) says. Neither the payload nor the system is checked here:
/// tests make images that no user could.
///
/// # Errors
///
/// If the configuration has no binary form.
pub fn encode(system: &System, payload: &[u8]) -> Result<Vec<u8>, postcard::Error> {
    let config = postcard::to_allocvec(system)?;
    let payload_offset = (HEADER_LEN + config.len()).next_multiple_of(PAGE_SIZE as usize);
    let header = Header {
        config_len: config.len() as u32,
        config_crc: crc32fast::hash(&config),
        payload_offset: payload_offset as u32,
        payload_len: payload.len() as u32,
        payload_crc: crc32fast::hash(payload),
    };
    let mut image = Vec::with_capacity(header.total_len() as usize);
    image.extend_from_slice(&header_bytes(&header));
    image.extend_from_slice(&config);
    image.resize(payload_offset, 0);
    image.extend_from_slice(payload);
    image.extend_from_slice(&END_MARKER);
    Ok(image)
}
