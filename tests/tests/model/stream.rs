//! The guest `stream`, for tests and the benchmark.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::common::{build_guest, machine};
use cloison_engine::qemu::Outcome;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Parameters of the guest `stream`.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Accesses of core 0 per pass.
    pub accesses: u64,
    /// Number of passes.
    pub passes: u64,
    /// Number of cores; all except core 0 are rivals.
    pub cores: u64,
    /// Bytes between two accesses.
    pub stride: u64,
    /// Refills after which an overflow interrupt is expected; 0 for none.
    pub overflow: u64,
    /// Run without a region of interest.
    pub outside: bool,
}

/// Boots the guest `stream` on a board with these plugin arguments, or without the plugin.
pub fn boot(directory: &Path, plugin_arguments: Option<&str>, what: Guest) -> Outcome {
    static GUEST: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, guest) = GUEST.get_or_init(|| {
        let place = TempDir::new().expect("a directory");
        let guest = build_guest(place.path(), "stream");
        (place, guest)
    });
    let values = [
        what.accesses,
        what.passes,
        what.cores,
        what.stride,
        what.overflow,
        u64::from(what.outside),
    ];
    machine(directory, plugin_arguments, guest, &values)
        .run()
        .expect("QEMU runs")
}
