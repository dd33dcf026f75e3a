//! Cloison's laboratory: experiments and campaigns on the board model, its validation, and decisions
//! from its measurements, with their reports.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`experiment`] | interference experiments: declared in TOML, run, reported |
//! | [`campaign`] | runs for each of several sets of events, merged and compared with the truth |
//! | [`events`] | finds the events of a machine that can be trusted |
//! | [`bbprof`] | finds the pages of a bare-metal guest that matter to the time of its segments |
//! | [`tune`] | decides colors, pages and budgets together, and runs the decision |
//! | [`boards`] | boards that are started many times: here, or elsewhere as jobs |
//! | [`captured`] | runs on a board, as `cloison capture` left them |
//! | [`jobs`] | the same boards as jobs for other machines, and their common report |
//! | [`model`] | compares the board model with published measurements, and fits it to measurements |
//! | [`parameters`] | the values in a model's file, found and changed in place |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod bbprof;
pub mod boards;
pub mod campaign;
pub mod captured;
pub mod events;
pub mod experiment;
pub mod jobs;
pub mod model;
pub mod parameters;
pub mod tune;
