//! Who holds which colors and memories: the hypervisor, and the `[[pool]]` tables.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::{Field, Table, suggest};
use crate::names::name;
use crate::quantity::show_size;
use crate::scene::PoolSpec;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::{Color, ColorSet};
use cloison_formats::image::{Pool, PoolKind};
use std::ops::Range;

/// Maximum number of pools.
const MOST_POOLS: usize = 64;

/// The hypervisor's share of the machine.
pub(crate) struct HypervisorSpec {
    pub colors: ColorSet,
    pub colors_span: Range<usize>,
    pub contiguous: Option<u64>,
    pub contiguous_span: Range<usize>,
}

/// Reads a set of colors, all of which the cache must have.
fn read_colors(field: &Field<'_>, board: Option<(&BoardFile, u32)>) -> Option<ColorSet> {
    let set = field.number_set("color")?;
    let count = board.map_or(64, |(_, count)| count);
    let mut colors = ColorSet::EMPTY;
    let mut complete = true;
    for (color, span) in set {
        if color < u64::from(count) {
            colors = colors.with(Color(color as u8));
        } else if complete {
            complete = false;
            let why = board.map_or_else(String::new, |(board, _)| {
                let llc = &board.board.llc;
                format!(
                    "the cache of {} has {count} colors: {} / {} ways / {} a page = {count}; they \
                     are 0 to {}",
                    board.board.name,
                    show_size(llc.size),
                    llc.ways,
                    show_size(PAGE_SIZE),
                    count - 1
                )
            });
            field.push(
                field
                    .error(format!("color {color} does not exist"))
                    .at(span)
                    .label("out of range")
                    .help(why),
            );
        }
    }
    complete.then_some(colors)
}

/// Reads the `[hypervisor]` table.
pub(crate) fn read_hypervisor(
    field: &Field<'_>,
    board: Option<(&BoardFile, u32)>,
) -> Option<HypervisorSpec> {
    let table = field.table()?;
    let colors_field = table.required("colors", "give at least one color: colors = \"15\"");
    let colors = colors_field
        .as_ref()
        .and_then(|field| read_colors(field, board));
    let contiguous = table.value("contiguous", |field| {
        Some(u64::from(field.pages()?) * PAGE_SIZE)
    });
    table.finish_ref();
    let contiguous_span = contiguous
        .given()
        .map_or(field.span(), |given| given.field.span());
    Some(HypervisorSpec {
        colors: colors?,
        colors_span: colors_field?.span(),
        contiguous: contiguous.optional()?,
        contiguous_span,
    })
}

/// Reads the pools, each compared with the hypervisor and those before it.
pub(crate) fn read(
    root: &Table<'_>,
    board: Option<(&BoardFile, u32)>,
    hypervisor: Option<&HypervisorSpec>,
) -> Vec<PoolSpec> {
    let mut pools: Vec<PoolSpec> = Vec::new();
    let tables = root.tables("pool");
    if tables.is_empty() && root.optional("pool").is_none() {
        root.push(
            root.error("pool", 0..0, "there is no pool")
                .label("no [[pool]] in this file")
                .help("add one: [[pool]] with name = \"shared\", kind = \"SH\", colors = \"0-14\""),
        );
    }
    if tables.len() > MOST_POOLS {
        let message = format!("{} pools; there can be {MOST_POOLS}", tables.len());
        root.push(
            root.error("pool", 0..0, message)
                .label("too many [[pool]]")
                .help("join pools"),
        );
        return pools;
    }
    for table in tables {
        if let Some(spec) = read_pool(table, board, &pools, hypervisor) {
            pools.push(spec);
        }
    }
    pools
}

/// What a pool is made of: the colors, and the field that says so.
struct Made {
    colors: Option<ColorSet>,
    field: &'static str,
    span: Range<usize>,
    /// The name of a memory besides the RAM.
    memory: Option<String>,
}

/// Reads `colors` or `memory`, of which a pool has one.
fn read_made(table: &Table<'_>, board: Option<(&BoardFile, u32)>) -> Made {
    let Some(memory) = table.optional("memory") else {
        let colors = table.required("colors", "give its colors: colors = \"0-3,8\"");
        return Made {
            colors: colors.as_ref().and_then(|field| read_colors(field, board)),
            field: "colors",
            span: colors.map_or(table.span(), |field| field.span()),
            memory: None,
        };
    };
    if let Some(colors) = table.optional("colors") {
        memory.push(
            memory
                .error("the pool is made of colors and of a memory")
                .label("one of the two")
                .also(colors.span(), "the colors")
                .help(
                    "colors are those of RAM: leave `memory` out, or leave `colors` out, since a \
                     pool of another memory has whatever is free of it; make two pools to have both",
                ),
        );
    }
    let found = find_memory(&memory, board);
    Made {
        colors: found.map(|(_, color)| ColorSet::EMPTY.with(color)),
        field: "memory",
        span: memory.span(),
        memory: found.map(|(name, _)| name.to_owned()),
    }
}

