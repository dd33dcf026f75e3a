//! Files of BBProf's own profiler: its C structures as they are in memory on AArch64,
//! little-endian, without version or checksum.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | number of mappings |
//! | 24 each | position of the mapping, its pages, its profiled pages, an operation, and a pointer (8 bytes, of no meaning) |
//! | 4, 4, 4 | number of profiled mappings, number of samples, padding of the heap in KiB |
//! | 4, 4 each | position of the mapping, number of its pages that follow |
//! | 32 each | position of the page (4, and 4 of padding), minimum (8), maximum (8), mean (8, floating point) |
//!
//! Its first versions wrote no padding of the heap, and pages in the order of importance. That is how
//! `profiler/output_prof` of its repository is, at commit b3e6109: 40 pages of two mappings, which is
//! read as a whole.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::profile::{Baseline, Block, Mode, Profile, Provenance, VmaProfile};
use crate::times::Times;
use std::collections::BTreeSet;
use thiserror::Error;

/// More mappings than any process of the paper has; the profiler's own limit is 1024.
const MOST_MAPPINGS: u32 = 1024;
/// More pages than a mapping can have: 4 GiB.
const MOST_PAGES: u32 = 1 << 20;

/// A mistake in a file, and the offset in bytes at which it shows.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("at byte {offset}: {fault}")]
pub struct RawError {
    /// Position in the file, from 0.
    pub offset: usize,
    /// The mistake there.
    pub fault: Fault,
}

/// Kinds of faults of a file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// The file ends too early.
    #[error("the file ends within {0}")]
    Ends(&'static str),
    /// More bytes follow the profile.
    #[error("{0} bytes follow the profile")]
    Follows(usize),
    /// A number exceeds its maximum.
    #[error("{what} is {found}, at most {most}")]
    TooMany {
        /// The number, in words.
        what: &'static str,
        /// The number found.
        found: u64,
        /// The greatest possible.
        most: u64,
    },
    /// There are no samples, mappings or pages.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// A mapping occurs twice.
    #[error("mapping {0} is listed twice")]
    Twice(u32),
    /// A mapping has times, but was not among those listed first.
    #[error("mapping {0} has times, but is not in the layout")]
    Unknown(u32),
    /// A page is listed twice, or outside its mapping.
    #[error("page {0} is listed twice, or outside its mapping of {1} pages")]
    Page(i64, u32),
    /// Times contradict themselves.
    #[error("{0}")]
    Times(&'static str),
}

/// Reads bytes in order.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RawError> {
        let chunk = self
            .bytes
            .get(self.offset..)
            .and_then(|rest| rest.first_chunk::<N>());
        let chunk = *chunk.ok_or(RawError {
            offset: self.bytes.len(),
            fault: Fault::Ends(what),
        })?;
        self.offset += N;
        Ok(chunk)
    }

    fn word(&mut self, what: &'static str) -> Result<u32, RawError> {
        self.take(what).map(u32::from_le_bytes)
    }

    /// Reads a number that may not be 0, nor more than `most`.
    fn number(&mut self, what: &'static str, most: u32) -> Result<u32, RawError> {
        let offset = self.offset;
        match self.word(what)? {
            0 => Err(RawError {
                offset,
                fault: Fault::Zero(what),
            }),
            found if found > most => {
                let (found, most) = (found.into(), most.into());
                Err(RawError {
                    offset,
                    fault: Fault::TooMany { what, found, most },
                })
            }
            found => Ok(found),
        }
    }
}

/// A mapping of the layout.
struct Listed {
    index: u32,
    pages: u32,
}

/// Whether a file has the padding of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Present,
    Absent,
}

/// Reads a file of BBProf's profiler. The file does not contain its mode, so the caller must name
/// it.
///
/// # Errors
///
/// The first fault, with its offset.
pub fn read(bytes: &[u8], mode: Mode) -> Result<Profile, RawError> {
    // Lengths are all that tells versions apart, and only one fits.
    read_as(bytes, mode, Padding::Present)
        .or_else(|error| read_as(bytes, mode, Padding::Absent).map_err(|_| error))
}

