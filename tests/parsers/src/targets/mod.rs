//! All targets.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::Target;

mod configuration;
mod executable;
mod image;
mod telemetry;

/// All targets.
pub const ALL: &[Target] = &[
    configuration::CONFIGURATION,
    executable::EXECUTABLE,
    image::IMAGE,
    telemetry::TELEMETRY,
];

/// Returns the target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}
