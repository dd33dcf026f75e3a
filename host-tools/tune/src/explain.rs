//! Why a VM got its share: what one color more or less, or a smaller budget, would do.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::problem::{Answer, Impossible, Objective, Outcome, Problem, ProblemError, Share, Vm};
use crate::solve::solve;
use crate::surface::{Bounds, View};
use crate::types::{Budget, Choice, Colors, Pages, Placement, Time, Traffic};
use serde::{Deserialize, Serialize};

/// A change of one VM's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// One color more, or the next larger number of private pages.
    More,
    /// One color less, or the next smaller number of private pages.
    Less,
    /// 10 % less budget; without a budget, 10 % less than a flood of refills.
    SmallerBudget,
}

/// What a change would do, with all others decided again for the best.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The change.
    pub change: Change,
    /// The VM's choice with it.
    pub choice: Choice,
    /// What it results in.
    pub effect: Effect,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// All limits hold.
    Holds {
        /// The VM's time.
        bounds: Bounds,
        /// The best partition with the change.
        outcome: Box<Outcome>,
    },
    /// No partition with the change keeps all limits.
    Breaks(Box<Impossible>),
    /// The change does not fit the board, or the VM's memory does not fit it.
    DoesNotFit,
}

/// Why a VM got its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What it got.
    pub share: Share,
    /// The longest time that its demand allows.
    pub limit: Option<Time>,
    /// Its time.
    pub bounds: Bounds,
    /// What changes would do. A change that does not exist, such as less than one color, is left
    /// out.
    pub changes: Vec<WhatIf>,
}

/// Explains one VM's share of the best partition, by its place in the problem; `None` if there is
/// no such VM.
///
/// # Errors
/// Mistakes in the problem.
pub fn explain(
    problem: &Problem,
    objective: Objective,
    view: View,
    outcome: &Outcome,
    vm: usize,
) -> Result<Option<Explanation>, ProblemError> {
    problem.check()?;
    let partition = &outcome.partition;
    let (Some(share), Some(program)) = (partition.shares.get(vm), problem.vms.get(vm)) else {
        return Ok(None);
    };
    let mut changes = vec![];
    for change in [Change::More, Change::Less, Change::SmallerBudget] {
        let Some(choice) = changed(problem, program, share.choice, change) else {
            continue;
        };
        let mut forced = problem.clone();
        forced.vms[vm].fixed.placement = Some(choice.placement);
        forced.vms[vm].fixed.budget = Some(choice.budget);
        let effect = match solve(&forced, objective, view) {
            Ok(Answer::Optimal(outcome)) => Effect::Holds {
                bounds: forced.bounds(vm, &outcome.partition),
                outcome: Box::new(outcome),
            },
            Ok(Answer::Impossible(reason)) => Effect::Breaks(reason),
            Err(ProblemError::NoPlacement { .. }) => Effect::DoesNotFit,
            Err(error) => return Err(error),
        };
        changes.push(WhatIf {
            change,
            choice,
            effect,
        });
    }
    Ok(Some(Explanation {
        share: share.clone(),
        limit: program.limit(),
        bounds: problem.bounds(vm, partition),
        changes,
    }))
}

/// Returns a choice with a change; `None` if there is nothing to change.
fn changed(problem: &Problem, vm: &Vm, choice: Choice, change: Change) -> Option<Choice> {
    let placement = match (choice.placement, change) {
        (Placement::Own { colors }, Change::More) => Placement::Own {
            colors: Colors(colors.0 + 1),
        },
        (Placement::Own { colors }, Change::Less) => Placement::Own {
            colors: Colors(colors.0.checked_sub(1).filter(|left| *left > 0)?),
        },
        (Placement::Shared { private }, Change::More) => {
            let steps = vm.pages.iter().map(|step| step.pages);
            Placement::Shared {
                private: steps.filter(|pages| *pages > private).min()?,
            }
        }
        (Placement::Shared { private }, Change::Less) => {
            let steps = vm.pages.iter().map(|step| step.pages);
            let steps = steps.chain([Pages(0)]);
            Placement::Shared {
                private: steps.filter(|pages| *pages < private).max()?,
            }
        }
        (placement, Change::SmallerBudget) => placement,
    };
    let budget = match change {
        Change::SmallerBudget => {
            let now = match choice.budget {
                Budget::PerPeriod(budget) => budget.0.min(problem.flood.0),
                Budget::Unlimited => problem.flood.0,
            };
            let smaller = now - now.div_ceil(10);
            Budget::PerPeriod(Traffic((smaller > 0).then_some(smaller)?))
        }
        Change::More | Change::Less => choice.budget,
    };
    Some(Choice { placement, budget })
}
