//! The directory that `cloison new` creates: its name, and its files from templates.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::LONGEST_NAME;
use cloison_engine::files::write_atomic;
use cloison_engine::installation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A new directory, and the name that its path gives.
pub struct Project {
    directory: PathBuf,
    /// Name of the guest or experiment.
    pub name: String,
}

impl Project {
    /// Checks path and name before anything is written.
    pub fn new(path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let starts = name.starts_with(|letter: char| letter.is_ascii_lowercase());
        let fits =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if !starts || name.len() > LONGEST_NAME || !name.chars().all(fits) {
            return Err(miette!(
                help = format!(
                    "VMs, programs and files get this name: a lowercase letter, then letters, \
                     digits and `-`, at most {LONGEST_NAME} in all"
                ),
                "`{name}` cannot be the name of a guest or an experiment"
            ));
        }
        if path.symlink_metadata().is_ok() {
            return Err(miette!(
                help = "choose another name",
                "{} exists already",
                path.display()
            ));
        }
        Ok(Self {
            directory: path.to_path_buf(),
            name,
        })
    }

    /// Returns how its files name the file `found`: relative to them if that is beside the
    /// project or below, so that both can be copied together.
    pub fn path_to(&self, found: &Path) -> PathBuf {
        let parent = match self.directory.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let beside = parent
            .canonicalize()
            .ok()
            .and_then(|parent| Some(Path::new("..").join(found.strip_prefix(parent).ok()?)));
        beside.unwrap_or_else(|| found.to_owned())
    }

    /// Writes a file, in which `@WORD@` is replaced by the value of `WORD`.
    pub fn write(&self, file: &str, template: &str, words: &[(&str, &str)]) -> Result<()> {
        let common = [("NAME", self.name.as_str())];
        let text = common
            .iter()
            .chain(words)
            .fold(template.to_owned(), |text, (word, value)| {
                text.replace(&format!("@{word}@"), value)
            });
        let path = self.directory.join(file);
        write_atomic(&path, text.as_bytes())?;
        if text.starts_with("#!") {
            let changed = std::fs::set_permissions(&path, Permissions::from_mode(0o755));
            changed
                .into_diagnostic()
                .wrap_err_with(|| miette!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Copies a file.
    pub fn copy(&self, file: &str, from: &Path) -> Result<()> {
        let bytes = std::fs::read(from)
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot read {}", from.display()))?;
        write_atomic(&self.directory.join(file), &bytes)
    }

    /// Writes several files, by name and template, with the same words.
    pub fn write_all(&self, files: &[(&str, &str)], words: &[(&str, &str)]) -> Result<()> {
        files
            .iter()
            .try_for_each(|(file, template)| self.write(file, template, words))
    }
}

/// Returns the command that starts this program again, from any directory.
pub fn program() -> Result<String> {
    let path = std::env::current_exe()
        .into_diagnostic()
        .wrap_err("cannot find this program's own file")?;
    Ok(path.display().to_string())
}

/// Returns the root of the checkout, without symbolic links, or `None` outside of one.
pub fn checkout() -> Option<PathBuf> {
    match installation::current() {
        installation::Installation::Checkout(root) => root.canonicalize().ok(),
        _ => None,
    }
}
