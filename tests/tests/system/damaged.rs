//! Images that are damaged, truncated or made for another machine: one clear line, and the machine
//! turns off.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::image::{Image, seal};
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::ids::{Core, VmId};
use cloison_formats::image::{self, END_MARKER, HEADER_LEN, Header, System};
use cloison_tests::{BOTH, Clock, boot, config, image, load};
use miette::Result;

/// Position of the image's length in the arm64 Image header.
const IMAGE_SIZE: std::ops::Range<usize> = 16..24;

/// A valid image for a test to damage.
struct Good {
    board: &'static str,
    image: Image,
    header: Header,
    /// Event counters of a core of the board, by its description.
    counters: u32,
}

impl Good {
    fn new(board: &'static str) -> Result<Self> {
        let checked = load(&config("quota"), board)?;
        let image = image(&checked)?;
        let header = Header::parse(&image.bytes[image.hypervisor_len..], crc32fast::hash)
            .expect("a good image");
        Ok(Self {
            board,
            image,
            header,
            counters: checked.board.counters,
        })
    }

    /// Returns the offset from the start of the file for an offset in the system image.
    fn at(&self, at: usize) -> usize {
        self.image.hypervisor_len + at
    }
    fn payload(&self) -> std::ops::Range<usize> {
        let start = self.at(self.header.payload_offset as usize);
        start..start + self.header.payload_len as usize
    }
    fn config(&self) -> std::ops::Range<usize> {
        let start = self.at(HEADER_LEN);
        start..start + self.header.config_len as usize
    }

    /// Returns the image with some bytes changed.
    fn with(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = self.image.bytes.clone();
        change(&mut bytes);
        bytes
    }
    /// Returns the image with a changed header and a valid CRC.
    fn with_header(&self, change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut header = self.header;
        change(&mut header);
        let at = self.at(0);
        self.with(|bytes| bytes[at..at + HEADER_LEN].copy_from_slice(&seal::header_bytes(&header)))
    }
    /// Returns the image truncated to `len` bytes.
    fn cut(&self, len: usize) -> Vec<u8> {
        self.image.bytes[..len].to_vec()
    }
    /// Returns the image with a changed system and a valid CRC: an image that no host tool would
    /// write.
    fn with_system(&self, change: impl FnOnce(&mut System)) -> Vec<u8> {
        let mut system = self.image.system.clone();
        change(&mut system);
        let payload = &self.image.bytes[self.payload()];
        let encoded = seal::encode(&system, payload).expect("a system can be written");
        self.with_system_image(&encoded)
    }
    fn with_system_image(&self, encoded: &[u8]) -> Vec<u8> {
        let mut bytes = self.cut(self.image.hypervisor_len);
        bytes.extend_from_slice(encoded);
        let size = (bytes.len() as u64).next_multiple_of(64 << 10);
        bytes[IMAGE_SIZE].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// Boots an image that must be rejected. Returns the console after checking that the machine is
    /// off, no guest ran, and the hypervisor's last line is `cloison: <expected>`.
    #[track_caller]
    fn refused(&self, bytes: &[u8], expected: &str) -> String {
        let outcome = boot(bytes, self.board, Clock::Counted).expect("QEMU starts");
        let console = outcome.console;
        assert!(outcome.exit.is_clean(), "{}: {console}", outcome.exit);
        let lines: Vec<&str> = console.lines().collect();
        assert_eq!(
            lines.last(),
            Some(&format!("cloison: {expected}").as_str()),
            "{console}"
        );
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.starts_with("cloison:"))
                .count(),
            1,
            "{console}"
        );
        assert!(!console.contains("[quota]"), "a guest ran: {console}");
        assert!(
            !console.contains("panic") && !console.contains("exception"),
            "{console}"
        );
        console
    }

    /// Like [`Good::refused`], for an image from which the system cannot be known: there is no
    /// other line.
    #[track_caller]
    fn unreadable(&self, bytes: &[u8], expected: &str) {
        let console = self.refused(bytes, expected);
        assert_eq!(console.lines().count(), 1, "{console}");
    }
}

/// Runs a test on each board.
fn on_both(test: impl Fn(&Good)) -> Result<()> {
    for board in BOTH {
        test(&Good::new(board)?);
    }
    Ok(())
}

const NO_IMAGE: &str =
    "no system image after the hypervisor (magic missing); build one with `cloison image`";

#[test]
fn a_wrong_magic_is_no_system_image() -> Result<()> {
    on_both(|good| good.unreadable(&good.with(|bytes| bytes[good.at(0)] ^= 0x20), NO_IMAGE))
}

#[test]
fn a_hypervisor_alone_says_that_it_has_no_system() -> Result<()> {
    on_both(|good| good.unreadable(&good.cut(good.at(0)), NO_IMAGE))
}

