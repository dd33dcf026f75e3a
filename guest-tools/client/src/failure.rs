//! Why a command failed, and how to fix it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_client::Error;

/// The reason why a command failed, and advice.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub help: Option<String>,
}

impl Failure {
    /// Returns a failure with advice.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            message: error.to_string(),
            help: error.help(),
        }
    }
}

impl From<cloison_epapi::Error> for Failure {
    fn from(error: cloison_epapi::Error) -> Self {
        let help = match error {
            cloison_epapi::Error::CountersLost => {
                "another program counts with the kernel's counters; count without it"
            }
            _ => "`cloisonctl list` shows what can be counted",
        };
        Self {
            message: format!("cannot count: {error}"),
            help: Some(help.to_owned()),
        }
    }
}
