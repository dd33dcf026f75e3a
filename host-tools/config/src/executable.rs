//! ELF files of guests: their segments, checked, and the regions of a VM that hold them.
//!
//! Every command that loads a guest reads it here, so that `image` and `run` load exactly what
//! `check` accepts. Addresses in a file are allegations until they have been compared with the file
//! and with the VM's regions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::count;
use crate::quantity::show_size;
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::image::{Backing, Region};
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{LittleEndian, ReadRef};
use std::ops::Range;
use thiserror::Error;

/// First bytes of an ELF file.
pub const MAGIC: &[u8] = b"\x7fELF";
/// Maximum number of loaded segments of a file: each may become a part of the system image.
pub const MOST_SEGMENTS: usize = 64;
/// Maximum number of bytes of memory that a system image gives a guest.
pub const LONGEST: u64 = 1 << 30;
/// Segments of a region that are at most this far apart are loaded together, with zeros between
/// them. Linkers align segments to pages of up to 64 KiB, and some of the shipped guests have code
/// at a multiple of 512 KiB.
const SMALL_GAP: u64 = 1 << 20;

/// Length of the file's header, and offsets in it.
const HEADER_LEN: usize = size_of::<FileHeader64<LittleEndian>>();
const DATA_AT: usize = 5;
const MACHINE_AT: usize = 18;
/// Length of an A64 instruction.
const INSTRUCTION: u64 = 4;

/// Machines for which a file is often built by mistake: EM_ numbers.
const MACHINES: [(elf::Machine, &str); 9] = [
    (elf::EM_386, "i386"),
    (elf::EM_ARM, "32-bit Arm"),
    (elf::EM_MIPS, "MIPS"),
    (elf::EM_PPC, "PowerPC"),
    (elf::EM_PPC64, "64-bit PowerPC"),
    (elf::EM_RISCV, "RISC-V"),
    (elf::EM_S390, "S/390"),
    (elf::EM_X86_64, "x86-64"),
    (elf::EM_LOONGARCH, "LoongArch"),
];

/// A segment that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its number among the program headers, from 0, as `readelf -l` counts them.
    pub number: usize,
    /// Its address for the guest's own translation, or for the linker.
    pub virtual_address: u64,
    /// Where it is loaded: an IPA.
    pub load: u64,
    /// Bytes of memory that it takes. Those that the file does not contain are zero.
    pub memory: u64,
    /// Whether its flags allow execution (PF_X).
    pub executable: bool,
    /// Whether its flags allow writing (PF_W).
    pub writable: bool,
    /// Its first bytes, from the file.
    pub bytes: &'a [u8],
}

impl Segment<'_> {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.load + self.memory
    }

    /// Returns the load address of a virtual address of the segment.
    pub fn physical(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.virtual_address)?;
        (within < self.memory).then(|| self.load + within)
    }
}

/// An ELF file without contradictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable<'a> {
    /// Load address of the first instruction.
    pub entry: u64,
    /// Number of the segment that contains it.
    pub entry_segment: usize,
    /// The segments, by address; no two overlap.
    pub segments: Vec<Segment<'a>>,
}

