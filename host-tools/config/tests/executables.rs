//! ELF files: those that are accepted, the message for each broken one, and a search for files that
//! do harm.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[path = "executables/files.rs"]
mod files;

use cloison_config::executable::{ElfError, Executable};
use cloison_formats::addr::Ipa;
use files::{HEADER, Header, PROGRAM_HEADER, check, file, good, load, regions};
use std::iter::once;

/// Returns what is wrong with a file or with its place, and each piece of advice.
fn refused(data: &[u8]) -> String {
    let place = |executable: Executable<'_>| executable.place(&regions()).map(drop);
    let errors = Executable::parse(data)
        .map_err(|error| vec![error])
        .and_then(place)
        .expect_err("refused");
    assert!(errors.iter().all(|error| !error.help().is_empty()));
    errors
        .iter()
        .map(ElfError::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

const CODE: &[u8] = b"some instruction";

/// Returns a good file with one byte replaced.
fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut data = good();
    data[at] = byte;
    data
}

/// Returns a file with code at the start of the RAM, and another segment.
fn and(other: Header) -> Vec<u8> {
    file(0x4000_0000, &[load(5, 0x4000_0000, CODE, 16), other])
}

#[test]
fn a_good_file_is_loaded_into_its_regions() {
    let data = good();
    let executable = Executable::parse(&data).expect("a good file");
    let parts = executable.place(&regions()).expect("it fits");
    let places: Vec<_> = parts.iter().map(|part| (part.load(), part.end())).collect();
    // The first two segments are near each other.
    assert_eq!(
        places,
        [
            (Ipa(0x4000_0000), 0x4000_1809),
            (Ipa(0x5000_0000), 0x5000_1008)
        ]
    );
    assert_eq!(
        (executable.entry, executable.entry_segment),
        (0x4000_0004, 0)
    );
    assert_eq!(check(&data), Some(2));
    let bytes = parts[0].bytes();
    assert!(
        bytes.starts_with(CODE)
            && bytes.ends_with(b"\0constants")
            && bytes[16..0x1800].iter().all(|&byte| byte == 0)
    );
}

#[test]
fn segments_far_apart_are_parts_and_the_one_with_the_entry_is_first() {
    let data = file(
        0x4000_0000,
        &[
            load(6, 0x10_0000_0000, b"a", 1),
            load(5, 0x4000_0000, CODE, 16),
            load(6, 0x10_0011_0100, b"b", 1),
            load(6, 0x10_0100_0010, b"c", 1),
        ],
    );
    let executable = Executable::parse(&data).expect("a good file");
    let parts = executable.place(&regions()).expect("it fits");
    let places: Vec<_> = parts
        .iter()
        .map(|part| (part.load().0, part.end()))
        .collect();
    assert_eq!(
        places,
        [
            (0x4000_0000, 0x4000_0010),
            (0x10_0000_0000, 0x10_0000_0001),
            (0x10_0011_0000, 0x10_0011_0101),
            (0x10_0100_0000, 0x10_0100_0011)
        ]
    );
    assert_eq!(check(&data), Some(4));
}

#[test]
fn an_entry_may_be_virtual_or_physical() {
    let high = Header {
        virtual_address: 0xffff_0000_0000_0000,
        ..load(5, 0x4000_0000, CODE, 16)
    };
    for entry in [0xffff_0000_0000_0008, 0x4000_0008] {
        let data = file(entry, std::slice::from_ref(&high));
        assert_eq!(
            Executable::parse(&data).expect("a good file").entry,
            0x4000_0008
        );
        assert_eq!(check(&data), Some(1));
    }
}

/// Checks what each of these files is told.
#[track_caller]
fn told(cases: &[(Vec<u8>, &str)]) {
    for (data, expected) in cases {
        assert_eq!(refused(data), *expected);
        assert_eq!(check(data), None);
    }
}

#[test]
fn files_of_another_kind_are_told_so() {
    let mut big_endian = with(5, 2);
    big_endian.swap(18, 19);
    let mut s390 = with(5, 2);
    s390[18..20].copy_from_slice(&[0, 22]);
    told(&[
        (b"MZ".to_vec(), "it is not an ELF file"),
        (
            good()[..63].to_vec(),
            "it has 63 bytes, and the header of an ELF file has 64",
        ),
        (with(18, 62), "it is for x86-64, not for AArch64"),
        (s390, "it is for S/390, not for AArch64"),
        (with(18, 200), "it is for machine 200, not for AArch64"),
        (with(4, 1), "it is a 32-bit ELF file"),
        (big_endian, "it is big-endian"),
        (
            with(4, 3),
            "its header is damaged: it has no valid class or byte order",
        ),
        (
            with(5, 0),
            "its header is damaged: it has no valid class or byte order",
        ),
        (with(6, 0), "its header is damaged: its version is not 1"),
        (with(20, 2), "its header is damaged: its version is not 1"),
        (with(16, 1), "it is a relocatable object, not an executable"),
        (with(16, 4), "it is a core dump, not an executable"),
        (with(16, 9), "it is of an unknown type, not an executable"),
        (
            with(54, 55),
            "its program headers are not in the file, or not as long as they are in a 64-bit file",
        ),
        (
            good()[..80].to_vec(),
            "its program headers are not in the file, or not as long as they are in a 64-bit file",
        ),
        (
            with(39, 1),
            "its program headers are not in the file, or not as long as they are in a 64-bit file",
        ),
    ]);
}

#[test]
fn segments_that_contradict_the_file_or_each_other_are_told_so() {
    let dynamic = |tag: u64, value: u64| {
        let bytes = [tag, value, 0, 0]
            .iter()
            .flat_map(|long| long.to_le_bytes())
            .collect();
        and(Header {
            kind: 2,
            flags: 4,
            virtual_address: 0,
            physical_address: 0,
            bytes,
            memory: 32,
        })
    };
    let many = |count: u64| -> Vec<Header> {
        let other = |number| load(6, 0x10_0000_0000 + number * 0x10_0000, b"x", 1);
        once(load(5, 0x4000_0000, CODE, 16))
            .chain((1..count).map(other))
            .collect()
    };
    let first = HEADER;
    told(&[
        (file(0, &[]), "it has no loadable segment"),
        (
            and(Header {
                kind: 3,
                ..load(4, 0, b"/lib/ld.so\0", 11)
            }),
            "segment 1 names a dynamic linker",
        ),
        (
            dynamic(8, 24),
            "segment 1, its dynamic section, has relocations",
        ),
        (
            dynamic(2, 24),
            "segment 1, its dynamic section, has relocations",
        ),
        (
            dynamic(35, 8),
            "segment 1, its dynamic section, has relocations",
        ),
        (
            dynamic(1, 1),
            "segment 1, its dynamic section, needs shared libraries",
        ),
        (
            file(0x4000_0000, &many(65)),
            "it has 65 loadable segments, and at most 64 are loaded",
        ),
        (
            good()[..good().len() - 20].to_vec(),
            "segment 3, its dynamic section, is not in the file",
        ),
        (
            and(load(6, 0x4000_1000, b"data", 4))
                [..and(load(6, 0x4000_1000, b"data", 4)).len() - 4]
                .to_vec(),
            "segment 1 is bytes 192 to 196 of the file, which has 192",
        ),
        (
            with(first + 8 + 7, 0xff),
            "segment 0 is bytes 18374686479671623968 to 18374686479671623984 of the file, which \
             has 333",
        ),
        (
            and(load(6, 0x4000_1000, b"data", 3)),
            "segment 1 has 0x4 bytes in the file, and 0x3 in memory",
        ),
        (
            and(load(6, u64::MAX - 1, b"", 3)),
            "segment 1 takes 0xfffffffffffffffe to 0x10000000000000001, beyond the end of all \
             addresses",
        ),
        (
            and(Header {
                virtual_address: u64::MAX,
                ..load(6, 0x4000_1000, b"", 2)
            }),
            "segment 1 takes 0xffffffffffffffff to 0x10000000000000001, beyond the end of all \
             addresses",
        ),
        (
            and(load(6, 0x4000_000f, b"", 1)),
            "segment 1 at 0x4000000f to 0x40000010 overlaps segment 0 at 0x40000000 to 0x40000010",
        ),
        (
            and(load(6, 0x4000_0000, b"data", 4)),
            "segment 1 at 0x40000000 to 0x40000004 overlaps segment 0 at 0x40000000 to 0x40000010",
        ),
    ]);
    // An empty segment takes nothing, and unused bytes at the end of a file do not matter.
    let empty = and(load(6, 0x4000_1000, b"", 0))
        .into_iter()
        .chain([0])
        .collect::<Vec<u8>>();
    assert_eq!(check(&empty), Some(1));
}

#[test]
fn entries_and_places_that_no_vm_has_are_told_so() {
    told(&[
        (
            file(0x7000_0000, &[load(5, 0x4000_0000, CODE, 16)]),
            "its entry 0x70000000 is in none of its segments",
        ),
        (
            file(0x4000_0010, &[load(5, 0x4000_0000, CODE, 16)]),
            "its entry 0x40000010 is in none of its segments",
        ),
        (
            file(0x4000_0000, &[load(6, 0x4000_0000, CODE, 16)]),
            "its entry 0x40000000 is in segment 0, which is not executable",
        ),
        (
            file(0x4000_0002, &[load(5, 0x4000_0000, CODE, 16)]),
            "its entry 0x40000002 is not a multiple of 4",
        ),
        (
            file(0x4000_0010, &[load(7, 0x4000_0000, CODE, 64)]),
            "its entry 0x40000010 is in segment 0, which has no instruction there: the file's \
             part ends at 0x40000010",
        ),
        (
            file(0x4000_000c, &[load(7, 0x4000_0000, &CODE[..14], 64)]),
            "its entry 0x4000000c is in segment 0, which has no instruction there: the file's \
             part ends at 0x4000000e",
        ),
        (
            file(0x6000_0000, &[load(5, 0x6000_0000, CODE, 16)]),
            "its entry 0x60000000 is in region `data`, which has execute = false",
        ),
        (
            and(load(6, 0x4000_1000, b"data", 0x100_0000)),
            "segment 1 takes 0x40001000 to 0x41001000, 16715776 bytes beyond the end of region \
             `ram` at 0x40010000",
        ),
        (
            and(load(6, 0x5000_1fff, b"", 2)),
            "segment 1 takes 0x50001fff to 0x50002001, 1 byte beyond the end of region `ram2` at \
             0x50002000",
        ),
        (
            and(load(6, 0x4000_1000, b"", 1 << 63)),
            "segment 1 takes 0x40001000 to 0x8000000040001000, 9223372036854714368 bytes beyond \
             the end of region `ram` at 0x40010000",
        ),
        (
            and(load(6, 0x903_0000, b"", 4)),
            "segment 1 takes 0x9030000 to 0x9030004, which is in region `clock`, a device",
        ),
        (
            and(load(6, 0x3fff_f000, b"", 0x800)),
            "segment 1 takes 0x3ffff000 to 0x3ffff800, and no RAM of the VM is there",
        ),
        (
            and(load(6, 0, b"", 4)),
            "segment 1 takes 0x0 to 0x4, and no RAM of the VM is there",
        ),
        (
            and(load(6, 0x10_0000_0000, b"", 1 << 30)),
            "its segments take 1073741840 bytes, and at most 1 GiB are loaded",
        ),
        (
            file(
                0x4000_0000,
                &[
                    load(5, 0x4000_0000, CODE, 16),
                    load(6, 0, b"", 4),
                    load(6, 0x5000_0000, b"", 0x2001),
                ],
            ),
            "segment 1 takes 0x0 to 0x4, and no RAM of the VM is there; segment 2 takes \
             0x50000000 to 0x50002001, 1 byte beyond the end of region `ram2` at 0x50002000",
        ),
    ]);
}

#[test]
fn the_advice_names_the_nearest_region() {
    let help = |data: &[u8]| {
        let executable = Executable::parse(data).expect("a file that agrees with itself");
        executable.place(&regions()).expect_err("refused")[0].help()
    };
    let near = help(&and(load(6, 0x5000_2000, b"", 4)));
    assert_eq!(
        near,
        "the nearest region of RAM is `ram2` at 0x50000000 to 0x50002000: link segment 1 for it, \
         or add a region"
    );
    let below = help(&and(load(6, 0x3fff_fff0, b"", 4)));
    assert!(
        below.contains("`ram` at 0x40000000 to 0x40010000"),
        "{below}"
    );
    let data = good();
    let none = Executable::parse(&data)
        .expect("a good file")
        .place(&[])
        .expect_err("refused");
    assert_eq!(none.len(), 3);
    assert_eq!(
        none[0].help(),
        "give the VM RAM there, or link segment 0 for its RAM"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let data = good();
    // The dynamic section's entry is the last to be there.
    for length in 0..data.len() {
        assert!(
            Executable::parse(&data[..length]).is_err(),
            "cut to {length}"
        );
    }
}

#[test]
fn a_position_independent_file_without_relocations_is_accepted() {
    assert_eq!(check(&with(16, 3)), Some(2));
}

/// Pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    /// Returns a number that is often at an edge of something.
    fn value(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            4,
            0x1000,
            0x4000_0000,
            0x4000_ffff,
            0x5000_0000,
            0x5000_2000,
            0x6000_0000,
            0x10_0000_0000,
            1 << 63,
            u64::MAX,
        ];
        let edge = EDGES[self.below(EDGES.len())];
        match self.below(4) {
            0 => self.next(),
            1 => edge.wrapping_add(self.next() % 64).wrapping_sub(32),
            2 => edge.wrapping_add(self.next() % 0x4000),
            _ => edge,
        }
    }
}

