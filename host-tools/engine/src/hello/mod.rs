//! The hello image, which compares a new board with its board file, and what its log says.
//!
//! | module | contents |
//! | --- | --- |
//! | [`log`] | the lines in a console's text, and what is wrong with them |
//! | [`correction`] | the wrong fields of the board file, and the file with the right values |
//! | [`counts`] | what events counted, as `events validate --counts` reads it |
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod correction;
pub mod counts;
pub mod log;

use crate::image::{self, seal};
use crate::{configuration, parts};
use cloison_config::BoardFile;
use cloison_config::devices::BoardDevice;
use cloison_config::event_map::CpuMap;
use cloison_config::firmware::Eemi;
use cloison_formats::boot::{self, AtEnd, BootParameters};
use cloison_formats::image::FirmwareAccess;
use cloison_hello::claims::{self, Claims, Clock, Cpu, Device, Firmware, Place};
use miette::{IntoDiagnostic, Result, miette};

/// Offset of `image_size` in the arm64 Image header.
const IMAGE_SIZE: usize = 16;
/// The block that the image and its claims are in, which it maps at its start.
const BLOCK: usize = 2 << 20;
/// Most bytes of both: the block's last page is for probes of memory that repeats itself.
const LONGEST: usize = BLOCK - 4096;

/// Returns what a board file claims in this place.
///
/// # Errors
///
/// Returns the errors of the list of CPUs.
pub fn claims(board: &BoardFile, place: Place) -> Result<Claims> {
    let path = configuration::directory().join("events/arm64/mapfile.csv");
    let (map, problems) = CpuMap::load(&path);
    if !problems.is_empty() {
        let file = path.display().to_string();
        return Err(cloison_config::Errors::new(&file, problems).into());
    }
    let cpus = map.cpus().map(|(id, name)| Cpu {
        name: name.to_owned(),
        midr: id.number(),
    });
    let mut described = board.board.clone();
    let emulation = board.emulation.as_ref();
    if let (Place::Emulator, Some(emulation)) = (place, emulation) {
        let left_out = &emulation.overflow_interrupts;
        described.pmu_irqs.retain(|irq| !left_out.contains(irq));
    }
    let device = |device: &BoardDevice| Device {
        name: device.name.clone(),
        range: device.range,
        clock: if device.firmware == FirmwareAccess::default() {
            Clock::Always
        } else {
            Clock::Firmware
        },
    };
    Ok(Claims {
        board: described,
        place,
        cpu: board.events.cpu.clone(),
        counters: board.counters,
        events: board.events.events.iter().map(|event| event.id).collect(),
        cpus: cpus.collect(),
        devices: board.devices.iter().map(device).collect(),
        firmware: match board.eemi {
            Eemi::Absent => Firmware::None,
            Eemi::There => Firmware::Eemi,
        },
    })
}

/// Returns the bytes of the claims, and their CRC as the log has it.
///
/// # Errors
///
/// If the claims have no binary form.
pub fn encoded(claims: &Claims) -> Result<(Vec<u8>, String)> {
    let bytes = claims::encode(claims).into_diagnostic()?;
    let (_, sum) = claims::decode(&bytes).into_diagnostic()?;
    Ok((bytes, format!("{sum:08x}")))
}

/// Builds the hello image for a board: the file for QEMU's `-kernel` and U-Boot's `booti`.
///
/// # Errors
///
/// If it does not build, or the board file is too long for it.
pub fn build(board: &BoardFile, place: Place) -> Result<Vec<u8>> {
    let claims = claims(board, place)?;
    let mut bytes = image::flatten(&parts::hello()?)?.bytes;
    bytes.extend(encoded(&claims)?.0);
    if bytes.len() > LONGEST {
        return Err(miette!(
            help = "shorten the lists of the board file",
            "the hello image has {} bytes with this board file, and takes at most {LONGEST}",
            bytes.len()
        ));
    }
    let parameters = BootParameters {
        console: Some((claims.board.console.kind, claims.board.console.base)),
        psci: claims.board.power_off.is_none(),
        at_end: AtEnd::Off,
    };
    let length = (BLOCK as u64).to_le_bytes();
    for (at, value) in [
        (IMAGE_SIZE, &length[..]),
        (boot::OFFSET, &seal::boot_parameters(&parameters)),
    ] {
        bytes[at..at + value.len()].copy_from_slice(value);
    }
    Ok(bytes)
}
