//! The pages of a bare-metal guest by kind, from its ELF file and the regions of its VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::executable::{ElfError, Executable};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::image::{Backing, Region};
use cloison_profile::layout::Access;
use cloison_profile::{Kind, Mapping, PageName};
use object::LittleEndian;
use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use std::ops::Range;
use thiserror::Error;

/// Symbols that linker scripts give to the first and the last address of all stacks. Where only the
/// last one is there, the stacks begin where the sections before it end.
const STACK_STARTS: [&str; 4] = [
    "__stacks",
    "__stack_bottom",
    "_stack_bottom",
    "__stack_start",
];
const STACK_ENDS: [&str; 4] = ["__stacks_end", "__stack_top", "_stack_top", "__stack_end"];

/// Why an ELF file does not describe a guest.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// It cannot be loaded.
    #[error(transparent)]
    File(#[from] ElfError),
    /// Its sections or symbols are damaged.
    #[error(transparent)]
    Symbols(#[from] object::Error),
}

/// A guest's memory according to its ELF file. All addresses are physical ones of the guest, thus
/// IPAs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The parts that are loaded.
    parts: Vec<Part>,
    /// Functions and variables: addresses and names.
    symbols: Vec<(Range<u64>, String)>,
    /// All stacks.
    stacks: Option<Range<u64>>,
}

/// A section, or a segment of a file without sections.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    kind: Kind,
    place: Range<u64>,
}

fn kind(writable: bool, executable: bool) -> Kind {
    match (executable, writable) {
        (true, _) => Kind::Text,
        (false, true) => Kind::Data,
        (false, false) => Kind::ReadOnly,
    }
}

impl Program {
    /// Reads an ELF file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn parse(data: &[u8]) -> Result<Self, LayoutError> {
        let executable = Executable::parse(data)?;
        let file = ElfFile64::<LittleEndian>::parse(data)?;
        let physical = |address: u64| executable.physical(address).unwrap_or(address);
        let place = |start: u64, size: u64| physical(start)..physical(start).saturating_add(size);
        let mut parts = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            let has = |flag| sh_flags.intersects(flag);
            if has(SHF_ALLOC) && section.size() > 0 {
                let (name, kind) = (
                    section.name()?.to_owned(),
                    kind(has(SHF_WRITE), has(SHF_EXECINSTR)),
                );
                parts.push(Part {
                    name,
                    kind,
                    place: place(section.address(), section.size()),
                });
            }
        }
        if parts.is_empty() {
            for segment in &executable.segments {
                let kind = kind(segment.writable, segment.executable);
                parts.push(Part {
                    name: kind.meaning().to_owned(),
                    kind,
                    place: segment.load..segment.end(),
                });
            }
        }
        let mut symbols = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
            let name = rustc_demangle::demangle(symbol.name()?).to_string();
            symbols.push((place(symbol.address(), symbol.size()), name));
        }
        symbols.sort_by_key(|(place, _): &(Range<u64>, String)| (place.start, place.end));
        let named = |names: &[&str]| {
            let mut all = file.symbols();
            all.find(|symbol| symbol.name().is_ok_and(|name| names.contains(&name)))
                .map(|symbol| symbol.address())
        };
        let stacks = named(&STACK_ENDS).map(|end| {
            let before = parts
                .iter()
                .map(|part| part.place.end)
                .filter(|last| *last <= end)
                .max();
            named(&STACK_STARTS).or(before).unwrap_or(end)..end
        });
        Ok(Self {
            parts,
            symbols,
            stacks: stacks.filter(|stacks| !stacks.is_empty()),
        })
    }

    /// Returns what a page holds the most bytes of: its kind and the name of that.
    fn on(&self, page: Range<u64>) -> Option<(Kind, &str)> {
        let stacks = self
            .stacks
            .iter()
            .map(|stacks| (Kind::Stack, "[stack]", stacks));
        let parts = self
            .parts
            .iter()
            .map(|part| (part.kind, part.name.as_str(), &part.place));
        let shared = parts
            .chain(stacks)
            .map(|(kind, name, place)| (shared(place, &page), kind, name));
        // Of equal ones the first.
        let most = shared
            .filter(|(bytes, ..)| *bytes > 0)
            .min_by_key(|(bytes, ..)| u64::MAX - bytes);
        most.map(|(_, kind, name)| (kind, name))
    }

    /// Returns the function or variable that has the most bytes of a page.
    pub fn symbol_on(&self, page: u64) -> Option<&str> {
        let page = page..page + PAGE_SIZE;
        let near = self
            .symbols
            .iter()
            .map(|(place, name)| (shared(place, &page), name.as_str()));
        near.filter(|(bytes, _)| *bytes > 0)
            .min_by_key(|(bytes, _)| u64::MAX - bytes)
            .map(|(_, name)| name)
    }

    /// Returns whether the file loads anything into a region.
    fn is_in(&self, region: &Region) -> bool {
        let place = region.ipa.0..region.ipa.page(u64::from(region.pages)).0;
        self.parts
            .iter()
            .any(|part| shared(&part.place, &place) > 0)
    }
}

