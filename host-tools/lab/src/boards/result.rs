//! The file with a boot's output: complete and of the inputs in its name, or refused.
//!
//! It is compressed with gzip. Unpacked, the first line of text is a [`Head`] in JSON, the second
//! the SHA-256 of the head and of the rest: console, telemetry and the model's statistics, with the
//! lengths that the head gives.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::boot::Output;
use cloison_engine::files::{self, sha256};
use cloison_engine::qemu::Exit;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Extension of such files.
pub const EXTENSION: &str = "result";
/// Version of the format.
const VERSION: u32 = 1;

/// The first line of a file: its key, run, machine and lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    version: u32,
    /// Key of the boot.
    pub key: String,
    /// The report's subject, and the run in it.
    pub run: String,
    /// Name of the machine that started the board.
    pub machine: String,
    /// Wall time of QEMU.
    pub seconds: f64,
    /// Bytes of console, telemetry and statistics.
    lengths: [u64; 3],
}

/// Why a result cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum ResultError {
    /// There is no file.
    #[error("it has not been run")]
    Missing,
    /// The file is not one that was written whole.
    #[error("its result is damaged: {why}")]
    Damaged {
        /// The mistake in it.
        why: String,
    },
    /// The file has the output of another boot.
    #[error("it is of other inputs: {run}, key {key}")]
    Foreign {
        /// The run that it is of.
        run: String,
        /// The key of that.
        key: String,
    },
}

/// Returns the path of the result with this key.
pub fn path(directory: &Path, key: &str) -> PathBuf {
    directory.join(format!("{key}.{EXTENSION}"))
}