/// A hundred thousand damaged files: bits, bytes, fields, lengths. `files::check` has what must
/// hold.
#[test]
fn no_file_whatever_does_harm() {
    let mut random = Random(0x0c10_1500);
    let seeds = [
        good(),
        file(0x4000_0000, &[load(5, 0x4000_0000, CODE, 16)]),
        file(
            0x5000_0000,
            &[
                load(6, 0x4000_0000, b"data", 64),
                load(7, 0x5000_0000, CODE, 0x2000),
            ],
        ),
    ];
    let (mut accepted, mut refused) = (0, 0);
    for turn in 0..100_000 {
        let mut data = seeds[turn % seeds.len()].clone();
        data.resize(data.len().max(HEADER + PROGRAM_HEADER * 2), 0);
        for _ in 0..=random.below(3) {
            let headers = HEADER + PROGRAM_HEADER * 2;
            match random.below(6) {
                0 => data[random.below(headers)] ^= 1 << random.below(8),
                1 => data[random.below(headers)] = random.next() as u8,
                2 => {
                    // A field of 64 bits in a program header: offset, addresses, sizes.
                    let at = HEADER + PROGRAM_HEADER * random.below(2) + 8 + 8 * random.below(5);
                    data[at..at + 8].copy_from_slice(&random.value().to_le_bytes());
                }
                3 => data[24..32].copy_from_slice(&random.value().to_le_bytes()),
                4 => data[56 + random.below(2)] = random.next() as u8,
                _ => data.truncate(random.below(64) + data.len().saturating_sub(32)),
            }
            data.resize(data.len().max(headers), 0);
        }
        match check(&data) {
            Some(_) => accepted += 1,
            None => refused += 1,
        }
    }
    // Both ways are taken.
    assert!(
        accepted > 5_000 && refused > 50_000,
        "{accepted} accepted, {refused} refused"
    );
}
