//! The shell of a Linux guest over the console: runs commands and returns their output and status.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::consoles::{Piece, Splitter, plain};
use crate::qemu::{Received, Session};
use cloison_formats::ids::VmId;
use miette::{Diagnostic, Result};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Makes the hypervisor send the input to the VM whose number follows.
const SWITCH: u8 = 0x14;
/// How much is typed at once, and how long the guest has to read it: a VM's UART keeps 1,024 bytes,
/// and loses more.
const AT_ONCE: usize = 256;
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum length of a line that Linux' terminals take; what follows is dropped without a word.
const LONGEST_LINE: usize = 4095;
/// Text that Cloison's RAM disk prints before its first shell.
const UP: &str = " is up: Linux ";

/// Errors of a command and while waiting for it.
#[derive(Debug, Error, Diagnostic)]
pub enum ShellError {
    /// The command is too long to be typed.
    #[error("the command is {by} bytes too long for one line on a Linux terminal")]
    #[diagnostic(help(
        "put it into a file and name that in the VM's `programs`: a script that starts with \
         #!/bin/sh"
    ))]
    TooLong {
        /// Bytes beyond the limit.
        by: usize,
    },
    /// The timeout expired.
    #[error("VM `{vm}` did not {wanted} within {} s", .after.as_secs())]
    #[diagnostic(help("the VM's last lines were:\n{tail}"))]
    Timeout {
        /// Name of the VM.
        vm: String,
        /// The awaited text.
        wanted: String,
        /// The timeout.
        after: Duration,
        /// The end of the VM's output.
        tail: String,
    },
    /// The machine turned off.
    #[error("the board turned itself off before VM `{vm}` could {wanted}")]
    #[diagnostic(help("the VM's last lines were:\n{tail}"))]
    Ended {
        /// Name of the VM.
        vm: String,
        /// The awaited text.
        wanted: String,
        /// The end of the VM's output.
        tail: String,
    },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// Everything that it printed.
    pub output: String,
    /// Its exit status.
    pub status: u8,
}

/// The consoles of a session's VMs, with their shells.
pub struct Shells {
    names: Vec<String>,
    splitter: Splitter,
    /// How much of the session's console has been processed.
    seen: usize,
    said: Vec<Vec<u8>>,
    /// How much of each VM's output has been consumed.
    read: Vec<usize>,
    commands: u32,
}

