//! Board-file entries for firmware: the start of cores, power-off, and what guests may ask it about.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Table, all};
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::image::{FirmwareAccess, PowerOff};

/// Reads the words that `cores` cores poll, each in reserved memory.
pub fn read_spin_table(
    field: &Field<'_>,
    cores: Option<usize>,
    reserved: &[PhysRange],
) -> Option<Vec<PhysAddr>> {
    let elements = field.elements()?;
    let expected = cores.unwrap_or(elements.len());
    if elements.len() != expected {
        field.push(
            field
                .error(format!(
                    "a spin table of {} words for {expected} cores",
                    elements.len()
                ))
                .label("one word for each core")
                .help("give the address that each core of `cores` polls, in the same order"),
        );
        return None;
    }
    let word = |element: &Field<'_>| {
        let word = PhysAddr(
            element.integer_up_to((1 << 40) - 1, "a physical address of at most 40 bits")?,
        );
        if !word.0.is_multiple_of(8) {
            element.push(
                element
                    .error(format!("{word} is not a multiple of 8"))
                    .label("not the address of a 64-bit word")
                    .help("each core polls an aligned word of 64 bits"),
            );
            return None;
        }
        if !reserved.iter().any(|range| range.contains(word)) {
            element.push(
                element
                    .error(format!("{word} is not in reserved memory"))
                    .label("outside [[reserved]]")
                    .help(
                        "reserve the page, so that no VM's memory is where cores wait for their \
                         first address",
                    ),
            );
            return None;
        }
        Some(word)
    };
    all(elements.iter().map(word))
}

/// Reads `[power_off]`: registers of one page, and the values to write to them.
pub fn read_power_off(field: &Field<'_>) -> Option<PowerOff> {
    let table = field.table()?;
    let page = table
        .required("page", "give the page of the registers: page = 0xfe10_0000")
        .and_then(|field| page_address(&field));
    let writes = table
        .required(
            "writes",
            "give the offset and the value of each write: writes = [[0x1c, 0x5a00_0020]]",
        )
        .and_then(|field| read_writes(&field));
    table.finish();
    Some(PowerOff {
        page: page?,
        writes: writes?,
    })
}

/// The firmware's calls that a board has for its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eemi {
    /// It has none that Cloison knows.
    Absent,
    /// Those of a ZynqMP (UG1200).
    There,
}

/// Reads `[firmware]`.
pub(crate) fn read(root: &Table<'_>) -> Eemi {
    let Some(table) = root.optional("firmware").and_then(|field| field.table()) else {
        return Eemi::Absent;
    };
    let there = table.flag("eemi");
    table.finish();
    if there { Eemi::There } else { Eemi::Absent }
}

/// Reads the numbers of a device's nodes, clocks and resets.
pub(crate) fn read_numbers(field: &Field<'_>) -> Option<FirmwareAccess> {
    let table = field.table()?;
    let read = |key| {
        let number = |element: &Field<'_>| {
            let number = element.integer_up_to(u32::MAX.into(), "a number of the firmware's")?;
            Some(number as u32)
        };
        table
            .optional(key)
            .map_or_else(|| Some(Vec::new()), |field| field.each(number))
    };
    let [nodes, clocks, resets] = ["nodes", "clocks", "resets"].map(read);
    table.finish();
    Some(FirmwareAccess {
        nodes: nodes?,
        clocks: clocks?,
        resets: resets?,
    })
}

/// Reads the offsets in a page and the values of writes.
pub(crate) fn read_writes(field: &Field<'_>) -> Option<Vec<(u16, u32)>> {
    field.each(read_write)
}

fn read_write(pair: &Field<'_>) -> Option<(u16, u32)> {
    let numbers = pair.elements()?;
    let [offset, value] = &numbers[..] else {
        pair.push(
            pair.error(format!("expected 2 numbers, found {}", numbers.len()))
                .label("one write")
                .help("a write is an offset in the page and a value: [0x1c, 0x5a00_0020]"),
        );
        return None;
    };
    let at = offset.integer_up_to(PAGE_SIZE - 4, "an offset in the page")?;
    if !at.is_multiple_of(4) {
        offset.push(
            offset
                .error(format!("offset {at:#x} is not a multiple of 4"))
                .label("not the offset of a 32-bit register")
                .help("registers are written as aligned words of 32 bits"),
        );
        return None;
    }
    Some((
        at as u16,
        value.integer_up_to(u64::from(u32::MAX), "a value of 32 bits")? as u32,
    ))
}

/// Reads a physical address at the start of a page.
pub(crate) fn page_address(field: &Field<'_>) -> Option<PhysAddr> {
    let address =
        PhysAddr(field.integer_up_to((1 << 40) - 1, "a physical address of at most 40 bits")?);
    if !address.is_page_aligned() {
        field.push(
            field
                .error(format!("{address} is not the start of a page"))
                .label("not a multiple of 0x1000")
                .help(format!("the page starts at {}", address.page_base())),
        );
        return None;
    }
    Some(address)
}
