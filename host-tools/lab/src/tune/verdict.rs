//! The decision that held when it was run, with the best of several periods of budgets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::refusal::Refusal;
use super::report::{self, Findings};
use super::search::{Decision, Search, Task};
use crate::boards::Absent;
use crate::captured::NotCaptured;
use cloison_config::quantity::show_duration;
use cloison_engine::report::Section;
use cloison_tune::{Budget, Demand, Objective, Resource, Value};
use miette::{Result, miette};

/// Times that a partition is run and decided for again.
const ROUNDS: usize = 24;

/// The answer.
#[derive(Debug)]
pub enum Verdict {
    /// This partition keeps all goals.
    Kept(Findings),
    /// No partition does.
    Refused(Refusal),
}

/// Decides, runs the decision, and decides again, until all goals hold. Where they cannot, does the
/// same for the nearest goals that can.
fn decide(search: &mut Search<'_>) -> Result<Verdict> {
    let mut impossible = None;
    for round in 1..=ROUNDS {
        let outcome = match search.decide()? {
            Decision::Best(outcome) => outcome,
            Decision::Impossible(found) => {
                let proposal = found.proposals.first().cloned();
                let reason = impossible.take().unwrap_or(found);
                let Some(proposal) = proposal else {
                    return Ok(Verdict::Refused(Refusal {
                        reason,
                        relaxed: None,
                    }));
                };
                search.relax(&proposal);
                impossible = Some(reason);
                continue;
            }
        };
        let text = search.text_of(&outcome.partition)?;
        let verified = search.verify(&text, &outcome.partition)?;
        if verified.iter().all(|vm| vm.holds()) {
            let findings = Findings {
                outcome,
                text,
                verified,
                rounds: round,
            };
            return Ok(match impossible {
                Some(reason) => Verdict::Refused(Refusal {
                    reason,
                    relaxed: Some(findings),
                }),
                None => Verdict::Kept(findings),
            });
        }
    }
    if let Some(reason) = impossible {
        return Ok(Verdict::Refused(Refusal {
            reason,
            relaxed: None,
        }));
    }
    let help = "raise the tolerance of the VM that was broken last, or let more change (`tune`)";
    Err(miette!(
        help = help,
        "no partition kept all goals when it was run, in {ROUNDS} rounds; they were broken by: {}",
        search.broken().join("; ")
    ))
}

/// What was reached with the best period.
pub struct Reached<'a> {
    /// All that was measured with it.
    pub search: Search<'a>,
    /// The answer, or why there is none.
    pub verdict: Result<Verdict>,
    /// What each period reached, if there were several.
    pub periods: Option<Section>,
}

/// Decides with one period of budgets after the other, and returns the best answer; of equally good
/// ones, the first. Ends early where no other period can be better.
///
/// # Errors
///
/// If a run fails, or there is no period.
pub fn best<'a>(tasks: impl Iterator<Item = Task<'a>>) -> Result<Reached<'a>> {
    let mut table = Section::new("Periods of budgets", &["period", "reached"]);
    let mut best: Option<(Search<'a>, Result<Verdict>)> = None;
    let mut tried = 0;
    let mut tasks = tasks.peekable();
    while let Some(task) = tasks.next() {
        let period = task.subjects.period;
        let mut search = Search::new(task)?;
        if let Some(vm) = search.shorter_than(period)
            && tasks.peek().is_some()
        {
            let says = format!("not tried: a whole budget can fall into a segment of `{vm}`");
            table.row([show_duration(period), says]);
            tried += 1;
            continue;
        }
        search.seed()?;
        let verdict = match decide(&mut search) {
            // Whether another period is tried depends on this one.
            Err(error) if error.is::<Absent>() || error.is::<NotCaptured>() => return Err(error),
            verdict => verdict,
        };
        tried += 1;
        table.row([show_duration(period), reached(&verdict)]);
        let is_last = is_unsurpassed(&search, &verdict);
        let is_better = best
            .as_ref()
            .is_none_or(|(other, before)| worth(&search, &verdict) > worth(other, before));
        if is_better {
            best = Some((search, verdict));
        }
        if is_last {
            break;
        }
    }
    let (search, verdict) = best.ok_or_else(|| miette!("there is no period of budgets"))?;
    let note = "The best one is used; of equally good ones, the first. A period that is written \
                for a budget stays.";
    Ok(Reached {
        search,
        verdict,
        periods: (tried > 1).then(|| table.note(note)),
    })
}

fn reached(verdict: &Result<Verdict>) -> String {
    match verdict {
        Ok(Verdict::Kept(findings)) => report::worth(findings.outcome.value),
        Ok(Verdict::Refused(refusal)) => refusal.sentence(),
        Err(error) => error.to_string(),
    }
}

/// Returns whether no other period can reach more: no VM is limited, or one is too slow alone.
fn is_unsurpassed(search: &Search<'_>, verdict: &Result<Verdict>) -> bool {
    match verdict {
        Ok(Verdict::Kept(findings)) => {
            let mut shares = findings.outcome.partition.shares.iter();
            search.objective() == Objective::Throughput
                && shares.all(|share| share.choice.budget == Budget::Unlimited)
        }
        Ok(Verdict::Refused(refusal)) => refusal.reason.resource == Resource::Vm,
        Err(_) => false,
    }
}

/// What an answer is worth: the larger, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Nothing,
    /// Goals exclude each other, and no nearer ones held.
    Refused,
    /// The largest relaxation of a goal that held, negative.
    Relaxed(i128),
    /// The value of the objective, negative where less is better.
    Kept(i128),
}

fn worth(search: &Search<'_>, verdict: &Result<Verdict>) -> Rank {
    match verdict {
        Ok(Verdict::Kept(findings)) => Rank::Kept(match findings.outcome.value {
            Value::Throughput(parts) => i128::from(parts),
            Value::Colors(colors) => -i128::from(colors.0),
            Value::Margin(margin) => i128::from(margin.unwrap_or_default()),
        }),
        Ok(Verdict::Refused(Refusal {
            relaxed: Some(_), ..
        })) => Rank::Relaxed(-relaxation(search)),
        Ok(Verdict::Refused(_)) => Rank::Refused,
        Err(_) => Rank::Nothing,
    }
}

/// Returns by how much the goal was relaxed that was relaxed most, in millionths.
fn relaxation(search: &Search<'_>) -> i128 {
    let limit = |demand: Demand| match demand {
        Demand::Tolerance(tolerance) => i128::from(tolerance.0),
        Demand::Deadline(deadline) => i128::from(deadline.0),
        Demand::BestEffort => 1,
    };
    let relaxed = search.relaxed().into_iter();
    let factors = relaxed.filter_map(|(name, new)| {
        let vm = search.subjects().vms.iter().find(|vm| vm.name.0 == name)?;
        Some(limit(new) * 1_000_000 / limit(vm.demand).max(1))
    });
    factors.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_goal_is_worth_more_than_a_relaxed_one() {
        let order = [
            Rank::Nothing,
            Rank::Refused,
            Rank::Relaxed(-1_500_000),
            Rank::Relaxed(-1_100_000),
            Rank::Kept(-12),
            Rank::Kept(3),
        ];
        assert!(order.is_sorted());
    }
}