impl Shells {
    /// Creates the shells for these VMs, in configuration order.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let splitter = Splitter::new(names.iter().map(String::as_str));
        let (said, read) = (vec![Vec::new(); names.len()], vec![0; names.len()]);
        Self {
            names,
            splitter,
            seen: 0,
            said,
            read,
            commands: 0,
        }
    }

    /// Returns everything that a VM has printed so far.
    pub fn said(&self, vm: VmId) -> String {
        String::from_utf8_lossy(&self.said[vm.index()]).into_owned()
    }

    /// Waits until a VM prints `text`, after what has been consumed already. Returns the output in
    /// between.
    pub fn expect(
        &mut self,
        session: &mut Session,
        vm: VmId,
        wanted: &str,
        text: &str,
        timeout: Duration,
    ) -> Result<String> {
        let until = Instant::now() + timeout;
        let from = self.read[vm.index()];
        // Where the text may still begin: a boot prints a thousand lines, in as many pieces.
        let mut next = from;
        loop {
            self.take(session);
            let said = &self.said[vm.index()];
            let found = said[next..]
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(at) = found.map(|at| next + at) {
                let before = String::from_utf8_lossy(&said[from..at]).into_owned();
                self.read[vm.index()] = at + text.len();
                return Ok(before);
            }
            next = next.max((said.len() + 1).saturating_sub(text.len()));
            let (name, wanted) = (self.names[vm.index()].clone(), wanted.to_owned());
            match session.receive(until) {
                Received::More => {}
                Received::Quiet => {
                    return Err(ShellError::Timeout {
                        vm: name,
                        wanted,
                        after: timeout,
                        tail: self.tail(vm),
                    }
                    .into());
                }
                Received::End => {
                    return Err(ShellError::Ended {
                        vm: name,
                        wanted,
                        tail: self.tail(vm),
                    }
                    .into());
                }
            }
        }
    }

    /// Processes the console's new output.
    fn take(&mut self, session: &Session) {
        let (seen, said) = (&session.bytes()[self.seen..], &mut self.said);
        self.splitter.feed(seen, |piece| {
            if let Piece::Text(Some(vm), text) = piece {
                said[vm.index()].extend_from_slice(text);
            }
        });
        self.seen = session.bytes().len();
    }

    /// Makes [`expect`](Self::expect) ignore everything that a VM has printed until now.
    pub fn pass_over(&mut self, session: &Session, vm: VmId) {
        self.take(session);
        self.read[vm.index()] = self.said[vm.index()].len();
    }

    fn tail(&self, vm: VmId) -> String {
        let said = plain(&self.said(vm));
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Types text on a VM's console.
    pub fn send(&self, session: &mut Session, vm: VmId, text: &str) -> Result<()> {
        let mut bytes = vec![SWITCH, b'1' + vm.0];
        bytes.extend_from_slice(text.as_bytes());
        for (number, piece) in bytes.chunks(AT_ONCE).enumerate() {
            if number > 0 {
                std::thread::sleep(PAUSE);
            }
            session.send(piece)?;
        }
        Ok(())
    }

    /// Waits until a VM's shell has started, and turns off its echo and prompt.
    pub fn open(&mut self, session: &mut Session, vm: VmId, timeout: Duration) -> Result<()> {
        self.expect(session, vm, "boot", UP, timeout)?;
        self.expect(session, vm, "prompt", "# ", timeout)?;
        self.commands += 1;
        let mark = self.commands;
        self.send(
            session,
            vm,
            &format!("stty -echo; PS1= PS2=; echo \"<<\"quiet {mark}\">>\"\n"),
        )?;
        self.expect(
            session,
            vm,
            "answer its shell",
            &format!("<<quiet {mark}>>"),
            timeout,
        )
        .map(drop)
    }

    /// Types a command without waiting for its end.
    pub fn start(&mut self, session: &mut Session, vm: VmId, command: &str) -> Result<u32> {
        self.commands += 1;
        let mark = self.commands;
        let quoted = command.replace('\'', "'\\''");
        let line = format!("sh -c '{quoted}' </dev/null; echo \"<<\"end {mark} $?\">>\"\n");
        if let Some(by @ 1..) = line.len().checked_sub(LONGEST_LINE) {
            return Err(ShellError::TooLong { by }.into());
        }
        self.send(session, vm, &line)?;
        Ok(mark)
    }

    /// Runs a command in a VM's shell that [`open`](Self::open) has prepared.
    pub fn run(
        &mut self,
        session: &mut Session,
        vm: VmId,
        command: &str,
        timeout: Duration,
    ) -> Result<CommandResult> {
        let mark = self.start(session, vm, command)?;
        self.finish(session, vm, mark, timeout)
    }

    /// Waits for the end of a command that [`start`](Self::start) has typed.
    pub fn finish(
        &mut self,
        session: &mut Session,
        vm: VmId,
        mark: u32,
        timeout: Duration,
    ) -> Result<CommandResult> {
        let wanted = "finish its command";
        let output = self.expect(session, vm, wanted, &format!("<<end {mark} "), timeout)?;
        let status = self.expect(session, vm, wanted, ">>", timeout)?;
        // The end of the line with the previous mark, which arrived with the line after it.
        let output = output.strip_prefix('\n').unwrap_or(&output).to_owned();
        Ok(CommandResult {
            output,
            status: status.parse().unwrap_or(u8::MAX),
        })
    }
}
