//! Splits the stream of a console that several VMs share.
//!
//! The hypervisor prints `[name] text` for a guest's line. An unfinished line (a prompt) that
//! another VM's output interrupts continues as `[name]+text`. So a guest's output can be
//! reassembled to the byte, except for bytes that the hypervisor does not print
//! (`cloison_logic::console`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::ids::VmId;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The source of some output: a VM, or the hypervisor (`None`).
pub type Speaker = Option<VmId>;

/// A piece of the console's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A line starts, or continues after an interruption.
    Start(Speaker),
    /// Output of a speaker. A VM's line end is passed on with its next line, because until then it
    /// may be the hypervisor's.
    Text(Speaker, &'a [u8]),
    /// The line on the console ends.
    End,
}

/// Splits the stream.
#[derive(Clone, Debug)]
pub struct Splitter {
    prefixes: Vec<[Vec<u8>; 2]>,
    /// The start of a line whose speaker is not known yet; `None` within a line.
    head: Option<Vec<u8>>,
    speaker: Speaker,
    /// For each VM, whether a line end has not been passed on yet.
    ended: Vec<bool>,
}

impl Splitter {
    /// Creates a splitter for these VMs.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let prefixes: Vec<_> = names
            .into_iter()
            .map(|name| [' ', '+'].map(|mark| format!("[{name}]{mark}").into_bytes()))
            .collect();
        let ended = vec![false; prefixes.len()];
        Self {
            prefixes,
            head: Some(Vec::new()),
            speaker: None,
            ended,
        }
    }

    /// Processes the next bytes, calling `to` for each piece.
    pub fn feed(&mut self, bytes: &[u8], mut to: impl FnMut(Piece)) {
        for &byte in bytes.iter().filter(|&&byte| byte != b'\r') {
            match &mut self.head {
                None => self.within(byte, &mut to),
                Some(head) => {
                    head.push(byte);
                    self.decide(&mut to);
                }
            }
        }
    }

    fn within(&mut self, byte: u8, to: &mut impl FnMut(Piece)) {
        if byte != b'\n' {
            return to(Piece::Text(self.speaker, &[byte]));
        }
        match self.speaker {
            Some(vm) => self.ended[vm.index()] = true,
            None => to(Piece::Text(None, b"\n")),
        }
        to(Piece::End);
        self.head = Some(Vec::new());
    }

    fn decide(&mut self, to: &mut impl FnMut(Piece)) {
        let Some(head) = self.head.take() else { return };
        let found = self.prefixes.iter().position(|marks| marks.contains(&head));
        let found = found.map(|vm| VmId(vm as u8));
        if let Some(vm) = found {
            let goes_on = head.ends_with(b"+");
            self.speaker = Some(vm);
            if std::mem::take(&mut self.ended[vm.index()]) && !goes_on {
                to(Piece::Text(Some(vm), b"\n"));
            }
            to(Piece::Start(Some(vm)));
        } else if self
            .prefixes
            .iter()
            .flatten()
            .any(|prefix| prefix.starts_with(&head))
        {
            self.head = Some(head);
        } else {
            self.speaker = None;
            to(Piece::Start(None));
            head.iter().for_each(|&byte| self.within(byte, to));
        }
    }

    /// Passes on the bytes that were held back, at the end of the stream.
    pub fn finish(&mut self, mut to: impl FnMut(Piece)) {
        for (vm, ended) in (0..).zip(&mut self.ended) {
            if std::mem::take(ended) {
                to(Piece::Text(Some(VmId(vm)), b"\n"));
            }
        }
        if let Some(head) = self.head.take().filter(|head| !head.is_empty()) {
            to(Piece::Text(None, &head));
        }
    }
}

/// Returns everything that one of these VMs printed on a console.
pub fn said_by<'a>(names: impl IntoIterator<Item = &'a str>, vm: VmId, console: &str) -> String {
    let mut said = Vec::new();
    let mut take = |piece: Piece| match piece {
        Piece::Text(speaker, text) if speaker == Some(vm) => said.extend_from_slice(text),
        _ => {}
    };
    let mut splitter = Splitter::new(names);
    splitter.feed(console.as_bytes(), &mut take);
    splitter.finish(&mut take);
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns text without control sequences of terminals (ECMA-48, 5.3 to 5.6), which move the
/// cursor, color text or ask for the terminal's state. Control characters other than tabs and line
/// ends are removed too.
pub fn plain(text: &str) -> String {
    /// The sequence that a character belongs to.
    enum Within {
        Text,
        /// After ESC.
        Escape,
        /// After ESC `[`: ends with a letter or one of its neighbors.
        Control,
        /// After ESC and one of `]P^_X`: ends with BEL or ESC `\`.
        Words,
    }
    let mut within = Within::Text;
    let mut plain = String::new();
    for character in text.chars() {
        within = match (within, character) {
            (Within::Escape, '[') => Within::Control,
            (Within::Escape, ']' | 'P' | '^' | '_' | 'X') => Within::Words,
            (Within::Escape, ' '..='/') => Within::Escape,
            (Within::Control, ' '..='?') => Within::Control,
            (Within::Words, '\u{7}') => Within::Text,
            (_, '\u{1b}') => Within::Escape,
            (Within::Words, character) if character != '\n' => Within::Words,
            // The final character. Nothing spans lines, so that an unfinished sequence hides
            // little.
            (Within::Escape | Within::Control, character) if character != '\n' => Within::Text,
            (_, character) => {
                if !character.is_control() || matches!(character, '\n' | '\t') {
                    plain.push(character);
                }
                Within::Text
            }
        };
    }
    plain
}

/// Log files: one for each VM, and one for the hypervisor. They hold [`plain`] text.
#[derive(Debug)]
pub struct Logs {
    vms: Vec<Log>,
    hypervisor: Log,
}

/// A log file, and its unfinished line.
#[derive(Debug)]
struct Log {
    file: File,
    line: Vec<u8>,
}

impl Log {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        for part in text.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.file
            .write_all(plain(&String::from_utf8_lossy(&line)).as_bytes())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The end of a line that its guest did not finish. `Logs::write` has reported a full disk
        // before.
        let _ = self.flush();
    }
}

