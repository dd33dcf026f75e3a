//! The lines of the hello image in a console's text, and what is wrong with them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_hello::early::wrong_level;
use cloison_hello::line::{BEGIN, END, Line, Reading, Verdict, read};
use miette::Diagnostic;
use thiserror::Error;

/// First words of the line that the image prints if it cannot continue.
const STOPPED: &str = "cloison hello: stopped: ";

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The board of the image's board file.
    pub board: String,
    /// CRC-32 of the claims, in hexadecimal.
    pub claims: String,
    /// The checks: all lines but the first and the last one.
    pub checks: Vec<Line>,
    /// What was lost of it.
    pub losses: Vec<Loss>,
}

/// What was lost of a log. `Display` says what and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Loss {
    /// A line is damaged.
    #[error("line {0} of the log is damaged: its CRC does not match")]
    Damaged(usize),
    /// Lines are missing.
    #[error("{count} of the image's lines are missing before line {before} of the log")]
    Missing {
        /// How many, without those that are damaged.
        count: u32,
        /// The line of the log after them.
        before: usize,
    },
    /// The image's last line is missing.
    #[error("the log is cut: the image's last line is missing after `{0}`")]
    Cut(String),
    /// The image stopped.
    #[error("line {line} of the log: the image stopped: {why}")]
    Stopped {
        /// Line of the log.
        line: usize,
        /// What the image says.
        why: String,
    },
}

/// Why a text is no log of the hello image.
#[derive(Clone, Debug, PartialEq, Eq, Error, Diagnostic)]
pub enum LogError {
    /// It has none of its lines.
    #[error("there is no line of the hello image in the log")]
    #[diagnostic(help("{advice}"))]
    NoLines {
        /// What may be wrong, and what to do.
        advice: String,
    },
    /// The image did not start at EL2.
    #[error("line {line} of the log: the image was started at EL{level}, and needs EL2")]
    #[diagnostic(help(
        "U-Boot's banner must say EL2: use a Trusted Firmware-A that enters it there; on QEMU's \
         virt, add virtualization=on"
    ))]
    WrongLevel {
        /// Line of the log.
        line: usize,
        /// The exception level.
        level: u8,
    },
    /// The first line is missing.
    #[error("the first line of the hello image is missing or damaged: of which board is the log?")]
    #[diagnostic(help("begin to record before the board is switched on"))]
    NoBegin,
    /// The image stopped before it knew its board.
    #[error("line {line} of the log: the image stopped: {why}")]
    #[diagnostic(help("write the image again: `cloison board hello`"))]
    Stopped {
        /// Line of the log.
        line: usize,
        /// What the image says.
        why: String,
    },
}

/// Returns what may be wrong with a text that has no line of the image.
fn advice(text: &str) -> String {
    let has = |words: &str| text.contains(words);
    let words = if text.trim().is_empty() {
        "the log is empty: look for the port, the baud rate and the power"
    } else if text.chars().filter(|c| *c == '\u{fffd}').count() * 4 > text.chars().count() {
        "most bytes are no text: the baud rate is another one, usually 115200 is right"
    } else if has("] Cloison ") {
        "it is the log of another image, which has VMs: boot what `cloison board hello` writes"
    } else if has("Starting kernel") {
        "the image was started and printed nothing: compare [console] of the board file with the \
         manual"
    } else {
        "boot what `cloison board hello` writes, and record the console from power-on on"
    };
    words.to_owned()
}

/// Reads the lines of the image in a console's text: those of its last start.
///
/// # Errors
///
/// If the text is no log of the image.
pub fn read_log(text: &str) -> Result<Log, LogError> {
    let mut found: Option<Builder> = None;
    let (mut strays, mut early) = (0, None);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(level) = wrong_level(line) {
            early = Some(LogError::WrongLevel {
                line: number,
                level,
            });
        }
        if let Some((_, why)) = line.split_once(STOPPED) {
            let why = why.trim_end().to_owned();
            match &mut found {
                Some(builder) => builder.stop(number, why),
                None => early = Some(LogError::Stopped { line: number, why }),
            }
            continue;
        }
        match (read(line), &mut found) {
            (Reading::Line(line), _) if line.key == BEGIN => {
                found = Some(Builder::new(line));
                early = None;
            }
            (Reading::Line(line), Some(builder)) => builder.add(number, line),
            (Reading::Damaged, Some(builder)) => builder.damaged(number),
            (Reading::Line(_) | Reading::Damaged, None) => strays += 1,
            (Reading::Other, _) => (),
        }
    }
    match (found, early) {
        (_, Some(error)) => Err(error),
        (Some(builder), None) => Ok(builder.finish()),
        (None, None) if strays > 0 => Err(LogError::NoBegin),
        (None, None) => Err(LogError::NoLines {
            advice: advice(text),
        }),
    }
}

/// A log that is being read.
struct Builder {
    log: Log,
    /// Number of the next line.
    next: u32,
    /// Damaged lines since the last whole one.
    damaged: u32,
    /// Whether there can be more lines.
    is_open: bool,
}

