//! The header of an arm64 kernel (`Documentation/arch/arm64/booting.rst`), and detection of other
//! files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use object::LittleEndian;
use object::pe::{ImageDosHeader, ImageNtHeaders64};
use object::read::pe::ImageNtHeaders;
use thiserror::Error;

/// Contents of a kernel's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Offset of the first byte from a 2 MiB boundary.
    pub text_offset: u64,
    /// Bytes of memory that the kernel needs from its first byte on, including the part that it
    /// clears itself.
    pub size: u64,
    /// Length of the file.
    pub file_len: u64,
}

/// Errors in a kernel file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error("it has {0} bytes, and an arm64 kernel's header alone has {HEADER_LEN}")]
    TooShort(usize),
    #[error("it is {0}, not an arm64 kernel (`Image`, with ARM\\x64 at byte 56)")]
    Other(&'static str),
    #[error("it is truncated: its sections end at byte {expected}, and it has {found} bytes")]
    Truncated { expected: u64, found: u64 },
    #[error("its header claims {size} bytes of memory, but the file has {found}")]
    Size { size: u64, found: u64 },
    #[error("it is {0}")]
    Unfit(&'static str),
}

const HEADER_LEN: usize = 64;
const MAGIC: (usize, &[u8]) = (56, b"ARM\x64");
/// Flags: big-endian; page size in bits 1 and 2 (1: 4 KiB, 2: 16 KiB, 3: 64 KiB).
const BIG_ENDIAN: u64 = 1;
const PAGES_16K: u64 = 2;

impl Kernel {
    /// Reads the header, and checks that the file is complete.
    pub fn parse(bytes: &[u8]) -> Result<Self, KernelError> {
        if bytes.len() < HEADER_LEN {
            return Err(KernelError::TooShort(bytes.len()));
        }
        if !bytes[MAGIC.0..].starts_with(MAGIC.1) {
            return Err(KernelError::Other(what_else(bytes)));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let (text_offset, size, flags) = (word(8), word(16), word(24));
        if flags & BIG_ENDIAN != 0 {
            return Err(KernelError::Unfit("a big-endian kernel"));
        }
        if flags >> 1 & 3 == PAGES_16K {
            return Err(KernelError::Unfit(
                "made for pages of 16 KiB, which a Cortex-A53 does not have",
            ));
        }
        if text_offset % 4096 != 0 || text_offset >= 2 << 20 {
            return Err(KernelError::Unfit(
                "damaged: its text offset is not a page below 2 MiB",
            ));
        }
        let found = bytes.len() as u64;
        if size < found || size > 1 << 30 {
            return Err(KernelError::Size { size, found });
        }
        if let Some(expected) = end_of_sections(bytes).filter(|&end| end > found) {
            return Err(KernelError::Truncated { expected, found });
        }
        Ok(Self {
            text_offset,
            size,
            file_len: found,
        })
    }
}

/// Returns where the file should end. A kernel with an EFI stub (Debian's all have one) is also a
/// PE file, which records it.
fn end_of_sections(bytes: &[u8]) -> Option<u64> {
    let dos = ImageDosHeader::parse(bytes).ok()?;
    let mut offset = dos.nt_headers_offset().into();
    let (headers, _) = ImageNtHeaders64::parse(bytes, &mut offset).ok()?;
    let sections = headers.sections(bytes, offset).ok()?;
    let end = |section: &object::pe::ImageSectionHeader| {
        u64::from(section.pointer_to_raw_data.get(LittleEndian))
            + u64::from(section.size_of_raw_data.get(LittleEndian))
    };
    sections.iter().map(end).max()
}

fn what_else(bytes: &[u8]) -> &'static str {
    let at = |offset: usize, magic: &[u8]| {
        bytes
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    if at(0x202, b"HdrS") {
        "an x86 kernel"
    } else if at(4, b"zimg") {
        "a compressed EFI kernel, which has to be unpacked"
    } else if at(0, b"\x1f\x8b") {
        "a file packed by gzip, which has to be unpacked"
    } else if at(0, b"\x7fELF") {
        "an ELF file"
    } else if at(0x24, &0x016f_2818_u32.to_le_bytes()) {
        "a 32-bit Arm kernel"
    } else {
        "something else"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text_offset: u64, size: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        for (at, word) in [(8, text_offset), (16, size), (24, flags)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(b"ARM\x64");
        bytes
    }

    #[test]
    fn a_header_is_read() {
        let kernel = Kernel::parse(&image(0x8_0000, 0x10000, 0xa)).unwrap();
        assert_eq!(
            kernel,
            Kernel {
                text_offset: 0x8_0000,
                size: 0x10000,
                file_len: 4096
            }
        );
    }

    #[test]
    fn what_is_no_kernel_is_refused_by_name() {
        let message = |bytes: &[u8]| Kernel::parse(bytes).unwrap_err().to_string();
        assert!(message(&[0; 63]).contains("63 bytes"));
        let mut x86 = vec![0; 4096];
        x86[0x202..0x206].copy_from_slice(b"HdrS");
        assert!(message(&x86).contains("an x86 kernel"));
        assert!(message(&[b"\x1f\x8b".as_slice(), &[0; 100]].concat()).contains("gzip"));
        assert!(message(&[b"\x7fELF".as_slice(), &[0; 100]].concat()).contains("ELF"));
        assert!(message(&image(0, 0x10000, 1)).contains("big-endian"));
        assert!(message(&image(0, 0x10000, 4)).contains("16 KiB"));
        assert!(message(&image(0x123, 0x10000, 0)).contains("text offset"));
        assert!(message(&image(0, 100, 0)).contains("100 bytes of memory, but the file has 4096"));
    }

    #[test]
    fn a_truncated_kernel_is_seen_by_its_sections() {
        let mut bytes = image(0, 0x10000, 0xa);
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        // COFF: machine, one section, length of the optional header; then that header's magic.
        bytes[0x44..0x46].copy_from_slice(&0xaa64_u16.to_le_bytes());
        bytes[0x46..0x48].copy_from_slice(&1_u16.to_le_bytes());
        bytes[0x54..0x56].copy_from_slice(&112_u16.to_le_bytes());
        bytes[0x58..0x5a].copy_from_slice(&0x20b_u16.to_le_bytes());
        let section = 0x58 + 112;
        bytes[section + 16..section + 20].copy_from_slice(&3072_u32.to_le_bytes());
        bytes[section + 20..section + 24].copy_from_slice(&1024_u32.to_le_bytes());
        assert!(Kernel::parse(&bytes).is_ok());
        let cut = Kernel::parse(&bytes[..4000]).unwrap_err();
        assert_eq!(
            cut,
            KernelError::Truncated {
                expected: 4096,
                found: 4000
            }
        );
    }
}