impl Logs {
    /// Creates the directory with `<name>.log` for each VM and `hypervisor.log`.
    pub fn create<'a>(
        directory: &Path,
        names: impl IntoIterator<Item = &'a str>,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let create = |name: &str| {
            Ok::<_, io::Error>(Log {
                file: File::create(directory.join(format!("{name}.log")))?,
                line: Vec::new(),
            })
        };
        let vms = names.into_iter().map(create).collect::<io::Result<_>>()?;
        Ok(Self {
            vms,
            hypervisor: create("hypervisor")?,
        })
    }

    /// Writes a piece to its log.
    pub fn write(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Text(Some(vm), text) => self.vms[vm.index()].write(text),
            Piece::Text(None, text) => self.hypervisor.write(text),
            Piece::Start(_) | Piece::End => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(stream: &str) -> [String; 3] {
        let mut said = [const { String::new() }; 3];
        let mut splitter = Splitter::new(["one", "other"]);
        let mut to = |piece: Piece| {
            if let Piece::Text(speaker, text) = piece {
                said[speaker.map_or(2, VmId::index)].push_str(std::str::from_utf8(text).unwrap());
            }
        };
        for byte in stream.bytes() {
            splitter.feed(&[byte], &mut to);
        }
        splitter.finish(&mut to);
        said
    }

    #[test]
    fn each_gets_what_it_said() {
        let stream = "[core 0] up\r\n[one] a\r\n[other] b\n[one]  c\n[onely] d\n";
        assert_eq!(said_by(["one", "other"], VmId(0), stream), "a\n c\n");
        assert_eq!(
            split(stream),
            [
                "a\n c\n".to_owned(),
                "b\n".to_owned(),
                "[core 0] up\n[onely] d\n".to_owned()
            ]
        );
    }

    #[test]
    fn lines_that_were_cut_are_whole_again() {
        let stream = "[one] ~ # \n[other] beat\n[one]+ls\n[core 1] x\n[one] bin\n[one] ~ # ";
        assert_eq!(
            split(stream),
            [
                "~ # ls\nbin\n~ # ".to_owned(),
                "beat\n".to_owned(),
                "[core 1] x\n".to_owned()
            ]
        );
    }

    #[test]
    fn an_unfinished_prefix_is_not_lost() {
        assert_eq!(split("[on")[2], "[on");
        assert_eq!(
            split("\n\n[one] \n"),
            ["\n".to_owned(), String::new(), "\n\n".to_owned()]
        );
    }

    #[test]
    fn what_is_for_a_terminal_is_left_out_elsewhere() {
        // busybox asks for the cursor's place before each prompt, `ls` colors, a title is set.
        assert_eq!(plain("rt:/root# \u{1b}[6n"), "rt:/root# ");
        assert_eq!(
            plain("\u{1b}[1;34mbin\u{1b}[0m\tdev\u{8}\r\n"),
            "bin\tdev\n"
        );
        assert_eq!(
            plain("\u{1b}]0;title\u{7}a\u{1b}]0;title\u{1b}\\b\u{1b}(Bc"),
            "abc"
        );
        assert_eq!(
            plain("unfinished \u{1b}[3\nnext äöü €"),
            "unfinished \nnext äöü €"
        );
    }

    #[test]
    fn utf_8_is_whole_after_splitting() {
        let stream = "[one] äöü €\n[other] ✓\n";
        assert_eq!(said_by(["one", "other"], VmId(0), stream), "äöü €\n");
        let scratch = tempfile::tempdir().unwrap();
        let mut logs = Logs::create(scratch.path(), ["one", "other"]).unwrap();
        let mut splitter = Splitter::new(["one", "other"]);
        for byte in "[one] äöü € \u{1b}[6n\n[other] ✓".bytes() {
            splitter.feed(&[byte], |piece| logs.write(piece).unwrap());
        }
        splitter.finish(|piece| logs.write(piece).unwrap());
        drop(logs);
        let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap();
        assert_eq!(
            (read("one.log"), read("other.log")),
            ("äöü € \n".to_owned(), "✓".to_owned())
        );
    }

    #[test]
    fn logs_hold_what_was_said() {
        let scratch = tempfile::tempdir().unwrap();
        let mut logs = Logs::create(&scratch.path().join("logs"), ["one"]).unwrap();
        let mut splitter = Splitter::new(["one"]);
        splitter.feed(b"[core 0] up\n[one] a\n", |piece| {
            logs.write(piece).unwrap()
        });
        splitter.finish(|piece| logs.write(piece).unwrap());
        let read =
            |name: &str| std::fs::read_to_string(scratch.path().join("logs").join(name)).unwrap();
        assert_eq!(
            (read("one.log"), read("hypervisor.log")),
            ("a\n".to_owned(), "[core 0] up\n".to_owned())
        );
    }
}
