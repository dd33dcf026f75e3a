//! The systems that are booted: a VM at one point of its surface beside neighbors that stress
//! memory, and a partition beside the user's neighbors or the worst ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::overrides::{self, Value};
use cloison_config::Checked;
use cloison_config::goal::Requirement;
use cloison_config::quantity::show_duration;
use cloison_formats::color::ColorSet;
use cloison_formats::units::Nanos;
use cloison_tune::{Budget, Placement, Point, Traffic};
use miette::{Result, miette};
use std::collections::BTreeMap;
use std::path::Path;
use toml::value::Table;

/// The event that budgets count: all accesses to the bus, so that no guest reaches memory without
/// it.
pub const EVENT: &str = "BUS_ACCESS";
/// Instructions of a best-effort VM whose time is measured.
pub const INSTRUCTIONS: u64 = 200_000;
/// Accesses that no core makes in a second.
const NEVER_SPENT: u64 = 2_000_000_000;
/// Fields of a VM that only mean something beside the VMs that the user has, or for `tune`.
const OF_OTHERS: [&str; 9] = [
    "tolerance",
    "deadline",
    "segment",
    "best_effort",
    "tune",
    "manages",
    "regulates",
    "campaign",
    "migrate_to",
];

/// The worst neighbors: shipped guests that do nothing but access memory, on all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stress {
    /// They read one line after the other.
    Reads,
    /// They write whole lines, which are written back and never read.
    Writes,
    /// They store to one word of each line, which is read and then written back.
    Both,
    /// The first one stores as in [`Self::Both`], the last one writes as in [`Self::Writes`], and
    /// those between them write whole lines of a small buffer; those without a budget come first. Of
    /// the combinations that were tried on the board model, this one delays a victim most, if several
    /// cores have no budget.
    Mixed,
    /// As [`Self::Mixed`], but the first one writes the small buffer, and those between store. It
    /// delays a victim more if one core alone has no budget.
    Turned,
}

/// A workload, and its arguments.
type Guest = (&'static str, &'static str);

/// What runs beside a VM at a point of its surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// What the guests do.
    pub kind: Stress,
    /// The cores of those with a budget.
    pub limited: Vec<u8>,
    /// Their budgets.
    pub budget: Traffic,
}

/// Returns the guest of each neighbor's core.
fn guests(kind: Stress, neighbors: &[u8], limited: &[u8]) -> BTreeMap<u8, Guest> {
    let is_limited = |core: &u8| limited.contains(core);
    let (limited, free): (Vec<u8>, Vec<u8>) = neighbors.iter().partition(|core| is_limited(core));
    let place = |index: usize| match index {
        0 => Place::First,
        _ if index + 1 == neighbors.len() => Place::Last,
        _ => Place::Between,
    };
    let all = free.into_iter().chain(limited).enumerate();
    all.map(|(index, core)| (core, kind.guest(place(index))))
        .collect()
}

/// A neighbor's place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Between,
    Last,
}

impl Stress {
    /// Those of which all cores do the same with memory.
    pub const UNIFORM: [Self; 3] = [Self::Reads, Self::Writes, Self::Both];

    /// Returns a word for the run's directory and the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Both => "both",
            Self::Mixed => "mixed",
            Self::Turned => "turned",
        }
    }

    /// Returns the guest of a core, and its arguments.
    const fn guest(self, place: Place) -> Guest {
        const READS: Guest = ("memory", "[0, \"4M\", 1, 0]");
        const WRITES: Guest = ("memory", "[1, \"4M\", 1, 0]");
        const BOTH: Guest = ("interf", "[\"2M\", 0]");
        // Twice an L1.
        const SMALL: Guest = ("memory", "[1, \"64K\", 1, 0]");
        match (self, place) {
            (Self::Reads, _) => READS,
            (Self::Writes, _) | (Self::Mixed | Self::Turned, Place::Last) => WRITES,
            (Self::Both, _) | (Self::Mixed, Place::First) | (Self::Turned, Place::Between) => BOTH,
            (Self::Mixed, Place::Between) | (Self::Turned, Place::First) => SMALL,
        }
    }
}