fn read_as(bytes: &[u8], mode: Mode, padding: Padding) -> Result<Profile, RawError> {
    let mut reader = Reader { bytes, offset: 0 };
    let mappings = reader.number("the number of mappings", MOST_MAPPINGS)?;
    let mut layout: Vec<Listed> = Vec::new();
    for _ in 0..mappings {
        let offset = reader.offset;
        let index = reader.word("a mapping of the layout")?;
        if layout.iter().any(|known| known.index == index) {
            return Err(RawError {
                offset,
                fault: Fault::Twice(index),
            });
        }
        let pages = reader.number("a mapping's number of pages", MOST_PAGES)?;
        layout.push(Listed { index, pages });
        // Number of pages to change, operation, pointer: of the profiler's last call to the kernel.
        reader.take::<16>("a mapping of the layout")?;
    }
    let profiled = reader.number("the number of profiled mappings", mappings)?;
    let samples = reader.number("the number of samples", u32::MAX)?;
    let pad = match padding {
        Padding::Present => Some(reader.word("the padding of the heap")?),
        Padding::Absent => None,
    };
    let mut vmas: Vec<VmaProfile> = Vec::new();
    for _ in 0..profiled {
        let offset = reader.offset;
        let index = reader.word("a profiled mapping")?;
        let Some(listed) = layout.iter().find(|listed| listed.index == index) else {
            return Err(RawError {
                offset,
                fault: Fault::Unknown(index),
            });
        };
        if vmas.iter().any(|known| known.index == index) {
            return Err(RawError {
                offset,
                fault: Fault::Twice(index),
            });
        }
        let blocks = pages_of(&mut reader, listed.pages, samples)?;
        vmas.push(VmaProfile {
            index,
            kind: None,
            name: String::new(),
            pages: listed.pages,
            blocks,
        });
    }
    if reader.offset != bytes.len() {
        let fault = Fault::Follows(bytes.len() - reader.offset);
        return Err(RawError {
            offset: reader.offset,
            fault,
        });
    }
    let pad = pad.map(|kib| format!("MALLOC_TOP_PAD_={}", u64::from(kib) * 1024));
    let allocator = pad
        .into_iter()
        .chain(["MALLOC_MMAP_MAX_=0".to_owned()])
        .collect();
    let provenance = Provenance {
        tool: "BBProf".into(),
        allocator,
        ..Provenance::default()
    };
    Ok(Profile {
        mode,
        unit: "ticks of CNTVCT_EL0".into(),
        provenance,
        baseline: Baseline::default(),
        events: vec![],
        vmas,
        excluded: vec![],
    })
}

