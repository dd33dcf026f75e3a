//! Changes files at random: bits, numbers, pieces, words of other files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::Form;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeSet;

/// The longest file that is made.
const LONGEST: usize = 64 << 10;
/// Numbers at which mistakes are likely.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e309",
    "nan",
];
/// Words that mean something in most languages.
const MARKS: [&str; 16] = [
    "\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "=",
    ",",
    "\n",
    "\\",
    "#",
    "\u{0}",
    "\u{e4}",
    "\u{1f600}",
];

/// Makes damaged files of seeds.
#[derive(Debug)]
pub struct Damage {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    random: ChaCha8Rng,
}

impl Damage {
    /// Makes files from `seeds`; the same ones for the same `number`.
    pub fn new(seeds: Vec<Vec<u8>>, form: Form, number: u64) -> Self {
        let mut all = words(&seeds);
        if form == Form::Text {
            all.extend(
                NUMBERS
                    .iter()
                    .chain(&MARKS)
                    .map(|word| word.as_bytes().to_vec()),
            );
        }
        Self {
            seeds,
            words: all.into_iter().collect(),
            random: ChaCha8Rng::seed_from_u64(number),
        }
    }

    /// Returns the next file.
    pub fn file(&mut self) -> Vec<u8> {
        let mut file = self.seed();
        // Most mistakes are small: one or two changes more often than eight.
        let changes = 1 << self.random.random_range(0..4);
        for _ in 0..self.random.random_range(1..=changes) {
            self.change(&mut file);
        }
        file.truncate(LONGEST);
        file
    }

    fn seed(&mut self) -> Vec<u8> {
        match self.seeds.len() {
            0 => Vec::new(),
            count => self.seeds[self.random.random_range(0..count)].clone(),
        }
    }

    /// Returns an index from 0 to `end`, both included.
    fn to(&mut self, end: usize) -> usize {
        self.random.random_range(0..=end)
    }

    /// Returns a piece of the file: mostly short.
    fn piece(&mut self, file: &[u8]) -> std::ops::Range<usize> {
        let start = self.to(file.len());
        let longest = if self.random.random_ratio(1, 4) {
            file.len()
        } else {
            16
        };
        let end = (start + self.to(longest)).min(file.len());
        start..end
    }

    fn change(&mut self, file: &mut Vec<u8>) {
        let at = self.to(file.len());
        match self.random.random_range(0..11) {
            0 if at < file.len() => file[at] ^= 1 << self.to(7),
            1 if at < file.len() => file[at] = self.random.random(),
            2 => file.truncate(at),
            3 => {
                let piece = self.piece(file);
                file.drain(piece);
            }
            4 => {
                let piece = file[self.piece(file)].to_vec();
                file.splice(at..at, piece);
            }
            5 => {
                let other = self.seed();
                let piece = other[self.piece(&other)].to_vec();
                let target = self.piece(file);
                file.splice(target, piece);
            }
            6 => self.number(file, at),
            7 => {
                let (from, to) = (self.line(file), self.line(file));
                let line = file[from].to_vec();
                file.splice(to.start..to.start, line);
            }
            8 => {
                let line = self.line(file);
                file.drain(line);
            }
            9 => self.repeat(file, at),
            _ => self.word(file, at),
        }
    }

    /// Repeats what begins at `at`, a few times or as often as there is room: brackets that are
    /// nested deeply, a table of many rows.
    fn repeat(&mut self, file: &mut Vec<u8>, at: usize) {
        let end = file.len().min(at + 1 + self.to(8));
        let piece = file[at..end].to_vec();
        let room = (LONGEST - file.len().min(LONGEST)) / piece.len().max(1);
        let most = if self.random.random_ratio(1, 8) {
            room
        } else {
            room.min(64)
        };
        let times = self.to(most);
        file.splice(at..at, piece.repeat(times));
    }

    /// Replaces the word at `at`, or inserts one.
    fn word(&mut self, file: &mut Vec<u8>, at: usize) {
        if self.words.is_empty() {
            return;
        }
        let word = self.words[self.random.random_range(0..self.words.len())].clone();
        let old = if self.random.random() {
            word_at(file, at)
        } else {
            at..at
        };
        file.splice(old, word);
    }

    /// Puts a number at `at` in binary, of 1, 2, 4 or 8 bytes: small, large, or a little different.
    fn number(&mut self, file: &mut [u8], at: usize) {
        let length = 1 << self.to(3);
        let at = at & !(length - 1);
        let Some(field) = file.get_mut(at..at + length) else {
            return;
        };
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(field);
        let old = u64::from_le_bytes(bytes);
        let some: u64 = self.random.random_range(0..=32);
        let new = match self.to(4) {
            0 => some,
            1 => u64::MAX - some,
            2 => 1 << some,
            3 => old.wrapping_add(some),
            _ => old.wrapping_sub(some),
        };
        field.copy_from_slice(&new.to_le_bytes()[..length]);
    }

    /// Returns a line of text with its end.
    fn line(&mut self, file: &[u8]) -> std::ops::Range<usize> {
        let at = self.to(file.len());
        let is_end = |&byte: &u8| byte == b'\n';
        let start = file[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
        let end = file[at..].iter().position(is_end);
        start..end.map_or(file.len(), |end| at + end + 1)
    }
}

/// Returns the bounds of the word that contains `at`.
fn word_at(file: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = file[..at].iter().rposition(|byte| !is_word(*byte));
    let end = file[at..].iter().position(|byte| !is_word(*byte));
    start.map_or(0, |start| start + 1)..end.map_or(file.len(), |end| at + end)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the words of files, each once.
pub fn words(files: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    files
        .iter()
        .flat_map(|file| file.split(|byte| !is_word(*byte)))
        .filter(|word| (1..=32).contains(&word.len()))
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_makes_the_same_files() {
        let seeds = || vec![b"name = 3\n[table]\n".to_vec(), vec![0; 40]];
        let files = |number| {
            let mut damage = Damage::new(seeds(), Form::Text, number);
            (0..200).map(|_| damage.file()).collect::<Vec<_>>()
        };
        assert_eq!(files(1), files(1));
        assert_ne!(files(1), files(2));
        let different: BTreeSet<_> = files(1).into_iter().collect();
        assert!(different.len() > 150, "{}", different.len());
    }

    #[test]
    fn files_of_no_seeds_are_made_too() {
        let mut damage = Damage::new(vec![], Form::Text, 1);
        assert!((0..100).any(|_| !damage.file().is_empty()));
    }
}
