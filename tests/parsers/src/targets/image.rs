//! The system image.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::configuration;
use crate::target::{Form, Outcome, Target};
use cloison_engine::image::seal;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::image::{Backing, HEADER_LEN, Header, ImageError, System};

/// The data after the hypervisor in a boot image.
pub const IMAGE: Target = Target {
    name: "image",
    package: "cloison-formats",
    rule: "a changed image is refused; a sealed one that passes keeps within its image, payload and board",
    form: Form::Bytes,
    files: &[],
    made,
    check,
};

/// What the first byte of an input says about the rest: bytes of an image as they are, or with right
/// checksums in its header, or a configuration that gets a header, a payload and checksums. No
/// search finds a checksum.
const AS_IT_IS: u8 = 0;
const CHECKED: u8 = 1;

/// The pages of the payload: more than the guests of the seeds need, which have none.
const PAYLOAD: usize = 2;

fn made() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for path in [
        "configs/demo.toml",
        "configs/pvt-sh.toml",
        "tests/configs/passthrough/virt.toml",
    ] {
        let Some(system) = configuration::system(path) else {
            continue;
        };
        let whole = seal::encode(&system, &[]).expect("a system has a binary form");
        let configuration = postcard::to_allocvec(&system).expect("a system has a binary form");
        for (kind, rest) in [(AS_IT_IS, &whole), (CHECKED, &whole), (2, &configuration)] {
            seeds.push([&[kind], &rest[..]].concat());
        }
    }
    seeds
}

fn check(input: &[u8]) -> Outcome {
    let Some((&kind, rest)) = input.split_first() else {
        return Outcome::Refused;
    };
    let (image, payload) = match kind {
        AS_IT_IS => (rest.to_vec(), None),
        CHECKED => (with_checksums(rest), None),
        _ => (sealed(rest), Some(PAYLOAD * PAGE_SIZE as usize)),
    };
    match read(&image) {
        Ok((header, system)) => {
            assert!(payload.is_none_or(|payload| payload == header.payload_len as usize));
            accepted(&image, &header, &system);
            Outcome::Accepted
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Outcome::Refused
        }
    }
}

fn read(image: &[u8]) -> Result<(Header, System), ImageError> {
    let header = Header::parse(image, crc32fast::hash)?;
    let system = header.decode(image, crc32fast::hash)?;
    Ok((header, system))
}

/// Checks what EL2 relies on: it indexes and maps without another look.
fn accepted(image: &[u8], header: &Header, system: &System) {
    assert!(header.total_len() <= image.len() as u64);
    assert!(HEADER_LEN as u32 + header.config_len <= header.payload_offset);
    let ram = |at: u64, end: u64| {
        let banks = &mut system.board.ram.iter();
        banks.any(|bank| at < bank.start.0.saturating_add(bank.len) && bank.start.0 < end)
    };
    for (index, vm) in system.vms.iter().enumerate() {
        assert_eq!((vm.manages | vm.regulates) >> system.vms.len(), 0);
        assert_eq!((vm.manages | vm.regulates) >> index & 1, 0);
        for part in vm.loaded() {
            assert!(part.offset as u64 + part.len as u64 <= header.payload_len.into());
        }
        for region in &vm.regions {
            let length = u64::from(region.pages) * PAGE_SIZE;
            assert!(length > 0 && region.ipa.0 + length <= 1 << 39);
            match region.backing {
                Backing::Pool(pool) => assert!(usize::from(pool) < system.pools.len()),
                Backing::Device(at) => assert!(!ram(at.0, at.0.saturating_add(length))),
                Backing::Direct => assert!(ram(region.ipa.0, region.ipa.0 + length)),
                Backing::Contiguous => {}
            }
        }
        for quota in &vm.quotas {
            assert!(quota.vcpu.index() < vm.cores.len() && quota.budget <= quota.ceiling);
        }
    }
    for pool in &system.pools {
        assert!(pool.colors.and(system.hypervisor_colors).is_empty());
    }
    // What was read is written and read as the same.
    let payload = header.payload_offset as usize..;
    let payload = &image[payload][..header.payload_len as usize];
    let again = seal::encode(system, payload).expect("it was read");
    assert_eq!(read(&again).as_ref().map(|(_, system)| system), Ok(system));
    // A changed bit of what the checksums cover is noticed.
    let mut changed = again;
    let configuration = postcard::to_allocvec(system).map_or(0, |bytes| bytes.len());
    let at = crc32fast::hash(&changed) as usize % (HEADER_LEN + configuration);
    changed[at] ^= 1;
    assert!(read(&changed).is_err(), "byte {at}");
}

/// Puts right checksums into the header of an image.
fn with_checksums(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let word = |image: &[u8], at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let parts = (|| {
        let (config, payload) = (word(&image, 12)?, word(&image, 20)?);
        let config = image.get(HEADER_LEN..HEADER_LEN.checked_add(config)?)?;
        let end = payload.checked_add(word(&image, 24)?)?;
        Some([
            crc32fast::hash(config),
            crc32fast::hash(image.get(payload..end)?),
        ])
    })();
    if let Some([config, payload]) = parts {
        image[16..20].copy_from_slice(&config.to_le_bytes());
        image[28..32].copy_from_slice(&payload.to_le_bytes());
    }
    if image.len() >= HEADER_LEN {
        let own = crc32fast::hash(&image[..HEADER_LEN - 4]);
        image[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&own.to_le_bytes());
    }
    image
}

/// Returns an image with this configuration, and a payload of [`PAYLOAD`] pages.
fn sealed(configuration: &[u8]) -> Vec<u8> {
    let page = PAGE_SIZE as usize;
    let offset = (HEADER_LEN + configuration.len()).next_multiple_of(page);
    let payload = vec![0x5a; PAYLOAD * page];
    let header = Header {
        config_len: configuration.len() as u32,
        config_crc: crc32fast::hash(configuration),
        payload_offset: offset as u32,
        payload_len: payload.len() as u32,
        payload_crc: crc32fast::hash(&payload),
    };
    let mut image = seal::header_bytes(&header).to_vec();
    image.extend_from_slice(configuration);
    image.resize(offset, 0);
    image.extend_from_slice(&payload);
    image.extend_from_slice(&cloison_formats::image::END_MARKER);
    image
}
