//! All targets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::Target;

mod board;
mod configuration;
mod counts;
mod elf;
mod executable;
mod hello;
mod image;
mod import;
mod lab;
mod model;
mod profile;
mod services;
mod telemetry;

/// All targets, by name.
pub const ALL: &[Target] = &[
    board::BOARD,
    lab::CAMPAIGN,
    configuration::CONFIGURATION,
    counts::COUNTS,
    elf::ELF,
    board::EVENT_MAP,
    board::EVENTS,
    executable::EXECUTABLE,
    lab::EXPERIMENT,
    lab::EXPRESSION,
    profile::FORMULA,
    hello::HELLO,
    image::IMAGE,
    import::IMPORT,
    lab::JOBS,
    board::KERNEL,
    model::MODEL,
    counts::PARQUET,
    profile::PROFILE,
    profile::PROFILE_RAW,
    services::SERVICES,
    model::STATISTICS,
    telemetry::TELEMETRY,
    board::VALIDATION,
];

/// Returns the target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}
