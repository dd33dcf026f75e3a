//! Runs a board in QEMU: starts it, reads and types on its console, and always stops it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::consoles::plain;
use crate::files;
use crate::interrupted::{self, Watched};
use crate::lines::{Console, Lines, to_file};
use crate::oracle;
use crate::setup::emulator::{PROGRAM, qemu_help};
use cloison_config::Emulation;
use cloison_config::emulation::Serial;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thiserror::Error;

/// Errors while listening to a board.
#[derive(Debug, Error, Diagnostic)]
pub enum RunError {
    /// The awaited line did not appear.
    #[error("the board did not print {wanted} within {} s", .after.as_secs())]
    #[diagnostic(help("the console's last lines were:\n{tail}"))]
    Timeout {
        /// The awaited text.
        wanted: String,
        /// The timeout.
        after: Duration,
        /// The end of the console's output.
        tail: String,
    },
    /// QEMU ended first.
    #[error("QEMU ended ({status}) before the board printed {wanted}")]
    #[diagnostic(help("the console's last lines were:\n{tail}"))]
    Ended {
        /// The awaited text.
        wanted: String,
        /// How QEMU ended.
        status: Exit,
        /// The end of the console's output.
        tail: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// QEMU ended by itself with this code.
    Code(i32),
    /// QEMU was killed by a signal from elsewhere.
    Signal,
    /// The time limit expired, and QEMU was stopped.
    TimedOut,
    /// QEMU was stopped on purpose.
    Stopped,
}

impl Exit {
    /// Returns whether the machine turned itself off.
    pub fn is_clean(self) -> bool {
        self == Self::Code(0)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        status.code().map_or(Self::Signal, Self::Code)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(0) => f.write_str("turned off"),
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal => f.write_str("killed by a signal"),
            Self::TimedOut => f.write_str("stopped after its time was up"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// The result of a finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How QEMU ended.
    pub exit: Exit,
    /// The console's complete output.
    pub console: String,
    /// All of the telemetry.
    pub telemetry: Vec<u8>,
    /// What a VM has sent on a UART that a configuration has freed.
    pub uart: Vec<u8>,
    /// QEMU's own error messages.
    pub errors: String,
    /// Wall time of the run.
    pub wall: Duration,
}

/// The result of a run whose console was this terminal.
#[derive(Clone, Debug)]
pub struct Shown {
    /// How QEMU ended.
    pub exit: Exit,
    /// All of the telemetry.
    pub telemetry: Vec<u8>,
    /// What a VM has sent on a UART that a configuration has freed.
    pub uart: Vec<u8>,
}

/// A board that can be started, with its image or firmware.
#[derive(Clone, Debug)]
pub struct Machine {
    board: Emulation,
    kernel: Option<PathBuf>,
    icount: Option<u8>,
    cntfrq: Option<u64>,
    extra: Vec<OsString>,
    limit: Duration,
}

impl Machine {
    /// Returns a board that starts `image` (with an arm64 Image header).
    pub fn new(board: &Emulation, image: &Path) -> Self {
        Self {
            kernel: Some(image.to_path_buf()),
            ..Self::bare(board)
        }
    }
    /// Returns a board without an image: provide firmware with [`Machine::arg`].
    pub fn bare(board: &Emulation) -> Self {
        Self {
            board: board.clone(),
            kernel: None,
            icount: None,
            cntfrq: None,
            extra: Vec::new(),
            limit: Duration::from_secs(120),
        }
    }
    /// Returns the board.
    pub fn board(&self) -> &Emulation {
        &self.board
    }
    /// Makes one instruction take 2^`shift` ns of guest time; runs then repeat exactly.
    pub fn icount(mut self, shift: Option<u8>) -> Self {
        self.icount = shift;
        self
    }
    /// Sets the frequency of the generic timer, in Hz.
    pub fn cntfrq(mut self, hz: u64) -> Self {
        self.cntfrq = Some(hz);
        self
    }
    /// Adds an argument for QEMU.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.extra.push(argument.into());
        self
    }
    /// Adds arguments for QEMU.
    pub fn args<I: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.extra.extend(arguments.into_iter().map(Into::into));
        self
    }
    /// Sets the time limit after which QEMU is stopped; two minutes by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn arguments(&self, lines: &Lines, console: &str) -> Vec<OsString> {
        let board = &self.board;
        let machine = board.machine_arguments().into_iter();
        let mut arguments: Vec<OsString> = machine.map(OsString::from).collect();
        arguments.extend(["-nic", "none", "-display", "none", "-no-reboot"].map(OsString::from));
        arguments.extend(board.options.iter().map(OsString::from));
        if let Some(hz) = self.cntfrq {
            arguments.extend([
                "-global".into(),
                format!("{}-arm-cpu.cntfrq={hz}", board.cpu).into(),
            ]);
        }
        if let Some(shift) = self.icount {
            // While all cores wait, guest time jumps to the next timer: the run does not depend on
            // real time.
            arguments.extend(["-icount".into(), format!("shift={shift},sleep=off").into()]);
        }
        for line in &board.serial {
            let to = match line {
                Serial::Console | Serial::Both => console.into(),
                Serial::Telemetry => to_file(&lines.telemetry),
                Serial::Vm => to_file(&lines.uart),
                Serial::Unused => "null".into(),
            };
            arguments.extend(["-serial".into(), to]);
        }
        if let Some(kernel) = &self.kernel {
            arguments.extend(["-kernel".into(), kernel.into()]);
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }

