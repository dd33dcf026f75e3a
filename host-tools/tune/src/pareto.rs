//! The Pareto front: how much best-effort throughput each tightest tolerance leaves.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Answer, Demand, Objective, Partition, Problem, ProblemError, Value};
use crate::solve::solve;
use crate::surface::View;
use crate::types::Permille;
use serde::{Deserialize, Serialize};

/// A partition that no other one exceeds in both: a tighter tolerance, more throughput.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontPoint {
    /// Tolerance that all VMs with a tolerance keep, by the times of the view.
    pub tolerance: Permille,
    /// Sum of best-effort throughputs, in millionths of that alone.
    pub throughput: u64,
    /// Who gets what.
    pub partition: Partition,
}

/// Returns the front from the loosest to the tightest tolerance. All VMs with a tolerance have the
/// same one; deadlines stay. Two points differ by at least `step` in tolerance, so the smallest
/// `step`, 1, gives the whole front. It is empty if the deadlines cannot be kept or no time of a VM
/// with a tolerance is known.
///
/// # Errors
/// Mistakes in the problem.
pub fn pareto(
    problem: &Problem,
    view: View,
    step: Permille,
) -> Result<Vec<FrontPoint>, ProblemError> {
    let mut problem = problem.clone();
    let mut tolerance = Permille(u32::MAX);
    let mut front: Vec<FrontPoint> = vec![];
    loop {
        for vm in &mut problem.vms {
            if matches!(vm.demand, Demand::Tolerance(_)) {
                vm.demand = Demand::Tolerance(tolerance);
            }
        }
        let Some(point) = loosest(&problem, view)? else {
            return Ok(front);
        };
        // As much throughput at a tighter tolerance.
        if front
            .last()
            .is_some_and(|last| last.throughput <= point.throughput)
        {
            front.pop();
        }
        tolerance = Permille(point.tolerance.0.saturating_sub(step.0.max(1)));
        front.push(point);
        if tolerance.0 < 1000 {
            return Ok(front);
        }
    }
}

/// Returns the partition with the largest throughput, with the tolerance that it keeps.
fn loosest(problem: &Problem, view: View) -> Result<Option<FrontPoint>, ProblemError> {
    let Answer::Optimal(outcome) = solve(problem, Objective::Throughput, view)? else {
        return Ok(None);
    };
    let mut kept = None;
    for (index, vm) in problem.vms.iter().enumerate() {
        if matches!(vm.demand, Demand::Tolerance(_))
            && let Some(time) = problem.bounds(index, &outcome.partition).by(view)
        {
            kept = kept.max(Some(time.tolerance_over(vm.surface.alone().time)));
        }
    }
    let Value::Throughput(throughput) = outcome.value else {
        return Ok(None);
    };
    Ok(kept.map(|tolerance| FrontPoint {
        tolerance: tolerance.max(Permille(1000)),
        throughput,
        partition: outcome.partition,
    }))
}