/// Who runs beside the VM that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbors {
    /// Those of the configuration.
    Written,
    /// A guest that stresses memory on each of their cores, under their budgets.
    Stress(Stress),
}

/// What all systems share.
#[derive(Debug)]
pub struct Base {
    /// The user's configuration, wherever it is read.
    system: Value,
    /// The colors that VMs can have, ascending.
    pub colors: Vec<u8>,
    /// The cores of each VM.
    cores: Vec<Vec<u8>>,
    /// Whether each VM is one of best effort.
    best_effort: Vec<bool>,
    /// The period of all budgets.
    pub period: Nanos,
    /// What counts the accesses of a VM without segments.
    counted: Counted,
}

/// What counts the accesses of a VM without segments, until it has executed the instructions whose
/// time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The board model, from outside.
    ByModel,
    /// A quota that is never spent.
    ByQuota,
}

impl Base {
    /// Reads the base of all systems of a configuration.
    ///
    /// # Errors
    ///
    /// If its text is not TOML.
    pub fn new(checked: &Checked, period: Nanos, counted: Counted) -> Result<Self> {
        let system = &checked.system;
        let colors = ColorSet::first(checked.board.colors).without(system.hypervisor_colors);
        let is_best_effort = |goal: &Option<cloison_config::goal::Goal>| {
            goal.as_ref()
                .is_none_or(|goal| goal.requirement == Requirement::BestEffort)
        };
        Ok(Self {
            system: overrides::anchored(&checked.source, &checked.path)?,
            colors: colors.iter().map(|color| color.0).collect(),
            cores: system
                .vms
                .iter()
                .map(|vm| vm.cores.iter().map(|core| core.0).collect())
                .collect(),
            best_effort: checked.goals.iter().map(is_best_effort).collect(),
            period,
            counted,
        })
    }

    /// Returns the number of cores that the neighbors of a VM have.
    pub fn neighbor_cores(&self, vm: usize) -> u64 {
        self.cores_beside(vm).len() as u64
    }

    /// Returns the cores of a VM's neighbors.
    pub fn cores_beside(&self, vm: usize) -> Vec<u8> {
        let others = self.cores.iter().enumerate().filter(|(it, _)| *it != vm);
        others
            .flat_map(|(_, cores)| cores.iter().copied())
            .collect()
    }

    /// Returns the cores of these VMs.
    pub fn cores_of(&self, vms: &[usize]) -> Vec<u8> {
        let cores = vms.iter().filter_map(|vm| self.cores.get(*vm));
        cores.flatten().copied().collect()
    }

    /// Returns the system in which a VM runs at a point of its surface. `private` is the number of
    /// colors of its private pages' pool.
    ///
    /// # Errors
    ///
    /// If the configuration lacks what it needs.
    pub fn at(&self, vm: usize, point: &Point, private: u32, beside: &Beside) -> Result<Value> {
        let colors = |from: u32, count: u32| {
            let (from, count) = (from as usize, count as usize);
            set_of(&self.colors[from.min(self.colors.len())..(from + count).min(self.colors.len())])
        };
        let all = self.colors.len() as u32;
        let mut pools = vec![];
        let (main, neighbors) = match point.placement {
            Placement::Own { colors: own } => {
                pools.push(pool("main", "PVT", &colors(0, own.0)));
                if point.traffic.0 > 0 && own.0 < all {
                    pools.push(pool("rest", "SH", &colors(own.0, all - own.0)));
                }
                ("main", "rest")
            }
            Placement::Shared { private: pages } => {
                if pages.0 > 0 {
                    pools.push(pool("private", "PVT", &colors(0, private)));
                }
                pools.push(pool("main", "SH", &colors(private, point.shared.0)));
                ("main", "main")
            }
        };
        let subject = self.subject(vm, main, point)?;
        let mut vms = vec![subject];
        let cores = match point.traffic.0 {
            0 => vec![],
            _ => self.cores_beside(vm),
        };
        let guests = guests(beside.kind, &cores, &beside.limited);
        for core in cores {
            let is_limited = beside.limited.contains(&core);
            let budget = is_limited.then(|| self.quota(0, beside.budget.0));
            let quotas = budget.into_iter().collect();
            vms.push(stress(guests[&core], core, neighbors, quotas)?);
        }
        self.system(vm, pools, vms)
    }

