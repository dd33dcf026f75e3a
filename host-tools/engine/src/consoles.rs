//! One console, many speakers: takes its stream apart by VM.
//!
//! The hypervisor prints `[name] text` for a guest's line. A line may stand open (a prompt); when another speaker cuts
//! it, it goes on with `[name]+text`. So what a guest wrote can be put together again to the byte, apart from what the
//! hypervisor does not print (`cloison_logic::console`).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Who says something: a VM by its position, or the hypervisor.
pub type Speaker = Option<usize>;

/// Something on the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A line begins, or goes on after it was cut.
    Start(Speaker),
    /// What a speaker says. A VM's line end comes with its next line, since until then it may be the hypervisor's.
    Text(Speaker, &'a [u8]),
    /// The line on the console ends.
    End,
}

/// Takes the stream apart.
#[derive(Clone, Debug)]
pub struct Splitter {
    prefixes: Vec<[Vec<u8>; 2]>,
    /// The beginning of a line whose speaker is not known yet; `None` within a line.
    head: Option<Vec<u8>>,
    speaker: Speaker,
    /// A line end of each VM's that has not been handed out.
    ended: Vec<bool>,
}

impl Splitter {
    /// For these VMs.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let prefixes: Vec<_> =
            names.into_iter().map(|name| [' ', '+'].map(|mark| format!("[{name}]{mark}").into_bytes())).collect();
        let ended = vec![false; prefixes.len()];
        Self { prefixes, head: Some(Vec::new()), speaker: None, ended }
    }

    /// Takes what came next.
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
            Some(vm) => self.ended[vm] = true,
            None => to(Piece::Text(None, b"\n")),
        }
        to(Piece::End);
        self.head = Some(Vec::new());
    }

    fn decide(&mut self, to: &mut impl FnMut(Piece)) {
        let Some(head) = self.head.take() else { return };
        let found = self.prefixes.iter().position(|marks| marks.contains(&head));
        if let Some(vm) = found {
            let goes_on = head.ends_with(b"+");
            self.speaker = Some(vm);
            if std::mem::take(&mut self.ended[vm]) && !goes_on {
                to(Piece::Text(Some(vm), b"\n"));
            }
            to(Piece::Start(Some(vm)));
        } else if self.prefixes.iter().flatten().any(|prefix| prefix.starts_with(&head)) {
            self.head = Some(head);
        } else {
            self.speaker = None;
            to(Piece::Start(None));
            head.iter().for_each(|&byte| self.within(byte, to));
        }
    }

    /// Hands out what was kept back: nothing more comes.
    pub fn finish(&mut self, mut to: impl FnMut(Piece)) {
        for (vm, ended) in self.ended.iter_mut().enumerate() {
            if std::mem::take(ended) {
                to(Piece::Text(Some(vm), b"\n"));
            }
        }
        if let Some(head) = self.head.take().filter(|head| !head.is_empty()) {
            to(Piece::Text(None, &head));
        }
    }
}

/// All that one of these VMs said on a console.
pub fn said_by<'a>(names: impl IntoIterator<Item = &'a str>, vm: usize, console: &str) -> String {
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

/// A file for each VM and one for the hypervisor.
#[derive(Debug)]
pub struct Logs {
    vms: Vec<File>,
    hypervisor: File,
}

impl Logs {
    /// `<name>.log` for each VM and `hypervisor.log`, in a directory that is made.
    pub fn create<'a>(directory: &Path, names: impl IntoIterator<Item = &'a str>) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let create = |name: &str| File::create(directory.join(format!("{name}.log")));
        let vms = names.into_iter().map(create).collect::<io::Result<_>>()?;
        Ok(Self { vms, hypervisor: create("hypervisor")? })
    }

    /// Writes down what was said.
    pub fn write(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Text(Some(vm), text) => self.vms[vm].write_all(text),
            Piece::Text(None, text) => self.hypervisor.write_all(text),
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
                said[speaker.map_or(2, |vm| vm)].push_str(std::str::from_utf8(text).unwrap());
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
        assert_eq!(said_by(["one", "other"], 0, stream), "a\n c\n");
        assert_eq!(split(stream), ["a\n c\n".to_owned(), "b\n".to_owned(), "[core 0] up\n[onely] d\n".to_owned()]);
    }

    #[test]
    fn lines_that_were_cut_are_whole_again() {
        let stream = "[one] ~ # \n[other] beat\n[one]+ls\n[core 1] x\n[one] bin\n[one] ~ # ";
        assert_eq!(split(stream), ["~ # ls\nbin\n~ # ".to_owned(), "beat\n".to_owned(), "[core 1] x\n".to_owned()]);
    }

    #[test]
    fn an_unfinished_prefix_is_not_lost() {
        assert_eq!(split("[on")[2], "[on");
        assert_eq!(split("\n\n[one] \n"), ["\n".to_owned(), String::new(), "\n\n".to_owned()]);
    }

    #[test]
    fn logs_hold_what_was_said() {
        let scratch = tempfile::tempdir().unwrap();
        let mut logs = Logs::create(&scratch.path().join("logs"), ["one"]).unwrap();
        let mut splitter = Splitter::new(["one"]);
        splitter.feed(b"[core 0] up\n[one] a\n", |piece| logs.write(piece).unwrap());
        splitter.finish(|piece| logs.write(piece).unwrap());
        let read = |name: &str| std::fs::read_to_string(scratch.path().join("logs").join(name)).unwrap();
        assert_eq!((read("one.log"), read("hypervisor.log")), ("a\n".to_owned(), "[core 0] up\n".to_owned()));
    }
}
