//! Whether this command may change the machine outside its working folder: install programs, or
//! download into the cache.
//!
//! Only the commands whose purpose it is may, and those that `test` starts. All others name what is
//! missing, and the command that gets it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{Missing, announce};
use crate::installation;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

/// How a command may install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// After it has said what and why; on a terminal, if the user agrees.
    Asked,
    /// After it has said what and why.
    Given,
}

impl Consent {
    /// Returns the consent that the option `--yes` gives.
    pub const fn of(yes: bool) -> Self {
        if yes { Self::Given } else { Self::Asked }
    }
}

static CONSENT: OnceLock<Consent> = OnceLock::new();

/// If set, a command may install as the one that started it.
pub const VARIABLE: &str = "CLOISON_MAY_INSTALL";

/// Lets this command install.
pub fn give(consent: Consent) {
    // The first one counts: a test in the same process may have given it.
    _ = CONSENT.set(consent);
}

/// Says that something is missing and why it is needed, and returns whether it may be installed.
/// `command` is the one of Cloison that installs it.
///
/// # Errors
///
/// What is missing, if this command may not install it, or the user does not want it.
pub(super) fn obtain(what: &str, why: &str, command: &str) -> Result<(), Missing> {
    let inherited = std::env::var_os(VARIABLE).map(|_| Consent::Given);
    obtain_with(inherited.or(CONSENT.get().copied()), what, why, command)
}

fn obtain_with(
    consent: Option<Consent>,
    what: &str,
    why: &str,
    command: &str,
) -> Result<(), Missing> {
    let refused = |why: String| Missing {
        what: what.to_owned(),
        why,
        commands: format!("  {} {command}", installation::program()),
    };
    let Some(consent) = consent else {
        return Err(refused(why.to_owned()));
    };
    announce(&format!("{what} is needed: {why}"));
    if consent == Consent::Given || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    eprint!("set-up: install it? [Y/n] ");
    _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer).is_ok();
    if read && agrees(&answer) {
        return Ok(());
    }
    Err(refused(format!("{why}, and you did not want it installed")))
}

/// Returns whether an answer is a yes. The end of the input is none.
fn agrees(answer: &str) -> bool {
    answer.ends_with('\n') && ["", "y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_or_a_bare_return_agrees() {
        for answer in ["\n", "y\n", "Y\n", "yes\n", " yes \n"] {
            assert!(agrees(answer), "{answer:?}");
        }
        for answer in ["", "n\n", "no\n", "nyes\n", "what?\n"] {
            assert!(!agrees(answer), "{answer:?}");
        }
    }

    #[test]
    fn without_consent_the_command_that_installs_is_named() {
        let missing = obtain_with(None, "a tool", "it is not installed", "setup").unwrap_err();
        assert!(missing.to_string().contains("a tool is missing"));
        assert!(missing.instructions().contains("setup"));
    }
}
