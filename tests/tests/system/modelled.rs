//! Boots on the board model.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::image::Image;
use cloison_engine::qemu::Outcome;
use cloison_engine::{installation, parts};
use cloison_tests::{Clock, VIRT, machine};
use miette::{Result, miette};
use std::path::Path;

/// Boots an image on `virt` with the memory hierarchy of the ZCU102, until the board turns itself off. The model writes
/// what it counted to `stats`.
pub fn boot(image: &Image, stats: Option<&Path>) -> Result<Outcome> {
    boot_on("zcu102", image, stats)
}

/// Boots an image as [`boot`] does, on a board model by its name.
pub fn boot_on(model: &str, image: &Image, stats: Option<&Path>) -> Result<Outcome> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let board = installation::root().join(format!("configs/models/{model}.toml"));
    let mut plugin = format!("{},board={}", parts::model_plugin()?.display(), board.display());
    if let Some(stats) = stats {
        plugin += &format!(",stats={}", stats.display());
    }
    machine(VIRT, &file, Clock::Real)?.args(["-accel", "tcg,thread=single", "-plugin", &plugin]).run()
}
