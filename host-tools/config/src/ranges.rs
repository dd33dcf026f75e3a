//! The memory of a board: ranges of RAM, memories besides it, and what Cloison must not touch.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Field, Table};
use crate::firmware::page_address;
use crate::names::name;
use crate::quantity::show_size;
use cloison_formats::addr::{PAGE_SIZE, PhysRange};
use cloison_formats::color::MAX_COLORS;
use cloison_formats::image::{Board, Memory};
use std::ops::Range;

/// Maximum length of one range.
const MOST_RAM: u64 = 64 << 30;

/// The ranges of a board.
pub(crate) struct Ranges {
    /// The RAM.
    pub ram: Vec<PhysRange>,
    /// Other memories.
    pub memories: Vec<Memory>,
    /// Where these are written.
    pub memory_spans: Vec<Range<usize>>,
    /// Parts of both that Cloison must not touch.
    pub reserved: Vec<PhysRange>,
}

/// A range, and where it is written.
type Spanned = (PhysRange, Range<usize>);

/// Reads `[[ram]]`, `[[memory]]` and `[[reserved]]` of a board whose cache has this many colors.
pub(crate) fn read(root: &Table<'_>, colors: Option<u32>) -> Ranges {
    let ranges = |key| -> Vec<Spanned> {
        let tables = root.tables(key).into_iter();
        tables.filter_map(read_range).collect()
    };
    let (ram, reserved) = (ranges("ram"), ranges("reserved"));
    if ram.is_empty() {
        root.push(
            root.error("ram", 0..0, "the board has no RAM")
                .label("no [[ram]] in this file")
                .help("describe it: [[ram]] start = 0x4000_0000, size = \"1G\""),
        );
    }
    for (index, (range, span)) in ram.iter().enumerate() {
        if let Some((_, first)) = ram[..index].iter().find(|(other, _)| other.overlaps(range)) {
            root.push(
                root.error("ram", span.clone(), "two ranges of RAM overlap")
                    .label("this one")
                    .also(first.clone(), "and this one")
                    .help("give every byte of RAM to one range"),
            );
        }
    }
    let (memories, places) = read_memories(root, &ram, colors);
    let memory_spans = places.iter().map(|(_, span)| span.clone()).collect();
    let places: Vec<&Spanned> = ram.iter().chain(&places).collect();
    for (range, span) in &reserved {
        let is_inside =
            |(other, _): &&Spanned| other.start <= range.start && range.end() <= other.end();
        if !places.iter().copied().any(|place| is_inside(&place)) {
            let message = format!(
                "the reserved range {}..{} is not inside the RAM",
                range.start,
                range.end()
            );
            root.push(
                root.error("reserved", span.clone(), message)
                    .label("outside [[ram]]")
                    .help(
                        "only RAM needs to be reserved; leave out what Cloison would not touch \
                         anyway",
                    ),
            );
        }
    }
    let plain = |spanned: Vec<Spanned>| spanned.into_iter().map(|(range, _)| range).collect();
    Ranges {
        ram: plain(ram),
        memories,
        memory_spans,
        reserved: plain(reserved),
    }
}

/// Reads the memories besides the RAM, each compared with the RAM and those before it.
fn read_memories(
    root: &Table<'_>,
    ram: &[Spanned],
    colors: Option<u32>,
) -> (Vec<Memory>, Vec<Spanned>) {
    let mut memories: Vec<Memory> = Vec::new();
    let mut places: Vec<Spanned> = Vec::new();
    for mut table in root.tables("memory") {
        let name = name(&mut table, "memory");
        let path = table.path_of("name");
        let Some((range, span)) = read_range(table) else {
            continue;
        };
        let Some((name, name_span)) = name else {
            continue;
        };
        if memories.iter().any(|other| other.name == name) {
            root.push(
                root.error(
                    &path,
                    name_span,
                    format!("there are two memories called `{name}`"),
                )
                .label("again")
                .help("pools find memories by name: give each its own"),
            );
        }
        let error = |message: String| root.error("memory", span.clone(), message);
        if !range.len.is_multiple_of(PAGE_SIZE) {
            root.push(
                error(format!("{} bytes are no whole pages", range.len))
                    .label("not a multiple of 4 KiB")
                    .help("pools hand out pages: give the size of the whole ones"),
            );
        }
        let mut taken = ram.iter().chain(&places);
        if let Some((_, other)) = taken.find(|(other, _)| other.overlaps(&range)) {
            root.push(
                error(format!("the memory `{name}` overlaps other memory"))
                    .label(format!("{}..{}", range.start, range.end()))
                    .also(other.clone(), "this one")
                    .help("give every byte to one [[ram]] or [[memory]]"),
            );
        }
        memories.push(Memory {
            name: name.to_owned(),
            range,
        });
        places.push((range, span));
    }
    let count = memories.len() as u32;
    if let Some((colors, (_, span))) = colors.zip(places.last())
        && colors + count > MAX_COLORS
    {
        root.push(
            root.error(
                "memory",
                span.clone(),
                format!("{colors} colors and {count} memories besides the RAM"),
            )
            .label("one too many")
            .help(format!(
                "Cloison tells {MAX_COLORS} colors and memories apart: leave this one out"
            )),
        );
    }
    (memories, places)
}

/// Checks that no memory besides the RAM is where the hypervisor's own devices are.
pub(crate) fn check_devices(root: &Table<'_>, board: &Board, spans: &[Range<usize>]) {
    for (memory, span) in board.memories.iter().zip(spans) {
        let range = &memory.range;
        let Some(device) = board.own_devices().find(|own| own.overlaps(range)) else {
            continue;
        };
        let message = format!(
            "the memory `{}` covers a device of the hypervisor's at {}",
            memory.name, device.start
        );
        root.push(
            root.error("memory", span.clone(), message)
                .label(format!("{} from {}", show_size(range.len), range.start))
                .help("compare [console], [telemetry] and [gic] with [[memory]]"),
        );
    }
}

fn read_range(table: Table<'_>) -> Option<Spanned> {
    let start = table
        .required("start", "start = 0x4000_0000")
        .and_then(|field| page_address(&field));
    let size_field = table.required("size", "size = \"1G\"");
    let size = size_field.as_ref().and_then(|field| field.size());
    table
        .optional("why")
        .map(|field| field.string("one line of text"));
    let span = size_field.as_ref().map_or(table.span(), Field::span);
    if let (Some(field), Some(size)) = (
        &size_field,
        size.filter(|size| *size == 0 || *size > MOST_RAM),
    ) {
        field.push(
            field
                .error(format!("a range of {size} bytes"))
                .label(if size == 0 {
                    "zero"
                } else {
                    "more than 64 GiB"
                })
                .help("give it between 4 KiB and 64 GiB"),
        );
        return None;
    }
    table.finish();
    Some((
        PhysRange {
            start: start?,
            len: size?,
        },
        span,
    ))
}
