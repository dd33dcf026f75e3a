//! What each VM can choose, what it costs and what it gives, without dominated choices.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Knob, Objective, PageStep, Problem, ProblemError, Vm};
use crate::surface::{Hull, Point, View};
use crate::types::{Budget, Choice, Colors, Pages, Placement, Time, Traffic};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Parts of a whole in margins and throughputs.
pub(crate) const MILLION: u64 = 1_000_000;

/// How many colors there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Those of the problem.
    Scarce,
    /// Enough for every VM: what would be without competition for colors.
    Plenty,
}

/// What neighbors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbors {
    /// They refill as much as their budgets allow.
    Busy,
    /// They refill nothing: what would be without competition for memory.
    Silent,
}

/// A question to the search: a problem, with the limits and resources to assume.
#[derive(Clone, Debug)]
pub(crate) struct Query<'a> {
    pub problem: &'a Problem,
    pub objective: Objective,
    pub view: View,
    /// Per VM, its surface, prepared once for all queries that differ in the rest.
    pub hulls: Rc<Vec<Hull<'a>>>,
    /// Per VM, the longest time that is allowed.
    pub limits: Vec<Option<Time>>,
    /// Per VM, the time that its margin is measured against, with [`Objective::Margin`].
    pub margins: Vec<Option<Time>>,
    pub supply: Supply,
    pub neighbors: Neighbors,
}

impl<'a> Query<'a> {
    /// Asks the problem as it is.
    pub fn new(problem: &'a Problem, objective: Objective, view: View) -> Self {
        let limits: Vec<_> = problem.vms.iter().map(Vm::limit).collect();
        Self {
            problem,
            objective,
            view,
            hulls: Rc::new(problem.vms.iter().map(|vm| vm.surface.hull()).collect()),
            margins: limits.clone(),
            limits,
            supply: Supply::Scarce,
            neighbors: Neighbors::Busy,
        }
    }
}

/// A placement with the private colors that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    pub placement: Placement,
    pub colors: Colors,
}

/// A choice with all that the search asks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub colors: usize,
    /// Its part of the objective, to be maximized: a summand, or with [`Objective::Margin`] a bound.
    pub primary: i64,
    pub changes: u64,
    pub choice: Choice,
}

/// Choices of a VM under the same conditions, none of them dominated by another.
pub(crate) type Menu = Vec<Entry>;

/// Under which conditions a VM chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conditions {
    pub vm: usize,
    /// Colors of the shared pool; `None` if the VM has its own.
    pub shared: Option<Colors>,
    /// Index of the VM's budget; `None` if it is not yet decided.
    pub budget: Option<usize>,
    /// The stretch of traffic between measured ones: all traffic in it has the same bounds.
    stretch: usize,
}

/// All menus of a query, made when they are first needed.
pub(crate) struct Kitchen<'a> {
    query: &'a Query<'a>,
    sites: Vec<Vec<Site>>,
    budgets: Vec<Vec<Budget>>,
    /// Per VM, the traffic of its measured points.
    measured: Vec<Vec<Traffic>>,
    menus: Vec<Menu>,
    known: HashMap<Conditions, usize>,
    pub dominated: u64,
}

impl Problem {
    /// Checks what the search relies on.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), ProblemError> {
        const MOST: usize = 8;
        if self.vms.is_empty() {
            return Err(ProblemError::NoVms);
        }
        if self.vms.len() > MOST {
            return Err(ProblemError::TooManyVms {
                found: self.vms.len(),
                most: MOST,
            });
        }
        let mut names = BTreeSet::new();
        for vm in &self.vms {
            if !names.insert(&vm.name) {
                return Err(ProblemError::SameName(vm.name.clone()));
            }
            vm.check(self)?;
        }
        Ok(())
    }

    /// Returns what a VM's vCPUs may refill per period in sum, if each has this budget.
    pub fn allowance(&self, vm: &Vm, budget: Budget) -> Traffic {
        let each = match budget {
            Budget::PerPeriod(traffic) => traffic.min(self.flood),
            Budget::Unlimited => self.flood,
        };
        Traffic(each.0.saturating_mul(u64::from(vm.vcpus)))
    }

    /// Returns whether a pool of so many colors holds so many pages.
    pub(crate) fn holds(&self, colors: Colors, pages: u64) -> bool {
        u64::from(colors.0).saturating_mul(self.color_pages.0) >= pages
    }
}