/// A mistake in an ELF file, or in its place in a VM.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ElfError {
    #[error("it is not an ELF file")]
    NotElf,
    #[error("it has {0} bytes, and the header of an ELF file has {HEADER_LEN}")]
    Short(usize),
    #[error("it is for {0}, not for AArch64")]
    Machine(String),
    #[error("it is a 32-bit ELF file")]
    Class,
    #[error("it is big-endian")]
    BigEndian,
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    #[error("it is {0}, not an executable")]
    Type(&'static str),
    #[error("its program headers are not in the file, or not as long as they are in a 64-bit file")]
    ProgramHeaders,
    #[error("segment {number} names a dynamic linker")]
    Interpreter { number: usize },
    #[error("segment {number}, its dynamic section, {what}")]
    Dynamic { number: usize, what: &'static str },
    #[error("it has no loadable segment")]
    Empty,
    #[error("it has {0} loadable segments, and at most {MOST_SEGMENTS} are loaded")]
    Many(usize),
    #[error("segment {number} is bytes {start} to {end} of the file, which has {length}")]
    Cut {
        number: usize,
        start: u64,
        end: u128,
        length: usize,
    },
    #[error("segment {number} has {file:#x} bytes in the file, and {memory:#x} in memory")]
    Shrinks {
        number: usize,
        file: u64,
        memory: u64,
    },
    #[error("segment {number} takes {start:#x} to {end:#x}, beyond the end of all addresses")]
    Wraps {
        number: usize,
        start: u64,
        end: u128,
    },
    #[error(
        "segment {number} at {start:#x} to {end:#x} overlaps segment {other} at {other_start:#x} \
         to {other_end:#x}"
    )]
    Overlap {
        number: usize,
        start: u64,
        end: u64,
        other: usize,
        other_start: u64,
        other_end: u64,
    },
    #[error("its entry {entry:#x} is in none of its segments")]
    EntryOutside { entry: u64 },
    #[error("its entry {entry:#x} is in segment {number}, which is not executable")]
    EntryNotExecutable { entry: u64, number: usize },
    #[error(
        "its entry {entry:#x} is in segment {number}, which has no instruction there: the file's \
         part ends at {end:#x}"
    )]
    EntryZero { entry: u64, number: usize, end: u64 },
    #[error("its entry {entry:#x} is not a multiple of 4")]
    EntryUnaligned { entry: u64 },
    #[error("its entry {entry:#x} is in region `{region}`, which has execute = false")]
    EntryForbidden { entry: u64, region: String },
    #[error("segment {number} takes {start:#x} to {end:#x}, {} beyond the end of region `{region}` at {limit:#x}", count((.end - .limit) as usize, "byte"))]
    Beyond {
        number: usize,
        start: u64,
        end: u64,
        region: String,
        limit: u64,
    },
    #[error(
        "segment {number} takes {start:#x} to {end:#x}, which is in region `{region}`, a device"
    )]
    Device {
        number: usize,
        start: u64,
        end: u64,
        region: String,
    },
    #[error("segment {number} takes {start:#x} to {end:#x}, and no RAM of the VM is there")]
    NoRam {
        number: usize,
        start: u64,
        end: u64,
        nearest: Option<(String, Range<u64>)>,
    },
    #[error("its segments take {}, and at most {} are loaded", show_size(*.0), show_size(LONGEST))]
    Large(u64),
}

impl ElfError {
    /// Returns how to fix it.
    pub fn help(&self) -> String {
        match self {
            Self::NotElf | Self::Machine(_) | Self::Class | Self::BigEndian | Self::Type(_) => {
                "build the guest as an AArch64 executable: 64 bits, little-endian, linked with \
                 -static -no-pie"
                    .to_owned()
            }
            Self::Interpreter { .. } | Self::Dynamic { .. } => "nothing relocates a guest: link \
                                                                it with -static -no-pie, for the \
                                                                addresses where it runs"
                .to_owned(),
            Self::Short(_) | Self::Header(_) | Self::ProgramHeaders | Self::Cut { .. } => {
                "the file is damaged or incomplete: build or copy it again".to_owned()
            }
            Self::Empty => "link it with segments that are loaded (PT_LOAD); `readelf -l` shows \
                            them"
                .to_owned(),
            Self::Many(_) | Self::Shrinks { .. } | Self::Wraps { .. } | Self::Overlap { .. } => {
                "correct its linker script; `readelf -l` shows the segments".to_owned()
            }
            Self::EntryOutside { .. }
            | Self::EntryNotExecutable { .. }
            | Self::EntryZero { .. }
            | Self::EntryUnaligned { .. } => "let the linker script's ENTRY name the first \
                                              instruction; `readelf -hl` shows entry and segments"
                .to_owned(),
            Self::EntryForbidden { region, .. } => {
                format!(
                    "give region `{region}` execute = true, or link the guest for another region"
                )
            }
            Self::Beyond { number, region, .. } => {
                format!(
                    "make region `{region}` larger, or link segment {number} for less or elsewhere"
                )
            }
            Self::Device { number, .. } => format!("link segment {number} for RAM"),
            Self::NoRam {
                number,
                nearest: None,
                ..
            } => {
                format!("give the VM RAM there, or link segment {number} for its RAM")
            }
            Self::NoRam {
                number,
                nearest: Some((name, range)),
                ..
            } => format!(
                "the nearest region of RAM is `{name}` at {:#x} to {:#x}: link segment {number} \
                 for it, or add a region",
                range.start, range.end
            ),
            Self::Large(_) => {
                "let the guest clear or fill large parts of its memory itself".to_owned()
            }
        }
    }
}

