//! Reads the files that users name, with a limit for each kind, and finds configuration files by
//! name.
//!
//! A command must neither read for ever nor fill the memory, whatever path it gets: `/dev/zero`, a
//! pipe that nobody writes to, a disk image. So a file has at most the length of its [`Kind`],
//! devices are refused, and a pipe is read only while bytes arrive.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::quantity::show_size;
use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A kind of file, and its maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in messages, with its article.
    pub what: &'static str,
    /// Its maximum length in bytes.
    pub most: u64,
}

/// Configurations, boards, event tables, models, experiments and campaigns: the longest shipped one
/// has 20 KiB.
pub const CONFIGURATION: Kind = Kind {
    what: "a configuration",
    most: 1 << 20,
};
/// Page profiles: 30 bytes for each of half a million pages.
pub const PROFILE: Kind = Kind {
    what: "a page profile",
    most: 16 << 20,
};
/// Guest images, kernels, RAM disks and programs: more than a system image can hold.
pub const IMAGE: Kind = Kind {
    what: "an image",
    most: 1 << 30,
};
/// Captured telemetry: two days of a busy UART at 115,200 bits per second.
pub const LOG: Kind = Kind {
    what: "a telemetry log",
    most: 2 << 30,
};
/// Event counts and vectors.
pub const COUNTS: Kind = Kind {
    what: "a table of counts",
    most: 8 << 30,
};
/// Results that an earlier command kept.
pub const RESULT: Kind = Kind {
    what: "a kept result",
    most: 256 << 20,
};

/// How long a pipe may be silent, and how long it may take to its end.
const SILENCE: Duration = Duration::from_secs(4);
const PIPE: Duration = Duration::from_secs(60);

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is no file of this name.
    #[error("it does not exist")]
    Missing,
    /// The user may not read it.
    #[error("permission denied")]
    Denied,
    /// It is something else than a file.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It is longer than any file of its kind.
    #[error("{what} has at most {}, and this is longer", show_size(*most))]
    TooLong {
        /// The expected kind of file.
        what: &'static str,
        /// The limit in bytes.
        most: u64,
    },
    /// No byte arrives from a pipe.
    #[error("nothing has been written to this pipe for {} s", .0.as_secs())]
    Silent(Duration),
    /// A pipe is still being written to after this time.
    #[error("this pipe has not ended after {} s", .0.as_secs())]
    Endless(Duration),
    /// It is not text.
    #[error("byte {at} is not UTF-8 text")]
    NotText {
        /// Offset of the first byte that cannot be.
        at: usize,
    },
    /// The operating system's own error.
    #[error("{0}")]
    Failed(#[source] io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::IsADirectory => Self::NotAFile("a directory"),
            _ => Self::Failed(error),
        }
    }
}

