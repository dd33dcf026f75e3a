//! The color map of a configuration, drawn before anything boots.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anstyle::{AnsiColor, Style};
use cloison_config::Checked;
use cloison_config::memory::{Account, Demand, demand, image_bytes};
use cloison_config::quantity::show_size;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::{Color, ColorSet};
use cloison_formats::ids::Core;
use cloison_formats::image::{Backing, Memory, Pool, PoolKind, Vm};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};

/// Figures of the color map by their stable names.
pub type InspectFigures = BTreeMap<String, f64>;

/// The use of a color in a row of the map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Hypervisor,
    Shared,
    Private,
    Free,
    None,
}

impl Mark {
    fn symbol(self) -> char {
        match self {
            Self::Hypervisor => '#',
            Self::Shared => '+',
            Self::Private => '@',
            Self::Free => '-',
            Self::None => '.',
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Hypervisor => AnsiColor::Magenta.on_default().bold(),
            Self::Shared => AnsiColor::Cyan.on_default(),
            Self::Private => AnsiColor::Green.on_default().bold(),
            Self::Free => AnsiColor::Yellow.on_default(),
            Self::None => Style::new().dimmed(),
        }
    }
}

impl From<PoolKind> for Mark {
    fn from(kind: PoolKind) -> Self {
        match kind {
            PoolKind::Pvt => Self::Private,
            PoolKind::Sh => Self::Shared,
        }
    }
}

/// A color set that a VM can access, and how it uses it.
struct Holding<'a> {
    colors: ColorSet,
    mark: Mark,
    /// The name of the memory besides the RAM.
    memory: Option<&'a String>,
}

struct Row {
    name: String,
    marks: Vec<Mark>,
    note: String,
}

/// The numbers shown with the map.
struct Survey {
    account: Account,
    demand: Vec<Demand>,
    unused: ColorSet,
}

impl Survey {
    fn new(checked: &Checked) -> Self {
        let system = &checked.system;
        let taken = system
            .pools
            .iter()
            .fold(system.hypervisor_colors, |all, pool| {
                ColorSet(all.0 | pool.colors.0)
            });
        Self {
            account: Account::new(
                system,
                checked.board.colors,
                image_bytes(checked.images.iter()),
            ),
            demand: demand(system),
            unused: ColorSet::first(checked.board.colors).without(taken),
        }
    }
}

/// Returns what a VM can access: its regions' pools, and the pool to which its pages can move.
fn holdings<'a>(checked: &'a Checked, vm: &Vm) -> Vec<Holding<'a>> {
    let region_pools = vm.regions.iter().filter_map(|region| match region.backing {
        Backing::Pool(pool) => Some(pool),
        Backing::Contiguous | Backing::Direct | Backing::Device(_) => None,
    });
    let pools = region_pools.chain(vm.target);
    let pools = pools.filter_map(|pool| checked.system.pools.get(usize::from(pool)));
    pools
        .map(|pool| Holding {
            colors: pool.colors,
            mark: pool.kind.into(),
            memory: memory_of(checked, pool).map(|memory| &memory.name),
        })
        .collect()
}

/// Returns the colors of a VM: all of them, and those that no other VM can access.
fn reach(checked: &Checked, index: usize) -> (ColorSet, ColorSet) {
    let of = |vm: &Vm| {
        holdings(checked, vm)
            .iter()
            .fold(ColorSet::EMPTY, |all, holding| {
                ColorSet(all.0 | holding.colors.0)
            })
    };
    let vms = &checked.system.vms;
    let all = ColorSet::first(checked.board.colors);
    let own = of(&vms[index]).and(all);
    let others = vms.iter().enumerate().filter(|(other, _)| *other != index);
    let others = others.fold(ColorSet::EMPTY, |all, (_, vm)| ColorSet(all.0 | of(vm).0));
    (own, own.without(others))
}

