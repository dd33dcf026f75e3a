//! One capture: what each port carries, when the board is done, and what was received.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::content::{Content, content};
use super::port::{Baud, Port, PortError};
use super::stream::{Damage, News, Run, Stream};
use super::{Event, Heard, Listener};
use crate::telemetry::between::{Parts, Separator};
use cloison_formats::image::System;
use cloison_formats::telemetry::{BootInfo, VERSION};
use miette::Diagnostic;
use std::fmt;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long both lines must be quiet after the machine has turned itself off.
const SETTLED: Duration = Duration::from_millis(700);
/// The end of the hypervisor's last line.
const LAST_LINE: &[u8] = b"; turning the machine off";
/// What the hypervisor's first line has after the number of its core.
const FIRST_LINE: &[u8] = b"] Cloison ";

/// What a port is given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The console.
    Console,
    /// The telemetry.
    Telemetry,
}

impl Role {
    const fn of(content: Content) -> Option<Self> {
        match content {
            Content::Text => Some(Self::Console),
            Content::Telemetry => Some(Self::Telemetry),
            Content::Noise => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Console => "the console",
            Self::Telemetry => "the telemetry",
        })
    }
}

/// Something that is worth a line while a board is captured.
#[derive(Clone, Debug, PartialEq)]
pub enum Remark {
    /// A port carries what the other one was given for, and is used as that.
    Exchanged {
        /// The port.
        port: Port,
        /// What it carries.
        carries: Role,
    },
    /// A port carries noise.
    Noise {
        /// The port.
        port: Port,
        /// Its baud rate.
        baud: Baud,
    },
    /// Two ports carry the same.
    Double {
        /// The port that is not used.
        port: Port,
        /// What it carries.
        carries: Role,
    },
    /// A port is gone.
    Gone {
        /// The port.
        port: Port,
    },
    /// A port is back.
    Back {
        /// The port.
        port: Port,
        /// How long it was away.
        after: Duration,
    },
    /// The system has started.
    Boot(BootInfo),
    /// The board has been reset, and the system has started again.
    Reset(BootInfo),
    /// Bytes were lost or changed.
    Damage(Damage),
    /// A record.
    Record(String),
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchanged { port, carries } => {
                write!(
                    f,
                    "the ports are exchanged: {port} carries {carries}, and is used as that"
                )
            }
            Self::Noise { port, baud } => write!(
                f,
                "{port} carries neither text nor telemetry: is {} its baud rate?",
                baud.0
            ),
            Self::Double { port, carries } => {
                write!(f, "{port} carries {carries} too, and is not used")
            }
            Self::Gone { port } => write!(f, "{port} is gone; waiting until it is back"),
            Self::Back { port, after } => {
                write!(f, "{port} is back after {:.1} s", after.as_secs_f64())
            }
            Self::Boot(boot) => write!(f, "{} starts on {}", boot.system, boot.board),
            Self::Reset(boot) => write!(
                f,
                "the board was reset: {} starts again on {}",
                boot.system, boot.board
            ),
            Self::Damage(damage) => write!(
                f,
                "damaged: {} bytes at byte {}: {}; after {}, before {}",
                damage.len, damage.offset, damage.problem, damage.after, damage.before
            ),
            Self::Record(words) => f.write_str(words),
        }
    }
}

