//! One start of a board, on the model, in QEMU or in hardware: all its inputs, their common key, and
//! its output.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Emulation;
use cloison_engine::figures::qemu_version;
use cloison_engine::files::{self, sha256, write_atomic};
use cloison_engine::kept::{KeptImage, KeptRun};
use cloison_engine::qemu::{Exit, Machine, Session};
use miette::{Diagnostic, IntoDiagnostic, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use thiserror::Error;

/// Changes with the code that starts a board, so that a result of another version has another key.
const VERSION: u32 = 1;

/// The QEMU of this machine: asking for it takes as long as anything else that is done for a boot.
static QEMU: LazyLock<String> = LazyLock::new(qemu_version);

/// A start of a board, with all inputs that determine its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// How QEMU emulates the board; none if hardware executes the image.
    emulation: Option<Emulation>,
    /// Image, and what executes it.
    kept: Start,
    /// The version of QEMU that it is for, as QEMU reports it; none if hardware executes the image.
    pub qemu: Option<String>,
    /// Time in seconds after which it counts as hung.
    pub limit_s: u64,
}

/// An image, and what executes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Start {
    /// The board model, with its file, seed and caches.
    Modelled(KeptRun),
    /// QEMU without the model.
    Plain(Plain),
    /// Hardware.
    Hardware(Hardware),
}

/// An image on QEMU without the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    image: KeptImage,
    /// Whether an instruction takes 1 ns of guest time.
    icount: bool,
}

/// An image for hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hardware {
    image: KeptImage,
    /// The board's name.
    hardware: String,
    /// Number of the repetition: the same image gives other counts each time.
    repetition: u64,
}

/// A job that needs what executes another kind of boot.
#[derive(Debug, Error, Diagnostic)]
pub enum OtherMachine {
    /// It is for a board, and QEMU was to be started.
    #[error("the job is for board `{board}`, and not for QEMU")]
    #[diagnostic(help("run the jobs on that board: cloison submit DIR --engine board"))]
    Hardware {
        /// The board.
        board: String,
    },
    /// It is for QEMU, and a board was to run it.
    #[error("the jobs are for QEMU, and not for a board")]
    #[diagnostic(help("make others for the board: cloison jobs FILE --machine hardware -o DIR"))]
    Emulated,
}

impl Start {
    fn with_parts_in(&self, directory: &Path) -> Self {
        match self {
            Self::Modelled(kept) => Self::Modelled(kept.with_parts_in(directory)),
            Self::Plain(plain) => Self::Plain(Plain {
                image: plain.image.with_parts_in(directory),
                ..*plain
            }),
            Self::Hardware(hardware) => Self::Hardware(Hardware {
                image: hardware.image.with_parts_in(directory),
                ..hardware.clone()
            }),
        }
    }
}

/// The output of a board that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// How QEMU ended.
    pub exit: Exit,
    /// The console's complete output.
    pub console: String,
    /// Everything sent on the telemetry UART.
    pub telemetry: Vec<u8>,
    /// The model's statistics as JSON, if it wrote them.
    pub statistics: Option<Vec<u8>>,
    /// QEMU's own error messages.
    pub errors: String,
    /// Wall time of QEMU.
    pub seconds: f64,
}

impl Boot {
    /// Describes a boot on the model with the QEMU of this machine. A boot that takes longer than
    /// `limit` counts as hung.
    pub fn new(emulation: &Emulation, kept: KeptRun, limit: Duration) -> Self {
        Self::of(emulation, Start::Modelled(kept), limit)
    }

    /// Describes a boot without the model; with `icount`, an instruction takes 1 ns of guest time.
    pub fn without_model(
        emulation: &Emulation,
        image: KeptImage,
        icount: bool,
        limit: Duration,
    ) -> Self {
        Self::of(emulation, Start::Plain(Plain { image, icount }), limit)
    }

    /// Describes the start of an image on hardware. Two with the same image have different
    /// repetitions.
    pub fn on_hardware(board: &str, image: KeptImage, repetition: u64, limit: Duration) -> Self {
        let hardware = board.to_owned();
        Self {
            emulation: None,
            kept: Start::Hardware(Hardware {
                image,
                hardware,
                repetition,
            }),
            qemu: None,
            limit_s: limit.as_secs(),
        }
    }

    fn of(emulation: &Emulation, kept: Start, limit: Duration) -> Self {
        // Where the board's file names its model is no input: `kept` has the model.
        let emulation = Some(Emulation {
            model: None,
            ..emulation.clone()
        });
        Self {
            emulation,
            kept,
            qemu: Some(QEMU.clone()),
            limit_s: limit.as_secs(),
        }
    }

    /// Returns the SHA-256 of all inputs, in hexadecimal. The directory of the inputs is not one of
    /// them.
    pub fn key(&self) -> String {
        let kept = self.kept.with_parts_in(Path::new(""));
        sha256(
            serde_json::json!([VERSION, self.emulation, kept, self.qemu])
                .to_string()
                .as_bytes(),
        )
    }