    /// Returns the command line, to be shown to a user.
    pub fn command_line(&self) -> String {
        let arguments = self.arguments(&Lines::below(Path::new("")), "mon:stdio");
        let words = arguments
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        std::iter::once(PROGRAM.to_owned())
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Returns the arguments for the oracle, where it is wanted.
    fn oracle(&self, report: &Path) -> Vec<OsString> {
        let has_one_thread = self.icount.is_some() || self.extra.iter().any(|one| one == "-accel");
        let kernel = self.kernel.as_deref();
        kernel.map_or_else(Vec::new, |image| {
            oracle::arguments(image, report, has_one_thread)
        })
    }

    /// Starts the board with its console connected to the session.
    pub fn start(&self) -> Result<Session> {
        let scratch = files::scratch()?;
        let lines = Lines::below(scratch.path());
        let console = Console::of(&self.board, &lines)?;
        let report = scratch.path().join("oracle.json");
        let mut command = bound_to_us()?;
        command
            .args(self.arguments(&lines, "stdio"))
            .args(self.oracle(&report))
            .args(["-monitor", "none"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start QEMU")?;
        let (sender, events) = mpsc::channel();
        let output = child
            .stdout
            .take()
            .ok_or_else(|| miette!("QEMU has no output"))?;
        let mut errors = child
            .stderr
            .take()
            .ok_or_else(|| miette!("QEMU has no error output"))?;
        let reader = std::thread::spawn(move || {
            console.read(output, |text| sender.send(text.to_vec()).is_ok());
        });
        let complaints = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Output read before a failure is kept; nothing else can be done about a broken pipe.
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Session {
            stdin: child.stdin.take(),
            child,
            events,
            reader: Some(reader),
            complaints: Some(complaints),
            console: Vec::new(),
            line_start: 0,
            on_line: None,
            lines,
            report,
            _scratch: scratch,
            started: Instant::now(),
            limit: self.limit,
            exit: None,
        })
    }

    /// Runs the board to its end or its time limit. Returns its output.
    pub fn run(&self) -> Result<Outcome> {
        self.start()?.finish()
    }

    /// Runs the board with its console on this terminal until it turns itself off, the user quits
    /// with `Ctrl-A x`, or `limit` has passed. `listener` gets the console's output, and an empty
    /// slice at its end.
    pub fn run_on_terminal(
        &self,
        limit: Option<Duration>,
        mut listener: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Shown> {
        let scratch = files::scratch()?;
        let lines = Lines::below(scratch.path());
        let console = Console::of(&self.board, &lines)?;
        let mut command = bound_to_us()?;
        command
            .args(self.arguments(&lines, "mon:stdio"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut guard = Guard(
            command
                .spawn()
                .into_diagnostic()
                .wrap_err("cannot start QEMU")?,
        );
        let output = guard
            .0
            .stdout
            .take()
            .ok_or_else(|| miette!("QEMU has no output"))?;
        let shown = std::thread::spawn(move || {
            console.read(output, |text| {
                listener(text);
                true
            });
            listener(&[]);
        });
        let errors = guard
            .0
            .stderr
            .take()
            .ok_or_else(|| miette!("QEMU has no error output"))?;
        std::thread::spawn(move || {
            // The ZCU102's network interfaces have no peer on purpose.
            let lines = BufReader::new(errors)
                .lines()
                .map_while(std::io::Result::ok);
            lines
                .filter(|line| !line.ends_with("has no peer"))
                .for_each(|line| eprintln!("{line}"));
        });
        let started = Instant::now();
        let exit = loop {
            if let Some(status) = guard.0.try_wait().into_diagnostic()? {
                break status.into();
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                break Exit::TimedOut;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        drop(guard);
        // The pipe ended when QEMU did.
        let _ = shown.join();
        Ok(Shown {
            exit,
            telemetry: std::fs::read(&lines.telemetry).unwrap_or_default(),
            uart: std::fs::read(&lines.uart).unwrap_or_default(),
        })
    }
}

/// Returns a command that becomes QEMU and dies with the thread that starts it, even if that is
/// killed and cannot clean up.
fn bound_to_us() -> Result<Command> {
    if !is_on_path(PROGRAM) {
        return Err(miette!(help = qemu_help(), "{PROGRAM} is not installed"));
    }
    if !is_on_path("setpriv") {
        return Ok(Command::new(PROGRAM));
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", PROGRAM]);
    Ok(command)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Stops the process when it goes out of scope.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        stop(&mut self.0);
    }
}

fn stop(child: &mut Child) {
    // Both fail only if the process has ended and been waited for, which is the goal.
    let _ = child.kill();
    let _ = child.wait();
}

type LineCallback = Box<dyn FnMut(&str) + Send>;

/// A running board. Dropping it stops QEMU.
pub struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
    complaints: Option<JoinHandle<String>>,
    console: Vec<u8>,
    /// Position in `console` of the first line that has not been returned to a caller.
    line_start: usize,
    on_line: Option<LineCallback>,
    lines: Lines,
    /// The oracle's report, where there is one.
    report: PathBuf,
    _scratch: TempDir,
    started: Instant,
    limit: Duration,
    exit: Option<Exit>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("pid", &self.child.id())
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

/// Result of waiting for console output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There is more output.
    More,
    /// There was no output within the given time.
    Quiet,
    /// QEMU has ended.
    End,
}

enum Step {
    Line(String),
    Quiet,
    End,
}

impl Session {
    /// Returns what keeps the telemetry so far in a directory if the command is interrupted. It is
    /// dropped when the board has ended.
    pub fn watch(&self, directory: &Path) -> Watched {
        interrupted::watch(&self.lines.telemetry, directory)
    }

    /// Calls `callback` with each console line from now on, without its line end.
    pub fn on_line(&mut self, callback: impl FnMut(&str) + Send + 'static) {
        self.on_line = Some(Box::new(callback));
    }

    /// Returns the next complete line, or the unfinished one at the end of the output if QEMU has
    /// ended.
    fn step(&mut self, until: Instant) -> Step {
        loop {
            if let Some(length) = self.console[self.line_start..]
                .iter()
                .position(|&byte| byte == b'\n')
            {
                return Step::Line(self.take_line(length, 1));
            }
            let until = until.min(self.started + self.limit);
            match self
                .events
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(bytes) => self.console.extend_from_slice(&bytes),
                Err(RecvTimeoutError::Timeout) => return Step::Quiet,
                Err(RecvTimeoutError::Disconnected) => {
                    let rest = self.console.len() - self.line_start;
                    return if rest > 0 {
                        Step::Line(self.take_line(rest, 0))
                    } else {
                        Step::End
                    };
                }
            }
        }
    }

    fn take_line(&mut self, length: usize, line_end: usize) -> String {
        let bytes = &self.console[self.line_start..self.line_start + length];
        let line = String::from_utf8_lossy(bytes)
            .trim_end_matches('\r')
            .to_owned();
        self.line_start += length + line_end;
        if let Some(callback) = &mut self.on_line {
            callback(&line);
        }
        line
    }

    /// Waits for a line that `wanted` accepts, and returns it. Lines before it are skipped.
    pub fn wait_for(
        &mut self,
        what: &str,
        wanted: impl Fn(&str) -> bool,
        timeout: Duration,
    ) -> Result<String> {
        let until = Instant::now() + timeout;
        loop {
            match self.step(until) {
                Step::Line(line) if wanted(&line) => return Ok(line),
                Step::Line(_) => {}
                Step::Quiet => {
                    let after = timeout.min(self.started.elapsed());
                    return Err(RunError::Timeout {
                        wanted: what.to_owned(),
                        after,
                        tail: self.tail(),
                    }
                    .into());
                }
                Step::End => {
                    let status = self.child.wait().map_or(Exit::Signal, Exit::from);
                    self.exit = Some(status);
                    return Err(RunError::Ended {
                        wanted: what.to_owned(),
                        status,
                        tail: self.tail(),
                    }
                    .into());
                }
            }
        }
    }

    /// Waits for a line that contains `text`, and returns it.
    pub fn expect(&mut self, text: &str, timeout: Duration) -> Result<String> {
        self.wait_for(&format!("\"{text}\""), |line| line.contains(text), timeout)
    }

    /// Returns all bytes that the console has sent so far.
    pub fn bytes(&self) -> &[u8] {
        &self.console
    }

    /// Returns whether the board's time limit has passed.
    pub fn is_over(&self) -> bool {
        self.started.elapsed() >= self.limit
    }

    /// Waits for more console output.
    pub fn receive(&mut self, until: Instant) -> Received {
        let until = until.min(self.started + self.limit);
        match self
            .events
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(bytes) => {
                self.console.extend_from_slice(&bytes);
                Received::More
            }
            Err(RecvTimeoutError::Timeout) => Received::Quiet,
            Err(RecvTimeoutError::Disconnected) => Received::End,
        }
    }

    /// Types bytes on the console.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let stdin = self
            .stdin
            .as_mut()
            .ok_or_else(|| miette!("the console is closed"))?;
        stdin
            .write_all(bytes)
            .and_then(|()| stdin.flush())
            .into_diagnostic()
            .wrap_err("cannot type on the console")
    }

    /// Returns the console's output so far.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&self.console).into_owned()
    }

    /// Returns the telemetry so far.
    pub fn telemetry(&self) -> Vec<u8> {
        std::fs::read(&self.lines.telemetry).unwrap_or_default()
    }

    /// Returns the telemetry from byte `start` on.
    pub fn telemetry_from(&self, start: u64) -> Vec<u8> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.lines.telemetry)?;
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        // QEMU creates the file when it starts; until then there is no output.
        read().unwrap_or_default()
    }

