//! Functions and source lines of a program's addresses: of an ELF file, or of a list as `System.map`
//! and `/proc/kallsyms` are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use addr2line::Context;
use cloison_engine::cargo::SOURCES;
use gimli::{Dwarf, DwarfSections, EndianRcSlice, LittleEndian, SectionId};
use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of a page, by which code without a name is told apart.
const PAGE: u64 = 4096;

/// Where an instruction is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The function, or the page if no function is known.
    pub function: String,
    /// The file of its line, if that is known.
    pub file: Option<Rc<str>>,
    /// Its line, or 0.
    pub line: u32,
    /// A function is known.
    pub is_named: bool,
}

/// A function at an instruction, of those that are inlined into each other there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function, if it is known.
    pub function: Option<String>,
    /// The file of its line, if that is known.
    pub file: Option<Rc<str>>,
    /// Its line, or 0.
    pub line: u32,
}

/// The names of a program's code.
pub struct Symbols {
    /// Name of the program.
    pub object: String,
    /// What is not known, and how to know it.
    pub note: Option<String>,
    /// Functions, sorted; a function ends where the next one begins.
    functions: Vec<(u64, String)>,
    /// Where code is; empty if that is not known.
    code: Vec<Range<u64>>,
    /// Parts that are loaded at other addresses than they are linked for, and the distance.
    moved: Vec<(Range<u64>, u64)>,
    lines: Option<Context<EndianRcSlice<LittleEndian>>>,
    /// The checkout, if source files of its programs are there.
    sources: Option<PathBuf>,
}

impl Symbols {
    /// Returns those of a program without any.
    pub fn none(object: impl Into<String>, note: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            note: Some(note.into()),
            functions: Vec::new(),
            code: Vec::new(),
            moved: Vec::new(),
            lines: None,
            sources: None,
        }
    }

    /// Names source files of the checkout by where they are.
    pub fn with_sources(mut self, checkout: Option<&Path>) -> Self {
        self.sources = checkout.map(Path::to_path_buf);
        self
    }

    fn source(&self, file: &str) -> Rc<str> {
        let own = file
            .strip_prefix(SOURCES)
            .and_then(|it| it.strip_prefix('/'));
        let found = own.zip(self.sources.as_ref());
        let found = found.map(|(own, sources)| sources.join(own));
        match found.filter(|found| found.is_file()) {
            Some(found) => Rc::from(found.to_string_lossy()),
            None => Rc::from(file),
        }
    }

    /// Reads those of a file's bytes: an ELF file, or a list.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn parse(object: &str, bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(b"\x7fELF") {
            Self::of_elf(object, bytes)
        } else {
            Self::of_list(object, bytes)
        }
    }

    fn of_elf(object: &str, bytes: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let is_code = |section: &object::Section<'_, '_>| match section.flags() {
            SectionFlags::Elf { sh_flags, .. } => sh_flags & SHF_EXECINSTR == SHF_EXECINSTR,
            _ => false,
        };
        let sections = file.sections().filter(is_code);
        let code = sections
            .map(|section| section.address()..section.address().saturating_add(section.size()))
            .collect::<Vec<_>>();
        let mut named: Vec<(u64, bool, bool, String)> = file
            .symbols()
            .filter(|symbol| {
                matches!(
                    symbol.kind(),
                    SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown
                )
            })
            // Not what a linker script defines as a number.
            .filter(|symbol| symbol.section_index().is_some())
            .filter(|symbol| code.iter().any(|code| code.contains(&symbol.address())))
            .filter_map(|symbol| {
                let name = symbol.name().ok()?;
                // Marks of the assembler's.
                let is_mark = name.is_empty() || name.starts_with('$') || name.starts_with(".L");
                let is_label = symbol.kind() != SymbolKind::Text;
                (!is_mark).then(|| (symbol.address(), is_label, symbol.is_local(), plain(name)))
            })
            .collect();
        // Of several names of an address, a global function's is the first.
        named.sort();
        named.dedup_by_key(|(address, ..)| *address);
        let lines = has_lines(&file).then(|| context(&file)).flatten();
        let note = match (named.is_empty(), lines.is_some()) {
            (true, _) => Some(format!(
                "{object} has no symbols: its functions are pages. Link it without --strip-all, \
                 or give the file with symbols by --symbols"
            )),
            (false, false) => Some(format!(
                "{object} has no line table: functions have no lines. Compile with -g"
            )),
            (false, true) => None,
        };
        Ok(Self {
            object: object.to_owned(),
            note,
            functions: named
                .into_iter()
                .map(|(at, _, _, name)| (at, name))
                .collect(),
            code,
            moved: moved(bytes),
            lines,
            sources: None,
        })
    }

    /// Reads lines of an address, a letter and a name.
    fn of_list(object: &str, bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| "it is neither an ELF file nor a list of symbols".to_owned())?;
        let mut functions = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                if line.trim().is_empty() {
                    continue;
                }
                return Err(format!(
                    "line {number}: it has no address, letter and name, as in \
                     `ffff800080010000 T _stext`"
                ));
            };
            let address = u64::from_str_radix(address, 16)
                .map_err(|_| format!("line {number}: `{address}` is no address in hexadecimal"))?;
            if matches!(kind, "t" | "T" | "w" | "W") && !name.starts_with('$') {
                functions.push((address, name.to_owned()));
            }
        }
        if functions.iter().all(|(address, _)| *address == 0) {
            return Err(
                "it has no address of a function. /proc/kallsyms shows addresses to root \
                        alone"
                    .to_owned(),
            );
        }
        functions.sort();
        functions.dedup_by_key(|(address, _)| *address);
        Ok(Self {
            functions,
            ..Self::none(
                object,
                format!("{object} is a list of symbols: functions have no lines"),
            )
        })
    }

    /// Returns whether a function is known.
    pub const fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Returns where the instruction at an address is.
    pub fn at(&self, address: u64) -> Location {
        let linked = self.linked(address);
        let named = self.function(linked).map(|(_, name)| name.clone());
        let is_named = named.is_some();
        let function = named.unwrap_or_else(|| format!("[page {:#x}]", address & !(PAGE - 1)));
        let (file, line) = self.line(linked);
        Location {
            function,
            file,
            line,
            is_named,
        }
    }

    /// Returns the file in which the function of an instruction begins.
    pub fn file_of(&self, address: u64) -> Option<Rc<str>> {
        let (start, _) = self.function(self.linked(address))?;
        // The outermost of the functions that are inlined there.
        self.frames(*start).pop()?.file
    }

    /// Returns the functions that are inlined at an address, innermost first, and the one that holds
    /// them; none without lines.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let lines = self.lines.as_ref();
        let found = lines.map(|lines| lines.find_frames(self.linked(address)).skip_all_loads());
        let Some(Ok(mut frames)) = found else {
            return Vec::new();
        };
        let mut all = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().map(|name| name.raw_name());
            let place = frame.location;
            let file = place.as_ref().and_then(|place| place.file);
            all.push(Frame {
                function: name.and_then(|name| Some(plain(&name.ok()?))),
                file: file.map(|file| self.source(file)),
                line: place.and_then(|place| place.line).unwrap_or(0),
            });
        }
        all
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.is_empty() || self.code.iter().any(|code| code.contains(&address))
    }

    /// Returns the address for which the instruction at an address is linked.
    fn linked(&self, address: u64) -> u64 {
        if self.is_code(address) {
            return address;
        }
        let moved = self
            .moved
            .iter()
            .find(|(place, _)| place.contains(&address));
        moved.map_or(address, |(_, distance)| address.wrapping_add(*distance))
    }

    fn function(&self, linked: u64) -> Option<&(u64, String)> {
        let after = self
            .functions
            .partition_point(|(start, _)| *start <= linked);
        let at = after.checked_sub(1).filter(|_| self.is_code(linked))?;
        self.functions.get(at)
    }

    fn line(&self, linked: u64) -> (Option<Rc<str>>, u32) {
        let lines = self.lines.as_ref();
        let found = lines.and_then(|lines| lines.find_location(linked).ok()?);
        let file = found.as_ref().and_then(|found| found.file);
        let file = file.map(|file| self.source(file));
        (file, found.and_then(|found| found.line).unwrap_or(0))
    }
}

