//! Writes files without losing any: whole or not at all, never over an input, one command's never
//! over another's.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub use cloison_config::files::{
    CONFIGURATION, COUNTS, IMAGE, Kind, LOG, PROFILE, RESULT, ReadError,
};
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use thiserror::Error;

/// Errors that keep one file from being written over another.
#[derive(Debug, Error, Diagnostic)]
pub enum Conflict {
    /// An output is an input of the same command.
    #[error("{} is an input of this command and would be overwritten", output.display())]
    #[diagnostic(help("choose another name for the output"))]
    Input {
        /// The output's path.
        output: PathBuf,
    },
    /// Two outputs of a command are one file.
    #[error("{} and {} are the same file, for two outputs", one.display(), other.display())]
    #[diagnostic(help("give each output its own name"))]
    Twice {
        /// One output's path.
        one: PathBuf,
        /// The other's.
        other: PathBuf,
    },
    /// A directory has the results of another command or configuration.
    #[error("{} has the results of {owner}, and {wanted} would be mixed with them", directory.display())]
    #[diagnostic(help("give another directory with --out, or remove this one"))]
    Owned {
        /// The directory.
        directory: PathBuf,
        /// The owner of its results.
        owner: String,
        /// The owner of the results to write.
        wanted: String,
    },
    /// A directory has files that no command wrote as results.
    #[error("{} has files that are no results, such as {found}", directory.display())]
    #[diagnostic(help("give a new or an empty directory with --out"))]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// One of its files.
        found: String,
    },
}

/// Reads a whole file of this kind that a user has named.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be of that kind or cannot be read.
pub fn read(path: &Path, kind: Kind) -> Result<Vec<u8>> {
    cloison_config::files::read(path, kind)
        .map_err(|error| miette!("cannot read {}: {error}", path.display()))
}

/// Like [`read`], for text.
///
/// # Errors
///
/// Returns the errors of [`read`], and an error if it is not UTF-8.
pub fn read_text(path: &Path, kind: Kind) -> Result<String> {
    cloison_config::files::read_text(path, kind)
        .map_err(|error| miette!("cannot read {}: {error}", path.display()))
}

/// Writes `value` as JSON; see [`write_atomic`].
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).into_diagnostic()?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Returns a directory for files of this program, which is removed with the value.
///
/// # Errors
///
/// If it cannot be made.
pub fn scratch() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("cloison-")
        .tempdir()
        .into_diagnostic()
}

/// Writes a file. A regular one is written under a temporary name in its directory, which is made
/// if there is none, and renamed, so that no reader sees half of it; symbolic links are followed. A
/// device, a pipe and what is in /proc, as /dev/stdout and /dev/fd are, is opened and written to.
///
/// # Errors
///
/// Returns an error with the file's name if it cannot be written, is a directory or a disk, or is a
/// pipe without a reader.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    stream_atomic(path, |file| file.write_all(bytes))
}

/// Like [`write_atomic`], for bytes that `write` writes piece by piece.
///
/// # Errors
///
/// As [`write_atomic`], and the errors of `write`.
pub fn stream_atomic(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let written = || match target(path)? {
        Target::Replace(file) => replace(&file, write),
        Target::Open(file) => write(&mut open_for_writing(&file)?),
    };
    written()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write {}", path.display()))
}

/// Returns whether a file of this name is, or will be, a regular one, so that others can be written
/// beside it.
pub fn is_regular(path: &Path) -> bool {
    matches!(target(path), Ok(Target::Replace(_)))
}

/// How a path is written to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A regular file or nothing is here: a new file takes the place.
    Replace(PathBuf),
    /// A file that must stay the same file: a device or a pipe.
    Open(PathBuf),
}

/// Number of symbolic links that are followed, as Linux does.
const MOST_LINKS: usize = 40;

fn target(path: &Path) -> io::Result<Target> {
    let wrong = |what: &str| {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {what}"),
        ))
    };
    let mut place = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let parent = parent(&place).to_path_buf();
        // What is in /proc may be called like a file, but only its own entry leads to it.
        if parent
            .canonicalize()
            .is_ok_and(|parent| parent.starts_with("/proc"))
        {
            return Ok(Target::Open(place));
        }
        let kind = match std::fs::symlink_metadata(&place) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Target::Replace(place));
            }
            Err(error) => return Err(error),
        };
        if kind.is_symlink() {
            place = parent.join(std::fs::read_link(&place)?);
        } else if kind.is_file() {
            return Ok(Target::Replace(place));
        } else if kind.is_dir() {
            return wrong("a directory");
        } else if kind.is_block_device() {
            return wrong("a disk, whose contents would be lost");
        } else {
            return Ok(Target::Open(place));
        }
    }
    wrong("a circle of symbolic links")
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = parent(path);
    std::fs::create_dir_all(directory)?;
    // A new file has what the user's mask leaves of this; one that is replaced keeps its rights.
    let before = std::fs::metadata(path)
        .ok()
        .map(|metadata| metadata.permissions());
    let mut builder = tempfile::Builder::new();
    let mut file = builder
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    write(file.as_file_mut())?;
    if let Some(before) = before {
        file.as_file().set_permissions(before)?;
    }
    file.persist(path)?;
    Ok(())
}

