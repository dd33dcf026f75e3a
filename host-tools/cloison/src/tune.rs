//! `cloison tune`: a partition that keeps what each VM must reach, with its color map.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::color_map;
use cloison_lab::tune::{self, TuneArgs};
use miette::Result;

/// Runs `cloison tune`.
///
/// # Errors
///
/// If the configuration cannot be tuned, a run fails, or no partition keeps all goals.
pub fn tune(args: &TuneArgs) -> Result<()> {
    if let Some(tuned) = tune::tune(args, color_map::color_map)? {
        color_map::print_color_map(&tuned.checked);
        println!("{}", tuned.report);
    }
    Ok(())
}
