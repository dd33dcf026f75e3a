//! Boards with the board model: builds the plugin, starts QEMU with it, reads its counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{self, sha256, write_atomic, write_json};
use crate::installation;
use crate::parts;
use crate::qemu::Machine;
use cloison_board_model::Board as ModelBoard;
pub use cloison_board_model::statistics::{CoreCounts, Instructions, Region, Statistics};
use cloison_config::Emulation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

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
            let bytes = files::read(from, files::IMAGE)?;
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
            "file={},board={},roi=always,caches={caches},seed={seed},stats={}",
            value(&self.plugin),
            value(&self.board),
            value(stats)
        );
        let overflow: Vec<String> = machine.board().overflow_interrupts.iter().map(u32::to_string).collect();
        let overflow = if overflow.is_empty() { String::new() } else { format!(",overflow={}", overflow.join("+")) };
        machine
            .args(["-accel", "tcg,thread=single", "-rtc", "base=2000-01-01,clock=vm", "-seed", "1", "-plugin"])
            .arg(plugin + &overflow)
    }
}

/// Returns a path as the value of an option of QEMU, which splits options at single commas.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// What a finished run on the model needs to be repeated, as the file `machine.json` of its directory. Paths are relative
/// to that directory where possible, so that results can be moved as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRun {
    /// The board: its name, or the path of its file.
    pub board: String,
    /// The system image.
    pub image: PathBuf,
    /// SHA-256 of the image's file, in hexadecimal.
    image_sha256: String,
    /// The plugin that the run used.
    pub plugin: PathBuf,
    /// The model's board file that the run used.
    pub model: PathBuf,
    /// Seed of the model.
    pub seed: u64,
    /// The caches before each region of interest.
    pub caches: Caches,
}

impl KeptRun {
    /// Name of the file.
    const FILE: &str = "machine.json";

    /// Describes a run of `image`, a file that exists, on a board with this model.
    ///
    /// # Errors
    ///
    /// Returns an error if the image cannot be read.
    pub fn new(board: &str, image: &Path, model: &Model, seed: u64, caches: Caches) -> Result<Self> {
        let image_sha256 = sha256(&files::read(image, files::IMAGE)?);
        let (image, plugin, model) = (image.to_path_buf(), model.plugin.clone(), model.board.clone());
        Ok(Self { board: board.to_owned(), image, image_sha256, plugin, model, seed, caches })
    }

    /// Writes the file into the run's directory.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let [image, plugin, model] = [&self.image, &self.plugin, &self.model].map(|path| relative(directory, path));
        write_json(&directory.join(Self::FILE), &Self { image, plugin, model, ..self.clone() })
    }

    /// Reads the file of a run's directory, with paths that are valid from here.
    pub fn read(directory: &Path) -> Result<Self> {
        let file = directory.join(Self::FILE);
        let text = cloison_config::files::read_text(&file, files::RESULT).map_err(|error| {
            miette!(
                help = "name a configuration, or the directory of an experiment's run: \
                        target/cloison/experiments/NAME/runs/KEY",
                "{} is not a kept run: {}: {error}",
                directory.display(),
                file.display()
            )
        })?;
        let kept: Self = serde_json::from_str(&text)
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot read {}", file.display()))?;
        let [image, plugin, model] = [&kept.image, &kept.plugin, &kept.model].map(|path| directory.join(path));
        for part in [&image, &plugin, &model] {
            if !part.is_file() {
                return Err(miette!(
                    help = "run the experiment again",
                    "{} is gone, which the run in {} used",
                    part.display(),
                    directory.display()
                ));
            }
        }
        if sha256(&files::read(&image, files::IMAGE)?) != kept.image_sha256 {
            return Err(miette!(
                help = "remove it, and run the experiment again",
                "{} is not the image of the run in {}: it was changed",
                image.display(),
                directory.display()
            ));
        }
        Ok(Self { image, plugin, model, ..kept })
    }

    /// Returns the machine of the run, with its model, as QEMU emulates its board. The statistics are written to `stats`.
    pub fn machine(&self, board: &Emulation, stats: &Path) -> Result<Machine> {
        let checked = check(&self.model)?;
        let model = Model {
            plugin: self.plugin.clone(),
            board: self.model.clone(),
            name: checked.name,
            clock_mhz: checked.clock_mhz,
        };
        Ok(model.attach(Machine::new(board, &self.image), self.seed, self.caches, stats))
    }
}

