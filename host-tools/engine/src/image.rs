//! The system image that a board boots: the hypervisor, its configuration and the guests in one
//! file.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod map_note;
pub mod numbered;
pub mod prelude;
pub mod seal;
pub mod written;

use crate::files::{self, write_atomic};
use crate::linux::device_tree::Around;
use crate::{linux, parts};
use cloison_config::executable::{self, ElfError, Executable, LONGEST};
use cloison_config::layout::DEVICE_TREE_ROOM;
use cloison_config::memory::{self, LOADER_SLACK};
use cloison_config::problem::display_path;
use cloison_config::{Checked, ImageSource};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::boot::{self, AtEnd, BootParameters};
use cloison_formats::ids::VmId;
use cloison_formats::image::{self, Board, System};
use cloison_formats::invalid::Invalid;
use miette::{Diagnostic, IntoDiagnostic, Result};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use thiserror::Error;

/// Offset of `image_size` in the arm64 Image header.
const IMAGE_SIZE_OFFSET: usize = 16;
/// `image_size` is a multiple of this.
const IMAGE_SIZE_UNIT: u64 = 64 << 10;
/// Offset and value of the arm64 Image header's magic.
const ARM64_MAGIC: (usize, [u8; 4]) = (56, *b"ARM\x64");

/// Errors in an executable that should go into an image.
#[derive(Debug, Error, Diagnostic)]
pub enum ImageError {
    /// The ELF file of a guest, or its place in the VM's memory, is wrong.
    #[error("VM `{vm}`: {file} cannot be loaded: {}", list(.errors))]
    #[diagnostic(help("{}", .errors.first().map(ElfError::help).unwrap_or_default()))]
    Guest {
        /// Name of the VM.
        vm: String,
        /// Name of the file.
        file: String,
        /// All that is wrong.
        errors: Vec<ElfError>,
    },
    /// An ELF file is wrong.
    #[error("{file} cannot be loaded: {error}")]
    #[diagnostic(help("{}", .error.help()))]
    Elf {
        /// Name of the file.
        file: String,
        /// The mistake.
        error: ElfError,
    },
    /// The file is implausibly long.
    #[error(
        "{file} spans {length} bytes from its first to its last loadable byte; at most {LONGEST} \
         are accepted"
    )]
    TooLong {
        /// Name of the file.
        file: String,
        /// Its length in memory.
        length: u64,
    },
    /// The hypervisor lacks its boot header.
    #[error("the hypervisor does not start with an arm64 Image header")]
    NoHeader,
    /// A guest does not fit into its VM's memory.
    #[error("VM `{vm}`: its image takes {load:#x} to {end:#x}, and no region of the VM holds that")]
    #[diagnostic(help(
        "the VM's memory is {regions}; make the region larger, or link the guest for it"
    ))]
    DoesNotFit {
        /// Name of the VM.
        vm: String,
        /// Address of the first byte.
        load: u64,
        /// Address after the last byte.
        end: u64,
        /// The VM's memory regions.
        regions: String,
    },
    /// A guest's image leaves no room for its device tree.
    #[error("VM `{vm}`: its device tree would begin at {place:#x}, and its image ends at {end:#x}")]
    #[diagnostic(help(
        "the tree takes the last 64 KiB of the region that holds the image: make that larger"
    ))]
    NoRoomForTree {
        /// Name of the VM.
        vm: String,
        /// Address of the tree.
        place: u64,
        /// Address after the image's last byte.
        end: u64,
    },
    /// A guest's image is where its device tree is to be.
    #[error(
        "VM `{vm}`: its device tree takes {DEVICE_TREE_ROOM:#x} bytes at {place:#x}, and its \
             image has {begin:#x} to {end:#x}"
    )]
    #[diagnostic(help("change `device_tree_at`, or leave it out for the region's end"))]
    TreeInImage {
        /// Name of the VM.
        vm: String,
        /// Address of the tree.
        place: u64,
        /// Address of the image's part that is there.
        begin: u64,
        /// Address after the last byte of that part.
        end: u64,
    },
    /// The image is larger than the memory that the pools leave free for it.
    #[error("hypervisor and guests need {needed} bytes, but only {planned} are reserved for them")]
    #[diagnostic(help("use a smaller initial RAM disk, or fewer distinct kernels"))]
    LongerThanPlanned {
        /// Length of hypervisor and guests in bytes.
        needed: u64,
        /// Bytes that the pools leave free for them.
        planned: u64,
    },
    /// The system contradicts itself.
    #[error("the configuration cannot be turned into an image: {0}")]
    Invalid(Invalid),
    /// The system cannot be encoded.
    #[error("the configuration's binary form cannot be written")]
    Encode,
}

/// The memory image of an executable: all its loadable segments from the lowest address on, with
/// gaps and `.bss` as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flat {
    /// Physical address of the first byte.
    pub base: u64,
    /// Address of the first instruction.
    pub entry: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Flattens an ELF file as a loader would.
