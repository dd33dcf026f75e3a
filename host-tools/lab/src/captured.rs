//! Runs on a board, as `cloison capture` left them: folders with the image, the console's text and the
//! telemetry.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::problem::count;
use cloison_engine::files;
use cloison_engine::image::Image;
use cloison_engine::installation;
use cloison_engine::telemetry::{End, Telemetry};
use cloison_formats::ids::VmId;
use miette::{Diagnostic, IntoDiagnostic, Result, miette};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thiserror::Error;

/// The files of a captured run, and of one in QEMU: the image that was booted.
pub const IMAGE: &str = "Image";
const CONSOLE: &str = "console.txt";
/// What the telemetry's UART sent.
pub const TELEMETRY: &str = "telemetry.bin";
/// What a capture leaves beside them if records were damaged.
const DAMAGE: &str = "damage.csv";

/// Runs that no board has made yet.
#[derive(Clone, Debug, Error, Diagnostic)]
#[error("{} of {wanted} runs were not captured: {}", names.len(), names.join(", "))]
#[diagnostic(help("write their images: --images DIR; boot and capture each"))]
pub struct NotCaptured {
    /// Their names.
    pub names: Vec<String>,
    /// How many are needed.
    pub wanted: usize,
}

/// A run on a board.
#[derive(Debug)]
pub struct CapturedRun {
    /// The folder.
    directory: PathBuf,
    /// SHA-256 of the image that the board booted.
    image: String,
    /// Whether a command has asked for this image.
    is_wanted: AtomicBool,
}

/// Runs on a board, one for each folder.
#[derive(Debug, Default)]
pub struct CapturedRuns {
    runs: Vec<CapturedRun>,
}

impl CapturedRuns {
    /// Finds the runs in these folders: each is one, or holds folders with one each.
    ///
    /// # Errors
    ///
    /// If a folder has no run, or two runs are of the same image.
    pub fn find(folders: &[PathBuf]) -> Result<Self> {
        let mut all = Self::default();
        for folder in folders {
            if folder.join(IMAGE).is_file() {
                all.add(folder)?;
                continue;
            }
            let own = folders_of(folder)?;
            if own.is_empty() {
                return Err(miette!(
                    help = "name a folder that `cloison capture` has left, or one that holds such \
                            folders",
                    "{} has no captured run: there is no `{IMAGE}` in it",
                    installation::display(folder)
                ));
            }
            own.iter().try_for_each(|run| all.add(run))?;
        }
        Ok(all)
    }

    fn add(&mut self, directory: &Path) -> Result<()> {
        let image = files::sha256(&files::read(&directory.join(IMAGE), files::IMAGE)?);
        if let Some(other) = self.runs.iter().find(|run| run.image == image) {
            return Err(miette!(
                help = "leave one of the two out",
                "{} and {} are runs of the same image",
                installation::display(&other.directory),
                installation::display(directory)
            ));
        }
        self.runs.push(CapturedRun {
            directory: directory.to_path_buf(),
            image,
            is_wanted: AtomicBool::new(false),
        });
        Ok(())
    }

    /// Returns the run of an image, if there is one.
    pub fn of(&self, image: &Image) -> Option<&CapturedRun> {
        let sum = image.sha256();
        let run = self.runs.iter().find(|run| run.image == sum)?;
        run.is_wanted.store(true, Relaxed);
        Some(run)
    }

    /// Returns the folders of runs whose image no command has asked for.
    pub fn strangers(&self) -> Vec<String> {
        let others = self.runs.iter().filter(|run| !run.is_wanted.load(Relaxed));
        others
            .map(|run| installation::display(&run.directory))
            .collect()
    }
}

impl CapturedRun {
    /// Returns the run's telemetry, if the run is whole and of the system `system`.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, another image was captured, or the VM has not turned itself
    /// off.
    pub fn telemetry(&self, system: &str, vm: VmId) -> Result<Telemetry> {
        self.until(system, vm, &[End::Off])
    }

