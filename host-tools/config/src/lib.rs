//! Cloison's configuration language: one TOML file per system, read and checked.
//!
//! It reads files and nothing else: no process, no network, no clock. Where boards, events and fetched kernels are,
//! the caller says ([`Shipped`]).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `node` | walks a TOML document with the place of every key and value |
//! | [`quantity`] | sizes, times, ranges and budgets as users write them |
//! | [`board`], `firmware`, [`emulation`], [`events`] | the files below `configs/boards` and `configs/events` |
//! | `system`, `vm`, `region`, `campaign`, `profile` | the configuration itself, its VMs, their memory, campaigns and page profiles |
//! | `vm_image`, `vm_linux`, [`sources`] | what a VM runs |
//! | `scene` | what the parts are checked against |
//! | [`guest_linux`], [`kernel`], [`layout`] | Linux guests: their description, the kernel's header, where everything lies |
//! | [`memory`] | pages that colors have, pages that pools ask for |
//! | [`shipped`] | what a configuration refers to and does not hold |
//! | [`checked`] | the result |
//! | [`problem`] | errors and warnings: file, line, column, field, what is wrong, how to fix it |
//!
//! All errors of a file are found in one go. `docs/configuration.md` is the reference of the language.
#![forbid(unsafe_code)]

pub mod board;
mod campaign;
pub mod checked;
pub mod emulation;
pub mod events;
mod firmware;
pub mod guest_linux;
pub mod kernel;
pub mod layout;
pub mod memory;
mod node;
pub mod problem;
mod profile;
pub mod quantity;
mod region;
mod scene;
pub mod shipped;
pub mod sources;
mod system;
mod vm;
mod vm_image;
mod vm_linux;

pub use board::BoardFile;
pub use checked::Checked;
pub use emulation::Emulation;
pub use problem::{Errors, Problem};
pub use shipped::Shipped;
pub use sources::ImageSource;

use problem::SourceFile;
use std::path::Path;

/// Reads and checks a configuration and the files that it names, for the board that it names or for another one.
///
/// # Errors
///
/// Returns all errors of the file, each with its place.
pub fn load(path: &Path, board: Option<&str>, shipped: &Shipped<'_>) -> Result<Checked, Errors> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let file = SourceFile::new(path, String::new());
        let problem = Problem::error(&file, "file", 0..0, format!("cannot read {}: {error}", file.name()))
            .help("name a configuration, such as configs/demo.toml");
        Errors::new(file.name(), vec![problem])
    })?;
    load_text(path, text, board, shipped)
}

/// As [`load`], for a text that is in the file `path`, or will be.
///
/// # Errors
///
/// Returns all errors of the text, each with its place.
pub fn load_text(path: &Path, text: String, board: Option<&str>, shipped: &Shipped<'_>) -> Result<Checked, Errors> {
    let file = SourceFile::new(path, text);
    let name = file.name().to_owned();
    system::load(path, file, board, shipped).map_err(|problems| Errors::new(&name, problems))
}
