//! Which points to measure next, until the best partition is certain.
//!
//! By the shortest possible times, the solver finds the best partition that might exist. If all its
//! points are measured, nothing is better. If not, they are the ones to measure: each measurement
//! either confirms it or moves the search to another partition. Points that no such partition needs
//! are never measured.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Answer, Objective, Partition, Problem, ProblemError};
use crate::solve::{solve, witnesses};
use crate::surface::{Point, View};
use serde::{Deserialize, Serialize};

/// A point to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    /// Place of the VM in the problem.
    pub vm: usize,
    /// The conditions.
    pub point: Point,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Measure these points, which are in order and not yet measured, and ask again.
    Measure(Vec<Request>),
    /// All that the answer relies on is measured: it is the best, or it is impossible to keep all
    /// limits.
    Certain(Answer),
}

/// Returns what to measure next; `is_measured` says of a point whether it is measured, or counts as
/// if it were.
///
/// The number of steps is finite: each one measures at least one point of the partitions that can
/// be chosen.
///
/// # Errors
/// Mistakes in the problem.
pub fn next_measurements(
    problem: &Problem,
    objective: Objective,
    is_measured: impl Fn(&Request) -> bool,
) -> Result<Step, ProblemError> {
    let answer = solve(problem, objective, View::Optimistic)?;
    let mut requests = match &answer {
        Answer::Optimal(outcome) => points(problem, &outcome.partition),
        Answer::Impossible(reason) => {
            // It is impossible. What would be possible with other limits is measured too.
            let witnesses = witnesses(problem, View::Optimistic);
            let proposals = reason.proposals.iter().map(|it| &it.partition);
            let partitions = proposals.chain(&witnesses);
            let times = partitions.flat_map(|partition| points(problem, partition));
            times
                .filter(|request| {
                    let vm = &problem.vms[request.vm];
                    vm.limit().is_some() && !vm.surface.bounds(&request.point).is_exact()
                })
                .collect()
        }
    };
    requests.retain(|request| !is_measured(request));
    if requests.is_empty() {
        return Ok(Step::Certain(answer));
    }
    requests.sort_unstable();
    requests.dedup();
    Ok(Step::Measure(requests))
}

/// Returns the points of a partition.
fn points(problem: &Problem, partition: &Partition) -> Vec<Request> {
    let vms = 0..problem.vms.len();
    vms.map(|vm| Request {
        vm,
        point: problem.point(vm, partition),
    })
    .collect()
}