impl Vm {
    fn check(&self, problem: &Problem) -> Result<(), ProblemError> {
        use crate::problem::Demand;
        let zero = |what| ProblemError::Zero {
            vm: self.name.clone(),
            what,
        };
        if let Demand::Tolerance(tolerance) = self.demand
            && tolerance.0 < 1000
        {
            return Err(ProblemError::Tolerance {
                vm: self.name.clone(),
                found: tolerance,
            });
        }
        let budgets = self.budgets.iter().chain(&self.fixed.budget);
        let own = Placement::Own { colors: Colors(0) };
        let zeros = [
            (self.demand == Demand::Deadline(Time(0)), "its deadline"),
            (self.surface.alone().time.0 == 0, "its time alone"),
            (self.surface.period().0 == 0, "its regulation period"),
            (self.vcpus == 0, "its number of vCPUs"),
            (
                budgets
                    .chain([&self.written.budget])
                    .any(|it| *it == Budget::PerPeriod(Traffic(0))),
                "a budget",
            ),
            (
                self.pages
                    .iter()
                    .any(|it| it.pages.0 == 0 || it.colors.0 == 0),
                "a number of private pages or of their colors",
            ),
            (
                self.written.placement == own || self.fixed.placement == Some(own),
                "a number of own colors",
            ),
        ];
        if let Some((_, what)) = zeros.into_iter().find(|(is_zero, _)| *is_zero) {
            return Err(zero(what));
        }
        if self.sites(problem).is_empty() {
            return Err(ProblemError::NoPlacement {
                vm: self.name.clone(),
                memory: self.memory,
                colors: problem.colors,
            });
        }
        Ok(())
    }

    /// Returns the placements that are allowed and that the colors could hold, in their order.
    pub(crate) fn sites(&self, problem: &Problem) -> Vec<Site> {
        let mut placements = BTreeSet::from([self.written.placement]);
        let tunes = |knob| self.tune.contains(&knob);
        if tunes(Knob::Colors) {
            placements.extend((1..=problem.colors.0).map(|colors| Placement::Own {
                colors: Colors(colors),
            }));
        }
        let shares = self.written.placement.is_shared();
        if tunes(Knob::Pages) && (shares || tunes(Knob::Colors)) {
            let private = |step: &PageStep| Placement::Shared {
                private: step.pages,
            };
            placements.extend(self.pages.iter().map(private));
        }
        if (tunes(Knob::Colors) && !shares) || (tunes(Knob::Pages) && shares) {
            placements.insert(Placement::SHARED);
        }
        if let Some(fixed) = self.fixed.placement {
            placements = BTreeSet::from([fixed]);
        }
        let available = problem.shared.unwrap_or_default();
        let available = Colors(problem.colors.0.saturating_sub(available.0));
        placements
            .into_iter()
            .filter_map(|placement| {
                let colors = self.private_colors(placement)?;
                let fits = match placement {
                    Placement::Own { .. } => {
                        colors <= available && problem.holds(colors, self.memory.0)
                    }
                    Placement::Shared { .. } => {
                        let shared = problem
                            .shared
                            .unwrap_or(Colors(problem.colors.0.saturating_sub(colors.0)));
                        colors <= available && shared.0 > 0 && problem.holds(shared, self.memory.0)
                    }
                };
                fits.then_some(Site { placement, colors })
            })
            .collect()
    }

    /// Returns the private colors of a placement; `None` if no step has so many private pages.
    pub fn private_colors(&self, placement: Placement) -> Option<Colors> {
        match placement {
            Placement::Own { colors } => Some(colors),
            Placement::Shared { private: Pages(0) } => Some(Colors(0)),
            Placement::Shared { private } => self
                .pages
                .iter()
                .filter(|step| step.pages >= private)
                .map(|step| step.colors)
                .min(),
        }
    }

    /// Returns the budgets that are allowed, in their order.
    pub(crate) fn allowed_budgets(&self) -> Vec<Budget> {
        let mut budgets = BTreeSet::from([self.written.budget]);
        if self.tune.contains(&Knob::Budgets) {
            budgets.extend(&self.budgets);
            budgets.insert(Budget::Unlimited);
        }
        if let Some(fixed) = self.fixed.budget {
            budgets = BTreeSet::from([fixed]);
        }
        budgets.into_iter().collect()
    }

    /// Returns how many fields of a choice differ from what is written.
    pub(crate) fn changes(&self, choice: Choice) -> u64 {
        u64::from(choice.placement != self.written.placement)
            + u64::from(choice.budget != self.written.budget)
    }
}

impl<'a> Kitchen<'a> {
    pub fn new(query: &'a Query<'a>) -> Self {
        let vms = &query.problem.vms;
        let measured = |vm: &Vm| {
            let points = vm.surface.points().iter();
            let traffic: BTreeSet<_> = points.map(|known| known.point.traffic).collect();
            traffic.into_iter().collect()
        };
        Self {
            query,
            sites: vms.iter().map(|vm| vm.sites(query.problem)).collect(),
            budgets: vms.iter().map(Vm::allowed_budgets).collect(),
            measured: vms.iter().map(measured).collect(),
            menus: vec![],
            known: HashMap::new(),
            dominated: 0,
        }
    }