impl<'a> Executable<'a> {
    /// Reads an ELF file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn parse(data: &'a [u8]) -> Result<Self, ElfError> {
        let header = header(data)?;
        let headers = header
            .program_headers(LittleEndian, data)
            .map_err(|_| ElfError::ProgramHeaders)?;
        for (number, header) in headers.iter().enumerate() {
            check_static(number, header, data)?;
        }
        let loaded = |header: &ProgramHeader64<LittleEndian>| {
            header.p_type(LittleEndian) == elf::PT_LOAD
                && (header.p_memsz(LittleEndian) > 0 || header.p_filesz(LittleEndian) > 0)
        };
        let count = headers.iter().filter(|header| loaded(header)).count();
        if count > MOST_SEGMENTS {
            return Err(ElfError::Many(count));
        }
        let all = headers
            .iter()
            .enumerate()
            .filter(|(_, header)| loaded(header));
        let mut segments = all
            .map(|(number, header)| segment(number, header, data))
            .collect::<Result<Vec<_>, _>>()?;
        segments.sort_by_key(|segment| (segment.load, segment.number));
        for pair in segments.windows(2) {
            let [first, second] = pair else { continue };
            if second.load < first.end() {
                return Err(ElfError::Overlap {
                    number: second.number,
                    start: second.load,
                    end: second.end(),
                    other: first.number,
                    other_start: first.load,
                    other_end: first.end(),
                });
            }
        }
        if segments.is_empty() {
            return Err(ElfError::Empty);
        }
        let (entry, entry_segment) = entry(header.e_entry(LittleEndian), &segments)?;
        Ok(Self {
            entry,
            entry_segment,
            segments,
        })
    }

    /// Returns the load address of a virtual address of the file, if a segment contains it.
    pub fn physical(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.physical(address))
    }

    /// Finds the region of RAM of each segment. Returns the parts to load, the part with the entry
    /// first.
    ///
    /// # Errors
    ///
    /// Each segment that is not in a region of RAM as a whole, or else the mistake in the entry or
    /// the size.
    pub fn place(&self, regions: &[Region]) -> Result<Vec<Part<'a>>, Vec<ElfError>> {
        let mut parts: Vec<(usize, Part<'a>)> = Vec::new();
        let mut errors = Vec::new();
        for segment in &self.segments {
            let index = match region_of(segment, regions) {
                Ok(index) => index,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            match parts.last_mut() {
                Some((last, part)) if *last == index && segment.load - part.end() <= SMALL_GAP => {
                    part.segments.push(segment.clone());
                }
                _ => parts.push((
                    index,
                    Part {
                        segments: vec![segment.clone()],
                    },
                )),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let total = parts.iter().map(|(_, part)| part.len()).sum();
        if total > LONGEST {
            return Err(vec![ElfError::Large(total)]);
        }
        let first = parts
            .iter()
            .position(|(_, part)| (part.start()..part.end()).contains(&self.entry))
            .unwrap_or(0);
        parts[..=first].rotate_right(1);
        let region = &regions[parts[0].0];
        if !region.executable {
            return Err(vec![ElfError::EntryForbidden {
                entry: self.entry,
                region: region.name.clone(),
            }]);
        }
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }
}

/// Segments of one region that are loaded together: from the start of a page to the end of the last
/// segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The segments, by address; at least one.
    segments: Vec<Segment<'a>>,
}

impl Part<'_> {
    /// Returns the address of its first page.
    pub fn load(&self) -> Ipa {
        Ipa(self.start())
    }

    fn start(&self) -> u64 {
        self.segments
            .first()
            .map_or(0, |segment| Ipa(segment.load).page_base().0)
    }

    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(0, Segment::end)
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.end() - self.start()
    }

    /// Returns `false`: a part always has a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its bytes, with zeros wherever the file has none.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() as usize);
        for segment in &self.segments {
            bytes.resize((segment.load - self.start()) as usize, 0);
            bytes.extend_from_slice(segment.bytes);
        }
        bytes.resize(self.len() as usize, 0);
        bytes
    }
}

