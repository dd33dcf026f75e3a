//! One attempt at one job: what the board sends from the time at which its image is offered.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::served::{STARTING, Served, WAITING};
use crate::boards::boot::Output;
use cloison_engine::capture::port::Port;
use cloison_engine::capture::session::{
    CaptureEnd, CaptureError, Captured, Observer, Remark, is_whole, of_last_run,
};
use cloison_engine::qemu::Exit;
use cloison_formats::image::System;
use std::time::{Duration, Instant};

/// How long a board may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it starts the image; forever if nothing here can reset it.
    pub start: Option<Duration>,
    /// From there to the end of the run, when the board resets itself.
    pub run: Duration,
}

/// How much later than by itself a board is reset from here.
const GRACE: Duration = Duration::from_secs(10);
/// The end of the hypervisor's line about a run that hangs.
const LATE: &str = "] the run has not ended in its time";

/// Why an attempt was ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The boot loader is back, and the hypervisor had not reached its end.
    Reset,
    /// The boot loader starts the image again, whose first message did not arrive.
    AgainAtOnce,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// The run is whole.
    Whole(Box<Output>),
    /// The board has ended the run, which cannot be used.
    Lost(String),
    /// The board is stuck.
    Hangs(String),
    /// Nothing was started.
    Silent,
    /// Another image has run, or the end of a run that had begun before.
    Other(String),
    /// The user ends the command.
    Interrupted,
}

/// Watches an attempt.
#[derive(Debug)]
pub struct Attempt<'a> {
    system: &'a System,
    served: &'a Served,
    patience: Patience,
    deadline: Option<Instant>,
    console: Vec<u8>,
    /// Bytes of the console that were looked at, a line at a time.
    seen: usize,
    /// How often the boot loader has started an image.
    fetched: u32,
    /// When the image has said its name.
    started: Option<Instant>,
    /// Whether the console shows a run that has not ended.
    is_running: bool,
    /// Whether the console has shown the end of a run.
    has_shown_end: bool,
    stop: Option<Stop>,
    /// Whether the hypervisor has found that the run hangs.
    is_late: bool,
    /// The ports that were gone during the run.
    gone: Vec<Port>,
    /// Whether the ports are those of each other.
    pub exchanged: bool,
}

impl<'a> Attempt<'a> {
    /// Waits for a system, whose image is offered.
    pub fn new(system: &'a System, served: &'a Served, patience: Patience) -> Self {
        Self {
            system,
            served,
            patience,
            deadline: patience.start.map(|start| Instant::now() + start),
            console: vec![],
            seen: 0,
            fetched: 0,
            started: None,
            is_running: false,
            has_shown_end: false,
            stop: None,
            is_late: false,
            gone: vec![],
            exchanged: false,
        }
    }

    /// Returns when a run that starts now counts as hung, because the board has not reset itself.
    fn limit(&self) -> Instant {
        Instant::now() + self.patience.run + GRACE
    }

    fn line(&mut self, line: &str) {
        if line == STARTING {
            self.fetched += 1;
            self.deadline = Some(self.limit());
            if self.fetched > 1 && self.started.is_none() {
                self.stop = Some(Stop::AgainAtOnce);
            }
        } else if line.ends_with(LATE) {
            self.is_late = true;
        } else if line == WAITING && self.is_running {
            self.stop = Some(Stop::Reset);
        } else if of_last_run(line.as_bytes()).is_some() {
            self.is_running = true;
        } else if is_whole(line.as_bytes()) {
            self.is_running = false;
            self.has_shown_end = true;
        }
    }

