//! Which points to measure next, until the best partition is certain.
//!
//! By the shortest possible times, the solver finds the best partition that might exist. If it
//! certainly keeps all limits, and is certainly worth as much, nothing is better. If not, its
//! points are the ones to measure: each measurement either confirms it or moves the search to
//! another partition. Points that no such partition needs are never measured.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Answer, Objective, Outcome, Partition, Problem, ProblemError};
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
    /// No measurement changes the value of this answer: it is the best, or it is impossible to keep
    /// all limits.
    Certain(Answer),
    /// Measurements contradict each other, so that the best value is not certain though all that
    /// would decide it is measured. The answer holds by the longest times; the best outcome by the
    /// shortest times is the other.
    Contradictory {
        /// What certainly holds.
        holds: Answer,
        /// What the best partition is worth at most.
        at_most: Box<Outcome>,
    },
}

/// Returns what to measure next.
///
/// The number of steps is finite: each one measures at least one point of the partitions that can
/// be chosen.
///
/// # Errors
/// Mistakes in the problem.
pub fn next_measurements(problem: &Problem, objective: Objective) -> Result<Step, ProblemError> {
    let best = match solve(problem, objective, View::Optimistic)? {
        Answer::Optimal(outcome) => outcome,
        Answer::Impossible(reason) => {
            // It is impossible. What would be possible with other limits is measured too.
            let mut requests: Vec<Request> = vec![];
            let witnesses = witnesses(problem, View::Optimistic);
            let proposals = reason.proposals.iter().map(|it| &it.partition);
            for partition in proposals.chain(&witnesses) {
                requests.extend(open(problem, partition, Needs::Times));
            }
            return Ok(if requests.is_empty() {
                Step::Certain(Answer::Impossible(reason))
            } else {
                measure(requests)
            });
        }
    };
    let holds = solve(problem, objective, View::Pessimistic)?;
    if let Answer::Optimal(outcome) = &holds
        && outcome.value == best.value
    {
        return Ok(Step::Certain(holds));
    }
    let needs = match objective {
        Objective::Throughput => Needs::LimitsAndThroughput,
        Objective::Colors => Needs::Limits,
        Objective::Margin => Needs::Times,
    };
    let requests = open(problem, &best.partition, needs);
    if requests.is_empty() {
        let at_most = Box::new(best);
        return Ok(Step::Contradictory { holds, at_most });
    }
    Ok(measure(requests))
}

fn measure(mut requests: Vec<Request>) -> Step {
    requests.sort_unstable();
    requests.dedup();
    Step::Measure(requests)
}

/// What must be known of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Whether VMs keep their limits.
    Limits,
    /// That, and the times of best-effort VMs.
    LimitsAndThroughput,
    /// The times of VMs with limits.
    Times,
}

/// Returns the points of a partition that are not known well enough and were not measured.
fn open(problem: &Problem, partition: &Partition, needs: Needs) -> Vec<Request> {
    let vms = problem.vms.iter().enumerate();
    vms.filter_map(|(index, vm)| {
        let point = problem.point(index, partition);
        let bounds = vm.surface.bounds(&point);
        let known = match vm.limit() {
            Some(_) if needs == Needs::Times => bounds.is_exact(),
            Some(limit) => bounds.upper.is_some_and(|upper| upper <= limit),
            None => needs != Needs::LimitsAndThroughput || bounds.is_exact(),
        };
        let request = Request { vm: index, point };
        (!known && !vm.surface.is_measured(&point)).then_some(request)
    })
    .collect()
}
