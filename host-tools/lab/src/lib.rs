//! Cloison's laboratory: experiments, campaigns and benchmarks on the board model, with their plots
//! and reports.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`experiment`] | interference experiments: declared in TOML, run, reported |
//! | [`campaign`] | runs for each of several sets of events, merged and compared with the truth |
//! | [`much`] | plans which events to count together, and merges their counts |
//! | [`events`] | finds the events of a machine that can be trusted |
//! | [`bbprof`] | finds the pages of a bare-metal guest that matter to the time of its segments |
//! | [`tune`] | decides colors, pages and budgets together, and runs the decision |
//! | [`demo`] | the main task from end to end |
//! | [`boards`] | boards that are started many times: here, or elsewhere as jobs |
//! | [`jobs`] | the same boards as jobs for other machines, and their common report |
//! | [`bench`](mod@bench) | counts the instructions on the hypervisor's own paths |
//! | [`expected`] | the accepted figures of `bench`, with the reason of each |
//! | [`epapi`] | measures what PAPI adds to a guest's counts |
//! | [`model`] | compares the board model with published measurements, and fits it to measurements |
//! | [`parameters`] | the values in a model's file, found and changed in place |
//! | [`plot`] | plots as SVG |
//! | [`profile`] | events of a guest by function and line |
//! | [`visits`] | the longest visits to EL2, and a neighbor's interrupt latency |
//! | [`boot_cost`] | instruction overhead of booting Linux |
//! | [`lines`] | counts the source lines that run at EL2 |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod bbprof;
pub mod bench;
pub mod boards;
pub mod boot_cost;
pub mod campaign;
pub mod demo;
pub mod epapi;
pub mod events;
pub mod expected;
pub mod experiment;
pub mod jobs;
pub mod lines;
pub mod model;
pub mod much;
pub mod parameters;
pub mod plot;
pub mod profile;
pub mod tune;
pub mod visits;
