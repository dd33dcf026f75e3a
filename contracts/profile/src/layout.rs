//! Mappings of a process by kind, and names of pages that hold from run to run under address
//! randomization.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The purpose of a mapping. The letters are BBProf's, and `m`, `c` and `o` follow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The program's code.
    #[serde(rename = "t")]
    Text,
    /// The program's constants.
    #[serde(rename = "r")]
    ReadOnly,
    /// The program's variables, initialized or not.
    #[serde(rename = "b")]
    Data,
    /// The heap that `brk` moves.
    #[serde(rename = "h")]
    Heap,
    /// The first thread's stack.
    #[serde(rename = "s")]
    Stack,
    /// Anonymous memory.
    #[serde(rename = "a")]
    Anonymous,
    /// Shared libraries: code, constants and variables.
    #[serde(rename = "c")]
    Library,
    /// The library of mathematics, which BBProf selects by itself.
    #[serde(rename = "m")]
    MathLibrary,
    /// Other files.
    #[serde(rename = "f")]
    File,
    /// The kernel's own pages in a process (`vdso`, `vvar`).
    #[serde(rename = "k")]
    Kernel,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Text,
        Self::ReadOnly,
        Self::Data,
        Self::Heap,
        Self::Stack,
        Self::Anonymous,
        Self::Library,
        Self::MathLibrary,
        Self::File,
        Self::Kernel,
    ];

    /// Returns its letter.
    pub const fn letter(self) -> char {
        match self {
            Self::Text => 't',
            Self::ReadOnly => 'r',
            Self::Data => 'b',
            Self::Heap => 'h',
            Self::Stack => 's',
            Self::Anonymous => 'a',
            Self::Library => 'c',
            Self::MathLibrary => 'm',
            Self::File => 'f',
            Self::Kernel => 'k',
        }
    }

    /// Returns the meaning of its letter.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::ReadOnly => "rodata",
            Self::Data => "data and BSS",
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::Anonymous => "anonymous",
            Self::Library => "libraries",
            Self::MathLibrary => "libm",
            Self::File => "files",
            Self::Kernel => "the kernel's",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// A selection of kinds: BBProf's `-f`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    kinds: Vec<Kind>,
    /// Only the first anonymous mapping.
    first_anonymous: bool,
}

impl Selection {
    /// Reads a selection: letters of kinds, `a` for the first anonymous mapping, `A` for all of
    /// them.
    ///
    /// # Errors
    ///
    /// Returns the first letter that names no kind.
    pub fn parse(letters: &str) -> Result<Self, char> {
        let mut selection = Self {
            kinds: Vec::new(),
            first_anonymous: !letters.contains('A'),
        };
        for letter in letters.chars() {
            let wanted = if letter == 'A' { 'a' } else { letter };
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.letter() == wanted && *kind != Kind::Kernel);
            selection.kinds.push(kind.ok_or(letter)?);
        }
        Ok(selection)
    }

    /// Returns the mappings of a layout that are selected.
    pub fn of<'a>(&self, layout: &'a [Mapping]) -> Vec<&'a Mapping> {
        let mut seen = false;
        let wanted = |mapping: &&Mapping| {
            let first = !(mapping.kind == Kind::Anonymous
                && std::mem::replace(&mut seen, true)
                && self.first_anonymous);
            self.kinds.contains(&mapping.kind) && (mapping.kind != Kind::Anonymous || first)
        };
        let mut wanted = wanted;
        layout.iter().filter(|mapping| wanted(mapping)).collect()
    }
}

/// One mapping of a process (a VMA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its position in the layout, from 0.
    pub index: u32,
    /// Its purpose.
    pub kind: Kind,
    /// The file's name, or the kernel's name such as `[heap]`; empty for anonymous memory.
    pub name: String,
    /// Its first address.
    pub start: u64,
    /// Its size in pages.
    pub pages: u32,
    /// Access: read, write, execute, and shared with others.
    pub access: Access,
}

/// The rights of a process to a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It may be read.
    pub read: bool,
    /// It may be written.
    pub write: bool,
    /// It may be executed.
    pub execute: bool,
    /// Writes reach the file, or other processes.
    pub shared: bool,
}

impl Mapping {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.pages) * PAGE
    }

    /// Returns the address of a page by its offset.
    pub fn address(&self, offset: u32) -> u64 {
        self.start + u64::from(offset) * PAGE
    }
}

/// A page of a process: the position of its mapping in the layout, and its own in the mapping, both
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageName {
    /// Position of the mapping.
    pub vma: u32,
    /// Position of the page.
    pub offset: u32,
}

impl fmt::Display for PageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.vma, self.offset)
    }
}

/// Returns the difference between the layouts of two runs of a program, addresses aside; `None` if
/// there is none.
pub fn difference(earlier: &[Mapping], later: &[Mapping]) -> Option<String> {
    for (old, new) in earlier.iter().zip(later) {
        if (old.kind, &old.name, old.access) != (new.kind, &new.name, new.access) {
            return Some(format!(
                "mapping {} was {}, and is {}",
                old.index,
                described(old),
                described(new)
            ));
        }
        if old.pages != new.pages {
            let (index, what) = (old.index, described(old));
            return Some(format!(
                "mapping {index}, {what}, had {} pages, and has {}",
                old.pages, new.pages
            ));
        }
    }
    let describe = |mapping: Option<&Mapping>| mapping.map(described).unwrap_or_default();
    match earlier.len().cmp(&later.len()) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(format!(
            "a new mapping: {}",
            describe(later.get(earlier.len()))
        )),
        std::cmp::Ordering::Greater => Some(format!(
            "a mapping is gone: {}",
            describe(earlier.get(later.len()))
        )),
    }
}