#[test]
fn another_version_is_refused_by_its_number() -> Result<()> {
    on_both(|good| {
        let other = image::VERSION + 1;
        let bytes =
            good.with(|bytes| bytes[good.at(8)..good.at(12)].copy_from_slice(&other.to_le_bytes()));
        let this = image::VERSION;
        good.unreadable(
            &bytes,
            &format!(
                "system image has version {other}, this hypervisor reads version {this}; rebuild \
                 it with `cloison image`"
            ),
        );
    })
}

#[test]
fn a_damaged_header_is_noticed_by_its_crc() -> Result<()> {
    on_both(|good| {
        let bytes = good.with(|bytes| bytes[good.at(12)] ^= 1);
        let header = &bytes[good.at(0)..good.at(HEADER_LEN)];
        let found = crc32fast::hash(&header[..HEADER_LEN - 4]);
        let expected = u32::from_le_bytes(header[HEADER_LEN - 4..].try_into().expect("four bytes"));
        good.unreadable(
            &bytes,
            &format!(
                "system image header is damaged: CRC {found:#010x}, expected {expected:#010x}"
            ),
        );
    })
}

#[test]
fn a_header_that_is_cut_off_is_damaged() -> Result<()> {
    on_both(|good| {
        // QEMU fills what it does not load with zeros.
        let bytes = good.cut(good.at(HEADER_LEN - 4));
        let found = crc32fast::hash(&bytes[good.at(0)..]);
        good.unreadable(
            &bytes,
            &format!("system image header is damaged: CRC {found:#010x}, expected 0x00000000"),
        );
    })
}

#[test]
fn a_header_whose_lengths_contradict_each_other_is_refused() -> Result<()> {
    const MESSAGE: &str = "system image header is damaged: its lengths contradict each other";
    on_both(|good| {
        good.unreadable(
            &good.with_header(|header| header.payload_offset += 1),
            MESSAGE,
        );
        good.unreadable(
            &good.with_header(|header| header.config_len = u32::MAX),
            MESSAGE,
        );
    })
}

#[test]
fn an_image_that_is_cut_off_anywhere_is_truncated() -> Result<()> {
    on_both(|good| {
        let message = format!(
            "system image is truncated: {} bytes expected, end marker missing",
            good.header.total_len()
        );
        let (config, payload) = (good.config(), good.payload());
        for len in [
            good.at(HEADER_LEN),
            config.start + 5,
            config.end,
            payload.start + payload.len() / 2,
            payload.end,
            payload.end + END_MARKER.len() - 1,
        ] {
            good.unreadable(&good.cut(len), &message);
        }
    })
}

#[test]
fn an_image_that_claims_more_than_was_loaded_is_truncated() -> Result<()> {
    on_both(|good| {
        let message = |total: u64| {
            format!("system image is truncated: {total} bytes expected, end marker missing")
        };
        let total = good.header.total_len();
        // By the boot header, which boot loaders use.
        let loaded = good.at(PAGE_SIZE as usize) as u64;
        let bytes = good.with(|bytes| bytes[IMAGE_SIZE].copy_from_slice(&loaded.to_le_bytes()));
        good.unreadable(&bytes, &message(total));
        // By the system image's own header: gigabytes more than there are.
        let longer = good.with_header(|header| header.payload_len = u32::MAX - 0xfff);
        good.unreadable(
            &longer,
            &message(total - good.payload().len() as u64 + u64::from(u32::MAX - 0xfff)),
        );
    })
}

#[test]
fn a_damaged_configuration_is_noticed_by_its_crc() -> Result<()> {
    on_both(|good| {
        let bytes = good.with(|bytes| bytes[good.config().start + 20] ^= 0x80);
        let (found, expected) = (
            crc32fast::hash(&bytes[good.config()]),
            good.header.config_crc,
        );
        good.unreadable(
            &bytes,
            &format!("configuration is damaged: CRC {found:#010x}, expected {expected:#010x}"),
        );
    })
}

#[test]
fn a_damaged_guest_is_noticed_by_its_crc() -> Result<()> {
    on_both(|good| {
        let bytes = good.with(|bytes| bytes[good.payload().end - 1] ^= 1);
        let (found, expected) = (
            crc32fast::hash(&bytes[good.payload()]),
            good.header.payload_crc,
        );
        good.unreadable(
            &bytes,
            &format!("guest images are damaged: CRC {found:#010x}, expected {expected:#010x}"),
        );
    })
}