/// Reads and checks the header.
fn header(data: &[u8]) -> Result<&FileHeader64<LittleEndian>, ElfError> {
    if !data.starts_with(MAGIC) {
        return Err(ElfError::NotElf);
    }
    if data.len() < HEADER_LEN {
        return Err(ElfError::Short(data.len()));
    }
    let is_big = data[DATA_AT] == elf::ELFDATA2MSB.0;
    let machine = [data[MACHINE_AT], data[MACHINE_AT + 1]];
    let machine = elf::Machine(if is_big {
        u16::from_be_bytes(machine)
    } else {
        u16::from_le_bytes(machine)
    });
    if machine != elf::EM_AARCH64 {
        let known = MACHINES.iter().find(|(number, _)| *number == machine);
        let name = known.map_or_else(
            || format!("machine {}", machine.0),
            |(_, name)| (*name).to_owned(),
        );
        return Err(ElfError::Machine(name));
    }
    let header: &FileHeader64<LittleEndian> = data
        .read_at(0)
        .map_err(|()| ElfError::Header("it cannot be read"))?;
    if header.e_ident.class == elf::ELFCLASS32 {
        return Err(ElfError::Class);
    }
    if is_big {
        return Err(ElfError::BigEndian);
    }
    if header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB {
        return Err(ElfError::Header("it has no valid class or byte order"));
    }
    if header.e_ident.version != elf::EV_CURRENT
        || header.e_version(LittleEndian) != u32::from(elf::EV_CURRENT.0)
    {
        return Err(ElfError::Header("its version is not 1"));
    }
    match header.e_type(LittleEndian) {
        elf::ET_EXEC | elf::ET_DYN => Ok(header),
        elf::ET_REL => Err(ElfError::Type("a relocatable object")),
        elf::ET_CORE => Err(ElfError::Type("a core dump")),
        _ => Err(ElfError::Type("of an unknown type")),
    }
}

