//! `cloison much`: plans which events to count together, and merges their counts into vectors
//! (MUCH, HRM).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod charts;
mod compare;
mod evaluate;
mod implausible;
mod import;
pub mod input;
pub mod merge;
pub mod page;
mod plan;
mod runner;
mod sidecar;

use cloison_engine::installation;
use miette::Result;

fn examples() -> String {
    let program = installation::program();
    format!(
        "Examples:
  {program} much plan --count 16 --pmcs 6        which events to count in which sub-experiment
  {program} much plan --events page-faults,context-switches,task-clock --pmcs 2 --for perf -o count.sh
  {program} much import counts.csv -o runs.csv   what perf stat or PAPI wrote, as long CSV
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
    /// Write what perf, PAPI or others counted as long CSV, without implausible runs
    Import(import::ImportArgs),
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
        MuchCommand::Import(args) => import::import(args),
        MuchCommand::Merge(args) => merge::merge(args).map(drop),
        MuchCommand::Evaluate(args) => evaluate::evaluate(args),
        MuchCommand::Compare(args) => compare::compare(args),
    }
}