/// Returns a symbol's name as it is in the source, without a hash.
fn plain(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

fn has_lines(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_line").is_some()
}

fn context(file: &object::File<'_>) -> Option<Context<EndianRcSlice<LittleEndian>>> {
    // A damaged section is as one that is missing.
    let load = |id: SectionId| {
        let section = file.section_by_name(id.name());
        let data = section
            .and_then(|section| section.data().ok())
            .unwrap_or(&[]);
        Ok::<_, ()>(Rc::<[u8]>::from(data))
    };
    let sections = DwarfSections::load(load).ok()?;
    let dwarf: Dwarf<EndianRcSlice<LittleEndian>> =
        sections.borrow(|section| EndianRcSlice::new(Rc::clone(section), LittleEndian));
    Context::from_dwarf(dwarf).ok()
}

/// Returns the physical addresses of segments that are linked for other ones, with the distance.
fn moved(bytes: &[u8]) -> Vec<(Range<u64>, u64)> {
    use object::read::elf::{ElfFile64, ProgramHeader};
    let Ok(file) = ElfFile64::<object::LittleEndian>::parse(bytes) else {
        return Vec::new();
    };
    let endian = object::LittleEndian;
    let headers = file.elf_program_headers().iter();
    headers
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
        .filter(|header| header.p_paddr(endian) != header.p_vaddr(endian))
        .map(|header| {
            let (at, linked) = (header.p_paddr(endian), header.p_vaddr(endian));
            let end = at.saturating_add(header.p_memsz(endian));
            (at..end, linked.wrapping_sub(at))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_symbols_names_what_follows_each() {
        let text = "0000000000001000 t first\n0000000000001004 D data\n0000000000002000 T second\n";
        let symbols = Symbols::parse("System.map", text.as_bytes()).unwrap();
        let name = |address| symbols.at(address).function;
        assert_eq!(name(0x1004), "first");
        assert_eq!(name(0x2fff), "second");
        assert_eq!(name(0xfff), "[page 0x0]");
        assert!(!symbols.at(0xfff).is_named);
        assert!(symbols.note.is_some());
    }

    #[test]
    fn bad_lists_are_refused_with_their_line() {
        let error = |text: &[u8]| Symbols::parse("list", text).err().unwrap();
        assert!(error(b"0010 T a\nfoo\n").starts_with("line 2: it has no address"));
        assert!(error(b"xyz T a\n").contains("`xyz` is no address"));
        assert!(error(b"").contains("no address of a function"));
        assert!(error(b"0000 T a\n").contains("root"));
        assert!(error(b"\xff\xfe").contains("neither an ELF file"));
    }

    #[test]
    fn damaged_elf_files_never_panic() {
        // This test itself is an ELF file with symbols and lines.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = &own[..own.len().min(1 << 16)];
        for at in (0..head.len()).step_by(97) {
            let mut damaged = head.to_vec();
            damaged[at] ^= 0xa5;
            if let Ok(symbols) = Symbols::parse("damaged", &damaged) {
                symbols.at(0x1000);
            }
        }
    }
}