/// Why a capture is no run of the system.
#[derive(Debug, Error, Diagnostic)]
pub enum CaptureError {
    /// A port cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Port(#[from] PortError),
    /// No byte has arrived.
    #[error("nothing arrived on {ports}")]
    #[diagnostic(
        code(capture::silence),
        help(
            "is the board on, and does it boot from what `cloison image` wrote? Swap the cable's \
             ports, and look at each with another program (`picocom -b {} PORT`): U-Boot's output \
             must be on the console",
            baud.0
        )
    )]
    Silence {
        /// The ports, in words.
        ports: String,
        /// Their baud rate.
        baud: Baud,
    },
    /// All that arrived is noise.
    #[error("{port} sent {len} bytes that are neither text nor telemetry")]
    #[diagnostic(
        code(capture::noise),
        help(
            "{} baud is probably not the line's rate: give it with --baud (the boards of this \
             installation use 115200), and check that the adapter has the board's voltage",
            baud.0
        )
    )]
    Noise {
        /// The port.
        port: Port,
        /// Number of bytes.
        len: usize,
        /// The rate at which they were read.
        baud: Baud,
    },
    /// Another system was captured.
    #[error("this is a run of {found} on {found_board}, not of {system} on {board}")]
    #[diagnostic(
        code(capture::other_system),
        help(
            "give the configuration whose image the board boots, or put this one's `Image` where \
             the board finds it"
        )
    )]
    OtherSystem {
        /// The system that was captured.
        found: String,
        /// Its board.
        found_board: String,
        /// The system that was expected.
        system: String,
        /// Its board.
        board: String,
    },
    /// The VMs are those of another version of the configuration.
    #[error("the image has the VMs {found}, the configuration has {expected}")]
    #[diagnostic(
        code(capture::other_vms),
        help(
            "the configuration has changed since the image was written: run `cloison image` again, \
             or capture with the old configuration"
        )
    )]
    OtherVms {
        /// The VMs that announced themselves.
        found: String,
        /// The VMs of the configuration.
        expected: String,
    },
    /// The image is of another version of Cloison.
    #[error("the telemetry has version {found}, this program reads version {VERSION}")]
    #[diagnostic(
        code(capture::version),
        help("write the image again with this program, or capture with the one that wrote it")
    )]
    OtherVersion {
        /// The version.
        found: u16,
    },
    /// No system has started.
    #[error("Cloison did not start: {port} shows another program's output only")]
    #[diagnostic(
        code(capture::no_start),
        help(
            "the last lines on the console say how far the board came; the README.txt beside the \
             image lists what each failure looks like"
        )
    )]
    NoStart {
        /// The console's port.
        port: Port,
    },
}

/// How a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// The board turned itself off.
    Off,
    /// The user ended it.
    Interrupted,
    /// Its time was up.
    TimeIsUp,
    /// The logs that it read ended before.
    LogsEnded,
    /// The observer has had enough, or another system has started.
    Enough,
}

impl fmt::Display for CaptureEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "turned off",
            Self::Interrupted => "capture ended by the user",
            Self::TimeIsUp => "capture ended after its time was up",
            Self::LogsEnded => "the log ends before the board has turned itself off",
            Self::Enough => "capture ended on purpose",
        })
    }
}

/// One port of a capture.
#[derive(Clone, Debug)]
pub struct Source {
    /// The port.
    pub port: Port,
    /// What it is given for.
    pub role: Role,
}

/// Opens the ports of these sources and starts to read them.
///
/// # Errors
///
/// Returns why a port cannot be opened.
pub fn listen(sources: &[Source], baud: Baud) -> Result<Listener, PortError> {
    let ports: Vec<Port> = sources.iter().map(|source| source.port.clone()).collect();
    Listener::start(&ports, baud)
}

/// A source with what it has sent.
#[derive(Debug)]
struct Input {
    source: Source,
    /// What it was found to carry, of what it has sent.
    bytes: Vec<u8>,
    /// What takes it apart, with what it has sent, if it carries telemetry between lines of text.
    mixed: Option<(Separator, Vec<u8>)>,
    /// Bytes that were passed on.
    passed: usize,
    content: Option<Content>,
    /// What it is used as: `None` before that is known, and if another port is used for that.
    role: Option<Role>,
}

impl Input {
    /// Returns what it has sent.
    fn received(self) -> Vec<u8> {
        self.mixed.map_or(self.bytes, |(_, received)| received)
    }
}

/// What is told while a board is captured.
pub trait Observer {
    /// The console's next bytes.
    fn console(&mut self, bytes: &[u8]);
    /// A remark.
    fn remark(&mut self, remark: Remark);
    /// Returns whether the capture shall end. It is asked all the time.
    fn has_enough(&self) -> bool {
        false
    }
}

/// What was captured.
#[derive(Debug)]
pub struct Captured {
    /// How it ended.
    pub end: CaptureEnd,
    /// The board's runs, one for each start.
    pub runs: Vec<Run>,
    /// The bytes of each port as they were received, in the order of the sources.
    pub received: Vec<Vec<u8>>,
    /// Why it is no run of the system, if it is none.
    pub error: Option<CaptureError>,
}