    fn tail(&self) -> String {
        let console = plain(&self.console());
        let lines: Vec<_> = console.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Waits until the board turns itself off or its time limit has passed.
    pub fn finish(mut self) -> Result<Outcome> {
        let until = self.started + self.limit;
        let ended = loop {
            match self.step(until) {
                Step::Line(_) => {}
                Step::Quiet => break false,
                Step::End => break true,
            }
        };
        if ended && self.exit.is_none() {
            self.exit = Some(self.child.wait().into_diagnostic()?.into());
        }
        self.close(Exit::TimedOut)
    }

    /// Stops the board now.
    pub fn stop(self) -> Result<Outcome> {
        self.close(Exit::Stopped)
    }

    fn close(mut self, otherwise: Exit) -> Result<Outcome> {
        if self.exit.is_none() {
            stop(&mut self.child);
        }
        // QEMU's output before its end is still in the pipe.
        while let Step::Line(_) = self.step(Instant::now() + Duration::from_secs(5)) {}
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let errors = self
            .complaints
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        let exit = self.exit.unwrap_or(otherwise);
        let code = match exit {
            Exit::Code(code) => Some(code),
            _ => None,
        };
        oracle::judge(code, &errors, &self.report)?;
        Ok(Outcome {
            exit,
            console: self.console(),
            telemetry: self.telemetry(),
            uart: std::fs::read(&self.lines.uart).unwrap_or_default(),
            errors,
            wall: self.started.elapsed(),
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.exit.is_none() {
            stop(&mut self.child);
        }
    }
}
