//! Boards with the board model: builds the plugin, starts QEMU with it, reads its counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::write_atomic;
use crate::installation;
use crate::parts;
use crate::qemu::Machine;
use cloison_board_model::Board as ModelBoard;
pub use cloison_board_model::statistics::{CoreCounts, Instructions, Region, Statistics};
use cloison_config::Emulation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// State of the caches at the start of a region of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// As the last region left them.
    #[default]
    Warm,
    /// Empty.
    Cold,
}

/// A model with which boards can be started.
#[derive(Clone, Debug)]
pub struct Model {
    plugin: PathBuf,
    board: PathBuf,
    /// Name of the modelled board.
    pub name: String,
    /// Cycles per microsecond of guest time.
    pub clock_mhz: u64,
}

impl Model {
    /// Builds the plugin and reads the model's board file, so that errors in it are reported before QEMU starts.
    pub fn load(board: &Path) -> Result<Self> {
        let checked = check(board)?;
        Ok(Self {
            plugin: parts::model_plugin()?,
            board: board.to_path_buf(),
            name: checked.name,
            clock_mhz: checked.clock_mhz,
        })
    }

    /// Returns the same model with copies of its files in `directory`, which later builds or edits do not change.
    pub fn kept_in(&self, directory: &Path) -> Result<Self> {
        let copy = |from: &Path, name: &str| {
            let bytes =
                std::fs::read(from).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", from.display()))?;
            let to = directory.join(name);
            write_atomic(&to, &bytes)?;
            Ok::<PathBuf, miette::Report>(to)
        };
        let (plugin, board) = (copy(&self.plugin, "board-model.so")?, copy(&self.board, "board-model.toml")?);
        Ok(Self { plugin, board, ..self.clone() })
    }

    /// Returns the path of the model's board file.
    pub fn board(&self) -> &Path {
        &self.board
    }

    /// Returns the path of the plugin.
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// Attaches the model to a machine, on from the first instruction. Runs repeat exactly; the statistics are written
    /// to `stats`.
    pub fn attach(&self, machine: Machine, seed: u64, caches: Caches, stats: &Path) -> Machine {
        let caches = if caches == Caches::Cold { "cold" } else { "warm" };
        let plugin = format!(
            "{},board={},roi=always,caches={caches},seed={seed},stats={}",
            self.plugin.display(),
            self.board.display(),
            stats.display()
        );
        let overflow: Vec<String> = machine.board().overflow_interrupts.iter().map(u32::to_string).collect();
        let overflow = if overflow.is_empty() { String::new() } else { format!(",overflow={}", overflow.join("+")) };
        machine
            .args(["-accel", "tcg,thread=single", "-rtc", "base=2000-01-01,clock=vm", "-seed", "1", "-plugin"])
            .arg(plugin + &overflow)
    }
}

/// Returns the model that a board file gives for its emulation.
///
/// # Errors
///
/// Returns an error where it names none: on such a board only QEMU as it is can be run.
pub fn of(emulation: &Emulation) -> Result<&Path> {
    emulation.model.as_deref().ok_or_else(|| {
        miette!(
            help = "run it without the model (`demo --stock`), or take a board whose [qemu] table names a model",
            "there is no model of the memory hierarchy of board `{}`",
            emulation.board
        )
    })
}

/// Reads and validates a model's board file.
pub fn check(board: &Path) -> Result<ModelBoard> {
    ModelBoard::load(board).map_err(|error| {
        miette!(
            help = "see docs/board-model.md for the format of a model's file",
            "{}: {error}",
            installation::display(board)
        )
    })
}

/// Reads the statistics that the plugin has written.
pub fn statistics(path: &Path) -> Result<Statistics> {
    let text = std::fs::read_to_string(path)
        .into_diagnostic()
        .wrap_err_with(|| miette!("the model left no statistics at {}", path.display()))?;
    serde_json::from_str(&text).into_diagnostic().wrap_err("the model's statistics cannot be read")
}
