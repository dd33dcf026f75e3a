//! Pages in which every word encodes its address and its number of writes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_guest::ram::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Words in a page.
pub const PAGE_WORDS: usize = (PAGE / 8) as usize;

/// The pages that one vCPU writes and checks.
#[derive(Debug)]
pub struct Stamps {
    words: &'static [AtomicU64],
    /// How often each word has been written so far.
    generation: u64,
}

impl Stamps {
    /// Writes all words for the first time.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        let stamps = Self {
            words,
            generation: 0,
        };
        for word in words {
            word.store(stamps.content(word), SeqCst);
        }
        stamps
    }

    /// Returns pages that were written once before the VM restarted.
    pub const fn of_an_earlier_life(words: &'static [AtomicU64]) -> Self {
        Self {
            words,
            generation: 0,
        }
    }

    /// Returns the expected content of a word, which differs for every address and generation.
    fn content(&self, word: &AtomicU64) -> u64 {
        (word.as_ptr().addr() as u64 ^ self.generation << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Checks every word and writes it again; calls `after_page` after each page. Returns the
    /// number of wrong words.
    pub fn pass(&mut self, mut after_page: impl FnMut()) -> u64 {
        let next = Self {
            words: self.words,
            generation: self.generation + 1,
        };
        let mut wrong = 0;
        for page in self.words.chunks(PAGE_WORDS) {
            for word in page {
                wrong += u64::from(word.load(SeqCst) != self.content(word));
                word.store(next.content(word), SeqCst);
            }
            after_page();
        }
        self.generation = next.generation;
        wrong
    }
}