/// Returns how many addresses two ranges have in common.
fn shared(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end
        .min(other.end)
        .saturating_sub(one.start.max(other.start))
}

/// Returns the mappings of a VM: consecutive pages of one kind each. Pages that cannot move to a
/// pool are in none. The rest of the ELF file's region is heap; other regions are anonymous memory.
pub fn of(program: &Program, regions: &[Region]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for region in regions
        .iter()
        .filter(|region| matches!(region.backing, Backing::Pool(_)))
    {
        let first = mappings.len();
        let rest = if program.is_in(region) {
            (Kind::Heap, "[heap]")
        } else {
            (Kind::Anonymous, region.name.as_str())
        };
        for page in 0..u64::from(region.pages) {
            let start = region.ipa.page(page).0;
            let (kind, name) = program.on(start..start + PAGE_SIZE).unwrap_or(rest);
            match mappings[first..].last_mut() {
                Some(last) if (last.kind, last.name.as_str()) == (kind, name) => last.pages += 1,
                _ => {
                    let index = mappings.len() as u32;
                    let (name, access) = (name.to_owned(), Access::default());
                    mappings.push(Mapping {
                        index,
                        kind,
                        name,
                        start,
                        pages: 1,
                        access,
                    });
                }
            }
        }
    }
    mappings
}

/// A page of a region, as users and profiles of version 1 name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the region.
    pub region: String,
    /// Number of the page in it.
    pub page: u64,
}

/// Returns the region and the number in it of a page of a mapping.
pub fn place(mappings: &[Mapping], regions: &[Region], page: PageName) -> Option<Place> {
    let ipa = address(mappings, page)?;
    let region = regions.iter().find(|region| region.contains(ipa))?;
    Some(Place {
        region: region.name.clone(),
        page: ipa.page_number() - region.ipa.page_number(),
    })
}

/// Returns the address of a page of a mapping.
pub fn address(mappings: &[Mapping], page: PageName) -> Option<Ipa> {
    mappings
        .get(page.vma as usize)
        .map(|mapping| Ipa(mapping.address(page.offset)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn region(name: &str, ipa: u64, pages: u32) -> Region {
        Region {
            name: name.into(),
            ipa: Ipa(ipa),
            pages,
            backing: Backing::Pool(0),
            executable: true,
        }
    }

    fn part(name: &str, kind: Kind, place: Range<u64>) -> Part {
        Part {
            name: name.into(),
            kind,
            place,
        }
    }

    pub(crate) fn program() -> Program {
        Program {
            parts: vec![
                part(".text", Kind::Text, 0x4000_0000..0x4000_1800),
                part(".rodata", Kind::ReadOnly, 0x4000_1800..0x4000_2400),
                part(".bss", Kind::Data, 0x4000_3000..0x4000_3010),
            ],
            symbols: vec![
                (0x4000_0000..0x4000_0010, "start".into()),
                (0x4000_0010..0x4000_1100, "main".into()),
            ],
            stacks: Some(0x4000_4000..0x4000_6000),
        }
    }

    fn shown(mappings: &[Mapping]) -> Vec<(char, &str, u64, u32)> {
        mappings
            .iter()
            .map(|it| (it.kind.letter(), it.name.as_str(), it.start, it.pages))
            .collect()
    }

    #[test]
    fn each_page_is_what_it_holds_most_of_and_the_rest_is_heap() {
        let mut fixed = region("fixed", 0x6000_0000, 4);
        fixed.backing = Backing::Contiguous;
        let regions = [
            region("ram", 0x4000_0000, 8),
            region("spare", 0x5000_0000, 3),
            fixed,
        ];
        let mappings = of(&program(), &regions);
        // The second page has as much of the text as of the constants: it is the first one's.
        let expected = [
            ('t', ".text", 0x4000_0000, 2),
            ('r', ".rodata", 0x4000_2000, 1),
            ('b', ".bss", 0x4000_3000, 1),
            ('s', "[stack]", 0x4000_4000, 2),
            ('h', "[heap]", 0x4000_6000, 2),
            ('a', "spare", 0x5000_0000, 3),
        ];
        assert_eq!(shown(&mappings), expected);
        assert!(
            mappings
                .iter()
                .zip(0..)
                .all(|(mapping, index)| mapping.index == index)
        );
    }

    #[test]
    fn pages_have_their_places_and_symbols() {
        let regions = [
            region("ram", 0x4000_0000, 8),
            region("spare", 0x5000_0000, 3),
        ];
        let mappings = of(&program(), &regions);
        let at = |vma, offset| place(&mappings, &regions, PageName { vma, offset });
        assert_eq!(
            at(4, 1),
            Some(Place {
                region: "ram".into(),
                page: 7
            })
        );
        assert_eq!(
            at(5, 2),
            Some(Place {
                region: "spare".into(),
                page: 2
            })
        );
        assert_eq!(at(6, 0), None);
        assert_eq!(program().symbol_on(0x4000_0000), Some("main"));
        assert_eq!(program().symbol_on(0x4000_2000), None);
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(Program::parse(b"\x7fELF").is_err());
        assert!(Program::parse(&[0; 4096]).is_err());
    }
}
