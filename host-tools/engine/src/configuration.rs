//! Configurations of this installation: read with its boards, its events and the kernels that it has downloaded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::Claim;
use crate::installation;
use crate::linux::packages;
use cloison_config::checked::NotEmulated;
use cloison_config::events::EventNames;
use cloison_config::guest_linux::{Flavor, Release};
use cloison_config::{BoardFile, Checked, Emulation, Errors, Shipped};
use std::path::{Path, PathBuf};

/// Returns the directory of the shipped boards, events, models and systems.
pub fn directory() -> PathBuf {
    installation::root().join("configs")
}

fn kept_kernel(release: Release, flavor: Flavor) -> Option<Vec<u8>> {
    std::fs::read(packages::kept_kernel(release, flavor)?.path).ok()
}

/// Reads and checks a configuration, for the board that it names or for another one. If there is no file at `path`, it
/// is searched for among the shipped ones.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped { configs: &directory(), kept_kernel: &kept_kernel };
    cloison_config::load(&installation::find(path), board, &shipped)
}

/// Like [`load`], for a text that is, or will be, in the file `path`.
///
/// # Errors
///
/// Returns all errors of the text with their positions.
pub fn load_text(path: &Path, text: String, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped { configs: &directory(), kept_kernel: &kept_kernel };
    cloison_config::load_text(path, text, board, &shipped)
}

/// Reads and checks a shipped board file.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn board(name: &str) -> Result<BoardFile, Errors> {
    let path = directory().join("boards").join(format!("{name}.toml"));
    BoardFile::load(&path, &directory()).map_err(|problems| Errors::new(&path.display().to_string(), problems))
}

/// Returns how QEMU emulates a shipped board.
///
/// # Errors
///
/// Returns the errors of the board file, or that it has no table `[qemu]`.
pub fn emulation(name: &str) -> miette::Result<Emulation> {
    board(name)?.emulation.ok_or_else(|| NotEmulated { board: name.to_owned() }.into())
}

/// Returns the names of the shipped boards, sorted.
pub fn boards() -> Vec<String> {
    cloison_config::files::available(&directory().join("boards"))
}

/// Returns the names of the shipped boards that QEMU emulates, sorted.
///
/// # Errors
///
/// Returns the errors of the first board file that has any: a board that cannot be read must not go missing in silence.
pub fn emulated_boards() -> Result<Vec<String>, Errors> {
    let boards = boards().iter().map(|name| board(name)).collect::<Result<Vec<_>, _>>()?;
    let emulated = boards.into_iter().filter_map(|file| file.emulation);
    Ok(emulated.map(|emulation| emulation.board).collect())
}

/// Returns a directory below the output directory's `kind` for a run of a configuration. It is no other command's as long
/// as this one lasts, and no other configuration's at all.
///
/// # Errors
///
/// Returns an error if the directory cannot be written to.
pub fn run_directory(kind: &str, name: &str, config: &Path) -> miette::Result<Claim> {
    let config = installation::find(config);
    let owner = config.canonicalize().unwrap_or(config);
    Claim::free(&installation::output_dir().join(kind), name, &owner.display().to_string())
}

/// Returns the names of a board's PMU events, or none if its description cannot be read: a log can be decoded without
/// them.
pub fn event_names(board: &str) -> EventNames {
    self::board(board).map_or_else(|_| EventNames::default(), |file| EventNames::of(&file.events))
}
