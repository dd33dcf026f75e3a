//! The system image that runs: its configuration, from the file that QEMU loads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{Header, MAGIC, System};
use std::path::Path;

/// Reads the configuration of a boot image.
///
/// # Errors
///
/// The file, and what is wrong with it.
pub fn read(file: &Path) -> Result<System, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    // The hypervisor before it is a whole number of pages long. It has the magic's bytes too.
    let header = (0..bytes.len())
        .step_by(PAGE_SIZE as usize)
        .map(|at| &bytes[at..])
        .filter(|rest| rest.starts_with(&MAGIC))
        .find_map(|rest| Some((Header::parse(rest, crc32fast::hash).ok()?, rest)));
    let (header, rest) =
        header.ok_or_else(|| format!("{}: no system image in it", file.display()))?;
    let decoded = header.decode(rest, crc32fast::hash);
    decoded.map_err(|error| format!("{}: {error}", file.display()))
}