/// Opens what is no regular file. A pipe may have nobody at its other end, so another thread opens
/// it; one that never returns is left alone and ends with the process.
fn open_for_writing(path: &Path) -> io::Result<File> {
    const PATIENCE: Duration = Duration::from_secs(4);
    let (sender, opened) = mpsc::sync_channel(1);
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        // Nobody waits for it any more if this fails.
        let _ = sender.send(OpenOptions::new().append(true).open(&path));
    });
    let silent = |_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("nobody reads it for {} s", PATIENCE.as_secs()),
        )
    };
    opened.recv_timeout(PATIENCE).map_err(silent)?
}

/// Checks that no output is an input of the same command, by whatever name, and that no two outputs
/// are one file.
///
/// # Errors
///
/// Returns the first conflict.
pub fn keep_apart<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Conflict> {
    let inputs: Vec<Identity> = inputs.into_iter().filter_map(Identity::of).collect();
    let mut seen: Vec<(Identity, &Path)> = Vec::new();
    for output in outputs {
        let Some(identity) = Identity::of(output) else {
            continue;
        };
        if inputs.contains(&identity) {
            return Err(Conflict::Input {
                output: output.to_path_buf(),
            });
        }
        if let Some((_, one)) = seen.iter().find(|(other, _)| *other == identity) {
            return Err(Conflict::Twice {
                one: one.to_path_buf(),
                other: output.to_path_buf(),
            });
        }
        seen.push((identity, output));
    }
    Ok(())
}

/// What makes a file the same as another: its number, or its place if it does not exist.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    File(u64, u64),
    Place(PathBuf),
}

impl Identity {
    /// Returns `None` for a device or a pipe, to which several outputs may go.
    fn of(path: &Path) -> Option<Self> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Some(Self::File(metadata.dev(), metadata.ino())),
            Ok(_) => None,
            Err(_) => {
                let directory = parent(path)
                    .canonicalize()
                    .unwrap_or_else(|_| parent(path).to_path_buf());
                Some(Self::Place(directory.join(path.file_name()?)))
            }
        }
    }
}

/// A directory that only this command writes to, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    directory: PathBuf,
    _lock: File,
}

/// The file in a claimed directory that says what its results are of, and whose lock is held
/// meanwhile.
const OWNER: &str = ".owner";