/// Reads the pages of one mapping.
fn pages_of(reader: &mut Reader<'_>, pages: u32, samples: u32) -> Result<Vec<Block>, RawError> {
    let offset = reader.offset;
    let count = reader.word("a profiled mapping")?;
    if count > pages {
        let (what, found, most) = (
            "the number of a mapping's profiled pages",
            count.into(),
            pages.into(),
        );
        return Err(RawError {
            offset,
            fault: Fault::TooMany { what, found, most },
        });
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut seen = BTreeSet::new();
    for _ in 0..count {
        let offset = reader.offset;
        let page = i32::from_le_bytes(reader.take("a page")?);
        reader.take::<4>("a page")?;
        let [min, max] = [
            u64::from_le_bytes(reader.take("a page")?),
            u64::from_le_bytes(reader.take("a page")?),
        ];
        let mean = f64::from_le_bytes(reader.take("a page")?);
        let page = match u32::try_from(page) {
            Ok(page) if page < pages && !seen.contains(&page) => page,
            _ => {
                return Err(RawError {
                    offset,
                    fault: Fault::Page(page.into(), pages),
                });
            }
        };
        let times = Times {
            min,
            mean,
            max,
            samples,
        };
        if let Some(fault) = times.fault() {
            return Err(RawError {
                offset: offset + 8,
                fault: Fault::Times(fault),
            });
        }
        seen.insert(page);
        blocks.push(Block {
            offset: page,
            pages: 1,
            times,
            counts: vec![],
        });
    }
    blocks.sort_by_key(|block| block.offset);
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with two mappings, of which the second has two profiled pages, built from the
    /// documented layout.
    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = |bytes: &mut Vec<u8>, words: &[u32]| {
            words.iter().for_each(|it| bytes.extend(it.to_le_bytes()))
        };
        words(&mut bytes, &[2]);
        words(&mut bytes, &[2, 196, 195, 1, 0xdead_beef, 0x7f]);
        words(&mut bytes, &[15, 33, 33, 1, 0xdead_beef, 0x7f]);
        words(&mut bytes, &[2, 5, 512]);
        words(&mut bytes, &[2, 2]);
        for (page, min, max, mean) in [(0_i32, 100_u64, 110_u64, 104.5_f64), (195, 200, 220, 210.0)]
        {
            bytes.extend(page.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(min.to_le_bytes());
            bytes.extend(max.to_le_bytes());
            bytes.extend(mean.to_le_bytes());
        }
        words(&mut bytes, &[15, 1]);
        bytes.extend(7_i32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(5_f64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_file_of_the_documented_layout_is_imported() {
        let profile = read(&file(), Mode::Cacheable).unwrap();
        assert_eq!(profile.fault(), None);
        let vmas: Vec<(u32, u32, usize)> = profile
            .vmas
            .iter()
            .map(|it| (it.index, it.pages, it.blocks.len()))
            .collect();
        assert_eq!(vmas, [(2, 196, 2), (15, 33, 1)]);
        let last = &profile.vmas[0].blocks[1];
        assert_eq!(
            (last.offset, last.times),
            (
                195,
                Times {
                    min: 200,
                    mean: 210.0,
                    max: 220,
                    samples: 5
                }
            )
        );
        assert_eq!(
            profile.provenance.allocator,
            ["MALLOC_TOP_PAD_=524288", "MALLOC_MMAP_MAX_=0"]
        );
        // What was imported can be written and read as a profile.
        assert_eq!(
            crate::document::read(&crate::document::write(&profile)),
            Ok(profile)
        );
    }

    /// Offsets in [`file`].
    const HEADER: usize = 52;
    const FIRST: usize = HEADER + 12;
    const PAGE: usize = FIRST + 8;

    #[test]
    fn a_file_of_the_first_versions_is_imported() {
        let new = file();
        let (head, pages) = (&new[..HEADER + 8], &new[HEADER + 12..]);
        let [first, second] = [&pages[8..40], &pages[40..72]];
        // Without the padding, and the second page first.
        let old = [head, &pages[..8], second, first, &pages[72..]].concat();
        let imported = read(&old, Mode::Cacheable).unwrap();
        let expected = read(&new, Mode::Cacheable).unwrap();
        assert_eq!(imported.vmas, expected.vmas);
        assert_eq!(imported.provenance.allocator, ["MALLOC_MMAP_MAX_=0"]);
        let more = [old.as_slice(), &[0; 4]].concat();
        assert!(read(&more, Mode::Cacheable).is_err());
    }

    #[test]
    fn twelve_corrupt_files_are_refused_with_the_offset() {
        let file = file();
        let with = |offset: usize, bytes: &[u8]| {
            let mut changed = file.clone();
            changed[offset..offset + bytes.len()].copy_from_slice(bytes);
            changed
        };
        let word = |offset, word: u32| with(offset, &word.to_le_bytes());
        let longer = [file.as_slice(), &[0; 3]].concat();
        let cases: [(Vec<u8>, usize, &str); 12] = [
            (vec![], 0, "the file ends within the number of mappings"),
            (
                file[..30].to_vec(),
                30,
                "the file ends within a mapping of the layout",
            ),
            (
                file[..file.len() - 1].to_vec(),
                file.len() - 1,
                "the file ends within a page",
            ),
            (longer, file.len(), "3 bytes follow the profile"),
            (word(0, 0), 0, "the number of mappings is 0"),
            (
                word(0, u32::MAX),
                0,
                "the number of mappings is 4294967295, at most 1024",
            ),
            (word(28, 2), 28, "mapping 2 is listed twice"),
            (
                word(HEADER, 3),
                HEADER,
                "the number of profiled mappings is 3, at most 2",
            ),
            (
                word(HEADER + 4, 0),
                HEADER + 4,
                "the number of samples is 0",
            ),
            (
                word(FIRST, 9),
                FIRST,
                "mapping 9 has times, but is not in the layout",
            ),
            (
                word(FIRST + 4, 197),
                FIRST + 4,
                "the number of a mapping's profiled pages is 197, at most 196",
            ),
            (
                word(PAGE, 196),
                PAGE,
                "page 196 is listed twice, or outside its mapping of 196 pages",
            ),
        ];
        for (bytes, offset, message) in cases {
            let error = read(&bytes, Mode::Cacheable).unwrap_err();
            assert_eq!(
                (error.offset, error.fault.to_string().as_str()),
                (offset, message)
            );
            assert_eq!(error.to_string(), format!("at byte {offset}: {message}"));
        }
        // Further faults of a single page.
        let page = |bytes: Vec<u8>| read(&bytes, Mode::Cacheable).unwrap_err();
        let error = page(word(PAGE, u32::MAX));
        assert_eq!((error.offset, error.fault), (PAGE, Fault::Page(-1, 196)));
        let error = page(with(PAGE + 24, &f64::NAN.to_le_bytes()));
        assert_eq!(
            error.to_string(),
            format!(
                "at byte {}: the mean is not between minimum and maximum",
                PAGE + 8
            )
        );
        let error = page(word(PAGE + 32, 0));
        assert_eq!(
            (error.offset, error.fault),
            (PAGE + 32, Fault::Page(0, 196)),
            "the same page again"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = read(&bytes, Mode::Cacheable);
            let mut changed = file();
            let at = at.index(changed.len());
            changed[at] = byte;
            if let Ok(profile) = read(&changed, Mode::NonCacheable) {
                prop_assert_eq!(profile.fault(), None);
            }
        }
    }
}
