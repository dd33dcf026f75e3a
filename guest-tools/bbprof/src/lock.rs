//! One profiler at a time in a VM: two would change each other's pages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use std::fs::{File, TryLockError};
use std::path::Path;

/// The lock, which the kernel releases if the process dies.
pub struct Lock {
    _file: File,
}

/// The file that is locked.
const PATH: &str = "/run/bbprof.lock";

impl Lock {
    /// Takes the lock.
    pub fn take() -> Result<Self, Error> {
        Self::at(Path::new(PATH))
    }

    fn at(path: &Path) -> Result<Self, Error> {
        let wrong = |source| Error::File { what: "lock", path: path.to_owned(), source };
        let file = File::create(path).map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy),
            Err(TryLockError::Error(error)) => Err(wrong(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_until_the_first_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = Lock::at(&path).unwrap();
        assert!(matches!(Lock::at(&path), Err(Error::Busy)));
        drop(first);
        assert!(Lock::at(&path).is_ok());
        assert!(matches!(Lock::at(&directory.path().join("no/such")), Err(Error::File { .. })));
    }
}
