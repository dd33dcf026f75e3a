//! The places and names of expected texts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

/// Returns settings for snapshots in a directory, named by the macro's argument alone.
pub fn settings(directory: PathBuf) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(directory);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}