    /// Returns what was captured, judged.
    pub fn outcome(self, captured: Captured) -> Outcome {
        if captured.end == CaptureEnd::Interrupted {
            return Outcome::Interrupted;
        }
        if let Some(
            error @ (CaptureError::OtherSystem { .. }
            | CaptureError::OtherVms { .. }
            | CaptureError::OtherVersion { .. }),
        ) = &captured.error
        {
            return Outcome::Other(error.to_string());
        }
        let Some(started) = self.started else {
            return self.not_started(captured.end);
        };
        let no_end = || {
            format!(
                "no end within {} s of its start",
                self.patience.run.as_secs()
            )
        };
        match (captured.end, self.stop) {
            (_, Some(_)) if self.is_late => Outcome::Lost(no_end()),
            (CaptureEnd::Off, _) => self.judge(&captured, started),
            (_, Some(Stop::Reset | Stop::AgainAtOnce)) => {
                Outcome::Lost("the board was reset before the end of the run".to_owned())
            }
            (CaptureEnd::LogsEnded, _) => {
                Outcome::Lost("a port is a file, and has ended".to_owned())
            }
            _ => Outcome::Hangs(no_end()),
        }
    }

    fn not_started(self, end: CaptureEnd) -> Outcome {
        match (end, self.stop) {
            (CaptureEnd::Off, _) | (_, Some(Stop::AgainAtOnce)) if self.fetched > 0 => {
                Outcome::Lost(
                    match self.has_shown_end {
                        true => "the run has ended, and no first message of telemetry has arrived",
                        false => {
                            "the board starts the image, and is reset before its first message"
                        }
                    }
                    .to_owned(),
                )
            }
            (CaptureEnd::Off, _) => {
                Outcome::Other("the end of a run whose start did not arrive".to_owned())
            }
            (CaptureEnd::LogsEnded, _) => {
                Outcome::Lost("a port is a file, and has ended".to_owned())
            }
            _ if self.fetched > 0 => Outcome::Hangs(format!(
                "no first message within {} s of its start",
                self.patience.run.as_secs()
            )),
            _ => Outcome::Silent,
        }
    }

    /// Returns the run if no byte of it is missing.
    fn judge(&self, captured: &Captured, started: Instant) -> Outcome {
        if !self.gone.is_empty() {
            let ports: Vec<String> = self.gone.iter().map(Port::to_string).collect();
            return Outcome::Lost(format!("{} was gone during the run", ports.join(" and ")));
        }
        let console = of_last_run(&self.console).filter(|run| is_whole(run));
        let Some(console) = console else {
            return Outcome::Lost("the console's lines are not complete".to_owned());
        };
        let Some(telemetry) = captured.runs.last().and_then(|run| run.whole()) else {
            return Outcome::Lost("the telemetry is damaged".to_owned());
        };
        Outcome::Whole(Box::new(Output {
            exit: Exit::Code(0),
            console: String::from_utf8_lossy(console).into_owned(),
            telemetry: telemetry.to_vec(),
            statistics: None,
            errors: String::new(),
            seconds: started.elapsed().as_secs_f64(),
        }))
    }
}

impl Observer for Attempt<'_> {
    fn console(&mut self, bytes: &[u8]) {
        self.console.extend_from_slice(bytes);
        while let Some(end) = self.console[self.seen..]
            .iter()
            .position(|&byte| byte == b'\n')
        {
            let line = self.console[self.seen..][..end].trim_ascii().to_vec();
            self.seen += end + 1;
            self.line(&String::from_utf8_lossy(&line));
        }
    }

    fn remark(&mut self, remark: Remark) {
        match &remark {
            Remark::Record(_) => return,
            Remark::Boot(boot) | Remark::Reset(boot) if boot.system == self.system.name => {
                self.started = Some(Instant::now());
                self.deadline = Some(self.limit());
                self.gone.clear();
                // A board that is reset in between waits, and does not run it once more.
                if let Err(error) = self.served.withdraw() {
                    eprintln!("warning: {error:?}");
                }
                return;
            }
            Remark::Gone { port } => self.gone.push(port.clone()),
            Remark::Exchanged { .. } => self.exchanged = true,
            Remark::Boot(_)
            | Remark::Reset(_)
            | Remark::Noise { .. }
            | Remark::Double { .. }
            | Remark::Back { .. }
            | Remark::Damage(_) => {}
        }
        eprintln!("board: {remark}");
    }

    fn has_enough(&self) -> bool {
        self.stop.is_some() || self.deadline.is_some_and(|end| Instant::now() >= end)
    }
}
