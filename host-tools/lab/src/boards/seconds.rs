//! The durations of a command's boots on this machine, for the next command's estimate.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::files::{self, write_json};
use cloison_engine::installation;
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the file, in the output directory.
const FILE: &str = "seconds.json";

/// Remembers the mean wall time of the boots for a report of this name. An estimate is not worth an
/// error: if it cannot be written, it is lost.
pub fn remember(what: &str, seconds: &[f64]) {
    remember_in(&installation::output_dir().join(FILE), what, seconds);
}

/// Returns the mean wall time of a boot for a report of this name in seconds, if one was made here.
pub fn expected(what: &str) -> Option<f64> {
    read(&installation::output_dir().join(FILE)).remove(what)
}

fn read(file: &Path) -> BTreeMap<String, f64> {
    let text = files::read_text(file, files::CONFIGURATION).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn remember_in(file: &Path, what: &str, seconds: &[f64]) {
    if seconds.is_empty() {
        return;
    }
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let mut all = read(file);
    all.insert(what.to_owned(), (mean * 1000.0).round() / 1000.0);
    let _ = write_json(file, &all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mean_is_remembered_and_a_damaged_file_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join(FILE);
        remember_in(&file, "experiment quota", &[1.0, 2.0]);
        remember_in(&file, "campaign kernels", &[60.0]);
        remember_in(&file, "experiment quota", &[]);
        assert_eq!(read(&file).get("experiment quota"), Some(&1.5));
        std::fs::write(&file, "{").unwrap();
        assert_eq!(read(&file).len(), 0);
        remember_in(&file, "campaign kernels", &[50.0, 70.0001]);
        assert_eq!(
            read(&file),
            BTreeMap::from([("campaign kernels".to_owned(), 60.0)])
        );
    }
}
