//! Writes a partition into the user's configuration: changed fields only, comments kept.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::systems::{self, EVENT};
use cloison_config::quantity::show_duration;
use cloison_config::{Checked, LONGEST_NAME};
use cloison_formats::color::ColorSet;
use cloison_formats::image::{Backing, PoolKind, Vm};
use cloison_formats::units::Nanos;
use cloison_tune::{Budget, Partition, Placement};
use miette::{IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, TableLike, Value, value};

/// What a VM holds of the system as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Index of the pool of its memory.
    pub main: Option<usize>,
    /// Index of the pool to which its pages move.
    pub target: Option<usize>,
}

impl Holding {
    /// Returns what a VM holds.
    pub fn of(vm: &Vm) -> Self {
        let pool = |backing: &Backing| match backing {
            Backing::Pool(pool) => Some(usize::from(*pool)),
            Backing::Contiguous | Backing::Direct | Backing::Device(_) => None,
        };
        Self {
            main: vm.regions.iter().find_map(|region| pool(&region.backing)),
            target: vm.target.map(usize::from),
        }
    }
}

/// The pools of a partition: names and colors.
#[derive(Debug)]
struct Pools {
    shared: Option<PlannedPool>,
    /// A VM's private pool.
    private: Vec<Option<PlannedPool>>,
}

#[derive(Clone, Debug)]
struct PlannedPool {
    name: String,
    colors: Vec<u8>,
}

/// Returns the text of a configuration with a partition.
///
/// # Errors
///
/// If the text does not have the form of a configuration.
pub fn with_partition(
    checked: &Checked,
    written: &Partition,
    partition: &Partition,
    period: Nanos,
) -> Result<String> {
    let mut document: DocumentMut = checked.source.parse().into_diagnostic()?;
    let same_places = written
        .shares
        .iter()
        .zip(&partition.shares)
        .all(|(old, new)| old.choice.placement == new.choice.placement && old.colors == new.colors);
    if !same_places {
        let pools = plan(checked, partition);
        for (index, share) in partition.shares.iter().enumerate() {
            place(
                &mut document,
                index,
                share.choice.placement,
                &pools,
                checked.system.vms[index].name.as_str(),
            )?;
        }
        write_pools(&mut document, checked, &pools)?;
    }
    for (index, (old, new)) in written.shares.iter().zip(&partition.shares).enumerate() {
        if old.choice.budget != new.choice.budget {
            let vcpus = checked.system.vms[index].cores.len();
            limit(&mut document, index, vcpus, new.choice.budget, period)?;
        }
    }
    Ok(document.to_string())
}

/// Returns the text of a configuration for a file in another directory: with absolute paths.
///
/// # Errors
///
/// If the text is not TOML.
pub fn moved(text: &str, from: &Path, to: &Path) -> Result<String> {
    let directory = |file: &Path| {
        let directory = file.parent().unwrap_or(Path::new("."));
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf())
    };
    let base = directory(from);
    if base == directory(to) {
        return Ok(text.to_owned());
    }
    let mut document: DocumentMut = text.parse().into_diagnostic()?;
    if let Some(board) = document.get("board").and_then(Item::as_str) {
        let own = base.join("boards").join(format!("{board}.toml"));
        let named = if board.ends_with(".toml") {
            Some(base.join(board))
        } else {
            own.is_file().then_some(own)
        };
        if let Some(named) = named {
            put(
                document.as_table_mut(),
                "board",
                named.display().to_string(),
            );
        }
    }
    for vm in document.get_mut("vm").into_iter().flat_map(tables_of) {
        for (table, keys) in [
            ("image", &["file", "kernel", "initrd"][..]),
            ("profile", &["file"][..]),
        ] {
            let Some(table) = vm.get_mut(table).and_then(Item::as_table_like_mut) else {
                continue;
            };
            for key in keys {
                if let Some(path) = table.get(key).and_then(Item::as_str) {
                    let path = plain(&base.join(path)).display().to_string();
                    put(table, key, path);
                }
            }
        }
        let image = vm.get_mut("image").and_then(Item::as_table_like_mut);
        let programs = image.and_then(|image| image.get_mut("programs")?.as_array_mut());
        for program in programs.into_iter().flat_map(toml_edit::Array::iter_mut) {
            if let Some(path) = program.as_str() {
                let mut new = Value::from(plain(&base.join(path)).display().to_string());
                *new.decor_mut() = program.decor().clone();
                *program = new;
            }
        }
    }
    Ok(document.to_string())
}

