//! Boards with the board model: builds the plugin, starts QEMU with it, reads its counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::configuration::emulation;
use crate::figures::qemu_version;
use crate::files;
use crate::installation;
use crate::parts;
use crate::qemu::Machine;
use crate::setup::emulator::PROGRAM;
use crate::setup::run_limited;
use crate::store::Store;
use cloison_board_model::Board as ModelBoard;
pub use cloison_board_model::statistics::{CoreCounts, Instructions, Region, Statistics};
use cloison_config::Emulation;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_formats::ids::Intid;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A program that turns its machine off: `movz x0, #8`, `movk x0, #0x8400, lsl #16`, `smc #0`
/// (PSCI's SYSTEM_OFF).
const TURNS_OFF: [u32; 3] = [0xd280_0100, 0xf2b0_8000, 0xd400_0003];

/// Runs a program of a few instructions on the default model, with this machine's QEMU.
///
/// # Errors
///
/// If the plugin cannot be built, does not work with this QEMU, or counts nothing.
pub fn self_test() -> Result<()> {
    let emulation = emulation(DEFAULT_BOARD)?;
    let model = Model::load(of(&emulation)?)?;
    let scratch = files::scratch()?;
    let (kernel, stats) = (
        scratch.path().join("program"),
        scratch.path().join("stats.json"),
    );
    let code: Vec<u8> = TURNS_OFF.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(&kernel, code).into_diagnostic()?;
    let mut qemu = Command::new(PROGRAM);
    qemu.args(["-M", "virt,virtualization=on,gic-version=2"])
        .args(["-cpu", "cortex-a53", "-m", "64M"])
        .args(["-nodefaults", "-display", "none"])
        .args(["-accel", "tcg,thread=single", "-kernel"])
        .arg(&kernel)
        .arg("-plugin")
        .arg(format!(
            "file={},board={},roi=always,stats={}",
            value(&model.plugin),
            value(&model.board),
            value(&stats)
        ));
    let done = run_limited(qemu, "testing the board model", Duration::from_secs(60))?;
    if !done.success {
        return Err(miette!("{}", done.reason()));
    }
    let counted = statistics(&stats)?;
    let core = counted.whole.cores.first();
    if core.is_none_or(|core| core.counts.instructions < TURNS_OFF.len() as u64) {
        return Err(miette!("it counts no instructions with this QEMU"));
    }
    Ok(())
}

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

/// Where the model counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Roi {
    /// From the first instruction: guest time is the model's, and runs repeat exactly.
    #[default]
    Always,
    /// In regions of interest alone. Outside, guest time is the host's, and a guest runs many times
    /// faster.
    Hint,
}

