//! A line of the hello image's log: what was checked, what was expected and found.
//!
//! ```text
//! hello 7 cache.size expected=1048576 found=524288 wrong (CCSIDR_EL1 of level 2) #0c2d0f4a
//! ```
//!
//! The number counts the lines of a log from 0: one that is missing is noticed. The key is the place
//! of the value in the board file. `-` stands for no value. The last word is the CRC-32 of all
//! that is before ` #`. The first line has the key [`BEGIN`], the last one [`END`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::CRC;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// Key of the first line: it expects the board's name, and finds the CRC of the claims.
pub const BEGIN: &str = "begin";
/// Key of the last line: it expects as many lines as there are before it, and finds as many wrong
/// ones.
pub const END: &str = "end";
/// Stands for a value that there is not.
pub const NONE: &str = "-";
/// First word of each line.
const FIRST: &str = "hello ";

/// Whether what was found is what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Right,
    /// It is not.
    Wrong,
    /// It could not be checked.
    Untested,
    /// The board file does not say anything of it.
    Noted,
}

impl Verdict {
    /// The verdicts with their words.
    const WORDS: [(Self, &str); 4] = [
        (Self::Right, "right"),
        (Self::Wrong, "wrong"),
        (Self::Untested, "untested"),
        (Self::Noted, "noted"),
    ];

    /// Returns its word in a line.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(verdict, _)| *verdict == self);
        found.map_or("", |(_, word)| word)
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the log, from 0.
    pub number: u32,
    /// What was checked: a place in the board file, or a name.
    pub key: String,
    /// The board file's value.
    pub expected: String,
    /// The board's value.
    pub found: String,
    /// Whether the two agree.
    pub verdict: Verdict,
    /// More about it; may be empty.
    pub remark: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = format!(
            "{FIRST}{} {} expected={} found={} {}",
            self.number,
            self.key,
            self.expected,
            self.found,
            self.verdict.word()
        );
        if !self.remark.is_empty() {
            body += &format!(" ({})", self.remark);
        }
        f.write_str(&sealed(&body))
    }
}

/// Returns a line's text with its CRC.
pub fn sealed(body: &str) -> String {
    format!("{body} #{:08x}", CRC.checksum(body.as_bytes()))
}

/// What a line of a console's text is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A line of the log.
    Line(Line),
    /// A line of the log that lost or changed bytes.
    Damaged,
    /// Another program's text.
    Other,
}

/// Reads a line of a console's text, which may have other text before.
pub fn read(text: &str) -> Reading {
    let text = text.trim_end();
    let line = text.rfind(FIRST).and_then(|at| parse(&text[at..]));
    // Damage leaves one of its parts.
    let has_parts = text.contains("expected=") || text.contains("found=");
    match line {
        Some(line) => Reading::Line(line),
        None if has_parts => Reading::Damaged,
        None => Reading::Other,
    }
}

/// Reads a whole line.
fn parse(line: &str) -> Option<Line> {
    let (body, sum) = line.rsplit_once(" #")?;
    let sum = (sum.len() == 8).then(|| u32::from_str_radix(sum, 16).ok())??;
    if CRC.checksum(body.as_bytes()) != sum {
        return None;
    }
    let mut words = body.strip_prefix(FIRST)?.splitn(5, ' ');
    let number = words.next()?.parse().ok()?;
    let key = words.next()?.to_string();
    let expected = words.next()?.strip_prefix("expected=")?.to_string();
    let found = words.next()?.strip_prefix("found=")?.to_string();
    let rest = words.next()?;
    let (word, remark) = rest.split_once(' ').unwrap_or((rest, ""));
    let verdict = Verdict::WORDS.iter().find(|(_, known)| *known == word)?.0;
    let remark = match remark {
        "" => "",
        remark => remark.strip_prefix('(')?.strip_suffix(')')?,
    };
    Some(Line {
        number,
        key,
        expected,
        found,
        verdict,
        remark: remark.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> Line {
        Line {
            number: 7,
            key: "cache.size".into(),
            expected: "1048576".into(),
            found: "524288".into(),
            verdict: Verdict::Wrong,
            remark: "CCSIDR_EL1 of level 2".into(),
        }
    }

    #[test]
    fn a_line_has_the_documented_form() {
        let body = "hello 7 cache.size expected=1048576 found=524288 wrong (CCSIDR_EL1 of level 2)";
        let text = line().to_string();
        assert_eq!(text.rsplit_once(" #").expect("a sum").0, body);
        // By Python's `zlib.crc32`.
        assert!(text.ends_with(" #0c2d0f4a"), "{text}");
    }

    #[test]
    fn a_line_is_found_after_noise_and_each_damage_is_noticed() {
        let text = line().to_string();
        let noisy = std::format!("\u{1b}[0mStarting kernel ...{text}\r");
        assert_eq!(read(&noisy), Reading::Line(line()));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(read(&damaged), Reading::Damaged, "{damaged}");
            let mut lost = text.clone();
            lost.remove(at);
            assert_eq!(read(&lost), Reading::Damaged, "{lost}");
        }
        for other in ["", "hello world", "[core 0] Cloison 0.1.0", "say hello "] {
            assert_eq!(read(other), Reading::Other, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in ".{0,200}") {
            let _ = read(&text);
        }

        #[test]
        fn any_line_is_read_as_it_was_written(
            number: u32,
            words in proptest::array::uniform3("[!-~]{1,20}"),
            remark in "[a-zA-Z0-9][ -~]{0,30}",
        ) {
            let [key, expected, found] = words;
            let line = Line { number, key, expected, found, verdict: Verdict::Noted, remark };
            // A value with the first word of a line in it is no value of the image.
            prop_assume!(!line.remark.contains(FIRST));
            prop_assert_eq!(read(&line.to_string()), Reading::Line(line));
        }
    }
}