#[test]
fn a_configuration_that_means_nothing_is_refused_though_its_crc_is_right() -> Result<()> {
    on_both(|good| {
        let mut bytes = good.image.bytes.clone();
        bytes[good.config()].fill(0xff);
        let header = Header {
            config_crc: crc32fast::hash(&bytes[good.config()]),
            ..good.header
        };
        bytes[good.at(0)..good.at(HEADER_LEN)].copy_from_slice(&seal::header_bytes(&header));
        good.unreadable(
            &bytes,
            "configuration does not decode although its CRC matches; the host tool and the \
             hypervisor differ",
        );
    })
}

#[test]
fn a_configuration_that_contradicts_itself_is_refused_though_its_crc_is_right() -> Result<()> {
    type Change = fn(&mut System);
    let contradictions: [(Change, &str); 8] = [
        (
            |system| system.vms[0].cores = vec![Core(7)],
            "VM 0: core 7 does not exist or is used twice",
        ),
        (
            |system| system.vms[0].cores = [1, 1].map(Core).to_vec(),
            "VM 0: core 1 does not exist or is used twice",
        ),
        (
            |system| system.pools[0].colors = system.hypervisor_colors,
            "pool 0: holds color 15 of the hypervisor",
        ),
        (
            |system| system.ends_with = Some(VmId(3)),
            "system: ends with VM 3, which does not exist",
        ),
        (
            |system| system.vms[0].regions[0].backing = image::Backing::Pool(9),
            "VM 0, region 0: names pool 9, which does not exist",
        ),
        (
            |system| system.vms[0].image.len = 0x7000_0000,
            "VM 0: the guest image at 0x0 of the payload is not on a page, or ends beyond the \
             payload",
        ),
        (
            |system| system.vms[0].image.load.0 -= PAGE_SIZE,
            "VM 0: the guest image loaded at 0x3ffff000 is not on a page, or in no region that \
             can hold it",
        ),
        (|system| system.vms.clear(), "system: has 0 VMs, not 1 to 8"),
    ];
    on_both(|good| {
        for (change, message) in contradictions {
            let message = format!("configuration is inconsistent: {message}");
            good.unreadable(&good.with_system(change), &message);
        }
    })
}

#[test]
fn another_cache_than_the_boards_is_refused_with_both() -> Result<()> {
    on_both(|good| {
        let bytes = good.with_system(|system| system.board.llc.size *= 2);
        let (found, board) = (good.image.system.board.llc, good.board);
        let mut promised = found;
        promised.size *= 2;
        good.refused(
            &bytes,
            &format!(
                "board {board} promises a last-level cache of {promised:?}, CCSIDR_EL1 says \
                 {found:?}; use the board file of this machine"
            ),
        );
    })
}

#[test]
fn a_load_outside_the_boards_memory_is_refused_with_its_address() -> Result<()> {
    on_both(|good| {
        let ram = good.image.system.board.ram[0];
        let upper = PhysRange {
            start: PhysAddr(ram.start.0 + ram.len / 2),
            len: ram.len / 2,
        };
        let bytes = good.with_system(|system| system.board.ram = vec![upper]);
        // QEMU loads an Image at 2 MiB into memory.
        let loaded = ram.start.0 + (2 << 20);
        good.refused(
            &bytes,
            &format!(
                "loaded at {loaded:#x}, which is not in the RAM of board {}",
                good.board
            ),
        );
    })
}

#[test]
fn a_core_that_the_machine_lacks_is_refused_with_its_number() -> Result<()> {
    on_both(|good| {
        let bytes = good.with_system(|system| {
            system.board.cores[3] = 0x105;
            system.vms[0].cores = vec![Core(3)];
        });
        good.refused(&bytes, "core 3 does not start: PSCI CPU_ON says -2");
    })
}

#[test]
fn memory_that_is_not_there_is_refused_with_who_wanted_it() -> Result<()> {
    on_both(|good| {
        let much = 4 << 30;
        let bytes = good.with_system(|system| system.contiguous = much);
        good.refused(&bytes, &format!("no {much} contiguous bytes of RAM"));
        let bytes = good.with_system(|system| system.pools[0].limit = Some(100));
        let outcome = boot(&bytes, good.board, Clock::Counted).expect("QEMU starts");
        let last = outcome.console.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("cloison: VM quota: region ram did not fit: pool shared: "),
            "{}",
            outcome.console
        );
        assert!(outcome.exit.is_clean());
    })
}

#[test]
fn quotas_beyond_the_counters_are_refused_with_both_numbers() -> Result<()> {
    on_both(|good| {
        let mut needed = 0;
        let bytes = good.with_system(|system| {
            let vm = &mut system.vms[0];
            vm.quotas = vec![vm.quotas[0]; 7];
            needed = system.counters();
        });
        assert!(needed >= 7, "{needed}");
        let have = good.counters;
        good.refused(
            &bytes,
            &format!(
                "a core's quotas and HEM events need {needed} event counters, its PMU has {have}"
            ),
        );
    })
}
