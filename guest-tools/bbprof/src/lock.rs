//! The lock that allows one profiler at a time in a VM. It also keeps the number of the profiler's
//! lease, for the next one if this one is killed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The lock, which the kernel releases if the process dies.
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// The file that is locked. It is in memory, and gone after a restart of the VM, as the lease is.
const PATH: &str = "/run/bbprof.lock";

impl Lock {
    /// Takes the lock.
    pub fn take() -> Result<Self, Error> {
        Self::at(Path::new(PATH))
    }

    fn at(path: &Path) -> Result<Self, Error> {
        let wrong = |source| Error::File {
            what: "lock",
            path: path.to_owned(),
            source,
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                file,
                path: path.to_owned(),
            }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy),
            Err(TryLockError::Error(error)) => Err(wrong(error)),
        }
    }

    fn wrong(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = self.path.clone();
        move |source| Error::File { what, path, source }
    }

    /// Returns the number that the last holder left.
    pub fn read(&mut self) -> Result<Option<u64>, Error> {
        let mut text = String::new();
        self.file
            .seek(SeekFrom::Start(0))
            .map_err(self.wrong("read"))?;
        self.file
            .read_to_string(&mut text)
            .map_err(self.wrong("read"))?;
        // What a holder that was killed has written in part names no lease.
        Ok(text
            .strip_suffix('\n')
            .and_then(|number| number.parse().ok()))
    }

    /// Leaves a number for the next holder.
    pub fn write(&self, number: u64) -> Result<(), Error> {
        self.clear()?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .and_then(|_| writeln!(file, "{number}"))
            .map_err(self.wrong("write"))
    }

    /// Leaves nothing.
    pub fn clear(&self) -> Result<(), Error> {
        self.file.set_len(0).map_err(self.wrong("write"))
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
        assert!(matches!(
            Lock::at(&directory.path().join("no/such")),
            Err(Error::File { .. })
        ));
    }

    #[test]
    fn the_next_holder_finds_the_whole_number_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut lock = Lock::at(&path).unwrap();
        assert_eq!(lock.read().unwrap(), None);
        lock.write(1234).unwrap();
        lock.write(56).unwrap();
        drop(lock);
        let mut next = Lock::at(&path).unwrap();
        assert_eq!(next.read().unwrap(), Some(56));
        next.clear().unwrap();
        assert_eq!(next.read().unwrap(), None);
        for part in ["12", "", "x\n", "-1\n"] {
            std::fs::write(&path, part).unwrap();
            assert_eq!(next.read().unwrap(), None, "{part:?}");
        }
    }
}
