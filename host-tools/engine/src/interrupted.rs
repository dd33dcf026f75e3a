//! What boots have sent when their command is interrupted: kept apart, and never read as a result.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::write_atomic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The file of a boot's directory that has its telemetry up to the interruption.
pub const FILE: &str = "interrupted.bin";

/// The boots that run now.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

struct Running {
    number: u64,
    /// The file to which QEMU writes the telemetry.
    telemetry: PathBuf,
    /// The directory of the boot's results.
    directory: PathBuf,
}

/// A boot whose telemetry is kept if the command is interrupted. Dropped at the end of the boot.
#[derive(Debug)]
#[must_use = "what is dropped is not kept"]
pub struct Watched {
    number: u64,
}

/// Watches a boot: its telemetry goes to this directory if the command is interrupted. Removes what
/// an earlier interruption left there.
pub fn watch(telemetry: &Path, directory: &Path) -> Watched {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // There is mostly none; one that cannot be removed is only out of date.
    let _ = std::fs::remove_file(directory.join(FILE));
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.push(Running {
        number,
        telemetry: telemetry.to_owned(),
        directory: directory.to_owned(),
    });
    Watched { number }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|boot| boot.number != self.number);
    }
}

/// Keeps what the watched boots have sent so far, up to the last whole message of each. Returns the
/// files, without boots that have sent nothing.
pub fn keep() -> Vec<PathBuf> {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running
        .iter()
        .filter_map(|boot| {
            let sent = std::fs::read(&boot.telemetry).ok()?;
            // A message ends with a zero byte.
            let end = sent.iter().rposition(|&byte| byte == 0)? + 1;
            let file = boot.directory.join(FILE);
            write_atomic(&file, &sent[..end]).ok()?;
            Some(file)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_kept_up_to_the_last_whole_message() {
        let scratch = tempfile::tempdir().expect("a directory");
        let at = |name: &str| {
            let directory = scratch.path().join(name);
            std::fs::create_dir(&directory).expect("a new one");
            directory
        };
        let [some, none, over] = ["some", "none", "over"].map(at);
        let sent = |name: &str, bytes: &[u8]| {
            let file = scratch.path().join(name);
            std::fs::write(&file, bytes).expect("written");
            file
        };
        std::fs::write(none.join(FILE), "of an earlier command").expect("written");
        let first = watch(&sent("1", &[3, 1, 2, 0, 2, 9, 0, 5, 4]), &some);
        let second = watch(&sent("2", &[5, 4]), &none);
        drop(watch(&sent("3", &[1, 0]), &over));
        let kept: Vec<PathBuf> = keep()
            .into_iter()
            .filter(|file| file.starts_with(scratch.path()))
            .collect();
        assert_eq!(kept, [some.join(FILE)]);
        assert_eq!(
            std::fs::read(&kept[0]).expect("kept"),
            [3, 1, 2, 0, 2, 9, 0]
        );
        assert!(!none.join(FILE).exists() && !over.join(FILE).exists());
        drop((first, second));
    }
}
