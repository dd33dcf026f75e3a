//! The exit codes of all commands.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_lab::jobs::TRY_AGAIN;
use miette::Report;

/// An error that ends the program, and the exit code that says of which kind it is.
#[derive(Debug)]
pub struct Failure {
    /// One of [`CODES`].
    pub code: u8,
    /// What is printed.
    pub error: Report,
}

impl From<Report> for Failure {
    fn from(error: Report) -> Self {
        Self {
            code: FAILED,
            error,
        }
    }
}

/// Of every command: an error.
const FAILED: u8 = 1;

/// Of `run`: the hypervisor killed a VM for a violation.
pub const KILLED: u8 = 3;
/// Of `run`: the time of `--timeout` is up, as of the command `timeout`.
pub const TIME_IS_UP: u8 = 124;
/// Of `run --exec`: the command was not run, as of the command `timeout`.
pub const NOT_RUN: u8 = 125;

/// What each code means.
pub const CODES: [(u8, &str); 7] = [
    (
        0,
        "done; of `run` and `capture`: the board turned itself off, or the command of `--exec` \
         succeeded",
    ),
    (
        FAILED,
        "an error, which is printed; a check of an experiment that does not hold; `run`: a \
         command of the configuration (`exec`) failed",
    ),
    (2, "the command line is wrong"),
    (KILLED, "`run`, `capture`: the hypervisor killed a VM"),
    (TRY_AGAIN, "`job`, `collect`: try again"),
    (
        TIME_IS_UP,
        "`run`, `capture`: the time of `--timeout` was up",
    ),
    (
        NOT_RUN,
        "`run --exec`: the command was not run, or its status was not seen",
    ),
];