/// Which line has said that the machine turns itself off, since it last started.
#[derive(Clone, Copy, Debug, Default)]
struct Off {
    console: bool,
    telemetry: bool,
}

impl Off {
    fn is_said(self) -> bool {
        self.console || self.telemetry
    }
}

/// A capture of one system.
#[derive(Debug)]
pub struct Session<'a> {
    system: &'a System,
    baud: Baud,
    inputs: Vec<Input>,
    stream: Stream,
    /// When something arrived last that may be of the run.
    last: Instant,
    /// Whether a system has started, by its telemetry.
    has_started: bool,
    off: Off,
    wrong: Option<CaptureError>,
}

impl<'a> Session<'a> {
    /// Prepares a capture of what arrives on these sources.
    pub fn new(system: &'a System, sources: &[Source], baud: Baud) -> Self {
        let names: Vec<String> = system.vms.iter().map(|vm| vm.name.clone()).collect();
        let is_mixed = system.board.is_mixed();
        let input = |source: &Source| Input {
            source: source.clone(),
            bytes: Vec::new(),
            mixed: (is_mixed && source.role == Role::Console).then(Default::default),
            passed: 0,
            content: None,
            role: None,
        };
        Self {
            system,
            baud,
            inputs: sources.iter().map(input).collect(),
            stream: Stream::new(&names),
            last: Instant::now(),
            has_started: false,
            off: Off::default(),
            wrong: None,
        }
    }

    /// Reads from a listener of [`listen`] until the board has turned itself off, the user ends the
    /// capture, the observer has enough, or `limit` has passed.
    pub fn run(
        mut self,
        listener: &Listener,
        limit: Option<Duration>,
        observer: &mut impl Observer,
    ) -> Captured {
        let started = Instant::now();
        self.last = started;
        let end = loop {
            match listener.next(Duration::from_millis(50)) {
                Heard::Event(port, event) => self.take(port, event, observer),
                Heard::Quiet => {}
                Heard::Interrupted => break CaptureEnd::Interrupted,
                Heard::End if self.off.is_said() => break CaptureEnd::Off,
                Heard::End => break CaptureEnd::LogsEnded,
            }
            if self.off.is_said() && self.last.elapsed() >= SETTLED {
                break CaptureEnd::Off;
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                break CaptureEnd::TimeIsUp;
            }
            if observer.has_enough() {
                break CaptureEnd::Enough;
            }
            if self.wrong.is_some() {
                break CaptureEnd::Enough;
            }
        };
        self.finish(end, observer)
    }

    fn take(&mut self, index: usize, event: Event, observer: &mut impl Observer) {
        let Some(input) = self.inputs.get_mut(index) else {
            return;
        };
        let port = input.source.port.clone();
        // After the hypervisor's last line, the boot loader of a machine that was reset has the
        // console.
        let is_over = self.off.console && input.role == Some(Role::Console);
        if !is_over {
            self.last = Instant::now();
        }
        match event {
            Event::Bytes(bytes) => {
                let parts = match &mut input.mixed {
                    Some((separator, received)) => {
                        received.extend_from_slice(&bytes);
                        separator.feed(&bytes)
                    }
                    None => Parts {
                        text: bytes,
                        messages: Vec::new(),
                    },
                };
                self.take_parts(index, &parts, observer);
            }
            Event::Gone => observer.remark(Remark::Gone { port }),
            Event::Back(after) => observer.remark(Remark::Back { port, after }),
            Event::End => {}
        }
    }

    fn take_parts(&mut self, index: usize, parts: &Parts, observer: &mut impl Observer) {
        if !parts.messages.is_empty() {
            self.last = Instant::now();
        }
        self.inputs[index].bytes.extend_from_slice(&parts.text);
        self.recognize(index, observer);
        self.pass_on(index, observer);
        let news = self.stream.feed(&parts.messages);
        self.tell(news, observer);
    }

