//! A folder of this process, for parsers that read files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::LazyLock;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // In memory where there is such a place. A process that a limit ends leaves it, so the next one
    // with this number takes it over.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let folder = parent.join(format!("cloison-parsers-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder for files");
    folder
});

/// Writes a file with this name, and returns its path.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = FOLDER.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).expect("a folder for a file");
    }
    fs::write(&path, bytes).expect("room for a file");
    path
}

/// Removes the folder.
pub fn remove() {
    // One that was never made cannot be removed.
    _ = fs::remove_dir_all(&*FOLDER);
}