    /// As [`Self::telemetry`], of a VM that has ended in one of these ways.
    ///
    /// # Errors
    ///
    /// As [`Self::telemetry`].
    pub fn until(&self, system: &str, vm: VmId, ends: &[End]) -> Result<Telemetry> {
        let place = installation::display(&self.directory);
        let again = "boot the image again, and capture it to its end";
        let damage = self.directory.join(DAMAGE);
        if damage.is_file() {
            return Err(miette!(
                help = again,
                "{place}: records were damaged on the way: {DAMAGE} lists them"
            ));
        }
        let file = self.directory.join(TELEMETRY);
        if !file.is_file() {
            return Err(miette!(
                help = again,
                "{place} is no whole capture: there is no {TELEMETRY}"
            ));
        }
        let telemetry = Telemetry::parse(&files::read(&file, files::LOG)?);
        let found = telemetry.boot.as_ref().map(|boot| boot.system.as_str());
        match found {
            None => {
                return Err(miette!(
                    help = again,
                    "{place} is no whole capture: {TELEMETRY} does not begin with the boot"
                ));
            }
            Some(found) if found != system => {
                return Err(miette!(
                    help = "boot the `Image` of this folder, and capture it again",
                    "{place}: the board ran another image: its system is {found}, and not {system}"
                ));
            }
            Some(_) => {}
        }
        telemetry
            .check()
            .map_err(|error| miette!(help = again, "{place}: {error}"))?;
        let (dropped, end) = (telemetry.dropped(), telemetry.end_of(vm));
        if dropped > 0 || !ends.contains(&end) {
            let name = telemetry.vm_name(vm);
            return Err(miette!(
                help = again,
                "{place} is no whole run: {} dropped; VM `{name}`: {end}",
                count(dropped as usize, "record")
            ));
        }
        Ok(telemetry)
    }

    /// Returns whether the console shows a text.
    ///
    /// # Errors
    ///
    /// If the console's text cannot be read.
    pub fn shows(&self, text: &str) -> Result<bool> {
        let console = files::read(&self.directory.join(CONSOLE), files::LOG)?;
        Ok(String::from_utf8_lossy(&console).contains(text))
    }

    /// Returns the folder, for messages.
    pub fn place(&self) -> String {
        installation::display(&self.directory)
    }
}

/// Returns the folders of a folder that have an image, in the order of their names.
fn folders_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| miette!("cannot read {}: {error}", installation::display(folder)))?;
    let mut own = Vec::new();
    for entry in entries {
        let path = entry.into_diagnostic()?.path();
        if path.join(IMAGE).is_file() {
            own.push(path);
        }
    }
    own.sort();
    Ok(own)
}

/// Writes an image that a board is to boot, with the configuration from which it is captured, into a
/// folder of `images`.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(images: &Path, name: &str, image: &Image, configuration: &str) -> Result<()> {
    let folder = images.join(name);
    image.write(&folder.join(IMAGE))?;
    files::write_atomic(&folder.join("system.toml"), configuration.as_bytes())
}

/// Options of commands that take runs on a board.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BoardRuns {
    /// Take the runs on a board in these folders, which `cloison capture` has left: of each image
    /// that --images writes one, or folders of such folders
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub captured: Vec<PathBuf>,
    /// Write the images that a board is to boot, of which --captured has no run, each with its
    /// configuration in a folder of this one
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
}

impl BoardRuns {
    /// Returns whether a board runs the images.
    pub fn is_given(&self) -> bool {
        !self.captured.is_empty() || self.images.is_some()
    }

    /// Says what was written, and how it becomes a captured run.
    pub fn print_written(&self, names: &[String], board: &str) {
        let Some(images) = &self.images else { return };
        let place = installation::display(images);
        for name in names {
            println!("{place}/{name}/Image");
        }
        println!(
            "{} for board {board}. Boot each in place of the `Image` of `cloison image`, and capture \
             it:\n  cloison capture {place}/NAME/system.toml --board {board} --image \
             {place}/NAME/Image --console PORT --telemetry PORT --out RUNS/NAME\nThen give --captured \
             RUNS.",
            count(names.len(), "image")
        );
    }
}
