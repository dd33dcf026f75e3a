//! Cloison's configuration language: one TOML file per system, read and validated.
//!
//! The crate only reads files: it starts no process and uses neither network nor clock. The caller
//! provides the location of boards, events and downloaded kernels ([`Shipped`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`document`] | reads TOML files: every key and value with its position, all errors of a file at once |
//! | `kind`, `foreign` | what a file is: a system, an experiment, a profile and others; a configuration of another hypervisor |
//! | `page` | addresses of pages |
//! | `names` | names of VMs, regions, pools, channels and memories |
//! | [`quantity`] | sizes, times, ranges and budgets as users write them |
//! | [`board`], [`boot_files`], [`devices`], `firmware`, [`emulation`] | the files below `configs/boards` |
//! | [`guest_map`] | the files below `configs/maps` |
//! | [`events`], [`event_map`] | the files below `configs/events` |
//! | [`validation`] | which events can be trusted: expectations, hypotheses, verdicts |
//! | [`trust`] | which events quotas may count on which machine |
//! | [`files`] | reads files with a limit for each kind, and finds these by name |
//! | `system`, `vm`, `region`, `campaign`, `profile` | the configuration itself, its VMs, their memory, campaigns and page profiles |
//! | `telemetry` | by which line a system's telemetry leaves |
//! | `eemi` | what a VM may ask of the board's firmware |
//! | `channel`, `doorbell` | memory that VMs share, and how they call each other |
//! | `vm_image`, `vm_linux`, [`sources`], [`executable`] | the image of a VM, and the ELF file that it may be |
//! | [`goal`] | what a VM must reach beside its neighbors, and what `tune` may change for it |
//! | `scene` | the context in which parts are validated |
//! | [`guest_linux`], [`kernel`], [`layout`] | Linux guests: description, the kernel's header, memory layout |
//! | [`memory`] | the number of pages that colors have and that pools need |
//! | [`shipped`] | files that a configuration refers to |
//! | [`checked`] | the result |
//! | [`problem`] | errors and warnings: file, line, column, field, what is wrong, how to fix it |
//!
//! One check reports all errors of a file. `docs/configuration.md` is the reference of the
//! language.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod board;
pub mod boot_files;
mod campaign;
mod channel;
pub mod checked;
pub mod devices;
pub mod document;
mod doorbell;
mod eemi;
pub mod emulation;
pub mod event_map;
pub mod events;
pub mod executable;
pub mod files;
pub mod firmware;
mod foreign;
pub mod goal;
pub mod guest_linux;
pub mod guest_map;
pub mod kernel;
mod kind;
pub mod layout;
mod link;
mod manage;
pub mod memory;
mod names;
mod page;
mod pools;
pub mod problem;
mod profile;
pub mod quantity;
mod quota;
mod ranges;
mod region;
mod scene;
pub mod shipped;
mod smmu;
pub mod sources;
mod system;
mod telemetry;
pub mod trust;
pub mod validation;
mod vm;
mod vm_image;
mod vm_linux;

pub use board::BoardFile;
pub use checked::Checked;
pub use document::suggest;
pub use emulation::Emulation;
pub use foreign::Foreign;
pub use kind::FileKind;
pub use names::LONGEST_NAME;
pub use problem::{Errors, Problem};
pub use shipped::Shipped;
pub use sources::ImageSource;

use problem::SourceFile;
use std::path::Path;

/// Reads and validates a configuration and the files that it names. `board` replaces the board that
/// it names.
///
/// # Errors
///
/// Returns all errors of the file with their positions.
pub fn load(path: &Path, board: Option<&str>, shipped: &Shipped<'_>) -> Result<Checked, Errors> {
    let file = document::open(path, "name a configuration, such as configs/demo.toml")?;
    load_file(path, file, board, shipped)
}

/// Like [`load`], for a text that is, or will be, in the file `path`.
///
/// # Errors
///
/// Returns all errors of the text with their positions.
pub fn load_text(
    path: &Path,
    text: String,
    board: Option<&str>,
    shipped: &Shipped<'_>,
) -> Result<Checked, Errors> {
    load_file(path, SourceFile::new(path, text), board, shipped)
}

fn load_file(
    path: &Path,
    file: SourceFile,
    board: Option<&str>,
    shipped: &Shipped<'_>,
) -> Result<Checked, Errors> {
    let name = file.name().to_owned();
    system::load(path, file, board, shipped).map_err(|problems| Errors::new(&name, problems))
}