pub fn flatten(path: &Path) -> Result<Flat> {
    let file = path.display().to_string();
    let data = files::read(path, files::IMAGE)?;
    Ok(flatten_bytes(&data, &file)?)
}

/// Flattens an ELF file in memory; `file` is its name in errors.
pub fn flatten_bytes(data: &[u8], file: &str) -> Result<Flat, ImageError> {
    let executable = Executable::parse(data).map_err(|error| ImageError::Elf {
        file: file.to_owned(),
        error,
    })?;
    let segments = &executable.segments;
    let base = segments.first().map_or(0, |segment| segment.load);
    let length = segments.last().map_or(0, |segment| segment.end() - base);
    if length > LONGEST {
        return Err(ImageError::TooLong {
            file: file.to_owned(),
            length,
        });
    }
    let mut bytes = vec![0; length as usize];
    for segment in segments {
        let start = (segment.load - base) as usize;
        bytes[start..start + segment.bytes.len()].copy_from_slice(segment.bytes);
    }
    Ok(Flat {
        base,
        entry: executable.entry,
        bytes,
    })
}

/// Returns errors in one line.
fn list(errors: &[ElfError]) -> String {
    errors
        .iter()
        .map(ElfError::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A bootable system image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file for QEMU's `-kernel` and U-Boot's `booti`.
    pub bytes: Vec<u8>,
    /// The configuration contained in the image.
    pub system: System,
    /// Length of the hypervisor in bytes.
    pub hypervisor_len: usize,
    /// Where the guests are in the file.
    payload: Range<usize>,
}

impl Image {
    /// Writes the image to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomic(path, &self.bytes)
    }
    /// Returns the guests' bytes.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload.clone()]
    }
    /// Returns the file in consecutive parts. Images with the same hypervisor, or with the same
    /// guest, share that part.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        // The boot header, at the start of the hypervisor, has the length of the whole image.
        let fixed = [
            0,
            PAGE_SIZE as usize,
            self.hypervisor_len,
            self.payload.start,
            self.payload.end,
            self.bytes.len(),
        ];
        let guests = self.system.vms.iter().flat_map(image::Vm::loaded);
        let cuts: BTreeSet<usize> = guests
            .map(|module| self.payload.start + module.offset as usize)
            .chain(fixed)
            .collect();
        let ends = cuts.iter().copied().skip(1).collect::<Vec<_>>();
        cuts.into_iter()
            .zip(ends)
            .map(|(start, end)| &self.bytes[start..end])
    }
    /// Returns the SHA-256 of the file, in hexadecimal.
    pub fn sha256(&self) -> String {
        files::sha256(&self.bytes)
    }
}

/// Returns the memory image of the hypervisor for a board.
///
/// # Errors
///
/// If it does not build, or is not in the bundle.
pub fn hypervisor_for(board: &Board) -> Result<Flat> {
    flatten(&parts::hypervisor_for(board.gic.version(), &[])?)
}

/// Adds each VM's guest to the payload, and combines everything into one image. `hypervisor` is that
/// for the configuration's board.
pub fn assemble(checked: &Checked, hypervisor: &Flat) -> Result<Image> {
    assemble_system(checked.system.clone(), &checked.images, hypervisor)
}

/// Like [`assemble`], for a system that was changed after it had been checked. `images` has one
/// entry per VM.
pub fn assemble_system(
    mut system: System,
    images: &[ImageSource],
    hypervisor: &Flat,
) -> Result<Image> {
    let mut payload = Payload::default();
    let ids = (0..system.vms.len()).map(|vm| VmId(vm as u8));
    let around: Vec<Around> = ids.map(|vm| Around::of(&system, vm)).collect();
    for ((vm, image), around) in system.vms.iter_mut().zip(images).zip(&around) {
        let file = match image {
            ImageSource::Workload(name) => parts::guest(name)?,
            ImageSource::File(file) | ImageSource::FileWithTree(file, _) => file.clone(),
            ImageSource::Linux(source) => {
                let loaded = linux::load(source, vm, around)?;
                let parts = [&loaded.kernel, &loaded.initrd, &loaded.device_tree];
                let [kernel, initrd, device_tree] = parts.map(|bytes| payload.add(bytes));
                loaded.install(vm, [kernel?, initrd?, device_tree?]);
                continue;
            }
        };
        let mut bytes = files::read(&file, files::IMAGE)?;
        if bytes.starts_with(executable::MAGIC) {
            map_note::fill(&mut bytes, &vm.map);
            load_elf(vm, &file, &bytes, &mut payload)?;
        } else {
            vm.image.offset = payload.add(&bytes)?;
            vm.image.len = u32::try_from(bytes.len()).into_diagnostic()?;
            check_fit(vm)?;
        }
        if let ImageSource::FileWithTree(_, described) = image {
            let tree = linux::device_tree::build(described, vm, around, None)?;
            let (offset, load) = (payload.add(&tree)?, tree_place(vm, described.place)?);
            vm.modules.push(image::Module {
                offset,
                len: u32::try_from(tree.len()).into_diagnostic()?,
                load,
            });
            // As the boot protocol of Linux has it.
            vm.args = [load.0, 0, 0, 0];
        }
    }
    let payload = payload.bytes;
    let (needed, planned) = (
        (hypervisor.bytes.len() + payload.len()) as u64,
        memory::image_bytes(images.iter()),
    );
    if needed + LOADER_SLACK > planned {
        return Err(ImageError::LongerThanPlanned {
            needed,
            planned: planned - LOADER_SLACK,
        }
        .into());
    }
    Ok(system_image(hypervisor, system, &payload)?)
}

