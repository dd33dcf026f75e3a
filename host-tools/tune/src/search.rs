//! The exact search: branches over budgets, bounded by the best distribution of the colors.
//!
//! The search enumerates which VMs share a pool, and how large it is. Then it decides one VM's
//! budget after the other. A node of this tree is bounded by a relaxed problem: each undecided VM
//! may have any budget while its neighbors see the smallest. With the traffic known, a table over
//! VMs and colors finds the best placements, so the relaxed problem is solved exactly. If its answer
//! is worth the same with the traffic of the budgets that it chose, the node is solved.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::menu::{Kitchen, Menu, Neighbors, Query, Supply};
use crate::problem::{Objective, Outcome, Partition, Problem, Proof, Share, Value};
use crate::types::{Choice, Colors, Traffic};
use std::cmp::Reverse;

/// How good a partition is: more comes later in the order.
type Key = (i64, Reverse<u64>, Reverse<Vec<Choice>>);

/// Whether the colors must be used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// All: what no VM has for itself is the shared pool, whose size is given.
    All,
    /// Any number.
    AtMost,
}

/// The partitions in which the same VMs share a pool of the same size.
#[derive(Clone, Copy, Debug)]
struct Family {
    /// A bit per VM.
    sharing: u32,
    shared: Colors,
    private: usize,
    usage: Use,
}

/// A search with the best partition so far.
struct Search<'a> {
    query: &'a Query<'a>,
    kitchen: Kitchen<'a>,
    best: Option<(Key, Colors)>,
    proof: Proof,
}

/// Answers a query; `None` if no partition keeps the limits. The problem must be checked.
pub(crate) fn search(query: &Query<'_>) -> Option<Outcome> {
    let mut search = Search {
        query,
        kitchen: Kitchen::new(query),
        best: None,
        proof: Proof {
            partitions: query.problem.partitions(),
            ..Proof::default()
        },
    };
    search.run();
    let (key, shared) = search.best?;
    let proof = Proof {
        dominated: search.kitchen.dominated,
        ..search.proof
    };
    let (primary, Reverse(changes), Reverse(choices)) = key;
    Some(Outcome {
        partition: query.problem.partition(&choices, shared),
        value: match query.objective {
            Objective::Throughput => Value::Throughput(primary.unsigned_abs()),
            Objective::Colors => Value::Colors(Colors(u32::try_from(-primary).unwrap_or(u32::MAX))),
            Objective::Margin => Value::Margin((primary != i64::MAX).then_some(primary)),
        },
        changes,
        proof,
    })
}

impl Problem {
    /// Returns the number of partitions: the product of all VMs' choices, saturating.
    pub fn partitions(&self) -> u64 {
        self.vms.iter().fold(1, |product: u64, vm| {
            let choices = vm.sites(self).len() * vm.allowed_budgets().len();
            product.saturating_mul(choices as u64)
        })
    }

    /// Returns the partition with these choices, in the order of the VMs.
    pub(crate) fn partition(&self, choices: &[Choice], shared: Colors) -> Partition {
        let allowances: Vec<_> = self
            .vms
            .iter()
            .zip(choices)
            .map(|(vm, choice)| self.allowance(vm, choice.budget).0)
            .collect();
        let all = allowances
            .iter()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let share = |((vm, choice), allowance): ((&crate::problem::Vm, &Choice), &u64)| Share {
            vm: vm.name.clone(),
            choice: *choice,
            colors: vm.private_colors(choice.placement).unwrap_or_default(),
            traffic: Traffic(all - allowance),
        };
        Partition {
            shares: self
                .vms
                .iter()
                .zip(choices)
                .zip(&allowances)
                .map(share)
                .collect(),
            shared,
        }
    }
}