impl Builder {
    fn new(first: Line) -> Self {
        Self {
            log: Log {
                board: first.expected,
                claims: first.found,
                checks: Vec::new(),
                losses: Vec::new(),
            },
            next: first.number.saturating_add(1),
            damaged: 0,
            is_open: true,
        }
    }

    fn add(&mut self, number: usize, line: Line) {
        let count = line
            .number
            .saturating_sub(self.next.saturating_add(self.damaged));
        if count > 0 {
            let before = number;
            self.log.losses.push(Loss::Missing { count, before });
        }
        self.damaged = 0;
        self.next = line.number.saturating_add(1);
        if line.key == END {
            self.is_open = false;
        } else {
            self.log.checks.push(line);
        }
    }

    fn damaged(&mut self, number: usize) {
        self.damaged = self.damaged.saturating_add(1);
        self.log.losses.push(Loss::Damaged(number));
    }

    fn stop(&mut self, line: usize, why: String) {
        self.is_open = false;
        self.log.losses.push(Loss::Stopped { line, why });
    }

    fn finish(mut self) -> Log {
        if self.is_open {
            let last = self.log.checks.last();
            let last = last.map_or(BEGIN, |line| &line.key).to_owned();
            self.log.losses.push(Loss::Cut(last));
        }
        self.log
    }
}

impl Log {
    /// Returns the checks with a verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Line> {
        self.checks
            .iter()
            .filter(move |line| line.verdict == verdict)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns lines as the image prints them: key, expected, found, verdict.
    pub fn printed(lines: &[(&str, &str, &str, Verdict)]) -> String {
        let line = |(number, &(key, expected, found, verdict)): (u32, _)| Line {
            number,
            key: String::from(key),
            expected: String::from(expected),
            found: String::from(found),
            verdict,
            remark: "why".to_owned(),
        };
        (0..)
            .zip(lines)
            .map(|line_of| format!("{}\r\n", line(line_of)))
            .collect()
    }

    pub fn whole() -> String {
        printed(&[
            (BEGIN, "virt", "0badcafe", Verdict::Noted),
            ("level", "2", "2", Verdict::Right),
            ("cache.ways", "8", "16", Verdict::Wrong),
            (END, "3", "1", Verdict::Noted),
        ])
    }

    #[test]
    fn the_last_start_is_read_with_noise_around_it() {
        let noise = "U-Boot 2023.01\r\n\r\nhello world\r\n";
        let first = printed(&[(BEGIN, "zcu102", "1", Verdict::Noted)]);
        let log = read_log(&format!("{noise}{first}{noise}{}{noise}", whole())).expect("a log");
        assert_eq!((&*log.board, &*log.claims), ("virt", "0badcafe"));
        let keys: Vec<&str> = log.checks.iter().map(|line| &*line.key).collect();
        assert_eq!(keys, ["level", "cache.ways"]);
        assert_eq!(log.losses, []);
        assert_eq!(log.with(Verdict::Wrong).count(), 1);
    }

    #[test]
    fn each_loss_is_named_with_its_line() {
        let whole = whole();
        let lines: Vec<&str> = whole.lines().collect();
        let losses = |text: &str| {
            let found = read_log(text).expect("a log").losses;
            found.iter().map(Loss::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            losses(&lines[..2].join("\n")),
            ["the log is cut: the image's last line is missing after `level`"]
        );
        assert_eq!(
            losses(&[lines[0], lines[2], lines[3]].join("\n")),
            ["1 of the image's lines are missing before line 2 of the log"]
        );
        assert_eq!(
            losses(&whole.replace("found=16", "found=32")),
            ["line 3 of the log is damaged: its CRC does not match"]
        );
        let stopped = format!("{}\ncloison hello: stopped: exception\r\n", lines[0]);
        assert_eq!(
            losses(&stopped),
            ["line 2 of the log: the image stopped: exception"]
        );
    }

    #[test]
    fn a_text_that_is_no_log_is_refused_with_advice() {
        let refused = |text: &str| {
            let error = read_log(text).expect_err("no log");
            format!("{error} | {}", error.help().expect("advice"))
        };
        let cases = [
            ("", "it is empty"),
            (
                "[core 0] Cloison 0.1.0 on virt: kit, 16 colors",
                "of another image",
            ),
            ("\u{fffd}\u{fffd}a\u{fffd}", "the baud rate"),
            ("Starting kernel ...", "printed nothing"),
            ("login:", "from power-on on"),
            (cloison_hello::early::AT_EL1, "started at EL1"),
            (
                "cloison hello: stopped: no claims follow",
                "stopped: no claims",
            ),
        ];
        for (text, expected) in cases {
            let expected = expected.replace("it is empty", "the log is empty");
            let found = refused(text);
            assert!(found.contains(&expected), "{text}: {found}");
        }
        let whole = whole();
        let (_, rest) = whole.split_once('\n').expect("lines");
        assert!(refused(rest).contains("of which board"));
    }
}