    /// Returns a system in which one core stresses memory without a budget, alone.
    ///
    /// # Errors
    ///
    /// If there is no color.
    pub fn flood(&self, kind: Stress) -> Result<Value> {
        let core = self.cores.first().and_then(|cores| cores.first());
        let quotas = self.stops();
        let pools = vec![pool("main", "SH", &set_of(&self.colors))];
        let guest = kind.guest(Place::First);
        let vm = stress(guest, core.copied().unwrap_or(0), "main", quotas)?;
        self.system(0, pools, vec![vm])
    }

    /// Returns a configuration's system as it is, or with stress in place of all VMs but one; it
    /// ends with this one. `limited` are the cores whose budgets are below what a core does
    /// without one.
    ///
    /// # Errors
    ///
    /// If the configuration lacks what it needs.
    pub fn verification(
        &self,
        text: &str,
        file: &Path,
        vm: usize,
        neighbors: Neighbors,
        limited: &[u8],
    ) -> Result<Value> {
        let mut system = overrides::anchored(text, file)?;
        let vms = system.get("vm").and_then(Value::as_array).cloned();
        let vms = vms.ok_or_else(|| miette!("the configuration has no VM"))?;
        let name = name_of(&vms[vm]);
        set(&mut system, "ends_with", name.into());
        let guests = match neighbors {
            Neighbors::Written => None,
            Neighbors::Stress(kind) => Some(guests(kind, &self.cores_beside(vm), limited)),
        };
        let mut kept = vec![];
        for (index, mut table) in vms.into_iter().enumerate() {
            if index == vm {
                self.watch(vm, &mut table);
            }
            let Some(guests) = &guests else {
                kept.push(table);
                continue;
            };
            if index == vm {
                ["manages", "regulates"]
                    .iter()
                    .for_each(|key| remove(&mut table, key));
                kept.push(table);
                continue;
            }
            let main = pool_of(&table).ok_or_else(|| {
                miette!(
                    "VM `{}` has no region in a pool, so no guest can stress memory in its place",
                    name_of(&table)
                )
            })?;
            for (vcpu, core) in self.cores[index].iter().enumerate() {
                let quotas = quotas_of(&table, vcpu)?;
                kept.push(stress(guests[core], *core, &main, quotas)?);
            }
        }
        for quota in kept.iter_mut().flat_map(quotas_in) {
            self.allow(quota);
        }
        set(&mut system, "vm", Value::Array(kept));
        if neighbors != Neighbors::Written {
            remove(&mut system, "console_manages");
            share_pools(&mut system);
        }
        Ok(system)
    }

    /// Returns the quotas that stop a VM when it has executed the instructions whose time is
    /// measured, and that count its accesses until then.
    fn stops(&self) -> Vec<Value> {
        let mut quotas = vec![per_second("INST_RETIRED", INSTRUCTIONS, "stop")];
        if self.counted == Counted::ByQuota {
            quotas.push(per_second(EVENT, NEVER_SPENT, "log"));
        }
        quotas.iter_mut().for_each(|quota| self.allow(quota));
        quotas
    }

    /// Lets a board count an event whose counts nobody has validated: verdicts are beside the user's
    /// configuration, where those of the runs are not looked for.
    fn allow(&self, quota: &mut Value) {
        if self.counted == Counted::ByQuota {
            set(quota, "allow_untrusted", Value::Boolean(true));
        }
    }

    /// Makes a VM say how long it takes: by its segments, or by the end of its instructions.
    fn watch(&self, vm: usize, table: &mut Value) {
        if !self.best_effort[vm] {
            set(table, "hems", vec![EVENT].into());
            return;
        }
        remove(table, "hems");
        let quotas = table.get("quota").and_then(Value::as_array);
        let mut quotas = quotas.cloned().unwrap_or_default();
        quotas.extend(self.stops());
        set(table, "quota", Value::Array(quotas));
    }

