//! A capture of the hello image: its lines, its end, and what was received.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::content::{Content, content};
use super::port::{Baud, Port, PortError};
use super::session::{CaptureEnd, CaptureError, Observer, Remark, Role, Source};
use super::{Event, Heard, Listener};
use crate::hello::log::{Log, LogError, read_log};
use cloison_hello::TELEMETRY_LINE;
use std::time::{Duration, Instant};

/// How long both lines must be quiet after the image's last line.
const SETTLED: Duration = Duration::from_millis(700);

/// What a board has sent while it ran the hello image.
#[derive(Debug)]
pub struct CapturedHello {
    /// How the capture ended.
    pub end: CaptureEnd,
    /// The console's bytes.
    pub console: Vec<u8>,
    /// Whether the telemetry's port sent the line by which a reader knows it. `None` if no port was
    /// given for it.
    pub telemetry: Option<bool>,
    /// Why it is no log of the image.
    pub error: Option<CaptureError>,
}

/// A source with what it has sent.
struct Input<'a> {
    source: &'a Source,
    bytes: Vec<u8>,
    /// Bytes that were shown.
    shown: usize,
    /// Whether it was found to be noise.
    is_noise: bool,
}

/// Reads until the image has printed its last line, the user ends the capture, or `limit` has
/// passed.
///
/// # Errors
///
/// Returns why a port cannot be opened.
pub fn capture(
    sources: &[Source],
    baud: Baud,
    limit: Option<Duration>,
    observer: &mut impl Observer,
) -> Result<CapturedHello, PortError> {
    let ports: Vec<Port> = sources.iter().map(|source| source.port.clone()).collect();
    let listener = Listener::start(&ports, baud)?;
    let input = |source| Input {
        source,
        bytes: Vec::new(),
        shown: 0,
        is_noise: false,
    };
    let mut inputs: Vec<Input<'_>> = sources.iter().map(input).collect();
    let (started, mut last) = (Instant::now(), Instant::now());
    let mut console = None;
    let mut is_over = false;
    let end = loop {
        match listener.next(Duration::from_millis(50)) {
            Heard::Event(index, event) => {
                last = Instant::now();
                let Some(input) = inputs.get_mut(index) else {
                    continue;
                };
                let port = input.source.port.clone();
                match event {
                    Event::Bytes(bytes) => input.bytes.extend(bytes),
                    Event::Gone => observer.remark(Remark::Gone { port }),
                    Event::Back(after) => observer.remark(Remark::Back { port, after }),
                    Event::End => {}
                }
                input.tell_noise(baud, observer);
                console = console.or_else(|| find_console(&inputs, observer));
                if let Some(console) = console.and_then(|at: usize| inputs.get_mut(at)) {
                    observer.console(&console.bytes[console.shown..]);
                    console.shown = console.bytes.len();
                    is_over = is_ended(&console.bytes);
                }
            }
            Heard::Quiet if is_over && last.elapsed() >= SETTLED => break CaptureEnd::Off,
            Heard::Quiet => {}
            Heard::Interrupted => break CaptureEnd::Interrupted,
            Heard::End if is_over => break CaptureEnd::Off,
            Heard::End => break CaptureEnd::LogsEnded,
        }
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            break CaptureEnd::TimeIsUp;
        }
    };
    // A port that has sent too little to tell is what it was given for.
    let given = |input: &Input<'_>| input.source.role == Role::Console;
    let console = console.or_else(|| inputs.iter().position(given));
    let error = wrong(&inputs, baud);
    let line = TELEMETRY_LINE.trim_end().as_bytes();
    let others = (0..inputs.len()).filter(|at| Some(*at) != console);
    let telemetry = others
        .map(|at| inputs[at].bytes.windows(line.len()).any(|it| it == line))
        .next();
    Ok(CapturedHello {
        end,
        console: console.map_or_else(Vec::new, |at| std::mem::take(&mut inputs[at].bytes)),
        telemetry,
        error,
    })
}

impl Input<'_> {
    fn tell_noise(&mut self, baud: Baud, observer: &mut impl Observer) {
        if !self.is_noise && content(&self.bytes) == Some(Content::Noise) {
            self.is_noise = true;
            observer.remark(Remark::Noise {
                port: self.source.port.clone(),
                baud,
            });
        }
    }

    /// Returns whether it has sent text that only the console has.
    fn is_console(&self) -> bool {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = TELEMETRY_LINE.trim_end();
        content(&self.bytes) == Some(Content::Text)
            && !line.starts_with(text.trim())
            && text.trim() != line
    }
}

/// Returns the port that carries the console, once one does.
fn find_console(inputs: &[Input<'_>], observer: &mut impl Observer) -> Option<usize> {
    let at = inputs.iter().position(Input::is_console)?;
    let source = inputs[at].source;
    if source.role != Role::Console {
        observer.remark(Remark::Exchanged {
            port: source.port.clone(),
            carries: Role::Console,
        });
    }
    Some(at)
}

/// Returns whether the image has printed its last line since it started last.
fn is_ended(console: &[u8]) -> bool {
    let text = String::from_utf8_lossy(console);
    // A line that is being sent has no end yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    match read_log(whole) {
        Ok(log) => is_whole(&log),
        Err(LogError::WrongLevel { .. } | LogError::Stopped { .. }) => true,
        Err(_) => false,
    }
}

/// Returns whether nothing more follows.
fn is_whole(log: &Log) -> bool {
    use crate::hello::log::Loss;
    !log.losses.iter().any(|loss| matches!(loss, Loss::Cut(_)))
}

/// Returns why what was received cannot be a log.
fn wrong(inputs: &[Input<'_>], baud: Baud) -> Option<CaptureError> {
    if inputs.iter().all(|input| input.bytes.is_empty()) {
        let ports: Vec<String> = inputs.iter().map(|it| it.source.port.to_string()).collect();
        let ports = ports.join(" and ");
        return Some(CaptureError::Silence { ports, baud });
    }
    let is_text = inputs
        .iter()
        .any(|input| !input.is_noise && !input.bytes.is_empty());
    let noisy = inputs.iter().find(|input| input.is_noise)?;
    (!is_text).then(|| CaptureError::Noise {
        port: noisy.source.port.clone(),
        len: noisy.bytes.len(),
        baud,
    })
}