/// Reads a whole file of this kind.
///
/// # Errors
///
/// Returns an error if it is too long, a device or a directory, if a pipe is silent, or if the
/// system cannot read it.
pub fn read(path: &Path, kind: Kind) -> Result<Vec<u8>, ReadError> {
    let metadata = std::fs::metadata(path)?;
    if is_pipe(metadata.file_type())? {
        return read_pipe(path, kind, SILENCE);
    }
    // A file may grow while it is read, and one in /proc has no length.
    if metadata.len() > kind.most {
        return Err(too_long(kind));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    File::open(path)?
        .take(kind.most + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > kind.most {
        Err(too_long(kind))
    } else {
        Ok(bytes)
    }
}

/// Reads a whole text of this kind.
///
/// # Errors
///
/// Returns the errors of [`read`], and an error if it is not UTF-8 or contains a zero byte.
pub fn read_text(path: &Path, kind: Kind) -> Result<String, ReadError> {
    let bytes = read(path, kind)?;
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(ReadError::NotText { at });
    }
    String::from_utf8(bytes).map_err(|error| ReadError::NotText {
        at: error.utf8_error().valid_up_to(),
    })
}

fn too_long(kind: Kind) -> ReadError {
    ReadError::TooLong {
        what: kind.what,
        most: kind.most,
    }
}

/// Returns whether it is a pipe rather than a regular file. Everything else is refused.
fn is_pipe(kind: FileType) -> Result<bool, ReadError> {
    if kind.is_file() || kind.is_fifo() {
        return Ok(kind.is_fifo());
    }
    Err(ReadError::NotAFile(if kind.is_dir() {
        "a directory"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }))
}

/// Reads a pipe to its end. Opening one waits for a writer, so another thread does it; one that
/// never returns is left alone and ends with the process.
fn read_pipe(path: &Path, kind: Kind, silence: Duration) -> Result<Vec<u8>, ReadError> {
    let (sender, chunks) = mpsc::sync_channel::<io::Result<Vec<u8>>>(1);
    let path: PathBuf = path.to_path_buf();
    std::thread::spawn(move || {
        let pass_on = || -> io::Result<()> {
            let mut pipe = File::open(&path)?;
            loop {
                let mut chunk = vec![0; 1 << 16];
                let length = pipe.read(&mut chunk)?;
                chunk.truncate(length);
                if length == 0 || sender.send(Ok(chunk)).is_err() {
                    return Ok(());
                }
            }
        };
        if let Err(error) = pass_on() {
            // Nobody waits for it any more if this fails.
            let _ = sender.send(Err(error));
        }
    });
    let (mut bytes, started) = (Vec::new(), Instant::now());
    loop {
        match chunks.recv_timeout(silence) {
            Ok(chunk) => bytes.extend(chunk?),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(bytes),
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(ReadError::Silent(silence)),
        }
        if bytes.len() as u64 > kind.most {
            return Err(too_long(kind));
        }
        if started.elapsed() > PIPE {
            return Err(ReadError::Endless(PIPE));
        }
    }
}

/// Returns the names of the TOML files in a directory, without the extension, sorted; none if it
/// cannot be read.
pub fn available(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            Some(
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".toml")?
                    .to_owned(),
            )
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::process::Command;

    const SHORT: Kind = Kind {
        what: "a test",
        most: 100,
    };

    #[test]
    fn what_cannot_be_a_file_of_the_kind_is_refused_at_once() {
        let message = |path: &Path, kind| read(path, kind).unwrap_err().to_string();
        let scratch = tempfile::tempdir().unwrap();
        let sparse = scratch.path().join("sparse");
        File::create(&sparse).unwrap().set_len(20 << 30).unwrap();
        let started = Instant::now();
        assert_eq!(
            message(Path::new("/dev/zero"), SHORT),
            "it is a device, not a file"
        );
        assert_eq!(
            message(scratch.path(), SHORT),
            "it is a directory, not a file"
        );
        assert_eq!(
            message(&scratch.path().join("none"), SHORT),
            "it does not exist"
        );
        assert_eq!(
            message(&sparse, IMAGE),
            "an image has at most 1 GiB, and this is longer"
        );
        // Its length is reported as 0.
        assert_eq!(
            message(Path::new("/proc/self/maps"), SHORT),
            "a test has at most 100 bytes, and this is longer"
        );
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{:?}",
            started.elapsed()
        );
        std::fs::write(scratch.path().join("text"), "a = '\u{e4}'").unwrap();
        assert_eq!(
            read_text(&scratch.path().join("text"), SHORT).unwrap(),
            "a = '\u{e4}'"
        );
        for (bytes, at) in [(b"ab\xffd".as_slice(), 2), (b"\0\0", 0)] {
            std::fs::write(scratch.path().join("text"), bytes).unwrap();
            let error = read_text(&scratch.path().join("text"), SHORT).unwrap_err();
            assert_eq!(error.to_string(), format!("byte {at} is not UTF-8 text"));
        }
    }

    #[test]
    fn pipes_are_read_while_something_comes() {
        let scratch = tempfile::tempdir().unwrap();
        let pipe = scratch.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let silence = Duration::from_millis(100);
        let silent = read_pipe(&pipe, SHORT, silence);
        assert!(matches!(silent, Err(ReadError::Silent(_))), "{silent:?}");
        // The read that was given up still waits for a writer, so each of these has its own pipe.
        let written = |length: usize| {
            let path = scratch.path().join(length.to_string());
            assert!(
                Command::new("mkfifo")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
            let other_end = path.clone();
            std::thread::spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(&other_end).unwrap();
                // The reader may have had enough.
                let _ = pipe.write_all(&vec![b'x'; length]);
            });
            read(&path, SHORT).map(|bytes| bytes.len())
        };
        assert_eq!(written(40).unwrap(), 40);
        assert!(matches!(
            written(400),
            Err(ReadError::TooLong { most: 100, .. })
        ));
    }
}