impl Claim {
    /// Claims `directory` for the results of `owner`. Waits while another command writes there.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory has the results of another owner, or cannot be written to.
    pub fn wait(directory: &Path, owner: &str) -> Result<Self> {
        let mut lock = open_owner(directory)?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            eprintln!(
                "waiting for another command that writes to {}",
                directory.display()
            );
        }
        let cannot = || miette!("cannot lock {}", directory.display());
        lock.lock().into_diagnostic().wrap_err_with(cannot)?;
        let found = read_owner(&mut lock)
            .into_diagnostic()
            .wrap_err_with(cannot)?;
        if !found.is_empty() && found != owner {
            let (directory, wanted) = (directory.to_path_buf(), owner.to_owned());
            return Err(Conflict::Owned {
                directory,
                owner: found,
                wanted,
            }
            .into());
        }
        lock.write_all(if found.is_empty() {
            owner.as_bytes()
        } else {
            b""
        })
        .into_diagnostic()
        .wrap_err_with(cannot)?;
        Ok(Self {
            directory: directory.to_path_buf(),
            _lock: lock,
        })
    }

    /// Like [`Self::wait`], for a directory that a user has named for results alone.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`], and if the directory has files that are no results.
    pub fn for_results(directory: &Path, owner: &str) -> Result<Self> {
        if let Some(found) = foreign(directory) {
            let directory = directory.to_path_buf();
            return Err(Conflict::Foreign { directory, found }.into());
        }
        Self::wait(directory, owner)
    }

    /// Claims a directory called `name` in `parent`. If another command is writing there, or the
    /// directory has the results of another owner, claims the first free one of `name-2`, `name-3`,
    /// …
    ///
    /// # Errors
    ///
    /// Returns an error if no directory can be written to.
    pub fn free(parent: &Path, name: &str, owner: &str) -> Result<Self> {
        for number in 1_u32.. {
            let directory = parent.join(if number == 1 {
                name.to_owned()
            } else {
                format!("{name}-{number}")
            });
            let mut lock = open_owner(&directory)?;
            let cannot = || miette!("cannot lock {}", directory.display());
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => {
                    return Err(error).into_diagnostic().wrap_err_with(cannot);
                }
            }
            let found = read_owner(&mut lock)
                .into_diagnostic()
                .wrap_err_with(cannot)?;
            if found.is_empty() {
                lock.write_all(owner.as_bytes())
                    .into_diagnostic()
                    .wrap_err_with(cannot)?;
            }
            if found.is_empty() || found == owner {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
        Err(miette!(
            "every directory {} is in use",
            parent.join(name).display()
        ))
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Returns the name of a file in a directory that has files, and none that results have.
fn foreign(directory: &Path) -> Option<String> {
    /// Results that were copied may have lost the owner's file.
    const OF_RESULTS: [&str; 5] = [OWNER, "report.html", "figures.json", "runs", "parts"];
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let has_results = names.iter().any(|name| OF_RESULTS.contains(&name.as_str()));
    names.into_iter().next().filter(|_| !has_results)
}

fn open_owner(directory: &Path) -> Result<File> {
    let open = || {
        std::fs::create_dir_all(directory)?;
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(directory.join(OWNER))
    };
    open()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write to {}", directory.display()))
}

fn read_owner(lock: &mut File) -> io::Result<String> {
    let mut text = String::new();
    lock.rewind()?;
    lock.take(1 << 16).read_to_string(&mut text)?;
    Ok(text)
}

/// The field of a kept result that has the SHA-256 of the others.
const SEAL: &str = "sha256";

/// Keeps a result, an object in JSON, with the SHA-256 of its contents.
///
/// # Errors
///
/// Returns an error if it cannot be written.
pub fn keep(path: &Path, result: &impl Serialize) -> Result<()> {
    let mut value = serde_json::to_value(result).into_diagnostic()?;
    let seal = sha256(value.to_string().as_bytes());
    value
        .as_object_mut()
        .ok_or_else(|| miette!("a kept result is an object"))?
        .insert(SEAL.to_owned(), seal.into());
    // There are hundreds of them, so they have no blanks.
    write_atomic(path, format!("{value}\n").as_bytes())
}

/// Returns a result that [`keep`] has written; `None` if there is none or it has changed since.
pub fn kept<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut value: Value =
        serde_json::from_slice(&cloison_config::files::read(path, RESULT).ok()?).ok()?;
    let seal = value.as_object_mut()?.shift_remove(SEAL)?;
    (seal.as_str()? == sha256(value.to_string().as_bytes()))
        .then(|| serde_json::from_value(value).ok())
        .flatten()
}

/// Returns the SHA-256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    digest(Sha256::new_with_prefix(bytes))
}

