//! Where expected texts are, and how they are called.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

/// Settings for snapshots in a directory, named by what is given to the macro alone.
pub fn settings(directory: PathBuf) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(directory);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}