/// Returns `path` relative to `directory` if both are below one directory other than the root, else `path` itself.
fn relative(directory: &Path, path: &Path) -> PathBuf {
    let shared = directory.components().zip(path.components()).take_while(|(one, other)| one == other).count();
    // The root is one component, and a path with `..` cannot be turned around.
    let up: Vec<_> = directory.components().skip(shared).collect();
    if shared == 0 || (shared == 1 && directory.has_root()) || up.contains(&Component::ParentDir) {
        return path.to_path_buf();
    }
    up.iter().map(|_| Component::ParentDir).chain(path.components().skip(shared)).collect()
}

/// Returns the model that a board file gives for its emulation.
///
/// # Errors
///
/// Returns an error where it names none: on such a board only QEMU as it is can be run.
pub fn of(emulation: &Emulation) -> Result<&Path> {
    emulation.model.as_deref().ok_or_else(|| {
        miette!(
            help = "run it without the model (`demo --stock`, or no --model), or take a board whose [qemu] table names a model",
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
    serde_json::from_str(&text).into_diagnostic().wrap_err("the model's statistics cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_run_is_found_where_its_results_were_moved() {
        let scratch = tempfile::tempdir().unwrap();
        let (before, after) = (scratch.path().join("a,b=c"), scratch.path().join("elsewhere"));
        let run = before.join("runs/one");
        std::fs::create_dir_all(&run).unwrap();
        for file in [before.join("board-model.so"), before.join("board-model.toml"), run.join("Image")] {
            std::fs::write(file, "").unwrap();
        }
        let model = Model {
            plugin: before.join("board-model.so"),
            board: before.join("board-model.toml"),
            name: "some".into(),
            clock_mhz: 1,
        };
        let kept = KeptRun::new("virt", &run.join("Image"), &model, 7, Caches::Cold).unwrap();
        kept.write(&run).unwrap();
        std::fs::rename(&before, &after).unwrap();
        let found = KeptRun::read(&after.join("runs/one")).unwrap();
        assert_eq!((found.seed, found.caches), (7, Caches::Cold));
        assert_eq!(found.plugin.canonicalize().unwrap(), after.join("board-model.so").canonicalize().unwrap());
        std::fs::write(after.join("runs/one/Image"), "another").unwrap();
        let error = KeptRun::read(&after.join("runs/one")).unwrap_err().to_string();
        assert!(error.contains("it was changed"), "{error}");
        std::fs::remove_file(after.join("board-model.so")).unwrap();
        let error = KeptRun::read(&after.join("runs/one")).unwrap_err().to_string();
        assert!(error.contains("board-model.so is gone"), "{error}");
        let error = KeptRun::read(&after).unwrap_err().to_string();
        assert!(error.contains("is not a kept run"), "{error}");
    }

    #[test]
    fn paths_with_commas_are_one_value() {
        assert_eq!(value(Path::new("/a,b=c/d")), "/a,,b=c/d");
        assert_eq!(relative(Path::new("/x/runs/one"), Path::new("/x/model.so")), Path::new("../../model.so"));
        assert_eq!(relative(Path::new("/x/runs/one"), Path::new("/y/model.so")), Path::new("/y/model.so"));
        assert_eq!(relative(Path::new("runs/one"), Path::new("runs/one/Image")), Path::new("Image"));
    }

    #[test]
    fn a_comma_in_a_path_does_not_end_the_option() {
        let emulation = crate::configuration::emulation("virt").unwrap();
        let name = emulation.board.clone();
        let model = Model { plugin: "a,b=c/model.so".into(), board: "a,b=c/board.toml".into(), name, clock_mhz: 1200 };
        let machine = model.attach(Machine::bare(&emulation), 1, Caches::Cold, Path::new("a,b=c/model.json"));
        let line = machine.command_line();
        assert!(
            line.contains(" file=a,,b=c/model.so,board=a,,b=c/board.toml,roi=always,caches=cold,seed=1,"),
            "{line}"
        );
        assert!(line.contains(",stats=a,,b=c/model.json"), "{line}");
    }
}
