//! The files that a configuration may refer to: the shipped boards and event tables, and downloaded
//! kernels.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::guest_linux::{Flavor, Release};
use std::fmt;
use std::path::{Path, PathBuf};

/// The board of a configuration that does not name one.
pub const DEFAULT_BOARD: &str = "virt";

/// The location of boards and events that are not next to the configuration, and access to
/// downloaded kernels.
#[derive(Clone, Copy)]
pub struct Shipped<'a> {
    /// The directory with `boards/`, `maps/`, `events/` and `validation/`.
    pub configs: &'a Path,
    /// Returns the bytes of a Debian kernel if it has been downloaded. Otherwise it is checked
    /// after the download.
    pub kept_kernel: &'a dyn Fn(Release, Flavor) -> Option<Vec<u8>>,
}

impl fmt::Debug for Shipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shipped")
            .field("configs", &self.configs)
            .finish_non_exhaustive()
    }
}

impl Shipped<'_> {
    /// Returns the directories searched for board files: next to the configuration in `base`, then
    /// the shipped ones.
    pub(crate) fn board_dirs(&self, base: &Path) -> [PathBuf; 2] {
        [base.join("boards"), self.configs.join("boards")]
    }

    /// Returns the directories searched for guest maps, as for board files.
    pub(crate) fn map_dirs(&self, base: &Path) -> [PathBuf; 2] {
        [base.join("maps"), self.configs.join("maps")]
    }

    /// Returns the directory of the shipped verdicts on events.
    pub(crate) fn verdicts(&self) -> PathBuf {
        self.configs.join("validation/verdicts")
    }
}
