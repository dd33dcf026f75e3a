//! What the user wants of an import, and the machine that it is for.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::c::Settings;
use cloison_config::{BoardFile, Checked, Errors};
use cloison_formats::guest_map::GuestMap;
use std::path::PathBuf;

/// What the user says about an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The board, if not the one with the source's interrupt distributor.
    pub board: Option<String>,
    /// The hypervisor's colors, a bit each, if not the source's or free ones.
    pub hypervisor_colors: Option<u64>,
    /// Headers and macros.
    pub settings: Settings,
    /// Files of images, by the VM's or the source's name.
    pub images: Vec<(String, PathBuf)>,
    /// Folder with images, under the names that the source has.
    pub folder: Option<PathBuf>,
    /// The workload that runs instead of images that are not here.
    pub stand_in: Option<String>,
    /// The directory of the written configuration, to which its paths are relative.
    pub base: PathBuf,
}

/// The machine that an import is for, and the check that its result must pass.
pub struct Target<'a> {
    /// All boards to choose from.
    pub boards: &'a [BoardFile],
    /// The board of sources that no other one fits.
    pub default: &'a str,
    /// The maps that a guest can see, with their names.
    pub maps: &'a [(String, GuestMap)],
    /// Checks the text of a configuration.
    pub check: &'a dyn Fn(String) -> Result<Checked, Errors>,
}
