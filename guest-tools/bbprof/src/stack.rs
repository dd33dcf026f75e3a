//! The start of a program's stack: where it begins within a page does not depend on the run.
//!
//! Under address randomization, Linux leaves a random part of a page free between the strings at the
//! end of the stack and what a program finds at its stack pointer: its arguments, environment and
//! auxiliary vector. All frames of functions follow them, so that the same data would be in other
//! pages in each run. Before the program's first instruction, these vectors are moved to a fixed
//! distance from the end. What they point to stays where it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::memory::Memory;
use cloison_profile::layout::{Kind, PAGE};

/// Bytes of a word, and of a pair of the auxiliary vector.
const WORD: usize = 8;
const PAIR: usize = 2 * WORD;
/// Key of the auxiliary vector's last pair (`AT_NULL`).
const NULL: u64 = 0;
/// Most bytes between the strings and the vectors beside the random part: the name of the platform,
/// and 16 random bytes, each aligned.
const BETWEEN: u64 = 256;
/// The distance of the stack pointer from the stack's end is a multiple of this, so that it is the
/// same with other arguments and another environment, unless these take more than two pages.
const STEP: u64 = 4 * PAGE;

/// The vectors at the stack pointer of a program that has not started: number of arguments,
/// arguments, environment, auxiliary vector.
#[derive(Debug, PartialEq, Eq)]
struct Vectors {
    /// Their length in bytes.
    length: usize,
    /// Address of the first argument, which is the lowest of all strings.
    strings: u64,
}

impl Vectors {
    /// Reads the vectors; `None` if they are not complete.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let bytes = bytes.get(index * WORD..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let arguments = usize::try_from(word(0)?).ok().filter(|&count| count > 0)?;
        let strings = word(1)?;
        // A null follows the arguments, and the environment.
        let mut at = arguments.checked_add(2)?;
        while word(at)? != 0 {
            at += 1;
        }
        at += 1;
        while word(at)? != NULL {
            at += PAIR / WORD;
        }
        Some(Self {
            length: at * WORD + PAIR,
            strings,
        })
    }

    /// Returns the stack pointer to which they move, in a stack that ends there: below any at which
    /// the kernel may have put them.
    fn place(&self, end: u64) -> Option<u64> {
        let below = end
            .checked_sub(self.strings)?
            .checked_add(PAGE + BETWEEN + self.length as u64)?;
        end.checked_sub(below.next_multiple_of(STEP))
    }
}

/// Moves the vectors of a program that has not started, and returns its new stack pointer. All pages
/// from there to the stack's end have frames then.
pub fn settle(memory: &Memory, pointer: u64) -> Result<u64, Error> {
    let layout = memory.layout()?;
    let stack = layout
        .iter()
        .find(|mapping| mapping.kind == Kind::Stack)
        .filter(|stack| (stack.start..stack.end()).contains(&pointer))
        .ok_or(Error::Vectors)?;
    let mut bytes = vec![0; (stack.end() - pointer) as usize];
    memory.read(pointer, &mut bytes)?;
    let vectors = Vectors::parse(&bytes).ok_or(Error::Vectors)?;
    let place = vectors
        .place(stack.end())
        .filter(|&place| place <= pointer && place >= stack.start)
        .ok_or(Error::Vectors)?;
    memory.touch(place, ((stack.end() - place) / PAGE) as u32)?;
    memory.write(place, &bytes[..vectors.length])?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 0x7f_e57c_8000;

    /// Returns what the kernel leaves at the stack pointer.
    fn vectors(arguments: u64, environment: u64, strings: u64) -> Vec<u8> {
        let mut words = vec![arguments];
        words.extend((0..arguments).map(|at| strings + 8 * at));
        words.push(0);
        words.extend((0..environment).map(|at| strings + 8 * (arguments + at)));
        words.push(0);
        // Values may be zero, keys not.
        words.extend([16, 0, 6, 4096, 25, 0x7f_e57c_7000, NULL, 0]);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn vectors_end_after_the_last_pair() {
        let bytes = vectors(2, 3, END - 0x200);
        let mut followed = bytes.clone();
        followed.extend([0xee; 100]);
        let parsed = Vectors::parse(&followed).expect("vectors");
        assert_eq!((parsed.length, parsed.strings), (bytes.len(), END - 0x200));
        assert_eq!(Vectors::parse(&bytes[..bytes.len() - PAIR]), None);
        assert_eq!(Vectors::parse(&vectors(0, 3, END)), None, "no arguments");
        let mut many = bytes;
        many[..WORD].fill(0xff);
        assert_eq!(Vectors::parse(&many), None, "more arguments than memory");
        assert_eq!(Vectors::parse(&[]), None);
    }

    /// Whatever free part the kernel leaves, the place is the same, and below the vectors.
    #[test]
    fn the_place_does_not_depend_on_the_free_part() {
        for (arguments, environment, text) in [(1, 0, 20), (3, 5, 400), (20, 40, 3000)] {
            let strings = END - text;
            let bytes = vectors(arguments, environment, strings);
            let parsed = Vectors::parse(&bytes).expect("vectors");
            let place = parsed.place(END).expect("a place");
            assert_eq!(END - place, STEP, "one step is enough for usual strings");
            for free in 0..PAGE {
                let pointer = (strings - free - 64 - bytes.len() as u64) & !15;
                assert!(place <= pointer, "{arguments} arguments, {free} bytes free");
            }
        }
        let long = Vectors::parse(&vectors(1, 0, END - 3 * PAGE)).expect("vectors");
        assert_eq!(long.place(END), Some(END - 2 * STEP));
        assert_eq!(long.place(0x4000), None, "a stack without room");
    }
}