impl Search<'_> {
    fn run(&mut self) {
        let mut families: Vec<(Key, Family)> = vec![];
        for family in self.families() {
            match self.bound(family, &[]) {
                Some(key) => families.push((key, family)),
                None => self.proof.infeasible += 1,
            }
        }
        // The most promising first, so that the others are pruned.
        families.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (_, family) in families {
            self.visit(family, &mut vec![]);
        }
    }

    /// Returns all sets of VMs that can share a pool, with all sizes of the pool that hold them.
    fn families(&self) -> Vec<Family> {
        let problem = self.query.problem;
        let vms = &problem.vms;
        let mut families = vec![];
        for sharing in 0..1_u32 << vms.len() {
            let shares = |vm: usize| sharing >> vm & 1 == 1;
            let possible = (0..vms.len()).all(|vm| {
                let mut sites = self.kitchen.sites(vm).iter();
                sites.any(|site| site.placement.is_shared() == shares(vm))
            });
            if !possible {
                continue;
            }
            let memory = (0..vms.len())
                .filter(|&vm| shares(vm))
                .fold(0, |sum: u64, vm| sum.saturating_add(vms[vm].memory.0));
            let family = |shared: u32, usage| Family {
                sharing,
                shared: Colors(shared),
                private: (problem.colors.0.saturating_sub(shared)) as usize,
                usage,
            };
            let sizes = match (problem.shared, self.query.supply) {
                (Some(shared), _) => vec![family(shared.0, Use::AtMost)],
                (None, _) if sharing == 0 => vec![family(0, Use::AtMost)],
                (None, Supply::Plenty) => vec![family(problem.colors.0, Use::All)],
                (None, Supply::Scarce) => (1..=problem.colors.0)
                    .map(|shared| family(shared, Use::All))
                    .collect(),
            };
            let holds = |family: &Family| problem.holds(family.shared, memory);
            families.extend(sizes.into_iter().filter(holds));
        }
        families
    }

    fn visit(&mut self, family: Family, decided: &mut Vec<usize>) {
        self.proof.nodes += 1;
        let Some(bound) = self.bound(family, decided) else {
            self.proof.infeasible += 1;
            return;
        };
        if self.best.as_ref().is_some_and(|(best, _)| *best >= bound) {
            self.proof.pruned += 1;
            return;
        }
        let vms = self.query.problem.vms.len();
        let choices = &bound.2.0;
        let budgets: Vec<usize> = (0..vms)
            .map(|vm| {
                let budgets = self.kitchen.budgets(vm);
                budgets
                    .binary_search(&choices[vm].budget)
                    .unwrap_or_default()
            })
            .collect();
        let real = if decided.len() == vms {
            Some(bound.clone())
        } else {
            self.bound(family, &budgets)
        };
        let solved = real.as_ref() == Some(&bound);
        if let Some(real) = real
            && self.best.as_ref().is_none_or(|(best, _)| *best < real)
        {
            self.best = Some((real, family.shared));
        }
        if solved {
            return;
        }
        let vm = decided.len();
        let first = budgets[vm];
        let others = (0..self.kitchen.budgets(vm).len()).filter(|&it| it != first);
        for budget in [first].into_iter().chain(others) {
            decided.push(budget);
            self.visit(family, decided);
            decided.pop();
        }
    }

    /// Returns a key that no partition below the node exceeds; the best key if all is decided.
    fn bound(&mut self, family: Family, decided: &[usize]) -> Option<Key> {
        let problem = self.query.problem;
        let allowances: Vec<u64> = problem
            .vms
            .iter()
            .enumerate()
            .map(|(vm, program)| {
                let budgets = self.kitchen.budgets(vm);
                let least = decided.get(vm).map_or(budgets[0], |&index| budgets[index]);
                problem.allowance(program, least).0
            })
            .collect();
        let all = allowances
            .iter()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let mut menus = vec![];
        for (vm, allowance) in allowances.iter().enumerate() {
            let traffic = match self.query.neighbors {
                Neighbors::Busy => Traffic(all - allowance),
                Neighbors::Silent => Traffic(0),
            };
            let shares = family.sharing >> vm & 1 == 1;
            let menu = self.kitchen.find(
                vm,
                shares.then_some(family.shared),
                decided.get(vm).copied(),
                traffic,
            );
            if self.kitchen.menu(menu).is_empty() {
                return None;
            }
            menus.push(menu);
        }
        let menus: Vec<&Menu> = menus.iter().map(|&menu| self.kitchen.menu(menu)).collect();
        distribute(&menus, family, self.query.objective)
    }
}

/// Distributes the colors: returns the best key of one entry of each menu.
fn distribute(menus: &[&Menu], family: Family, objective: Objective) -> Option<Key> {
    if objective != Objective::Margin {
        return distribute_sum(menus, family, i64::MIN);
    }
    let smallest = largest_minimum(menus, family)?;
    let (_, changes, choices) = distribute_sum(menus, family, smallest)?;
    Some((smallest, changes, choices))
}

/// Returns the best sum of the menus' entries that give at least `threshold`; if there is one, only
/// the changes count.
fn distribute_sum(menus: &[&Menu], family: Family, threshold: i64) -> Option<Key> {
    let width = family.private + 1;
    let value = |entry: &crate::menu::Entry| {
        let primary = if threshold == i64::MIN {
            entry.primary
        } else {
            0
        };
        (primary, -i64::try_from(entry.changes).unwrap_or(i64::MAX))
    };
    let end = |left: usize| (left == 0 || family.usage == Use::AtMost).then_some((0, 0));
    // Per VM and colors that are left for it and the later ones.
    let mut best: Vec<Vec<Option<(i64, i64)>>> = vec![vec![None; width]; menus.len() + 1];
    best[menus.len()] = (0..width).map(end).collect();
    for vm in (0..menus.len()).rev() {
        for entry in menus[vm].iter().filter(|it| it.primary >= threshold) {
            let (primary, changes) = value(entry);
            for left in entry.colors..width {
                if let Some((later, more)) = best[vm + 1][left - entry.colors] {
                    let sum = Some((primary.saturating_add(later), changes + more));
                    if best[vm][left] < sum {
                        best[vm][left] = sum;
                    }
                }
            }
        }
    }
    let (primary, changes) = best[0][family.private]?;
    let mut left = family.private;
    let mut choices = vec![];
    for vm in 0..menus.len() {
        let reached = best[vm][left];
        // Of the equal ones, the first in the order of choices.
        let entry = menus[vm]
            .iter()
            .filter(|entry| entry.primary >= threshold && entry.colors <= left)
            .filter(|entry| {
                let (primary, changes) = value(entry);
                best[vm + 1][left - entry.colors]
                    .map(|(later, more)| (primary.saturating_add(later), changes + more))
                    == reached
            })
            .min_by_key(|entry| entry.choice)?;
        left -= entry.colors;
        choices.push(entry.choice);
    }
    Some((primary, Reverse(changes.unsigned_abs()), Reverse(choices)))
}

/// Returns the largest value that all VMs can reach at once.
fn largest_minimum(menus: &[&Menu], family: Family) -> Option<i64> {
    let width = family.private + 1;
    let end = |left: usize| (left == 0 || family.usage == Use::AtMost).then_some(i64::MAX);
    let mut best: Vec<Option<i64>> = (0..width).map(end).collect();
    for menu in menus.iter().rev() {
        let mut next = vec![None; width];
        for entry in *menu {
            for left in entry.colors..width {
                let reached = best[left - entry.colors].map(|later| later.min(entry.primary));
                if next[left] < reached {
                    next[left] = reached;
                }
            }
        }
        best = next;
    }
    best[family.private]
}
