//! `cloison much`: plans which events to count together, and merges their counts into vectors
//! (MUCH, HRM).
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod charts;
mod compare;
mod evaluate;
pub mod input;
mod merge;
pub mod page;
mod plan;

use cloison_engine::installation;
use miette::Result;

fn examples() -> String {
    let program = installation::program();
    format!(
        "Examples:
  {program} much plan --count 16 --pmcs 6        which events to count in which sub-experiment
  {program} much merge runs.csv -o vectors.csv   counts of all sub-experiments as complete vectors
  {program} much evaluate vectors.csv --reference runs.csv
  {program} much compare runs.csv --hrm anchored.csv --report comparison.html"
    )
}

/// Event counts of many runs, merged.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples())]
pub struct MuchArgs {
    #[command(subcommand)]
    command: MuchCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum MuchCommand {
    /// Plan sub-experiments in which every pair of events is counted together
    Plan(plan::PlanArgs),
    /// Merge the counts of all sub-experiments into vectors that keep every correlation
    Merge(merge::MergeArgs),
    /// Compare the correlations of merged vectors with the measured ones
    Evaluate(evaluate::EvaluateArgs),
    /// Compare MUCH, HRM and a blind merge on samples of the runs
    Compare(compare::CompareArgs),
}

/// Runs `cloison much`.
pub fn much(args: &MuchArgs) -> Result<()> {
    match &args.command {
        MuchCommand::Plan(args) => plan::plan(args),
        MuchCommand::Merge(args) => merge::merge(args),
        MuchCommand::Evaluate(args) => evaluate::evaluate(args),
        MuchCommand::Compare(args) => compare::compare(args),
    }
}
