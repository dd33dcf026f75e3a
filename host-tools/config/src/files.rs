//! Finds configuration files by name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

/// Returns the names of the TOML files in a directory, without the extension, sorted; none if it cannot be read.
pub fn available(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    names
}