/// Returns a path without the steps up that it has, where the file is there.
fn plain(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Decides which colors and which names the pools have: as many as possible stay where they are.
fn plan(checked: &Checked, partition: &Partition) -> Pools {
    let system = &checked.system;
    let mut free: Vec<u8> = ColorSet::first(checked.board.colors)
        .without(system.hypervisor_colors)
        .iter()
        .map(|color| color.0)
        .collect();
    let holdings: Vec<Holding> = system.vms.iter().map(Holding::of).collect();
    let is_private = |pool: &usize| system.pools[*pool].kind == PoolKind::Pvt;
    let mut names: Vec<String> = system.pools.iter().map(|pool| pool.name.clone()).collect();
    let mut private: Vec<Option<PlannedPool>> = vec![];
    for (index, share) in partition.shares.iter().enumerate() {
        let holding = &holdings[index];
        let (first, second) = match share.choice.placement {
            Placement::Own { .. } => (holding.main, holding.target),
            Placement::Shared { .. } => (holding.target, holding.main),
        };
        if share.colors.0 == 0 {
            private.push(None);
            continue;
        }
        let own = first
            .filter(is_private)
            .or_else(|| second.filter(is_private));
        let name = own.map_or_else(
            || {
                let name = new_name(&system.vms[index].name, &names);
                names.push(name.clone());
                name
            },
            |pool| system.pools[pool].name.clone(),
        );
        let held = own.map_or(ColorSet::EMPTY, |pool| system.pools[pool].colors);
        private.push(Some(PlannedPool {
            name,
            colors: take(&mut free, share.colors.0 as usize, held),
        }));
    }
    let is_shared = |share: &cloison_tune::Share| share.choice.placement.is_shared();
    let in_use = partition.shares.iter().any(is_shared);
    let main_pools = holdings.iter().filter_map(|holding| holding.main);
    let shared = main_pools
        .chain(0..system.pools.len())
        .find(|pool| !is_private(pool));
    let shared = in_use.then(|| PlannedPool {
        name: shared.map_or_else(
            || new_name("shared", &names),
            |pool| system.pools[pool].name.clone(),
        ),
        colors: free
            .iter()
            .copied()
            .take(partition.shared.0 as usize)
            .collect(),
    });
    Pools { shared, private }
}

/// Takes colors out of the free ones: held ones first, then the highest.
fn take(free: &mut Vec<u8>, count: usize, held: ColorSet) -> Vec<u8> {
    let is_held = |color: &u8| held.iter().any(|it| it.0 == *color);
    let mut order: Vec<u8> = free.clone();
    order.sort_by_key(|color| (!is_held(color), std::cmp::Reverse(*color)));
    order.truncate(count);
    order.sort_unstable();
    free.retain(|color| !order.contains(color));
    order
}

/// Returns a name for a VM's pool that no other pool has.
fn new_name(vm: &str, taken: &[String]) -> String {
    let candidates = (0..).map(|number: u32| {
        let end = match number {
            0 => "-pvt".to_owned(),
            _ => format!("-{number}"),
        };
        let start: String = vm.chars().take(LONGEST_NAME - end.len()).collect();
        start + &end
    });
    let mut free = candidates.filter(|name| !taken.contains(name));
    free.next().unwrap_or_default()
}

/// Puts a VM's memory where the partition has it.
fn place(
    document: &mut DocumentMut,
    index: usize,
    placement: Placement,
    pools: &Pools,
    name: &str,
) -> Result<()> {
    let vm = vm_table(document, index)?;
    let missing = || miette!("VM `{name}` has no pool in the partition");
    let private = pools.private[index].as_ref();
    let main = match placement {
        Placement::Own { .. } => private,
        Placement::Shared { .. } => pools.shared.as_ref(),
    };
    let main = main.ok_or_else(missing)?;
    for region in vm.get_mut("region").into_iter().flat_map(tables_of) {
        if region.contains_key("pool") {
            put(region, "pool", main.name.as_str());
        }
    }
    match (placement, private) {
        (Placement::Shared { private: pages }, Some(private)) if pages.0 > 0 => {
            let profile = vm.get_mut("profile").and_then(Item::as_table_like_mut);
            let profile = profile.ok_or_else(|| miette!("VM `{name}` has no [vm.profile]"))?;
            put(profile, "pool", private.name.as_str());
            put(profile, "top", pages.0 as i64);
            if !profile.contains_key("after") {
                put(profile, "after", "0 ms");
            }
        }
        _ => leave_out_profile(vm),
    }
    Ok(())
}

/// Removes a profile that has no pool any more, with the knob that needs it.
fn leave_out_profile(vm: &mut dyn TableLike) {
    let file = vm
        .get("profile")
        .and_then(|profile| profile.as_table_like()?.get("file")?.as_str())
        .map(ToOwned::to_owned);
    let Some(file) = file else { return };
    vm.remove("profile");
    let Some(Item::Value(Value::Array(knobs))) = vm.get_mut("tune") else {
        return;
    };
    knobs.retain(|knob| knob.as_str() != Some("pages"));
    let old = knobs
        .decor()
        .suffix()
        .and_then(|suffix| suffix.as_str())
        .unwrap_or("");
    let suffix =
        format!("{old}   # no page is private apart from the others: without the profile {file}");
    knobs.decor_mut().set_suffix(suffix);
}

/// Writes names and colors of all pools. Private pools that nobody uses any more are removed.
fn write_pools(document: &mut DocumentMut, checked: &Checked, pools: &Pools) -> Result<()> {
    let Some(Item::ArrayOfTables(list)) = document.get_mut("pool") else {
        return Err(miette!(
            help = "write each pool as a table with the header [[pool]]",
            "the pools are not tables of an array"
        ));
    };
    let planned: Vec<(&PlannedPool, &str)> = pools
        .shared
        .iter()
        .map(|pool| (pool, "SH"))
        .chain(pools.private.iter().flatten().map(|pool| (pool, "PVT")))
        .collect();
    for (pool, kind) in &planned {
        let colors = systems::set_of(&pool.colors);
        let found = list
            .iter_mut()
            .find(|table| table.get("name").and_then(Item::as_str) == Some(pool.name.as_str()));
        let Some(table) = found else {
            let mut table = Table::new();
            table.decor_mut().set_prefix("\n");
            table.insert("name", value(pool.name.as_str()));
            table.insert("kind", value(*kind));
            table.insert("colors", value(colors));
            list.push(table);
            continue;
        };
        let before = checked
            .system
            .pools
            .iter()
            .find(|it| it.name == pool.name)
            .map_or(0, |it| it.colors.len());
        put(table, "kind", *kind);
        put(table, "colors", colors);
        // A limit for fewer colors, or for pages alone, would be too small.
        if *kind == "PVT" && before != pool.colors.len() as u32 {
            table.remove("limit");
        }
    }
    list.retain(|table| {
        let name = table.get("name").and_then(Item::as_str).unwrap_or_default();
        planned.iter().any(|(pool, _)| pool.name == name)
    });
    Ok(())
}

/// Writes the budget of a VM's vCPUs.
fn limit(
    document: &mut DocumentMut,
    index: usize,
    vcpus: usize,
    budget: Budget,
    period: Nanos,
) -> Result<()> {
    let vm = vm_table(document, index)?;
    if !vm.contains_key("quota") {
        vm.insert("quota", Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let Some(Item::ArrayOfTables(quotas)) = vm.get_mut("quota") else {
        return Err(miette!(
            help = "write each quota as a table with the header [[vm.quota]]",
            "the quotas are not tables of an array"
        ));
    };
    let counts_traffic = |table: &Table| table.get("event").and_then(Item::as_str) == Some(EVENT);
    let Budget::PerPeriod(events) = budget else {
        quotas.retain(|table| !counts_traffic(table));
        if quotas.is_empty() {
            vm.remove("quota");
        }
        return Ok(());
    };
    let text = format!("{} events / {}", events.0, show_duration(period));
    for vcpu in 0..vcpus as i64 {
        let of = |table: &Table| table.get("vcpu").and_then(Item::as_integer).unwrap_or(0);
        let found = quotas
            .iter_mut()
            .find(|table| counts_traffic(table) && of(table) == vcpu);
        if let Some(table) = found {
            put(table, "budget", text.as_str());
            continue;
        }
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        if vcpus > 1 {
            table.insert("vcpu", value(vcpu));
        }
        table.insert("event", value(EVENT));
        table.insert("budget", value(text.as_str()));
        quotas.push(table);
    }
    Ok(())
}

fn vm_table(document: &mut DocumentMut, index: usize) -> Result<&mut dyn TableLike> {
    let vms = document.get_mut("vm").into_iter().flat_map(tables_of);
    vms.into_iter()
        .nth(index)
        .ok_or_else(|| miette!("the configuration has no VM {index}"))
}

/// Returns the tables of an array, however it is written.
fn tables_of(item: &mut Item) -> Vec<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(list) => list
            .iter_mut()
            .map(|table| table as &mut dyn TableLike)
            .collect(),
        Item::Value(Value::Array(list)) => list
            .iter_mut()
            .filter_map(Value::as_inline_table_mut)
            .map(|table| table as &mut dyn TableLike)
            .collect(),
        _ => vec![],
    }
}

/// Sets a field, and keeps the comment after it.
fn put(table: &mut dyn TableLike, key: &str, new: impl Into<Value>) {
    let mut new = new.into();
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        _ => {
            table.insert(key, Item::Value(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_colors_stay_and_the_highest_are_next() {
        let mut free: Vec<u8> = (0..8).collect();
        let held = ColorSet(0b0000_0110);
        assert_eq!(take(&mut free, 4, held), [1, 2, 6, 7]);
        assert_eq!(free, [0, 3, 4, 5]);
        assert_eq!(take(&mut free, 1, held), [5]);
    }

    #[test]
    fn names_of_new_pools_are_short_and_free() {
        assert_eq!(new_name("control", &[]), "control-pvt");
        assert_eq!(new_name("control", &["control-pvt".into()]), "control-1");
        assert_eq!(new_name("a-very-long-name", &[]).len(), LONGEST_NAME);
    }

    #[test]
    fn a_comment_stays_beside_what_changes() {
        let text = "[[vm]]\nname = 'a'\n\n[[vm.quota]]  # held\nevent = 'BUS_ACCESS'\nbudget = '8 \
                    events / 1 ms'   # few\n\n[[vm]]\nname = 'b'  # second\n";
        let mut document: DocumentMut = text.parse().expect("TOML");
        let budget = Budget::PerPeriod(cloison_tune::Traffic(500));
        let period = Nanos(1_000_000);
        limit(&mut document, 0, 1, budget, period).expect("a VM");
        limit(&mut document, 1, 2, budget, period).expect("a VM");
        let wanted = "[[vm]]\nname = 'a'\n\n[[vm.quota]]  # held\nevent = 'BUS_ACCESS'\nbudget = \
                      \"500 events / 1 ms\"   # few\n\n[[vm]]\nname = 'b'  # second\n\n\
                      [[vm.quota]]\nvcpu = 0\nevent = \"BUS_ACCESS\"\nbudget = \"500 events / 1 \
                      ms\"\n\n[[vm.quota]]\nvcpu = 1\nevent = \"BUS_ACCESS\"\nbudget = \"500 \
                      events / 1 ms\"\n";
        assert_eq!(document.to_string(), wanted);
        limit(&mut document, 1, 2, Budget::Unlimited, period).expect("a VM");
        assert!(document.to_string().ends_with("name = 'b'  # second\n"));
    }
}
