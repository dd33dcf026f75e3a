//! Configurations of this installation: read with its boards, its events and the kernels that it has fetched.

use crate::installation;
use crate::linux::packages;
use cloison_config::events::EventNames;
use cloison_config::guest_linux::Flavor;
use cloison_config::{BoardFile, Checked, Errors, Shipped};
use std::path::{Path, PathBuf};

/// Where the shipped boards, events, models and systems are.
pub fn directory() -> PathBuf {
    installation::root().join("configs")
}

fn kept_kernel(flavor: Flavor) -> Option<Vec<u8>> {
    std::fs::read(packages::kept_kernel(flavor)?.path).ok()
}

/// Reads and checks a configuration, for the board that it names or for another one. A path that leads nowhere from the
/// current directory is looked for among the shipped ones.
///
/// # Errors
///
/// Returns all errors of the file, each with its place.
pub fn load(path: &Path, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped { configs: &directory(), kept_kernel: &kept_kernel };
    cloison_config::load(&installation::find(path), board, &shipped)
}

/// As [`load`], for a text that is in the file `path`, or will be.
///
/// # Errors
///
/// Returns all errors of the text, each with its place.
pub fn load_text(path: &Path, text: String, board: Option<&str>) -> Result<Checked, Errors> {
    let shipped = Shipped { configs: &directory(), kept_kernel: &kept_kernel };
    cloison_config::load_text(path, text, board, &shipped)
}

/// The names that a board's CPU gives its events, or none where its description cannot be read: a log can be decoded
/// without it.
pub fn event_names(board: &str) -> EventNames {
    let path = directory().join("boards").join(format!("{board}.toml"));
    let file = BoardFile::load(&path, &directory().join("events"));
    file.map_or_else(|_| EventNames::default(), |file| EventNames::of(&file.events))
}
