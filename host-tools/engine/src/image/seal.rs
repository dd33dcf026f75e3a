//! The system image as bytes: the reverse of what the hypervisor reads in `cloison_formats::image`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::boot::{self, AtEnd, BootParameters};
use cloison_formats::image::{END_MARKER, HEADER_LEN, Header, MAGIC, System, VERSION};

/// Returns the header's 64 bytes, with their CRC.
pub fn header_bytes(header: &Header) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    let words = [
        VERSION,
        header.config_len,
        header.config_crc,
        header.payload_offset,
        header.payload_len,
        header.payload_crc,
    ];
    for (slot, word) in bytes[8..32].chunks_exact_mut(4).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    let header_crc = crc32fast::hash(&bytes[..HEADER_LEN - 4]);
    bytes[HEADER_LEN - 4..].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Builds a complete system image: header, configuration, payload and end marker.
///
/// `payload` must already have each guest image on a page boundary, at its
/// [`Image::offset`](cloison_formats::image::Image::offset). Neither the payload nor the system is
/// checked here: tests make images that no user could.
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

/// Returns the bytes of the boot parameters, as [`BootParameters::from_bytes`] reads them.
pub fn boot_parameters(parameters: &BootParameters) -> [u8; boot::LEN] {
    let number = |wanted| {
        boot::KINDS
            .iter()
            .find(|(_, kind)| *kind == wanted)
            .map_or(0, |(number, _)| *number)
    };
    let (kind, base) = parameters
        .console
        .map_or((0, 0), |(kind, base)| (number(kind), base.0));
    let words = [
        u64::from_le_bytes(boot::MAGIC),
        base,
        kind,
        match parameters.psci {
            true => 0,
            false => boot::NO_PSCI,
        } | match parameters.at_end {
            AtEnd::Off => 0,
            AtEnd::Reset { within_s } => boot::RESET | u64::from(within_s) << boot::SECONDS,
        },
    ];
    let mut bytes = [0; boot::LEN];
    bytes
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(words)
        .for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_parameters_are_read_as_they_were_written() {
        use cloison_formats::addr::PhysAddr;
        use cloison_formats::image::UartKind;
        let consoles = [UartKind::Pl011, UartKind::Cadence, UartKind::Mini]
            .map(|kind| Some((kind, PhysAddr(0xff00_0000))));
        for (console, psci, at_end) in consoles.into_iter().chain([None]).flat_map(|console| {
            [
                (console, false, AtEnd::Off),
                (console, true, AtEnd::Off),
                (console, true, AtEnd::Reset { within_s: 600 }),
            ]
        }) {
            let parameters = BootParameters {
                console,
                psci,
                at_end,
            };
            let bytes = boot_parameters(&parameters);
            assert_eq!(bytes[..8], boot::MAGIC);
            assert_eq!(BootParameters::from_bytes(&bytes), parameters);
        }
    }
}