/// How the model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Seed of the replacement and of the memory refreshes.
    pub seed: u64,
    /// The caches before each region of interest.
    pub caches: Caches,
    /// Where it counts.
    #[serde(default)]
    pub roi: Roi,
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
    /// Builds the plugin and reads the model's board file, so that errors in it are reported before
    /// QEMU starts.
    pub fn load(board: &Path) -> Result<Self> {
        check(board)?;
        Self::from_files(&parts::model_plugin()?, board)
    }

    /// Builds the plugin, and reads the model that the user has named or else the board's own.
    ///
    /// # Errors
    ///
    /// As [`of`] and [`Self::load`].
    pub fn chosen(named: Option<&Path>, emulation: &Emulation) -> Result<Self> {
        match named {
            Some(model) => Self::load(&installation::find(model)),
            None => Self::load(of(emulation)?),
        }
    }

    /// Returns the model of these files, unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if `board` does not describe a model.
    pub fn from_files(plugin: &Path, board: &Path) -> Result<Self> {
        let checked = check(board)?;
        let (plugin, board) = (plugin.to_path_buf(), board.to_path_buf());
        Ok(Self {
            plugin,
            board,
            name: checked.name,
            clock_mhz: checked.clock_mhz,
        })
    }

    /// Returns the same model with its files in `store`, where later builds and edits do not change
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or written.
    pub fn kept_in(&self, store: &Store) -> Result<Self> {
        let keep = |from: &Path, extension: &str| {
            let name = store.add(&files::read(from, files::IMAGE)?, extension)?;
            Ok::<PathBuf, miette::Report>(store.path(&name)?)
        };
        Ok(Self {
            plugin: keep(&self.plugin, "so")?,
            board: keep(&self.board, "toml")?,
            ..self.clone()
        })
    }

    /// Returns the names of the model's two files, without their directories.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let names = [&self.plugin, &self.board]
            .into_iter()
            .filter_map(|path| path.file_name());
        names.map(|name| name.to_string_lossy().into_owned())
    }

    /// Returns the beginning of a hash of what determines a run on it: its two files, and QEMU.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn hash(&self) -> Result<Sha256> {
        let mut hash = Sha256::new();
        for file in [&self.board, &self.plugin] {
            hash.update(files::read(file, files::IMAGE)?);
        }
        hash.update(qemu_version());
        Ok(hash)
    }

    /// Returns the path of the model's board file.
    pub fn board(&self) -> &Path {
        &self.board
    }

    /// Returns the path of the plugin.
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// Attaches the model to a machine. The statistics are written to `stats`.
    pub fn attach(&self, machine: Machine, conditions: Conditions, stats: &Path) -> Machine {
        self.attach_with(machine, conditions, stats, "")
    }

    /// Attaches the model to a machine as [`Model::attach`] does. It also charges each event to the
    /// code that caused it, and writes that to `profile`.
    pub fn attach_profiler(
        &self,
        machine: Machine,
        conditions: Conditions,
        stats: &Path,
        profile: &Path,
    ) -> Machine {
        let profile = format!(",profile={}", value(profile));
        self.attach_with(machine, conditions, stats, &profile)
    }

    fn attach_with(
        &self,
        machine: Machine,
        conditions: Conditions,
        stats: &Path,
        more: &str,
    ) -> Machine {
        let Conditions { seed, caches, roi } = conditions;
        let caches = if caches == Caches::Cold {
            "cold"
        } else {
            "warm"
        };
        let roi = if roi == Roi::Hint { "hint" } else { "always" };
        let plugin = format!(
            "file={},board={},roi={roi},caches={caches},seed={seed},stats={}{more}",
            value(&self.plugin),
            value(&self.board),
            value(stats)
        );
        let overflow: Vec<String> = machine
            .board()
            .overflow_interrupts
            .iter()
            .map(Intid::to_string)
            .collect();
        let overflow = if overflow.is_empty() {
            String::new()
        } else {
            format!(",overflow={}", overflow.join("+"))
        };
        machine
            .args([
                "-accel",
                "tcg,thread=single",
                "-rtc",
                "base=2000-01-01,clock=vm",
                "-seed",
                "1",
                "-plugin",
            ])
            .arg(plugin + &overflow)
    }
}

/// Returns a path as the value of an option of QEMU, which splits options at single commas.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Returns the model that a board file names for its emulation.
///
/// # Errors
///
/// Returns an error where it names none: only QEMU without a model can run such a board.
pub fn of(emulation: &Emulation) -> Result<&Path> {
    emulation.model.as_deref().ok_or_else(|| {
        miette!(
            help = "run it without the model (`demo --stock`, or no --model), or take a board \
                    whose [qemu] table names a model",
            "there is no model of the memory hierarchy of board `{}`",
            emulation.board
        )
    })
}

/// Reads and validates a model's board file.
pub fn check(board: &Path) -> Result<ModelBoard> {
    let text = files::read_text(board, files::CONFIGURATION)?;
    ModelBoard::parse(&text).map_err(|error| {
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
    serde_json::from_str(&text)
        .into_diagnostic()
        .wrap_err("the model's statistics cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_commas_are_one_value() {
        assert_eq!(value(Path::new("/a,b=c/d")), "/a,,b=c/d");
    }

    #[test]
    fn a_comma_in_a_path_does_not_end_the_option() {
        let emulation = crate::configuration::emulation("virt").unwrap();
        let name = emulation.board.clone();
        let model = Model {
            plugin: "a,b=c/model.so".into(),
            board: "a,b=c/board.toml".into(),
            name,
            clock_mhz: 1200,
        };
        let conditions = Conditions {
            seed: 1,
            caches: Caches::Cold,
            roi: Roi::Always,
        };
        let machine = model.attach(
            Machine::bare(&emulation),
            conditions,
            Path::new("a,b=c/model.json"),
        );
        let line = machine.command_line();
        assert!(
            line.contains(
                " file=a,,b=c/model.so,board=a,,b=c/board.toml,roi=always,caches=cold,seed=1,"
            ),
            "{line}"
        );
        assert!(line.contains(",stats=a,,b=c/model.json"), "{line}");
    }
}
