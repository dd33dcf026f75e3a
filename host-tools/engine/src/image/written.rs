//! A system image that an earlier command has written, read back from its file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::Image;
use crate::files;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{END_MARKER, Header, ImageError, MAGIC};
use miette::{Result, miette};
use std::path::Path;

/// Reads a file that [`Image::write`] has written.
///
/// # Errors
///
/// If it cannot be read, is damaged, or is no system image of this version.
pub fn read(path: &Path) -> Result<Image> {
    let bytes = files::read(path, files::IMAGE)?;
    parse(bytes).map_err(|error| {
        miette!(
            help = "name the file `Image` that this version of Cloison has written, or write it \
                    again",
            "{} is no system image: {error}",
            path.display()
        )
    })
}

/// Finds the system behind the hypervisor, which takes a whole number of pages.
fn parse(bytes: Vec<u8>) -> Result<Image, ImageError> {
    let page = PAGE_SIZE as usize;
    let mut starts = (0..bytes.len()).step_by(page);
    let hypervisor_len = starts
        .rfind(|&at| bytes[at..].starts_with(&MAGIC))
        .ok_or(ImageError::NoImage)?;
    let rest = &bytes[hypervisor_len..];
    let header = Header::parse(rest, crc32fast::hash)?;
    let system = header.decode(rest, crc32fast::hash)?;
    let start = hypervisor_len + header.payload_offset as usize;
    let payload = start..hypervisor_len + header.total_len() as usize - END_MARKER.len();
    Ok(Image {
        bytes,
        system,
        hypervisor_len,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::super::system_image;
    use super::super::tests::{hypervisor, system};
    use super::*;

    #[test]
    fn an_image_is_read_as_it_was_written_and_damage_is_named() {
        let written = system_image(&hypervisor(), system(), b"8 bytes.").expect("an image");
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("Image");
        written.write(&file).expect("it can be written");
        let read_back = read(&file).expect("it is whole");
        assert_eq!(read_back.bytes, written.bytes);
        assert_eq!(read_back.system, written.system);
        assert_eq!(read_back.payload(), written.payload());
        assert_eq!(read_back.hypervisor_len, written.hypervisor_len);
        let mut damaged = written.bytes.clone();
        damaged[written.hypervisor_len + 64] ^= 1;
        let cut = &written.bytes[..written.bytes.len() - 1];
        for (bytes, expected) in [
            (&damaged[..], "damaged"),
            (cut, "truncated"),
            (b"x", "no s"),
        ] {
            std::fs::write(&file, bytes).expect("it can be written");
            let error = read(&file).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
