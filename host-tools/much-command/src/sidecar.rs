//! What a file of measurements does not say itself: `FILE.much.toml` beside it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::{Result, miette};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to do with scaled counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaledArg {
    /// Refuse the file (default)
    Refuse,
    /// Take them as missing, which leaves their runs out
    LeaveOut,
    /// Use them, with a warning
    Keep,
}

/// The contents of the file; the options of the commands go before them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// What to do with scaled counts.
    #[serde(default)]
    pub scaled: Option<ScaledArg>,
    /// Columns, events or regions that are not read.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// Names of events in the file, and those that they get.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
}

impl Sidecar {
    /// Returns the path of the file beside an input.
    pub fn path(input: &Path) -> PathBuf {
        let mut name = input.file_name().unwrap_or_default().to_owned();
        name.push(".much.toml");
        input.with_file_name(name)
    }

    /// Reads the file beside an input, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not as described.
    pub fn beside(input: &Path) -> Result<Self> {
        let path = Self::path(input);
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| miette!("cannot read {}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| {
            miette!(
                help = "it may have `scaled`, `ignore = [..]` and a table [names]",
                "{}: {}",
                path.display(),
                error.to_string().trim_end()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_beside_an_input_is_read_and_its_mistakes_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("counts.csv");
        let beside = || Sidecar::beside(&input);
        assert!(beside().expect("none").names.is_empty());
        let write = |text: &str| std::fs::write(folder.path().join("counts.csv.much.toml"), text);
        write("scaled = \"keep\"\nignore = [\"host\"]\n[names]\nr11 = \"CPU_CYCLES\"\n")
            .expect("written");
        let read = beside().expect("a file");
        assert_eq!((read.scaled, read.ignore.len()), (Some(ScaledArg::Keep), 1));
        assert_eq!(read.names["r11"], "CPU_CYCLES");
        write("scaled = \"often\"\n").expect("written");
        let error = beside().expect_err("a mistake").to_string();
        assert!(
            error.contains("counts.csv.much.toml") && error.contains("often"),
            "{error}"
        );
    }
}