    /// Finds out what a port carries.
    fn recognize(&mut self, index: usize, observer: &mut impl Observer) {
        let input = &self.inputs[index];
        if matches!(input.content, Some(Content::Text | Content::Telemetry)) {
            return;
        }
        let Some(found) = content(&input.bytes) else {
            return;
        };
        let is_new = input.content != Some(found);
        let carries = Role::of(found);
        let is_taken = carries.is_some_and(|role| {
            let mut others = self.inputs.iter().enumerate();
            others.any(|(other, input)| other != index && input.role == Some(role))
        });
        let input = &mut self.inputs[index];
        input.content = Some(found);
        let port = input.source.port.clone();
        match carries {
            None if is_new => observer.remark(Remark::Noise {
                port,
                baud: self.baud,
            }),
            None => {}
            Some(carries) if is_taken => observer.remark(Remark::Double { port, carries }),
            Some(carries) => {
                input.role = Some(carries);
                if carries != input.source.role {
                    observer.remark(Remark::Exchanged { port, carries });
                }
            }
        }
    }

    /// Passes on what a port has sent since.
    fn pass_on(&mut self, index: usize, observer: &mut impl Observer) {
        let input = &mut self.inputs[index];
        let Some(role) = input.role else { return };
        let from = std::mem::replace(&mut input.passed, input.bytes.len());
        match role {
            Role::Console => {
                observer.console(&input.bytes[from..]);
                // A line may have begun before these bytes.
                let tail = &input.bytes[from.saturating_sub(LAST_LINE.len())..];
                let last = |line: &[u8]| tail.windows(line.len()).rposition(|it| it == line);
                match (last(FIRST_LINE), last(LAST_LINE)) {
                    (Some(first), off) => self.off.console = off > Some(first),
                    (None, off) => self.off.console |= off.is_some(),
                }
            }
            Role::Telemetry => {
                let news = self.stream.feed(&input.bytes[from..]);
                self.tell(news, observer);
            }
        }
    }

    fn tell(&mut self, news: Vec<News>, observer: &mut impl Observer) {
        for one in news {
            match one {
                News::Boot(boot) => {
                    let is_again = std::mem::replace(&mut self.has_started, true);
                    self.off.telemetry = false;
                    self.wrong = self.wrong.take().or_else(|| self.compare(&boot));
                    observer.remark(if is_again {
                        Remark::Reset(boot)
                    } else {
                        Remark::Boot(boot)
                    });
                }
                News::Record { words, is_last } => {
                    self.off.telemetry |= is_last;
                    observer.remark(Remark::Record(words));
                }
                News::Damage(damage) => observer.remark(Remark::Damage(damage)),
            }
        }
    }

    /// Compares the system that has started with the one that is expected.
    fn compare(&self, boot: &BootInfo) -> Option<CaptureError> {
        if boot.version != VERSION {
            return Some(CaptureError::OtherVersion {
                found: boot.version,
            });
        }
        self.compare_names(&boot.system, &boot.board)
    }

    fn compare_names(&self, found: &str, found_board: &str) -> Option<CaptureError> {
        let (system, board) = (&self.system.name, &self.system.board.name);
        (found != system || found_board != board).then(|| CaptureError::OtherSystem {
            found: found.to_owned(),
            found_board: found_board.to_owned(),
            system: system.clone(),
            board: board.clone(),
        })
    }

    fn finish(mut self, end: CaptureEnd, observer: &mut impl Observer) -> Captured {
        for index in 0..self.inputs.len() {
            if let Some((separator, _)) = &mut self.inputs[index].mixed {
                let parts = std::mem::take(separator).finish();
                self.take_parts(index, &parts, observer);
            }
        }
        // What is too short to tell is taken for what its port was given for.
        for index in 0..self.inputs.len() {
            let role = self.inputs[index].source.role;
            let is_free = self.inputs.iter().all(|input| input.role != Some(role));
            if self.inputs[index].content.is_none() && is_free {
                self.inputs[index].role = Some(role);
                self.pass_on(index, observer);
            }
        }
        let stream = std::mem::replace(&mut self.stream, Stream::new(&[]));
        let (runs, news) = stream.finish();
        self.tell(news, observer);
        let error = self.wrong.take().or_else(|| self.verdict(&runs));
        Captured {
            end,
            runs,
            received: self.inputs.into_iter().map(Input::received).collect(),
            error,
        }
    }