/// Builds the hypervisor and the guests, and combines them with the configuration into one image.
/// `features` are the hypervisor's cargo features.
pub fn build(checked: &Checked, features: &[&str]) -> Result<Image> {
    let gic = checked.system.board.gic.version();
    let hypervisor = flatten(&parts::hypervisor_for(gic, features)?)?;
    assemble(checked, &hypervisor)
}

/// The guests' images, one after the other, page-aligned, without duplicates.
#[derive(Default)]
struct Payload {
    bytes: Vec<u8>,
    parts: Vec<Range<usize>>,
}

impl Payload {
    /// Returns the offset of `part` in the payload, adding it if necessary.
    fn add(&mut self, part: &[u8]) -> Result<u32> {
        let start = match self
            .parts
            .iter()
            .find(|range| &self.bytes[(*range).clone()] == part)
        {
            Some(range) => range.start,
            None => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(part);
                self.parts.push(start..self.bytes.len());
                self.bytes
                    .resize(self.bytes.len().next_multiple_of(PAGE_SIZE as usize), 0);
                start
            }
        };
        u32::try_from(start).into_diagnostic()
    }
}

/// Adds the parts of an ELF file to the payload, each in its region. The part with the entry is the
/// VM's image, the others are modules.
fn load_elf(vm: &mut image::Vm, file: &Path, bytes: &[u8], payload: &mut Payload) -> Result<()> {
    let wrong = |vm: &image::Vm, errors| ImageError::Guest {
        vm: vm.name.clone(),
        file: display_path(file).display().to_string(),
        errors,
    };
    let executable = Executable::parse(bytes).map_err(|error| wrong(vm, vec![error]))?;
    let parts = executable
        .place(&vm.regions)
        .map_err(|errors| wrong(vm, errors))?;
    vm.modules.clear();
    for (index, part) in parts.iter().enumerate() {
        let bytes = part.bytes();
        let (offset, len, load) = (
            payload.add(&bytes)?,
            u32::try_from(bytes.len()).into_diagnostic()?,
            part.load(),
        );
        if index == 0 {
            vm.image = image::Image {
                offset,
                len,
                load,
                entry: Ipa(executable.entry),
            };
        } else {
            vm.modules.push(image::Module { offset, len, load });
        }
    }
    Ok(())
}

fn check_fit(vm: &image::Vm) -> Result<(), ImageError> {
    let (load, end) = (vm.image.load.0, vm.image.load.0 + u64::from(vm.image.len));
    let memory = || {
        vm.regions
            .iter()
            .filter(|region| !matches!(region.backing, image::Backing::Device(_)))
    };
    let span = |region: &image::Region| {
        (
            region.ipa.0,
            region.ipa.0 + u64::from(region.pages) * PAGE_SIZE,
        )
    };
    if memory()
        .map(span)
        .any(|(start, stop)| start <= load && end <= stop)
    {
        return Ok(());
    }
    let named = |region: &image::Region| {
        let (start, stop) = span(region);
        format!("{start:#x} to {stop:#x} (`{}`)", region.name)
    };
    let regions = memory().map(named).collect::<Vec<_>>().join(", ");
    Err(ImageError::DoesNotFit {
        vm: vm.name.clone(),
        load,
        end,
        regions,
    })
}

/// Returns the address of a VM's device tree: the one that is wanted; or the end of the region that
/// holds its image, as far from it as can be.
fn tree_place(vm: &image::Vm, wanted: Option<Ipa>) -> Result<Ipa, ImageError> {
    let ends = |part: &image::Module| part.load.0 + u64::from(part.len);
    if let Some(place) = wanted {
        let is_there =
            |part: &image::Module| part.load.0 < place.0 + DEVICE_TREE_ROOM && place.0 < ends(part);
        return match vm.loaded().find(is_there) {
            Some(part) => Err(ImageError::TreeInImage {
                vm: vm.name.clone(),
                place: place.0,
                begin: part.load.0,
                end: ends(&part),
            }),
            None => Ok(place),
        };
    }
    let mut memory = vm
        .regions
        .iter()
        .filter(|region| !matches!(region.backing, image::Backing::Device(_)));
    let home = memory.rfind(|region| region.contains(vm.image.load));
    let stop = home.map_or(0, |region| region.ipa.page(u64::from(region.pages)).0);
    let place = stop.saturating_sub(DEVICE_TREE_ROOM);
    let there = vm
        .loaded()
        .filter(|part| home.is_some_and(|region| region.contains(part.load)));
    let end = there
        .map(|part| ends(&part))
        .max()
        .unwrap_or(vm.image.load.0);
    if place < end {
        return Err(ImageError::NoRoomForTree {
            vm: vm.name.clone(),
            place,
            end,
        });
    }
    Ok(Ipa(place))
}