/// Returns the SHA-256 of all that was hashed, in hexadecimal.
pub fn digest(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
pub(crate) mod interleavings;
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    fn causes(result: miette::Result<()>) -> String {
        result
            .unwrap_err()
            .chain()
            .map(|cause| format!("{cause}. "))
            .collect()
    }

    #[test]
    fn regular_files_are_replaced_and_links_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        write_atomic(&path("deep/er/file"), b"one").unwrap();
        std::fs::set_permissions(path("deep/er/file"), Permissions::from_mode(0o600)).unwrap();
        std::fs::create_dir(path("links")).unwrap();
        symlink("../deep/er/file", path("links/link")).unwrap();
        symlink("link", path("links/second")).unwrap();
        symlink("new", path("links/dangling")).unwrap();
        symlink("self", path("links/self")).unwrap();
        write_atomic(&path("links/second"), b"two").unwrap();
        assert_eq!(std::fs::read(path("deep/er/file")).unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(path("deep/er/file"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        assert!(
            std::fs::symlink_metadata(path("links/second"))
                .unwrap()
                .is_symlink()
        );
        write_atomic(&path("links/dangling"), b"three").unwrap();
        assert_eq!(std::fs::read(path("links/new")).unwrap(), b"three");
        let message = |name: &str| causes(write_atomic(&path(name), b""));
        assert!(
            message("links/self").contains("a circle of symbolic links"),
            "{}",
            message("links/self")
        );
        assert!(
            message("deep").contains("it is a directory"),
            "{}",
            message("deep")
        );
        assert_eq!(
            std::fs::read_dir(path("deep/er")).unwrap().count(),
            1,
            "a temporary file was left"
        );
    }

    #[test]
    fn devices_and_pipes_stay_what_they_are() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(
            target(Path::new("/dev/null")).unwrap(),
            Target::Open("/dev/null".into())
        );
        symlink("/dev/null", scratch.path().join("null")).unwrap();
        write_atomic(&scratch.path().join("null"), b"gone").unwrap();
        assert!(
            std::fs::metadata("/dev/null")
                .unwrap()
                .file_type()
                .is_char_device()
        );
        let full = causes(write_atomic(Path::new("/dev/full"), b"x"));
        assert!(full.contains("No space left"), "{full}");
        assert!(
            std::fs::metadata("/dev/full")
                .unwrap()
                .file_type()
                .is_char_device()
        );
        let pipe = scratch.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let reader = Command::new("cat")
            .arg(&pipe)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        write_atomic(&pipe, b"through").unwrap();
        assert_eq!(reader.wait_with_output().unwrap().stdout, b"through");
        assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn descriptors_are_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let mut file = File::create(scratch.path().join("open")).unwrap();
        file.write_all(b"before ").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        write_atomic(&PathBuf::from(format!("/dev/fd/{descriptor}")), b"after").unwrap();
        assert_eq!(
            std::fs::read(scratch.path().join("open")).unwrap(),
            b"before after"
        );
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_output_is_no_input_and_no_other_output() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        std::fs::write(path("in"), "x").unwrap();
        std::fs::hard_link(path("in"), path("hard")).unwrap();
        symlink("in", path("soft")).unwrap();
        for name in ["in", "hard", "soft", "./in"] {
            let conflict = keep_apart([path("in").as_path()], [path(name).as_path()]);
            assert!(
                matches!(conflict, Err(Conflict::Input { .. })),
                "{name}: {conflict:?}"
            );
        }
        let twice = keep_apart(
            [path("in").as_path()],
            [path("out").as_path(), path("./out").as_path()],
        );
        assert!(matches!(twice, Err(Conflict::Twice { .. })), "{twice:?}");
        keep_apart(
            [path("in").as_path()],
            [
                path("out").as_path(),
                Path::new("/dev/null"),
                Path::new("/dev/null"),
            ],
        )
        .unwrap();
    }

    #[test]
    fn a_directory_has_one_writer_and_one_owner() {
        let scratch = tempfile::tempdir().unwrap();
        let name = |claim: &Claim| {
            claim
                .directory()
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        let first = Claim::free(scratch.path(), "run", "a").unwrap();
        let second = Claim::free(scratch.path(), "run", "a").unwrap();
        assert_eq!(
            (name(&first), name(&second)),
            ("run".into(), "run-2".into())
        );
        drop((first, second));
        assert_eq!(
            name(&Claim::free(scratch.path(), "run", "b").unwrap()),
            "run-3"
        );
        assert_eq!(
            name(&Claim::free(scratch.path(), "run", "a").unwrap()),
            "run"
        );
        std::fs::write(scratch.path().join("notes.txt"), "").unwrap();
        let mixed = Claim::for_results(scratch.path(), "a").unwrap_err();
        assert!(mixed.to_string().contains("such as notes.txt"), "{mixed}");
        std::fs::write(scratch.path().join("report.html"), "").unwrap();
        assert!(Claim::for_results(scratch.path(), "a").is_ok());
        let refused = Claim::wait(&scratch.path().join("run"), "b")
            .unwrap_err()
            .to_string();
        assert!(
            refused.ends_with("run has the results of a, and b would be mixed with them"),
            "{refused}"
        );
        let held = Claim::wait(&scratch.path().join("run"), "a").unwrap();
        let (directory, (sender, got)) = (scratch.path().join("run"), mpsc::channel());
        let waiter = std::thread::spawn(move || {
            sender.send(Claim::wait(&directory, "a").map(drop)).unwrap()
        });
        assert!(
            got.recv_timeout(Duration::from_millis(200)).is_err(),
            "two commands have one directory"
        );
        drop(held);
        got.recv().unwrap().unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn a_result_that_was_changed_is_not_believed() {
        #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
        struct Cycles {
            cycles: u64,
            ratio: f64,
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("result.json");
        assert_eq!(kept::<Cycles>(&path), None);
        let result = Cycles {
            cycles: 13_019_956,
            ratio: 0.1 + 0.2,
        };
        keep(&path, &result).unwrap();
        assert_eq!(kept(&path), Some(result));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("13019956", "13018826")).unwrap();
        assert_eq!(kept::<Cycles>(&path), None);
        std::fs::write(&path, r#"{"cycles": 1, "ratio": 1.0}"#).unwrap();
        assert_eq!(kept::<Cycles>(&path), None, "a result without its hash");
    }
}
