//! The VMs of a configuration as the solver has them: what they have now, and what may change.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::runs::Measure;
use super::systems::EVENT;
use super::written::Holding;
use cloison_config::events::EventNames;
use cloison_config::goal::{self, Goal, Requirement, Segments};
use cloison_config::memory::{Account, image_bytes};
use cloison_config::problem::Problem as Mistake;
use cloison_config::problem::SourceFile;
use cloison_config::quantity::show_duration;
use cloison_config::{Checked, Errors, ImageSource};
use cloison_engine::model::Roi;
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::ColorSet;
use cloison_formats::image::{Backing, PoolKind, Vm};
use cloison_formats::units::Nanos;
use cloison_tune::{
    Budget, Choice, Colors, Demand, Fixed, Knob, PageStep, Pages, Permille, Placement, Share, Time,
    Traffic, VmName,
};
use std::collections::BTreeSet;

/// Periods of budgets that are tried where none is written, the cheapest one for EL2 first.
const PERIODS: [Nanos; 4] = [MILLISECOND, Nanos(100_000), Nanos(20_000), Nanos(5_000)];
/// The least budget that is tried, in accesses per period: a smaller one lets as much pass, since
/// lines are under way when it is spent, and costs more visits to EL2.
pub const LEAST_BUDGET: u64 = 40;
const MILLISECOND: Nanos = Nanos(1_000_000);
/// Budgets that are tried, in accesses of a core in 1 ms.
const BUDGETS: [u64; 8] = [400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200];

/// A VM, without its run times.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: VmName,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// Pages of memory in pools.
    pub memory: Pages,
    /// What it must reach.
    pub demand: Demand,
    /// What is measured of it.
    pub measure: Measure,
    /// Where the model is on while it is measured: in all of a bare-metal guest, whose runs so repeat
    /// exactly, but only in the segments of a program in Linux, which takes seconds to boot.
    pub roi: Roi,
    /// What may change.
    pub knobs: BTreeSet<Knob>,
    /// What it has now.
    pub written: Share,
    /// Numbers of private pages that are tried.
    pub pages: Vec<PageStep>,
    /// Budgets that are tried.
    pub budgets: Vec<Budget>,
}

/// All VMs, and what they share.
#[derive(Clone, Debug)]
pub struct Subjects {
    /// In the order of the configuration.
    pub vms: Vec<Subject>,
    /// Colors that VMs can have.
    pub colors: Colors,
    /// Pages of memory of a color.
    pub color_pages: Pages,
    /// Colors of the shared pool as it is written.
    pub shared: Colors,
    /// The period of all budgets.
    pub period: Nanos,
    /// Whether a budget has this period in the configuration.
    is_period_written: bool,
}

impl Subjects {
    /// Returns the VMs with each period of budgets that is tried: the one that is written, or
    /// several if budgets may change, of what the command line allows.
    pub fn with_periods(self, only: &BTreeSet<Knob>) -> Vec<Self> {
        let may_change = only.contains(&Knob::Budgets)
            && self.vms.iter().any(|vm| vm.knobs.contains(&Knob::Budgets));
        if self.is_period_written || !may_change {
            return vec![self];
        }
        PERIODS.map(|period| self.with_period(period)).to_vec()
    }

    fn with_period(&self, period: Nanos) -> Self {
        let mut subjects = self.clone();
        subjects.period = period;
        for vm in &mut subjects.vms {
            if !vm.budgets.is_empty() {
                vm.budgets = budgets(period);
            }
        }
        subjects
    }

    /// Returns a number of accesses in 1 ms as one in the period of the budgets.
    pub fn in_period(&self, accesses: u64) -> u64 {
        in_period(accesses, self.period)
    }
}

impl Subject {
    /// Returns whether it has a tolerance or a deadline.
    pub fn has_goal(&self) -> bool {
        self.demand != Demand::BestEffort
    }

