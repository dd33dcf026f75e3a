//! Answers a problem: the best partition, or which demand is impossible and what would be possible.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::menu::{Neighbors, Query, Supply};
use crate::problem::{
    Answer, Demand, Impossible, Objective, Outcome, Partition, Problem, ProblemError, Proposal,
    Resource, Value, Vm,
};
use crate::search::search;
use crate::surface::{Bounds, Point, View};
use crate::types::{Permille, Time, VmName};

/// Finds the best partition of those that keep all limits, by the longest or the shortest possible
/// times.
///
/// # Errors
/// Mistakes in the problem.
pub fn solve(problem: &Problem, objective: Objective, view: View) -> Result<Answer, ProblemError> {
    problem.check()?;
    Ok(match search(&Query::new(problem, objective, view)) {
        Some(outcome) => Answer::Optimal(outcome),
        None => Answer::Impossible(Box::new(diagnose(problem, view))),
    })
}

impl Problem {
    /// Returns the conditions under which a VM of a partition runs, by its place in the problem.
    pub fn point(&self, vm: usize, partition: &Partition) -> Point {
        let share = &partition.shares[vm];
        let shares = share.choice.placement.is_shared();
        Point {
            placement: share.choice.placement,
            shared: if shares {
                partition.shared
            } else {
                crate::types::Colors(0)
            },
            traffic: share.traffic,
            budget: share.choice.budget,
        }
    }

    /// Returns between which times a VM's segment is in a partition.
    pub fn bounds(&self, vm: usize, partition: &Partition) -> Bounds {
        self.vms[vm].surface.bounds(&self.point(vm, partition))
    }
}

/// Explains why no partition keeps all limits, and searches the nearest limits that can be kept.
fn diagnose(problem: &Problem, view: View) -> Impossible {
    let query = Query::new(problem, Objective::Margin, view);
    let conflict = conflict(&query).names;
    let mut singles: Vec<(i64, Proposal)> = (0..problem.vms.len())
        .filter_map(|vm| relax_one(&query, vm))
        .collect();
    singles.sort_by_key(|(margin, _)| -margin);
    let all = relax_all(&query);
    let binding = singles
        .first()
        .and_then(|(_, proposal)| proposal.demands.first())
        .or_else(|| {
            let tightest = |proposal: &Proposal| -> Option<usize> {
                let ratio = |&index: &usize| relaxation(problem, &proposal.demands[index]);
                (0..proposal.demands.len()).rev().max_by_key(ratio)
            };
            let proposal = all.as_ref()?;
            proposal.demands.get(tightest(proposal)?)
        })
        .map(|(vm, _)| vm.clone())
        .or_else(|| conflict.first().cloned())
        .unwrap_or_else(|| problem.vms[0].name.clone());
    let mut proposals: Vec<_> = singles.into_iter().map(|(_, proposal)| proposal).collect();
    // With one changed limit, it is among the others.
    proposals.extend(all.filter(|proposal| proposal.demands.len() > 1));
    Impossible {
        binding,
        resource: resource(&query),
        conflict,
        proposals,
    }
}

/// VMs whose limits cannot be kept together.
struct Conflict {
    names: Vec<VmName>,
    /// For each of them, a partition that keeps the limits of the others.
    witnesses: Vec<Partition>,
}

/// Drops one limit after the other that is not needed for the contradiction.
fn conflict(query: &Query<'_>) -> Conflict {
    let mut query = query.clone();
    let mut conflict = Conflict {
        names: vec![],
        witnesses: vec![],
    };
    for vm in 0..query.limits.len() {
        let Some(limit) = query.limits[vm].take() else {
            continue;
        };
        if let Some(outcome) = search(&query) {
            query.limits[vm] = Some(limit);
            conflict.names.push(query.problem.vms[vm].name.clone());
            conflict.witnesses.push(outcome.partition);
        }
    }
    conflict
}

/// Returns the partitions that show of an impossible problem which limits exclude each other. The
/// problem must be checked.
pub(crate) fn witnesses(problem: &Problem, view: View) -> Vec<Partition> {
    conflict(&Query::new(problem, Objective::Margin, view)).witnesses
}

/// Returns what is short. No partition has the conditions that this asks about, so they are often
/// not measured: the shortest possible times decide. What is excluded is so for certain.
fn resource(query: &Query<'_>) -> Resource {
    let ask = |supply, neighbors| {
        let query = Query {
            view: View::Optimistic,
            supply,
            neighbors,
            ..query.clone()
        };
        search(&query).is_some()
    };
    let colors = ask(Supply::Plenty, Neighbors::Busy);
    let traffic = ask(Supply::Scarce, Neighbors::Silent);
    match (colors, traffic) {
        (true, true) => Resource::ColorsOrTraffic,
        (true, false) => Resource::Colors,
        (false, true) => Resource::Traffic,
        (false, false) if ask(Supply::Plenty, Neighbors::Silent) => Resource::ColorsAndTraffic,
        (false, false) => Resource::Vm,
    }
}

/// Relaxes the limit of one VM as little as possible; returns its margin against the old limit.
fn relax_one(query: &Query<'_>, vm: usize) -> Option<(i64, Proposal)> {
    let mut query = query.clone();
    let limit = query.limits[vm].take()?;
    query.margins = vec![None; query.margins.len()];
    query.margins[vm] = Some(limit);
    let outcome = search(&query)?;
    let Value::Margin(Some(margin)) = outcome.value else {
        return None;
    };
    let proposal = proposal(&query, outcome)?;
    Some((margin, proposal))
}

/// Relaxes all limits, such that the largest ratio of a new to an old one is as small as possible.
fn relax_all(query: &Query<'_>) -> Option<Proposal> {
    let query = Query {
        limits: vec![None; query.limits.len()],
        ..query.clone()
    };
    proposal(&query, search(&query)?)
}

/// Makes the demands that a partition keeps of those that it breaks.
fn proposal(query: &Query<'_>, outcome: Outcome) -> Option<Proposal> {
    let problem = query.problem;
    let mut demands = vec![];
    for (index, vm) in problem.vms.iter().enumerate() {
        let Some(limit) = vm.limit() else { continue };
        let time = problem.bounds(index, &outcome.partition).by(query.view)?;
        if time > limit {
            demands.push((vm.name.clone(), new_demand(vm, time)));
        }
    }
    let ratios = demands.iter().map(|changed| relaxation(problem, changed));
    Some(Proposal {
        relaxation: ratios.max()?,
        demands,
        partition: outcome.partition,
    })
}

fn new_demand(vm: &Vm, time: Time) -> Demand {
    match vm.demand {
        Demand::Tolerance(_) => Demand::Tolerance(time.tolerance_over(vm.surface.alone().time)),
        Demand::Deadline(_) | Demand::BestEffort => Demand::Deadline(time),
    }
}

/// Returns the ratio of a changed limit to the old one, rounded up.
fn relaxation(problem: &Problem, (name, demand): &(VmName, Demand)) -> Permille {
    let Some(vm) = problem.vms.iter().find(|vm| vm.name == *name) else {
        return Permille(1000);
    };
    let ratio = |new: u64, old: u64| Time(new).tolerance_over(Time(old));
    match (vm.demand, *demand) {
        (Demand::Tolerance(old), Demand::Tolerance(new)) => ratio(new.0.into(), old.0.into()),
        (Demand::Deadline(old), Demand::Deadline(new)) => ratio(new.0, old.0),
        _ => Permille(1000),
    }
}
