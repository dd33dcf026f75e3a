//! Cloison's commands, one module each.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`commands`] | all commands, as seen by the command line |
//! | [`demo`] | the main task from end to end |
//! | [`check`] | finds errors in configurations |
//! | [`import`] | makes configurations of those of other hypervisors |
//! | [`inspect`], [`color_map`], [`between`], [`live`] | draws the color map of a configuration, and verifies it on the booted system |
//! | [`run`] | runs a board on this terminal |
//! | [`image`], [`boot_readme`], [`capture`] | writes what a board boots, and captures what it sends |
//! | [`board`] | compares a new board with its board file |
//! | [`terminal`], [`ended_run`] | shows a run's console, keeps its files, and prints its tables |
//! | [`crash`] | explains exceptions that guests report |
//! | [`tune`] | decides colors, pages and budgets, and shows the color map |
//! | [`top`] | shows live how each core uses its budgets |
//! | [`hem`] | converts the HEM log to CSV and Parquet |
//! | [`linux`] | downloads kernels and programs for Linux guests |
//! | [`new`] | creates a guest or an experiment from templates |
//! | [`setup`] | installs missing parts on this machine |
//!
//! Experiments and campaigns are in `cloison-lab`, `bench` is in `cloison-bench`, `profile` in
//! `cloison-profiler`, and `much` in `cloison-much-command`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod between;
pub mod board;
pub mod boot_readme;
pub mod capture;
pub mod check;
pub mod cli;
pub mod color_map;
pub mod commands;
pub mod crash;
pub mod demo;
pub mod earlier;
pub mod ended_run;
pub mod events;
pub mod exit;
pub mod hem;
pub mod image;
pub mod import;
pub mod inspect;
pub mod linux;
pub mod live;
pub mod network;
pub mod new;
pub mod run;
pub mod setup;
pub mod terminal;
pub mod top;
pub mod tune;