    /// Returns the VM with what was measured and what it must reach, for the solver.
    pub fn with(
        &self,
        demand: Demand,
        surface: cloison_tune::Surface,
        only: &BTreeSet<Knob>,
    ) -> cloison_tune::Vm {
        cloison_tune::Vm {
            name: self.name.clone(),
            vcpus: self.vcpus,
            memory: self.memory,
            demand,
            tune: self.knobs.intersection(only).copied().collect(),
            fixed: Fixed::default(),
            written: self.written.choice,
            pages: self.pages.clone(),
            budgets: self.budgets.clone(),
            surface,
        }
    }

    /// Returns the colors of the private pool of so many private pages.
    pub fn private_colors(&self, pages: Pages) -> Colors {
        let written = self.written.choice.placement == Placement::Shared { private: pages };
        let step = self.pages.iter().find(|step| step.pages == pages);
        match (written, step) {
            (true, _) => self.written.colors,
            (false, Some(step)) => step.colors,
            (false, None) => Colors(0),
        }
    }
}

/// Reads the VMs of a configuration.
///
/// # Errors
///
/// If nothing may change, or something cannot be tuned; with the place of each mistake.
pub fn read(checked: &Checked) -> Result<Subjects, Errors> {
    let file = SourceFile::new(&checked.path, checked.source.clone());
    let mut mistakes = check(checked, &file);
    let written = period(checked, &file, &mut mistakes);
    let period = written.unwrap_or(MILLISECOND);
    if !mistakes.is_empty() {
        return Err(Errors::new(file.name(), mistakes));
    }
    let system = &checked.system;
    let colors = ColorSet::first(checked.board.colors).without(system.hypervisor_colors);
    let image = image_bytes(checked.images.iter());
    let account = Account::new(system, checked.board.colors, image);
    let each = colors
        .iter()
        .map(|color| account.pages_of(ColorSet::EMPTY.with(color)));
    let llc = &system.board.llc;
    let cached = llc.size / u64::from(checked.board.colors) / PAGE_SIZE;
    let shared = system
        .vms
        .iter()
        .filter_map(|vm| Holding::of(vm).main)
        .find(|pool| system.pools[*pool].kind == PoolKind::Sh);
    Ok(Subjects {
        vms: (0..system.vms.len())
            .map(|index| subject(checked, index, period, cached.max(1)))
            .collect(),
        colors: Colors(colors.len()),
        color_pages: Pages(each.min().unwrap_or(0)),
        shared: Colors(shared.map_or(0, |pool| system.pools[pool].colors.len())),
        period,
        is_period_written: written.is_some(),
    })
}

