//! Cloison's laboratory: experiments, campaigns and benchmarks on the board model, with their plots and reports.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`experiment`] | interference experiments: declared in TOML, run, reported |
//! | [`campaign`] | runs for each of several sets of events, merged and compared with the truth |
//! | [`much`] | plans which events to count together, and merges their counts |
//! | [`demo`] | the main job from end to end |
//! | [`bench`] | how many instructions the hypervisor's own paths take |
//! | [`boot_cost`] | what the hypervisor adds to a Linux guest's boot |
//! | [`lines`] | how much source runs at EL2 |
#![forbid(unsafe_code)]

pub mod bench;
pub mod boot_cost;
pub mod campaign;
pub mod demo;
pub mod experiment;
pub mod lines;
pub mod much;
