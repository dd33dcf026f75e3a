//! Runs programs for `setup`, and reports the missing part if one of them fails.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::progress::spinner;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Something that this machine lacks and that could not be installed.
#[derive(Debug, Error, Diagnostic)]
#[error("{what} is missing: {why}")]
#[diagnostic(help("{}", self.instructions()))]
pub struct Missing {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) commands: String,
}

impl Missing {
    /// Returns instructions for the user to install it.
    pub fn instructions(&self) -> String {
        format!("run this, then try again:\n{}", self.commands)
    }
}

/// Prints the next step before it is done.
pub(crate) fn announce(text: &str) {
    eprintln!("set-up: {text}");
}

/// The result of a program within its time limit.
pub(crate) struct ProgramOutput {
    pub success: bool,
    pub text: String,
}

impl ProgramOutput {
    /// Returns the files that apt could not download and the reason, if there are any. `apt-get
    /// update` succeeds nevertheless.
    pub fn unreachable(&self) -> Option<String> {
        let failed = |line: &str| {
            let (_, rest) = line.split_once("Failed to fetch ")?;
            Some(rest.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        self.text.lines().find_map(failed)
    }

    /// Returns the last meaningful line of output, for an error message.
    pub fn reason(&self) -> String {
        let telling = |line: &&str| !line.trim().is_empty();
        let error = self
            .text
            .lines()
            .rev()
            .find(|line| line.starts_with("E:") || line.starts_with("error"));
        error
            .or_else(|| self.text.lines().rev().find(telling))
            .unwrap_or("no message")
            .trim()
            .to_owned()
    }
}

/// Runs a program that may take long or hang on a network, with a spinner, for at most `limit`.
pub(crate) fn run_limited(
    mut command: Command,
    what: &str,
    limit: Duration,
) -> Result<ProgramOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut reader, writer) = std::io::pipe().into_diagnostic()?;
    let errors = writer.try_clone().into_diagnostic()?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command
        .spawn()
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot start `{name}`"))?;
    // The command holds the write end of the pipe; without this the reader would never see its end.
    drop(command);
    let collector = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let spinner = spinner(what);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().into_diagnostic()? {
            break Some(status);
        }
        if started.elapsed() > limit {
            // It may have ended at this very moment; then there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    spinner.finish_and_clear();
    let Some(status) = status else {
        // A grandchild may hold the pipe open, so its output is not awaited.
        return Ok(ProgramOutput {
            success: false,
            text: format!("error: no result within {} s", limit.as_secs()),
        });
    };
    let text = collector.join().unwrap_or_default();
    Ok(ProgramOutput {
        success: status.success(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_network_is_told_from_a_missing_package() {
        let text = "Ign:1 http://mirror/debian bookworm InRelease\n\
            Err:1 http://mirror/debian bookworm InRelease\n  \
                    Temporary failure resolving 'mirror'\nReading package lists...\n\
                    W: Failed to fetch \
                    http://mirror/debian/dists/bookworm/InRelease  Temporary failure resolving 'mirror'\nW: Some index \
                    files failed to download. They have been ignored, or old ones used instead.\n";
        let offline = ProgramOutput {
            success: true,
            text: text.to_owned(),
        };
        let reason =
            "http://mirror/debian/dists/bookworm/InRelease Temporary failure resolving 'mirror'";
        assert_eq!(offline.unreachable().as_deref(), Some(reason));
        let online = ProgramOutput {
            success: true,
            text: "Get:1 http://mirror/debian bookworm InRelease\n".to_owned(),
        };
        assert_eq!(online.unreachable(), None);
    }
}
