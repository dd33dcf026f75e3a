//! Child processes: how they start, and with what status they end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::failure::Failure;
use cloison_client::region::{self, Caches};
use std::process::{Child, Command, ExitCode, ExitStatus};

/// Starts a command.
pub fn start(command: &[String]) -> Result<Child, Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::new("no command", "name a program"));
    };
    let child = Command::new(program).args(arguments).spawn();
    child.map_err(|error| {
        Failure::new(
            format!("cannot start `{program}`: {error}"),
            "name a program that the shell finds, or its path",
        )
    })
}

/// Returns the failure of a command that could not be waited for.
pub fn lost(error: std::io::Error) -> Failure {
    Failure::new(
        format!("cannot wait for the command: {error}"),
        "run it again",
    )
}

/// Returns the exit code for a command's status; a failure if a signal ended it.
pub fn code(status: ExitStatus) -> ExitCode {
    if status.success() {
        return ExitCode::SUCCESS;
    }
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Runs a command in a region of interest of the board model, and returns its status.
pub fn in_region(command: &[String]) -> Result<ExitCode, Failure> {
    region::begin(Caches::Warm);
    let ended = start(command).and_then(|mut child| child.wait().map_err(lost));
    region::end();
    ended.map(code)
}
