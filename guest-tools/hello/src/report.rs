//! The log: a line for each check.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::console::Console;
use crate::power;
use alloc::format;
use alloc::string::{String, ToString};
use cloison_hello::line::{END, Line, NONE, Verdict};
use core::fmt::{self, Display, Write};

/// The lines so far.
#[derive(Default)]
pub struct Report {
    number: u32,
    wrong: u32,
}

impl Report {
    /// Prints a line. A text may have no space, except the remark.
    pub fn line(
        &mut self,
        key: impl Display,
        expected: impl Display,
        found: impl Display,
        verdict: Verdict,
        remark: impl Display,
    ) {
        let line = Line {
            number: self.number,
            key: key.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
            verdict,
            remark: remark.to_string(),
        };
        self.number += 1;
        self.wrong += u32::from(verdict == Verdict::Wrong);
        // A console that takes nothing cannot be told of.
        let _ = writeln!(Console, "{line}");
    }

    /// Prints a line on a claim: right if what was found has the same text.
    pub fn compare(
        &mut self,
        key: impl Display,
        expected: impl Display,
        found: Option<impl Display>,
        remark: impl Display,
    ) {
        let expected = expected.to_string();
        let found = found.map_or_else(|| NONE.to_string(), |found| found.to_string());
        let verdict = if expected == found {
            Verdict::Right
        } else {
            Verdict::Wrong
        };
        self.line(key, expected, found, verdict, remark);
    }

    /// Prints a line on a claim that cannot be checked.
    pub fn untested(&mut self, key: impl Display, expected: impl Display, why: impl Display) {
        self.line(key, expected, NONE, Verdict::Untested, why);
    }

    /// Prints a line on what the board file does not say.
    pub fn note(&mut self, key: impl Display, found: impl Display, remark: impl Display) {
        self.line(key, NONE, found, Verdict::Noted, remark);
    }

    /// Prints the last line.
    pub fn end(mut self) {
        let (lines, wrong) = (self.number, self.wrong);
        self.line(END, lines, wrong, Verdict::Noted, "");
    }
}

/// Returns an address as lines have it.
pub fn address(address: u64) -> String {
    format!("{address:#x}")
}

/// Returns the remark on an address that faults.
pub fn nothing_at(address: u64) -> String {
    format!("nothing answers at {address:#x}")
}

/// Prints why no further check is possible, and ends.
pub fn abandon(why: fmt::Arguments<'_>) -> ! {
    // A console that takes nothing cannot be told of.
    let _ = writeln!(Console, "cloison hello: stopped: {why}");
    power::off()
}
