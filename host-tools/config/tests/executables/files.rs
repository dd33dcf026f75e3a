//! Makes small ELF files, and checks the result of reading any file. The fuzz target uses this file
//! too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::executable::{Executable, LONGEST, MOST_SEGMENTS, Part};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::image::{Backing, Region};

/// Lengths of a file's header and of a program header.
pub const HEADER: usize = 64;
pub const PROGRAM_HEADER: usize = 56;

/// A program header with the bytes that it names.
#[derive(Clone, Debug)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    pub virtual_address: u64,
    pub physical_address: u64,
    pub bytes: Vec<u8>,
    pub memory: u64,
}

/// Returns the header of a segment that is loaded where it runs.
pub fn load(flags: u32, address: u64, bytes: &[u8], memory: u64) -> Header {
    Header {
        kind: 1,
        flags,
        virtual_address: address,
        physical_address: address,
        bytes: bytes.to_vec(),
        memory,
    }
}

/// Returns an executable for AArch64 with these program headers.
pub fn file(entry: u64, headers: &[Header]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2_u16, 183].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend(
        [entry, HEADER as u64, 0]
            .iter()
            .flat_map(|long| long.to_le_bytes()),
    );
    file.extend(0_u32.to_le_bytes());
    let sizes = [
        HEADER as u16,
        PROGRAM_HEADER as u16,
        headers.len() as u16,
        0,
        0,
        0,
    ];
    file.extend(sizes.iter().flat_map(|half| half.to_le_bytes()));
    let mut offset = (HEADER + PROGRAM_HEADER * headers.len()) as u64;
    for header in headers {
        file.extend(
            [header.kind, header.flags]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        let (length, align) = (header.bytes.len() as u64, 4096);
        let longs = [
            offset,
            header.virtual_address,
            header.physical_address,
            length,
            header.memory,
            align,
        ];
        file.extend(longs.iter().flat_map(|long| long.to_le_bytes()));
        offset += length;
    }
    headers
        .iter()
        .for_each(|header| file.extend_from_slice(&header.bytes));
    file
}

/// Returns a file that is accepted: code in one region, data in another, and memory that the file
/// does not contain.
pub fn good() -> Vec<u8> {
    let dynamic = Header {
        kind: 2,
        flags: 4,
        virtual_address: 0,
        physical_address: 0,
        bytes: vec![0; 16],
        memory: 16,
    };
    let headers = [
        load(5, 0x4000_0000, b"some instruction", 16),
        load(4, 0x4000_1800, b"constants", 9),
        load(6, 0x5000_0000, b"data", 0x1008),
        dynamic,
    ];
    file(0x4000_0004, &headers)
}

/// Returns regions of a VM: two of RAM, RAM that is not executable, and a device.
pub fn regions() -> Vec<Region> {
    let region = |name: &str, ipa, pages, backing, executable| Region {
        name: name.into(),
        ipa: Ipa(ipa),
        pages,
        backing,
        executable,
    };
    vec![
        region("ram", 0x4000_0000, 16, Backing::Pool(0), true),
        region("ram2", 0x5000_0000, 2, Backing::Contiguous, true),
        region("data", 0x6000_0000, 64, Backing::Pool(0), false),
        region(
            "clock",
            0x0903_0000,
            1,
            Backing::Device(PhysAddr(0x0901_0000)),
            true,
        ),
        // Far more than a file can be given.
        region("huge", 0x10_0000_0000, 32 << 18, Backing::Pool(0), true),
    ]
}

fn range(region: &Region) -> std::ops::Range<u64> {
    region.ipa.0..region.ipa.0 + u64::from(region.pages) * PAGE_SIZE
}

/// Reads a file and places it in [`regions`]. Each accepted part must be loadable and startable.
/// Returns their number.
pub fn check(data: &[u8]) -> Option<usize> {
    let executable = Executable::parse(data).ok()?;
    assert!((1..=MOST_SEGMENTS).contains(&executable.segments.len()));
    let regions = regions();
    let parts = match executable.place(&regions) {
        Ok(parts) => parts,
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(!error.to_string().is_empty() && !error.help().is_empty());
            }
            return None;
        }
    };
    let memory = |start: u64, end: u64| {
        let mut ram = regions
            .iter()
            .filter(|region| !matches!(region.backing, Backing::Device(_)));
        ram.find(|region| range(region).contains(&start) && end <= range(region).end)
    };
    // Each segment is in one region of RAM, and disjoint from the others.
    for (index, segment) in executable.segments.iter().enumerate() {
        assert!(segment.memory > 0 && segment.bytes.len() as u64 <= segment.memory);
        assert!(memory(segment.load, segment.end()).is_some(), "{segment:?}");
        for other in &executable.segments[..index] {
            assert!(
                other.end() <= segment.load || segment.end() <= other.load,
                "{segment:?} {other:?}"
            );
        }
    }
    // So is each part, with whole pages: nothing else is overwritten when it is loaded.
    for (index, part) in parts.iter().enumerate() {
        assert!(part.load().is_page_aligned() && !part.is_empty());
        assert!(memory(part.load().0, part.end()).is_some(), "{part:?}");
        let pages = |part: &Part<'_>| part.load().0..part.end().next_multiple_of(PAGE_SIZE);
        for other in &parts[..index] {
            assert!(pages(other).end <= pages(part).start || pages(part).end <= pages(other).start);
        }
    }
    // The first instruction is in the file, and may be executed.
    let entry = executable.entry;
    let first = executable
        .segments
        .iter()
        .find(|segment| segment.number == executable.entry_segment)
        .expect("it is there");
    assert!(entry.is_multiple_of(4) && first.executable, "{entry:#x}");
    assert!(
        first.load <= entry && entry + 4 <= first.load + first.bytes.len() as u64,
        "{entry:#x}"
    );
    assert!(
        memory(entry, entry + 4).is_some_and(|region| region.executable),
        "{entry:#x}"
    );
    assert!(parts[0].load().0 <= entry && entry < parts[0].end());
    // The bytes: as many as declared, and those of the file.
    let total: u64 = parts.iter().map(Part::len).sum();
    assert!(total <= LONGEST);
    if total <= 1 << 20 {
        for part in &parts {
            let (bytes, start) = (part.bytes(), part.load().0);
            assert_eq!(bytes.len() as u64, part.len());
            let inside = |address: u64| (start..part.end()).contains(&address);
            for segment in executable
                .segments
                .iter()
                .filter(|segment| inside(segment.load))
            {
                let own = &bytes[(segment.load - start) as usize..(segment.end() - start) as usize];
                let (file, rest) = own.split_at(segment.bytes.len());
                assert!(
                    file == segment.bytes && rest.iter().all(|&byte| byte == 0),
                    "{segment:?}"
                );
            }
        }
    }
    Some(parts.len())
}