/// Writes a result with one rename at the end, when all of it is on the disk. `run` names the run.
///
/// # Errors
///
/// If it cannot be written; then there is no new file, and an older one is unchanged.
pub fn write(path: &Path, key: &str, run: &str, output: &Output) -> io::Result<()> {
    let statistics = output.statistics.as_deref().unwrap_or_default();
    let bodies = [output.console.as_bytes(), &output.telemetry, statistics];
    let head = Head {
        version: VERSION,
        key: key.to_owned(),
        run: run.to_owned(),
        machine: machine(),
        seconds: output.seconds,
        lengths: bodies.map(|body| body.len() as u64),
    };
    let mut text = serde_json::to_vec(&head)?;
    text.push(b'\n');
    let seal = sha256(&[&text, &bodies.concat()[..]].concat());
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    let mut encoder = GzEncoder::new(file.as_file_mut(), Compression::fast());
    for bytes in [&text[..], seal.as_bytes(), b"\n"]
        .into_iter()
        .chain(bodies)
    {
        encoder.write_all(bytes)?;
    }
    encoder.finish()?;
    // A full disk, or that of another machine, may report its error only now.
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Reads the output of the boot with this key. Only boards that turned themselves off have a
/// result.
///
/// # Errors
///
/// If there is none, it has changed since it was written, or it is of another boot.
pub fn read(path: &Path, key: &str) -> Result<Output, ResultError> {
    let (head, mut body) = open(path)?;
    if head.key != key {
        return Err(ResultError::Foreign {
            run: head.run,
            key: head.key,
        });
    }
    // Their sum is the body's length, so that nothing is cut off here.
    let [console, telemetry, _] = head
        .lengths
        .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let statistics = body.split_off(console + telemetry);
    let telemetry = body.split_off(console);
    Ok(Output {
        exit: Exit::Code(0),
        console: String::from_utf8(body).map_err(|_| damaged("its console is no text"))?,
        telemetry,
        statistics: (!statistics.is_empty()).then_some(statistics),
        errors: String::new(),
        seconds: head.seconds,
    })
}

/// Reads a file's head, and checks the whole file.
///
/// # Errors
///
/// If there is none, or it has changed since it was written.
pub fn head(path: &Path) -> Result<Head, ResultError> {
    open(path).map(|(head, _)| head)
}

fn damaged(why: impl ToString) -> ResultError {
    ResultError::Damaged {
        why: why.to_string(),
    }
}

fn open(path: &Path) -> Result<(Head, Vec<u8>), ResultError> {
    let packed = match cloison_config::files::read(path, files::RESULT) {
        Ok(packed) => packed,
        Err(files::ReadError::Missing) => return Err(ResultError::Missing),
        Err(error) => return Err(damaged(error)),
    };
    if packed.is_empty() {
        return Err(damaged("it is empty"));
    }
    let mut bytes = vec![];
    let most = files::RESULT.most;
    GzDecoder::new(packed.as_slice())
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(damaged)?;
    if bytes.len() as u64 > most {
        return Err(damaged("it is longer than any result"));
    }
    let line = |bytes: &[u8]| {
        bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .map(|at| at + 1)
    };
    let end = line(&bytes).ok_or_else(|| damaged("it has no head"))?;
    let head: Head = serde_json::from_slice(&bytes[..end]).map_err(damaged)?;
    if head.version != VERSION {
        return Err(damaged(format!(
            "it has version {}, and this program reads {VERSION}",
            head.version
        )));
    }
    let start = end + line(&bytes[end..]).ok_or_else(|| damaged("it has no seal"))?;
    let seal = bytes[end..start - 1].to_vec();
    bytes.drain(end..start);
    let length = head
        .lengths
        .iter()
        .try_fold(0, |sum: u64, length| sum.checked_add(*length));
    if length != Some((bytes.len() - end) as u64) || seal != sha256(&bytes).as_bytes() {
        return Err(damaged("its contents are not those that were written"));
    }
    bytes.drain(..end);
    Ok((head, bytes))
}

/// Returns the name of this machine.
pub fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() {
        "unknown".to_owned()
    } else {
        name.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> Output {
        Output {
            exit: Exit::Code(0),
            console: "line\n".repeat(100),
            telemetry: (0..=255).cycle().take(5000).collect(),
            statistics: Some(b"{}".to_vec()),
            errors: String::new(),
            seconds: 0.25,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let file = path(&scratch.path().join("deep/er"), "0123");
        assert!(matches!(read(&file, "0123"), Err(ResultError::Missing)));
        write(&file, "0123", "experiment c2is: solo", &output()).unwrap();
        assert_eq!(read(&file, "0123").unwrap(), output());
        let none = Output {
            statistics: None,
            console: String::new(),
            ..output()
        };
        write(&file, "0123", "experiment c2is: solo", &none).unwrap();
        assert_eq!(read(&file, "0123").unwrap(), none);
        assert_eq!(
            std::fs::read_dir(file.parent().unwrap()).unwrap().count(),
            1,
            "a temporary file was left"
        );
        let found = head(&file).unwrap();
        assert_eq!(
            (found.key.as_str(), found.run.as_str()),
            ("0123", "experiment c2is: solo")
        );
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let file = path(scratch.path(), "0123");
        write(&file, "0123", "solo", &output()).unwrap();
        let whole = std::fs::read(&file).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&file, &whole[..length]).unwrap();
            assert!(
                matches!(read(&file, "0123"), Err(ResultError::Damaged { .. })),
                "{length} bytes"
            );
        }
        // Bits that mean nothing to gzip, in its header and before its checksum, change nothing.
        let mut harmless = 0;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&file, &changed).unwrap();
            match read(&file, "0123") {
                Ok(found) => {
                    assert_eq!(found, output(), "byte {at}");
                    harmless += 1;
                }
                Err(error) => assert!(
                    matches!(error, ResultError::Damaged { .. }),
                    "byte {at}: {error}"
                ),
            }
        }
        assert!(harmless <= 10, "{harmless} of {} bytes", whole.len());
    }

    #[test]
    fn the_output_of_another_boot_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let file = path(scratch.path(), "0123");
        write(&file, "4567", "experiment quota: budget=1000", &output()).unwrap();
        let error = read(&file, "0123").unwrap_err().to_string();
        assert_eq!(
            error,
            "it is of other inputs: experiment quota: budget=1000, key 4567"
        );
    }

    /// The lengths in a head are checked before anything is cut by them.
    #[test]
    fn a_head_whose_lengths_lie_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = path(scratch.path(), "0123");
        write(&file, "0123", "solo", &output()).unwrap();
        let mut plain = String::new();
        let bare = Output {
            telemetry: b"x".to_vec(),
            ..output()
        };
        write(&file, "0123", "solo", &bare).unwrap();
        GzDecoder::new(std::fs::File::open(&file).unwrap())
            .read_to_string(&mut plain)
            .unwrap();
        let (head, rest) = plain.split_once('\n').unwrap();
        let (_, body) = rest.split_once('\n').unwrap();
        for lengths in ["[1,1,1]", "[18446744073709551615,504,1]", "[504,0,0]"] {
            let start = head.find("\"lengths\":").unwrap();
            let head = format!("{}\"lengths\":{lengths}}}\n", &head[..start]);
            let text = format!(
                "{head}{}\n{body}",
                sha256(format!("{head}{body}").as_bytes())
            );
            let mut encoder = GzEncoder::new(vec![], Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            std::fs::write(&file, encoder.finish().unwrap()).unwrap();
            assert!(
                matches!(read(&file, "0123"), Err(ResultError::Damaged { .. })),
                "{lengths}"
            );
        }
    }
}
