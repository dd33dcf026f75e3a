//! What a user types: Cloison's commands, one module each.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`commands`] | all commands, as the command line has them |
//! | [`check`] | finds errors in configurations |
//! | [`inspect`], [`color_map`], [`live`] | draws the color map of a configuration, and proves it on the booted system |
//! | [`run`] | a board on this terminal |
//! | [`top`] | what each core uses of its budgets, live |
//! | [`image`] | writes what goes on an SD card |
//! | [`hem`] | the HEM log as CSV and Parquet |
//! | [`linux`] | kernels and programs for Linux guests |
//! | [`setup`] | what this machine lacks |
//!
//! Experiments, campaigns and benchmarks are in `cloison-lab`.
#![forbid(unsafe_code)]

pub mod check;
pub mod color_map;
pub mod commands;
pub mod hem;
pub mod image;
pub mod inspect;
pub mod linux;
pub mod live;
pub mod run;
pub mod setup;
pub mod top;
