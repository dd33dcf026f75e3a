//! Writes files atomically.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Writes `value` as JSON, atomically.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).into_diagnostic()?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Writes a file under a temporary name in the same directory and renames it, so that no reader sees half of it.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(directory)?;
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o644));
        }
        let mut file = builder.tempfile_in(directory)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    };
    write().into_diagnostic().wrap_err_with(|| miette!("cannot write {}", path.display()))
}
