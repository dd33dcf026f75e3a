//! Boards with the board model: builds the plugin, starts QEMU with it, reads what it counted.

use crate::files::write_atomic;
use crate::installation;
use crate::parts;
use crate::qemu::Machine;
use cloison_board_model::Board as ModelBoard;
use cloison_config::Emulation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a region of interest begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// As the last one left them.
    #[default]
    Warm,
    /// Empty.
    Cold,
}

/// A model that boards can be started with.
#[derive(Clone, Debug)]
pub struct Model {
    plugin: PathBuf,
    board: PathBuf,
    /// Name of the modelled board.
    pub name: String,
    /// Cycles in a microsecond of guest time.
    pub clock_mhz: u64,
}

impl Model {
    /// Builds the plugin and reads the model's board file, so that its errors come before QEMU starts.
    pub fn load(board: &Path) -> Result<Self> {
        let checked = check(board)?;
        Ok(Self {
            plugin: parts::model_plugin()?,
            board: board.to_path_buf(),
            name: checked.name,
            clock_mhz: checked.clock_mhz,
        })
    }

    /// The same model with copies of its files in `directory`: a build or an edit meanwhile does not change it.
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

    /// The model's board file.
    pub fn board(&self) -> &Path {
        &self.board
    }

    /// The plugin's file.
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// The machine with this model on from its first instruction. Its run repeats exactly; the statistics go to `stats`.
    pub fn attach(&self, machine: Machine, seed: u64, caches: Caches, stats: &Path) -> Machine {
        let caches = if caches == Caches::Cold { "cold" } else { "warm" };
        let plugin = format!(
            "{},board={},roi=always,caches={caches},seed={seed},stats={}",
            self.plugin.display(),
            self.board.display(),
            stats.display()
        );
        machine
            .args(["-accel", "tcg,thread=single", "-rtc", "base=2000-01-01,clock=vm", "-seed", "1", "-plugin"])
            .arg(plugin)
    }
}

/// The file of the model that a board file names for its emulation.
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

/// Reads and checks a model's board file.
pub fn check(board: &Path) -> Result<ModelBoard> {
    ModelBoard::load(board).map_err(|error| {
        miette!(
            help = "docs/board-model.md says what a model's file holds",
            "{}: {error}",
            installation::display(board)
        )
    })
}

/// What the model counted in a run.
#[derive(Clone, Debug, Deserialize)]
pub struct Statistics {
    /// The regions of interest, in their order.
    pub regions: Vec<Region>,
}

/// One region of interest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Its cores.
    pub cores: Vec<CoreCounts>,
}

/// What one core did in a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreCounts {
    /// Cycles of its clock.
    pub cycles: u64,
    /// Overflow interrupts that its counters raised.
    pub overflow_interrupts: u64,
    /// Events by name, whether a counter counted them or not.
    pub events: BTreeMap<String, u64>,
    /// The same at EL1 and EL0 alone: what counters would have counted there, all events at once.
    pub guest_events: BTreeMap<String, u64>,
}

impl CoreCounts {
    /// The count of an event that is modelled.
    pub fn event(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

impl Statistics {
    /// Reads the file that the plugin wrote.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .into_diagnostic()
            .wrap_err_with(|| miette!("the model left no statistics at {}", path.display()))?;
        serde_json::from_str(&text).into_diagnostic().wrap_err("the model's statistics cannot be read")
    }
}
