//! Where the checkout, the build outputs and the private cache are.

use std::env;
use std::path::{Path, PathBuf};

/// The target triple of the EL2 image and the guests.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";

/// The target triple of programs for Linux guests.
pub const LINUX_TARGET: &str = "aarch64-unknown-linux-gnu";

/// The root of the checkout.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => root().join(dir),
        _ => root().join("target"),
    }
}

/// Where a run leaves what it produced: reports, logs, images.
pub fn output_dir() -> PathBuf {
    target_dir().join("cloison")
}

/// Where what set-up made is kept between checkouts: `$XDG_CACHE_HOME/cloison` or `~/.cache/cloison`.
pub fn cache_dir() -> PathBuf {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
        _ => env::home_dir().unwrap_or_else(|| root().join("target")).join(".cache"),
    };
    base.join("cloison")
}

/// `path` as the user would type it from the checkout's root.
pub fn display(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
