//! The serial lines of a board in QEMU: files, and the console, which may carry the telemetry too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::telemetry::between::{Parts, Separator};
use cloison_config::Emulation;
use cloison_config::emulation::Serial;
use miette::{IntoDiagnostic, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where QEMU leaves what it sends on the board's other lines.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The telemetry.
    pub telemetry: PathBuf,
    /// A UART that a configuration has freed for a VM.
    pub uart: PathBuf,
}

impl Lines {
    /// Returns the files in a directory.
    pub fn below(directory: &Path) -> Self {
        Self {
            telemetry: directory.join("telemetry.bin"),
            uart: directory.join("uart.txt"),
        }
    }
}

/// Returns a serial port's back end that writes to a file.
pub(crate) fn to_file(path: &Path) -> OsString {
    let mut file = OsString::from("file:");
    file.push(path);
    file
}

/// Pause between two reads of a console. QEMU writes each byte by itself, and would wake the reader
/// for each.
const PAUSE: Duration = Duration::from_millis(1);

/// The console of a board: text alone, or with telemetry that goes to a file.
pub(crate) struct Console(Option<(Separator, File)>);

impl Console {
    /// Returns what reads the console of this board.
    ///
    /// # Errors
    ///
    /// If the file of the telemetry cannot be created.
    pub fn of(board: &Emulation, lines: &Lines) -> Result<Self> {
        if !board.serial.contains(&Serial::Both) {
            return Ok(Self(None));
        }
        let file = File::create(&lines.telemetry).into_diagnostic()?;
        Ok(Self(Some((Separator::default(), file))))
    }

    /// Reads it to its end. `to` gets the text, and says whether to continue.
    pub fn read(mut self, mut output: impl Read, mut to: impl FnMut(&[u8]) -> bool) {
        let mut chunk = [0; 4096];
        loop {
            match output.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => {
                    let bytes = &chunk[..length];
                    let parts = match &mut self.0 {
                        Some((separator, file)) => keep(separator.feed(bytes), file),
                        None => bytes.to_vec(),
                    };
                    // An empty piece would be the end.
                    if !parts.is_empty() && !to(&parts) {
                        return;
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if let Some((separator, mut file)) = self.0 {
            let text = keep(separator.finish(), &mut file);
            if !text.is_empty() {
                to(&text);
            }
        }
    }
}

/// Adds messages to the file of the telemetry. Returns the text.
fn keep(parts: Parts, file: &mut File) -> Vec<u8> {
    // As where QEMU writes the file: what does not fit on the disk is missing in it, and the end of
    // the run says so.
    let _ = file.write_all(&parts.messages);
    parts.text
}