    pub fn budgets(&self, vm: usize) -> &[Budget] {
        &self.budgets[vm]
    }

    pub fn sites(&self, vm: usize) -> &[Site] {
        &self.sites[vm]
    }

    pub fn menu(&self, index: usize) -> &Menu {
        &self.menus[index]
    }

    /// Returns the index of the menu of a VM with this traffic of its neighbors.
    pub fn find(
        &mut self,
        vm: usize,
        shared: Option<Colors>,
        budget: Option<usize>,
        traffic: Traffic,
    ) -> usize {
        // Even for a measured traffic, odd between two of them.
        let stretch = match self.measured[vm].binary_search(&traffic) {
            Ok(index) => 2 * index + 1,
            Err(index) => 2 * index,
        };
        let conditions = Conditions {
            vm,
            shared,
            budget,
            stretch,
        };
        if let Some(&index) = self.known.get(&conditions) {
            return index;
        }
        let menu = self.cook(conditions, traffic);
        self.menus.push(menu);
        self.known.insert(conditions, self.menus.len() - 1);
        self.menus.len() - 1
    }

    fn cook(&mut self, conditions: Conditions, traffic: Traffic) -> Menu {
        let Conditions { vm, shared, .. } = conditions;
        let budgets = match conditions.budget {
            Some(index) => &self.budgets[vm][index..=index],
            None => &self.budgets[vm][..],
        };
        let mut menu = vec![];
        for &budget in budgets {
            for site in &self.sites[vm] {
                if site.placement.is_shared() != shared.is_some() {
                    continue;
                }
                let point = Point {
                    placement: site.placement,
                    shared: shared.unwrap_or_default(),
                    traffic,
                    budget,
                };
                menu.extend(self.entry(vm, *site, &point));
            }
        }
        let all = menu.len();
        let menu = without_dominated(menu, self.query.objective);
        self.dominated += (all - menu.len()) as u64;
        menu
    }

    /// Returns a choice's part of the objective; `None` if it breaks a limit.
    fn entry(&self, vm: usize, site: Site, point: &Point) -> Option<Entry> {
        let query = self.query;
        let time = self.query.hulls[vm].bounds(point).by(query.view);
        if let Some(limit) = query.limits[vm]
            && time.is_none_or(|time| time > limit)
        {
            return None;
        }
        let program = &query.problem.vms[vm];
        let primary = match query.objective {
            Objective::Throughput if program.limit().is_some() => 0,
            Objective::Throughput => time.map_or(0, |time| {
                let alone = u128::from(program.surface.alone().time.0) * u128::from(MILLION);
                i64::try_from(alone / u128::from(time.0.max(1))).unwrap_or(i64::MAX >> 8)
            }),
            Objective::Colors => -i64::from(site.colors.0),
            Objective::Margin => match query.margins[vm] {
                Some(limit) => margin(limit, time?),
                None => i64::MAX,
            },
        };
        let choice = Choice {
            placement: site.placement,
            budget: point.budget,
        };
        Some(Entry {
            colors: match query.supply {
                Supply::Scarce => site.colors.0 as usize,
                Supply::Plenty => 0,
            },
            primary,
            changes: program.changes(choice),
            choice,
        })
    }
}

/// Returns (limit − time) / limit in millionths, rounded down.
pub(crate) fn margin(limit: Time, time: Time) -> i64 {
    let limit = i128::from(limit.0.max(1));
    let part = (limit - i128::from(time.0)) * i128::from(MILLION);
    i64::try_from(part.div_euclid(limit)).unwrap_or(i64::MIN + 1)
}

/// Removes choices that another one replaces for the same number of colors: it gives as much, is no
/// larger a change, and comes first in the order of choices if it is an equal one. For a margin, a
/// smaller part of the objective with a smaller change can still win, so both stay.
fn without_dominated(mut menu: Menu, objective: Objective) -> Menu {
    menu.sort_by(|a, b| {
        (a.colors, -i128::from(a.primary), a.changes, a.choice).cmp(&(
            b.colors,
            -i128::from(b.primary),
            b.changes,
            b.choice,
        ))
    });
    let mut kept: Menu = vec![];
    for entry in menu {
        let replaced = kept.last().is_some_and(|last| {
            last.colors == entry.colors
                && (objective != Objective::Margin
                    || (last.changes, last.choice) <= (entry.changes, entry.choice))
        });
        if !replaced {
            kept.push(entry);
        }
    }
    kept
}