/// Appends the configuration and the payload to the hypervisor, and sets the total length in its
/// boot header.
pub fn system_image(
    hypervisor: &Flat,
    system: System,
    payload: &[u8],
) -> Result<Image, ImageError> {
    ending(AtEnd::Off, hypervisor, system, payload)
}

/// Like [`system_image`], for a machine to which this happens at the end.
fn ending(
    at_end: AtEnd,
    hypervisor: &Flat,
    system: System,
    payload: &[u8],
) -> Result<Image, ImageError> {
    let (at, magic) = ARM64_MAGIC;
    if hypervisor.bytes.get(at..at + magic.len()) != Some(&magic) {
        return Err(ImageError::NoHeader);
    }
    system
        .validate(payload.len() as u32)
        .map_err(ImageError::Invalid)?;
    let mut bytes = hypervisor.bytes.clone();
    bytes.resize(bytes.len().next_multiple_of(PAGE_SIZE as usize), 0);
    let hypervisor_len = bytes.len();
    let encoded = seal::encode(&system, payload).map_err(|_| ImageError::Encode)?;
    bytes.extend_from_slice(&encoded);
    let place = bytes
        .get_mut(boot::OFFSET..boot::OFFSET + boot::LEN)
        .filter(|place| place.starts_with(&boot::MAGIC));
    let (console, psci) = (system.board.console, system.board.power_off.is_none());
    let parameters = BootParameters {
        console: Some((console.kind, console.base)),
        psci,
        at_end,
    };
    place
        .ok_or(ImageError::NoHeader)?
        .copy_from_slice(&seal::boot_parameters(&parameters));
    let image_size = (bytes.len() as u64).next_multiple_of(IMAGE_SIZE_UNIT);
    bytes[IMAGE_SIZE_OFFSET..IMAGE_SIZE_OFFSET + 8].copy_from_slice(&image_size.to_le_bytes());
    let end = bytes.len() - image::END_MARKER.len();
    Ok(Image {
        bytes,
        system,
        hypervisor_len,
        payload: end - payload.len()..end,
    })
}