/// Checks that a program header asks nobody to link or relocate the program.
fn check_static(
    number: usize,
    header: &ProgramHeader64<LittleEndian>,
    data: &[u8],
) -> Result<(), ElfError> {
    match header.p_type(LittleEndian) {
        elf::PT_INTERP => Err(ElfError::Interpreter { number }),
        elf::PT_DYNAMIC => {
            let error = |what| ElfError::Dynamic { number, what };
            let entries = header
                .dynamic(LittleEndian, data)
                .map_err(|_| error("is not in the file"))?;
            for entry in entries.unwrap_or_default() {
                match entry.tag(LittleEndian) {
                    elf::DT_NULL => break,
                    elf::DT_NEEDED => return Err(error("needs shared libraries")),
                    elf::DT_RELASZ | elf::DT_RELSZ | elf::DT_RELRSZ | elf::DT_PLTRELSZ
                        if entry.val(LittleEndian) > 0 =>
                    {
                        return Err(error("has relocations"));
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks a segment that is to be loaded.
fn segment<'a>(
    number: usize,
    header: &ProgramHeader64<LittleEndian>,
    data: &'a [u8],
) -> Result<Segment<'a>, ElfError> {
    let (load, memory, file) = (
        header.p_paddr(LittleEndian),
        header.p_memsz(LittleEndian),
        header.p_filesz(LittleEndian),
    );
    if file > memory {
        return Err(ElfError::Shrinks {
            number,
            file,
            memory,
        });
    }
    let bytes = header.data(LittleEndian, data).map_err(|()| {
        let start = header.p_offset(LittleEndian);
        ElfError::Cut {
            number,
            start,
            end: u128::from(start) + u128::from(file),
            length: data.len(),
        }
    })?;
    let virtual_address = header.p_vaddr(LittleEndian);
    for start in [load, virtual_address] {
        if start.checked_add(memory).is_none() {
            return Err(ElfError::Wraps {
                number,
                start,
                end: u128::from(start) + u128::from(memory),
            });
        }
    }
    let has = |flag| header.p_flags(LittleEndian).intersects(flag);
    let (executable, writable) = (has(elf::PF_X), has(elf::PF_W));
    Ok(Segment {
        number,
        virtual_address,
        load,
        memory,
        executable,
        writable,
        bytes,
    })
}

/// Returns where the first instruction is loaded, and the number of its segment. The header's entry
/// is a virtual address; some linkers' scripts make it a physical one.
fn entry(entry: u64, segments: &[Segment<'_>]) -> Result<(u64, usize), ElfError> {
    let by_virtual = segments
        .iter()
        .filter_map(|segment| Some((segment, segment.physical(entry)?)));
    let by_physical = segments
        .iter()
        .filter(|segment| (segment.load..segment.end()).contains(&entry))
        .map(|segment| (segment, entry));
    // Of segments that share virtual addresses, as overlays do, the one that can be executed.
    let found: Vec<_> = by_virtual.chain(by_physical).collect();
    let executable = found.iter().find(|(segment, _)| segment.executable);
    let &(segment, load) = executable
        .or(found.first())
        .ok_or(ElfError::EntryOutside { entry })?;
    let number = segment.number;
    if !segment.executable {
        return Err(ElfError::EntryNotExecutable { entry, number });
    }
    if !load.is_multiple_of(INSTRUCTION) {
        return Err(ElfError::EntryUnaligned { entry });
    }
    let end = segment.load + segment.bytes.len() as u64;
    if end < load || end - load < INSTRUCTION {
        let end = segment.virtual_address + segment.bytes.len() as u64;
        return Err(ElfError::EntryZero { entry, number, end });
    }
    Ok((load, number))
}

/// Returns the index of the region of RAM that holds a segment.
fn region_of(segment: &Segment<'_>, regions: &[Region]) -> Result<usize, ElfError> {
    let range = |region: &Region| region.ipa.0..region.ipa.0 + u64::from(region.pages) * PAGE_SIZE;
    let (number, start, end) = (segment.number, segment.load, segment.end());
    let is_device = |region: &Region| matches!(region.backing, Backing::Device(_));
    if let Some((index, region)) = regions
        .iter()
        .enumerate()
        .find(|(_, region)| range(region).contains(&start))
    {
        let (name, limit) = (region.name.clone(), range(region).end);
        return match (is_device(region), end > limit) {
            (true, _) => Err(ElfError::Device {
                number,
                start,
                end,
                region: name,
            }),
            (false, true) => Err(ElfError::Beyond {
                number,
                start,
                end,
                region: name,
                limit,
            }),
            (false, false) => Ok(index),
        };
    }
    let memory = regions
        .iter()
        .filter(|region| !is_device(region))
        .map(|region| (region.name.clone(), range(region)));
    let distance = |range: &Range<u64>| {
        range
            .start
            .saturating_sub(end)
            .max(start.saturating_sub(range.end))
    };
    let nearest = memory.min_by_key(|(_, range)| distance(range));
    Err(ElfError::NoRam {
        number,
        start,
        end,
        nearest,
    })
}