fn marks(count: u32, holdings: &[Holding<'_>]) -> Vec<Mark> {
    let mark = |color| {
        let held = |holding: &&Holding<'_>| holding.colors.contains(Color(color as u8));
        holdings
            .iter()
            .find(held)
            .map_or(Mark::None, |holding| holding.mark)
    };
    (0..count).map(mark).collect()
}

/// Returns the memory besides the RAM that a pool is made of.
fn memory_of<'a>(checked: &'a Checked, pool: &Pool) -> Option<&'a Memory> {
    let first = Color(checked.board.colors as u8);
    let mut memories = (first.0..).map(Color).zip(&checked.system.board.memories);
    let found = memories.find(|(color, _)| pool.colors.contains(*color));
    found.map(|(_, memory)| memory)
}

fn rows(checked: &Checked, survey: &Survey) -> Vec<Option<Row>> {
    let (system, count) = (&checked.system, checked.board.colors);
    let pages = |colors| survey.account.pages_of(colors);
    let mut rows = vec![Some(Row {
        name: "hypervisor".to_owned(),
        marks: marks(
            count,
            &[Holding {
                colors: system.hypervisor_colors,
                mark: Mark::Hypervisor,
                memory: None,
            }],
        ),
        note: format!("{:>8} pages", pages(system.hypervisor_colors)),
    })];
    for (pool, demand) in system.pools.iter().zip(&survey.demand) {
        let mut note = format!(
            "{:>8} pages, {} asked for",
            pages(pool.colors),
            demand.pages()
        );
        if let Some(memory) = memory_of(checked, pool) {
            let _ = write!(note, ", in {}", memory.name);
        }
        if let Some(limit) = pool.limit {
            let _ = write!(note, ", limit {limit}");
        }
        let kind = if pool.kind == PoolKind::Pvt {
            "PVT"
        } else {
            "SH"
        };
        rows.push(Some(Row {
            name: format!("{kind} {}", pool.name),
            marks: marks(
                count,
                &[Holding {
                    colors: pool.colors,
                    mark: pool.kind.into(),
                    memory: None,
                }],
            ),
            note,
        }));
    }
    if !survey.unused.is_empty() {
        rows.push(Some(Row {
            name: "nobody".to_owned(),
            marks: marks(
                count,
                &[Holding {
                    colors: survey.unused,
                    mark: Mark::Free,
                    memory: None,
                }],
            ),
            note: format!("{:>8} pages", pages(survey.unused)),
        }));
    }
    rows.push(None);
    for (index, vm) in system.vms.iter().enumerate() {
        let (own, alone) = reach(checked, index);
        let cache = u64::from(own.len()) * checked.system.board.llc.size / u64::from(count);
        let cores: Vec<String> = vm.cores.iter().map(Core::to_string).collect();
        let mut note = format!(
            "core {}: {} of cache ({}/{count}), {} to itself",
            cores.join(","),
            show_size(cache),
            own.len(),
            alone.len()
        );
        if vm
            .regions
            .iter()
            .any(|region| region.backing == Backing::Contiguous)
        {
            note.push_str("; uncolored memory too");
        }
        let direct = vm.regions.iter().filter(|it| it.backing == Backing::Direct);
        let direct: u64 = direct.map(|it| u64::from(it.pages) * PAGE_SIZE).sum();
        if direct > 0 {
            let _ = write!(
                note,
                "; {} for DMA, in sets of every color",
                show_size(direct)
            );
        }
        let pools = holdings(checked, vm);
        let other = |memory: &Memory| {
            let of = |holding: &Holding| holding.memory == Some(&memory.name);
            pools.iter().any(of)
        };
        for memory in system.board.memories.iter().filter(|memory| other(memory)) {
            let _ = write!(note, "; {}, in sets of every color", memory.name);
        }
        rows.push(Some(Row {
            name: format!("VM {}", vm.name),
            marks: marks(count, &holdings(checked, vm)),
            note,
        }));
    }
    rows
}

/// Formats the color map as text: one column per color, with its owner and its number of pages.
pub fn color_map(checked: &Checked) -> String {
    draw(checked, false)
}