/// Returns the memory given by a field, and the color that stands for it.
fn find_memory<'b>(
    field: &Field<'_>,
    board: Option<(&'b BoardFile, u32)>,
) -> Option<(&'b str, Color)> {
    let name = field.string("the name of one of the board's memories besides its RAM")?;
    let (board, colors) = board?;
    let memories = &board.board.memories;
    let names = memories.iter().map(|memory| memory.name.as_str());
    if let Some(found) = names.clone().position(|known| known == name) {
        return Some((&memories[found].name, Color(colors as u8 + found as u8)));
    }
    let on = &board.board.name;
    field.push(if memories.is_empty() {
        field
            .error(format!("the board {on} has no memory besides its RAM"))
            .label(format!("no `{name}` on {on}"))
            .help(
                "give the pool colors of the RAM: colors = \"0-3\"; or run on a board whose file \
                 has a [[memory]], such as zcu102: `--board zcu102`",
            )
    } else {
        field
            .error(format!("the board {on} has no memory `{name}`"))
            .label("unknown memory")
            .help(suggest(name, "memories", names))
    });
    None
}

/// Reads a pool and compares it with the hypervisor and the pools before it. A pool with a name
/// exists, so that regions find it; what else is wrong with it has been recorded.
fn read_pool(
    mut table: Table<'_>,
    board: Option<(&BoardFile, u32)>,
    before: &[PoolSpec],
    hypervisor: Option<&HypervisorSpec>,
) -> Option<PoolSpec> {
    const KINDS: [(&str, PoolKind); 2] = [("PVT", PoolKind::Pvt), ("SH", PoolKind::Sh)];
    let name = name(&mut table, "pool");
    let help = "say whether it is one VM's own (PVT) or shared (SH): kind = \"SH\"";
    let kind = table.required_value("kind", help, |field| field.one_of("pool kind", &KINDS));
    let made = read_made(&table, board);
    let limit_field = table.optional("limit");
    let limit = limit_field.as_ref().and_then(|field| field.pages());
    table.finish_ref();
    let (name, name_span) = name?;
    let spec = PoolSpec {
        pool: Pool {
            name: name.to_owned(),
            kind: kind.as_ref().map_or(PoolKind::Sh, |kind| kind.value),
            colors: made.colors.unwrap_or(ColorSet::EMPTY),
            limit,
        },
        path: table.path().to_owned(),
        name_span,
        made_of: made.field,
        made_span: made.span,
        memory: made.memory,
        limit_span: limit_field.map_or(table.span(), |field| field.span()),
    };
    check_pool_name(&table, &spec, before);
    if let Some(hypervisor) = hypervisor {
        check_hypervisor_colors(&table, &spec, hypervisor);
    }
    if kind.is_some() {
        before
            .iter()
            .for_each(|other| check_private_colors(&table, &spec, other));
    }
    Some(spec)
}

fn check_pool_name(table: &Table<'_>, spec: &PoolSpec, before: &[PoolSpec]) {
    let name = &spec.pool.name;
    if let Some(other) = before.iter().find(|other| other.pool.name == *name) {
        let message = format!("there are two pools called `{name}`");
        table.push(
            table
                .error("name", spec.name_span.clone(), message)
                .label("again")
                .also(other.name_span.clone(), "first here")
                .help("regions find pools by name: give each its own"),
        );
    }
}

/// Checks that a pool holds none of the hypervisor's colors.
fn check_hypervisor_colors(table: &Table<'_>, spec: &PoolSpec, hypervisor: &HypervisorSpec) {
    let Pool { name, colors, .. } = &spec.pool;
    let common = colors.and(hypervisor.colors);
    if common.is_empty() {
        return;
    }
    let message = format!("pool `{name}` holds colors of the hypervisor: {common}");
    let label = format!("{colors} and {} share {common}", hypervisor.colors);
    table.push(
        table
            .error("colors", spec.made_span.clone(), message)
            .label(label)
            .also(hypervisor.colors_span.clone(), "the hypervisor's")
            .help(format!(
                "no guest may evict the hypervisor: take {common} from the pool, which leaves {}",
                colors.without(common)
            )),
    );
}

/// Checks that two pools share no color if one of them is private.
fn check_private_colors(table: &Table<'_>, spec: &PoolSpec, other: &PoolSpec) {
    let Pool { name, colors, .. } = &spec.pool;
    let common = colors.and(other.pool.colors);
    let private = match (spec.pool.kind, other.pool.kind) {
        (PoolKind::Pvt, _) => name,
        (_, PoolKind::Pvt) => &other.pool.name,
        _ => return,
    };
    if common.is_empty() {
        return;
    }
    if let Some(memory) = &spec.memory {
        let message = format!(
            "pools `{}` and `{name}` are both made of `{memory}`, but `{private}` is private",
            other.pool.name
        );
        table.push(
            table
                .error(spec.made_of, spec.made_span.clone(), message)
                .label("again")
                .also(other.made_span.clone(), format!("`{}`", other.pool.name))
                .help("a private pool's memory is nobody else's: make one pool of it, or both SH"),
        );
        return;
    }
    let message = format!(
        "pools `{}` and `{name}` overlap in {common}, but `{private}` is private",
        other.pool.name
    );
    let label = format!("{colors} and {} share {common}", other.pool.colors);
    table.push(
        table
            .error("colors", spec.made_span.clone(), message)
            .label(label)
            .also(other.made_span.clone(), format!("`{}`", other.pool.name))
            .help(format!(
                "a private pool's colors are nobody else's: take {common} from one of the two, or \
                 make both SH"
            )),
    );
}