    /// Returns the VM that is measured, at a point.
    fn subject(&self, vm: usize, main: &str, point: &Point) -> Result<Value> {
        let vms = self.system.get("vm").and_then(Value::as_array);
        let mut table = vms
            .and_then(|vms| vms.get(vm))
            .cloned()
            .ok_or_else(|| miette!("the configuration has no VM {vm}"))?;
        OF_OTHERS.iter().for_each(|key| remove(&mut table, key));
        for region in regions_of(&mut table) {
            if region.contains_key("pool") {
                region.insert("pool".into(), main.into());
            }
        }
        match point.placement {
            Placement::Shared { private } if private.0 > 0 => {
                if let Some(profile) = table.get_mut("profile").and_then(Value::as_table_mut) {
                    profile.insert("pool".into(), "private".into());
                    profile.insert("top".into(), Value::Integer(private.0 as i64));
                    profile
                        .entry("after")
                        .or_insert_with(|| Value::from("0 ms"));
                }
            }
            _ => remove(&mut table, "profile"),
        }
        let mut quotas: Vec<Value> = vec![];
        if let Some(own) = table.get("quota").and_then(Value::as_array) {
            quotas.extend(own.iter().filter(|quota| !counts_traffic(quota)).cloned());
        }
        if let Budget::PerPeriod(budget) = point.budget {
            quotas.extend((0..self.cores[vm].len()).map(|vcpu| self.quota(vcpu, budget.0)));
        }
        remove(&mut table, "quota");
        if !quotas.is_empty() {
            set(&mut table, "quota", Value::Array(quotas));
        }
        self.watch(vm, &mut table);
        Ok(table)
    }

    /// Returns a quota on the traffic of a vCPU.
    fn quota(&self, vcpu: usize, budget: u64) -> Value {
        let mut quota = Table::new();
        quota.insert("vcpu".into(), Value::Integer(vcpu as i64));
        quota.insert("event".into(), EVENT.into());
        let budget = format!("{budget} events / {}", show_duration(self.period));
        quota.insert("budget".into(), budget.into());
        let mut quota = Value::Table(quota);
        self.allow(&mut quota);
        quota
    }

    /// Returns the user's system with these pools and VMs, which ends with the VM.
    fn system(&self, vm: usize, pools: Vec<Value>, vms: Vec<Value>) -> Result<Value> {
        let mut system = self.system.clone();
        let name = vms.first().map(name_of);
        let name = name.ok_or_else(|| miette!("the configuration has no VM {vm}"))?;
        remove(&mut system, "console_manages");
        set(&mut system, "ends_with", name.into());
        set(&mut system, "pool", Value::Array(pools));
        set(&mut system, "vm", Value::Array(vms));
        Ok(system)
    }
}

/// Formats colors as a configuration has them.
pub fn set_of(colors: &[u8]) -> String {
    let mut parts: Vec<(u8, u8)> = vec![];
    for color in colors {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *color => *last = *color,
            _ => parts.push((*color, *color)),
        }
    }
    let show = |(first, last): &(u8, u8)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(",")
}

/// Returns whether a quota of a configuration is on the traffic.
pub fn counts_traffic(quota: &Value) -> bool {
    quota.get("event").and_then(Value::as_str) == Some(EVENT)
}

fn set(value: &mut Value, key: &str, new: Value) {
    if let Value::Table(table) = value {
        table.insert(key.to_owned(), new);
    }
}

fn remove(value: &mut Value, key: &str) {
    if let Value::Table(table) = value {
        table.remove(key);
    }
}

/// Returns the name of a system's first VM.
pub fn first_vm(system: &Value) -> String {
    let vms = system.get("vm").and_then(Value::as_array);
    vms.and_then(|vms| vms.first())
        .map_or_else(String::new, name_of)
}

