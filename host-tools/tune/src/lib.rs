//! Decides colors, private pages and budgets together, so that the tolerances of all VMs hold.
//!
//! The crate computes; it boots nothing. Its input is a [`Problem`]: the colors of a board, and for
//! each VM a demand and a [`Surface`] with the run times that were measured. Points that were not
//! measured have bounded run times, because a run time is monotone: more colors or pages never make
//! a program slower, more traffic of neighbors never makes it faster.
//!
//! # Model
//!
//! - A VM is on its own cores. Its memory is in its own colors or in the pool that is shared; in the
//!   second case its most important pages may be in a private pool ([`Placement`]).
//! - The shared pool has all colors that no VM has for itself, unless the user wrote down its size.
//! - A VM that makes refills without a budget is assumed to make as many as the worst neighbor can
//!   ([`Problem::flood`]).
//!   What a VM's neighbors may make together is its only coupling with them, besides the colors.
//! - Times are whole nanoseconds, and all arithmetic is in integers. Equal input has equal output.
//!
//! | module | contents |
//! | --- | --- |
//! | [`types`] | colors, pages, budgets, traffic, time |
//! | [`surface`] | measured points, and bounds for all others |
//! | [`problem`] | VMs, demands, what may be changed; answers |
//! | `menu` | what each VM can choose, without dominated choices |
//! | `search` | branch and bound over all choices |
//! | [`mod@solve`] | the best partition, or why there is none and what is nearest |
//! | [`sequence`] | which points to measure next, until the best is certain |
//! | [`baseline`] | the same problem with fewer knobs |
//! | [`mod@pareto`] | throughput against the tightest tolerance |
//! | [`mod@explain`] | what other shares of a VM would do |
//! | [`export`] | surfaces as tables, CSV and Parquet |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod baseline;
pub mod explain;
pub mod export;
mod menu;
pub mod pareto;
pub mod problem;
mod search;
pub mod sequence;
pub mod solve;
pub mod surface;
pub mod types;

pub use baseline::Baseline;
pub use explain::{Change, Effect, Explanation, WhatIf, explain};
pub use pareto::{FrontPoint, pareto};
pub use problem::{
    Answer, Demand, Fixed, Impossible, Knob, Objective, Outcome, PageStep, Partition, Problem,
    ProblemError, Proof, Proposal, Resource, Share, Value, Vm,
};
pub use sequence::{Request, Step, next_measurements};
pub use solve::solve;
pub use surface::{Bounds, Hull, Measurement, Point, Sample, Surface, View};
pub use types::{
    Budget, Choice, Colors, Pages, Permille, Placement, Refills, Time, Traffic, VmName,
};
