//! Scripts for U-Boot, as text and in the form that its command `source` accepts.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Wraps a script in U-Boot's legacy image header, as `mkimage -T script` does, so that `source`
/// accepts it.
pub fn wrapped(script: &str) -> Vec<u8> {
    const MAGIC: u32 = 0x2705_1956;
    const LINUX: u8 = 5;
    const ARM64: u8 = 22;
    const SCRIPT: u8 = 6;
    const UNCOMPRESSED: u8 = 0;
    // A script image contains a list of lengths that ends with 0, then the scripts.
    let mut data = (script.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(&0_u32.to_be_bytes());
    data.extend_from_slice(script.as_bytes());
    let mut name = [0; 32];
    name[..7].copy_from_slice(b"Cloison");
    let header = |header_crc: u32| {
        let mut header = Vec::with_capacity(64);
        // Time, load address and entry point are 0: the image does not depend on when it is built,
        // and is not executed.
        for word in [
            MAGIC,
            header_crc,
            0,
            data.len() as u32,
            0,
            0,
            crc32fast::hash(&data),
        ] {
            header.extend_from_slice(&word.to_be_bytes());
        }
        header.extend_from_slice(&[LINUX, ARM64, SCRIPT, UNCOMPRESSED]);
        header.extend_from_slice(&name);
        header
    };
    // The header's CRC is computed with its own field set to 0.
    let mut image = header(crc32fast::hash(&header(0)));
    image.extend_from_slice(&data);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_header_that_u_boot_checks() {
        let image = wrapped("echo hello\n");
        let word = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), 0x2705_1956);
        assert_eq!(word(12) as usize, image.len() - 64);
        assert_eq!(word(24), crc32fast::hash(&image[64..]));
        let mut header = image[..64].to_vec();
        header[4..8].fill(0);
        assert_eq!(word(4), crc32fast::hash(&header));
        assert_eq!(&image[28..32], [5, 22, 6, 0]);
        assert_eq!(word(64), 11);
        assert_eq!(word(68), 0);
        assert_eq!(&image[72..], b"echo hello\n");
    }
}
