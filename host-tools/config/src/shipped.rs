//! What a configuration may refer to and does not hold: the shipped boards and event tables, and fetched kernels.

use crate::guest_linux::Flavor;
use std::fmt;
use std::path::{Path, PathBuf};

/// The board of a configuration that names none.
pub const DEFAULT_BOARD: &str = "virt";

/// Where a configuration's board and events are found when they do not lie beside it, and which kernels were fetched.
#[derive(Clone, Copy)]
pub struct Shipped<'a> {
    /// The directory with `boards/` and `events/`.
    pub configs: &'a Path,
    /// Returns the bytes of a Debian kernel if it was fetched before. One that was not is checked when it is fetched.
    pub kept_kernel: &'a dyn Fn(Flavor) -> Option<Vec<u8>>,
}

impl fmt::Debug for Shipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shipped").field("configs", &self.configs).finish_non_exhaustive()
    }
}

impl Shipped<'_> {
    /// Where board files are looked for: beside the configuration in `base`, then among the shipped ones.
    pub(crate) fn board_dirs(&self, base: &Path) -> [PathBuf; 2] {
        [base.join("boards"), self.configs.join("boards")]
    }
}