/// Cuts the heap and the stack of a layout to the sizes that another run of the program needs, where
/// they are larger: an allocator may end the heap at an address that differs from run to run, and
/// the kernel makes the stack larger than what is used of it. Pages outside what is needed do not
/// matter.
pub fn cut(layout: &mut [Mapping], needed: &[Mapping]) {
    for mapping in layout {
        let same = needed
            .iter()
            .find(|other| (other.index, other.kind) == (mapping.index, mapping.kind));
        if let Some(other) = same {
            resize(mapping, mapping.pages.min(other.pages));
        }
    }
}

/// Cuts a heap or a stack to this many pages. A heap keeps its first pages, a stack its last ones.
/// Other mappings stay as they are.
pub fn resize(mapping: &mut Mapping, pages: u32) {
    match mapping.kind {
        Kind::Heap => mapping.pages = pages,
        Kind::Stack => {
            mapping.start = mapping.end() - u64::from(pages) * PAGE;
            mapping.pages = pages;
        }
        _ => {}
    }
}

/// Returns the first change between two layouts of one process; `None` if there is none.
pub fn change(before: &[Mapping], after: &[Mapping]) -> Option<String> {
    if let Some(moved) = before
        .iter()
        .zip(after)
        .find(|(old, new)| old.start != new.start && old.pages == new.pages)
    {
        return Some(format!(
            "{} moved from {:#x} to {:#x}",
            described(moved.0),
            moved.0.start,
            moved.1.start
        ));
    }
    difference(before, after)
}

fn described(mapping: &Mapping) -> String {
    if mapping.name.is_empty() {
        mapping.kind.meaning().to_owned()
    } else {
        mapping.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(index: u32, kind: Kind, name: &str, start: u64, pages: u32) -> Mapping {
        Mapping {
            index,
            kind,
            name: name.to_owned(),
            start,
            pages,
            access: Access {
                read: true,
                ..Access::default()
            },
        }
    }

    fn layout() -> Vec<Mapping> {
        vec![
            mapping(0, Kind::Text, "/bin/x", 0x40_0000, 3),
            mapping(1, Kind::Heap, "[heap]", 0x80_0000, 30),
            mapping(2, Kind::Anonymous, "", 0x90_0000, 2),
            mapping(3, Kind::Anonymous, "", 0x9f_0000, 2),
            mapping(4, Kind::Stack, "[stack]", 0xff_0000, 33),
        ]
    }

    #[test]
    fn letters_select_mappings() {
        let selected = |letters| {
            let layout = layout();
            let indices = Selection::parse(letters)
                .map(|it| it.of(&layout).iter().map(|vma| vma.index).collect());
            indices as Result<Vec<u32>, char>
        };
        assert_eq!(selected("hs"), Ok(vec![1, 4]));
        assert_eq!(selected("ta"), Ok(vec![0, 2]));
        assert_eq!(selected("A"), Ok(vec![2, 3]));
        assert_eq!(selected("hx"), Err('x'));
        assert_eq!(
            selected("k"),
            Err('k'),
            "the kernel's pages are not the program's"
        );
    }

    #[test]
    fn a_heap_is_cut_at_its_end_and_a_stack_at_its_start() {
        let mut found = layout();
        let (heap, stack) = (found[1].start, found[4].end());
        let mut needed = layout();
        resize(&mut needed[0], 1);
        resize(&mut needed[1], 4);
        resize(&mut needed[4], 2);
        cut(&mut found, &needed);
        let of = |mapping: &Mapping| (mapping.start, mapping.pages);
        assert_eq!(of(&found[0]), (0x40_0000, 3), "code has one size");
        assert_eq!(of(&found[1]), (heap, 4));
        assert_eq!(of(&found[4]), (stack - 2 * PAGE, 2));
    }

    #[test]
    fn letters_are_distinct() {
        let mut letters: Vec<char> = Kind::ALL.map(Kind::letter).to_vec();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), Kind::ALL.len());
    }

    #[test]
    fn names_hold_under_randomization_and_changes_are_told() {
        let first = layout();
        let mut other: Vec<Mapping> = layout();
        for mapping in &mut other {
            mapping.start += 0x7000;
        }
        assert_eq!(difference(&first, &other), None);
        assert_eq!(
            change(&first, &other).as_deref(),
            Some("/bin/x moved from 0x400000 to 0x407000")
        );
        other[1].pages = 31;
        assert_eq!(
            difference(&first, &other).as_deref(),
            Some("mapping 1, [heap], had 30 pages, and has 31")
        );
        cut(&mut other, &first);
        assert_eq!(
            difference(&first, &other),
            None,
            "no page of the first run is missing"
        );
        other[1].pages = 29;
        cut(&mut other, &first);
        assert_eq!(
            difference(&first, &other).as_deref(),
            Some("mapping 1, [heap], had 30 pages, and has 29")
        );
        let mut more = layout();
        more.push(mapping(5, Kind::Anonymous, "", 0x1ff_0000, 1));
        assert_eq!(
            change(&first, &more).as_deref(),
            Some("a new mapping: anonymous")
        );
        assert_eq!(
            change(&more, &first).as_deref(),
            Some("a mapping is gone: anonymous")
        );
        let mut other = layout();
        other[2].access.write = true;
        assert_eq!(
            difference(&first, &other).as_deref(),
            Some("mapping 2 was anonymous, and is anonymous")
        );
    }
}