    /// Returns why what was received is no run of the system.
    fn verdict(&self, runs: &[Run]) -> Option<CaptureError> {
        if self.inputs.iter().all(|input| input.bytes.is_empty()) {
            let ports: Vec<String> = self
                .inputs
                .iter()
                .map(|input| input.source.port.to_string())
                .collect();
            return Some(CaptureError::Silence {
                ports: ports.join(" and "),
                baud: self.baud,
            });
        }
        if let Some(run) = runs.last()
            && let Some(found) = run.other_vms(self.system)
        {
            let expected: Vec<&str> = self.system.vms.iter().map(|vm| vm.name.as_str()).collect();
            return Some(CaptureError::OtherVms {
                found,
                expected: expected.join(", "),
            });
        }
        let console = self
            .inputs
            .iter()
            .find(|input| input.role == Some(Role::Console));
        let banner = console.and_then(|input| banner(&input.bytes));
        if let Some((system, board)) = &banner {
            return self.compare_names(system, board);
        }
        if runs.iter().any(|run| run.frames() > 0) {
            return None;
        }
        let noisy = |input: &&Input| {
            input.role.is_none() || input.role == Some(Role::Telemetry) && !input.bytes.is_empty()
        };
        if let Some(input) = self.inputs.iter().find(noisy) {
            return Some(CaptureError::Noise {
                port: input.source.port.clone(),
                len: input.bytes.len(),
                baud: self.baud,
            });
        }
        let console = console.or(self.inputs.first())?;
        Some(CaptureError::NoStart {
            port: console.source.port.clone(),
        })
    }
}

/// Returns system and board of the hypervisor's first line on a console, the last one if there are
/// more: `[core 0] Cloison 0.1.0 on BOARD: SYSTEM, …`.
fn banner(console: &[u8]) -> Option<(String, String)> {
    let console = String::from_utf8_lossy(console);
    let lines = console.lines().rev();
    lines
        .filter_map(|line| {
            let words = line.split_once("] Cloison ")?.1;
            let (board, rest) = words.split_once(" on ")?.1.split_once(": ")?;
            let system = rest.split_once(", ")?.0;
            Some((system.to_owned(), board.to_owned()))
        })
        .next()
}

/// Returns what a console has shown of the system's last run: from the hypervisor's first line to
/// its last one, if it is there. A boot loader may have shown something before and after.
pub fn of_last_run(console: &[u8]) -> Option<&[u8]> {
    let last = |text: &[u8], line: &[u8]| text.windows(line.len()).rposition(|it| it == line);
    let first = last(console, FIRST_LINE)?;
    let line = console[..first].iter().rposition(|&byte| byte == b'\n');
    let run = &console[line.map_or(0, |end| end + 1)..];
    let end = last(run, LAST_LINE).and_then(|at| {
        let rest = run[at..].iter().position(|&byte| byte == b'\n')?;
        Some(at + rest + 1)
    });
    Some(&run[..end.unwrap_or(run.len())])
}

/// Returns whether a console's output of a run ends with the hypervisor's last line.
pub fn is_whole(run: &[u8]) -> bool {
    run.trim_ascii_end().ends_with(LAST_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_between_the_hypervisors_first_and_last_lines() {
        let run = b"[core 0] Cloison 0.1.0 on virt: a, 16 colors\r\n[core 1] all VMs are off; \
                    turning the machine off\r\n";
        let console = [b"U-Boot\r\n", &run[..], b"U-Boot\r\n"].concat();
        assert_eq!(of_last_run(&console), Some(&run[..]));
        assert!(is_whole(run));
        let twice = [&console[..], b"\n[core 0] Cloison 0.1.0 on virt: b"].concat();
        let second = of_last_run(&twice).expect("it has started");
        assert_eq!(second, b"[core 0] Cloison 0.1.0 on virt: b");
        assert!(!is_whole(second));
        assert_eq!(of_last_run(b"U-Boot\r\n"), None);
    }

    #[test]
    fn the_first_line_names_system_and_board() {
        let console =
            b"noise\r\n[core 0] Cloison 0.1.0 on zcu102: kit, 16 colors, own colors 15, 1 VMs\r\n";
        let expected = ("kit".to_owned(), "zcu102".to_owned());
        assert_eq!(banner(console), Some(expected));
        assert_eq!(banner(b"Starting kernel ...\r\n"), None);
    }
}