#[cfg(test)]
mod faults;
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::installation;
    use cloison_config::board::BoardFile;
    use cloison_formats::addr::{PhysAddr, PhysRange};
    use cloison_formats::blank::blank;
    use cloison_formats::color::ColorSet;
    use cloison_formats::ids::{Core, Intid, VcpuIndex, VmId};
    use cloison_formats::image::{Board, Gic, Header, LogLevel, Pool, PoolKind, UartKind, Vm};
    use cloison_formats::units::{EventId, Events, Nanos};

    const EM_AARCH64: u16 = 183;

    /// Returns an ELF file with these segments: physical address, virtual address, bytes, length in
    /// memory.
    fn elf_file(entry: u64, segments: &[(u64, u64, &[u8], u64)]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let header_len = 64 + 56 * segments.len();
        file.extend(
            [2_u16, EM_AARCH64]
                .iter()
                .flat_map(|half| half.to_le_bytes()),
        );
        file.extend(1_u32.to_le_bytes());
        file.extend([entry, 64, 0].iter().flat_map(|long| long.to_le_bytes()));
        file.extend(0_u32.to_le_bytes());
        file.extend(
            [64, 56, segments.len() as u16, 0, 0, 0]
                .iter()
                .flat_map(|half| half.to_le_bytes()),
        );
        let mut offset = header_len as u64;
        for &(paddr, vaddr, bytes, memsz) in segments {
            file.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
            file.extend(
                [offset, vaddr, paddr, bytes.len() as u64, memsz, 4096]
                    .iter()
                    .flat_map(|long| long.to_le_bytes()),
            );
            offset += bytes.len() as u64;
        }
        for (_, _, bytes, _) in segments {
            file.extend_from_slice(bytes);
        }
        file
    }

    #[test]
    fn segments_lie_at_their_physical_addresses_and_bss_is_zero() {
        let file = elf_file(
            0x8000_0000,
            &[
                (0x2010, 0x9000_0000, b"data", 8),
                (0x2000, 0x8000_0000, b"code", 4),
            ],
        );
        let flat = flatten_bytes(&file, "test").unwrap();
        assert_eq!((flat.base, flat.entry), (0x2000, 0x2000));
        assert_eq!(flat.bytes, b"code\0\0\0\0\0\0\0\0\0\0\0\0data\0\0\0\0");
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = elf_file(0x1000, &[(0x1000, 0x1000, b"code", 4)]);
        for length in 0..good.len() {
            assert!(
                flatten_bytes(&good[..length], "test").is_err(),
                "cut to {length}"
            );
        }
        let message = |file: &[u8]| flatten_bytes(file, "x").unwrap_err().to_string();
        let mut other = good.clone();
        other[18] = 62;
        assert_eq!(
            message(&other),
            "x cannot be loaded: it is for x86-64, not for AArch64"
        );
        let far = elf_file(0, &[(0, 0, b"code", 4), (1 << 40, 1 << 40, b"b", 1)]);
        assert!(message(&far).contains("at most"), "{}", message(&far));
    }

    #[test]
    fn each_segment_is_loaded_into_its_region() {
        let mut vm = system().vms.remove(0);
        let other = image::Region {
            name: "ram2".into(),
            ipa: Ipa(0x5000_0000),
            ..vm.regions[0].clone()
        };
        vm.regions.push(other);
        let file = elf_file(
            0x5000_0010,
            &[
                (0x4000_0000, 0x4000_0000, b"data", 0x1008),
                (0x5000_0010, 0x5000_0010, b"code", 4),
            ],
        );
        let mut payload = Payload::default();
        load_elf(&mut vm, Path::new("x"), &file, &mut payload).unwrap();
        // The part with the entry, from the start of its page.
        let image = image::Image {
            offset: 0,
            len: 20,
            load: Ipa(0x5000_0000),
            entry: Ipa(0x5000_0010),
        };
        assert_eq!(vm.image, image);
        assert_eq!(
            vm.modules,
            [image::Module {
                offset: 4096,
                len: 0x1008,
                load: Ipa(0x4000_0000)
            }]
        );
        assert_eq!(
            &payload.bytes[..20],
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0code"
        );
        assert_eq!(&payload.bytes[4096..4104], b"data\0\0\0\0");
        // The tree goes where the code is, after all that is loaded there; these regions are
        // smaller than it.
        assert!(matches!(
            tree_place(&vm, None),
            Err(ImageError::NoRoomForTree { .. })
        ));
        vm.regions[1].pages = 32;
        assert_eq!(tree_place(&vm, None).unwrap(), Ipa(0x5001_0000));
        vm.modules.push(image::Module {
            offset: 0,
            len: 4097,
            load: Ipa(0x5000_f000),
        });
        assert!(matches!(
            tree_place(&vm, None),
            Err(ImageError::NoRoomForTree {
                end: 0x5001_0001,
                ..
            })
        ));
        let at = |place| tree_place(&vm, Some(Ipa(place)));
        assert_eq!(at(0x5001_1000).unwrap(), Ipa(0x5001_1000));
        for place in [0x5000_0000, 0x5001_0000] {
            assert!(matches!(at(place), Err(ImageError::TreeInImage { .. })));
        }
        let error = load_elf(
            &mut vm,
            Path::new("x"),
            &elf_file(0, &[(0, 0, b"code", 4)]),
            &mut payload,
        )
        .unwrap_err();
        let expected = "VM `one`: x cannot be loaded: segment 0 takes 0x0 to 0x4, and no RAM of \
                        the VM is there";
        assert_eq!(error.to_string(), expected);
    }

    pub(crate) fn system() -> System {
        let configs = installation::root().join("configs");
        let file = BoardFile::load(&configs.join("boards/virt.toml"), &configs);
        let board = Board {
            telemetry: None,
            pmu_irqs: vec![],
            ..file.expect("a shipped board").board
        };
        let ram = Ipa(0x4000_0000);
        let region = image::Region {
            name: "ram".into(),
            ipa: ram,
            pages: 4,
            backing: image::Backing::Pool(0),
            executable: true,
        };
        let vm = Vm {
            name: "one".into(),
            cores: vec![Core(0)],
            map: cloison_formats::guest_map::GuestMap::CLOISON,
            regions: vec![region],
            image: image::Image {
                offset: 0,
                len: 8,
                load: ram,
                entry: ram,
            },
            ..blank()
        };
        let pool = Pool {
            name: "pool".into(),
            kind: PoolKind::Pvt,
            colors: ColorSet::first(2).without(ColorSet::first(1)),
            limit: None,
        };
        System {
            name: "test".into(),
            board,
            log_level: LogLevel::Info,
            hypervisor_colors: ColorSet::first(1),
            pools: vec![pool],
            vms: vec![vm],
            ..blank()
        }
    }

    pub(crate) fn hypervisor() -> Flat {
        let mut bytes = vec![0xaa; 5000];
        bytes[56..60].copy_from_slice(b"ARM\x64");
        bytes[boot::OFFSET..boot::OFFSET + 8].copy_from_slice(&boot::MAGIC);
        Flat {
            base: 0x40_0000_0000,
            entry: 0x40_0000_0000,
            bytes,
        }
    }

    #[test]
    fn the_image_is_what_the_hypervisor_reads() {
        let image = system_image(&hypervisor(), system(), b"8 bytes.").unwrap();
        assert_eq!(image.hypervisor_len, 8192);
        assert_eq!(image.bytes[16..24], 0x1_0000_u64.to_le_bytes());
        // The first instructions of the hypervisor read the console's base here.
        assert_eq!(image.bytes[72..80], 0x900_0000_u64.to_le_bytes());
        let parameters = BootParameters::from_bytes(image.bytes[64..96].try_into().unwrap());
        assert_eq!(
            parameters,
            BootParameters {
                console: Some((UartKind::Pl011, PhysAddr(0x900_0000))),
                psci: true,
                at_end: AtEnd::Off
            }
        );
        let encoded = &image.bytes[image.hypervisor_len..];
        let header = Header::parse(encoded, crc32fast::hash).unwrap();
        assert_eq!(header.total_len(), encoded.len() as u64);
        assert_eq!(header.decode(encoded, crc32fast::hash).unwrap(), system());
    }

    fn device(system: &mut System, at: u64) {
        system.vms[0].regions.push(image::Region {
            name: "device".into(),
            ipa: Ipa(0x0a00_0000),
            pages: 1,
            backing: image::Backing::Device(PhysAddr(at)),
            executable: false,
        });
    }

    #[test]
    fn no_address_of_the_gic_can_be_given_away() {
        /// The GIC of the ZCU102.
        fn spread_gic(system: &mut System) {
            let page = |number: u64| PhysAddr(0xf901_0000 + (number << 16));
            system.board.gic = Gic {
                gicd: page(0),
                gicc: page(1),
                gicc_dir: page(2),
                gich: page(3),
                gicv: page(5),
                gicv_dir: page(6),
                ..system.board.gic
            };
        }
        let taken = |at: &str| {
            format!(
                "VM 0, region 1: its device at {at} is not on a page, ends above 40 bits, overlaps \
                 memory, or includes one of the hypervisor's own"
            )
        };
        let aliases: [(u64, Option<&str>); 8] = [
            (0xf901_1000, Some("0xf9011000")),
            (0xf901_f000, Some("0xf901f000")),
            (0xf902_f000, Some("0xf902f000")),
            (0xf903_4000, Some("0xf9034000")),
            (0xf904_1000, Some("0xf9041000")),
            (0xf905_0000, Some("0xf9050000")),
            (0xf907_2000, Some("0xf9072000")),
            (0xf908_0000, None),
        ];
        for (at, refused) in aliases {
            let mut system = system();
            spread_gic(&mut system);
            device(&mut system, at);
            let expected = refused.map_or(Ok(()), |at| Err(taken(at)));
            assert_eq!(
                system.validate(8).map_err(|invalid| invalid.to_string()),
                expected,
                "{at:#x}"
            );
        }
        // Where the pages are next to each other, only they and the second GICH are taken.
        for (at, is_free) in [
            (0x801_2000, true),
            (0x803_0000, false),
            (0x803_1000, false),
            (0x803_2000, true),
        ] {
            let mut system = system();
            device(&mut system, at);
            assert_eq!(system.validate(8).is_ok(), is_free, "{at:#x}");
        }
    }

    type Change = fn(&mut System);

    /// Checks that each change makes the system invalid, with this error.
    fn refused(changes: &[(Change, &str)]) {
        assert_eq!(system().validate(8), Ok(()));
        for (change, expected) in changes {
            let mut system = system();
            change(&mut system);
            assert_eq!(
                system.validate(8).map_err(|invalid| invalid.to_string()),
                Err((*expected).to_owned())
            );
        }
    }

    #[test]
    fn what_is_invalid_is_reported_with_its_place_and_number() {
        let changes: [(Change, &str); 19] = [
            (
                |system| {
                    let pages = vec![Ipa(0x123_0000)];
                    system.vms[0].target = Some(0);
                    system.vms[0].profile = Some(image::Profile {
                        pages,
                        top: 0,
                        after: None,
                    });
                },
                "VM 0: its profile names a page at 0x1230000, where no region has one",
            ),
            (
                |system| {
                    system.vms[0].profile = Some(image::Profile {
                        pages: vec![],
                        top: 0,
                        after: None,
                    });
                },
                "VM 0: its profile has 0 pages, but no pool for them to move to",
            ),
            (
                |system| {
                    system.vms[0].target = Some(1);
                },
                "VM 0: names pool 1, which does not exist",
            ),
            (
                |system| {
                    device(system, 0x901_0000);
                    let mut other = system.vms[0].clone();
                    other.cores = vec![Core(1)];
                    other.regions.remove(0);
                    system.vms.push(other);
                },
                "VM 0, region 1: its device at 0x9010000 also belongs to another VM",
            ),
            (
                |system| system.vms[0].regions[0].ipa = Ipa(0x7ff_d000),
                "VM 0, region 0: overlaps the device at 0x8000000 of the VM's map",
            ),
            (
                |system| system.vms[0].regions[0].ipa = Ipa(0x801_1000),
                "VM 0, region 0: overlaps the device at 0x8011000 of the VM's map",
            ),
            (
                |system| system.vms[0].regions[0].ipa = Ipa(0x8ff_e000),
                "VM 0, region 0: overlaps the device at 0x9000000 of the VM's map",
            ),
            (
                |system| system.vms[0].regions[0].ipa = Ipa(0x900_1000),
                "VM 0, region 0: overlaps the device at 0x9001000 of the VM's map",
            ),
            (
                |system| system.board.cores.clear(),
                "system: its board has 0 cores, not 1 to 8, or with a GICv3 1 to 16",
            ),
            (
                |system| system.ends_with = Some(VmId(1)),
                "system: ends with VM 1, which does not exist",
            ),
            (
                |system| system.pools[0].colors = ColorSet::first(1),
                "pool 0: holds color 0 of the hypervisor",
            ),
            (
                |system| system.pools.push(system.pools[0].clone()),
                "pool 1: shares colors with pool 0, and one of the two is private",
            ),
            (
                |system| system.vms.push(system.vms[0].clone()),
                "pool 0: is private, and 2 VMs use it",
            ),
            (
                |system| system.vms[0].cores.push(Core(4)),
                "VM 0: core 4 does not exist or is used twice",
            ),
            (
                |system| system.vms[0].regions[0].ipa = Ipa((1 << 39) - 0x3000),
                "VM 0, region 0: starts at 0x7fffffd000 and ends beyond the IPA space",
            ),
            (
                |system| system.vms[0].regions.extend_from_within(..),
                "VM 0, region 1: overlaps region 0",
            ),
            (
                |system| {
                    system.vms[0].regions[0].backing = image::Backing::Device(PhysAddr(0x900_0000))
                },
                "VM 0, region 0: its device at 0x9000000 is not on a page, ends above 40 bits, \
                 overlaps memory, or includes one of the hypervisor's own",
            ),
            (
                |system| system.vms[0].irqs = [40, 33].map(Intid).to_vec(),
                "VM 0: interrupt 33 is not a shared one of the board, or is the hypervisor's own",
            ),
            (
                |system| system.vms[0].irqs = [40, 40].map(Intid).to_vec(),
                "VM 0: interrupt 40 is granted twice",
            ),
        ];
        refused(&changes);
    }

    #[test]
    fn overflow_interrupts_that_cannot_be_are_reported() {
        let changes: [(Change, &str); 7] = [
            (
                |system| system.board.pmu_irqs = vec![Intid(40)],
                "system: the PMU's interrupts are not one for each of the 4 cores",
            ),
            (
                |system| system.board.pmu_irqs = vec![Intid(40); 4],
                "system: the PMU's interrupt 40 is neither a private one nor a shared one of a \
                 single core, or is used otherwise",
            ),
            (
                |system| system.board.pmu_irqs = [23, 23, 23, 24].map(Intid).to_vec(),
                "system: the PMU's interrupt 23 is neither a private one nor a shared one of a \
                 single core, or is used otherwise",
            ),
            (
                |system| system.board.pmu_irqs = vec![Intid(15); 4],
                "system: the PMU's interrupt 15 is neither a private one nor a shared one of a \
                 single core, or is used otherwise",
            ),
            (
                |system| system.board.pmu_irqs = vec![Intid(26); 4],
                "system: the PMU's interrupt 26 is neither a private one nor a shared one of a \
                 single core, or is used otherwise",
            ),
            (
                |system| system.board.pmu_irqs = [40, 41, 33, 42].map(Intid).to_vec(),
                "system: the PMU's interrupt 33 is neither a private one nor a shared one of a \
                 single core, or is used otherwise",
            ),
            (
                |system| {
                    system.board.pmu_irqs = [40, 41, 42, 43].map(Intid).to_vec();
                    system.vms[0].irqs = vec![Intid(42)];
                },
                "VM 0: interrupt 42 is not a shared one of the board, or is the hypervisor's own",
            ),
        ];
        refused(&changes);
    }

    #[test]
    fn a_system_needs_the_counters_of_its_busiest_core() {
        let quota = |vcpu| image::Quota {
            vcpu: VcpuIndex(vcpu),
            ..quota()
        };
        let mut system = system();
        assert_eq!(system.counters(), 0);
        let vm = &mut system.vms[0];
        vm.cores = vec![Core(0), Core(1)];
        vm.quotas = vec![quota(0), quota(1), quota(1)];
        vm.hems = vec![EventId(8); 3];
        assert_eq!(system.counters(), 5);
        // Polling needs no second counter.
        system.board.pmu_shadow = true;
        assert_eq!(system.counters(), 5);
        system.board.pmu_irqs = vec![Intid(23); 4];
        assert_eq!(system.counters(), 7);
        let sub_experiments = vec![vec![EventId(8); 2], vec![EventId(8); 4]];
        system.vms[0].campaign = Some(image::Campaign {
            sub_experiments,
            runs: 1,
            vary: None,
        });
        assert_eq!(system.counters(), 8);
        system.vms[0].quotas[0].also = Some(quota(0).counted);
        assert_eq!(system.counters(), 8, "vCPU 0 has as many now");
        system.vms[0].pmu = image::GuestPmu::Direct;
        assert_eq!(system.counters(), 9, "its guest has one itself");
    }

    fn quota() -> image::Quota {
        image::Quota {
            vcpu: VcpuIndex(0),
            counted: image::Counted {
                event: EventId(8),
                weight: 1,
                allowed: false,
            },
            also: None,
            budget: Events(1),
            ceiling: Events(1),
            period: Nanos(1),
            poll: Nanos(1),
            backstop: false,
            trace: false,
            exact: true,
            work_cost: image::WorkCost::default(),
            when_spent: image::WhenSpent::Throttle,
            reclaim: None,
        }
    }

    #[test]
    fn quotas_are_whole_and_trusted() {
        let with = |change: &dyn Fn(&mut System, &mut image::Quota)| {
            let (mut system, mut quota) = (system(), quota());
            change(&mut system, &mut quota);
            system.vms[0].quotas.push(quota);
            system.validate(u32::MAX).map_err(|what| what.to_string())
        };
        let is = |what: &str, change: &dyn Fn(&mut System, &mut image::Quota)| {
            let refused = with(change).expect_err("refused");
            assert!(refused.contains(what), "{refused}");
        };
        let trusted = |system: &mut System| system.trusted = vec![EventId(8)];
        assert_eq!(with(&|system, _| trusted(system)), Ok(()));
        assert_eq!(with(&|_, quota| quota.counted.allowed = true), Ok(()));
        is("event 0x8, which no verdict trusts", &|_, _| {});
        is("event 0x16, which no verdict trusts", &|system, quota| {
            trusted(system);
            quota.also = Some(image::Counted {
                event: EventId(0x16),
                ..quota.counted
            });
        });
        is("no budget, weight or period", &|system, quota| {
            (trusted(system), quota.counted.weight = 0).1
        });
        is("no budget, weight or period", &|system, quota| {
            (trusted(system), quota.budget = Events(2)).1
        });
        is("no budget, weight or period", &|system, quota| {
            (trusted(system), quota.ceiling = Events(1 << 32)).1
        });
        let shared = |pool, guarantee| {
            Some(image::Reclaim {
                pool,
                guarantee: Events(guarantee),
            })
        };
        assert_eq!(
            with(&|system, quota| (trusted(system), quota.reclaim = shared(7, 1)).1),
            Ok(())
        );
        for (pool, guarantee, exact) in [(8, 1, true), (0, 0, true), (0, 2, true), (0, 1, false)] {
            is("guarantees nothing or more", &|system, quota| {
                trusted(system);
                (quota.reclaim, quota.exact) = (shared(pool, guarantee), exact);
            });
        }
        is("another period", &|system, quota| {
            trusted(system);
            quota.reclaim = shared(0, 1);
            system.vms[0].quotas.push(image::Quota {
                period: Nanos(2),
                ..*quota
            });
        });
        is("regulates VMs 0b1,", &|system, _| {
            system.vms[0].regulates = 1
        });
    }

    #[test]
    fn nothing_is_made_of_parts_that_do_not_fit() {
        for at in [56, 64] {
            let mut headless = hypervisor();
            headless.bytes[at] = 0;
            assert!(matches!(
                system_image(&headless, system(), b"8 bytes."),
                Err(ImageError::NoHeader)
            ));
        }
        assert!(matches!(
            system_image(&hypervisor(), system(), b"7 bytes"),
            Err(ImageError::Invalid(_))
        ));
        let stray_word = || {
            let mut system = system();
            system.board.spin_table = Some(
                [0x4000_00d8, 0x4000_00e0, 0x4000_00e8, 0x4000_00f0]
                    .map(PhysAddr)
                    .into(),
            );
            system
        };
        assert!(matches!(
            system_image(&hypervisor(), stray_word(), b"8 bytes."),
            Err(ImageError::Invalid(_))
        ));
        let mut reserved = stray_word();
        reserved.board.reserved.push(PhysRange {
            start: PhysAddr(0x4000_0000),
            len: 4096,
        });
        assert!(system_image(&hypervisor(), reserved.clone(), b"8 bytes.").is_ok());
        reserved.board.power_off = Some(image::PowerOff {
            page: PhysAddr(0xfe10_0000),
            writes: vec![(0x20, 0x5a00_0555), (0x1000, 1)],
        });
        assert!(matches!(
            system_image(&hypervisor(), reserved, b"8 bytes."),
            Err(ImageError::Invalid(_))
        ));
        let mut large = system();
        large.vms[0].image.len = 5 * 4096;
        let error = check_fit(&large.vms[0]).unwrap_err().to_string();
        assert_eq!(
            error,
            "VM `one`: its image takes 0x40000000 to 0x40005000, and no region of the VM holds \
             that"
        );
    }
}
