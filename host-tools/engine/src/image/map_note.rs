//! The ELF note by which a guest learns its VM's map (`cloison_abi::map_note`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::map_note::{CADENCE, NAME, PL011, TYPE, WORDS};
use cloison_formats::guest_map::{GuestMap, GuestUartKind};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use std::ops::Range;

/// Lengths of a note's name and words, and its type; then the name, then the words.
const HEADER: usize = 12;

/// Returns the words of a map's note.
fn words(map: &GuestMap) -> [u64; WORDS] {
    let kind = match map.uart.kind {
        GuestUartKind::Pl011 => PL011,
        GuestUartKind::Cadence => CADENCE,
    };
    let irq = map.uart.irq.0.into();
    [
        map.gicd.0,
        map.gicc.0,
        map.uart.base.0,
        kind,
        irq,
        map.services.0,
    ]
}

/// Returns where in an ELF file the words of its note are, if it has one.
fn place(bytes: &[u8]) -> Option<Range<usize>> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let segments = header.program_headers(LittleEndian, bytes).ok()?;
    let mut head = Vec::new();
    for number in [NAME.len() as u32, 8 * WORDS as u32, TYPE] {
        head.extend(number.to_le_bytes());
    }
    head.extend(NAME);
    segments
        .iter()
        .filter(|segment| segment.p_type(LittleEndian) == PT_NOTE)
        .find_map(|segment| {
            let (offset, len) = segment.file_range(LittleEndian);
            let start = usize::try_from(offset).ok()?;
            let notes = bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)?;
            // It is the first one: `guest.ld` has a segment for it.
            notes.starts_with(&head).then_some(())?;
            let words = start + HEADER + NAME.len();
            bytes.get(words..words + 8 * WORDS)?;
            Some(words..words + 8 * WORDS)
        })
}

/// Writes the map into an ELF file's note, if it has one.
pub(super) fn fill(bytes: &mut [u8], map: &GuestMap) {
    if let Some(place) = place(bytes) {
        let words = words(map);
        let filled = words.iter().flat_map(|word| word.to_le_bytes());
        for (byte, value) in bytes[place].iter_mut().zip(filled) {
            *byte = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_abi::map_note::CLOISON;
    use cloison_formats::addr::Ipa;

    /// An ELF file with a single program header, of a note at its end.
    fn file(note: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for half in [2u16, 183] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(1u32.to_le_bytes());
        for word in [0u64, 64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        for half in [64u16, 56, 1, 0, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        for half in [4u32, 4] {
            bytes.extend(half.to_le_bytes());
        }
        let len = note.len() as u64;
        for word in [120u64, 0, 0, len, len, 8] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(note);
        bytes
    }

    fn note(name: [u8; 12], words: [u64; WORDS]) -> Vec<u8> {
        let head = [12u32, 8 * WORDS as u32, TYPE];
        let head = head.into_iter().flat_map(u32::to_le_bytes);
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        head.chain(name).chain(words).collect()
    }

    #[test]
    fn only_the_note_is_written_and_the_default_map_changes_nothing() {
        let before = file(&note(NAME, CLOISON));
        let mut bytes = before.clone();
        fill(&mut bytes, &GuestMap::CLOISON);
        assert_eq!(bytes, before);
        let mut map = GuestMap::CLOISON;
        map.uart.kind = GuestUartKind::Cadence;
        map.uart.base = Ipa(0xff00_0000);
        fill(&mut bytes, &map);
        let mut expected = CLOISON;
        (expected[2], expected[3]) = (0xff00_0000, CADENCE);
        assert_eq!(bytes, file(&note(NAME, expected)));
    }

    #[test]
    fn other_notes_and_damaged_files_are_left_alone() {
        let mut map = GuestMap::CLOISON;
        map.gicd = Ipa(0xf901_0000);
        let whole = file(&note(NAME, CLOISON));
        let other = file(&note(*b"Cloison man\0", CLOISON));
        for before in [
            other,
            whole[..whole.len() - 1].to_vec(),
            whole[..100].to_vec(),
            vec![],
        ] {
            let mut bytes = before.clone();
            fill(&mut bytes, &map);
            assert_eq!(bytes, before);
        }
    }
}