fn name_of(table: &Value) -> String {
    let name = table.get("name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn regions_of(table: &mut Value) -> impl Iterator<Item = &mut Table> {
    let regions = table.get_mut("region").and_then(Value::as_array_mut);
    regions
        .into_iter()
        .flatten()
        .filter_map(Value::as_table_mut)
}

fn quotas_in(table: &mut Value) -> impl Iterator<Item = &mut Value> {
    let quotas = table.get_mut("quota").and_then(Value::as_array_mut);
    quotas.into_iter().flatten()
}

/// Returns the pool of a VM's first region in one.
fn pool_of(table: &Value) -> Option<String> {
    let regions = table.get("region")?.as_array()?;
    let pools = regions.iter().filter_map(|region| region.get("pool"));
    pools
        .filter_map(Value::as_str)
        .next()
        .map(ToOwned::to_owned)
}

/// Returns the quotas of one vCPU of a VM, as those of a VM with one.
fn quotas_of(table: &Value, vcpu: usize) -> Result<Vec<Value>> {
    let quotas = table.get("quota").and_then(Value::as_array);
    let of = |quota: &Value| {
        if quota.get("split").is_some() {
            let help = "write one [[vm.quota]] for each vCPU";
            return Some(Err(miette!(
                help = help,
                "VM `{}`: `tune` cannot stress memory under a budget that is split",
                name_of(table)
            )));
        }
        let own = quota.get("vcpu").and_then(Value::as_integer).unwrap_or(0);
        let mut quota = quota.clone();
        set(&mut quota, "vcpu", Value::Integer(0));
        (own == vcpu as i64).then_some(Ok(quota))
    };
    quotas.into_iter().flatten().filter_map(of).collect()
}

/// Returns a quota of events per second.
fn per_second(event: &str, events: u64, when_spent: &str) -> Value {
    let mut quota = Table::new();
    quota.insert("event".into(), event.into());
    let budget = format!("{events} events / 1 s");
    quota.insert("budget".into(), budget.into());
    quota.insert("when_spent".into(), when_spent.into());
    Value::Table(quota)
}

fn pool(name: &str, kind: &str, colors: &str) -> Value {
    let mut pool = Table::new();
    pool.insert("name".into(), name.into());
    pool.insert("kind".into(), kind.into());
    pool.insert("colors".into(), colors.into());
    Value::Table(pool)
}

/// Returns a VM that stresses memory on a core. It is small, so that several fit into one color; its
/// buffer is still larger than any cache.
fn stress((workload, args): Guest, core: u8, pool: &str, quotas: Vec<Value>) -> Result<Value> {
    let text = format!(
        "name = \"stress-{core}\"\ncores = [{core}]\nimage = {{ workload = \"{workload}\" }}\nargs \
         = {args}\n[[region]]\nname = \"ram\"\nipa = 0x4000_0000\nsize = \"8M\"\npool = \
         \"{pool}\"\n"
    );
    let parsed = text.parse::<Table>();
    let mut vm = Value::Table(parsed.map_err(|error| miette!("{error}"))?);
    if !quotas.is_empty() {
        set(&mut vm, "quota", Value::Array(quotas));
    }
    Ok(vm)
}

/// Makes all pools shared, where several guests stress memory in place of a VM with a private one.
/// Their colors stay apart.
fn share_pools(system: &mut Value) {
    let pools = system.get_mut("pool").and_then(Value::as_array_mut);
    for pool in pools.into_iter().flatten() {
        set(pool, "kind", "SH".into());
        remove(pool, "limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_written_as_ranges() {
        assert_eq!(set_of(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(set_of(&[]), "");
    }

    #[test]
    fn neighbors_without_a_budget_have_the_first_guests_of_a_mixture() {
        let of = |kind: Stress| {
            let guests = guests(kind, &[0, 2, 3], &[0]);
            [2, 3, 0].map(|core| guests[&core])
        };
        let [both, small, writes] = of(Stress::Mixed);
        assert_eq!(of(Stress::Both), [both; 3]);
        assert_eq!(of(Stress::Writes), [writes; 3]);
        assert_eq!(of(Stress::Turned), [small, both, writes]);
        assert_ne!(small, writes);
    }
}