/// Returns what keeps a configuration from being tuned.
fn check(checked: &Checked, file: &SourceFile) -> Vec<Mistake> {
    let system = &checked.system;
    let mut mistakes = vec![];
    if checked
        .goals
        .iter()
        .flatten()
        .all(|goal| goal.knobs.is_empty())
    {
        let message = "nothing may change: no VM has a list `tune`";
        mistakes.push(Mistake::error(file, "vm", 0..0, message).label("in this file").help(
            "give each VM what it must reach, and what may change for it: tolerance = \"1.10\" (or \
             best_effort = true), and tune = [\"colors\", \"pages\", \"budgets\"]",
        ));
    }
    let colors = ColorSet::first(checked.board.colors);
    let others = system
        .pools
        .iter()
        .filter(|pool| !pool.colors.without(colors).is_empty());
    mistakes.extend(others.map(|pool| {
        let field = format!("pool[{}].memory", pool.name);
        let message = format!("pool `{}` is made of a memory besides the RAM", pool.name);
        Mistake::error(file, field, 0..0, message)
            .label("in this file")
            .help("`tune` divides the colors of the RAM: leave the pool out")
    }));
    let mut shared: Vec<usize> = vec![];
    for (index, vm) in system.vms.iter().enumerate() {
        let goal = checked.goals[index].as_ref();
        let span = goal.map_or(0..0, |goal| goal.span.clone());
        let field = format!("vm[{}]", vm.name);
        if matches!(checked.images[index], ImageSource::Linux(_)) {
            let wrong = linux_mistake(vm, goal);
            mistakes.extend(wrong.map(|(message, help)| {
                let mistake = Mistake::error(file, field.clone(), span.clone(), message);
                mistake.label("of this VM").help(help)
            }));
        }
        let holding = Holding::of(vm);
        if let Some(main) = holding.main
            && system.pools[main].kind == PoolKind::Sh
            && !shared.contains(&main)
        {
            shared.push(main);
        }
        let places = goal.is_some_and(|goal| {
            goal.knobs.contains(&goal::Knob::Colors) || goal.knobs.contains(&goal::Knob::Pages)
        });
        let target = holding.target.map(|pool| system.pools[pool].kind);
        if places && target == Some(PoolKind::Sh) {
            let message = format!("the pages of VM `{}` move to a shared pool", vm.name);
            let mistake = Mistake::error(file, field, span, message).label("of this VM");
            mistakes.push(mistake.help("let them move to a private one: kind = \"PVT\""));
        }
    }
    if let [_, second, ..] = shared.as_slice() {
        let message = format!(
            "the VMs are in {} shared pools, and `tune` divides the cache between one and the \
             private ones",
            shared.len()
        );
        let field = format!("pool[{}]", system.pools[*second].name);
        let mistake = Mistake::error(file, field, 0..0, message).label("in this file");
        mistakes.push(mistake.help("put all VMs without colors to themselves into one pool"));
    }
    mistakes
}

/// Returns why a VM with Linux cannot be measured, and what to do.
fn linux_mistake(vm: &Vm, goal: Option<&Goal>) -> Option<(String, &'static str)> {
    let name = &vm.name;
    if goal.is_none_or(|goal| goal.requirement == Requirement::BestEffort) {
        let message = format!(
            "VM `{name}` runs Linux without a goal, and the first instructions of a VM of best \
             effort are measured: Linux would only boot in them"
        );
        let help = "give it a goal, and its program as exec = \"cloisonctl stat --by hem --repeat 4 \
                    PROGRAM\"";
        return Some((message, help));
    }
    (!vm.services_page).then(|| {
        let message = format!("Linux in VM `{name}` cannot log segments: it has no services page");
        let help = "give it services_page = true, through which `cloisonctl stat` reaches the \
                    hypervisor";
        (message, help)
    })
}

/// Returns the period of all budgets on the traffic, if one is written.
fn period(checked: &Checked, file: &SourceFile, mistakes: &mut Vec<Mistake>) -> Option<Nanos> {
    let names = EventNames::of(&checked.board.events);
    let quotas = checked.system.vms.iter().flat_map(|vm| &vm.quotas);
    let on_traffic = quotas.filter(|quota| names.name(quota.counted.event) == EVENT);
    let mut periods: Vec<Nanos> = on_traffic.map(|quota| quota.period).collect();
    periods.dedup();
    if let [first, second, ..] = periods.as_slice() {
        let message = format!(
            "budgets of {EVENT} have periods of {} and of {}",
            show_duration(*first),
            show_duration(*second)
        );
        let mistake = Mistake::error(file, "vm.quota.budget", 0..0, message).label("in this file");
        mistakes.push(mistake.help("give all of them the same period"));
    }
    periods.first().copied()
}

fn in_period(accesses: u64, period: Nanos) -> u64 {
    let scaled = u128::from(accesses) * u128::from(period.0) / u128::from(MILLISECOND.0);
    (scaled as u64).max(1)
}

/// Returns the budgets that are tried.
fn budgets(period: Nanos) -> Vec<Budget> {
    let budgets = BUDGETS.map(|each| in_period(each, period));
    let budgets = budgets.into_iter().filter(|each| *each >= LEAST_BUDGET);
    budgets
        .map(|each| Budget::PerPeriod(Traffic(each)))
        .collect()
}

