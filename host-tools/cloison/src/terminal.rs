//! A console on this terminal: what each VM prints, in its own color, and what that says of the run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::crash::Exceptions;
use anstyle::{AnsiColor, Style};
use cloison_engine::consoles::{Logs, Piece, Splitter};
use cloison_engine::linux::COMMAND_ENDED;
use cloison_formats::ids::VmId;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Colors of the VMs' names, used in turn.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Green,
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightRed,
];

/// A console's output, and what the guests' part says beside its text.
#[derive(Debug)]
pub struct Heard {
    /// All bytes.
    pub console: Vec<u8>,
    /// How commands of configurations ended.
    pub commands: Told,
    /// The exceptions that guests reported.
    pub exceptions: Exceptions,
}

impl Heard {
    /// Returns that of a console that has said nothing. `vms` are those whose configuration has a
    /// command that ends them.
    pub fn of(vms: &[VmId]) -> Self {
        let (commands, exceptions) = (Told::of(vms), Exceptions::default());
        Self {
            console: Vec::new(),
            commands,
            exceptions,
        }
    }

    fn take(&mut self, piece: Piece) {
        self.commands.take(piece);
        self.exceptions.take(piece);
    }
}

/// The statuses that commands of configurations ended with, as their guests print them.
#[derive(Debug)]
pub struct Told(Vec<GuestCommand>);

/// The command that a VM's guest runs.
#[derive(Debug)]
struct GuestCommand {
    vm: VmId,
    /// What the guest has printed of a line.
    line: Vec<u8>,
    /// The last status; `None` before the command has ended.
    status: Option<u8>,
}

impl Told {
    fn of(vms: &[VmId]) -> Self {
        let new = |vm: &VmId| GuestCommand {
            vm: *vm,
            line: Vec::new(),
            status: None,
        };
        Self(vms.iter().map(new).collect())
    }

    fn take(&mut self, piece: Piece) {
        /// No line with a status is longer.
        const LONGEST: usize = 64;
        let Piece::Text(Some(speaker), text) = piece else {
            return;
        };
        let Some(command) = self.0.iter_mut().find(|command| command.vm == speaker) else {
            return;
        };
        // A line end arrives with the next line, or never.
        if text == b"\n" {
            command.line.clear();
        } else if command.line.len() < LONGEST {
            command.line.extend_from_slice(text);
        }
        let said = std::str::from_utf8(&command.line).ok();
        let said = said.and_then(|line| line.strip_prefix(COMMAND_ENDED)?.parse().ok());
        command.status = said.or(command.status);
    }

    /// Fails with the commands that failed, if there are any.
    pub fn all_succeeded(&self, names: &[String]) -> Result<()> {
        let failed: Vec<String> = self
            .0
            .iter()
            .filter_map(|command| Some((command.vm, command.status.filter(|it| *it != 0)?)))
            .map(|(vm, status)| format!("{} with status {status}", names[vm.index()]))
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(miette!(
            "the command (`exec`) ended in {}",
            failed.join(", ")
        ))
    }
}

/// Creates the log files of a console.
///
/// # Errors
///
/// If the directory cannot be written to.
pub fn create_logs<'a>(directory: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<Logs> {
    Logs::create(directory, names)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot write to {}", directory.display()))
}

/// Shows the consoles with each VM's name in its own color, and writes them to log files.
#[derive(Debug)]
pub struct Terminal {
    splitter: Splitter,
    names: Vec<String>,
    logs: Option<Logs>,
    heard: Arc<Mutex<Heard>>,
    colored: bool,
}

impl Terminal {
    /// Creates the terminal of these VMs. With `log`, each VM's output is also written there.
    ///
    /// # Errors
    ///
    /// If `log` cannot be written to.
    pub fn new(names: &[String], log: Option<&Path>, heard: Arc<Mutex<Heard>>) -> Result<Self> {
        let each = || names.iter().map(String::as_str);
        let logs = log
            .map(|directory| create_logs(directory, each()))
            .transpose()?;
        let colored = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Ok(Self {
            splitter: Splitter::new(each()),
            names: names.to_vec(),
            logs,
            heard,
            colored,
        })
    }

    /// Returns a listener for the console's output, which is called with an empty slice at its end.
    pub fn into_listener(mut self) -> impl FnMut(&[u8]) + Send + 'static {
        move |bytes| {
            // A closed terminal or a full disk must not stop the board.
            let _ = self.take(bytes);
        }
    }

    /// Shows the next bytes; an empty slice is the end.
    ///
    /// # Errors
    ///
    /// If the terminal is closed or a log's disk is full.
    pub fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.colored {
            out.write_all(bytes)?;
        }
        let mut done = Ok(());
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.console.extend_from_slice(bytes);
        let mut on_piece = |piece: Piece| {
            heard.take(piece);
            let logged = self.logs.as_mut().map_or(Ok(()), |logs| logs.write(piece));
            let shown = if self.colored {
                show(&mut out, &self.names, piece)
            } else {
                Ok(())
            };
            done = std::mem::replace(&mut done, Ok(())).and(logged).and(shown);
        };
        if bytes.is_empty() {
            self.splitter.finish(&mut on_piece);
        } else {
            self.splitter.feed(bytes, &mut on_piece);
        }
        done?;
        out.flush()
    }
}

fn show(out: &mut impl Write, names: &[String], piece: Piece) -> std::io::Result<()> {
    match piece {
        Piece::Start(Some(vm)) => {
            let style = Style::new().fg_color(Some(COLORS[vm.index() % COLORS.len()].into()));
            write!(out, "{style}[{}]{style:#} ", names[vm.index()])
        }
        Piece::Start(None) => Ok(()),
        // The console's own line ends are shown as they arrive.
        Piece::Text(_, b"\n") => Ok(()),
        Piece::Text(_, text) => out.write_all(text),
        Piece::End => out.write_all(b"\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(told: &mut Told, vm: u8, text: &str) {
        for byte in text.bytes() {
            told.take(Piece::Text(Some(VmId(vm)), &[byte]));
        }
    }

    #[test]
    fn the_last_status_of_a_command_decides() {
        let names = ["one", "two"].map(str::to_owned);
        let mut told = Told::of(&[VmId(1)]);
        say(&mut told, 0, "cloison: the command ended with status 7");
        say(&mut told, 1, "x cloison: the command ended with status 9\n");
        assert!(
            told.all_succeeded(&names).is_ok(),
            "another VM, another line"
        );
        say(&mut told, 1, "cloison: the command ended with status 12");
        let error = told.all_succeeded(&names).unwrap_err().to_string();
        assert!(error.ends_with("two with status 12"), "{error}");
        say(&mut told, 1, "\ncloison: the command ended with status 0\n");
        assert!(told.all_succeeded(&names).is_ok(), "it ran again");
    }
}