    /// Returns the files that it needs: their directory, and their names.
    pub fn parts(&self) -> (&Path, Vec<&String>) {
        match &self.kept {
            Start::Modelled(kept) => (kept.parts(), kept.names().collect()),
            Start::Plain(Plain { image, .. }) | Start::Hardware(Hardware { image, .. }) => {
                (image.parts(), image.names().collect())
            }
        }
    }

    /// Returns whether the model executes it, which leaves statistics.
    pub const fn is_modelled(&self) -> bool {
        matches!(self.kept, Start::Modelled(_))
    }

    /// Returns the image, if it is for hardware.
    ///
    /// # Errors
    ///
    /// If it is for QEMU.
    pub fn image(&self) -> Result<&KeptImage, OtherMachine> {
        match &self.kept {
            Start::Hardware(Hardware { image, .. }) => Ok(image),
            Start::Modelled(_) | Start::Plain(_) => Err(OtherMachine::Emulated),
        }
    }

    /// Returns how QEMU emulates the board.
    ///
    /// # Errors
    ///
    /// If it is for hardware.
    pub fn emulation(&self) -> Result<&Emulation, OtherMachine> {
        match (&self.kept, &self.emulation) {
            (Start::Hardware(Hardware { hardware, .. }), _) => Err(OtherMachine::Hardware {
                board: hardware.clone(),
            }),
            (_, emulation) => emulation.as_ref().ok_or(OtherMachine::Emulated),
        }
    }

    /// Returns the same boot with its files in another directory.
    pub fn with_parts_in(&self, directory: &Path) -> Self {
        Self {
            kept: self.kept.with_parts_in(directory),
            ..self.clone()
        }
    }

    /// Starts the board and waits for its end. Calls `on_line` with each line of its console.
    /// `directory` gets what the board has sent if the command is interrupted.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, QEMU cannot be started, or the scratch directory cannot be
    /// written to.
    pub fn perform(
        &self,
        directory: &Path,
        on_line: impl FnMut(&str) + Send + 'static,
    ) -> Result<Output> {
        let scratch = files::scratch()?;
        let session = self.machine(scratch.path())?.start()?;
        let _watched = session.watch(directory);
        finish(session, scratch.path(), on_line)
    }

    /// Returns the machine to start, whose image is written to a scratch directory.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, or the image cannot be written.
    pub fn machine(&self, scratch: &Path) -> Result<Machine> {
        let emulation = self.emulation()?;
        let machine = match &self.kept {
            Start::Modelled(kept) => kept.machine(emulation, scratch)?,
            Start::Plain(Plain { image, icount }) => {
                Machine::new(emulation, &image.write(scratch)?).icount(icount.then_some(0))
            }
            Start::Hardware(hardware) => Machine::new(emulation, &hardware.image.write(scratch)?),
        };
        Ok(machine.limit(Duration::from_secs(self.limit_s)))
    }
}

/// Starts a machine of [`Boot::machine`] and waits for its end. Calls `on_line` with each line of
/// its console.
///
/// # Errors
///
/// If QEMU cannot be started.
pub fn run(
    machine: &Machine,
    scratch: &Path,
    on_line: impl FnMut(&str) + Send + 'static,
) -> Result<Output> {
    finish(machine.start()?, scratch, on_line)
}

/// Waits for the end of a machine of [`Boot::machine`].
fn finish(
    mut session: Session,
    scratch: &Path,
    on_line: impl FnMut(&str) + Send + 'static,
) -> Result<Output> {
    session.on_line(on_line);
    let outcome = session.finish()?;
    Ok(Output {
        exit: outcome.exit,
        console: outcome.console,
        telemetry: outcome.telemetry,
        // A board that failed may have none, which its evaluation reports.
        statistics: std::fs::read(scratch.join("model.json")).ok(),
        errors: outcome.errors,
        seconds: outcome.wall.as_secs_f64(),
    })
}

impl Output {
    /// Writes `console.txt`, `telemetry.bin` and `model.json` into a directory.
    ///
    /// # Errors
    ///
    /// If one cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        write_atomic(&directory.join("console.txt"), self.console.as_bytes())?;
        write_atomic(&directory.join("telemetry.bin"), &self.telemetry)?;
        let statistics = directory.join("model.json");
        match &self.statistics {
            Some(bytes) => write_atomic(&statistics, bytes),
            None if statistics.exists() => std::fs::remove_file(&statistics).into_diagnostic(),
            None => Ok(()),
        }
    }

    /// Returns the last lines on the console, and QEMU's messages.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.console.lines().collect();
        format!(
            "{}\n{}",
            lines[lines.len().saturating_sub(12)..].join("\n"),
            self.errors
        )
    }
}