fn subject(checked: &Checked, index: usize, period: Nanos, cached: u64) -> Subject {
    let system = &checked.system;
    let vm = &system.vms[index];
    let goal = checked.goals[index].as_ref();
    let requirement = goal.map_or(Requirement::BestEffort, |goal| goal.requirement);
    let demand = match requirement {
        Requirement::Tolerance(permille) => Demand::Tolerance(Permille(permille as u32)),
        Requirement::Deadline(deadline) => Demand::Deadline(Time(deadline.0)),
        Requirement::BestEffort => Demand::BestEffort,
    };
    let measure = match requirement {
        Requirement::BestEffort => Measure::Instructions,
        _ => Measure::Longest(goal.map_or(Segments::Any, |goal| goal.segments)),
    };
    let knobs = knobs_of(goal);
    let in_pools = vm
        .regions
        .iter()
        .filter(|region| matches!(region.backing, Backing::Pool(_)));
    let name = VmName(vm.name.clone());
    let written = written(checked, index, &name);
    let known = vm
        .profile
        .as_ref()
        .map_or(0, |profile| profile.pages.len() as u64);
    let steps = (1..=known.div_ceil(cached)).map(|colors| PageStep {
        pages: Pages((colors * cached).min(known)),
        colors: Colors(colors as u32),
    });
    Subject {
        name,
        vcpus: vm.cores.len() as u32,
        memory: Pages(in_pools.map(|region| u64::from(region.pages)).sum()),
        demand,
        measure,
        roi: match checked.images[index] {
            ImageSource::Linux(_) => Roi::Hint,
            _ => Roi::Always,
        },
        pages: if knobs.contains(&Knob::Pages) {
            steps.collect()
        } else {
            vec![]
        },
        budgets: if knobs.contains(&Knob::Budgets) {
            budgets(period)
        } else {
            vec![]
        },
        knobs,
        written,
    }
}

fn knobs_of(goal: Option<&Goal>) -> BTreeSet<Knob> {
    let knobs = goal.map_or(&[][..], |goal| &goal.knobs).iter();
    knobs
        .map(|knob| match knob {
            goal::Knob::Colors => Knob::Colors,
            goal::Knob::Pages => Knob::Pages,
            goal::Knob::Budgets => Knob::Budgets,
        })
        .collect()
}

/// Returns what a VM has now.
fn written(checked: &Checked, index: usize, name: &VmName) -> Share {
    let system = &checked.system;
    let vm = &system.vms[index];
    let holding = Holding::of(vm);
    let private_colors = |pool: Option<usize>| {
        let pool = pool.map(|pool| &system.pools[pool]);
        pool.filter(|pool| pool.kind == PoolKind::Pvt)
            .map(|pool| Colors(pool.colors.len()))
    };
    let moved = vm.profile.as_ref().map_or(0, |profile| {
        profile.after.map_or(0, |_| u64::from(profile.top))
    });
    let (placement, colors) = match private_colors(holding.main) {
        Some(colors) => (Placement::Own { colors }, colors),
        None => {
            let private = Pages(moved);
            let colors = private_colors(holding.target).filter(|_| moved > 0);
            (Placement::Shared { private }, colors.unwrap_or_default())
        }
    };
    let names = EventNames::of(&checked.board.events);
    let on_traffic = vm
        .quotas
        .iter()
        .filter(|quota| names.name(quota.counted.event) == EVENT);
    let budget = on_traffic
        .map(|quota| Budget::PerPeriod(Traffic(quota.budget.0)))
        .min();
    Share {
        vm: name.clone(),
        choice: Choice {
            placement,
            budget: budget.unwrap_or(Budget::Unlimited),
        },
        colors,
        traffic: Traffic(0),
    }
}