/// Prints the color map, with colors if the terminal supports them.
pub fn print_color_map(checked: &Checked) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    print!("{}", draw(checked, stdout().is_terminal() && !plain));
}

fn draw(checked: &Checked, paint: bool) -> String {
    let (system, count) = (&checked.system, checked.board.colors);
    let (survey, llc) = (Survey::new(checked), &system.board.llc);
    let rows = rows(checked, &survey);
    let width = rows
        .iter()
        .flatten()
        .map(|row| row.name.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "{} on {}: {} / {} ways / {} a page = {count} colors of {} each\n\n",
        system.name,
        system.board.name,
        show_size(llc.size),
        llc.ways,
        show_size(PAGE_SIZE),
        show_size(llc.size / u64::from(count)),
    );
    let _ = write!(text, "  {:width$} ", "color");
    for color in 0..count {
        let _ = write!(text, "{color:>3}");
    }
    text.push('\n');
    for row in &rows {
        let Some(row) = row else {
            text.push('\n');
            continue;
        };
        let _ = write!(text, "  {:width$} ", row.name);
        for mark in &row.marks {
            if paint {
                let style = mark.style();
                let _ = write!(text, "  {style}{}{style:#}", mark.symbol());
            } else {
                let _ = write!(text, "  {}", mark.symbol());
            }
        }
        let _ = writeln!(text, "   {}", row.note);
    }
    let _ = writeln!(
        text,
        "\n  {} hypervisor   {} shared pool   {} private pool   {} nobody",
        Mark::Hypervisor.symbol(),
        Mark::Shared.symbol(),
        Mark::Private.symbol(),
        Mark::Free.symbol()
    );
    let all = ColorSet::first(count);
    let lost = survey.account.pages_of(survey.unused);
    let _ = writeln!(text, "\n  pages       {}", survey.account.arithmetic(all));
    let _ = writeln!(
        text,
        "  hypervisor  {} pages ({}) have its colors: no guest gets them, used or not",
        survey.account.pages_of(system.hypervisor_colors),
        show_size(survey.account.pages_of(system.hypervisor_colors) * PAGE_SIZE)
    );
    let _ = writeln!(
        text,
        "  lost        {lost} pages ({}) have colors that nobody holds",
        show_size(lost * PAGE_SIZE)
    );
    for warning in &checked.warnings {
        let (line, column) = warning.line_and_column();
        let _ = writeln!(
            text,
            "  warning     {}:{line}:{column}: {}",
            warning.file(),
            warning.message()
        );
    }
    text
}

/// Returns the figures of the color map.
pub fn figures(checked: &Checked) -> InspectFigures {
    let (system, survey) = (&checked.system, Survey::new(checked));
    let mut figures = InspectFigures::new();
    let mut put = |name: String, value: u64| figures.insert(name, value as f64);
    put("colors".to_owned(), u64::from(checked.board.colors));
    put(
        "colors_hypervisor".to_owned(),
        u64::from(system.hypervisor_colors.len()),
    );
    put("colors_unused".to_owned(), u64::from(survey.unused.len()));
    put("pages_total".to_owned(), survey.account.total());
    put(
        "pages_hypervisor".to_owned(),
        survey.account.pages_of(system.hypervisor_colors),
    );
    put(
        "pages_lost".to_owned(),
        survey.account.pages_of(survey.unused),
    );
    for (pool, demand) in system.pools.iter().zip(&survey.demand) {
        put(
            format!("pool_{}_colors", pool.name),
            u64::from(pool.colors.len()),
        );
        put(
            format!("pool_{}_pages_available", pool.name),
            survey.account.pages_of(pool.colors),
        );
        put(format!("pool_{}_pages_needed", pool.name), demand.pages());
    }
    for (index, vm) in system.vms.iter().enumerate() {
        let (own, alone) = reach(checked, index);
        put(format!("vm_{}_colors", vm.name), u64::from(own.len()));
        put(
            format!("vm_{}_colors_alone", vm.name),
            u64::from(alone.len()),
        );
    }
    figures
}
