//! Boots on the board model.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::image::Image;
use cloison_engine::qemu::Outcome;
use cloison_engine::{installation, parts};
use cloison_tests::{Clock, VIRT, machine};
use miette::{Result, miette};
use serde_json::Value;
use std::path::Path;

/// Boots an image on `virt` with the memory hierarchy of the ZCU102, until the board turns itself
/// off. The model writes its counts to `stats`.
pub fn boot(image: &Image, stats: Option<&Path>) -> Result<Outcome> {
    boot_on("zcu102", image, stats)
}

/// Boots an image as [`boot`] does, on a board model by its name.
pub fn boot_on(model: &str, image: &Image, stats: Option<&Path>) -> Result<Outcome> {
    boot_as(model, image, stats, "hint")
}

/// Boots an image with the model on from the first instruction. Returns the cycles of core 0 in its
/// last region of interest, at all exception levels. The host's time then has no influence. With
/// the model on in the region alone, a period that ends outside ends by the host's clock, and one
/// of 2 us may be shorter than a visit to EL2.
pub fn cycles(image: &Image, seed: u64) -> Result<u64> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let stats = scratch.path().join("stats.json");
    let outcome = boot_as(
        "zcu102",
        image,
        Some(&stats),
        &format!("always,seed={seed}"),
    )?;
    assert!(
        outcome.exit.is_clean(),
        "{}\n{}\n{}",
        outcome.exit,
        outcome.errors,
        outcome.console
    );
    let report: Value =
        serde_json::from_slice(&std::fs::read(&stats).expect("the model's report")).expect("JSON");
    let last = report["regions"]
        .as_array()
        .and_then(|regions| regions.last())
        .expect("a region");
    Ok(last["cores"][0]["cycles"].as_u64().expect("its cycles"))
}

/// Boots an image as [`boot`] does, on a board model by its name, with the model on where `roi`
/// says.
pub fn boot_as(model: &str, image: &Image, stats: Option<&Path>, roi: &str) -> Result<Outcome> {
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let board = installation::root().join(format!("configs/models/{model}.toml"));
    let mut plugin = format!(
        "{},board={},roi={roi}",
        parts::model_plugin()?.display(),
        board.display()
    );
    if let Some(stats) = stats {
        plugin += &format!(",stats={}", stats.display());
    }
    machine(VIRT, &file, Clock::Real)?
        .args(["-accel", "tcg,thread=single", "-plugin", &plugin])
        .run()
}
